"""Test that a request expires if it waits too long, and only then, even if later requests are answered first."""

import asyncio

from storage.posting.waiting_posts import WaitTimer

SOON_S, LONG_S = 0.01, 3_600.0


def future() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


async def test_waiting_requests_expire_in_order_and_answered_ones_do_not() -> None:
    expired: asyncio.Queue[str] = asyncio.Queue()
    expiry: WaitTimer[str] = WaitTimer(SOON_S, expired.put_nowait)
    futures = {name: future() for name in ("answered", "first", "between", "second")}
    for name, waits in futures.items():
        expiry.add_waiting(name, waits)
    futures["answered"].set_result(None)
    futures["between"].cancel()
    assert [await expired.get(), await expired.get()] == ["first", "second"]
    assert expired.empty()


async def test_a_request_that_comes_after_the_last_expiry_expires_too() -> None:
    expired: asyncio.Queue[str] = asyncio.Queue()
    expiry: WaitTimer[str] = WaitTimer(SOON_S, expired.put_nowait)
    for name in ("one", "two"):
        waits = future()
        expiry.add_waiting(name, waits)
        assert await expired.get() == name
        waits.cancel()


async def test_an_answered_request_is_not_kept() -> None:
    expiry: WaitTimer[bytearray] = WaitTimer(LONG_S, lambda _: None)
    for _ in range(1_000):
        waits = future()
        expiry.add_waiting(bytearray(1), waits)
        waits.set_result(None)
    assert len(expiry) <= 1
    expiry.close()


async def test_no_request_expires_after_closing() -> None:
    expired: list[str] = []
    expiry: WaitTimer[str] = WaitTimer(SOON_S, expired.append)
    expiry.add_waiting("late", future())
    expiry.close()
    after = future()
    asyncio.get_running_loop().call_later(2 * SOON_S, after.set_result, None)
    await after
    assert expired == []

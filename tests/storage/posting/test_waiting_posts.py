"""Test which waiting request is taken next, and that a request expires if it waits too long, and only then."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from storage.posting.waiting_posts import STEPPED_OVER_MAX, RequestQueue, WaitingRequest, WaitTimer
from storage.records import Post


def make_request(loop: asyncio.AbstractEventLoop, *owners: str) -> WaitingRequest:
    return WaitingRequest([Post(owner, [], None, None, "") for owner in owners], len(owners), loop.create_future())


def make_queue(*requests: str, group_posts_max: int = 100, **enough: int) -> RequestQueue:
    """Make a queue with one request for each text. Each letter of a text names the owner of one post."""
    queue = RequestQueue(group_posts_max=group_posts_max, **enough)
    loop = asyncio.new_event_loop()
    for owners in requests:
        queue.append_request(make_request(loop, *owners))
    loop.close()
    return queue


def letters(group: list[WaitingRequest]) -> list[str]:
    return ["".join(post.owner for post in waiting.posts) for waiting in group]


def test_a_group_takes_all_requests_in_order_if_none_is_in_flight() -> None:
    queue = make_queue("a", "ab", "a", "c")
    assert letters(queue.take_group()) == ["a", "ab", "a", "c"]
    assert (queue.parts, queue.parts_in_flight, bool(queue.requests)) == (0, 5, False)


def test_requests_of_owners_in_flight_wait_and_none_overtakes_them() -> None:
    queue = make_queue("a", "b", group_posts_max=1)
    first, second = queue.take_group(), queue.take_group()
    assert (letters(first), letters(second)) == (["a"], ["b"])
    queue = make_queue("a", "xa", "x", "y", "a", "z", group_posts_max=1)
    first = queue.take_group()
    assert letters(queue.take_group()) == ["y"]
    assert letters(queue.take_group()) == ["z"]
    assert letters(queue.take_group()) == []
    assert len(queue.in_flight) == 3
    queue.release_group(first)
    assert letters(queue.take_group()) == ["xa"]
    assert letters(queue.take_group()) == []


def test_one_group_may_hold_several_requests_of_an_owner() -> None:
    queue = make_queue("x", "a", "a", "xb", "a", group_posts_max=3)
    busy = queue.take_group()
    assert letters(busy) == ["x", "a", "a"]
    assert letters(queue.take_group()) == []
    queue.release_group(busy)
    assert letters(queue.take_group()) == ["xb", "a"]


def test_a_group_with_enough_posts_leaves_the_other_requests_to_other_groups() -> None:
    queue = make_queue("a", "bc", "d", "efg", "h", enough=2)
    assert [letters(queue.take_group()) for _ in range(3)] == [["a", "bc"], ["d", "efg"], ["h"]]


def test_the_search_behind_owners_in_flight_is_bounded() -> None:
    queue = make_queue("a", *["a"] * STEPPED_OVER_MAX, "b", group_posts_max=1)
    first = queue.take_group()
    assert letters(queue.take_group()) == []
    queue.release_group(first)
    queue.take_group()
    assert letters(queue.take_group()) == ["b"]


def test_a_withdrawn_request_leaves_no_trace() -> None:
    queue = RequestQueue(group_posts_max=10)
    loop = asyncio.new_event_loop()
    first, second = make_request(loop, "a"), make_request(loop, "b", "c")
    loop.close()
    queue.append_request(first)
    queue.append_request(second)
    assert queue.withdraw_request(first)
    assert not queue.withdraw_request(first)
    assert queue.parts == 2
    assert queue.take_group() == [second]
    assert not queue.withdraw_request(second)


OWNERS = st.text("abcdef", min_size=1, max_size=3)


@given(requests=st.lists(OWNERS, max_size=40), ends=st.lists(st.integers(0, 5)), size=st.integers(1, 5))
def test_groups_in_flight_share_no_owner_and_keep_their_order(requests: list[str], ends: list[int], size: int) -> None:
    queue = make_queue(*requests, group_posts_max=size)
    in_flight: list[list[WaitingRequest]] = []
    taken: list[str] = []
    while queue.requests or in_flight:
        group = queue.take_group()
        if group:
            owners = [set("".join(letters(each))) for each in (*in_flight, group)]
            assert sum(map(len, owners)) == len(set().union(*owners))
            in_flight.append(group)
            taken += letters(group)
        if not group or (ends and ends.pop() < len(in_flight)):
            queue.release_group(in_flight.pop(len(ends) % len(in_flight)))
    assert sorted(taken) == sorted(requests)
    for owner in "abcdef":
        assert [each for each in taken if owner in each] == [each for each in requests if owner in each]


SOON_S, LONG_S = 0.01, 3_600.0


def add_request(expiry: WaitTimer, owner: str) -> asyncio.Future[object]:
    """Add a request with one post, and return its future."""
    waiting = make_request(asyncio.get_running_loop(), owner)
    expiry.add_waiting(waiting)
    return waiting.done


async def test_waiting_requests_expire_in_order_and_answered_ones_do_not() -> None:
    expired: asyncio.Queue[WaitingRequest] = asyncio.Queue()
    expiry = WaitTimer(SOON_S, expired.put_nowait)
    futures = {name: add_request(expiry, name) for name in ("answered", "first", "between", "second")}
    futures["answered"].set_result(None)
    futures["between"].cancel()
    assert letters([await expired.get(), await expired.get()]) == ["first", "second"]
    assert expired.empty()


async def test_a_request_that_comes_after_the_last_expiry_expires_too() -> None:
    expired: asyncio.Queue[WaitingRequest] = asyncio.Queue()
    expiry = WaitTimer(SOON_S, expired.put_nowait)
    for name in ("one", "two"):
        waits = add_request(expiry, name)
        assert letters([await expired.get()]) == [name]
        waits.cancel()


async def test_an_answered_request_is_not_kept() -> None:
    expiry = WaitTimer(LONG_S, lambda _: None)
    for _ in range(1_000):
        add_request(expiry, "ada").set_result(None)
    assert len(expiry._requests) <= 1
    expiry.close()


async def test_no_request_expires_after_closing() -> None:
    expired: list[WaitingRequest] = []
    expiry = WaitTimer(SOON_S, expired.append)
    add_request(expiry, "late")
    expiry.close()
    after = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(2 * SOON_S, after.set_result, None)
    await after
    assert expired == []

"""Test that no answer of the service depends on a memcached server that is down, slow, or sends wrong data."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from storage.curves.memcached import Memcached
from tests.memcached import MEMCACHED_LIMITS, LyingServer, OpenMemcached

WAIT_S = 60
TIMEOUT_S = MEMCACHED_LIMITS.memcached_timeout_s
PATIENT_TIMEOUT_S = 2.0
PAUSE_S = MEMCACHED_LIMITS.memcached_pause_s
VALUE = bytes(range(256)) * 80

Open = Callable[..., Memcached]


@pytest.fixture
def server() -> Iterator[OpenMemcached]:
    with OpenMemcached() as started:
        yield started


@pytest.fixture
async def cache_on() -> AsyncIterator[Open]:
    async with AsyncExitStack() as stack:

        def make(*addresses: str, monotonic: Callable[[], float] = time.monotonic, **limits: Any) -> Memcached:
            named = {f"memcached_{name}": value for name, value in limits.items()}
            cache = Memcached(
                MEMCACHED_LIMITS.model_copy(update={"memcached_servers": addresses, **named}), monotonic=monotonic
            )
            stack.push_async_callback(cache.close)
            return cache

        yield make


async def test_every_process_reads_what_one_process_stored(server: OpenMemcached, cache_on: Open) -> None:
    assert (await cache_on(server.address).store_value("a", VALUE)).stored
    answered = await cache_on(server.address).get_many(["a", "b"])
    assert (answered.values, answered.errors) == ({"a": VALUE}, 0)


async def test_a_killed_server_is_an_error_and_serves_again_once_back(server: OpenMemcached, cache_on: Open) -> None:
    cache = cache_on(server.address)
    assert (await cache.store_value("a", VALUE)).stored
    server.kill()
    for answered in (await cache.get_many(["a"]), await cache.store_value("a", VALUE)):
        assert (answered.values, answered.stored, answered.errors) == ({}, False, 1)
    server.start()
    assert (await cache.store_value("a", VALUE)).stored
    assert (await cache.get_many(["a"])).values == {"a": VALUE}


async def test_a_stopped_server_costs_timeouts_until_the_breaker_opens(server: OpenMemcached, cache_on: Open) -> None:
    now_s = 0.0  # only the test moves this clock, so the breaker's pause does not end early on a slow machine
    cache = cache_on(server.address, failures_max=2, monotonic=lambda: now_s)
    await cache.store_value("a", VALUE)
    server.pause()
    for left_alone in (0, 1):
        began_s = time.monotonic()
        assert (await cache.get_many(["a"])).errors == 1
        assert TIMEOUT_S * 0.9 < time.monotonic() - began_s < WAIT_S
        assert cache.servers_left_alone == left_alone
    answered = await cache.get_many(["a"])
    assert (answered.values, answered.errors) == ({}, 0), "no server was asked"
    server.resume()
    async with asyncio.timeout(WAIT_S):
        while not (await cache.get_many(["a"])).values:
            now_s += PAUSE_S
    assert cache.servers_left_alone == 0


async def test_a_server_is_left_alone_only_after_enough_failures_in_a_row(
    server: OpenMemcached, cache_on: Open
) -> None:
    cache = cache_on(server.address, failures_max=3)
    for _ in range(3):
        server.kill()
        for _ in range(2):
            assert (await cache.get_many(["a"])).errors == 1
        server.start()
        assert (await cache.get_many(["a"])).errors == 0
    assert cache.servers_left_alone == 0


async def test_after_a_pause_one_call_tries_a_failed_server_again(server: OpenMemcached, cache_on: Open) -> None:
    now_s = 100.0
    cache = cache_on(server.address, failures_max=3, monotonic=lambda: now_s)
    server.kill()
    assert [(await cache.get_many(["a"])).errors for _ in range(1_000)] == [1, 1, 1] + [0] * 997
    for _ in range(2):
        now_s += PAUSE_S - 0.1
        assert (await cache.get_many(["a"])).errors == 0
        now_s += 0.2
        assert [(await cache.get_many(["a"])).errors for _ in range(2)] == [1, 0]
        assert cache.servers_left_alone == 1
    server.start()
    now_s += PAUSE_S
    assert (await cache.get_many(["a"])).errors == 0
    assert cache.servers_left_alone == 0
    server.kill()
    assert (await cache.get_many(["a"])).errors == 1
    assert cache.servers_left_alone == 0, "the failures are counted from 0 again"


async def test_a_call_that_its_caller_abandons_leaves_nothing_behind(server: OpenMemcached, cache_on: Open) -> None:
    cache = cache_on(server.address, timeout_s=PATIENT_TIMEOUT_S)
    assert (await cache.store_value("b", VALUE)).stored
    before = len(os.listdir("/proc/self/fd"))
    for number in range(10_000):
        asking = asyncio.create_task(cache.get_many(["a", "b"]))
        for _ in range(number % 5):
            await asyncio.sleep(0)
        asking.cancel()
    assert (await cache.get_many(["b"])).values == {"b": VALUE}, "no call gets the answer to another one"
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_the_event_loop_goes_on_while_a_server_hangs(server: OpenMemcached, cache_on: Open) -> None:
    cache = cache_on(server.address)
    server.pause()
    asking = asyncio.create_task(cache.get_many(["a"]))
    turns = 0
    while not asking.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 100


async def test_a_server_that_drips_is_held_to_the_timeout_of_the_whole_call(cache_on: Open) -> None:
    with LyingServer(b"VALUE a 0 1000\r\n" + bytes(1000) + b"\r\nEND\r\n", pause_s=TIMEOUT_S / 10) as dripping:
        began_s = time.monotonic()
        assert (await cache_on(dripping.address).get_many(["a"])).errors == 1
        assert time.monotonic() - began_s < WAIT_S


async def test_an_answer_longer_than_any_honest_one_is_not_read_to_its_end(cache_on: Open) -> None:
    with LyingServer(b"VALUE a 0 1000000\r\n" + bytes(1_000_000) + b"\r\nEND\r\n") as lying:
        answered = await cache_on(lying.address, value_bytes_max=1_024).get_many(["a"])
        assert (answered.values, answered.errors) == ({}, 1)


async def test_servers_are_asked_at_the_same_time(server: OpenMemcached, cache_on: Open) -> None:
    with OpenMemcached() as other:
        cache = cache_on(server.address, other.address, failures_max=1)
        keys = [f"key-{number}" for number in range(10)]
        for key in keys:
            assert (await cache.store_value(key, VALUE)).stored
        server.pause()
        other.pause()
        assert (await cache.get_many(keys)).errors == 2, "each had the whole time to answer"
        assert cache.servers_left_alone == 2


@pytest.mark.parametrize("answer", [
    b"\x00\xff\r\n", b"VALUE\r\nEND\r\n", b"VALUE a 0 minus\r\nx\r\nEND\r\n", b"VALUE a 0 -7\r\nx\r\nEND\r\n",
    b"VALUE other 0 1\r\nx\r\nEND\r\n", b"ERROR\r\n", b"SERVER_ERROR out of memory\r\n", b"CLIENT_ERROR no\r\n",
    b"HTTP/1.1 400 Bad Request\r\n\r\n", b"STORED\r\n",
])  # fmt: skip
async def test_a_nonsense_reply_is_a_counted_error_and_never_an_exception(cache_on: Open, answer: bytes) -> None:
    with LyingServer(answer) as lying:
        answered = await cache_on(lying.address).get_many(["a"])
        # If the server sends a negative length, the client returns arbitrary bytes, which the caller has to check.
        assert answered.errors == (0 if b"-7" in answer else 1)
        put = await cache_on(lying.address).store_value("b", b"x")
        assert put.stored == (answer == b"STORED\r\n")


async def test_refusing_a_value_does_not_open_a_servers_breaker(server: OpenMemcached, cache_on: Open) -> None:
    cache = cache_on(server.address, failures_max=1, value_bytes_max=4_000_000)
    refused = await cache.store_value("large", bytes(2_000_000))
    assert (refused.stored, refused.errors, cache.servers_left_alone) == (False, 1, 0)
    assert (await cache.store_value("a", VALUE)).stored


async def test_one_server_that_hangs_does_not_take_keys_of_the_others(server: OpenMemcached, cache_on: Open) -> None:
    keys = [f"key-{number}" for number in range(10)]
    with OpenMemcached() as other:
        # With a long timeout, the other server answers in time even on a busy machine.
        cache = cache_on(server.address, other.address, failures_max=1, timeout_s=PATIENT_TIMEOUT_S)
        for key in keys:
            assert (await cache.store_value(key, VALUE)).stored
        theirs = set(other.held())
        assert 0 < len(theirs) < len(keys)
        server.pause()
        began_s = time.monotonic()
        await cache.get_many(keys)
        assert time.monotonic() - began_s < PATIENT_TIMEOUT_S * 3, "one timeout, however many servers hang"
        assert cache.servers_left_alone == 1
        assert set((await cache.get_many(keys)).values) == theirs
        for key in keys:
            await cache.store_value(key, VALUE)
        assert set(other.held()) == theirs, "no key moves to another server"


async def test_a_closed_cache_asks_no_server(server: OpenMemcached, cache_on: Open) -> None:
    cache = cache_on(server.address)
    await cache.store_value("a", VALUE)
    await cache.close()
    assert (await cache.get_many(["a"])).values == {}

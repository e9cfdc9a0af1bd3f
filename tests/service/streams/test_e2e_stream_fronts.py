"""Test streams of several serving processes on one PostgreSQL store. Every client gets every post, from any process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from storage.log.change_log import change_log
from tests.service.event_stream import EventStream, events_of
from tests.service.real_service import Caller, Service, Spawn

TOP = "/v1/leaderboards/b/stream?column=xp&top=2"
BOB = "/v1/leaderboards/b/stream?column=xp&owner=bob"
XP = {"name": "xp"}


@pytest.fixture
async def pair(store_url: str, tmp_path: Path) -> AsyncIterator[list[Service]]:
    """Start two serving processes. The first process creates the board."""
    async with AsyncExitStack() as stack:
        services = [Service(tmp_path, store=store_url, jobs="none") for _ in range(2)]
        for service in services:
            await service.start()
            stack.push_async_callback(service.stop)
        await services[0].board("b", XP)
        await services[0].post_xp("b", ada=30, bob=20, cleo=10)
        yield services


async def test_a_post_to_one_front_end_reaches_the_streams_of_the_other(pair: list[Service]) -> None:
    one, other = pair
    async with events_of(other.base, TOP) as top, events_of(other.base, BOB) as bob:
        assert (await top.expect_event("top")).rows == [("ada", 30), ("bob", 20)]
        assert (await bob.expect_event("position")).data["rank"] == 2
        await one.post_xp("b", cleo=25)
        assert (await top.expect_event("top")).rows == [("ada", 30), ("cleo", 25)]
        passed = await bob.expect_event("position")
        assert (passed.data["rank"], passed.data["previous_rank"], passed.data["overtaken_by"]) == (3, 2, ["cleo"])
        await one.post_xp("b", bob=40)
        assert (await bob.expect_event("position")).data["rank"] == 1


async def test_a_client_can_resume_its_stream_at_the_other_front_end(pair: list[Service]) -> None:
    one, other = pair
    async with events_of(one.base, TOP) as top, events_of(one.base, BOB) as bob:
        top_id, bob_id = (await top.expect_event("top")).id, (await bob.expect_event("position")).id
    await one.post_xp("b", cleo=25)
    async with events_of(other.base, TOP, last_id=top_id) as top, events_of(other.base, BOB, last_id=bob_id) as bob:
        missed = await top.expect_event("top")
        assert missed.rows == [("ada", 30), ("cleo", 25)]
        passed = await bob.expect_event("position")
        assert (passed.data["rank"], passed.data["previous_rank"], passed.data["overtaken_by"]) == (3, 2, ["cleo"])
    async with events_of(one.base, TOP, last_id=missed.id) as top:
        await other.post_xp("b", eve=99)
        assert (await top.expect_event("top")).rows == [("eve", 99), ("ada", 30)], (
            "events from before are not sent again"
        )


async def test_every_front_end_answers_too_old_a_number_with_reset(pair: list[Service]) -> None:
    one, other = pair
    async with events_of(one.base, TOP) as top:
        old = (await top.expect_event("top")).id
    await one.post_xp("b", cleo=40)
    await one.post_xp("b", dan=50)
    store, later_us = one.context.store, one.context.now_us() + 10**6
    await store.write(lambda: change_log.prune(before_us=later_us, keep_from=None, rows_max=100))
    async with events_of(other.base, TOP, last_id=old) as top:
        await top.expect_event("reset")
        assert (await top.expect_event("top")).rows == [("dan", 50), ("cleo", 40)]


async def _read_until(stream: EventStream, value: int) -> list[tuple[int, int]]:
    """Read events until the best value is `value`. Return the number and the best value of each event."""
    found: list[tuple[int, int]] = []
    while not found or found[-1][1] != value:
        event = await stream.expect_event("top")
        found.append((event.id, event.data["entries"][0]["value"]))
    return found


async def test_concurrent_posts_to_several_front_ends_are_streamed_in_one_order(pair: list[Service]) -> None:
    one, other = pair
    async with events_of(one.base, TOP) as first, events_of(other.base, TOP) as second:
        await first.expect_event("top")
        await second.expect_event("top")

        async def write(service: Service, owner: str) -> None:
            for value in range(100, 140):
                await service.post_xp("b", **{owner: value})

        await asyncio.gather(*(write(service, f"{owner}{n}") for n, service in enumerate(pair) for owner in "xyz"))
        await one.post_xp("b", last=1000)
        for heard in (await _read_until(first, 1000), await _read_until(second, 1000)):
            assert heard == sorted(heard), "neither event numbers nor best values decrease"
            assert len({number for number, _ in heard}) == len(heard)


async def test_every_worker_of_a_node_streams_the_posts_to_any_of_them(store_url: str, spawn: Spawn) -> None:
    node = spawn("--store", store_url, "--workers", "2").ready()
    async with AsyncExitStack() as stack:
        caller = await stack.enter_async_context(Caller(node.url))
        await caller.board("b", XP)
        streams: list[EventStream] = []
        workers: set[str] = set()
        # The kernel chooses the worker for each connection, so open streams until both workers have one.
        while len(workers) < 2 or len(streams) < 6:
            streams.append(await stack.enter_async_context(events_of(node.url, TOP)))
            workers.add(streams[-1].response.headers["X-Request-Id"].partition("-")[0])
            await streams[-1].expect_event("top")
        await caller.post_xp("b", ada=7)
        for stream in streams:
            assert (await stream.expect_event("top")).rows == [("ada", 7)]

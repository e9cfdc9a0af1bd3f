"""Test that a client of a board's stream gets every event once, and that it gets missed events when it reconnects.

With several serving processes on one PostgreSQL store, every client gets every post, from any process.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from storage.log.change_log import change_log
from tests.service.event_stream import EventStream, events_of
from tests.service.real_service import Service

TOP = "/v1/leaderboards/b/stream?column=xp&top=2"


@pytest.fixture
async def pair(either_store: dict[str, Any], tmp_path: Path) -> AsyncIterator[list[Service]]:
    """Start one serving process on SQLite, which is both members of the pair, or two on one PostgreSQL store."""
    async with Service(tmp_path, jobs="none", **either_store).running() as one:
        if "store" not in either_store:
            yield [one, one]
            return
        async with Service(tmp_path, jobs="none", **either_store).running() as other:
            yield [one, other]


def owner_path(owner: str) -> str:
    return f"/v1/leaderboards/b/stream?column=xp&owner={owner}"


async def board(service: Service, **xp: int) -> None:
    await service.board("b", {"name": "xp"}, {"name": "shots", "sorted": False, "merge": "sum"})
    await service.post_xp("b", **xp)


async def test_a_stream_sends_the_top_at_once_and_after_each_change(pair: list[Service]) -> None:
    one, other = pair
    await board(one, ada=30, bob=20, cleo=10)
    async with events_of(other.base, TOP) as stream:
        first = await stream.expect_event("top")
        assert first.rows == [("ada", 30), ("bob", 20)]
        assert first.data["total"] == 3
        await one.post_xp("b", dan=5)
        await one.post_xp("b", cleo=25)
        second = await stream.expect_event("top")
        assert second.rows == [("ada", 30), ("cleo", 25)], "a post below the top causes no event"
        assert second.id > first.id
        await one.post("b", {"owner": "ada", "stats": {"shots": 7}})
        third = await stream.expect_event("top")
        assert third.data["entries"][0]["stats"]["shots"] == 7
        await one.must("DELETE", "/v1/leaderboards/b/entries/ada")
        assert (await stream.expect_event("top")).rows == [("cleo", 25), ("bob", 20)]
        await one.must("PUT", "/v1/owners/cleo/hidden")
        assert (await stream.expect_event("top")).rows == [("bob", 20), ("dan", 5)]


async def test_a_stream_tells_an_owner_who_overtook_it(pair: list[Service]) -> None:
    one, other = pair
    await board(one, ada=30, bob=20, cleo=10)
    async with events_of(other.base, owner_path("bob")) as stream:
        first = await stream.expect_event("position")
        assert (first.data["rank"], first.data["value"], first.data["overtaken_by"]) == (2, 20, [])
        await one.post_xp("b", cleo=25)
        second = await stream.expect_event("position")
        assert (second.data["rank"], second.data["previous_rank"], second.data["overtaken_by"]) == (3, 2, ["cleo"])
        await one.post_xp("b", cleo=20)
        third = await stream.expect_event("position")
        assert (third.data["rank"], third.data["overtaken_by"]) == (2, []), "a tie shares the rank"
        await one.post_xp("b", bob=31)
        assert (await stream.expect_event("position")).data["rank"] == 1
        await one.must("PUT", "/v1/owners/bob/hidden")
        gone = await stream.expect_event("position")
        assert (gone.data["rank"], gone.data["value"]) == (None, None)
        await one.must("DELETE", "/v1/owners/bob/hidden")
        assert (await stream.expect_event("position")).data["rank"] == 1


async def test_a_stream_tells_an_owner_of_erasures_of_others_and_of_itself(service: Service) -> None:
    await board(service, ada=30, bob=20, cleo=10, dan=20)
    async with events_of(service.base, owner_path("bob")) as stream:
        assert (await stream.expect_event("position")).data["rank"] == 2
        await service.must("DELETE", "/v1/owners/cleo")
        await service.must("DELETE", "/v1/owners/ada")
        first = await stream.await_event("position", rank=1)
        assert (first.data["previous_rank"], first.data["overtaken_by"]) == (2, [])
        await service.must("DELETE", "/v1/owners/dan")
        await service.post_xp("b", eve=25)
        assert (await stream.await_event("position", rank=2)).data["overtaken_by"] == ["eve"]
        await service.must("DELETE", "/v1/owners/bob")
        gone = await stream.await_event("position", rank=None)
        assert (gone.data["value"], gone.data["total"]) == (None, 1)


async def test_a_stream_has_the_same_ranks_as_reads(service: Service) -> None:
    await service.board("b", {"name": "xp", "best": "low"}, ties="earliest")
    await service.post_xp("b", **{f"o{number}": number % 5 for number in range(20)})
    async with events_of(service.base, owner_path("o7")) as stream:
        first = await stream.expect_event("position")
        for number in range(20, 30):
            await service.post_xp("b", **{f"o{number}": number % 3})
        await service.post_xp("b", last=0)
        path = "/v1/leaderboards/b/entries/o7/positions?rank=exact"
        [position] = (await service.get(path))["positions"]
        assert first.data["rank"] < position["rank"]
        seen = await stream.await_event("position", rank=position["rank"])
        assert seen.data["total"] <= position["total"]


async def test_a_client_that_reconnects_gets_what_it_missed_and_nothing_twice(pair: list[Service]) -> None:
    one, other = pair
    await board(one, ada=30, bob=20, cleo=10)
    async with events_of(one.base, TOP) as top, events_of(one.base, owner_path("bob")) as owner:
        top_id, owner_id = (await top.expect_event("top")).id, (await owner.expect_event("position")).id
    await one.post_xp("b", dan=1)
    await one.post_xp("b", cleo=25)
    async with (
        events_of(other.base, TOP, last_id=top_id) as top,
        events_of(other.base, owner_path("bob"), last_id=owner_id) as owner,
    ):
        missed = await top.expect_event("top")
        assert missed.rows == [("ada", 30), ("cleo", 25)]
        passed = await owner.expect_event("position")
        assert (passed.data["rank"], passed.data["previous_rank"], passed.data["overtaken_by"]) == (3, 2, ["cleo"])
    async with events_of(one.base, TOP, last_id=missed.id) as top:
        await other.post_xp("b", eve=99)
        again = await top.expect_event("top")
        assert again.rows == [("eve", 99), ("ada", 30)], "events from before are not sent again"
        assert again.id > missed.id


@pytest.mark.parametrize("last_id", ["0x", "-1", "99999999", "9" * 30])
async def test_a_number_that_the_journal_has_not_reached_is_answered_with_reset(service: Service, last_id: str) -> None:
    await board(service, ada=30)
    async with events_of(service.base, TOP, last_id=last_id) as stream:
        reset, state = await stream.expect_event("reset"), await stream.expect_event("top")
        assert state.rows == [("ada", 30)]
        assert reset.id == state.id


async def test_a_number_that_the_journal_no_longer_holds_is_answered_with_reset(pair: list[Service]) -> None:
    one, other = pair
    await board(one, ada=30, bob=20)
    async with events_of(one.base, TOP) as stream:
        old = (await stream.expect_event("top")).id
    store = one.context.store.at(0)  # the partition of the first board
    await one.post_xp("b", cleo=40)
    await one.post_xp("b", dan=50)
    later_us = one.context.now_us() + 10**6
    await store.write(lambda: change_log.prune(before_us=later_us, rows_max=100))
    async with events_of(other.base, TOP, last_id=old) as stream:
        await stream.expect_event("reset")
        assert (await stream.expect_event("top")).rows == [("dan", 50), ("cleo", 40)]
    assert await one.refused("GET", f"/v1/journal?after={old}") == (410, "journal_pruned")


async def test_an_invalid_stream_is_refused_before_it_begins(service: Service) -> None:
    await board(service, ada=30)
    at = "/v1/leaderboards/b/stream?column=xp"
    assert await service.refused("GET", "/v1/leaderboards/no/stream?column=xp") == (404, "unknown_board")
    assert await service.refused("GET", "/v1/leaderboards/b/stream?column=shots") == (404, "unknown_column")
    assert await service.refused("GET", at + "&owner=ada&top=3") == (400, "bad_request")
    for owner in ("ada", "nobody"):
        await service.must("PUT", f"/v1/owners/{owner}/hidden")
        assert await service.refused("GET", at + f"&owner={owner}") == (404, "not_ranked")


async def test_the_first_post_of_an_owner_is_the_first_event_of_its_stream(pair: list[Service]) -> None:
    one, other = pair
    await board(one, ada=30)
    await one.post("b", {"owner": "bob", "stats": {"shots": 7}})
    async with AsyncExitStack() as stack:
        for owner in ("new", "bob"):
            first, second = [
                await stack.enter_async_context(events_of(each.base, owner_path(owner))) for each in (one, other)
            ]
            await one.post("b", {"owner": owner, "stats": {"shots": 1}})
            await one.post_xp("b", **{owner: 40 if owner == "new" else 35})
            for stream in (first, second):
                event = await stream.expect_event("position")
                assert (event.data["rank"], event.data["previous_rank"]) == (1 if owner == "new" else 2, None)
        await one.must("DELETE", "/v1/owners/new")
        gone = await first.await_event("position", rank=1)
        assert gone.data["previous_rank"] == 2
    async with events_of(one.base, owner_path("new"), last_id=gone.id) as stream:
        await one.post_xp("b", new=50)
        assert (await stream.expect_event("position")).data["rank"] == 1


async def test_a_stream_ends_with_its_board_and_can_be_resumed_after_a_reset(service: Service) -> None:
    await board(service, ada=30)
    async with events_of(service.base, TOP) as stream:
        last = await stream.expect_event("top")
        await service.must("POST", "/v1/leaderboards/b/reset")
        assert await stream.read_event() is None
    async with events_of(service.base, TOP, last_id=last.id) as stream:
        assert (await stream.expect_event("top")).rows == []
        await service.must("DELETE", "/v1/leaderboards/b")
        assert await stream.read_event() is None
    assert await service.refused("GET", TOP) == (404, "unknown_board")


async def test_streams_are_bounded_and_one_that_ended_makes_room_for_another(service: Service) -> None:
    await board(service, ada=30)
    await service.restart(stream_clients_max=2, stream_heartbeat_s=0.01)
    async with AsyncExitStack() as stack:
        for _ in range(2):
            stream = await stack.enter_async_context(events_of(service.base, TOP))
            await stream.expect_event("top")
        assert await service.refused("GET", TOP) == (503, "store_busy")
    while service.context.feeds.clients:  # noqa: ASYNC110 - heartbeats find out
        await asyncio.sleep(0)
    async with events_of(service.base, TOP) as stream:
        await stream.expect_event("top")


async def test_open_streams_do_not_delay_a_stop(service: Service) -> None:
    await board(service, ada=30)
    async with events_of(service.base, TOP) as stream:
        await stream.expect_event("top")
        stopping = asyncio.create_task(service.restart())
        assert await stream.read_event() is None
        await stopping


async def _read_until(stream: EventStream, value: int) -> list[tuple[int, int]]:
    """Read events until the best value is `value`. Return the number and the best value of each event."""
    found: list[tuple[int, int]] = []
    while not found or found[-1][1] != value:
        event = await stream.expect_event("top")
        found.append((event.id, event.data["entries"][0]["value"]))
    return found


async def test_concurrent_posts_to_several_processes_are_streamed_in_one_order(pair: list[Service]) -> None:
    one, other = pair
    await board(one, ada=30, bob=20, cleo=10)
    async with events_of(one.base, TOP) as first, events_of(one.base, TOP) as twin, events_of(other.base, TOP) as far:
        streams = (first, twin, far)
        for stream in streams:
            await stream.expect_event("top")

        async def write(service: Service, owner: str) -> None:
            for value in range(100, 140):
                await service.post_xp("b", **{owner: value})

        await asyncio.gather(*(write(service, f"{owner}{n}") for n, service in enumerate(pair) for owner in "xyz"))
        await one.post_xp("b", last=1000)
        heard = [await _read_until(stream, 1000) for stream in streams]
        assert heard[0] == heard[1], "clients of one process get the same events"
        for events in heard:
            assert events == sorted(events), "neither event numbers nor best values decrease"
            assert len({number for number, _ in events}) == len(events)

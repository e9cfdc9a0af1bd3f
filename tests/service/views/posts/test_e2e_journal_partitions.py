"""Test the journal and the streams of a service whose store has four partitions."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from config import Settings
from storage.engines.postgres import PostgresStore
from storage.errors import StoreExistsError
from storage.records import Board
from tests.service.cli_fake_service import run
from tests.service.event_stream import events_of
from tests.service.real_service import Service

BOARDS = ("a", "b", "c", "d")
PARTITIONS = len(BOARDS)


@pytest.fixture
async def apart(store_url: str, tmp_path: Path) -> AsyncIterator[Service]:
    """Start a service on a store with four partitions, each of which has one of the boards."""
    store = await PostgresStore.open(store_url, Settings())
    with suppress(StoreExistsError):  # on Citus, the tests' stores have these partitions
        await store.create_apart(PARTITIONS)
    await store.close()
    async with Service(tmp_path, store=store_url).running() as service:
        for board in BOARDS:
            await service.board(board, {"name": "xp", "merge": "sum"})
        yield service


async def find_board(service: Service, board_id: str) -> Board:
    return await service.context.catalog.find_board(board_id)


async def read_journal(service: Service, after: object = 0, limit: int = 100) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = await service.get(f"/v1/journal?after={after}&limit={limit}")
    return lines


async def post_to_all(service: Service, **xp: int) -> None:
    for board in BOARDS:
        await service.post_xp(board, **xp)


async def test_the_journal_of_all_partitions_is_read_page_by_page_with_a_cursor(apart: Service) -> None:
    assert {(await find_board(apart, board)).partition for board in BOARDS} == set(range(PARTITIONS))
    await post_to_all(apart, ada=1, bob=2)
    await post_to_all(apart, ada=3)
    every = await read_journal(apart)
    expected = [(board, owner) for board in BOARDS for owner in ("ada", "bob")] + [(board, "ada") for board in BOARDS]
    assert [(line["board"], line["owner"]) for line in every] == expected
    seen, after = list[tuple[str, str]](), "0"
    while page := await read_journal(apart, after, limit=5):
        seen += [(line["board"], line["owner"]) for line in page]
        after = page[-1]["seq"]
        assert isinstance(after, str)
    assert seen == expected
    await apart.post_xp("c", cleo=1)
    assert [line["owner"] for line in await read_journal(apart, after)] == ["cleo"]


async def test_a_wrong_place_in_the_journal_is_refused(apart: Service) -> None:
    for after in ("x", "-1", "1e3", ""):
        assert await apart.refused("GET", f"/v1/journal?after={after}") == (400, "bad_request"), after
    assert await apart.refused("GET", f"/v1/journal?after={'A' * 60}") == (400, "bad_cursor")


async def test_cursors_of_the_journal_and_of_an_owners_posts_are_kept_apart(apart: Service) -> None:
    await post_to_all(apart, ada=1)
    seq = (await read_journal(apart))[-1]["seq"]
    following = (await apart.get("/v1/owners/ada/posts?limit=1"))["next"]
    assert await apart.refused("GET", f"/v1/journal?after={following}") == (400, "bad_cursor")
    assert await apart.refused("GET", f"/v1/owners/ada/posts?before={seq}") == (400, "bad_cursor")
    cursor = apart.context.cursors.encode_numbers((1,) * (PARTITIONS + 1))
    assert await apart.refused("GET", f"/v1/journal?after={cursor}") == (400, "bad_cursor")


async def test_a_stream_follows_the_partition_of_its_board_and_resumes(apart: Service) -> None:
    await post_to_all(apart, ada=30, bob=20)
    for board in BOARDS:
        partition = (await find_board(apart, board)).partition
        path = f"/v1/leaderboards/{board}/stream?column=xp&top=2"
        async with events_of(apart.base, path) as stream:
            assert (await stream.expect_event("top")).rows == [("ada", 30), ("bob", 20)]
            await apart.post_xp(board, bob=15)
            second = await stream.expect_event("top")
            assert second.rows == [("bob", 35), ("ada", 30)]
            assert second.text_id == (f"{partition}.{second.id}" if partition else str(second.id))
        await apart.post_xp(board, ada=1)
        async with events_of(apart.base, path, last_id=second.text_id) as stream:
            assert (await stream.expect_event("top")).rows == [("bob", 35), ("ada", 31)]
        other = f"{(partition + 1) % PARTITIONS}.{second.id}"
        async with events_of(apart.base, path, last_id=other) as stream:
            await stream.expect_event("reset")
            assert (await stream.expect_event("top")).rows == [("bob", 35), ("ada", 31)]


async def test_a_stream_ends_when_its_board_moves_to_another_partition(apart: Service, store_url: str) -> None:
    await apart.post_xp("b", ada=1)
    there = str(((await find_board(apart, "b")).partition + 1) % PARTITIONS)
    async with events_of(apart.base, "/v1/leaderboards/b/stream?column=xp&top=1") as stream:
        await stream.expect_event("top")
        await asyncio.to_thread(run, "partition", "move", "b", there, "--store", store_url, code=0)
        assert await stream.read_event() is None

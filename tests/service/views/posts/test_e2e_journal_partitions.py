"""Test the journal and the streams of a service whose store has four partitions."""

from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from config import Settings
from querybuilder import col, delete, param, update
from service.commands.operating.stores import rebuild_on_store
from service.stores import open_store
from storage.boards.row_tables import create_row_table, layout_of
from storage.boards.totals import store_states
from storage.engines.postgres import PostgresStore
from storage.errors import StoreExistsError
from storage.log import journal, partition_journal
from storage.log.change_log import change_log
from storage.log.log_record import ChangeKind
from storage.records import Board
from storage.schema.tables import BOARDS as CATALOG
from storage.schema.tables import TOTALS
from storage.store import Program, in_partition
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


def move_without_rows(board: Board) -> Program[None]:
    """Do to the catalog, the totals and the journal what a move of this empty board does."""
    there = (board.partition + 1) % PARTITIONS
    yield update(CATALOG).set(partition=there).where(col("board_key").eq(param("key"))).bind(key=board.key)
    yield from in_partition(there, create_row_table(layout_of(board)))
    removed = delete(TOTALS).where(col("board_key").eq(param("key"))).bind(key=board.key)
    yield structs.replace(removed, partition=board.partition)
    yield from store_states([replace(board, partition=there)])
    yield from journal.log_event(board, ChangeKind.MOVED, 1)


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


async def test_a_reader_from_the_time_of_one_partition_goes_on_with_its_number(apart: Service) -> None:
    await post_to_all(apart, ada=1)
    [first] = await apart.context.store.at(0).read(lambda: partition_journal.read_changes(0, limit=9))
    lines = await read_journal(apart, first.number)
    here = [board for board in BOARDS if (await find_board(apart, board)).partition == 0]
    assert [line["board"] for line in lines] == [board for board in BOARDS if board not in here]


@pytest.mark.parametrize(
    ("after", "code"),
    [
        ("x", "bad_request"),
        ("-1", "bad_request"),
        ("1e3", "bad_request"),
        ("", "bad_request"),
        ("A" * 60, "bad_cursor"),
    ],
)
async def test_a_wrong_place_in_the_journal_is_refused(apart: Service, after: str, code: str) -> None:
    assert await apart.refused("GET", f"/v1/journal?after={after}") == (400, code)


async def test_cursors_of_the_journal_and_of_an_owners_posts_are_kept_apart(apart: Service) -> None:
    await post_to_all(apart, ada=1)
    seq = (await read_journal(apart))[-1]["seq"]
    following = (await apart.get("/v1/owners/ada/posts?limit=1"))["next"]
    assert await apart.refused("GET", f"/v1/journal?after={following}") == (400, "bad_cursor")
    assert await apart.refused("GET", f"/v1/owners/ada/posts?before={seq}") == (400, "bad_cursor")
    cursor = apart.context.cursors.encode_numbers((1,) * (PARTITIONS + 1))
    assert await apart.refused("GET", f"/v1/journal?after={cursor}") == (400, "bad_cursor")


async def test_a_cursor_before_the_begin_of_a_partition_is_answered_with_410(apart: Service) -> None:
    for _ in range(3):
        await post_to_all(apart, ada=1)
    first = (await read_journal(apart))[0]["seq"]
    now_us = apart.context.now_us()
    prune = change_log.prune
    await apart.context.store.at(2).write(lambda: prune(before_us=now_us, keep_from=None, rows_max=2))
    assert await apart.refused("GET", f"/v1/journal?after={first}") == (410, "journal_pruned")
    assert len(await read_journal(apart)) == 3 * PARTITIONS - 2


async def test_an_owners_posts_in_all_partitions_are_listed_newest_first(apart: Service) -> None:
    await post_to_all(apart, ada=1, bob=1)
    await post_to_all(apart, ada=2)
    expected = [(board, xp) for xp in (2, 1) for board in BOARDS[::-1]]
    path, seen = "/v1/owners/ada/posts?limit=3", list[tuple[str, int]]()
    page = await apart.get(path)
    while True:
        seen += [(line["board"], line["stats"]["xp"]) for line in page["posts"]]
        if page["next"] is None:
            break
        page = await apart.get(f"{path}&before={page['next']}")
    assert seen == expected
    last = page["posts"][-1]
    later = [line["stats"]["xp"] for line in await read_journal(apart, last["seq"]) if line["board"] == last["board"]]
    assert later == [1, 2], "the journal goes on with the post of bob"


@pytest.mark.parametrize("board", BOARDS)
async def test_a_stream_follows_the_partition_of_its_board_and_resumes(apart: Service, board: str) -> None:
    partition = (await find_board(apart, board)).partition
    await post_to_all(apart, ada=30, bob=20)
    path = f"/v1/leaderboards/{board}/stream?column=xp&top=2"
    async with events_of(apart.base, path) as stream:
        assert (await stream.expect_event("top")).rows == [("ada", 30), ("bob", 20)]
        await apart.post_xp(board, bob=15)
        second = await stream.expect_event("top")
        assert second.rows == [("bob", 35), ("ada", 30)]
        assert second.text_id == (f"{partition}.{second.id}" if partition else str(second.id))
    await post_to_all(apart, ada=1)
    async with events_of(apart.base, path, last_id=second.text_id) as stream:
        assert (await stream.expect_event("top")).rows == [("bob", 35), ("ada", 31)]
    other = f"{(partition + 1) % PARTITIONS}.{second.id}"
    async with events_of(apart.base, path, last_id=other) as stream:
        await stream.expect_event("reset")
        assert (await stream.expect_event("top")).rows == [("bob", 35), ("ada", 31)]


async def test_a_stream_ends_when_its_board_moves_to_another_partition(apart: Service) -> None:
    await apart.post_xp("b", ada=1)
    board, store = await find_board(apart, "b"), apart.context.store
    async with events_of(apart.base, "/v1/leaderboards/b/stream?column=xp&top=1") as stream:
        await stream.expect_event("top")
        await store.write(lambda: move_without_rows(board))
        assert await stream.read_event() is None


async def test_a_deleted_board_is_rebuilt_from_the_partition_that_it_had(apart: Service, store_url: str) -> None:
    for owner in ("ada", "bob"):
        await apart.post_xp("c", **{owner: 5})
    first = next(line["seq"] for line in await read_journal(apart) if line["board"] == "c")
    old = await find_board(apart, "c")
    await apart.must("DELETE", "/v1/leaderboards/c")
    await apart.board("new", {"name": "xp"})  # takes the free place
    await apart.board("c", {"name": "xp", "merge": "sum"})
    assert (await find_board(apart, "c")).partition != old.partition
    store = await open_store(Settings(store=store_url))
    done = await rebuild_on_store(store, board_id="c", since=first)
    await store.close()
    assert (done.replayed, done.entries) == (2, 2)
    entries = (await apart.get("/v1/leaderboards/c/rankings/xp"))["entries"]
    assert {(entry["owner"], entry["value"]) for entry in entries} == {("ada", 5), ("bob", 5)}

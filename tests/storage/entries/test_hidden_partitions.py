"""Test hidden owners on a store with several partitions."""

from functools import partial

import pytest

from querybuilder import col, select
from storage.engines.partitions import Partitions
from storage.engines.postgres import PostgresStore
from storage.entries import hidden_owners
from storage.entries.hidden_owners import HIDDEN_KEY, hidden_statements
from storage.records import Board
from storage.schema.creation import add_partition, in_each_partition
from storage.schema.tables import HIDDEN_ENTRIES, LOG_COUNTER
from storage.store import Program, Store
from tests.schemas import PARTITIONS
from tests.storage.backends import BACKENDS, POSTGRES_LIMITS, Backend
from tests.storage.deployment import Deployment, part, ranked


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Backend:
    return BACKENDS["partitions"](request)


def read_marks() -> Program[tuple[list[str], int]]:
    """Return the marked owners of a partition, and how often an owner was hidden or shown there."""
    marked = select(col("owner")).from_(HIDDEN_ENTRIES).where(col("board_key").eq(HIDDEN_KEY))
    owners = sorted(row[0] for row in (yield marked.bind()))
    [[hides]] = yield select(col("hides")).from_(LOG_COUNTER).bind()
    return owners, hides


async def boards_in(deployment: Deployment, *partitions: int) -> list[Board]:
    boards = []
    for partition in partitions:
        deployment.partition = partition
        boards.append(await deployment.create(f"b{partition}", ranked("xp")))
    return boards


async def owners_on(deployment: Deployment, board: Board) -> set[str]:
    entries = deployment.entries(board)
    found = await deployment.store.for_board(board).read(lambda: entries.find_entries(["ada", "cheat"]))
    return set(found)


async def test_an_owner_is_marked_in_every_partition(deployment: Deployment) -> None:
    await deployment.flip_hidden("cheat", hide=True)
    await deployment.flip_hidden("other", hide=True)
    marks = await deployment.store.read(lambda: in_each_partition(read_marks))
    assert marks == [(["cheat", "other"], 2)] * PARTITIONS
    await deployment.flip_hidden("cheat", hide=False)
    marks = await deployment.store.read(lambda: in_each_partition(read_marks))
    assert marks == [(["other"], 3)] * PARTITIONS


async def test_a_post_of_a_hidden_owner_merges_unseen_in_every_partition(deployment: Deployment) -> None:
    first, last = await boards_in(deployment, 0, 3)
    await deployment.flip_hidden("cheat", hide=True)
    for owner in ("ada", "cheat"):
        await deployment.apply(deployment.post(owner, part(first, {"xp": 1}), part(last, {"xp": 2})))
    for board in (first, last):
        assert await owners_on(deployment, board) == {"ada"}
        finding = partial(hidden_statements.find_hidden, [board.key], ["cheat"])
        found = await deployment.store.for_board(board).read(finding)
        assert [(each.board_key, each.entry.owner) for each in found.entries] == [(board.key, "cheat")]


async def test_a_new_partition_gets_the_marks_of_hidden_owners(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hidden_owners, "MARKS_A_PAGE", 2)
    store: Store = await PostgresStore.open(place, POSTGRES_LIMITS)
    try:
        deployment = await Deployment.on(store)
        board = await deployment.create("b", ranked("xp"))
        owners = ["ada", "bob", "cleo", "dan", "eve"]
        for owner in owners:
            await deployment.apply_one(deployment.post(owner, part(board, {"xp": 1})))
            await deployment.flip_hidden(owner, hide=True)
        schemas = Partitions(place.rpartition("search_path=")[2])
        adding = partial(
            add_partition, schema_of=schemas.schema_named, distributed=False, fill=hidden_statements.copy_marks
        )
        assert await store.write(adding) == 1
        assert await store.at(1).read(read_marks) == (owners, 0)
        assert [marked for marked, _ in await store.read(lambda: in_each_partition(read_marks))] == [owners] * 2
        [new] = await boards_in(deployment, 1)
        await deployment.apply_one(deployment.post("eve", part(new, {"xp": 1})))
        assert await owners_on(deployment, new) == set()
    finally:
        await store.close()

"""Test that an owner's row is in exactly one of two tables, even if processes hide, post and die concurrently."""

import asyncio
from functools import partial

import pytest

from querybuilder import col, select
from storage.engines.postgres import PostgresStore
from storage.entries import hidden_owners
from storage.entries.hidden_owners import HIDDEN_KEY
from storage.schema.creation import in_each_partition
from storage.schema.tables import HIDDEN_ENTRIES, LOG_COUNTER
from storage.store import Program
from tests.schemas import PARTITIONS
from tests.storage.deployment import Deployment, counter, part, ranked
from tests.storage.processes import Processes

GROUPS = 40
several_partitions = pytest.mark.parametrize("backend", ["partitions"], indirect=True)


def read_marks() -> Program[tuple[list[str], int]]:
    """Return the marked owners of a partition, and how often an owner was hidden or shown there."""
    marked = select(col("owner")).from_(HIDDEN_ENTRIES).where(col("board_key").eq(HIDDEN_KEY))
    owners = sorted(row[0] for row in (yield marked.bind()))
    [[hides]] = yield select(col("hides")).from_(LOG_COUNTER).bind()
    return owners, hides


@several_partitions
async def test_an_owner_is_marked_in_every_partition(deployment: Deployment) -> None:
    await deployment.flip_hidden("cheat", hide=True)
    await deployment.flip_hidden("other", hide=True)
    marks = await deployment.store.read(lambda: in_each_partition(read_marks))
    assert marks == [(["cheat", "other"], 2)] * PARTITIONS
    await deployment.flip_hidden("cheat", hide=False)
    marks = await deployment.store.read(lambda: in_each_partition(read_marks))
    assert marks == [(["other"], 3)] * PARTITIONS


@several_partitions
async def test_a_post_of_a_hidden_owner_merges_unseen_in_every_partition(deployment: Deployment) -> None:
    first, *_, last = await deployment.create_everywhere(ranked("xp"))
    await deployment.flip_hidden("cheat", hide=True)
    for owner in ("ada", "cheat"):
        await deployment.apply(deployment.post(owner, part(first, {"xp": 1}), part(last, {"xp": 2})))
    for board in (first, last):
        assert (await deployment.rows(board, ["ada", "cheat"])).keys() == {"ada"}
        finding = partial(hidden_owners.find_hidden, [board.key], ["cheat"])
        found = await deployment.store.at(board.partition).read(finding)
        assert [(each.board_key, each.entry.owner) for each in found.entries] == [(board.key, "cheat")]


async def test_a_new_partition_gets_the_marks_of_hidden_owners(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hidden_owners, "MARKS_A_PAGE", 2)
    deployment = await processes.start_process()
    store, board = deployment.store, await deployment.create("b", ranked("xp"))
    assert isinstance(store, PostgresStore)
    owners = ["ada", "bob", "cleo", "dan", "eve"]
    for owner in owners:
        await deployment.apply_one(deployment.post(owner, part(board, {"xp": 1})))
        await deployment.flip_hidden(owner, hide=True)
    assert await store.add_partition(hidden_owners.copy_marks) == 1
    assert await store.at(1).read(read_marks) == (owners, 0)
    assert [marked for marked, _ in await store.read(lambda: in_each_partition(read_marks))] == [owners] * 2
    new = await deployment.create("b1", ranked("xp"), partition=1)
    await deployment.apply_one(deployment.post("eve", part(new, {"xp": 1})))
    assert await deployment.rows(new, ["eve"]) == {}


async def test_posts_count_once_while_their_owner_is_hidden_and_shown(processes: Processes) -> None:
    first, second = [await processes.start_process(writer_connections=2) for _ in range(2)]
    board = await first.create("b", ranked("xp", min_scaled=0, max_scaled=10**6), counter("shots"))
    done = asyncio.Event()

    async def post(deployment: Deployment) -> int:
        posts = 0
        async with deployment.open_writer(attempts_max=1_000) as writer:
            for _ in range(GROUPS):
                [[outcome]] = await writer.submit([deployment.post("ada", part(board, {"xp": 1}))])
                posts += outcome.error is None
        return posts

    async def flip() -> None:
        while not done.is_set():
            await first.hide("ada", board)
            assert await first.rows(board, ["ada"]) == {}, "a hidden owner has no row at once"
            await first.show("ada", board)

    flipping = asyncio.create_task(flip())
    sums = await asyncio.gather(post(first), post(second))
    done.set()
    await flipping
    assert set(sums) == {GROUPS}
    assert await first.stats(board, "ada") == {"xp": 2 * GROUPS, "shots": None}

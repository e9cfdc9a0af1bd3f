"""Test that a rebuild restores every row of a board, and that a rebuild that cannot do so is refused."""

import asyncio
import json
import random
from dataclasses import replace
from typing import Any

import pytest

from querybuilder import col, param, select, update
from storage.errors import JournalIncompleteError
from storage.leaves import erasure
from storage.leaves.row_tables import layout_of, scope_of
from storage.leaves.totals import ALL_ENTRIES, CHANGES
from storage.log.bundles import ChangeKind
from storage.log.change_log import change_log
from storage.records import Best, Board, Merge, PostStatus, TableSharing, Ties
from storage.schema.tables import HIDDEN_ENTRIES
from storage.store import Program
from tests.storage.deployment import Deployment, counter, label, part, ranked
from tests.storage.processes import Processes

COLUMNS = (
    ranked("xp", min_scaled=0, max_scaled=10**6),
    counter("shots"),
    ranked("lap", merge=Merge.MIN, best=Best.LOW, scale=2, min_scaled=-50, max_scaled=10**5),
    label("clan"),
    counter("jumps", best=Best.LOW, of="lap"),
)
OWNERS = 25


async def read_everything(deployment: Deployment, board: Board) -> tuple[list[Any], list[Any], dict[int, int]]:
    """Find a board again, because a rebuild may have moved its rows to another table, and read its rows."""
    return await read_rows(deployment, await deployment.find(board.id))


async def read_rows(deployment: Deployment, board: Board) -> tuple[list[Any], list[Any], dict[int, int]]:
    """Return all stored rows of a board, its hidden rows, and its totals except the number of changes."""
    hidden_names = ("owner", "updated_at", "cells")
    unseen = select(*map(col, hidden_names)).from_(HIDDEN_ENTRIES).where(col("leaf_key").eq(param("key")))
    hidden: list[Any] = []
    for leaf in board.leaves:
        hidden += await deployment.store.at(leaf.partition).read_query(unseen.bind(key=leaf.key))
    totals = await deployment.totals(board)
    totals.pop(CHANGES, None)
    return await deployment.list_rows(board), sorted(map(_trimmed, hidden)), totals


def _trimmed(row: Any) -> Any:
    """Return a hidden row without empty cells at its end. A row has no cells for columns that are newer."""
    owner, updated_at_us, cells = row
    values = json.loads(cells)
    while values and values[-1] is None:
        values.pop()
    return owner, updated_at_us, values


async def post_at_random(deployment: Deployment, board: Board, rng: random.Random, groups: int) -> None:
    for _ in range(groups):
        deployment.clock.now_us += rng.randrange(3)
        posts = []
        for _ in range(rng.randrange(1, 8)):
            stats: dict[str, Any] = {}
            for name, most in (("xp", 9), ("shots", 3), ("lap", 10), ("jumps", 4)):
                if rng.random() < 0.6:
                    stats[name] = rng.randrange(most)
            if rng.random() < 0.2:
                stats["clan"] = f"clan {rng.randrange(3)}"
            overwrite = {"xp": rng.randrange(5)} if "xp" not in stats and rng.random() < 0.2 else {}
            posts.append(deployment.post(f"o{rng.randrange(OWNERS)}", part(board, stats or {"shots": 0}, overwrite)))
        await deployment.apply(*posts)


async def damage(deployment: Deployment, board: Board) -> None:
    layout = layout_of(board.leaf)
    wrong = update(layout.table).set(**{layout.columns[0].name: "0000007"}).where(*layout.scope())
    query = wrong.where(col("owner").lt("o3")).bind(**scope_of(board.leaf))

    def program() -> Program[None]:
        yield query
        yield from deployment.open_rows(board).remove_entry("o4", ChangeKind.ERASED)

    await deployment.store.write(program)


@pytest.mark.parametrize(
    ("ties", "tie_columns", "seed"),
    [(Ties.SHARED, (), 0), (Ties.EARLIEST, (), 1), (Ties.SHARED, ("jumps", "shots"), 2)],
)
async def test_a_rebuilt_board_is_equal_row_for_row(
    deployment: Deployment, ties: Ties, seed: int, tie_columns: tuple[str, ...]
) -> None:
    rng = random.Random(seed)
    board = await deployment.create("b", *COLUMNS, ties=ties, tie_columns=tie_columns)
    other = await deployment.create("other", *COLUMNS)
    store = deployment.store
    await post_at_random(deployment, board, rng, 20)
    await post_at_random(deployment, other, rng, 5)
    await deployment.erase(board, "o1")
    await deployment.hide("o2", board)
    await deployment.hide("o5", board)
    await post_at_random(deployment, board, rng, 20)
    await deployment.show("o5", board)
    log = erasure
    await deployment.erase(board, "o6")
    [stretch], _ = await store.read(lambda: log.find_stretches("o6", past=0))
    until = {board.key: await store.read(change_log.take_mark) - 1}
    await store.write(lambda: log.rename_owner("o6", stretch, token="t", until=until, otherwise=0, rows_max=10_000))
    wider = replace(board.spec, columns=(*COLUMNS, ranked("late"), counter("later")))
    board = await deployment.change("b", wider)
    await deployment.apply(deployment.post("o7", part(board, {"late": 5, "later": 6, "xp": 1})))
    await post_at_random(deployment, board, rng, 5)
    before = await read_everything(deployment, board)
    untouched = await read_everything(deployment, other)
    assert any(row[0] == "o2" for row in before[1])
    await damage(deployment, board)
    assert await read_everything(deployment, board) != before
    done = await deployment.rebuild(board.id)
    assert await read_everything(deployment, board) == before
    assert await read_everything(deployment, other) == untouched
    assert (done.entries, done.hidden_entries) == (len(before[0]), len(before[1]))
    assert done.rows > done.entries


async def test_a_rebuild_leaves_out_what_was_posted_before_the_board_was_emptied(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    await deployment.apply(deployment.post("gone", part(board, {"xp": 5})))
    board = await deployment.reset()
    await deployment.apply(deployment.post("ada", part(board, {"xp": 5})))
    before = await read_everything(deployment, board)
    await deployment.rebuild(board.id)
    assert await read_everything(deployment, board) == before
    assert [row[0] for row in before[0]] == ["ada"]


async def test_a_retry_is_a_duplicate_after_a_rebuild_too(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    post = deployment.post("ada", part(board, {"xp": 5}), post_id="p")
    await deployment.apply_one(post)
    await deployment.rebuild(board.id)
    assert (await deployment.apply_one(post)).status is PostStatus.DUPLICATE
    assert (await deployment.apply_one(deployment.post("ada", part(board, {"xp": 1})))).status is PostStatus.APPLIED


async def lose_posts(deployment: Deployment, board: Board) -> None:
    """Post twice. Then prune the journal, so that it keeps only the last post."""
    for owner in ("ada", "bob"):
        await deployment.apply(deployment.post(owner, part(board, {"xp": 5})))
        deployment.clock.now_us += 10
    await deployment.prune_log()


async def test_a_rebuild_from_a_journal_that_starts_too_late_is_refused(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    await lose_posts(deployment, board)
    before = await read_everything(deployment, board)
    with pytest.raises(JournalIncompleteError, match="begins after"):
        await deployment.rebuild(board.id)
    assert await read_everything(deployment, board) == before


async def test_a_board_created_after_what_the_journal_lost_is_rebuilt(deployment: Deployment) -> None:
    old = await deployment.create("old", *COLUMNS)
    await lose_posts(deployment, old)
    deployment.clock.now_us += 10**10
    young = await deployment.create("young", *COLUMNS)
    await deployment.apply(deployment.post("ada", part(young, {"xp": 5})))
    before = await read_everything(deployment, young)
    assert (await deployment.rebuild(young.id)).entries == 1
    assert await read_everything(deployment, young) == before


async def create_family_boards(deployment: Deployment) -> list[Board]:
    await deployment.create_family(*COLUMNS, facets=((), ("org",)))
    return await deployment.make_boards("all", "all:org=1")


async def test_a_familys_board_is_rebuilt_and_the_others_stay_as_they_are(deployment: Deployment) -> None:
    board, other = await create_family_boards(deployment)
    rng = random.Random(1)
    for each in (board, other, board):
        await post_at_random(deployment, each, rng, 10)
    before, untouched = await read_everything(deployment, board), await read_everything(deployment, other)
    await damage(deployment, board)
    assert await read_everything(deployment, board) != before
    await deployment.rebuild(board.id)
    assert await read_everything(deployment, board) == before
    assert await read_everything(deployment, other) == untouched
    # This post uses a copy of the board from before the rebuild, and is still applied.
    await deployment.apply(deployment.post("new", part(board, {"xp": 7})))
    assert [row[0] for row in (await read_everything(deployment, board))[0] if row[0] == "new"] == ["new"]


async def test_posts_count_once_while_their_familys_board_is_rebuilt(processes: Processes, table: TableSharing) -> None:
    first, second = await processes.start_process(), await processes.start_process(writer_connections=2)
    first.table = table
    board, _ = await create_family_boards(first)
    await first.apply(first.post("first", part(board, {"xp": 1})))
    done = asyncio.Event()

    async def post(owner: str) -> int:
        posts = 0
        async with second.open_writer(attempts_max=1_000) as writer:
            while not done.is_set():
                [[outcome]] = await writer.submit([second.post(f"{owner}{posts}", part(board, {"xp": 1}))])
                posts += outcome.error is None
        return posts

    posting = [asyncio.create_task(post(owner)) for owner in ("x", "y")]
    for _ in range(10):
        await first.rebuild(board.id)
    done.set()
    posts = 1 + sum(await asyncio.gather(*posting))
    rows, _, totals = await read_everything(first, board)
    assert sum(int(row[2]) for row in rows) == posts
    assert totals[ALL_ENTRIES] == len(rows)
    await first.rebuild(board.id)
    assert (await read_everything(first, board))[0] == rows

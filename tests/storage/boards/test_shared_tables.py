"""Test boards that share a table. No board affects another. Short steps delete the rows of deleted boards."""

import asyncio

import pytest

from querybuilder import col, count, select
from storage.boards.shared_tables import sweep_rows
from storage.errors import BoardChangedError
from storage.leaves.row_tables import layout_of
from storage.leaves.totals import ALL_ENTRIES, CHANGES
from storage.records import Best, Board, PostStatus
from storage.schema.tables import POST_IDS
from tests.storage.deployment import Deployment, part, ranked

XP, LAP = ranked("xp"), ranked("lap", best=Best.LOW)
OWNERS = [f"o{number:02}" for number in range(25)]


async def create_filled_board(deployment: Deployment, board_id: str) -> Board:
    board = await deployment.create(board_id, XP)
    await deployment.apply(*(deployment.post(owner, part(board, {"xp": 1})) for owner in OWNERS))
    return board


async def count_rows_in_table(deployment: Deployment, board: Board) -> int:
    query = select(count()).from_(layout_of(board.leaf).table).bind()
    [[found]] = await deployment.store.read_query(query)
    return int(found)


async def sweep_all(deployment: Deployment, rows_max: int) -> list[int]:
    """Delete leftover rows in steps until none are left. Return the number of deleted rows for each step."""
    steps = []
    while gone := await deployment.store.write(lambda: sweep_rows(rows_max=rows_max)):
        steps.append(gone)
    return steps


async def test_boards_with_equal_columns_share_a_table_and_their_statements(deployment: Deployment) -> None:
    one, two = await deployment.create("one", XP), await deployment.create("two", ranked("goals"))
    other = await deployment.create("other", LAP)
    assert layout_of(one.leaf) == layout_of(two.leaf)
    assert deployment.open_rows(one).table is deployment.open_rows(two).table
    assert layout_of(other.leaf).table != layout_of(one.leaf).table


@pytest.mark.parametrize("rows_max", [10, 25, 1_000])
async def test_rows_of_an_emptied_or_deleted_board_are_swept_in_steps(deployment: Deployment, rows_max: int) -> None:
    stays, emptied, deleted = [await create_filled_board(deployment, name) for name in ("stays", "emptied", "deleted")]
    await deployment.reset("emptied")
    await deployment.delete("deleted")
    assert await count_rows_in_table(deployment, stays) == 75, "neither transaction waited for rows to be deleted"
    steps = await sweep_all(deployment, rows_max)
    assert max(steps) <= rows_max
    assert await count_rows_in_table(deployment, stays) == 25
    assert len(await deployment.rows(stays, OWNERS)) == 25
    assert await deployment.rows(emptied, OWNERS) == await deployment.rows(deleted, OWNERS) == {}


async def test_a_deleted_boards_post_ids_are_deleted_and_those_of_others_stay(deployment: Deployment) -> None:
    deleted, stays = await deployment.create("deleted", XP), await deployment.create("stays", XP)
    await deployment.apply(*(deployment.post("ada", part(deleted, {"xp": 1}), post_id=f"p{n}") for n in range(5)))
    kept = deployment.post("ada", part(stays, {"xp": 1}), post_id="p0")
    await deployment.apply(kept)
    await deployment.delete("deleted")
    assert max(await sweep_all(deployment, 2)) <= 2
    left = select(col("leaf_key")).from_(POST_IDS).bind()
    assert await deployment.store.read_query(left) == [(stays.key,)]
    assert (await deployment.apply_one(kept)).status is PostStatus.DUPLICATE


async def test_the_totals_stay_true_if_posts_and_a_reset_happen_at_once(deployment: Deployment) -> None:
    board = await create_filled_board(deployment, "b")
    stays = await create_filled_board(deployment, "stays")

    async def post(owner: str) -> None:
        # This post uses a copy of the board from before the reset.
        await deployment.apply(deployment.post(owner, part(board, {"xp": 1})))

    reset = deployment.reset()
    await asyncio.gather(*(post(owner) for owner in OWNERS[:10]), reset, *(post(owner) for owner in OWNERS[10:]))
    now = await deployment.catalog.reread_board("b")
    assert len(await deployment.rows(now, OWNERS)) == (await deployment.totals(now)).get(ALL_ENTRIES, 0)
    await sweep_all(deployment, 1_000)
    assert len(await deployment.rows(now, OWNERS)) == (await deployment.totals(now)).get(ALL_ENTRIES, 0)
    assert await deployment.totals(stays) == {ALL_ENTRIES: 25, CHANGES: 25, 0: 25}


async def test_an_old_copy_of_a_board_erases_rows_where_they_are_now(deployment: Deployment) -> None:
    board = await create_filled_board(deployment, "b")
    await deployment.reset()
    assert not await deployment.erase(board, "o01")
    await deployment.apply(deployment.post("o01", part(board, {"xp": 1})))
    assert await deployment.erase(board, "o01")
    assert (await deployment.totals(board)).get(ALL_ENTRIES, 0) == 0
    await deployment.delete()
    with pytest.raises(BoardChangedError):
        await deployment.erase(board, "o01")

"""Test what a post changes, what it does not change, and what it returns, because no caller can undo a post."""

import pytest

from querybuilder import all_of, lit, update
from storage.errors import LostRaceError
from storage.leaves.row_tables import layout_of
from storage.leaves.totals import ALL_ENTRIES, CHANGES
from storage.records import Best, Board, Merge, PartOutcome, PostStatus, TracedOutcome
from tests.storage.deployment import Deployment, counter, label, part, ranked
from tests.storage.meddling import MeddlingStore, version_moved

XP = ranked("xp")
LAP = ranked("lap", merge=Merge.MIN, best=Best.LOW, scale=3, min_scaled=0)


async def test_a_board_named_twice_in_one_post_takes_it_once(deployment: Deployment, board: Board) -> None:
    for total in (5, 10):
        await deployment.apply(deployment.post("ada", part(board, {"xp": 5}), part(board, {"xp": 5})))
        assert await deployment.stats(board, "ada") == {"xp": total}
    assert await deployment.totals(board) == {ALL_ENTRIES: 1, CHANGES: 2, 0: 1}


async def test_a_post_to_no_board_is_settled_and_changes_nothing(deployment: Deployment) -> None:
    assert await deployment.apply(deployment.post("ada")) == [[]]
    assert await deployment.apply() == []


async def test_a_column_that_did_not_change_is_not_written(deployment: Deployment) -> None:
    board = await deployment.create("b", XP, LAP, counter("shots"), label("clan"))
    await deployment.apply(deployment.post("ada", part(board, {"xp": 5, "lap": 60, "shots": 3, "clan": "red"})))
    *_, shots, clan = [column.name for column in layout_of(board.leaf).columns]
    # A group that wrote all columns would overwrite these values with the values that it read earlier.
    elsewhere = update(layout_of(board.leaf).table).set(**{shots: lit(33), clan: lit("blue")}).where(all_of())
    deployment.store = MeddlingStore(deployment.store, [elsewhere.bind()], before_statement=2)
    post = deployment.post("ada", part(board, {"xp": 1, "lap": 70, "shots": 0, "clan": "red"}))
    assert (await deployment.apply_one(post)).stats == [6, 60, 3, "red"]
    assert await deployment.stats(board, "ada") == {"xp": 6, "lap": 60, "shots": 33, "clan": "blue"}


@pytest.mark.parametrize("owner", ["ada", "new"])
async def test_a_group_that_lost_a_race_changes_nothing_on_any_board(deployment: Deployment, owner: str) -> None:
    one, two = await deployment.create("one", XP), await deployment.create("two", XP)
    for board in (one, two):
        await deployment.apply(deployment.post("ada", part(board, {"xp": 5})))
    before = await deployment.totals(one)
    [row] = (await deployment.rows(two, ["ada"])).values()
    taken = deployment.open_rows(two)
    row.owner = "new"
    inserted = next(taken.table.insert_rows([(two.leaf.rows_key, row)]))
    meddle = version_moved(deployment.store, two, "ada") if owner == "ada" else inserted
    # If boards have tables of their own, statement 4 (0-based) is the first that writes. In a shared table, one
    # statement reads the rows of both boards, so statement 2 is the first that writes.
    first_write = 4 if one.leaf.table_key is None else 2
    store, meddling = deployment.store, MeddlingStore(deployment.store, [meddle], before_statement=first_write)
    deployment.store = meddling
    post = deployment.post(owner, part(one, {"xp": 1}), part(two, {"xp": 1}))
    with pytest.raises(LostRaceError):
        await deployment.apply(post)
    deployment.store = store
    assert await deployment.totals(one) == before
    assert await deployment.stats(one, "ada") == await deployment.stats(two, "ada") == {"xp": 5}
    assert await deployment.stats(one, "new") is await deployment.stats(two, "new") is None


async def test_a_post_tells_the_cells_before_it_only_if_it_asks_for_them(deployment: Deployment, board: Board) -> None:
    posts = [deployment.post("ada", part(board, {"xp": 5}), post_id=each) for each in ("one", "one", "two", "three")]
    for post in posts[:3]:
        post.tells_before = True
    outcomes = [outcome for [outcome] in await deployment.apply(*posts)]
    assert [type(each) for each in outcomes] == [TracedOutcome, PartOutcome, TracedOutcome, PartOutcome]
    first, second = (each for each in outcomes if isinstance(each, TracedOutcome))
    assert first.before == [None]
    assert second.before is not None
    assert deployment.merger(board).decode_stats(second.before) == [5]
    [[again]] = await deployment.apply(posts[0])
    assert (type(again), again.status) == (PartOutcome, PostStatus.DUPLICATE)

"""Test that one read of many boards returns, for each board, the same as a separate read of that board."""

from dataclasses import replace

import pytest

from storage.errors import BoardChangedError, UnknownBoardError
from storage.reads.point_reads import read_owner_on_boards
from storage.records import Board, TableSharing
from tests.storage.deployment import Deployment, counter, part, ranked

XP, LAP, SHOTS = ranked("xp"), ranked("lap"), counter("shots")


async def read_together(
    deployment: Deployment, boards: list[Board], owner: str
) -> list[tuple[list[object] | None, int]]:
    entries = [deployment.entries(board) for board in boards]
    found = await deployment.store.read(lambda: read_owner_on_boards(entries, owner))
    return [(None if entry is None else list(entry.cells), totals.get(-1, 0)) for entry, totals in found]


async def read_alone(deployment: Deployment, boards: list[Board], owner: str) -> list[tuple[list[object] | None, int]]:
    found: list[tuple[list[object] | None, int]] = []
    for board in boards:
        entry = (await deployment.rows(board, [owner])).get(owner)
        found.append((None if entry is None else list(entry.cells), (await deployment.totals(board)).get(-1, 0)))
    return found


async def test_entries_on_boards_of_every_table_come_in_the_order_asked_for(deployment: Deployment) -> None:
    boards = [
        await deployment.create("a", XP, SHOTS),
        await deployment.create("b", XP, SHOTS),
        await deployment.create("c", XP, LAP),  # if boards share tables, this board is in another table
        await deployment.create("empty", XP),
    ]
    deployment.table = TableSharing.SHARED if deployment.table is TableSharing.OWN else TableSharing.OWN
    boards.append(await deployment.create("elsewhere", XP, SHOTS))
    for number, board in enumerate(boards):
        if board.id != "empty":
            owners = ["ada", "bob"] if number % 2 else ["bob", "cleo"]
            await deployment.apply(*(deployment.post(owner, part(board, {"xp": number})) for owner in owners))
    mixed = [boards[2], boards[0], boards[4], boards[3], boards[1], boards[0]]
    for owner in ("ada", "bob", "cleo", "nobody"):
        assert await read_together(deployment, mixed, owner) == await read_alone(deployment, mixed, owner)
    assert await read_together(deployment, [], "ada") == []


async def test_a_read_of_many_boards_refuses_an_old_copy_of_a_board(deployment: Deployment) -> None:
    first, other = await deployment.create("a", XP), await deployment.create("b", XP)
    await deployment.apply(deployment.post("ada", part(first, {"xp": 1}), part(other, {"xp": 1})))
    await deployment.reset("a")
    with pytest.raises(BoardChangedError):
        await read_together(deployment, [other, first], "ada")
    wider = replace(other.spec, columns=(*other.spec.columns, LAP))
    await deployment.change("b", wider)
    with pytest.raises(BoardChangedError):
        await read_together(deployment, [other], "ada")
    for board in (first, other):
        await deployment.delete(board.id)
        with pytest.raises(UnknownBoardError):
            await read_together(deployment, [board], "ada")


async def test_boards_are_looked_up_by_id_in_one_read_and_kept(deployment: Deployment) -> None:
    catalog = deployment.catalog
    boards = {board_id: await deployment.create(board_id, XP) for board_id in ("a", "b", "c")}
    catalog.keep_board(boards["b"])
    assert await catalog.find_stored_boards(["c", "none", "b", "c"]) == {"b": boards["b"], "c": boards["c"]}
    assert catalog.find_known("c") == boards["c"]
    assert catalog.find_known("a") is None
    assert await catalog.find_stored_boards([]) == {}

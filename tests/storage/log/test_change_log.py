"""Test the change log. If a reader missed one change, or counted it twice, all later live counts would be wrong."""

import pytest

from storage.log.change_log import change_log
from storage.records import Best, Board
from storage.store import Store
from tests.storage.deployment import Deployment, counter, part, ranked

XP = ranked("xp", min_scaled=0, max_scaled=999)
LAP = ranked("lap", best=Best.LOW, min_scaled=0, max_scaled=99)


async def mark_of(store: Store) -> int:
    return await store.read(change_log.take_mark)


async def texts(deployment: Deployment, done: int = 0) -> list[tuple[str, str, str]]:
    """Return what the log says from the position `done` on: owner, cells before, and cells after each change."""
    found = [bundle for bundle in await deployment.read_log() if bundle.position >= done]
    return [(owner, before, after) for bundle in found for _, owner, before, after in bundle.changes()]


async def test_positions_are_found_by_time_with_few_statements(
    deployment: Deployment, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.log.change_log.PROBES_MAX", 8)
    store, clock = deployment.store.at(board.partition), deployment.clock
    clock.now_us += 1  # after the creation of the board
    begun_us, first = clock(), await mark_of(store)
    for _ in range(40):
        clock.now_us += 10
        await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
    times = [begun_us + after for after in (0, 1, 10, 11, 200, 395, 400, 401)]
    found = await store.read(lambda: change_log.find_positions(times))
    assert [position - first for position in found] == [0, 0, 0, 1, 19, 39, 39, 40]
    assert await store.read(lambda: change_log.find_positions(times[4:5])) == [first + 19]
    assert await store.read(lambda: change_log.find_positions([])) == []


async def test_every_accepted_post_leaves_what_it_changed_and_others_leave_nothing(deployment: Deployment) -> None:
    board = await deployment.create("b", XP, counter("shots"), LAP)
    await deployment.apply(
        deployment.post("ada", part(board, {"xp": 5})),
        deployment.post("ada", part(board, {"xp": 2, "lap": 40})),
        deployment.post("ada", part(board, {"xp": 0})),
        deployment.post("ada", part(board, {"xp": 2_000})),
        deployment.post("bob", part(board, {"shots": 1})),
    )
    await deployment.apply(deployment.post("ada", part(board, {"shots": 1}), post_id="p"))
    await deployment.apply(deployment.post("ada", part(board, {"shots": 1}), post_id="p"))
    assert await deployment.erase(board, "ada")
    assert not await deployment.erase(board, "ada")
    assert await texts(deployment) == [
        ("ada", "   ~~", "005~~"), ("ada", "005~~", "00740"), ("ada", "", ""), ("bob", "   ~~", "   ~~"),
        ("ada", "00740", "00740"), ("ada", "00740", "   ~~"),
    ]  # fmt: skip
    assert {bundle.leaf_key for bundle in await deployment.read_log()} == {board.key}


async def test_pruning_deletes_the_oldest_changes_in_steps_and_says_how_far_it_came(deployment: Deployment) -> None:
    store, clock, log = deployment.store, deployment.clock, change_log
    board = await deployment.create("b", XP)
    marks = []
    for owner in ("a", "b", "c", "d", "e"):
        await deployment.apply(deployment.post(owner, part(board, {"xp": 5})))
        marks.append(await mark_of(store))
        clock.now_us += 10

    async def prune(before_us: int, *, rows_max: int = 2) -> int:
        return await store.write(lambda: log.prune(before_us=before_us, rows_max=rows_max))

    async def pruned() -> int:
        return (await store.read(log.read_counter)).pruned_before

    assert await prune(clock.now_us - 50) == 0
    assert await pruned() == 0
    assert await prune(clock.now_us, rows_max=2) == 2, "the creation of the board, and a change"
    assert await pruned() <= marks[0]
    assert [owner for owner, _, _ in await texts(deployment, marks[0])] == ["b", "c", "d", "e"]
    assert await prune(clock.now_us - 15) == 2
    assert marks[1] < await pruned() <= marks[2]
    assert await prune(clock.now_us, rows_max=9) == 1
    assert await prune(clock.now_us, rows_max=9) == 0, "the last change stays, however old"
    assert [owner for owner, _, _ in await texts(deployment)] == ["e"]
    await deployment.apply(deployment.post("f", part(board, {"xp": 5})))
    assert [owner for owner, _, _ in await texts(deployment, marks[4])] == ["f"]


async def test_the_last_change_of_each_board_is_found_and_boards_without_changes_are_left_out(
    deployment: Deployment,
) -> None:
    boards = [await deployment.create(name, XP) for name in ("one", "two", "three")]
    for now_us, board in ((10, boards[0]), (20, boards[1]), (30, boards[0])):
        deployment.clock.now_us = now_us
        await deployment.apply(deployment.post("ada", part(board, {"xp": now_us})))
    keys = [board.key for board in boards]
    found = await deployment.store.at(boards[0].partition).read(lambda: change_log.find_last_changes(keys))
    assert found.get(boards[0].key) == 30
    assert boards[2].key not in found

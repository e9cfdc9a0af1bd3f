"""Test posts to boards of several partitions, and processes that do not know yet that a board has moved."""

import asyncio

import pytest
from msgspec import structs

from storage.boards.boards import find_board
from storage.errors import BoardChangedError, PostIdConflictError, UnknownBoardError
from storage.log.log_record import ChangeKind
from storage.posting.post_ids import find_repeats
from storage.reads.point_reads import PointReads
from storage.records import Board, PartOutcome, PostStatus
from tests.storage.backends import BACKENDS, Backend
from tests.storage.deployment import Deployment, part, ranked
from tests.storage.moving import move_board


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Backend:
    return BACKENDS["partitions"](request)


async def create_in(deployment: Deployment, board_id: str, partition: int) -> Board:
    deployment.partition = partition
    return await deployment.create(board_id, ranked("xp"))


async def xp_of(deployment: Deployment, board: Board, owner: str) -> object:
    entries = deployment.entries(board)
    found = await deployment.store.for_board(board).read(lambda: entries.find_entries([owner]))
    return entries.merger.decode_stats(found[owner].cells)[0] if owner in found else None


async def test_repeats_are_found_in_the_partitions_of_the_boards(deployment: Deployment) -> None:
    first, last = await create_in(deployment, "first", 0), await create_in(deployment, "last", 3)
    both = deployment.post("ada", part(first, {"xp": 1}), part(last, {"xp": 1}), post_id="both")
    only_last = deployment.post("ada", part(last, {"xp": 5}), post_id="last")
    await deployment.apply(both, only_last)
    new = deployment.post("ada", part(first, {"xp": 5}), post_id="last")
    other = deployment.post("bob", part(last, {"xp": 5}), post_id="last")
    conflicting = deployment.post("ada", part(last, {"xp": 6}), post_id="last")
    found = await deployment.store.read(lambda: find_repeats([both, only_last, new, other, conflicting]))
    assert found[:4] == [True, True, False, False]
    assert isinstance(found[4], PostIdConflictError)


async def test_a_post_with_an_old_copy_of_a_moved_board_is_refused_alone(deployment: Deployment) -> None:
    moving, staying = await create_in(deployment, "moving", 0), await create_in(deployment, "staying", 0)
    await deployment.apply_one(deployment.post("ada", part(moving, {"xp": 1}), post_id="first"))
    moved = await deployment.store.write(lambda: move_board(moving, 3))
    writer = deployment.writer()
    writer.start()
    posts = [deployment.post("ada", part(board, {"xp": 2})) for board in (moving, staying)]
    results = await asyncio.gather(*(writer.submit([post]) for post in posts))
    await writer.close()
    outcomes: list[PartOutcome] = [parts[0] for [parts] in results]
    assert isinstance(outcomes[0].error, UnknownBoardError)
    assert outcomes[1].status is PostStatus.APPLIED
    assert await xp_of(deployment, moved, "ada") == 1
    assert await deployment.find("moving") == moved
    again = deployment.post("ada", part(moved, {"xp": 1}), post_id="first")
    later = deployment.post("ada", part(moved, {"xp": 4}))
    outcomes = [parts[0] for parts in await deployment.apply(structs.replace(again, fingerprint="x"), later)]
    assert isinstance(outcomes[0].error, PostIdConflictError)
    assert await xp_of(deployment, moved, "ada") == 5


async def test_reads_and_erasures_with_an_old_copy_of_a_moved_board_fail(deployment: Deployment) -> None:
    board = await create_in(deployment, "b", 0)
    await deployment.apply_one(deployment.post("ada", part(board, {"xp": 1})))
    moved = await deployment.store.write(lambda: move_board(board, 1))
    reads = PointReads(deployment.store, deployment.boards, point_reads_per_batch_max=9, reads_waiting_max=9, lanes=1)
    with pytest.raises(UnknownBoardError):
        await reads.read_entry(board, "ada")
    found = (await reads.read_entry(moved, "ada")).entry
    assert found is not None
    entries = deployment.boards.open_board(board)
    erasing = entries.remove_entry
    with pytest.raises(BoardChangedError):
        await deployment.store.for_board(board).write(lambda: erasing("ada", ChangeKind.ERASED))
    assert await deployment.store.read(lambda: find_board("b")) == moved

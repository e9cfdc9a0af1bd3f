"""Test the curves of a store with several partitions, each of which gives versions and marks of its own."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest
from msgspec import structs

from querybuilder import col, delete, param, update
from storage.curves.curve_book import CurveBook
from storage.curves.stored_curves import store_curve
from storage.errors import UnknownBoardError
from storage.leaves.totals import store_gates
from storage.records import Board, TableSharing
from storage.schema.tables import BOARDS, CURVES, GATES
from storage.store import Program
from tests.schemas import PARTITIONS
from tests.storage.deployment import Deployment, ranked
from tests.storage.passing import PassingStore
from tests.storage.valued import curve

pytestmark = pytest.mark.parametrize("backend", ["partitions"], indirect=True)
T = TypeVar("T")


class HeldReads(PassingStore):
    """A store whose read number `held_read` returns its rows only once the test sets `go`."""

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment.store)
        self.reads, self.held_read = 0, 0
        self.waiting, self.go = asyncio.Event(), asyncio.Event()

    async def read(self, program: Callable[[], Program[T]], *, heavy: bool = False) -> T:
        answer = await super().read(program, heavy=heavy)
        self.reads += 1
        if self.reads == self.held_read:
            self.waiting.set()
            await self.go.wait()
        return answer


def open_book(deployment: Deployment) -> CurveBook:
    return CurveBook(deployment.store, None, poll_rows_max=100)


async def store_new_curve(deployment: Deployment, board: Board, total: int) -> int:
    return await deployment.store.at(board.partition).write(lambda: store_curve(board.leaf, 0, curve(total)))


async def move_board(deployment: Deployment, board: Board, partition: int) -> Board:
    """Move an empty board without its curves, and return it as it is then."""

    def program() -> Program[None]:
        for table in (CURVES, GATES):
            yield structs.replace(
                delete(table).where(col("leaf_key").eq(param("key"))).bind(key=board.key), partition=board.partition
            )
        yield update(BOARDS).set(partition=partition).where(col("board_key").eq(param("key"))).bind(key=board.key)

    await deployment.store.write(program)
    moved = await deployment.find(board.id)
    await deployment.store.write(lambda: store_gates([moved.leaf]))
    return moved


async def test_every_process_serves_the_curves_of_all_partitions_although_their_versions_are_equal(
    deployment: Deployment,
) -> None:
    first, *_, last = await deployment.create_everywhere(ranked("xp"))
    versions = [await store_new_curve(deployment, first, 10), await store_new_curve(deployment, last, 11)]
    assert versions[0] == versions[1]
    book, other = open_book(deployment), open_book(deployment)
    for each in (book, other):
        assert await each.poll() == 2
        assert [each.find_curve(board, 0) for board in (first, last)] == [curve(10), curve(11)]
        assert await each.poll() == 0
    await store_new_curve(deployment, first, 12)
    await store_new_curve(deployment, last, 13)
    assert await book.poll(0) == 1
    assert [book.find_curve(board, 0) for board in (first, last)] == [curve(12), curve(11)]
    assert await book.poll(PARTITIONS - 1) == 1
    assert [book.find_curve(board, 0) for board in (first, last)] == [curve(12), curve(13)]
    assert await other.poll() == 2
    assert [other.find_curve(board, 0) for board in (first, last)] == [curve(12), curve(13)]


async def test_a_moved_board_gets_the_curve_of_its_new_partition_although_its_version_is_lower(
    deployment: Deployment,
) -> None:
    board, book = await deployment.create("b0", ranked("xp"), partition=0), open_book(deployment)
    old = [await store_new_curve(deployment, board, total) for total in (10, 11, 12)]
    await book.poll()
    moved = await move_board(deployment, board, 3)
    assert book.find_curve(moved, 0) is None, "its mark would be a position of another log"
    with pytest.raises(UnknownBoardError, match="moved"):
        await store_new_curve(deployment, board, 13)
    assert await store_new_curve(deployment, moved, 14) < old[-1]
    assert await book.poll() == 1
    assert book.find_curve(moved, 0) == curve(14)
    assert book.find_curve(board, 0) is None
    assert [served.leaf_key for served in book.list_served()] == [board.key]


async def test_a_slow_poll_of_the_old_partition_does_not_replace_the_curve_of_the_new_one(
    deployment: Deployment,
) -> None:
    board, store = await deployment.create("b0", ranked("xp"), partition=0), HeldReads(deployment)
    await store_new_curve(deployment, board, 10)
    book = CurveBook(store, None, poll_rows_max=100)
    store.held_read = 2  # the first read lists the curve, the second one reads its document
    slow = asyncio.create_task(book.poll(0))
    await store.waiting.wait()
    moved = await move_board(deployment, board, 3)
    await store_new_curve(deployment, moved, 11)
    await book.poll(3)
    store.go.set()
    await slow
    assert book.find_curve(moved, 0) == curve(11)


async def test_the_curve_of_segments_is_added_up_anew_after_each_change_of_a_part(deployment: Deployment) -> None:
    deployment.table, deployment.segments = TableSharing.OWN, 2
    board, book = await deployment.create("b", ranked("xp")), open_book(deployment)
    stores = [deployment.store.at(leaf.partition) for leaf in board.leaves]

    async def refresh(number: int, total: int) -> None:
        await stores[number].write(lambda: store_curve(board.leaves[number], 0, curve(total)))
        await book.poll()

    await refresh(0, 10)
    assert book.find_curve(board, 0) is None
    await refresh(1, 20)
    first = book.find_curve(board, 0)
    assert first is not None
    assert (first.total, book.find_curve(board, 0) is first) == (30, True)
    for total in range(21, 31):
        await refresh(1, total)
        summed = book.find_curve(board, 0)
        assert summed is not None
        assert (summed.total, len(book._sums)) == (10 + total, 1)
    book.forget_board(board.leaves[0].key)
    assert (book.find_curve(board, 0), book._sums) == (None, {})

"""Test that only a complete curve of the board's current epoch is served, because a wrong curve gives wrong ranks."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest

from querybuilder import col, param, update
from storage.curves.curve_book import CurveBook, ServedCurve
from storage.curves.stored_curves import store_curve
from storage.errors import StoreBusyError, UnknownBoardError
from storage.records import Board
from storage.schema.tables import CURVES
from storage.store import Program
from tests.meter import RecordingMeter
from tests.storage.deployment import Deployment, ranked
from tests.storage.meddling import MeddlingStore, SlowReads
from tests.storage.valued import curve

T = TypeVar("T")


class CurveReader:
    """A process that polls the store for new curves."""

    def __init__(self, deployment: Deployment, *, poll_rows_max: int = 100) -> None:
        self.meter = RecordingMeter()
        self.book = CurveBook(deployment.store, None, poll_rows_max=poll_rows_max, meter=self.meter)


async def store_new_curve(deployment: Deployment, board: Board, column_index: int, total: int) -> int:
    return await deployment.store.write(lambda: store_curve(board.leaf, column_index, curve(total)))


async def test_an_older_curve_never_replaces_a_newer_one(deployment: Deployment, board: Board) -> None:
    reader = CurveReader(deployment)
    versions = [await store_new_curve(deployment, board, 0, total) for total in (10, 11, 12)]
    assert versions == sorted(set(versions))
    assert await reader.book.poll() == 1, "only the last curve is kept"
    assert reader.book.find_curve(board, 0) == curve(12)
    reader.book.serve_curve(
        ServedCurve(board.key, 0, board.gate.epoch, versions[0], curve(10), partition=board.partition)
    )
    assert reader.book.find_curve(board, 0) == curve(12)
    reader.book.serve_curve(
        ServedCurve(board.key, 0, board.gate.epoch, versions[2] + 1, curve(13), partition=board.partition)
    )
    assert reader.book.find_curve(board, 0) == curve(13)


async def test_a_poll_reads_all_curves_in_bounded_reads(deployment: Deployment) -> None:
    board = await deployment.create("b", *(ranked(f"c{index}") for index in range(5)))
    reader = CurveReader(deployment, poll_rows_max=2)
    for index in range(5):
        await store_new_curve(deployment, board, index, 10 + index)
    assert await reader.book.poll() == 5
    found = [reader.book.find_curve(board, index) for index in range(5)]
    assert [each.total for each in found if each] == [10, 11, 12, 13, 14]
    await store_new_curve(deployment, board, 3, 20)
    assert await reader.book.poll() == 1


async def test_a_corrupt_curve_is_counted_and_the_earlier_curve_goes_on_serving(deployment: Deployment) -> None:
    board = await deployment.create("b", ranked("xp"), ranked("kills"))
    reader = CurveReader(deployment)
    await store_new_curve(deployment, board, 0, 10)
    await reader.book.poll()
    await store_new_curve(deployment, board, 0, 11)
    spoiled = update(CURVES).set(document=param("document")).where(col("column_index").eq(0))

    def spoil() -> Program[None]:
        yield spoiled.bind(document=b"RKCV but not really")

    await deployment.store.write(spoil)
    await store_new_curve(deployment, board, 1, 12)
    assert await reader.book.poll() == 1
    assert reader.meter.counts["rankcurve_curves_corrupt"] == 1
    assert reader.book.find_curve(board, 0) == curve(10)
    assert reader.book.find_curve(board, 1) == curve(12)
    assert await reader.book.poll() == 0
    assert reader.meter.counts["rankcurve_curves_corrupt"] == 1


async def test_a_reset_voids_what_was_fitted_before_it(deployment: Deployment, board: Board) -> None:
    reader = CurveReader(deployment)
    await store_new_curve(deployment, board, 0, 10)
    await reader.book.poll()
    emptied = await deployment.reset()
    assert reader.book.find_curve(emptied, 0) is None
    with pytest.raises(UnknownBoardError, match="emptied"):
        await store_new_curve(deployment, board, 0, 11)
    assert await reader.book.poll() == 0
    assert await CurveReader(deployment).book.poll() == 0, "no curve of the earlier epoch is left"
    await store_new_curve(deployment, emptied, 0, 12)
    await reader.book.poll()
    assert reader.book.find_curve(emptied, 0) == curve(12)


async def test_deleting_a_board_deletes_its_curves(deployment: Deployment) -> None:
    board, other = await deployment.create("b", ranked("xp")), await deployment.create("other", ranked("xp"))
    reader = CurveReader(deployment)
    for each in (board, other):
        await store_new_curve(deployment, each, 0, 10)
    await reader.book.poll()
    await deployment.delete()
    with pytest.raises(UnknownBoardError):
        await store_new_curve(deployment, board, 0, 11)
    reader.book.forget_board(board.key)
    assert [served.leaf_key for served in reader.book.list_served()] == [other.key]
    again = await deployment.create("b", ranked("xp"))
    assert await CurveReader(deployment).book.poll() == 1
    assert reader.book.find_curve(again, 0) is None


async def test_a_board_that_is_forgotten_while_its_curve_is_read_stays_forgotten(deployment: Deployment) -> None:
    board, other = await deployment.create("b", ranked("xp")), await deployment.create("other", ranked("xp"))
    for each in (board, other):
        await store_new_curve(deployment, each, 0, 10)
    store = SlowReads(deployment.store)
    book = CurveBook(store, None, poll_rows_max=100)
    polling = asyncio.create_task(book.poll(board.partition))
    await store.answered.wait()
    book.forget_board(board.key)
    store.go.set()
    await polling
    assert [served.leaf_key for served in book.list_served()] == [other.key]


async def test_a_board_that_is_forgotten_while_its_curve_is_stored_stays_forgotten(deployment: Deployment) -> None:
    board = await deployment.create("b", ranked("xp"))
    book = CurveReader(deployment).book
    with book.remember_forgotten():
        version = await store_new_curve(deployment, board, 0, 10)
        book.forget_board(board.key)
        book.serve_curve(ServedCurve(board.key, 0, board.gate.epoch, version, curve(10), partition=board.partition))
    assert book.list_served() == []


async def test_the_next_poll_repeats_one_that_failed_between_list_and_contents(deployment: Deployment) -> None:
    board = await deployment.create("b", ranked("xp"))
    await store_new_curve(deployment, board, 0, 10)

    class FailsOnce(MeddlingStore):
        async def read(self, program: Callable[[], Program[T]], *, heavy: bool = False) -> T:
            if self.reads == 1:
                self.reads += 1
                raise StoreBusyError
            return await super().read(program, heavy=heavy)

    book = CurveBook(FailsOnce(deployment.store), None, poll_rows_max=100)
    with pytest.raises(StoreBusyError):
        await book.poll(board.partition)
    assert await book.poll() == 1
    assert book.find_curve(board, 0) == curve(10)


async def test_a_poll_takes_the_new_version_of_a_curve_replaced_meanwhile(deployment: Deployment, board: Board) -> None:
    await store_new_curve(deployment, board, 0, 10)
    store = SlowReads(deployment.store)
    book = CurveBook(store, None, poll_rows_max=1)
    polling = asyncio.create_task(book.poll(board.partition))
    await store.answered.wait()
    await store_new_curve(deployment, board, 0, 11)
    store.go.set()
    assert await polling == 1
    assert book.find_curve(board, 0) == curve(11)

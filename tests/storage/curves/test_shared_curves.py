"""Test that processes serve the curves of the database, whatever memcached does and whoever writes to it."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor import Curve, CurveCorruptError, Knot
from storage.curves.curve_book import CurveBook, ServedCurve
from storage.curves.memcached import Memcached
from storage.curves.shared_curves import SEAL_BYTES, Envelopes, SharedCurves
from storage.curves.stored_curves import ListedCurve, store_curve
from storage.meter import ReadOutcome
from storage.records import Board
from tests.memcached import MEMCACHED_LIMITS, OpenMemcached
from tests.meter import RecordingMeter
from tests.storage.deployment import Deployment, ranked
from tests.storage.meddling import MeddlingStore
from tests.storage.valued import curve

SALT = "00112233445566778899aabbccddeeff"
OURS = Envelopes(SALT)
CURVE = Curve((Knot(-5, 0, 1), Knot(-4, 1, 9)), total=10, as_of_us=77)
LISTED = ListedCurve(leaf_key=3, column_index=1, epoch=2, version=40, as_of_us=77)
SEALED = OURS.seal(LISTED, CURVE)


def test_a_sealed_curve_opens_with_the_same_salt() -> None:
    assert Envelopes(SALT).open(LISTED, SEALED) == CURVE
    assert OURS.key(LISTED) == Envelopes(SALT).key(replace(LISTED, version=41, as_of_us=78))


@given(st.integers(0, len(SEALED) - 1), st.integers(1, 255))
def test_a_changed_byte_anywhere_is_corrupt(place: int, change: int) -> None:
    damaged = bytearray(SEALED)
    damaged[place] ^= change
    with pytest.raises(CurveCorruptError):
        OURS.open(LISTED, bytes(damaged))


@pytest.mark.parametrize("length", range(len(SEALED)))
def test_a_value_that_was_cut_off_is_corrupt(length: int) -> None:
    for part in (SEALED[:length], SEALED[len(SEALED) - length :]):
        with pytest.raises(CurveCorruptError):
            OURS.open(LISTED, part)


THEIRS = Envelopes(SALT[::-1])
OTHER_PLACES = [replace(LISTED, leaf_key=7), replace(LISTED, column_index=7), replace(LISTED, epoch=7)]


@pytest.mark.parametrize(
    "sealed",
    [
        *(OURS.seal(elsewhere, CURVE) for elsewhere in OTHER_PLACES),
        THEIRS.seal(LISTED, CURVE),
        bytes(SEAL_BYTES) + SEALED[SEAL_BYTES:],
    ],
    ids=["another board", "another column", "another epoch", "another store", "no seal"],
)
def test_a_sound_curve_that_the_store_did_not_seal_for_this_place_is_corrupt(sealed: bytes) -> None:
    with pytest.raises(CurveCorruptError, match="seal"):
        OURS.open(LISTED, sealed)


def test_each_column_of_each_store_has_a_name_of_its_own() -> None:
    keys = {OURS.key(each) for each in (LISTED, *OTHER_PLACES)} | {THEIRS.key(LISTED)}
    assert len(keys) == 5


@pytest.mark.parametrize(("version", "as_of_us"), [(39, 77), (41, 77), (40, 55)])
def test_a_curve_of_another_version_or_time_is_not_the_one_that_was_asked_for(version: int, as_of_us: int) -> None:
    other = OURS.seal(replace(LISTED, version=version), replace(CURVE, as_of_us=as_of_us))
    assert OURS.open(LISTED, other) is None


LIMITS = MEMCACHED_LIMITS.model_copy(
    update={"memcached_timeout_s": 0.3, "memcached_failures_max": 2, "memcached_batch_max": 2}
)
VALUE_BYTES_MAX = 2_000


class Process:
    """The curve book of one process, and counters of the reports about memcached."""

    def __init__(self, deployment: Deployment, cache: Memcached, salt: str = SALT) -> None:
        self.deployment = deployment
        self.meter = RecordingMeter()
        self.store = MeddlingStore(deployment.store)
        shared = SharedCurves(cache, Envelopes(salt), self.meter)
        self.book = CurveBook(self.store, shared, poll_rows_max=100, meter=self.meter)

    async def refresh(self, board: Board, column_index: int, fitted: Curve) -> ServedCurve:
        version = await self.deployment.store.write(lambda: store_curve(board.leaf, column_index, fitted))
        served = ServedCurve(board.key, column_index, board.gate.epoch, version, fitted, partition=board.partition)
        self.book.serve_curve(served)
        await self.book.share_curve(served)
        return served


@pytest.fixture
def server() -> Iterator[OpenMemcached]:
    with OpenMemcached() as started:
        yield started


Start = Callable[..., Process]


@pytest.fixture
async def start(deployment: Deployment, server: OpenMemcached) -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:

        def make(salt: str = SALT) -> Process:
            limits = LIMITS.model_copy(
                update={"memcached_servers": (server.address,), "memcached_value_bytes_max": VALUE_BYTES_MAX}
            )
            cache = Memcached(limits, monotonic=time.monotonic)
            stack.push_async_callback(cache.close)
            return Process(deployment, cache, salt)

        yield make


async def test_only_the_version_of_a_shared_curve_comes_from_the_table(deployment: Deployment, start: Start) -> None:
    board = await deployment.create("b", *(ranked(f"c{index}") for index in range(5)))
    job, front = start(), start()
    for index in range(5):
        await job.refresh(board, index, curve(10 + index))
    assert job.meter.by_label("rankcurve_shared_curve_writes") == {"stored": 5}
    assert await front.book.poll(board.partition) == 5
    assert [found.total for index in range(5) if (found := front.book.find_curve(board, index))] == [10, 11, 12, 13, 14]
    assert front.meter.by_label("rankcurve_shared_curve_reads") == {"hit": 5}
    assert front.store.reads == 1, "only the list of versions was read"
    await front.book.poll(board.partition)
    assert (front.meter.by_label("rankcurve_shared_curve_reads"), front.store.reads) == ({"hit": 5}, 2)


async def test_a_process_does_not_fetch_the_curves_that_it_stored_itself(deployment: Deployment, start: Start) -> None:
    board = await deployment.create("b", ranked("xp"))
    job = start()
    await job.refresh(board, 0, curve(10))
    assert await job.book.poll(board.partition) == 0
    assert (job.meter.by_label("rankcurve_shared_curve_reads"), job.store.reads) == ({}, 1)


async def test_a_curve_larger_than_the_limit_stays_in_the_table(deployment: Deployment, start: Start) -> None:
    board = await deployment.create("b", ranked("xp"))
    job, front = start(), start()
    large = Curve([Knot(key, key, 1) for key in range(2_000)], total=2_000, as_of_us=5)
    await job.refresh(board, 0, large)
    assert job.meter.by_label("rankcurve_shared_curve_writes") == {"too_large": 1}
    assert await front.book.poll() == 1
    assert front.book.find_curve(board, 0) == large
    assert front.meter.by_label("rankcurve_shared_curve_reads") == {"miss": 1}


Harm = Callable[[OpenMemcached], None]


def garbage(server: OpenMemcached) -> None:
    for key in server.held():
        server.put(key, bytes(range(256)) * 4)


def emptied_values(server: OpenMemcached) -> None:
    for key in server.held():
        server.put(key, b"")


def truncated(server: OpenMemcached) -> None:
    for key in server.held():
        server.put(key, server.value(key)[:-1])


def swapped(server: OpenMemcached) -> None:
    first, second = sorted(server.held())
    values = server.value(first), server.value(second)
    server.put(first, values[1])
    server.put(second, values[0])


@pytest.mark.parametrize(
    ("harm", "outcome", "errors"),
    [
        (OpenMemcached.kill, "miss", 1), (OpenMemcached.pause, "miss", 1), (OpenMemcached.flush, "miss", 0),
        (garbage, "corrupt", 0), (emptied_values, "corrupt", 0), (truncated, "corrupt", 0), (swapped, "corrupt", 0),
    ],
)  # fmt: skip
async def test_the_curves_of_the_table_serve_whatever_happens_to_memcached(
    deployment: Deployment, server: OpenMemcached, start: Start, harm: Harm, outcome: ReadOutcome, errors: int
) -> None:
    board, other = await deployment.create("b", ranked("xp")), await deployment.create("other", ranked("xp"))
    job, front = start(), start()
    await job.refresh(board, 0, curve(10))
    await job.refresh(other, 0, curve(20))
    harm(server)
    assert await front.book.poll() == 2
    assert front.book.find_curve(board, 0) == curve(10)
    assert front.book.find_curve(other, 0) == curve(20)
    assert front.meter.by_label("rankcurve_shared_curve_reads") == {outcome: 2}
    assert front.meter.counts["rankcurve_memcached_errors"] == errors
    assert front.meter.counts["rankcurve_curves_corrupt"] == 0
    # The state of memcached must not affect the job either: the job's curve is stored and served.
    await job.refresh(board, 0, curve(11))
    assert job.book.find_curve(board, 0) == curve(11)
    assert await front.book.poll() == 1
    assert front.book.find_curve(board, 0) == curve(11)


async def test_an_older_version_is_never_served(deployment: Deployment, server: OpenMemcached, start: Start) -> None:
    board = await deployment.create("b", ranked("xp"))
    job, front = start(), start()
    await job.refresh(board, 0, curve(10))
    [key] = server.held()
    older = server.value(key)
    await job.refresh(board, 0, curve(11))
    server.put(key, older)
    assert await front.book.poll() == 1
    assert front.book.find_curve(board, 0) == curve(11)
    assert front.meter.by_label("rankcurve_shared_curve_reads") == {"stale": 1}


async def test_a_poll_stops_asking_after_a_failure(deployment: Deployment, server: OpenMemcached, start: Start) -> None:
    board = await deployment.create("b", *(ranked(f"c{index}") for index in range(5)))
    job, front = start(), start()
    for index in range(5):
        await job.refresh(board, index, curve(10))
    server.kill()
    assert await front.book.poll() == 5
    assert front.meter.counts["rankcurve_memcached_errors"] == 1, "only the first of three batches failed"
    await job.refresh(board, 0, curve(11))
    await front.book.poll()
    assert front.meter.counts["rankcurve_memcached_errors"] == 2, "the server is left alone now"
    await job.refresh(board, 0, curve(12))
    await front.book.poll()
    assert front.meter.counts["rankcurve_memcached_errors"] == 2
    assert front.book.find_curve(board, 0) == curve(12)

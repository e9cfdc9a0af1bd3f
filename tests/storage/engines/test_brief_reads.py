"""Test which reads run in the thread of the event loop."""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from querybuilder import col, count, param, select
from storage.boards.boards import find_board
from storage.engines import brief_reads
from storage.engines.brief_reads import PAUSE_S, SLOW_S, VALUE_BYTES_MAX, BriefReads, NotBriefError
from storage.engines.sqlite import SqliteStore
from storage.store import Program
from tests.meter import RecordingMeter
from tests.storage.backends import SQLITE_LIMITS
from tests.storage.deployment import Deployment, part, ranked

COUNT_UP = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT max(i) FROM n"


class Machine:
    """A clock and a disk that the test turns."""

    def __init__(self) -> None:
        self.now_s, self.disk_reads = 100.0, 0

    def run(self, reads: BriefReads, *, seconds: float, blocks: int) -> int:
        def work(_: sqlite3.Connection) -> int:
            self.now_s += seconds
            self.disk_reads += blocks
            return 1

        return reads.run(work)


class Unending(sqlite3.Connection):
    """A connection whose transactions can't be rolled back."""

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        if sql == "ROLLBACK":
            raise sqlite3.OperationalError("interrupted")
        return super().execute(sql, *arguments)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE a (b INTEGER)")
    return path


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def meter() -> RecordingMeter:
    return RecordingMeter()


@pytest.fixture
def reads(path: Path, machine: Machine, meter: RecordingMeter) -> Iterator[BriefReads]:
    made = BriefReads(
        lambda: sqlite3.connect(path, timeout=0, isolation_level=None),
        meter,
        clock=lambda: machine.now_s,
        disk_reads=lambda: machine.disk_reads,
    )
    yield made
    made.close()


@pytest.fixture
async def watched(tmp_path: Path, meter: RecordingMeter) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(tmp_path / "boards.db", SQLITE_LIMITS, meter=meter)
    yield store
    await store.close()


def read_counts(meter: RecordingMeter) -> tuple[float, float]:
    """Return how many reads were abandoned, and how many connections replaced."""
    return tuple(meter.counts[f"rankcurve_store_{each}"] for each in ("reads_abandoned", "connections_replaced"))  # type: ignore[return-value]


def count_up(connection: sqlite3.Connection, to: int) -> int:
    [(found,)] = connection.execute(COUNT_UP, (to,)).fetchall()
    return int(found)


def test_a_long_read_is_abandoned_and_the_next_one_begins_anew(reads: BriefReads) -> None:
    for _ in range(3):
        with pytest.raises(NotBriefError):
            reads.run(lambda raw: count_up(raw, 10_000_000))
        assert reads.run(lambda raw: count_up(raw, 1_000)) == 1_000


def test_after_a_long_read_those_of_its_kind_make_a_pause(reads: BriefReads, machine: Machine) -> None:
    with pytest.raises(NotBriefError):
        reads.run(lambda raw: count_up(raw, 10_000_000), "long")
    with pytest.raises(NotBriefError):
        reads.run(lambda raw: count_up(raw, 1), "long")
    assert reads.run(lambda raw: count_up(raw, 1), "short") == 1
    machine.now_s += 1.1 * PAUSE_S
    assert reads.run(lambda raw: count_up(raw, 1), "long") == 1


def test_a_read_of_a_long_value_is_abandoned(reads: BriefReads) -> None:
    def length(size: int) -> int:
        return reads.run(lambda raw: len(raw.execute("SELECT hex(zeroblob(?))", (size // 2,)).fetchone()[0]))

    assert length(VALUE_BYTES_MAX // 2) == VALUE_BYTES_MAX // 2
    with pytest.raises(NotBriefError):
        length(VALUE_BYTES_MAX + 2)


def test_the_statements_of_a_read_count_together(reads: BriefReads) -> None:
    def work(raw: sqlite3.Connection) -> int:
        return sum(count_up(raw, 1_000) for _ in range(1_000))

    with pytest.raises(NotBriefError):
        reads.run(work)


def test_a_read_waits_for_no_lock(reads: BriefReads, path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(NotBriefError):
        reads.run(lambda raw: raw.execute("SELECT * FROM a").fetchall())
    other.close()


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("abandoned", [True, False])
def test_only_a_query_is_interrupted_and_not_the_end_of_its_transaction(
    reads: BriefReads, meter: RecordingMeter, monkeypatch: pytest.MonkeyPatch, snapshot: bool, abandoned: bool
) -> None:
    monkeypatch.setattr(brief_reads, "STEP_OPERATIONS", 1)
    monkeypatch.setattr(brief_reads, "STEPS_MAX", 0 if abandoned else 1_000_000)
    connection = reads._connection

    def work(raw: sqlite3.Connection) -> None:
        assert raw.in_transaction is snapshot
        count_up(raw, 10)
        monkeypatch.setattr(brief_reads, "STEPS_MAX", 0)  # any further operation would be one too many
        raise LookupError("the program found nothing")

    with pytest.raises(NotBriefError if abandoned else LookupError):
        reads.run(work, snapshot=snapshot)
    assert reads._connection is connection
    assert not connection.in_transaction
    assert count_up(connection, 10) == 10, "no handler is left"
    assert read_counts(meter) == (int(abandoned), 0)


def test_a_connection_whose_transaction_cannot_be_ended_is_replaced_and_told(path: Path, meter: RecordingMeter) -> None:
    kinds: list[type[sqlite3.Connection]] = [sqlite3.Connection, Unending]

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(path, timeout=0, isolation_level=None, factory=kinds.pop())

    reads = BriefReads(connect, meter)
    stuck = reads._connection
    with capture_logs() as lines, pytest.raises(NotBriefError):
        reads.run(lambda raw: count_up(raw, 10_000_000), "long", snapshot=True)
    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("read_abandoned", "info"), ("connection_replaced", "error")
    ]  # fmt: skip
    assert read_counts(meter) == (1, 1)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        stuck.execute("SELECT 1")
    with pytest.raises(NotBriefError):
        reads.run(lambda raw: count_up(raw, 10_000_000), "other", snapshot=True)
    assert reads.run(lambda raw: count_up(raw, 1_000), "third", snapshot=True) == 1_000
    reads.close()


def test_without_another_connection_no_read_sees_an_old_snapshot(path: Path, meter: RecordingMeter) -> None:
    kinds: list[type[sqlite3.Connection]] = [Unending]

    def connect() -> sqlite3.Connection:
        if not kinds:
            raise sqlite3.OperationalError("unable to open database file")
        return sqlite3.connect(path, timeout=0, isolation_level=None, factory=kinds.pop())

    def count_rows(raw: sqlite3.Connection) -> object:
        return raw.execute("SELECT count(*) FROM a").fetchone()[0]

    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA journal_mode=WAL")
    reads = BriefReads(connect, meter)
    for snapshot in (True, False, True):
        with pytest.raises(sqlite3.OperationalError, match="unable to open"):
            reads.run(count_rows, snapshot=snapshot)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("INSERT INTO a VALUES (1)")
    kinds.append(sqlite3.Connection)
    assert reads.run(count_rows) == 1
    assert meter.counts["rankcurve_store_connections_replaced"] == 1
    reads.close()


def test_other_errors_reach_the_caller(reads: BriefReads) -> None:
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        reads.run(lambda raw: raw.execute("SELECT * FROM missing"))
    with pytest.raises(sqlite3.OperationalError, match="of the module"):
        reads.run(lambda _: (_ for _ in ()).throw(sqlite3.OperationalError("of the module")))


def test_a_read_that_waited_for_the_disk_makes_a_pause(reads: BriefReads, machine: Machine) -> None:
    assert machine.run(reads, seconds=2 * SLOW_S, blocks=8) == 1
    machine.now_s += 0.9 * PAUSE_S
    with pytest.raises(NotBriefError):
        machine.run(reads, seconds=0, blocks=0)
    machine.now_s += 0.2 * PAUSE_S
    assert machine.run(reads, seconds=0, blocks=0) == 1


@pytest.mark.parametrize(("seconds", "blocks"), [(2 * SLOW_S, 0), (SLOW_S / 2, 8)])
def test_a_slow_processor_or_a_fast_disk_makes_no_pause(
    reads: BriefReads, machine: Machine, seconds: float, blocks: int
) -> None:
    for _ in range(2):
        assert machine.run(reads, seconds=seconds, blocks=blocks) == 1


async def test_a_thousand_abandoned_reads_leave_no_old_snapshot(
    watched: SqliteStore, meter: RecordingMeter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brief_reads, "PAUSE_S", 0)
    deployment = await Deployment.on(watched)
    board = await deployment.create("b", ranked("xp"))
    await deployment.apply(*(deployment.post(f"owner-{n}", part(board, {"xp": n})) for n in range(1_000)))
    monkeypatch.setattr(brief_reads, "STEPS_MAX", 0)
    counted = select(count()).from_("entries_1").where(col("owner").ge(param("owner"))).prepared()

    def count_owners() -> Program[int]:
        [[found]] = yield counted.bind(owner="")
        return int(found)

    for _ in range(1_000):
        assert await watched.read(count_owners) == 1_000
    assert meter.counts["rankcurve_store_reads_abandoned"] == 1_000
    await deployment.apply(deployment.post("ada", part(board, {"xp": 7})))
    assert await deployment.stats(board, "ada") == {"xp": 7}
    assert await watched.read(partial(find_board, "b")) == board
    assert read_counts(meter) == (1_000, 0), "the last reads were brief"


@pytest.mark.parametrize("brief", [True, False])
async def test_a_store_answers_a_read_that_is_not_brief_from_another_connection(
    watched: SqliteStore, meter: RecordingMeter, monkeypatch: pytest.MonkeyPatch, brief: bool
) -> None:
    if not brief:
        monkeypatch.setattr(brief_reads, "STEP_OPERATIONS", 1)
        monkeypatch.setattr(brief_reads, "STEPS_MAX", 0)
    deployment = await Deployment.on(watched)
    board = await deployment.create("b", ranked("xp"))
    await deployment.apply(deployment.post("ada", part(board, {"xp": 7})))
    stats = await deployment.stats(board, "ada")
    assert stats == {"xp": 7}
    assert ("rankcurve_store_connections_lent common read" in meter.gauges) is not brief

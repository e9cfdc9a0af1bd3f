"""Test which reads run in the thread of the event loop."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.engines import brief_reads
from storage.engines.brief_reads import PAUSE_S, SLOW_S, VALUE_BYTES_MAX, BriefReads, NotBriefError
from storage.engines.sqlite import SqliteStore
from tests.storage.backends import SQLITE_LIMITS
from tests.storage.deployment import Deployment, part, ranked
from tests.storage.watcher import Watcher

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


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    made = sqlite3.connect(tmp_path / "a.db", 0, isolation_level=None)
    made.execute("CREATE TABLE a (b INTEGER)")
    yield made
    made.close()


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def reads(connection: sqlite3.Connection, machine: Machine) -> BriefReads:
    return BriefReads(connection, clock=lambda: machine.now_s, disk_reads=lambda: machine.disk_reads)


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


def test_a_read_waits_for_no_lock(reads: BriefReads, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(NotBriefError):
        reads.run(lambda raw: raw.execute("SELECT * FROM a").fetchall())
    other.close()


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


@pytest.mark.parametrize("brief", [True, False])
async def test_a_store_answers_a_read_that_is_not_brief_from_another_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, brief: bool
) -> None:
    if not brief:
        monkeypatch.setattr(brief_reads, "STEP_OPERATIONS", 1)
        monkeypatch.setattr(brief_reads, "STEPS_MAX", 0)
    watcher = Watcher()
    store = await SqliteStore.open(tmp_path / "boards.db", SQLITE_LIMITS, observer=watcher)
    deployment = await Deployment.on(store)
    board = await deployment.create("b", ranked("xp"))
    await deployment.apply(deployment.post("ada", part(board, {"xp": 7})))
    stats = await deployment.stats(board, "ada")
    assert stats == {"xp": 7}
    assert ("read" in {kind for _, kind, _ in watcher.waits}) is not brief
    await store.close()

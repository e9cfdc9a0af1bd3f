"""Runs brief reads of `SqliteStore` in the thread of the event loop.

Most reads take a few microseconds, less than it takes to hand them to another thread. `BriefReads` abandons a read that
turns out to be long, and the caller runs it again on another connection, which has its own thread. For the next PAUSE_S
seconds, reads of the same kind go straight to that other thread; after a read that had to wait for the disk, all do.

Only queries can be interrupted. An interrupted ROLLBACK would leave a transaction open, and later reads would see its
old snapshot. The handler that interrupts is therefore not set while a transaction begins or ends.
"""

import resource
import sqlite3
from collections.abc import Callable, Hashable
from contextlib import suppress
from time import monotonic
from typing import TypeVar

import structlog

from storage.meter import Meter

T = TypeVar("T")
log = structlog.get_logger(__name__)

# SQLite calls `_count_step` after STEP_OPERATIONS operations of its virtual machine. STEPS_MAX calls take about 2 ms.
STEP_OPERATIONS = 1_000
STEPS_MAX = 100
SLOW_S = 0.005  # a read that took longer may have waited for the disk
VALUE_BYTES_MAX = 256 * 1024  # a read of a longer value is abandoned: decoding it takes milliseconds
PAUSE_S = 1.0  # how long reads use the other thread after a read was abandoned or waited for the disk
_ABANDONED = (sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_BUSY)


class NotBriefError(Exception):
    """The read is, or may be, too long for the event loop's thread, so the caller has to run it in another thread."""


def make_idle(
    connection: sqlite3.Connection, open_another: Callable[[], sqlite3.Connection], meter: Meter
) -> sqlite3.Connection:
    """Roll back an open transaction and return the connection. If this fails, close the connection and return another.

    Raises sqlite3.Error if no other connection can be opened.
    """
    if connection.in_transaction:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        if connection.in_transaction:
            another = open_another()
            connection.close()
            meter.add_from_any_thread("rankcurve_store_connections_replaced")
            log.error("connection_replaced", detail="a transaction could not be rolled back")
            return another
    return connection


def count_disk_reads() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_inblock


class BriefReads:
    """Runs reads on one connection, which has no transaction between reads. All calls must come from one thread."""

    def __init__(
        self,
        open_connection: Callable[[], sqlite3.Connection],
        meter: Meter,
        *,
        clock: Callable[[], float] = monotonic,
        disk_reads: Callable[[], int] = count_disk_reads,
    ) -> None:
        """Open a connection. `open_connection` must return a connection that never waits for a lock."""
        self._open_connection, self._meter = open_connection, meter
        self._clock, self._disk_reads = clock, disk_reads
        self._seen_disk_reads = disk_reads()
        self._steps = 0
        self._paused_until_s: dict[Hashable, float] = {}  # by kind of read (there are few); the key None: all reads
        self._connection = self._open()

    def _open(self) -> sqlite3.Connection:
        connection = self._open_connection()
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)
        return connection

    def run(self, work: Callable[[sqlite3.Connection], T], kind: Hashable = None, *, snapshot: bool = False) -> T:
        """Run `work`, a read of this `kind`, and return its result. With `snapshot`, its queries see one snapshot.

        Raises:
            NotBriefError: `work` was abandoned because it took too long or met a lock, or it was not even started,
                because a read of the same kind was abandoned, or any read waited for the disk, in the last PAUSE_S
                seconds.
        """
        began_s, paused = self._clock(), self._paused_until_s
        if paused and (began_s < paused.get(None, 0.0) or began_s < paused.get(kind, 0.0)):
            raise NotBriefError
        self._steps = 0
        try:
            if self._connection.in_transaction:
                self._make_idle()
            if snapshot:
                self._connection.execute("BEGIN")
            self._connection.set_progress_handler(self._count_step, STEP_OPERATIONS)
            return work(self._connection)
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0)  # an error that the module sqlite3 itself raises has no code
            if code & 0xFF not in _ABANDONED:  # the low byte of an error's code is its primary code
                raise
            self._meter.add("rankcurve_store_reads_abandoned")
            if kind is not None:
                if kind not in paused:
                    log.info("read_abandoned", program=getattr(kind, "co_qualname", kind), detail=str(error))
                self._pause(kind)
            raise NotBriefError from error
        finally:
            self._connection.set_progress_handler(None, 0)
            self._make_idle()
            # A read may also be slow because other processes keep the processors busy. A pause would not help then.
            if self._clock() - began_s > SLOW_S and self._has_read_disk():
                self._pause(None)

    def close(self) -> None:
        self._connection.close()

    def _make_idle(self) -> None:
        self._connection = make_idle(self._connection, self._open, self._meter)

    def _pause(self, kind: Hashable) -> None:
        self._paused_until_s[kind] = self._clock() + PAUSE_S

    def _count_step(self) -> bool:
        self._steps += 1
        return self._steps > STEPS_MAX

    def _has_read_disk(self) -> bool:
        before, self._seen_disk_reads = self._seen_disk_reads, self._disk_reads()
        return self._seen_disk_reads > before

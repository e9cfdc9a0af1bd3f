"""Runs brief reads of SQLite in the thread of the event loop.

Most reads take a few microseconds, and a change of threads costs more than that. A read that turns out to be long is
abandoned, and the caller runs it again in the thread of another connection. For a while, reads of the same kind take
that thread at once. After a read that had to wait for the disk, all reads do so.
"""

import resource
import sqlite3
from collections.abc import Callable, Hashable
from time import monotonic
from typing import TypeVar

T = TypeVar("T")

# SQLite counts the operations of its virtual machine. STEPS_MAX * STEP_OPERATIONS of them take about two milliseconds.
STEP_OPERATIONS = 1_000
STEPS_MAX = 100
SLOW_S = 0.005
VALUE_BYTES_MAX = 256 * 1024  # a longer value, such as packed rows, takes milliseconds to decode
PAUSE_S = 1.0  # how long reads take the other thread after one that was abandoned or waited for the disk
_ABANDONED = (sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_BUSY)


class NotBriefError(Exception):
    """The read does not fit the thread of the event loop. It had no effect."""


def count_disk_reads() -> int:
    """Return how many blocks the system has read from the disk for this thread."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_inblock


class BriefReads:
    """Runs functions on one connection, which must belong to the calling thread and wait for no lock."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        clock: Callable[[], float] = monotonic,
        disk_reads: Callable[[], int] = count_disk_reads,
    ) -> None:
        self._connection, self._clock, self._disk_reads = connection, clock, disk_reads
        self._seen_disk_reads = disk_reads()
        self._steps = 0
        self._paused_until_s: dict[Hashable, float] = {}  # by kind of read; None: all reads
        connection.set_progress_handler(self._count_step, STEP_OPERATIONS)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)

    def run(self, work: Callable[[sqlite3.Connection], T], kind: Hashable = None) -> T:
        """Return what `work` returns. There are few kinds of reads.

        Raises:
            NotBriefError: `work` was too long, or less than PAUSE_S have passed since a read of its kind that was too
                long, or since a read that waited for the disk.
        """
        began_s, paused = self._clock(), self._paused_until_s
        if paused and (began_s < paused.get(None, 0.0) or began_s < paused.get(kind, 0.0)):
            raise NotBriefError
        self._steps = 0
        try:
            return work(self._connection)
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0)  # an error of the module sqlite3 itself has no code
            if code & 0xFF not in _ABANDONED:  # the low byte is the primary code of an error
                raise
            if kind is not None:
                self._pause(kind)
            raise NotBriefError from error
        finally:
            # A read may also be slow because other processes keep the processors busy. No pause would help then.
            if self._clock() - began_s > SLOW_S and self._has_read_disk():
                self._pause(None)

    def close(self) -> None:
        self._connection.close()

    def _pause(self, kind: Hashable) -> None:
        self._paused_until_s[kind] = self._clock() + PAUSE_S

    def _count_step(self) -> bool:
        self._steps += 1
        return self._steps > STEPS_MAX

    def _has_read_disk(self) -> bool:
        before, self._seen_disk_reads = self._seen_disk_reads, self._disk_reads()
        return self._seen_disk_reads > before

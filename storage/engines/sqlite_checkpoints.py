"""Makes checkpoints for `SqliteStore`: copies SQLite's write-ahead log into the database file while posts continue.

Copying many pages takes a tenth of a second, during which no post would be answered. A separate connection, with its
own thread, therefore copies the log in rounds, each covering what the writer has logged since the one before. At the
end, the writer's connection copies the last few pages between two transactions. SQLite then syncs the file, and the
next transaction restarts the log.

SQLite before 3.51.3 can damage the file if a transaction restarts the log while another connection copies it
(https://www.sqlite.org/wal.html#walresetbug). Each round therefore opens a read transaction. Meanwhile, SQLite either
can't restart the log (if the file lacked pages of the log), or can't copy the log (if the file had all pages).
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from time import monotonic

import structlog

from .sqlite_file import SQLITE_ERRORS

log = structlog.get_logger(__name__)

COPIES_MAX = 4  # the most rounds, after which the writer's connection copies the last pages
BRIEF_COPY_S = 0.005  # after such a short round, few pages are left, so no other round is needed


def copy_log(connection: sqlite3.Connection) -> None:
    """Copy the log into the file. Pages newer than a reader's snapshot stay in the log. Raises sqlite3.Error."""
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def copy_log_beside_writer(
    connection: sqlite3.Connection, open_reader: Callable[[], sqlite3.Connection], file: int
) -> None:
    """Copy the log while the writer writes, and sync the database file `file`. Raises sqlite3.Error, OSError."""
    with closing(open_reader()) as reader:
        reader.execute("BEGIN")
        reader.execute("PRAGMA user_version").fetchall()  # the transaction begins with its first read
        copy_log(connection)
    os.fsync(file)  # so that only few pages are left for the writer to sync


class Checkpoints:
    """Makes a checkpoint `after_s` seconds after a write, for all writes before the checkpoint begins."""

    def __init__(
        self, copy: Callable[[], Awaitable[None]], finish: Callable[[], Awaitable[None]], *, after_s: float
    ) -> None:
        """Store two functions that copy the log: `copy` runs beside the writer, which has to wait for `finish`."""
        self._copy, self._finish, self._after_s = copy, finish, after_s
        self._due: asyncio.TimerHandle | None = None
        self._running: asyncio.Task[None] | None = None
        self._written = self._closed = False

    def plan(self) -> None:
        """Schedule a checkpoint after a write, unless one is due. If one is running, schedule the next when it ends."""
        self._written = True
        if self._due is None and self._running is None and not self._closed:
            self._due = asyncio.get_running_loop().call_later(self._after_s, self._start)

    def _start(self) -> None:
        self._due = None
        self._running = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            for _ in range(COPIES_MAX):
                began_s = monotonic()
                await self._copy()
                if monotonic() - began_s < BRIEF_COPY_S:
                    break
            self._written = False
            await self._finish()
        except (*SQLITE_ERRORS, OSError) as error:
            log.warning("checkpoint_failed", detail=str(error))  # no data is lost, but the write-ahead log stays long
        finally:
            self._running = None
            if self._written:
                self.plan()

    async def close(self) -> None:
        """Stop making checkpoints and wait for a running one; SQLite makes one when the last connection closes."""
        self._closed = True
        if self._due is not None:
            self._due.cancel()
        if self._running is not None:
            await self._running

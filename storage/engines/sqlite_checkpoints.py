"""Copies SQLite's write-ahead log into the database file, while posts go on.

A checkpoint of many pages takes a tenth of a second. So a connection of its own, with a thread of its own, copies what
was logged before it began, and then what was logged meanwhile. The writer copies the rest, between two transactions.
Once the whole log is copied, SQLite waits until the disk has the file, and the next transaction begins the log anew.

Before 3.51.3, SQLite can damage the file if a transaction begins the log anew during another connection's checkpoint
(https://www.sqlite.org/wal.html#walresetbug). So a reader has a transaction open meanwhile. If it reads the log, the
log can't begin anew. If it reads only the file, because the whole log was copied, the checkpoint can't write.
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

COPIES_MAX = 4  # before the writer copies the rest
BRIEF_COPY_S = 0.005  # what was logged during such a copy is little enough for the writer


def copy_log(connection: sqlite3.Connection) -> None:
    """Copy what is logged and what no reader still needs. Raises sqlite3.Error."""
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def copy_log_beside_writer(
    connection: sqlite3.Connection, open_reader: Callable[[], sqlite3.Connection], file: int
) -> None:
    """Copy what is logged while the writer writes, and sync the open file. Raises sqlite3.Error, OSError."""
    with closing(open_reader()) as reader:
        reader.execute("BEGIN")
        reader.execute("PRAGMA user_version").fetchall()  # the transaction begins with its first read
        copy_log(connection)
    os.fsync(file)  # then the writer waits for few pages only


class Checkpoints:
    """Makes a checkpoint some time after a write, unless one is due already."""

    def __init__(
        self, copy: Callable[[], Awaitable[None]], finish: Callable[[], Awaitable[None]], *, after_s: float
    ) -> None:
        """Call `copy` while the writer writes, and then `finish`, which makes it wait."""
        self._copy, self._finish, self._after_s = copy, finish, after_s
        self._due: asyncio.TimerHandle | None = None
        self._running: asyncio.Task[None] | None = None
        self._written = self._closed = False

    def plan(self) -> None:
        """Note a write."""
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
        """Plan no further checkpoint, and let the present one end. SQLite makes one when the last connection closes."""
        self._closed = True
        if self._due is not None:
            self._due.cancel()
        if self._running is not None:
            await self._running

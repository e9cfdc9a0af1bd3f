"""`SqliteStore` is the embedded store: one SQLite file, with one connection that writes and several that read.

Brief reads run in the thread of the event loop. Every other connection has its own thread (aiosqlite), in which a whole
program runs after a single change of threads. If a query may return many rows, SQLite packs them into one JSON text,
because a thread may have to wait for the interpreter lock each time it fetches a row.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from functools import partial
from io import FileIO
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple, TypeVar

import aiosqlite
import msgspec
import structlog

from config.settings import Settings
from querybuilder import SQLITE, Bound, Built
from storage.errors import (
    NotOwnerError,
    StoreBusyError,
    StoreDamagedError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnsupportedError,
    UnknownBoardError,
)
from storage.meter import COMMON_CONNECTION_POOL, NO_METER, Counted, Meter, report_statements
from storage.store import Program, Rows, StoreSize

from .brief_reads import BriefReads, NotBriefError, make_idle
from .sqlite_checkpoints import Checkpoints, copy_log, copy_log_beside_writer
from .sqlite_file import (
    NO_DATABASE,
    SQLITE_ERRORS,
    FileLock,
    check_file,
    create_file,
    describe_damage,
    is_full_error,
    is_full_os_error,
    size_of,
)

T = TypeVar("T")
log = structlog.get_logger(__name__)

VERSION_MIN = (3, 37, 0)  # the statements here need STRICT tables, RETURNING and UPDATE … FROM
FULL_OVER_S = 60.0
# The page size of a new file. A post changes a few rows that are far apart, and SQLite logs whole pages: with half the
# default of 4 KiB, batches of posts are 15 % faster. With 1 KiB, reads are up to 19 % slower (1 million rows, 2 cores).
PAGE_BYTES = 2_048
# The page cache of a connection that reads. SQLite empties it whenever another connection has written.
READER_CACHE_MIB = 4
LOCK_WAIT_S_MAX = 5.0  # how long a connection waits for a lock that another program holds on the file
_decode_rows: Callable[[str], Any] = msgspec.json.Decoder(list[list[Any]]).decode


class _Connection(aiosqlite.Connection):
    """A connection that runs whole functions in its own thread, which is faster than sending it single statements."""

    def __init__(self, open_raw: Callable[[], sqlite3.Connection], meter: Meter) -> None:
        super().__init__(open_raw, iter_chunk_size=1)
        self._meter = meter

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        return await self._execute(self._run_idle, function)  # type: ignore[no-any-return, no-untyped-call]

    def _run_idle(self, function: Callable[[sqlite3.Connection], T]) -> T:
        self._connection = make_idle(self._conn, self._connector, self._meter)
        return function(self._connection)

    def join(self) -> None:
        self._thread.join()


class _Readers(NamedTuple):
    kind: str  # "read" or "heavy"
    connections: int  # how many there are, lent or idle
    # Last in, first out: the most recently used connection still has pages and statements in its caches.
    idle: asyncio.LifoQueue[_Connection]


def _execute(connection: sqlite3.Connection, query: Built, counted: list[Counted]) -> Rows:
    cursor = connection.execute(query.sql, query.arguments)
    if query.packed:
        rows: Rows = _decode_rows(cursor.fetchone()[0])
    elif cursor.description is None:
        counted.append((query.kind, max(0, cursor.rowcount)))  # for DDL, `rowcount` is -1
        return [(cursor.rowcount,)]
    else:
        rows = cursor.fetchall()
    counted.append((query.kind, len(rows)))
    return rows


def _drive(connection: sqlite3.Connection, make: Callable[[], Program[T]], meter: Meter) -> T:
    program, counted = make(), list[Counted]()
    try:
        query = next(program)
        while True:
            query = program.send(_execute(connection, query.build(SQLITE), counted))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    finally:
        program.close()
        report_statements(meter, counted)


def _in_transaction(connection: sqlite3.Connection, begin: str, work: Callable[[sqlite3.Connection], T]) -> T:
    connection.execute(begin)
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


class SqliteStore:
    """A `Store` on one SQLite file. Open it with `SqliteStore.open`."""

    dialect = SQLITE
    sole_writer = True
    writes_at_once = 1

    def __init__(self, path: Path, limits: Settings, lock: FileLock | None, meter: Meter) -> None:
        self._path, self._limits, self._lock = path, limits, lock
        self._meter = meter
        self._writer: _Connection  # only of a store with a lock, because only the owner of a file writes to it
        self._brief: BriefReads | None = None  # None until the writer is open
        self._light = _Readers("read", limits.reader_connections, asyncio.LifoQueue())
        self._heavy = _Readers("heavy", limits.heavy_reader_connections, asyncio.LifoQueue())
        self._connections: list[_Connection] = []  # the writer comes first
        self.damaged = asyncio.Event()
        self._closed = False
        self._full_s = inf  # when a write last found the disk full, if the store counts as full
        self._waiting = 0
        self._checkpoints: Checkpoints | None = None  # None until all connections are open
        # Closed after the connections, because a process that closes a descriptor of a file loses all locks on it.
        self._file: FileIO | None = None

    @classmethod
    async def open(cls, path: Path, limits: Settings, *, meter: Meter = NO_METER) -> SqliteStore:
        """Lock and open the file, and return the store. Create the file if the setting `create_store` allows it.

        Raises:
            StoreLockedError: another process owns the file.
            StoreUnsupportedError: the SQLite library is too old, or the file can't be opened or is not a database.
            StoreDamagedError: the file is damaged, or it is missing although its write-ahead log exists.
            StoreFullError: the disk has no room for the write-ahead log.
        """
        if sqlite3.sqlite_version_info < VERSION_MIN:
            raise StoreUnsupportedError(
                f"SQLite {sqlite3.sqlite_version} is older than {'.'.join(map(str, VERSION_MIN))}"
            )
        lock = FileLock(path)
        try:
            check_file(path, create=limits.create_store)
            path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except OSError as error:
            raise _refused(path, error) from error
        return await cls(path, limits, lock, meter)._start()

    @classmethod
    async def open_beside_owner(cls, path: Path, limits: Settings, *, meter: Meter = NO_METER) -> SqliteStore:
        """Open the file of a store that another process owns, for reading only: `write` raises `NotOwnerError`.

        Raises:
            StoreUnsupportedError, StoreDamagedError: the file can't be opened.
        """
        return await cls(path, limits, None, meter)._start()

    async def _start(self) -> SqliteStore:
        try:
            if self._lock is not None:
                create_file(self._path)
                self._lock.acquire_file()
            await self._connect()
        except BaseException as error:
            await self.close()
            if isinstance(error, (*SQLITE_ERRORS, OSError)):
                raise _refused(self._path, error) from error
            raise
        return self

    async def _connect(self) -> None:
        uri = self._path.absolute().as_uri()
        if self._lock is not None:
            self._writer = await self._open_connection(partial(self._open_raw, uri, self._prepare_writer))
        # SQLite makes a checkpoint when the last connection closes. Readers must not make one, so they have mode=ro.
        reading_uri = uri + "?mode=ro"
        open_reader = partial(self._open_raw, reading_uri, self._prepare_reader)
        open_brief = partial(open_reader, timeout_s=0)
        self._brief = BriefReads(open_brief, self._meter)
        for readers in (self._light, self._heavy):
            for _ in range(readers.connections):
                readers.idle.put_nowait(await self._open_connection(open_reader))
        if self._lock is None:
            return
        self._file = FileIO(self._path)
        copier = await self._open_connection(partial(self._open_raw, uri, self._prepare_reader))

        def copy(raw: sqlite3.Connection) -> None:
            assert self._file is not None
            copy_log_beside_writer(raw, open_brief, self._file.fileno())

        async def copy_beside_writer() -> None:
            await copier.run(copy)

        async def finish() -> None:
            await self._writer.run(copy_log)

        self._checkpoints = Checkpoints(copy_beside_writer, finish, after_s=self._limits.checkpoint_after_s)

    async def _open_connection(self, open_raw: Callable[[], sqlite3.Connection]) -> _Connection:
        connection = _Connection(open_raw, self._meter)
        try:
            await connection
        except BaseException:
            # When the thread ends, it calls the event loop. Wait for this call, because a closed event loop refuses it.
            await asyncio.to_thread(connection.join)
            raise
        self._connections.append(connection)
        return connection

    def _open_raw(
        self, uri: str, prepare: Callable[[sqlite3.Connection], None], timeout_s: float = LOCK_WAIT_S_MAX
    ) -> sqlite3.Connection:
        statements = self._limits.statement_cache
        connection = sqlite3.connect(
            uri, timeout=timeout_s, uri=True, isolation_level=None, cached_statements=statements
        )
        try:
            prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare_writer(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
        [mode] = connection.execute("PRAGMA journal_mode=WAL").fetchone()
        if mode != "wal":  # the file system or another process prevents mode WAL; `mode` is the mode in use
            raise StoreUnsupportedError(f"{self._path}: the journal stays in mode {mode!r}, but mode WAL is needed")
        checkpoint = f"wal_autocheckpoint={self._limits.checkpoint_pages}"
        self._set(connection, self._limits.sqlite_cache_mib, "synchronous=FULL", checkpoint)

    def _prepare_reader(self, connection: sqlite3.Connection) -> None:
        self._set(connection, READER_CACHE_MIB, "query_only=1", "wal_autocheckpoint=0")

    def _set(self, connection: sqlite3.Connection, cache_mib: int, *pragmas: str) -> None:
        for pragma in (*pragmas, f"cache_size={-1024 * cache_mib}", "temp_store=MEMORY"):
            connection.execute(f"PRAGMA {pragma}")

    @property
    def partitions(self) -> int:
        return 1

    def at(self, partition: int) -> SqliteStore:
        return self

    async def read(self, program: Callable[[], Program[T]], *, heavy: bool = False) -> T:
        work = partial(_drive, make=program, meter=self._meter)
        if heavy:
            return await self._reading(partial(_in_transaction, begin="BEGIN", work=work), self._heavy)
        code: object = getattr(getattr(program, "func", program), "__code__", None)  # a partial function has `func`
        return await self._reading_briefly(work, kind=code, snapshot=True)

    async def read_query(self, query: Bound) -> Rows:
        built = query.build(SQLITE)

        def work(raw: sqlite3.Connection) -> Rows:
            counted: list[Counted] = []
            rows = _execute(raw, built, counted)
            report_statements(self._meter, counted)
            return rows

        return await self._reading_briefly(work)

    async def _reading_briefly(
        self, work: Callable[[sqlite3.Connection], T], kind: object = None, *, snapshot: bool = False
    ) -> T:
        self._check_open()
        assert self._brief is not None
        try:
            result = self._brief.run(work, kind, snapshot=snapshot)
        except NotBriefError:
            whole = partial(_in_transaction, begin="BEGIN", work=work) if snapshot else work
            return await self._reading(whole, self._light)
        except SQLITE_ERRORS as error:
            raise self._translated(error) from error
        await asyncio.sleep(0)  # lets other tasks run while a caller reads many pages
        return result

    async def _reading(self, work: Callable[[sqlite3.Connection], T], readers: _Readers) -> T:
        if self._waiting >= self._limits.reads_waiting_max:
            raise StoreBusyError(f"{self._waiting} reads are waiting")
        self._waiting += 1
        began_s = 0.0 if readers.idle.qsize() else monotonic()
        try:
            connection = await readers.idle.get()
        finally:
            self._waiting -= 1
        waited_s = monotonic() - began_s if began_s else 0.0
        self._meter.observe("rankcurve_store_connection_wait_seconds", waited_s, COMMON_CONNECTION_POOL)
        self._tell_lent(readers)

        def give_back(_: object) -> None:
            readers.idle.put_nowait(connection)
            self._tell_lent(readers)

        # A cancelled read continues in its thread, so its connection is not lent again before the read has ended.
        reading = asyncio.ensure_future(self._read_on(connection, work))
        reading.add_done_callback(give_back)
        return await asyncio.shield(reading)

    async def _read_on(self, connection: _Connection, work: Callable[[sqlite3.Connection], T]) -> T:
        self._check_open()
        try:
            return await connection.run(work)
        except SQLITE_ERRORS as error:
            raise self._translated(error) from error

    def _tell_lent(self, readers: _Readers) -> None:
        idle, limit = readers.idle.qsize(), readers.connections
        meter, pool, kind = self._meter, COMMON_CONNECTION_POOL, readers.kind
        meter.set("rankcurve_store_connections_lent", limit - idle, pool, kind)
        meter.set("rankcurve_store_connections_awaited", 0 if idle else self._waiting, pool, kind)
        meter.set("rankcurve_store_connections_limit", limit, pool, kind)

    async def write(self, program: Callable[[], Program[T]]) -> T:
        self._check_open()
        if self._limits.read_only:
            raise StoreReadOnlyError
        if self._lock is None:
            raise NotOwnerError
        if self.damaged.is_set():
            raise StoreDamagedError
        try:
            driving = partial(_drive, make=program, meter=self._meter)
            result = await self._writer.run(partial(_in_transaction, begin="BEGIN IMMEDIATE", work=driving))
        except SQLITE_ERRORS as error:
            if is_full_error(error, self._path):
                self._log_full()
                raise StoreFullError from error
            raise self._translated(error) from error
        else:
            if self._full_s < inf and monotonic() - self._full_s >= FULL_OVER_S:
                self._full_s = inf
                log.warning("store_has_room", path=str(self._path.resolve()))
            return result
        finally:
            if not self.damaged.is_set():
                assert self._checkpoints is not None
                self._checkpoints.plan()

    def _translated(self, error: Exception) -> Exception:
        if isinstance(error, sqlite3.OperationalError) and "no such table: entries_" in str(error):
            return UnknownBoardError("the leaderboard was deleted meanwhile")
        cause = describe_damage(error)
        if cause is not None:
            if not self.damaged.is_set():  # log the damage only once: every later request may find the damage again
                self.damaged.set()
                detail = "the store refuses writes and the jobs end: stop the service and restore a backup"
                log.error("store_damaged", path=str(self._path.resolve()), cause=cause, detail=detail)
            return StoreDamagedError()
        return StoreBusyError(f"the store failed: {error}")

    def _log_full(self) -> None:
        # While the disk is nearly full, large writes fail and small ones succeed. So the store counts as full until no
        # write has failed for FULL_OVER_S.
        was_full, self._full_s = self._full_s < inf, monotonic()
        if not was_full:
            log.error(
                "store_full", path=str(self._path.resolve()), detail="the store refuses writes until its disk has room"
            )

    def _check_open(self) -> None:
        if self._closed:
            raise StoreBusyError("the store is closed")

    async def size(self) -> StoreSize:
        try:
            return await asyncio.to_thread(size_of, self._path)
        except OSError as error:
            raise StoreBusyError(f"the store failed: {error}") from error

    async def close(self) -> None:
        """Refuse waiting reads, wait until running reads and accepted writes have finished, and release the lock."""
        self._closed = True
        if self._checkpoints is not None:
            await self._checkpoints.close()
        try:
            if self._brief is not None:
                self._brief.close()
            for connection in reversed(self._connections):
                await connection.close()
        finally:
            if self._file is not None:
                self._file.close()
            if self._lock is not None:
                self._lock.release()


def _refused(path: Path, error: Exception) -> Exception:
    if is_full_os_error(error) if isinstance(error, OSError) else is_full_error(error, path):
        return StoreFullError(f"{path}: the disk is full, and the store needs some room to start: {error}")
    cause = describe_damage(error)
    if cause is not None and cause != NO_DATABASE:  # NO_DATABASE is no damage: the path is probably wrong
        return StoreDamagedError(f"{path} is damaged: {cause}: restore a backup")
    return StoreUnsupportedError(f"{path}: {error}")

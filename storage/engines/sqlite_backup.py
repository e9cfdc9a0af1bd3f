"""Backs up a SQLite store to one file while a service uses it, and restores such a file.

    back up:  store ──one snapshot──> FILE.partial ──check, sync──> FILE
    restore:  FILE ──> store.partial ──check, sync──> store; files of an earlier store are renamed to *.replaced

A file under its final name is complete, because each copy is made under another name, checked, synced and then renamed.
A copy that fails is removed, since it may fill the disk. Only a killed process leaves a `.partial`.

A backup only reads and takes no lock, so the service can keep using the file. A restore takes the store's lock. Restore
with this module rather than with `cp`: the write-ahead log beside a store's file (`-wal`) is part of the store, and if
only the file were replaced, the old log would damage the new file.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from querybuilder import SQLITE, col, select
from storage.errors import BackupFailedError
from storage.schema.tables import META, SCHEMA_VERSION

from .sqlite_file import SQLITE_ERRORS, FileLock

REPLACED = ".replaced"
_PARTIAL = ".partial"
_BESIDE = ("", "-wal", "-shm")
_CACHE_KIB = 65_536  # page cache for the check of a copy, which reads the table in the order of each index


def back_up_store(database: Path, into: Path) -> int:
    """Copy one snapshot of a store into a new file and return the file's size in bytes.

    The copy holds every write that was acknowledged before the call. While the call runs, the store's write-ahead log
    can't shrink.

    Raises:
        BackupFailedError: there is no store, the file exists, or the copy is damaged.
    """
    with _reported(f"{database} -> {into}"):
        if into.exists():
            raise BackupFailedError(f"{into} exists: choose another name")
        partial = _sound_copy(database, into)
        partial.rename(into)
        _sync(into.parent)
        return into.stat().st_size


def restore_store(backup: Path, database: Path, *, replace: bool) -> list[Path]:
    """Copy a backup to a store's path, after renaming the files of any earlier store, and return their new paths.

    Raises:
        StoreLockedError: a service owns the store.
        BackupFailedError: the backup is damaged, or there already is a store and `replace` is false.
    """
    with _reported(f"{backup} -> {database}"):
        database = database.resolve()
        database.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(database)
        lock.acquire()
        try:
            there = [path for path in (Path(f"{database}{end}") for end in _BESIDE) if path.exists()]
            aside = [Path(f"{path}{REPLACED}") for path in there]
            if there and not replace:
                raise BackupFailedError(f"there is a store at {database} already: --replace moves it to *{REPLACED}")
            if kept := [path for path in aside if path.exists()]:
                raise BackupFailedError(f"{kept[0]} of an earlier restore is still there: move it away first")
            if database.exists():
                lock.acquire_file()
            partial = _sound_copy(backup, database)
            for path, other in zip(there, aside, strict=True):
                path.rename(other)
            partial.rename(database)
            _sync(database.parent)
            return aside
        finally:
            lock.release()


def _sound_copy(source: Path, beside: Path) -> Path:
    if not source.is_file():
        raise BackupFailedError(f"there is no file {source}")
    partial = Path(f"{beside}{_PARTIAL}")
    _remove(partial)
    # Only the file's owner may read the copy, as with the store's own file.
    os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        reading = sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)
        with closing(reading), closing(sqlite3.connect(partial, isolation_level=None)) as writing:
            reading.backup(writing)  # copies all pages in one step, so the copy is one snapshot
            writing.execute("PRAGMA journal_mode=DELETE")  # makes the copy one file, without a write-ahead log
            _check(writing, source)
        _sync(partial)
    except BaseException:
        _remove(partial)
        raise
    return partial


def _remove(copy: Path) -> None:
    for end in (*_BESIDE, "-journal"):
        Path(f"{copy}{end}").unlink(missing_ok=True)


def _check(copy: sqlite3.Connection, source: Path) -> None:
    copy.execute(f"PRAGMA cache_size={-_CACHE_KIB}")
    [found] = copy.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        raise BackupFailedError(f"{source} is damaged: {found}")
    query = select(col("content")).from_(META).where(col("name").eq("schema_version")).bind().build(SQLITE)
    rows = []
    with suppress(sqlite3.OperationalError):  # the file may lack this table
        rows = copy.execute(query.sql, query.arguments).fetchall()
    if not rows:
        raise BackupFailedError(f"{source} is not a store")
    if int(rows[0][0]) != SCHEMA_VERSION:
        raise BackupFailedError(f"{source} has schema {rows[0][0]}, this version knows {SCHEMA_VERSION}")


def _sync(path: Path) -> None:
    """Sync a file, or a folder's list of files, to disk, so that a power cut can't lose it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _reported(what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, *SQLITE_ERRORS) as error:
        raise BackupFailedError(f"{what}: {error}") from error

"""The file of a SQLite store before SQLite opens it, and what SQLite's errors say of it later.

The rule: a file is refused before anything beside it changes. SQLite deletes a log whose database file is empty, and
the posts in that log with it.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import tempfile
from contextlib import suppress
from pathlib import Path

import structlog

from .errors import StoreDamaged, StoreUnsupported
from .store import StoreSize

log = structlog.get_logger(__name__)

MODE = 0o600  # SQLite gives the log and its index the mode of the file
PROBE_BYTES = 65_536  # more than the index of a new log takes
NO_DATABASE = "file is not a database"
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_PERHAPS_FULL = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
_PRIMARY = 0xFF  # the part of an extended code that is the primary one
_CHECKS = {"quick": "PRAGMA quick_check(1)", "full": "PRAGMA integrity_check(1)"}


def check_file(path: Path, *, create: bool) -> None:
    """Refuse a file that must not be opened.

    Raises:
        StoreUnsupported: there is no store and none may be created, or the file has several names.
        StoreDamaged: the file is lost and its log is not.
        OSError: the file can't be looked at.
    """
    real = path.resolve()
    size_bytes, names = 0, 1
    with suppress(FileNotFoundError):
        found = real.stat()
        size_bytes, names = found.st_size, found.st_nlink
    if names > 1 and real.is_file():
        # A lock on the file itself would not be enough: each name has a log of its own, and a log belongs to the file.
        raise StoreUnsupported(f"{real} has {names} names (hard links), and a store has one: remove the others")
    if size_bytes > 0:
        return
    left = real.with_name(real.name + "-wal")
    left_bytes = left.stat().st_size if left.exists() else 0
    if left_bytes > 0:
        raise StoreDamaged(
            f"{real} is {'empty' if real.exists() else 'missing'}, but {left.name} holds {left_bytes} bytes of posts: "
            "put the file back, or restore a backup"
        )
    if not create:
        raise StoreUnsupported(f"there is no store at {real}: check the path, or set create_store = true to create one")


def create_file(path: Path) -> None:
    """Create the file where there is none, for its owner only, and log a store that begins empty."""
    real = path.resolve()
    with suppress(FileExistsError):
        # No connection of this process has the file open yet: to close a descriptor would drop SQLite's locks.
        os.close(os.open(real, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE))
    if real.stat().st_size == 0:
        log.warning("store_created", path=str(real))


def size_of(path: Path) -> StoreSize:
    """Return the bytes of the file and its log, and what its disk has left."""
    real = path.resolve()
    store_bytes = 0
    for each in (real, real.with_name(real.name + "-wal")):
        with suppress(FileNotFoundError):
            store_bytes += each.stat().st_size
    return StoreSize(store_bytes, shutil.disk_usage(real.parent).free)


def check_content(connection: sqlite3.Connection, check: str, path: Path) -> None:
    """Have SQLite check the whole file: "quick" its pages, "full" its indexes too, "none" nothing.

    Raises:
        StoreDamaged: it found something.
    """
    if check == "none":
        return
    [found] = connection.execute(_CHECKS[check]).fetchone()
    if found != "ok":
        raise StoreDamaged(f"{path} is damaged: {found.partition(chr(10))[0]}: restore a backup")
    log.info("store_checked", check=check)


def damage_of(error: sqlite3.Error) -> str | None:
    """Return what SQLite, or its driver, could not make sense of in the file; None where it is another error."""
    code = _code_of(error)
    if code is None:  # the driver's own errors have none, and quote what they read
        return "a text is not UTF-8" if str(error).startswith("Could not decode to UTF-8") else None
    return str(error) if code & _PRIMARY in _DAMAGED or code == sqlite3.SQLITE_IOERR_CORRUPTFS else None


def says_full(error: sqlite3.Error, path: Path) -> bool:
    """Return whether a write failed for want of room. Writes beside the file where SQLite does not say."""
    code = _code_of(error) or 0
    if code & _PRIMARY == sqlite3.SQLITE_FULL:
        return True
    return code & _PRIMARY in _PERHAPS_FULL and not _has_room(path.resolve())


def _code_of(error: sqlite3.Error) -> int | None:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return code


def _has_room(path: Path) -> bool:
    """Return whether disk, quota and the process's own limit let a file grow past the end of the log."""
    left = path.with_name(path.name + "-wal")
    try:
        with tempfile.TemporaryFile(dir=path.parent) as file:
            begin = left.stat().st_size if left.exists() else 0
            return os.pwrite(file.fileno(), b"\0" * PROBE_BYTES, begin) == PROBE_BYTES
    except OSError as error:
        return not is_full(error)


def is_full(error: OSError) -> bool:
    """Return whether a file could not grow."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

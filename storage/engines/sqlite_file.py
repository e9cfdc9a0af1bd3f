"""Locks and checks the file of a SQLite store before SQLite opens it, and interprets SQLite's errors about the file.

A bad file is refused before any file in its folder changes. SQLite itself is less careful: if the database file is
empty, for example, it deletes the write-ahead log beside it, and the posts in that log.
"""

import errno
import fcntl
import os
import shutil
import sqlite3
import struct
import tempfile
from contextlib import suppress
from pathlib import Path

import structlog

from storage.errors import StoreDamagedError, StoreLockedError, StoreUnsupportedError
from storage.store import PartitionSize, StoreSize

log = structlog.get_logger(__name__)

MODE = 0o600  # SQLite gives the write-ahead log and the log's index the same mode as the database file
PROBE_BYTES = 65_536  # the size of a trial write: more than the index of a new write-ahead log needs
NO_DATABASE = "file is not a database"
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_PERHAPS_FULL = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
# If the message of an error would quote damaged text, the module sqlite3 raises UnicodeDecodeError instead.
SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
OWNER_BYTE = 2**62  # the owner locks this byte of the file, which is far behind the last one that SQLite may lock
_FLOCK = "hhqqi4x"  # `struct flock` of Linux: type, whence, start, length, process
_PRIMARY = 0xFF  # the bits of an extended error code that hold the primary code


class FileLock:
    """Lets only one process own a store, by exclusive advisory locks on the database file and on a lock file beside it.

    The lock file names the owner. It is not enough by itself: a database file that is mounted at two paths has two lock
    files, and would get two write-ahead logs. The system releases both locks when the process ends, even in a crash.
    """

    def __init__(self, database: Path) -> None:
        real = database.resolve()  # a store opened through a symbolic link has the same lock as its file
        self._path = real.with_name(real.name + ".lock")
        self._real = real
        self._descriptors: list[int] = []

    def acquire(self) -> None:
        """Lock the lock file. Raise `StoreLockedError` if another process holds it."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise StoreLockedError(f"process {holder or 'unknown'} owns {self._path.with_suffix('')}") from None
        except OSError:
            os.close(descriptor)
            raise
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        self._descriptors.append(descriptor)

    def acquire_file(self) -> None:
        """Lock the database file, which has to exist. Raise `StoreLockedError` as `acquire` does."""
        descriptor = os.open(self._real, os.O_RDWR | os.O_CLOEXEC)
        self._descriptors.append(descriptor)
        # A lock of this kind belongs to the descriptor, so it outlives other descriptors of the file. `flock` would
        # lock the bytes that SQLite locks, too, on file systems of a network.
        wanted = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, OWNER_BYTE, 1, 0)
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, wanted)
        except (BlockingIOError, PermissionError):
            detail = f"another process owns {self._real}, which it has opened by another path: stop that process first"
            raise StoreLockedError(detail) from None
        except OSError as error:  # the file system or a sandbox has no locks of this kind
            log.warning("file_not_locked", path=str(self._real), detail=str(error))

    def release(self) -> None:
        """Release the locks, but leave the lock file in place, because the next holder may already have opened it.

        Call this only after SQLite has closed the database file, because closing a descriptor drops SQLite's locks.
        """
        while self._descriptors:
            os.close(self._descriptors.pop())


def check_file(path: Path, *, create: bool) -> None:
    """Raise an error if the file of a store must not be opened.

    Raises:
        StoreUnsupportedError: there is no store and none may be created, or the file has several names (hard links).
        StoreDamagedError: the file is empty or missing, but its write-ahead log holds data.
        OSError: the file can't be inspected.
    """
    real = path.resolve()
    size_bytes, names = 0, 1
    with suppress(FileNotFoundError):
        found = real.stat()
        size_bytes, names = found.st_size, found.st_nlink
    if names > 1 and real.is_file():
        # SQLite keeps the write-ahead log beside the name by which a file was opened. So a file with two names could
        # get two logs, but it must have only one. A lock on the file would not prevent this.
        raise StoreUnsupportedError(
            f"{real} has {names} names (hard links), and a store may have only one: remove the others"
        )
    if size_bytes > 0:
        return
    left = real.with_name(real.name + "-wal")
    left_bytes = left.stat().st_size if left.exists() else 0
    if left_bytes > 0:
        raise StoreDamagedError(
            f"{real} is {'empty' if real.exists() else 'missing'}, but {left.name} holds {left_bytes} bytes of posts: "
            "put the file back, or restore a backup"
        )
    if not create:
        raise StoreUnsupportedError(
            f"there is no store at {real}: check the path, or set create_store = true to create one"
        )


def create_file(path: Path) -> None:
    """Create the file if it does not exist, readable by its owner only. Log a warning if the store is empty."""
    real = path.resolve()
    with suppress(FileExistsError):
        # Closing a descriptor drops SQLite's locks on the file, but no connection of this process has a lock yet.
        os.close(os.open(real, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE))
    if real.stat().st_size == 0:
        log.warning("store_created", path=str(real))


def size_of(path: Path) -> StoreSize:
    real = path.resolve()
    store_bytes = 0
    for each in (real, real.with_name(real.name + "-wal")):
        with suppress(FileNotFoundError):
            store_bytes += each.stat().st_size
    return StoreSize(store_bytes, shutil.disk_usage(real.parent).free, (PartitionSize(0, store_bytes),))


def describe_damage(error: Exception) -> str | None:
    """Describe the damage that an error reports; return None if it reports no damage."""
    if isinstance(error, UnicodeDecodeError):
        return "a text is not UTF-8"
    code = _code_of(error)
    if code is None:  # the driver's own errors have no code, and their messages quote stored data
        return "a text is not UTF-8" if str(error).startswith("Could not decode to UTF-8") else None
    return str(error) if code & _PRIMARY in _DAMAGED or code == sqlite3.SQLITE_IOERR_CORRUPTFS else None


def is_full_error(error: Exception, path: Path) -> bool:
    """Return whether a write failed because the disk is full, writing a trial file if the error leaves that open."""
    code = _code_of(error) or 0
    if code & _PRIMARY == sqlite3.SQLITE_FULL:
        return True
    return code & _PRIMARY in _PERHAPS_FULL and not _has_room(path.resolve())


def _code_of(error: Exception) -> int | None:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return code


def _has_room(path: Path) -> bool:
    """Return whether a trial file can grow as the write-ahead log would, despite disk, quota and process limits."""
    left = path.with_name(path.name + "-wal")
    try:
        with tempfile.TemporaryFile(dir=path.parent) as file:
            begin = left.stat().st_size if left.exists() else 0
            return os.pwrite(file.fileno(), b"\0" * PROBE_BYTES, begin) == PROBE_BYTES
    except OSError as error:
        return not is_full_os_error(error)


def is_full_os_error(error: OSError) -> bool:
    """Return whether a file could not grow because of a full disk, a quota or the process's limit."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

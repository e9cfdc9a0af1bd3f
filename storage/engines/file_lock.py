"""The lock that lets only one process own a SQLite file: an advisory lock on a second file in the same folder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from storage.errors import StoreLockedError


class FileLock:
    """An exclusive lock. The operating system releases it when the process ends, even if the process crashes."""

    def __init__(self, database: Path) -> None:
        real = database.resolve()  # a store opened through a symbolic link has the same lock as its file
        self._path = real.with_name(real.name + ".lock")
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock. Raise `StoreLockedError` if another process holds the lock."""
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
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock. The lock file is not deleted, because the next holder may already have opened it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

"""One process owns a SQLite file: whoever opens it for writing holds an advisory lock beside it, or is refused."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from .errors import StoreLocked


class FileLock:
    """An exclusive lock that the operating system gives back when the process ends, however it ends."""

    def __init__(self, database: Path) -> None:
        real = database.resolve()  # through another name the same file has the same lock
        self._path = real.with_name(real.name + ".lock")
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            StoreLocked: another process holds it.
            OSError: there is no place for a lock.
        """
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise StoreLocked(f"process {holder or 'unknown'} owns {self._path.with_suffix('')}") from None
        except OSError:
            os.close(descriptor)
            raise
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock back. The file stays: removing it could pull it from under the next holder."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

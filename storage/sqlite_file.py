"""The file of a SQLite store before SQLite opens it, and what SQLite's errors say of it later.

The rule: a file is refused before anything beside it changes. SQLite deletes a log whose database file is empty, and
the posts in that log with it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import structlog

from .errors import StoreDamaged, StoreUnsupported

log = structlog.get_logger(__name__)

MODE = 0o600  # SQLite gives the log and its index the mode of the file


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

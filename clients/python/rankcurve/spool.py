"""Keeps posts in files until the service has taken them, so that they survive the process.

A spool is a folder of segments. A segment is a file: a line that says where its posts go, then a post on each line, as
it is sent, with its id. A segment is deleted once all its posts are settled. Whatever a killed process leaves is sent
again by the next one. The service knows the ids, so a post that it had applied counts once.

    append ──> written ──> sent ──> settled ──> its segment is deleted
                  └── the process ends ──> `leftover` of the next spool on this folder

A post is written before `append` returns, and survives the end of the process in any form. The operating system writes
it to the disk some seconds later, so a power failure can take the newest ones. Nothing is added to a segment after a
write to it has failed, for example on a full disk: its end may be torn.

What can't be sent stays in the folder, and a warning names it. The name of a damaged segment, or of one that is too
old, gets the ending `.damaged` or `.old`. A segment for another target keeps its name, and its own buffer sends it.
"""

from __future__ import annotations

import errno
import itertools
import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from .errors import SpoolError, one_line

SEGMENT_POSTS = 10_000
# The service forgets the id of a post after 30 days, unless it is set up otherwise. Older segments are not sent.
AGE_S_MAX = 7 * 86_400
SUFFIX = ".posts"
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
logger = logging.getLogger("rankcurve")
_locks: set[int] = set()  # the descriptors of this process's locks


class Header(msgspec.Struct, frozen=True):
    """The first line of a segment: where its posts go, and when it was begun, in seconds since 1970."""

    target: str
    begun_at_s: float


class _Named(msgspec.Struct, frozen=True):
    owner: str
    post_id: str


@dataclass
class Segment:
    """A file of posts. `unsettled` of them may not have been applied. If `damaged`, it has unreadable lines, too."""

    path: Path
    file: int | None  # the descriptor of the file while posts are added to it
    posts: int = 0
    unsettled: int = 0
    damaged: bool = False


class Leftover(NamedTuple):
    """A post that an earlier process has left, as it is sent."""

    post: bytes
    owner: str
    post_id: str
    segment: Segment


class Spool:
    """The posts of one buffer on disk. One process at a time uses a folder; the buffer holds its lock for each call."""

    def __init__(self, folder: str | os.PathLike[str], target: str) -> None:
        """Open the folder, make it if needed, and read what an earlier process left. Raises SpoolError."""
        self.folder, self._target = Path(folder), target
        self.leftover: list[Leftover] = []  # posts of earlier processes, oldest first
        self._open: Segment | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(self.folder / "lock")
            try:
                paths = sorted(self.folder.iterdir())
                numbers = [int(number) for path in paths if (number := path.name.partition(".")[0]).isdecimal()]
                self._number = max(numbers, default=0)
                for path in paths:
                    if path.suffix == SUFFIX:
                        self._read(path)
            except BaseException:
                _unlock(self._lock)
                raise
        except OSError as cause:
            raise SpoolError(f"{self.folder}: {cause.strerror}") from cause

    def append(self, post: bytes) -> Segment:
        """Write a post, and return its segment. Raises SpoolError if it can't be written; then it is not kept."""
        try:
            segment = self._open = self._open or self._begin()
            assert segment.file is not None
            _write(segment.file, post)
        except OSError as cause:
            if self._open is not None:
                self._seal(self._open)
            raise SpoolError(f"{self.folder}: {cause.strerror}") from cause
        segment.posts += 1
        segment.unsettled += 1
        if segment.posts >= SEGMENT_POSTS:
            self._seal(segment)
        return segment

    def settle(self, segment: Segment, posts: int) -> None:
        """Note that this many posts of a segment are settled."""
        segment.unsettled -= posts
        if not segment.unsettled:
            # An idle process leaves nothing to send again. Were settled posts left, a later process could send them
            # when the service has forgotten their ids.
            self._seal(segment)

    def close(self) -> None:
        """Close the files. Unsettled posts stay in them."""
        if self._open is not None:
            self._seal(self._open)
        _unlock(self._lock)

    def _begin(self) -> Segment:
        """Begin a new segment. It exists only with its whole header: without one, its posts would be lost."""
        self._number += 1
        path = self.folder / f"{self._number:012}{SUFFIX}"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        try:
            _write(file, msgspec.json.encode(Header(self._target, time.time())))
        except BaseException:
            os.close(file)
            path.unlink()
            raise
        return Segment(path, file)

    def _seal(self, segment: Segment) -> None:
        if segment.file is not None:
            file, segment.file, self._open = segment.file, None, None
            os.close(file)
        if not segment.unsettled and segment.damaged:
            _set_aside(segment.path, "damaged", "its other posts are settled")
        elif not segment.unsettled:
            try:
                segment.path.unlink(missing_ok=True)
            except OSError as cause:  # its posts are sent again later, and do not count again
                logger.warning("%s can't be deleted: %s", segment.path, cause.strerror)

    def _read(self, path: Path) -> None:
        """Add the posts of a segment to `leftover`. The last line is left out if the process ended while writing it."""
        try:
            content = path.read_bytes()
        except OSError as cause:
            logger.warning("%s was not sent: %s", path, cause.strerror)
            return
        first, *lines = content.split(b"\n")[:-1] or [content]
        try:
            header = msgspec.json.decode(first, type=Header)
        except _UNREADABLE as cause:
            if content:
                _set_aside(path, "damaged", f"it is not a file of a spool: {one_line(str(cause))}")
            else:
                path.unlink()
            return
        if header.target != self._target:
            logger.warning("%s was not sent: it has posts for %s", path, one_line(header.target))
        elif time.time() - header.begun_at_s > AGE_S_MAX:
            why = f"it is older than {AGE_S_MAX // 86_400} days: the service may count its posts twice"
            _set_aside(path, "old", why)
        else:
            self._keep(Segment(path, None), lines)

    def _keep(self, segment: Segment, lines: list[bytes]) -> None:
        for number, line in enumerate(lines, 2):
            try:
                post = msgspec.convert(msgspec.json.decode(line), _Named)
            except _UNREADABLE as cause:
                segment.damaged = True
                logger.warning("line %d of %s was not sent: %s", number, segment.path, one_line(str(cause)))
            else:
                segment.posts += 1
                segment.unsettled += 1
                self.leftover.append(Leftover(line, post.owner, post.post_id, segment))
        if not segment.unsettled:
            self._seal(segment)


def _set_aside(path: Path, ending: str, why: str) -> None:
    """Rename a file, so that no process sends it again, and say so. The file stays where it is if that fails."""
    names = (path.with_name(f"{path.name}{number or ''}.{ending}") for number in itertools.count())
    aside = next(name for name in names if not name.exists())
    try:
        path.rename(aside)
    except OSError as cause:
        aside, why = path, f"{why}; it can't be renamed: {cause.strerror}"
    logger.warning("%s was set aside: %s", aside, why)


def _write(file: int, line: bytes) -> None:
    if os.write(file, line + b"\n") != len(line) + 1:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _lock(path: Path) -> int:
    """Lock a file until `_unlock`, or the end of the process. Return its descriptor."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as cause:
        os.close(file)
        raise SpoolError(f"{path.parent} is in use by another process, or by another buffer of this one") from cause
    _locks.add(file)
    return file


def _unlock(file: int) -> None:
    _locks.discard(file)
    os.close(file)


def _leave_locks_to_parent() -> None:
    """Close what a new child process has inherited: a lock lasts until all its descriptors are closed."""
    for file in list(_locks):
        _unlock(file)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_locks_to_parent)

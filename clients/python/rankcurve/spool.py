"""Keeps posts in files until the service has settled them, so that they survive the end of the process.

A spool is a folder of files called segments. The first line of a segment says where its posts go. Each further line is
a post with its id, as it is sent. A segment is deleted once all its posts are settled. Whatever a killed process leaves
behind is sent again by the next one; the service remembers the ids, so a post that it had already applied counts once.

    append ──> written ──> sent ──> settled ──> its segment is deleted
                  └── the process ends ──> `leftover` of the next spool on this folder

A post is written before `append` returns, so it survives however the process ends. The operating system writes it to
the disk some seconds later, so a power failure can lose the newest posts. After a failed write, for example on a full
disk, the end of a segment may be torn, so nothing more is added to this segment.

Posts that can't be sent stay in the folder, and a warning names their file. The name of a damaged segment gets the
ending `.damaged`, and the name of one that is too old `.old`. A segment for another target keeps its name, because that
target's own buffer sends it.
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
# By default, the service forgets the id of a post after 30 days. Segments older than this limit are not sent.
AGE_S_MAX = 7 * 86_400
SUFFIX = ".posts"
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
logger = logging.getLogger("rankcurve")
_locks: set[int] = set()  # the descriptors of this process's locks


class Header(msgspec.Struct, frozen=True):
    """The first line of a segment: where its posts go, and when it was created, in seconds since 1970."""

    target: str
    begun_at_s: float


class _Named(msgspec.Struct, frozen=True):
    owner: str
    post_id: str


@dataclass
class Segment:
    """A file of posts, of which `unsettled` may not have been applied. If `damaged`, it also has unreadable lines."""

    path: Path
    file: int | None  # the descriptor of the file while posts are added to it
    posts: int = 0
    unsettled: int = 0
    damaged: bool = False


class Leftover(NamedTuple):
    """A post that an earlier process left behind, as it is sent."""

    post: bytes
    owner: str
    post_id: str
    segment: Segment


class Spool:
    """The posts of one buffer on disk.

    Only one process at a time can use a folder. Within the process, the buffer holds its own lock during each call.
    """

    def __init__(self, folder: str | os.PathLike[str], target: str) -> None:
        """Open the folder, creating it if needed, and read what an earlier process left behind. Raises SpoolError."""
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
        """Count `posts` more posts of a segment as settled. Once all of them are, delete the segment."""
        segment.unsettled -= posts
        if not segment.unsettled:
            # Even a segment that is not full is sealed, so that an idle process leaves nothing to send again. A later
            # process could otherwise send settled posts after the service has forgotten their ids.
            self._seal(segment)

    def close(self) -> None:
        """Close the files. Unsettled posts stay in them."""
        if self._open is not None:
            self._seal(self._open)
        _unlock(self._lock)

    def _begin(self) -> Segment:
        """Create a segment with its whole header, or none at all, because without a header its posts would be lost."""
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
        """Add a segment's posts to `leftover`, without the last line if the process ended while writing it."""
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
    """Rename a file so that no process sends it again, and log a warning. If that fails, the file keeps its name."""
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
    """Close the locks that a forked process inherited, because a lock lasts until all its descriptors are closed."""
    for file in list(_locks):
        _unlock(file)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_locks_to_parent)

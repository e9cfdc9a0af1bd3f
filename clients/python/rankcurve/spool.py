"""Keeps posts in files until the service has taken them, so that they survive the process.

A spool is a folder of segments. A segment is a file: a line that says where its posts go, then a post on each line, as
it is sent, with its id. A segment is deleted once all its posts are settled. Whatever a killed process leaves is sent
again by the next one. The service knows the ids, so a post that it had applied counts once.

    append ──> written ──> sent ──> settled ──> its segment is emptied or deleted
                  └── the process ends ──> `leftover` of the next spool on this folder

A post is written before `append` returns, and survives the end of the process in any form. The operating system writes
it to the disk some seconds later, so a power failure can take the newest ones.
"""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from .errors import SpoolError

SEGMENT_POSTS = 10_000
# The service forgets the id of a post after 30 days, unless it is set up otherwise. Older segments are not sent.
AGE_S_MAX = 7 * 86_400
SUFFIX = ".posts"


class Header(msgspec.Struct, frozen=True):
    """The first line of a segment: where its posts go, and when it was begun, in seconds since 1970."""

    target: str
    begun_at_s: float


class _Named(msgspec.Struct, frozen=True):
    owner: str
    post_id: str


@dataclass
class Segment:
    """A file of posts. `unsettled` is how many of them may not have been applied."""

    path: Path
    file: int | None  # the descriptor of the file while posts are added to it
    size_bytes: int = 0
    posts: int = 0
    unsettled: int = 0


class Leftover(NamedTuple):
    """A post that an earlier process has left, as it is sent."""

    post: bytes
    owner: str
    post_id: str
    segment: Segment


class Spool:
    """The posts of one buffer on disk. One process at a time uses a folder; the buffer holds its lock for each call."""

    def __init__(self, folder: str | os.PathLike[str], target: str) -> None:
        """Open the folder, make it if needed, and read what an earlier process left.

        Raises:
            SpoolError: another process uses the folder, its posts have another target, or they are too old to be sent.
        """
        self.folder, self._target = Path(folder), target
        self.leftover: list[Leftover] = []  # posts of earlier processes, oldest first
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(self.folder / "lock")
            paths = sorted(self.folder.glob(f"*{SUFFIX}"))
            try:
                for path in paths:
                    self._read(path)
            except BaseException:
                os.close(self._lock)
                raise
        except OSError as cause:
            raise SpoolError(f"{self.folder}: {cause.strerror}") from cause
        self._number = int(paths[-1].stem) if paths else 0
        self._open: Segment | None = None

    def append(self, post: bytes) -> Segment:
        """Write a post, and return its segment. Raises SpoolError if it can't be written; then it is not kept."""
        try:
            segment = self._open or self._begin()
            _write(segment, post + b"\n")
        except OSError as cause:
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
            if segment.file is not None:
                self._seal(segment)
            segment.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the files. Unsettled posts stay in them."""
        if self._open is not None:
            self._seal(self._open)
        os.close(self._lock)

    def _begin(self) -> Segment:
        self._number += 1
        path = self.folder / f"{self._number:012}{SUFFIX}"
        header = msgspec.json.encode(Header(self._target, time.time())) + b"\n"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self._open = Segment(path, file)
        _write(self._open, header)
        return self._open

    def _seal(self, segment: Segment) -> None:
        assert segment.file is not None
        os.close(segment.file)
        segment.file, self._open = None, None

    def _read(self, path: Path) -> None:
        """Add the posts of a segment to `leftover`. The last line is left out if the process ended while writing it."""
        first, *lines = path.read_bytes().split(b"\n")[:-1] or [b""]
        if not lines:
            path.unlink()
            return
        try:
            header = msgspec.json.decode(first, type=Header)
            posts = [msgspec.json.decode(line, type=_Named) for line in lines]
        except (msgspec.MsgspecError, UnicodeDecodeError) as cause:
            raise SpoolError(f"{path} is not a file of a spool: {cause}") from cause
        if header.target != self._target:
            raise SpoolError(f"{path} has posts for {header.target}, not for {self._target}")
        if time.time() - header.begun_at_s > AGE_S_MAX:
            raise SpoolError(f"{path} is older than {AGE_S_MAX // 86_400} days: the service may count its posts twice")
        segment = Segment(path, None, posts=len(lines), unsettled=len(lines))
        self.leftover += [
            Leftover(line, post.owner, post.post_id, segment) for line, post in zip(lines, posts, strict=True)
        ]


def _write(segment: Segment, line: bytes) -> None:
    """Add a line to a segment, all of it or nothing. Raises OSError."""
    assert segment.file is not None
    if os.write(segment.file, line) != len(line):
        os.ftruncate(segment.file, segment.size_bytes)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    segment.size_bytes += len(line)


def _lock(path: Path) -> int:
    """Lock a file until its descriptor is closed, also by the end of the process. Return the descriptor."""
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
    return file

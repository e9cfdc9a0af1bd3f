"""Sends the batches of an import, several at the same time, and counts the results in the order of the file.

The position on disk never passes a line whose outcome is unknown. The next run sends the lines after the position
again, under the same post ids. If the service already has a post, it answers `duplicate`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from service.client.client import RefusedError
from service.client.client_answers import PostResult, Problem
from service.commands.imports.import_lines import Batch, FilePosition, Post, Rejection
from service.commands.imports.import_rejects import RejectsPosition

# With these statuses, the service refuses a whole request. Halving the request finds the post at fault.
WHOLE_REQUEST_STATUSES = frozenset({400, 413, 422})
RESUME_FORMAT = 1


class Tally(msgspec.Struct):
    applied: int = 0
    unchanged: int = 0
    duplicate: int = 0
    rejected: int = 0
    accepted: int = 0  # lines whose posts wait in the ingest queue
    rounded: int = 0  # number of rounded values; a line may have several

    def total(self) -> int:
        return self.applied + self.unchanged + self.duplicate + self.rejected + self.accepted

    def count_line(self, status: str) -> None:
        """Count one line. A status that this command does not know counts as applied, since it was not rejected."""
        known = status if status in ("unchanged", "duplicate", "rejected", "accepted") else "applied"
        setattr(self, known, getattr(self, known) + 1)


class ResumeState(msgspec.Struct):
    format: int
    identity: str
    board: str
    url: str
    offset: int
    line: int
    tally: Tally
    rejects: RejectsPosition | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """The import that a resume file belongs to. An import with another source starts at line 1."""

    identity: str
    board: str
    url: str


class ResumeFile:
    """A file beside the CSV file that holds the position of an unfinished import. Losing this file only costs time."""

    def __init__(self, path: Path, source: Source) -> None:
        self.path = path
        self.partial_path = path.with_name(f"{path.name}.partial")  # written first, then renamed to `path`
        self._source = source
        self.writable = True

    def load_state(self) -> ResumeState | None:
        """Return the state of an unfinished run of the same import, or None."""
        try:
            state = msgspec.json.decode(self.path.read_bytes(), type=ResumeState)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        same = (state.format, Source(state.identity, state.board, state.url)) == (RESUME_FORMAT, self._source)
        return state if same and state.offset >= 0 and state.line >= 0 else None

    def save_state(self, position: FilePosition, tally: Tally, rejects: RejectsPosition | None) -> None:
        """Replace the whole file. If it cannot be written, set `writable` to False and go on without the file."""
        if not self.writable:
            return
        source = self._source
        state = ResumeState(
            RESUME_FORMAT, source.identity, source.board, source.url, position.offset, position.line, tally, rejects
        )
        try:
            self.partial_path.write_bytes(msgspec.json.encode(state))
            os.replace(self.partial_path, self.path)
        except OSError:
            self.writable = False

    def delete_file(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


class TooManyRejectedError(Exception):
    """More lines were rejected than `--rejected-max` allows."""


@dataclass(frozen=True, slots=True)
class Reports:
    """The functions to call with the results of an import.

    `rejected` is called once for each rejected line. `accounted` is called after each batch, with the position after
    the batch and the counts of all batches so far.
    """

    rejected: Callable[[Rejection], None]
    accounted: Callable[[FilePosition, Tally], None]


Sender = Callable[[str, Sequence[Post]], Awaitable[list[PostResult]]]  # sends posts to a board; one result per post


async def send_batches(
    post: Sender,
    board: str,
    batches: Iterator[Batch],
    *,
    tally: Tally,
    reports: Reports,
    concurrency: int,
    rejected_max: int,
) -> None:
    """Send every batch, at most `concurrency` at a time, and count the results in order.

    Raises:
        ClientError: the service failed, and trying again did not help.
        TooManyRejectedError: more than `rejected_max` lines were rejected.
        UnusableFileError: `batches` could not read the file.
    """
    flying: deque[tuple[Batch, asyncio.Task[list[PostResult]]]] = deque()
    try:
        more = True
        while more or flying:
            while more and len(flying) < concurrency:
                batch = next(batches, None)
                more = batch is not None
                if batch is not None:
                    flying.append((batch, asyncio.create_task(deliver_posts(post, board, batch.posts))))
            if flying:
                batch, task = flying[0]
                account_for_batch(batch, await task, tally, reports)
                flying.popleft()
                if tally.rejected > rejected_max:
                    raise TooManyRejectedError
    finally:
        for _, task in flying:
            task.cancel()
        await asyncio.gather(*(task for _, task in flying), return_exceptions=True)


async def deliver_posts(post: Sender, board: str, posts: Sequence[Post]) -> list[PostResult]:
    """Send posts, and return their results in the same order.

    If the service refuses a whole request, halve the request until only the posts at fault are rejected.
    """
    if not posts:
        return []
    try:
        return await post(board, posts)
    except RefusedError as refusal:
        if refusal.status not in WHOLE_REQUEST_STATUSES:
            raise
        if len(posts) == 1:
            return [PostResult("rejected", error=refusal.problem)]
    middle = len(posts) // 2
    return await deliver_posts(post, board, posts[:middle]) + await deliver_posts(post, board, posts[middle:])


def account_for_batch(batch: Batch, results: list[PostResult], tally: Tally, reports: Reports) -> None:
    """Count a batch, report its rejected lines in the order of the file, then the position after the batch."""
    rejected = list(batch.rejected)
    for index, (line, result) in enumerate(zip(batch.lines, results, strict=True)):
        if result.status == "rejected":
            span = batch.spans[index] if batch.spans else None
            rejected.append(Rejection(line, (result.error or Problem(code="rejected")).one_line_text(), span))
        else:
            tally.count_line(result.status)
    for rejection in sorted(rejected, key=lambda each: each.line):
        tally.count_line("rejected")
        reports.rejected(rejection)
    tally.rounded += batch.rounded
    reports.accounted(batch.end, tally)

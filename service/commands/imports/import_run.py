"""Sends the batches of an import, several at the same time, and counts the results in the order of the file.

The position on disk never passes a line whose outcome is unknown. The next run sends the lines after the position
again, under the same post ids. If the service already has a post, it answers `duplicate`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence

from service.client.client import RefusedError
from service.client.client_answers import PostResult, Problem
from service.commands.imports.import_lines import Batch, Post, Rejection
from service.commands.imports.import_notes import Tally

# With these statuses, the service refuses a whole request. Halving the request finds the post at fault.
WHOLE_REQUEST_STATUSES = frozenset({400, 413, 422})

Sender = Callable[[str, Sequence[Post]], Awaitable[list[PostResult]]]  # sends posts to a board; one result per post


async def send_batches(
    post: Sender, board: str, batches: Iterator[Batch], *, concurrency: int
) -> AsyncGenerator[tuple[Batch, list[PostResult]], None]:
    """Send every batch, at most `concurrency` at a time, and yield each with its results, in order.

    Use it with `contextlib.aclosing`, which cancels the requests under way if the caller stops early.

    Raises:
        ClientError: the service failed, and trying again did not help.
        UnusableFileError: `batches` could not read the file.
    """
    flying: deque[tuple[Batch, asyncio.Task[list[PostResult]]]] = deque()
    try:
        for batch in batches:
            flying.append((batch, asyncio.create_task(deliver_posts(post, board, batch.posts))))
            if len(flying) == concurrency:
                yield flying[0][0], await flying[0][1]
                flying.popleft()
        while flying:
            yield flying[0][0], await flying[0][1]
            flying.popleft()
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


def count_results(batch: Batch, results: list[PostResult], tally: Tally) -> list[Rejection]:
    """Count the lines of a batch, and return the rejected ones in the order of the file."""
    rejected = list(batch.rejected)
    for index, (line, result) in enumerate(zip(batch.lines, results, strict=True)):
        if result.status == "rejected":
            span = batch.spans[index] if batch.spans else None
            rejected.append(Rejection(line, (result.error or Problem(code="rejected")).one_line_text(), span))
        else:
            tally.count_line(result.status)
    tally.rejected += len(rejected)
    tally.rounded += batch.rounded
    return sorted(rejected, key=lambda each: each.line)

"""Collects posts in a buffer, which sends them in batches, retries failed requests, and counts each post once.

    with client.buffer("arena", spool="spool") as posts:
        posts.submit("ada", {"xp": 25})

    submit ──> waiting ──N posts, or T after the oldest──> sent ──answered──> settled: its receipt has the result
                                                            │ ^
                                                            └─┘ again, until the service has answered

A post gets its id and its time when it is submitted and keeps both across retries, so a post whose answer was lost
still counts once. Only one request is under way at a time, so posts are applied in the order in which they were
submitted. Only a rejection by the service itself is final; after any other answer, such as a proxy's, the request is
sent again.

At most `posts_max` posts wait or are under way; beyond that, `submit` waits. A post is settled once the service has
reported its outcome, even if that is `rejected`. The `with` block ends with `close`, which waits until all posts are
settled. If the service stays unreachable, or rejects the key, the buffer gives up: `submit` and `close` then raise an
error, and `UnsentPostsError` holds the posts that are left. With a spool, they also stay on disk for the next buffer. A
`with` block that ends in an exception does not wait for an unreachable service.

A buffer belongs to the process that created it. In a forked process, every call raises an error.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import msgspec

from .answers import ENCODER, PostResult
from .errors import ApiError, BufferFullError, Problem, RankcurveError, UnsentPostsError, one_line
from .posting import find_scales, make_post_id, round_post, send_each
from .programs import Program, Wait, operation
from .retries import Retries, Sender
from .spool import Segment, Spool
from .transport import AsyncRunner, AsyncTransport, SyncRunner, SyncTransport

POSTS_PER_REQUEST = 1_000
DELAY_S = 0.02
POSTS_MAX = 10_000
CLOSE_TIMEOUT_S = 60.0
BREAK_OFF_S = 1.0  # how long an exception in a `with` block waits for the posts to be settled
# While the service is unreachable, a request is sent for about an hour, with pauses of 3.75 s on average.
BUFFER_RETRIES = Retries(attempts_max=1_000, pause_s=0.1, pause_s_max=5.0, until_refused=True)
IDLE_S = 3_600.0  # the longest wait for work; afterwards the buffer waits again

Stat = int | float | str | Decimal
logger = logging.getLogger("rankcurve")


class Receipt:
    """The receipt of a submitted post: its id, and its result once the service has answered."""

    __slots__ = ("owner", "post_id", "result")

    def __init__(self, owner: str, post_id: str) -> None:
        self.owner, self.post_id = owner, post_id
        self.result: PostResult | None = None


class _Waiting:
    """A post that is not settled yet. `since_s` is when it was submitted, by the monotonic clock."""

    __slots__ = ("encoded", "receipt", "segment", "since_s")

    def __init__(self, encoded: bytes, receipt: Receipt, segment: Segment | None, since_s: float) -> None:
        self.encoded, self.receipt, self.segment, self.since_s = encoded, receipt, segment, since_s


class _Buffering:
    transport: SyncTransport | AsyncTransport

    def __init__(
        self,
        transport: SyncTransport | AsyncTransport,
        sender: Sender,
        target: str,
        *,
        posts_per_request: int,
        delay_s: float,
        posts_max: int,
        spool: str | os.PathLike[str] | None,
        round_floats: bool,
        on_result: Callable[[Receipt], object],
        retries: Retries,
    ) -> None:
        self.transport = transport
        self.rejected: Counter[str] = Counter()  # how many posts were rejected, by the code of the problem
        self._process = os.getpid()
        self._client_sender = sender
        self._sender = Sender(sender.url, retries, self._note_outage, lambda: self._abandoned or self._breaking_off)
        self._scales: Mapping[str, int] | None = None if round_floats else {}  # None until the service was asked
        self._target, self._on_result = target, on_result
        self._posts_per_request, self._delay_s, self._posts_max = posts_per_request, delay_s, posts_max
        self._guard = threading.Lock()  # held for what is below, and never while waiting
        self._waiting: deque[_Waiting] = deque()
        self._sent: list[_Waiting] = []  # the posts of the request under way
        self._submitted = self._settled = 0  # posts so far, in the same order
        self._flushing = 0  # callers that wait for all posts
        self._closing = self._abandoned = self._breaking_off = False
        self._failure: Exception | None = None
        self._work, self._room, self._ended = (transport.make_signal() for _ in range(3))
        self._progress = transport.make_signal()  # set, and replaced, after each answer
        self._id_prefix, self._id_numbers = make_post_id(), itertools.count(1)
        self._spool = None if spool is None else Spool(spool, target)
        for left in [] if self._spool is None else self._spool.leftover:
            self._add(left.post, Receipt(left.owner, left.post_id), left.segment)

    @property
    def unsettled(self) -> int:
        """The number of posts whose outcome is not known yet."""
        return self._submitted - self._settled

    @operation
    def submit(
        self,
        owner: str,
        stats: Mapping[str, Stat] | None = None,
        *,
        set: Mapping[str, Stat | None] | None = None,
        boards: Sequence[str] | None = None,
        facets: Mapping[str, str] | None = None,
        post_id: str | None = None,
        at: datetime | None = None,
        timeout_s: float | None = None,
    ) -> Program[Receipt]:
        """Add a post to the buffer, and return its receipt. With a spool, the post has then been written to a file.

        `set` overwrites values, or clears a value with None (role `ops`). `boards` is for a buffer without a target,
        and `facets` for a family's buffer. `at` defaults to the current time, so pass it explicitly if a later run may
        submit the same `post_id`. If too many posts are waiting, the call waits for at most `timeout_s`. If the buffer
        rounds floats, the first call asks the service for the columns.

        Raises:
            BufferFullError: no room became free in time. The post was not accepted.
            SpoolError: the post could not be written. It was not accepted.
            RankcurveError: the buffer is closed, or has given up. The post was not accepted.
        """
        self._check_process()
        if self._scales is None:
            self._scales = yield from find_scales(self._client_sender, self._target)
        given = {"stats": stats, "set": set, "boards": boards, "facets": facets}
        post: dict[str, object] = {name: value for name, value in given.items() if value is not None}
        if post_id is None:
            post_id = f"{self._id_prefix}-{next(self._id_numbers)}"
        post |= {"owner": owner, "post_id": post_id, "at": at or datetime.now(timezone.utc)}
        encoded = ENCODER.encode(round_post(post, self._scales) if self._scales else post)
        receipt = Receipt(owner, post_id)
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            with self._guard:
                self._check_open()
                if self._submitted - self._settled < self._posts_max:
                    self._add(encoded, receipt, None if self._spool is None else self._spool.append(encoded))
                    return receipt
                self._room.clear()
            left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
            if not (yield Wait(self._room, left_s)):
                raise BufferFullError(f"{self._posts_max:,} posts wait for {self._sender.url}")

    @operation
    def wait(self, receipt: Receipt, timeout_s: float | None = None) -> Program[PostResult]:
        """Wait for a post's result, and return it.

        Raises TimeoutError after `timeout_s`, and RankcurveError if the buffer ends without a result.
        """
        self._check_process()
        self._hurry(1)
        try:
            while receipt.result is None:
                if not (yield from self._await_progress(lambda: receipt.result is not None, timeout_s)):
                    raise TimeoutError(f"post {receipt.post_id} is not settled")
        finally:
            self._hurry(-1)
        return receipt.result

    @operation
    def flush(self, timeout_s: float | None = None) -> Program[None]:
        """Send the waiting posts, and wait until every post submitted so far is settled.

        Raises the same errors as `wait`.
        """
        self._check_process()
        submitted = self._submitted
        self._hurry(1)
        try:
            while self._settled < submitted:
                if not (yield from self._await_progress(lambda: self._settled >= submitted, timeout_s)):
                    raise TimeoutError(f"{submitted - self._settled:,} posts are not settled")
        finally:
            self._hurry(-1)

    @operation
    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> Program[None]:
        """Accept no more posts, and wait until all are settled. Closing a closed buffer does nothing.

        Raises:
            UnsentPostsError: posts are left, because the buffer gave up or `timeout_s` is over.
        """
        self._check_process()
        yield from self._end(timeout_s)

    @operation
    def _break_off(self) -> Program[None]:
        """Close after an exception.

        Try once more to send the posts, unless the last attempt failed, and log what is left.
        """
        if os.getpid() != self._process:
            return
        self._breaking_off = True
        try:
            yield from self._end(0.0 if self._sender.failure else BREAK_OFF_S)
        except UnsentPostsError as error:
            logger.warning("posts to %s: %s", self._target, one_line(str(error)))

    def _end(self, timeout_s: float) -> Program[None]:
        with self._guard:
            closed = self._abandoned
            self._closing = True
            self._work.set()
            self._room.set()
        if closed:
            return
        yield Wait(self._ended, timeout_s)
        with self._guard:
            first, self._abandoned = not self._abandoned, True  # another thread may have closed it
            left = [*self._sent, *self._waiting]
            if first and self._spool is not None:
                self._spool.close()
        self._stop()
        if first and self.rejected.total() > len(self.rejected):  # not all of them were logged
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in self.rejected.most_common())
            logger.warning("%d posts to %s were rejected: %s", self.rejected.total(), self._target, kinds)
        if left:
            posts = [msgspec.json.decode(post.encoded) for post in left]
            raise UnsentPostsError(posts, self._failure, self._sender.failure)

    def _stop(self) -> None:
        """Stop sending, if it has not ended."""

    def _send_all(self) -> Program[None]:
        try:
            while not self._abandoned:
                batch, pause_s = self._take()
                if batch:
                    encoded = [post.encoded for post in batch]
                    self._settle(batch, (yield from send_each(self._sender, self._target, encoded)))
                elif self._closing:
                    return
                else:
                    yield Wait(self._work, pause_s)
        except Exception as error:
            self._failure = error
            if not self._abandoned:
                logger.error("posts to %s are no longer sent: %s", self._target, one_line(str(error)))
        finally:
            with self._guard:
                for signal in (self._ended, self._room, self._progress):
                    signal.set()

    def _take(self) -> tuple[list[_Waiting], float]:
        """Take the posts to send now, or none if it is too early.

        Return them, and the seconds to wait if there are none.
        """
        self._check_process()
        with self._guard:
            waiting = self._waiting
            left_s = waiting[0].since_s + self._delay_s - time.monotonic() if waiting else IDLE_S
            hurried = self._closing or self._flushing > 0 or left_s <= 0
            if len(waiting) >= self._posts_per_request or (waiting and hurried):
                self._sent = [waiting.popleft() for _ in range(min(len(waiting), self._posts_per_request))]
                return self._sent, 0.0
            if not self._closing:
                self._work.clear()
            return [], left_s

    def _add(self, encoded: bytes, receipt: Receipt, segment: Segment | None) -> None:
        self._waiting.append(_Waiting(encoded, receipt, segment, time.monotonic()))
        self._submitted += 1
        if len(self._waiting) in (1, self._posts_per_request):
            self._work.set()

    def _settle(self, batch: Sequence[_Waiting], results: Sequence[PostResult]) -> None:
        for post, result in zip(batch, results, strict=True):
            post.receipt.result = result
        with self._guard:
            if self._abandoned:
                return
            self._sent = []
            self._settled += len(batch)
            if self._spool is not None:
                segments = {id(post.segment): post.segment for post in batch if post.segment is not None}
                for key, posts in Counter(id(post.segment) for post in batch).items():
                    self._spool.settle(segments[key], posts)
            self._room.set()
            progress, self._progress = self._progress, self.transport.make_signal()
        progress.set()
        for post in batch:
            self._note_rejection(post.receipt)
            try:
                self._on_result(post.receipt)
            except Exception:
                logger.exception("on_result failed for post %s", one_line(post.receipt.post_id))

    def _note_rejection(self, receipt: Receipt) -> None:
        result = receipt.result
        if result is None or result.status != "rejected":
            return
        problem = result.error or Problem(code="rejected")
        kind = problem.code if problem.code in ApiError.codes else "other"
        self.rejected[kind] += 1
        if self.rejected[kind] == 1:
            post_id, owner = one_line(receipt.post_id), one_line(receipt.owner)
            logger.warning("post %s of %s was rejected: %s", post_id, owner, problem.text())

    def _note_outage(self, failure: RankcurveError) -> None:
        logger.warning("posts to %s wait, and are sent again: %s", self._target, failure)
        self._client_sender.on_unreachable(failure)

    def _await_progress(self, done: Callable[[], bool], timeout_s: float | None) -> Program[bool]:
        """Wait for the next answer, unless `done`. Return whether it arrived in time.

        Raises RankcurveError if no answer will arrive any more.
        """
        with self._guard:
            if done():
                return True
            if self._ended.is_set() and self._settled < self._submitted:
                raise RankcurveError(f"the buffer has ended: {self._failure or 'it is closed'}")
            progress = self._progress
        came: bool = yield Wait(progress, timeout_s)
        return came

    def _hurry(self, callers: int) -> None:
        with self._guard:
            self._flushing += callers
            self._work.set()

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise RankcurveError(f"this buffer belongs to process {self._process}: a child process makes its own")

    def _check_open(self) -> None:
        if self._failure is not None:
            raise RankcurveError(f"the buffer has given up: {self._failure}") from self._failure
        if self._closing:
            raise RankcurveError("the buffer is closed")


class PostBuffer(_Buffering, SyncRunner):
    """A buffer that a background thread empties, created with `Client.buffer`. Any thread may submit posts."""

    transport: SyncTransport

    def __init__(self, transport: SyncTransport, sender: Sender, target: str, **options: Any) -> None:
        super().__init__(transport, sender, target, **options)
        threading.Thread(target=self.run, args=(self._send_all(),), name="rankcurve posts", daemon=True).start()

    def __enter__(self) -> PostBuffer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        (self.close if kind is None else self._break_off)()


class AsyncPostBuffer(_Buffering, AsyncRunner):
    """A buffer that a background task empties. Create it with `AsyncClient.buffer` while the event loop is running."""

    transport: AsyncTransport

    def __init__(self, transport: AsyncTransport, sender: Sender, target: str, **options: Any) -> None:
        super().__init__(transport, sender, target, **options)
        self._task = asyncio.get_running_loop().create_task(self.run(self._send_all()))

    async def __aenter__(self) -> AsyncPostBuffer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await (self.close if kind is None else self._break_off)()

    def _stop(self) -> None:
        self._task.cancel()

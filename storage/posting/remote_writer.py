"""Sends a front process's posts to the owner process, the only one that writes to a SQLite store.

    front: RemoteWriter.submit ──> unsent ──one frame──> sent ──answer──> the caller
                                     ^                     │
                                     └── the owner died ───┘  if every post of the request has an id
    owner: PostServer ──> Writer

The front process has parsed and checked the posts. The owner process groups and merges them.

If the owner dies, the front cannot know whether the requests already sent were applied. It resends the requests in
which every post has an id, because the next owner applies those at most once. The other callers get
`OutcomeUnknownError`. Until the next owner is ready, new requests wait, but they are refused once the owner has been
unreachable for AWAY_S_MAX seconds.

The owner may also hang, or run another version, in which case it sends no frames, or none that this process
understands.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from time import monotonic

import structlog

from config.settings import PostingSettings
from storage.errors import (
    OutcomeUnknownError,
    QueueFullError,
    StoreAwayError,
    StoreDamagedError,
    WaitTooLongError,
)
from storage.meter import Meter
from storage.records import PartOutcome, Post

from .frames import (
    HEARTBEAT_S,
    VERSION,
    FrameLink,
    PostFrame,
    decode_answers,
    encode_posts,
    make_post_frame,
)
from .waiting_posts import WaitingRequest, WaitTimer

log = structlog.get_logger(__name__)
# A frame goes out when it has half of the requests that callers lately had in flight at once. So the owner commits one
# half while the front parses the other one. If all went in one frame, each process would wait for the other. With 16
# callers this answers 20 % more posts (100,000 rows, 2 cores). The bounds keep frames worth their cost.
FRAME_REQUESTS_MIN, FRAME_REQUESTS_MAX = 4, 32
CROWD_KEPT = 0.99  # what remains, with each frame, of the largest number of requests in flight
AWAY_S_MAX = 2.0  # for how long new posts wait for the next owner; the supervisor starts it within a second
RECONNECT_S = 0.05  # the pause before another attempt to connect; it doubles with every owner that was not understood
RECONNECT_S_MAX = 1.0
SILENT_S_MAX = 5.0  # after that many seconds without a frame of the owner, this process is not ready
HUNG_S = 9.0  # and after that many, requests no longer wait for the owner
# The owner refuses a post that waits for longer than `post_wait_s_max`. Its answer needs some time to arrive.
ANSWER_S = 1.0


class RemoteWriter:
    def __init__(self, path: Path, limits: PostingSettings, meter: Meter) -> None:
        self._path, self._limits, self._meter = path, limits, meter
        self._numbers = count()
        self._unsent: dict[int, WaitingRequest] = {}
        self._sent: dict[int, WaitingRequest] = {}
        self._parts = 0  # of all requests, sent or not
        self._crowd = 0.0  # how many requests callers lately had in flight at once
        self.damaged = asyncio.Event()  # set when the owner has found damaged data
        self._expiry = WaitTimer(limits.post_wait_s_max + ANSWER_S, self._expire)
        self._link: FrameLink | None = None  # None: there is no owner, or it is not ready
        self._away_since_s = monotonic()
        self._ready = asyncio.Event()
        self._lost = asyncio.Event()
        self._closing = False
        self._pause_s = RECONNECT_S
        # The seconds without a frame, counted in heartbeats, because this process may have been stopped itself.
        self._silent_s = 0.0
        self.when_hung: Callable[[], object] = self.hangs  # called with every heartbeat that a hung owner misses
        self._beat = asyncio.get_running_loop().call_later(HEARTBEAT_S, self._miss_heartbeat)
        self._connecting = asyncio.create_task(self._stay_connected(), name="owner connection")

    @property
    def alive(self) -> bool:
        return self._link is not None and self._silent_s < SILENT_S_MAX

    def hangs(self) -> bool:
        """Return True if requests would wait in vain, because the owner has long been absent or silent."""
        return self._silent_s >= HUNG_S

    async def wait_ready(self) -> None:
        await self._ready.wait()

    async def submit(self, posts: Sequence[Post]) -> list[list[PartOutcome]]:
        """Have the owner apply posts. Raises what `Writer.submit` raises, and `StoreAwayError` without an owner."""
        if self.hangs() or (self._link is None and monotonic() - self._away_since_s > AWAY_S_MAX):
            raise StoreAwayError("the process that writes to the store hangs or has ended, and no other one is ready")
        parts = sum([len(post.parts) for post in posts])
        if self._parts + parts > max(self._limits.queue_posts_max, parts):
            self._meter.add("rankcurve_write_refused_posts", parts, "queue_full")
            raise QueueFullError(f"{self._parts} posts are waiting")
        loop = asyncio.get_running_loop()
        number = next(self._numbers)
        waiting = self._unsent[number] = WaitingRequest(posts, parts, loop.create_future(), number=number)
        self._parts += parts
        if len(self._unsent) == 1:
            loop.call_soon(self._send)
        elif len(self._unsent) >= min(max(FRAME_REQUESTS_MIN, self._crowd / 2), FRAME_REQUESTS_MAX):
            self._send()
        self._expiry.add_waiting(waiting)
        return await waiting.done  # type: ignore[no-any-return]

    def _send(self) -> None:
        if not self._unsent or self._link is None:
            return
        requests = [(number, waiting.posts) for number, waiting in self._unsent.items()]
        self._link.send(encode_posts(make_post_frame(requests, monotonic() + self._limits.post_wait_s_max)))
        self._sent |= self._unsent
        self._unsent.clear()
        self._crowd = max(len(self._sent), self._crowd * CROWD_KEPT)

    def _receive(self, link: FrameLink, frame: bytes) -> None:
        decoded = decode_answers(frame)
        if self._link is not link:  # the first frame says that the owner is ready
            if decoded.version != VERSION:
                detail = "the program was replaced while this process ran: restart the service"
                log.error("owner_of_another_version", detail=detail)
                link.close()
                return
            self._link, self._pause_s = link, 0.0
            self._ready.set()
            self._send()
        self._silent_s = 0.0
        for number, outcomes, error in decoded.answers:
            waiting = self._forget(number)
            if isinstance(error, StoreDamagedError):
                self.damaged.set()
            if waiting is not None and not waiting.done.done():
                waiting.done.set_result(outcomes) if error is None else waiting.fail(error)

    def _miss_heartbeat(self) -> None:
        self._silent_s += HEARTBEAT_S
        if self.hangs():
            self.when_hung()
        self._beat = asyncio.get_running_loop().call_later(HEARTBEAT_S, self._miss_heartbeat)

    def _forget(self, number: int) -> WaitingRequest | None:
        waiting = self._sent.pop(number, None) or self._unsent.pop(number, None)
        if waiting is not None:
            self._parts -= waiting.parts
        return waiting

    def _expire(self, waiting: WaitingRequest) -> None:
        self._forget(waiting.number)
        waiting.fail(WaitTooLongError())

    async def _stay_connected(self) -> None:
        loop, make_link = asyncio.get_running_loop(), partial(FrameLink, self._receive, self._lose)
        while True:
            try:
                _, link = await loop.create_unix_connection(make_link, str(self._path))
            except OSError:
                await asyncio.sleep(RECONNECT_S)
                continue
            self._lost.clear()
            try:
                await self._lost.wait()
            finally:
                link.close()
            await asyncio.sleep(self._pause_s)  # 0, unless the owner was not understood
            self._pause_s = min(max(RECONNECT_S, 2 * self._pause_s), RECONNECT_S_MAX)

    def _lose(self, link: FrameLink) -> None:
        self._lost.set()
        if self._link is None:
            return
        self._link, self._away_since_s = None, monotonic()
        if self._closing:
            return
        again: dict[int, WaitingRequest] = {}
        for number, waiting in [*self._sent.items()]:
            if not waiting.done.done() and all(post.post_hash is not None for post in waiting.posts):
                again[number] = waiting
            else:
                self._forget(number)
                waiting.fail(OutcomeUnknownError())
        log.warning("owner_lost", requests_sent_again=len(again))
        self._sent.clear()
        self._unsent = again | self._unsent

    def report_damage(self) -> None:
        """Tell the owner that this process has found damaged data, so that the owner refuses to write."""
        if self._link is not None:
            self._link.send(encode_posts(PostFrame(0, [], [], is_store_damaged=True)))

    async def close(self) -> None:
        """Wait until every request has been answered or has timed out, then disconnect."""
        waiting = [each.done for each in (*self._sent.values(), *self._unsent.values())]
        if waiting:
            await asyncio.wait(waiting)
        self._closing = True
        self._beat.cancel()
        self._connecting.cancel()
        await asyncio.gather(self._connecting, return_exceptions=True)
        self._expiry.close()

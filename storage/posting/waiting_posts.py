"""Keeps the requests that wait for a writer: its queue, a timeout for each request, and an estimate of the wait.

    append_request ──> waiting ── take_group ──> in flight ── release_group ──> removed
                          └── withdraw_request: the caller left or waited too long

The posts of one owner are never in two groups of a writer at the same time, and no request overtakes an earlier request
with the same owner, so the posts of one owner are applied in order. Besides, two groups of a writer never need the same
row, so neither waits for the other or loses a race to it.

For admission, the writer asks `DrainRate` how long a new post would wait. The estimate comes from the rate
at which posts leave the queue, measured only while posts stay behind after a group was taken. If every group empties
the queue, there is no telling how many more posts the store could take, so the estimate is 0 and no post is refused.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from storage.errors import StorageError
from storage.records import Post

STEPPED_OVER_MAX = 1_000  # `take_group` skips at most this many requests whose owners have posts in flight

# The writer waits for this many turns of the event loop before it takes a group. Each turn reads the sockets with new
# posts. So callers who post again after an answer join the group. If the event loop is idle, turns take little time.
GATHER_TURNS = 4
# The weight of a measurement halves in this time. 4 s after a store becomes half as fast, the rate is at most 25 % off.
HALF_LIFE_S = 2.0
COMMITS_MIN = 2  # with fewer commits the rate would be random
POSTS_MIN = 1e-9  # lower bound of the weighted number of posts, so that nothing is divided by 0


class WaitingRequest(msgspec.Struct, eq=False):
    posts: Sequence[Post]
    parts: int  # number of posts, each counted once for each of its boards; a measure of the work
    done: asyncio.Future[Any]
    owners: set[str] = set()  # the owners of the posts; filled when first needed
    number: int = 0  # in a front process, the number under which the owner answers the request

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


PARTS_OF = attrgetter("parts")


def refuse_group(group: Sequence[WaitingRequest], error: StorageError) -> None:
    for waiting in group:
        waiting.fail(type(error)(error.detail))


class RequestQueue:
    """A writer's requests: those that wait, in order of arrival, and the groups that are in flight."""

    def __init__(self, *, group_posts_max: int, enough: int | None = None) -> None:
        self._group_posts_max = group_posts_max
        self._enough = group_posts_max if enough is None else enough
        self.requests: deque[WaitingRequest] = deque()
        self.in_flight: list[list[WaitingRequest]] = []
        self.parts = 0
        self.parts_in_flight = 0

    def append_request(self, waiting: WaitingRequest) -> None:
        self.requests.append(waiting)
        self.parts += waiting.parts

    def withdraw_request(self, waiting: WaitingRequest) -> bool:
        """Remove a request and return True. If a group has already taken the request, return False."""
        if waiting not in self.requests:
            return False
        self.requests.remove(waiting)
        self.parts -= waiting.parts
        return True

    def take_group(self) -> list[WaitingRequest]:
        """Take as many whole requests as fit into a group, or a single request that exceeds the group size on its own.

        Return an empty list if every waiting request has an owner whose earlier posts are in flight or still wait.
        """
        busy = self._busy_owners() if self.in_flight else set()
        group: list[WaitingRequest] = []
        parts = 0
        stepped_over: list[WaitingRequest] = []
        while self.requests and len(stepped_over) < STEPPED_OVER_MAX:
            waiting = self.requests[0]
            if group and (parts >= self._enough or parts + waiting.parts > self._group_posts_max):
                break
            self.requests.popleft()
            if self.in_flight and not self._is_free(waiting, busy):
                stepped_over.append(waiting)
                continue
            group.append(waiting)
            parts += waiting.parts
        self.requests.extendleft(reversed(stepped_over))
        self.parts -= parts
        if group:
            self.in_flight.append(group)
            self.parts_in_flight += parts
        return group

    def release_group(self, group: list[WaitingRequest]) -> None:
        self.in_flight.remove(group)
        self.parts_in_flight -= sum(map(PARTS_OF, group))

    def _busy_owners(self) -> set[str]:
        return {owner for group in self.in_flight for waiting in group for owner in _owners(waiting)}

    def _is_free(self, waiting: WaitingRequest, busy: set[str]) -> bool:
        owners = _owners(waiting)
        if owners.isdisjoint(busy):
            return True
        busy |= owners  # later requests with one of these owners must stay behind this one
        return False


def _owners(waiting: WaitingRequest) -> set[str]:
    if not waiting.owners:
        waiting.owners = {post.owner for post in waiting.posts}
    return waiting.owners


class WaitTimer:
    """Calls `expire` with each request that still has no result `wait_s` seconds after it was added.

    All requests have the same timeout, so one timer for the oldest request is enough. A timer for each request would
    make a small request 2 % slower.
    """

    def __init__(self, wait_s: float, expire: Callable[[WaitingRequest], None]) -> None:
        self._wait_s, self._expire = wait_s, expire
        self._requests: deque[tuple[float, WaitingRequest]] = deque()  # (time at which the wait ends, request)
        self._timer: asyncio.TimerHandle | None = None

    def add_waiting(self, waiting: WaitingRequest) -> None:
        self._drop_done()  # keeps the queue short: removes answered and cancelled requests from its front
        loop = waiting.done.get_loop()
        self._requests.append((loop.time() + self._wait_s, waiting))
        if self._timer is None:
            self._timer = loop.call_later(self._wait_s, self._expire_due, loop)

    def _drop_done(self) -> None:
        requests = self._requests
        while requests and requests[0][1].done.done():
            requests.popleft()

    def _expire_due(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        self._drop_done()
        while self._requests and self._requests[0][0] <= loop.time():
            self._expire(self._requests.popleft()[1])
            self._drop_done()
        if self._requests:
            self._timer = loop.call_at(self._requests[0][0], self._expire_due, loop)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._requests.clear()


class DrainRate:
    def __init__(self) -> None:
        # Posts, seconds and commits from `_began_s` to `_counted_to_s`. Earlier posts and seconds count less than later
        # ones. If `_counted_to_s` is None, nothing is measured, because the last group left no post in the queue.
        self._posts, self._seconds, self._commits = 0.0, 0.0, 0
        self._began_s = 0.0
        self._counted_to_s: float | None = None

    def record_left_behind(self, posts: int, *, now_s: float) -> None:
        """Record that taking a group left `posts` posts in the queue. If none are left, the measurement ends."""
        if posts == 0:
            self._posts, self._seconds, self._commits = 0.0, 0.0, 0
            self._counted_to_s = None
        elif self._counted_to_s is None:
            self._began_s = self._counted_to_s = now_s

    def record_commit(self, posts: int, *, now_s: float) -> None:
        if self._counted_to_s is None:
            return
        kept, seconds = _decayed(now_s - self._counted_to_s)
        # The earlier seconds of a slow group count less. Its posts must count less too, or the rate would be too high.
        share = seconds / (now_s - self._counted_to_s) if now_s > self._counted_to_s else 1.0
        self._posts = self._posts * kept + posts * share
        self._seconds = self._seconds * kept + seconds
        self._counted_to_s = now_s
        self._commits += 1

    def estimate_wait_s(self, posts: int, *, now_s: float) -> float:
        """Estimate the seconds until `posts` posts are answered, or return 0 if there is no measurement."""
        if self._counted_to_s is None:
            return 0.0
        if self._commits < COMMITS_MIN:  # too few commits: use the time since the start of the measurement
            return now_s - self._began_s
        kept, seconds = _decayed(now_s - self._counted_to_s)
        return posts * (self._seconds * kept + seconds) / max(self._posts * kept, POSTS_MIN)


def _decayed(seconds: float) -> tuple[float, float]:
    """Compute how much weight a second keeps after `seconds`, and the total weight of the last `seconds`."""
    kept = 0.5 ** (seconds / HALF_LIFE_S)
    return kept, (1 - kept) * HALF_LIFE_S / math.log(2)

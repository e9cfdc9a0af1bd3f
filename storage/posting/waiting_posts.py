"""Requests with posts that wait for a writer: their queue, the task that empties it, and the timer that ends waits.

    append_request ──> waiting ── take_group ──> in flight ── release_group ──> removed
                          └── withdraw_request: the caller left or waited too long

The most important rule: an owner's posts are never in two groups at the same time, and no request overtakes another
with the same owner. So the posts of one owner are applied in order, and the groups of one process never wait for each
other's rows or lose races to each other.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from storage.errors import StorageError
from storage.records import Post

STEPPED_OVER_MAX = 1_000  # most requests that `take_group` passes over, because their owners are in flight

# Turns of the event loop before a group is taken. Each turn reads every socket with a post, so callers that were just
# answered and post again join the group. An idle event loop makes these turns immediately.
GATHER_TURNS = 4


class WaitingRequest(msgspec.Struct, eq=False):
    posts: Sequence[Post]
    parts: int  # number of posts, each counted once per board; it measures the work of a transaction
    done: asyncio.Future[Any]
    owners: set[str] = set()  # the owners of the posts; filled when first needed

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


PARTS_OF = attrgetter("parts")


def refuse_group(group: Sequence[WaitingRequest], error: StorageError) -> None:
    for waiting in group:
        waiting.fail(type(error)(error.detail))


class RequestQueue:
    """The waiting requests in order of arrival, and the groups in flight."""

    def __init__(self, *, group_posts_max: int, enough: int | None = None) -> None:
        """Make an empty queue. `enough`: a group with this many posts takes no further request."""
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
        """Remove a request; return False if a group has already taken it."""
        if waiting not in self.requests:
            return False
        self.requests.remove(waiting)
        self.parts -= waiting.parts
        return True

    def take_group(self) -> list[WaitingRequest]:
        """Take whole requests up to the limit of a group, or one request that is larger than the limit.

        Return an empty list if every request has an owner in flight.
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
    """One timer that calls `expire` with every request that is not done `wait_s` seconds after it was added.

    All requests may wait equally long, so only the first one has to be checked. A timer for each request would take 2 %
    of the time of a small request.
    """

    def __init__(self, wait_s: float, expire: Callable[[WaitingRequest], None]) -> None:
        self._wait_s, self._expire = wait_s, expire
        self._requests: deque[tuple[float, WaitingRequest]] = deque()  # each with the time at which its wait ends
        self._timer: asyncio.TimerHandle | None = None

    def add_waiting(self, waiting: WaitingRequest) -> None:
        self._drop_done()  # keeps the queue short: afterwards, its first request still waits
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

"""Requests with posts that wait for the writer, in the order they came.

The rule: an owner's posts are never in two groups at once, and no request overtakes another that has an owner of it. So
what one owner sends is applied in order, and groups of one process don't wait for each other's rows or lose races.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from .records import PartOutcome, Post

STEPPED_OVER_MAX = 1_000  # requests looked at behind those whose owners are in flight, each time a group is taken


@dataclass(slots=True, eq=False)
class Waiting:
    """The posts of one request, and who waits for them."""

    posts: Sequence[Post]
    parts: int  # what a transaction has to do: the posts, each counted once a board
    done: asyncio.Future[list[list[PartOutcome]]]
    owners: set[str] = field(default_factory=set)  # filled where it is first needed

    def fail(self, error: Exception) -> None:
        """Tell who waits, if anyone still does."""
        if not self.done.done():
            self.done.set_exception(error)


class PostQueue:
    """What waits, and the owners of what is in flight."""

    def __init__(self, *, group_posts_max: int, grouping: bool, enough: int | None = None) -> None:
        """`enough`: a group that has so many posts takes no further request, so that other groups find one."""
        self._group_posts_max, self._grouping = group_posts_max, grouping
        self._enough = group_posts_max if enough is None else enough
        self._requests: deque[Waiting] = deque()
        self._in_flight: list[list[Waiting]] = []
        self.parts = 0
        self.parts_in_flight = 0

    def __bool__(self) -> bool:
        return bool(self._requests)

    @property
    def groups_in_flight(self) -> int:
        """Groups that were taken and have not ended."""
        return len(self._in_flight)

    def append(self, waiting: Waiting) -> None:
        """Wait behind all others."""
        self._requests.append(waiting)
        self.parts += waiting.parts

    def withdraw(self, waiting: Waiting) -> bool:
        """Wait no longer; whether it was not taken yet."""
        if waiting not in self._requests:
            return False
        self._requests.remove(waiting)
        self.parts -= waiting.parts
        return True

    def take_group(self) -> list[Waiting]:
        """Whole requests up to the bound of a group, or one larger; none where all have owners that are in flight."""
        busy = self._busy_owners()
        group: list[Waiting] = []
        parts = 0
        stepped_over: list[Waiting] = []
        while self._requests and len(stepped_over) < STEPPED_OVER_MAX:
            waiting = self._requests[0]
            if group and (not self._grouping or parts >= self._enough or parts + waiting.parts > self._group_posts_max):
                break
            self._requests.popleft()
            if self._in_flight and not self._is_free(waiting, busy):
                stepped_over.append(waiting)
                continue
            group.append(waiting)
            parts += waiting.parts
        self._requests.extendleft(reversed(stepped_over))
        self.parts -= parts
        if group:
            self._in_flight.append(group)
            self.parts_in_flight += parts
        return group

    def ended(self, group: list[Waiting]) -> None:
        """The group is no longer in flight."""
        self._in_flight.remove(group)
        self.parts_in_flight -= sum(waiting.parts for waiting in group)

    def _busy_owners(self) -> set[str]:
        return {owner for group in self._in_flight for waiting in group for owner in _owners(waiting)}

    def _is_free(self, waiting: Waiting, busy: set[str]) -> bool:
        owners = _owners(waiting)
        if owners.isdisjoint(busy):
            return True
        busy |= owners  # who comes later with one of them stays behind
        return False


def _owners(waiting: Waiting) -> set[str]:
    if not waiting.owners:
        waiting.owners = {post.owner for post in waiting.posts}
    return waiting.owners

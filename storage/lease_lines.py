"""Where the line of free resources of a partition begins, as far as this process knows, and who stands there.

The index that holds the line keeps what was taken out of its front until the database tidies up: without a place to
begin at, who takes the longest free one passes everything that was ever taken since, 16 ms after 50,000. And who looks
sees a few more than it takes, which the next ones here take unseen: a round trip less. Where another process takes them
first, their writes find them changed; then this one looks each time, and with locks, until it is alone again.

The rule: a place is where a look found the front, so nothing free stood before it then. What comes to stand there later
(a resource that was moved, a transaction that took long) is found when the place is forgotten, after a minute at most,
and before a partition is called empty.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TypeVar

from querybuilder import Dialect

from .lease_counts import Region
from .lease_records import Resource
from .lease_resources import Key, lease_resources
from .store import Program

K = TypeVar("K")
V = TypeVar("V")
KNOWN_US = 60_000_000
ALONE_US = 10_000_000  # after so long without a lost race
PLACES_MAX = 10_000
AHEAD = 64  # resources that a look sees beyond those it is for


@dataclass(slots=True)
class _Place:
    since_us: int  # since when the first is free
    known_us: int  # since when that is known
    ahead: deque[Resource] = field(default_factory=deque)  # the next ones, unless somebody else took them


class LeaseLines:
    """The lines of one process."""

    def __init__(self, dialect: Dialect) -> None:
        self._resources = lease_resources(dialect)
        self._known: dict[tuple[Region, int], _Place] = {}
        self._lost_us: dict[Region, int] = {}  # when another process was faster
        self._taken: dict[Key, int] = {}  # by their versions, unseen by others until the commit

    def lost(self, region: Region, now_us: int) -> None:
        """What was seen ahead in a region was taken by somebody else."""
        _bound(self._lost_us)[region] = now_us
        for (other, _), place in self._known.items():
            if other == region:
                place.ahead.clear()

    def front(self, region: Region, partition: int, *, limit: int, now_us: int) -> Program[list[Resource]]:
        """The longest free resources of a partition. They may be taken by now: to write them finds that out."""
        lost_us = self._lost_us.get(region)
        if lost_us is None or not 0 <= now_us - lost_us < ALONE_US:
            place = self._known.get((region, partition))
            if place is None or len(place.ahead) < limit or not 0 <= now_us - place.known_us < KNOWN_US:
                place = yield from self._look_ahead(region, partition, limit=limit, now_us=now_us)
            if len(place.ahead) >= limit:
                rows = [place.ahead.popleft() for _ in range(limit)]
                place.since_us = rows[-1].free_since_us or 0
                _bound(self._taken).update((row[:2], row.version) for row in rows)
                return rows
        return (yield from self._look(region, partition, limit=limit, now_us=now_us))

    def _look_ahead(self, region: Region, partition: int, *, limit: int, now_us: int) -> Program[_Place]:
        place = self._begin(region, partition, now_us)
        found = yield from self._resources.free(
            *region, partition, limit=limit + AHEAD, since_us=place.since_us, locked=False
        )
        place.ahead = deque(row for row in found if self._taken.get(row[:2]) != row.version)
        _bound(self._known)[region, partition] = place
        return place

    def _look(self, region: Region, partition: int, *, limit: int, now_us: int) -> Program[list[Resource]]:
        place = self._begin(region, partition, now_us)
        rows = yield from self._resources.free(*region, partition, limit=limit, since_us=place.since_us)
        if len(rows) < limit and place.since_us:
            place = _Place(0, now_us)
            rows = yield from self._resources.free(*region, partition, limit=limit)
        if rows:
            _bound(self._known)[region, partition] = _Place(rows[0].free_since_us or 0, place.known_us)
        else:
            self._known.pop((region, partition), None)
        return rows

    def _begin(self, region: Region, partition: int, now_us: int) -> _Place:
        """Where to begin to look; nobody is known to stand there."""
        place = self._known.get((region, partition))
        if place is None or not 0 <= now_us - place.known_us < KNOWN_US:
            return _Place(0, now_us)
        return _Place(place.since_us, place.known_us)


def _bound(remembered: dict[K, V]) -> dict[K, V]:
    if len(remembered) >= PLACES_MAX:
        remembered.clear()
    return remembered

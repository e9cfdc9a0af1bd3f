"""Where the line of free resources of a partition begins, as far as this process knows, and who stands there.

The index that holds the line keeps what was taken out of its front until the database tidies up: without a place to
begin at, who takes the longest free one passes everything that was ever taken since, 16 ms after 50,000. And who looks
sees a few more than it takes, which the next ones here take unseen: a round trip less. Before they run out somebody
looks on, while nobody waits for it. Where another process takes them first, their writes find them changed; then this
one looks each time, and with locks, until it is alone again.

The rule: a place is where a look found the front, so nothing free stood before it then. What comes to stand there later
(a resource that was moved, a transaction that took long) is found when the place is forgotten, after a minute at most,
and before a partition is called empty.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from typing import TypeVar

from querybuilder import Dialect

from .lease_counts import Region
from .lease_records import Resource
from .lease_resources import Key, lease_resources
from .store import Program, Store

K = TypeVar("K")
V = TypeVar("V")
KNOWN_US = 60_000_000
LATELY_US = 1_000_000  # a partition in which a look found too little is asked last, and nobody looks on past an end
ALONE_US = 10_000_000  # after so long without a lost race
AHEAD = 64  # resources that a look sees beyond those it is for
LOW = 16  # where fewer are left of those, somebody should look on
AHEAD_MAX = 1_000  # places
KNOWN_MAX = 100_000  # places, and regions
TAKEN_MAX = 10_000  # resources
Place = tuple[Region, int]  # and the partition


class LeaseLines:
    """The lines of one process."""

    def __init__(self, dialect: Dialect) -> None:
        self._resources = lease_resources(dialect)
        self._known: dict[Place, tuple[int, int]] = {}  # since when the first is free, known since
        self._ahead: dict[Place, deque[Resource]] = {}  # the next ones, unless somebody else took them
        self.low: set[Place] = set()  # where somebody should look on
        self._taken: dict[Key, int] = {}  # by their versions: others don't see it before the commit
        self._lost_us: dict[Region, int] = {}  # when another process was faster
        self._dry_us: dict[Place, int] = {}  # when a look found too little
        self._ended_us: dict[Place, int] = {}  # when a look ahead saw the last one

    def lost(self, region: Region, now_us: int) -> None:
        """What was seen ahead in a region was taken by somebody else."""
        _bound(self._lost_us, KNOWN_MAX)[region] = now_us
        for place in [place for place in self._ahead if place[0] == region]:
            del self._ahead[place]

    def in_turn(self, region: Region, partitions: int, *, rng: random.Random, now_us: int) -> list[int]:
        """All partitions of a region, round from any of them; those that were dry a moment ago are the last."""
        first = rng.randrange(partitions)
        turn = [(first + step) % partitions for step in range(partitions)]
        return sorted(turn, key=lambda partition: _lately(self._dry_us, (region, partition), now_us))

    def front(self, region: Region, partition: int, *, limit: int, now_us: int) -> Program[list[Resource]]:
        """The longest free resources of a partition. They may be taken by now: to write them finds that out."""
        if self._is_alone(region, now_us):
            if not self.reaches(region, partition, limit=limit, now_us=now_us):
                yield from self._look_ahead((region, partition), limit, now_us)
            if self.reaches(region, partition, limit=limit, now_us=now_us):
                return self.taken(region, partition, limit=limit, now_us=now_us)
        return (yield from self._look((region, partition), limit=limit, now_us=now_us))

    def reaches(self, region: Region, partition: int, *, limit: int, now_us: int) -> bool:
        """Whether so many of a partition were seen ahead: `taken` takes them."""
        self._begin((region, partition), now_us)
        return self._is_alone(region, now_us) and len(self._ahead.get((region, partition), ())) >= limit

    def taken(self, region: Region, partition: int, *, limit: int, now_us: int) -> list[Resource]:
        """The longest free of those that were seen ahead, no longer for anybody else here."""
        place = (region, partition)
        _, known_us = self._begin(place, now_us)
        rows = [self._ahead[place].popleft() for _ in range(limit)]
        _bound(self._known, KNOWN_MAX)[place] = (rows[-1].free_since_us or 0, known_us)
        self._take(rows)
        low = len(self._ahead[place]) < LOW and not _lately(self._ended_us, place, now_us)
        if low and len(self.low) < AHEAD_MAX:
            self.low.add(place)
        return rows

    async def look_on(self, store: Store, now_us: int) -> None:
        """See who comes next where few are left, so that nobody has to wait for that.

        Raises:
            StoreBusy: the store did not answer within its bounds; whoever needs more looks then.
        """
        while self.low:
            place = self.low.pop()
            await store.read(lambda place=place: self._look_ahead(place, AHEAD, now_us))  # type: ignore[misc]

    def _is_alone(self, region: Region, now_us: int) -> bool:
        lost_us = self._lost_us.get(region)
        return lost_us is None or not 0 <= now_us - lost_us < ALONE_US

    def _look_ahead(self, place: Place, limit: int, now_us: int) -> Program[None]:
        (region, partition), (since_us, _) = place, self._begin(place, now_us)
        wanted = limit + AHEAD
        found = yield from self._resources.free(*region, partition, limit=wanted, since_us=since_us, locked=False)
        _bound(self._ahead, AHEAD_MAX)[place] = deque(row for row in found if self._taken.get(row[:2]) != row.version)
        if len(found) < wanted:
            _bound(self._ended_us, KNOWN_MAX)[place] = now_us

    def _take(self, rows: Iterable[Resource]) -> None:
        self._taken.update((row[:2], row.version) for row in rows)
        while len(self._taken) > TAKEN_MAX:
            del self._taken[next(iter(self._taken))]

    def _look(self, place: Place, *, limit: int, now_us: int) -> Program[list[Resource]]:
        (region, partition), (since_us, known_us) = place, self._begin(place, now_us)
        self._ahead.pop(place, None)
        rows = yield from self._resources.free(*region, partition, limit=limit, since_us=since_us)
        if len(rows) < limit and since_us:
            known_us = now_us
            rows = yield from self._resources.free(*region, partition, limit=limit)
        if len(rows) < limit:
            _bound(self._dry_us, KNOWN_MAX)[place] = now_us
        self._take(rows)
        if rows:
            _bound(self._known, KNOWN_MAX)[place] = (rows[0].free_since_us or 0, known_us)
        else:
            self._known.pop(place, None)
        return rows

    def _begin(self, place: Place, now_us: int) -> tuple[int, int]:
        """Where to begin to look, and since when that is known; what was known for too long is forgotten."""
        since_us, known_us = self._known.get(place, (0, now_us))
        if 0 <= now_us - known_us < KNOWN_US:
            return since_us, known_us
        del self._known[place]
        self._ahead.pop(place, None)
        return 0, now_us


def _lately(when_us: dict[Place, int], place: Place, now_us: int) -> bool:
    return place in when_us and 0 <= now_us - when_us[place] < LATELY_US


def _bound(remembered: dict[K, V], most: int) -> dict[K, V]:
    if len(remembered) >= most:
        remembered.clear()
    return remembered

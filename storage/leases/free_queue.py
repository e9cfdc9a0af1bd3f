"""Finds the longest-free resources of a partition. They form a queue whose front this process remembers.

    rows wanted ──> remembered rows are enough: taken from memory, without a statement
                └── else ──> read on from the remembered start ──> taken; the others are remembered

A process remembers two things for each partition:

- The start of the queue: the time at which its first resource became free. Without a remembered start, finding the
  longest-free row scans every dead index entry before it, until the database has cleaned up these entries.
- The next few rows, without locks. Taking these rows saves a round trip. `read_ahead` reads further rows before they
  run out, while no request waits for that read.

If another process takes a remembered row first, the conditional write of this process finds the row changed. For
`ALONE_US` after that, this process remembers no rows of the region. Instead, it reads and locks rows for each request.

After a start was read, a row may appear before it, when a resource is moved or a long transaction commits. Such a row
is found after the start is forgotten: after `KNOWN_US`, and always before its partition is treated as empty.
"""

import random
from collections import deque
from collections.abc import Iterable
from typing import TypeVar

from storage.store import Program, Store

from .lease_records import Resource
from .lease_resources import ResourceKey, lease_resources
from .region_counts import Region

K = TypeVar("K")
V = TypeVar("V")
KNOWN_US = 60_000_000  # time for which a start is remembered
# A partition that had too few free rows is tried last for this long. A partition whose last row was read ahead is not
# read ahead again for this long.
LATELY_US = 1_000_000
# After this long without a lost race, a process assumes that no other process takes resources from the region.
ALONE_US = 10_000_000
AHEAD = 64  # rows that a read remembers, beyond the rows that are needed now
LOW = 16  # if fewer remembered rows are left, `read_ahead` should be called
AHEAD_MAX = 1_000  # the most partitions with remembered rows
KNOWN_MAX = 100_000  # the most partitions, and the most regions, for which a start or a time is remembered
TAKEN_MAX = 10_000  # the most taken resources that are remembered
PartitionKey = tuple[Region, int]  # region and partition


class FreeQueues:
    def __init__(self) -> None:
        self._known: dict[PartitionKey, tuple[int, int]] = {}  # `free_since` of the first row, and when it was read
        self._ahead: dict[PartitionKey, deque[Resource]] = {}  # the next rows; another process may have taken some
        self.running_low: set[PartitionKey] = set()  # partitions that `read_ahead` should read
        # Versions of the rows that this process took. Until the commit, reads still see these rows as free.
        self._taken: dict[ResourceKey, int] = {}
        self._lost_us: dict[Region, int] = {}  # time at which another process last took a row that was remembered here
        self._exhausted_us: dict[PartitionKey, int] = {}  # time at which a read last found too few rows
        self._ended_us: dict[PartitionKey, int] = {}  # time at which all remaining rows of the partition were last read

    def note_lost_race(self, region: Region, now_us: int) -> None:
        """Note that another process took a remembered row, and forget the remembered rows of the region."""
        _bound(self._lost_us, KNOWN_MAX)[region] = now_us
        for place in [place for place in self._ahead if place[0] == region]:
            del self._ahead[place]

    def order_partitions(self, region: Region, partitions: int, *, rng: random.Random, now_us: int) -> list[int]:
        """Return all partitions of a region, beginning at a random one. Recently exhausted partitions come last."""
        first = rng.randrange(partitions)
        turn = [(first + step) % partitions for step in range(partitions)]
        return sorted(
            turn, key=lambda partition: _is_recent(self._exhausted_us, (region, partition), now_us, LATELY_US)
        )

    def take_front(self, place: PartitionKey, *, limit: int, now_us: int) -> Program[list[Resource]]:
        """Return up to `limit` of the longest-free resources. Another process may take some of them meanwhile."""
        if self._is_alone(place[0], now_us):
            if not self.has_remembered(place, limit=limit, now_us=now_us):
                yield from self._remember_rows(place, limit, now_us)
            if self.has_remembered(place, limit=limit, now_us=now_us):
                return self.take_remembered(place, limit=limit, now_us=now_us)
        return (yield from self._read_front(place, limit=limit, now_us=now_us))

    def has_remembered(self, place: PartitionKey, *, limit: int, now_us: int) -> bool:
        self._begin(place, now_us)
        return self._is_alone(place[0], now_us) and len(self._ahead.get(place, ())) >= limit

    def take_remembered(self, place: PartitionKey, *, limit: int, now_us: int) -> list[Resource]:
        """Take the `limit` longest-free remembered rows. Call this only if `has_remembered` returned True."""
        _, known_us = self._begin(place, now_us)
        rows = [self._ahead[place].popleft() for _ in range(limit)]
        _bound(self._known, KNOWN_MAX)[place] = (rows[-1].free_since_us or 0, known_us)
        self._take(rows)
        low = len(self._ahead[place]) < LOW and not _is_recent(self._ended_us, place, now_us, LATELY_US)
        if low and len(self.running_low) < AHEAD_MAX:
            self.running_low.add(place)
        return rows

    async def read_ahead(self, store: Store, now_us: int) -> None:
        """Read further rows of the partitions in `running_low`, so that no request has to wait for that read.

        Raises:
            StoreBusyError: the store did not answer. The next request that needs further rows reads them itself.
        """
        while self.running_low:
            place = self.running_low.pop()
            await store.read(lambda place=place: self._remember_rows(place, AHEAD, now_us))  # type: ignore[misc]

    def _is_alone(self, region: Region, now_us: int) -> bool:
        return not _is_recent(self._lost_us, region, now_us, ALONE_US)

    def _remember_rows(self, place: PartitionKey, limit: int, now_us: int) -> Program[None]:
        (region, partition), (since_us, _) = place, self._begin(place, now_us)
        wanted = limit + AHEAD
        found = yield from lease_resources.find_free(*region, partition, limit=wanted, since_us=since_us, locked=False)
        _bound(self._ahead, AHEAD_MAX)[place] = deque(row for row in found if self._taken.get(row[:2]) != row.version)
        if len(found) < wanted:
            _bound(self._ended_us, KNOWN_MAX)[place] = now_us

    def _take(self, rows: Iterable[Resource]) -> None:
        self._taken.update((row[:2], row.version) for row in rows)
        while len(self._taken) > TAKEN_MAX:
            del self._taken[next(iter(self._taken))]

    def _read_front(self, place: PartitionKey, *, limit: int, now_us: int) -> Program[list[Resource]]:
        (region, partition), (since_us, known_us) = place, self._begin(place, now_us)
        self._ahead.pop(place, None)
        rows = yield from lease_resources.find_free(*region, partition, limit=limit, since_us=since_us)
        if len(rows) < limit and since_us:
            known_us = now_us
            rows = yield from lease_resources.find_free(*region, partition, limit=limit)
        if len(rows) < limit:
            _bound(self._exhausted_us, KNOWN_MAX)[place] = now_us
        self._take(rows)
        if rows:
            _bound(self._known, KNOWN_MAX)[place] = (rows[0].free_since_us or 0, known_us)
        else:
            self._known.pop(place, None)
        return rows

    def _begin(self, place: PartitionKey, now_us: int) -> tuple[int, int]:
        """Return the start of the queue and the time of its read. Forget a start that is too old."""
        since_us, known_us = self._known.get(place, (0, now_us))
        if 0 <= now_us - known_us < KNOWN_US:
            return since_us, known_us
        del self._known[place]
        self._ahead.pop(place, None)
        return 0, now_us


def _is_recent(when_us: dict[K, int], key: K, now_us: int, span_us: int) -> bool:
    return key in when_us and 0 <= now_us - when_us[key] < span_us


def _bound(remembered: dict[K, V], most: int) -> dict[K, V]:
    if len(remembered) >= most:
        remembered.clear()
    return remembered

"""Finds the longest-free resources of a lane. They form a queue whose front this process remembers.

The front is the time at which the first resource became free. Without a remembered front, finding the longest-free row
scans every dead index entry before it, until the database has cleaned up these entries.

After a front was read, a row may appear before it, when a resource is moved or a long transaction commits. Such a row
is found after the front is forgotten: after `KNOWN_US`, and always before its lane is treated as empty.
"""

import random
from typing import TypeVar

from storage.store import Program

from .lease_records import Resource
from .lease_resources import lease_resources
from .region_counts import Region

V = TypeVar("V")
KNOWN_US = 60_000_000  # time for which a front is remembered
LATELY_US = 1_000_000  # time for which a lane that had too few free rows is tried last
KNOWN_MAX = 100_000  # the most lanes of which something is remembered
LaneKey = tuple[Region, int]  # region and lane


class FreeQueues:
    def __init__(self) -> None:
        self._fronts: dict[LaneKey, tuple[int, int]] = {}  # `free_since` of the first row, and when it was read
        self._exhausted_us: dict[LaneKey, int] = {}  # time at which a read last found too few rows

    def order_lanes(self, region: Region, lanes: int, *, rng: random.Random, now_us: int) -> list[int]:
        """Return all lanes of a region, beginning at a random one. Recently exhausted lanes come last."""
        first = rng.randrange(lanes)
        turn = [(first + step) % lanes for step in range(lanes)]
        return sorted(turn, key=lambda number: 0 <= now_us - self._exhausted_us.get((region, number), 0) < LATELY_US)

    def take_front(self, place: LaneKey, *, limit: int, now_us: int) -> Program[list[Resource]]:
        """Return up to `limit` of the longest-free resources. Another process may take some of them meanwhile."""
        region, lane = place
        since_us, known_us = self._fronts.get(place, (0, now_us))
        if not 0 <= now_us - known_us < KNOWN_US:
            since_us, known_us = 0, now_us
        rows = yield from lease_resources.find_free(*region, lane, limit=limit, since_us=since_us)
        if len(rows) < limit and since_us:
            known_us = now_us
            rows = yield from lease_resources.find_free(*region, lane, limit=limit)
        if len(rows) < limit:
            _bound(self._exhausted_us)[place] = now_us
        if rows:
            _bound(self._fronts)[place] = (rows[0].free_since_us or 0, known_us)
        else:
            self._fronts.pop(place, None)
        return rows


def _bound(remembered: dict[LaneKey, V]) -> dict[LaneKey, V]:
    if len(remembered) >= KNOWN_MAX:
        remembered.clear()
    return remembered

"""Where the line of free resources of a partition begins, as far as this process knows.

The index that holds the line keeps what was taken out of its front until the database tidies up: without a place to
begin at, who takes the longest free one passes everything that was ever taken since, 16 ms after 50,000.

The rule: a place is where a look found the front, so nothing free stood before it then. What comes to stand there later
(a resource that was moved, a transaction that took long) is found when the place is forgotten, after a minute at most,
and before a partition is called empty.
"""

from __future__ import annotations

from querybuilder import Dialect

from .lease_counts import Region
from .lease_records import Resource
from .lease_resources import lease_resources
from .store import Program

KNOWN_US = 60_000_000
PLACES_MAX = 100_000


class LeaseLines:
    """The lines of one process."""

    def __init__(self, dialect: Dialect) -> None:
        self._resources = lease_resources(dialect)
        self._known: dict[tuple[Region, int], tuple[int, int]] = {}  # since when the first is free, known since

    def front(self, region: Region, partition: int, *, limit: int, now_us: int) -> Program[list[Resource]]:
        """The longest free resources of a partition."""
        place = (region, partition)
        since_us, known_us = self._known.get(place, (0, now_us))
        if not 0 <= now_us - known_us < KNOWN_US:
            since_us, known_us = 0, now_us
        rows = yield from self._resources.free(*region, partition, limit=limit, since_us=since_us)
        if len(rows) < limit and since_us:
            known_us = now_us
            rows = yield from self._resources.free(*region, partition, limit=limit)
        if rows and rows[0].free_since_us is not None:
            if len(self._known) >= PLACES_MAX:
                self._known.clear()
            self._known[place] = (rows[0].free_since_us, known_us)
        else:
            self._known.pop(place, None)
        return rows

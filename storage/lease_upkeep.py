"""What jobs do to resources that nobody asks for: leases that are over are liberated, free ones move to other regions.

The rule: a step is one short transaction over a bounded number of rows, each written on condition that it is as it was
found. A job that is killed leaves whole steps behind, and whoever goes on finds the rest by looking.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache

from querybuilder import INTEGER, TEXT, Dialect, col, insert, param, select

from .claims import GIVEN_BACK
from .lease_counts import Region, lease_counts
from .lease_journal import lease_journal
from .lease_records import Happening, Kind, Pool, RegionCounts, Resource
from .lease_resources import Change, lease_resources
from .lease_tables import LEASE_LOADS
from .store import Program


class LeaseUpkeep:
    """The programs, for one dialect; see `lease_upkeep`."""

    def __init__(self, dialect: Dialect) -> None:
        self._resources, self._journal = lease_resources(dialect), lease_journal(dialect)
        self._counts = lease_counts(dialect)
        self._loads = (
            select(col("pool_key"), col("region"), col("load"))
            .from_(LEASE_LOADS)
            .where(col("pool_key").in_(param("pools")))
            .packed()
            .compile(dialect)
        )
        self._set_loads = (
            insert(LEASE_LOADS)
            .rows(param("rows"), pool_key=INTEGER, region=TEXT, load=TEXT)
            .on_conflict("pool_key", "region")
            .overwrite()
            .compile(dialect)
        )

    def liberate(
        self, region: Region, *, before_us: int, now_us: int, rows_max: int, rng: random.Random
    ) -> Program[int]:
        """Free so many leases of a region that were over before a time; answers how many.

        Their keys stay with them: who comes back before the resource is given away has the same one.
        """
        rows = yield from self._resources.expired(*region, before_us=before_us, limit=rows_max)
        changes = [Change(row, _liberated(row, now_us)) for row in rows]
        freed = yield from self._written(changes)
        happened = [Happening(Kind.LIBERATED, row, row.holder, now_us) for row in freed]
        yield from self._journal.append(happened)
        yield from self._counts.add({region: RegionCounts(held=-len(freed), freed=len(freed))}, rng)
        return len(freed)

    def move(
        self,
        pool: Pool,
        source: str,
        target: str,
        resources: int,
        *,
        before_us: int,
        now_us: int,
        rng: random.Random,
    ) -> Program[int]:
        """Move so many resources to another region and return how many moved.

        Free ones go first, from all partitions alike. Then leases that were over before a time are liberated and go.
        """
        partitions = pool.spec.partitions
        found: list[Resource] = []
        first = rng.randrange(partitions)
        for step in range(partitions):
            wanted = -(-(resources - len(found)) // (partitions - step))
            if wanted > 0:
                found += yield from self._resources.free(pool.key, source, (first + step) % partitions, limit=wanted)
        if len(found) < resources:
            limit = resources - len(found)
            found += yield from self._resources.expired(pool.key, source, before_us=before_us, limit=limit)
        written = yield from self._resources.write([_moved(row, target, now_us) for row in found])
        gone = [row for row in found if row[:2] in written]
        happened: list[Happening] = []
        for row in gone:
            if not row.is_free:
                happened.append(Happening(Kind.LIBERATED, _liberated(row, now_us), row.holder, now_us))
            happened.append(Happening(Kind.MOVED, _moved(row, target, now_us).after, None, now_us))
        yield from self._journal.append(happened)
        liberated = sum(not row.is_free for row in gone)
        left = RegionCounts(total=-len(gone), held=-liberated, freed=liberated)
        yield from self._counts.add({(pool.key, source): left, (pool.key, target): RegionCounts(total=len(gone))}, rng)
        return len(gone)

    def bring(self, pool: Pool, target: str, names: Sequence[str], *, now_us: int, rng: random.Random) -> Program[int]:
        """Move these resources to a region, those that are free elsewhere; answers how many did."""
        found = yield from self._resources.by_names((pool.key, name) for name in names)
        elsewhere = [row for row in found.values() if row.is_free and row.region != target]
        changes = [Change(row, row._replace(region=target, version=row.version + 1)) for row in elsewhere]
        moved = yield from self._written(changes)
        came = {row.resource for row in moved}
        yield from self._journal.append([Happening(Kind.MOVED, row, None, now_us) for row in moved])
        counts = {(pool.key, target): RegionCounts(total=len(moved))}
        for row in elsewhere:
            if row.resource in came:
                place = (pool.key, row.region)
                counts[place] = counts.get(place, RegionCounts()).plus(RegionCounts(total=-1))
        yield from self._counts.add(counts, rng)
        return len(moved)

    def _written(self, changes: Sequence[Change]) -> Program[list[Resource]]:
        written = yield from self._resources.write(changes)
        return [change.after for change in changes if change.after[:2] in written]

    def loads(self, pool_keys: Sequence[int]) -> Program[dict[Region, str]]:
        """What was measured of regions, as it was stored."""
        rows = yield self._loads.bind(pools=pool_keys)
        return {(row[0], row[1]): row[2] for row in rows}

    def set_loads(self, loads: dict[Region, str]) -> Program[None]:
        """Store what was measured."""
        if loads:
            yield self._set_loads.bind(rows=[(*region, loads[region]) for region in sorted(loads)])


def _liberated(row: Resource, now_us: int) -> Resource:
    """A lease that is over as a free resource, which its key may still take up again."""
    return row._replace(expires_at_us=GIVEN_BACK, free_since_us=now_us, acquired_at_us=0)


def _moved(row: Resource, target: str, now_us: int) -> Change:
    free = row if row.is_free else _liberated(row, now_us)
    return Change(row, free._replace(region=target, version=row.version + 1))


@lru_cache
def lease_upkeep(dialect: Dialect) -> LeaseUpkeep:
    """The programs, compiled once."""
    return LeaseUpkeep(dialect)

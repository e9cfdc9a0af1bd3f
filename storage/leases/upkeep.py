"""What the balancer stores about regions, and its step: it moves free resources to another region.

A step is one short transaction over a bounded number of rows. Each row is written only if it has not changed since it
was found. A killed job leaves only complete steps behind, and the next run finds the remaining rows by reading.
"""

import random
from collections.abc import Sequence

from querybuilder import col, insert, param, select
from storage.schema.lease_tables import LEASE_LOADS
from storage.schema.placement import TABLES
from storage.store import Program

from .lease_records import Pool, ResourceChange
from .lease_resources import lease_resources
from .region_counts import Region


class LeaseUpkeep:
    def __init__(self) -> None:
        loads = select(col("pool_key"), col("region"), col("load")).from_(LEASE_LOADS)
        self._loads = loads.where(col("pool_key").in_(param("pools"))).packed().prepared()
        rows = insert(LEASE_LOADS).rows(param("rows"), **TABLES[LEASE_LOADS].kinds)
        self._set_loads = rows.on_conflict("pool_key", "region").overwrite().prepared()

    def move_resources(
        self, pool: Pool, source: str, target: str, resources: int, *, before_us: int, now_us: int, rng: random.Random
    ) -> Program[int]:
        """Move up to `resources` resources to another region; return how many moved.

        Free resources come first, then those with leases that expired by `before_us`.
        """
        found = yield from lease_resources.find_free(pool.key, source, limit=resources)
        if len(found) < resources:
            limit = resources - len(found)
            found += yield from lease_resources.find_expired(pool.key, source, before_us=before_us, limit=limit)
        changes = [ResourceChange(row, row.move(target, now_us)) for row in found]
        return (yield from lease_resources.change_resources(changes, rng, now_us=now_us))

    def loads(self, pool_keys: Sequence[int]) -> Program[dict[Region, str]]:
        """Return the measurements that the rebalancing job has stored, by region."""
        rows = yield self._loads.bind(pools=pool_keys)
        return {(row[0], row[1]): row[2] for row in rows}

    def set_loads(self, loads: dict[Region, str]) -> Program[None]:
        if loads:
            yield self._set_loads.bind(rows=[(*region, loads[region]) for region in sorted(loads)])


lease_upkeep = LeaseUpkeep()

"""Lets a job visit all pools at every interval, in one process at a time.

After a round, no process gets the work lease until the next round is nearly due. Every process tries to claim the lease
at least every `LOOK_S_MAX` seconds. So the next round takes place even if the process that did the last one died.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from jobs.controls import Sleep
from jobs.ownership import JOB_POOL, REST_RATIO, HeldLease, Ownership
from storage.errors import LeaseLostError, LeaseTakenError
from storage.leases.lease_records import Pool
from storage.leases.pools import lease_pools
from storage.leases.region_counts import lease_counts
from storage.store import Program, Store

LOOK_S_MAX = 60.0
POOLS_A_PAGE = 200


async def run_rounds(
    ownership: Ownership,
    resource: str,
    work: Callable[[HeldLease], Awaitable[object]],
    *,
    interval_s: float,
    sleep: Sleep,
) -> None:
    """Do the work at every interval, for ever. Skip a round if another process has the lease on `resource`."""
    while True:
        await sleep(min(interval_s, LOOK_S_MAX))
        try:
            await ownership.run_owned(JOB_POOL, resource, work, rests_s=interval_s * REST_RATIO)
        except (LeaseTakenError, LeaseLostError):
            continue


async def read_pool_pages(store: Store) -> AsyncIterator[list[tuple[Pool, list[str]]]]:
    """Yield all pools with the names of their regions, in pages of `POOLS_A_PAGE`."""
    after = ("", "")
    while True:

        def page(after: tuple[str, str] = after) -> Program[list[tuple[Pool, list[str]]]]:
            pools = yield from lease_pools.list_pools(after=after, client_id=None, limit=POOLS_A_PAGE)
            counts = yield from lease_counts.read_counts([pool.key for pool in pools])
            return [(pool, [region for key, region in counts if key == pool.key]) for pool in pools]

        found = await store.read(page)
        if found:
            yield found
        if len(found) < POOLS_A_PAGE:
            return
        after = found[-1][0].name

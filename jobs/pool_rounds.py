"""How jobs go round all pools: every so often, one process at a time, in pages.

The rule: a process may not live for a whole interval, so whether it is time is looked at more often than that, and the
lease itself rests until it is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from storage.errors import LeaseLost, LeaseTaken
from storage.lease_counts import lease_counts
from storage.lease_pools import lease_pools
from storage.lease_records import Pool
from storage.store import Program, Store

from .ownership import Held, Ownership
from .prune import POOL, REST_RATIO
from .runner import Sleep

LOOK_S_MAX = 60.0
POOLS_A_PAGE = 200


async def rounds(
    ownership: Ownership, resource: str, work: Callable[[Held], Awaitable[object]], *, interval_s: float, sleep: Sleep
) -> None:
    """Do the work at every interval, for ever, or let the process do it that has the lease on `resource`."""
    while True:
        await sleep(min(interval_s, LOOK_S_MAX))
        try:
            await ownership.run(POOL, resource, work, rests_s=interval_s * REST_RATIO)
        except (LeaseTaken, LeaseLost):
            continue


async def pool_pages(store: Store) -> AsyncIterator[list[tuple[Pool, list[str]]]]:
    """Every pool with its regions, in pages."""
    after = ("", "")
    while True:

        def page(after: tuple[str, str] = after) -> Program[list[tuple[Pool, list[str]]]]:
            pools = yield from lease_pools(store.dialect).listed(after=after, client_id=None, limit=POOLS_A_PAGE)
            counts = yield from lease_counts(store.dialect).of_pools([pool.key for pool in pools])
            return [(pool, [region for key, region in counts if key == pool.key]) for pool in pools]

        found = await store.read(page)
        if found:
            yield found
        if len(found) < POOLS_A_PAGE:
            return
        after = found[-1][0].name

"""What requests for leases are decided on: pools, what keys have in them, and the time, read at once.

The rule: one statement for many requests. Who finds nothing in it for its key goes into a transaction with what it
found: every further round trip is one more for whoever waits behind that transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from querybuilder import TEXT, Built, Dialect, all_of, clock_us, col, param, rows, select

from .lease_pools import POOL_COLUMNS, pool_of
from .lease_records import Given, Pool, Request, Resource
from .lease_resources import HERE, NAMES, Key, live_pool
from .lease_tables import LEASE_POOLS, LEASE_RESOURCES
from .store import Program, Rows, Store

_POOL_END = 1 + len(POOL_COLUMNS)  # in a row, after the time
_HOLDER = _POOL_END + NAMES.index("holder")


class Findings(NamedTuple):
    """What was found."""

    now_us: int  # by the store's own clock; 0 where there is no pool
    pools: dict[tuple[str, str], Pool]  # those that there are, by client and pool id
    held: dict[Key, Resource]  # what keys have, or had last and may find again, by pool and key

    def key(self, request: Request) -> Key:
        """What a key of a pool that there is goes by in `held`."""
        return self.pools[request[:2]].key, request.key

    def running(self, request: Request) -> Given | None:
        """What the key has, as long as it is not over."""
        row = self.held.get(self.key(request)) if request[:2] in self.pools else None
        if row is None or row.is_free or row.expires_at_us <= self.now_us:
            return None
        return row.given(request.key, self.now_us, acquired=False)


def gathered(requests: Sequence[Request], found: Sequence[Findings]) -> Findings:
    """What was found for each of several requests, of different keys, as what was found for all of them."""
    pools: dict[tuple[str, str], Pool] = {}
    held: dict[Key, Resource] = {}
    for request, each in zip(requests, found, strict=True):
        pool = each.pools.get(request[:2])
        if pool is None:
            continue
        pools[pool.name] = pool
        row = each.held.get((pool.key, request.key))
        if row is not None:
            held[pool.key, request.key] = row
    return Findings(max(each.now_us for each in found), pools, held)


class LeaseFindings:
    """The statement, for one dialect; see `lease_findings`."""

    def __init__(self, dialect: Dialect) -> None:
        asked = rows("v", param("asked"), client_id=TEXT, pool_id=TEXT, name=TEXT)
        holds = (col("pool_key", HERE).eq(col("pool_key", "p")), col("holder", HERE).eq(col("name", "v")))
        what = select(clock_us(), *(col(name, "p") for name in POOL_COLUMNS), *(col(name, HERE) for name in NAMES))
        self._find = (
            what.from_(asked)
            .join(LEASE_POOLS, live_pool("v"), alias="p")
            .left_join(LEASE_RESOURCES, all_of(*holds), alias=HERE)
            .packed()
            .compile(dialect)
        )

    def of(self, requests: Sequence[Request]) -> Program[Findings]:
        """What requests are decided on."""
        return _findings((yield self._query(requests)))

    async def read(self, store: Store, requests: Sequence[Request]) -> Findings:
        """The same, outside of a transaction."""
        return _findings(await store.read_one(self._query(requests)))

    def _query(self, requests: Sequence[Request]) -> Built:
        return self._find.bind(asked=sorted({request[:3] for request in requests}))


def _findings(found: Rows) -> Findings:
    pools: dict[tuple[str, str], Pool] = {}
    held: dict[Key, Resource] = {}
    for row in found:
        if (row[2], row[3]) not in pools:
            pools[row[2], row[3]] = pool_of(row[1:_POOL_END])
        if row[_HOLDER] is not None:
            held[row[1], row[_HOLDER]] = Resource(*row[_POOL_END:])
    return Findings(found[0][0] if found else 0, pools, held)


@lru_cache
def lease_findings(dialect: Dialect) -> LeaseFindings:
    """The statement, compiled once."""
    return LeaseFindings(dialect)

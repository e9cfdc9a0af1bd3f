"""What requests for leases are decided on: pools, what keys have in them, and the time, read at once.

The rule: one statement for many requests. Who finds nothing in it for its key goes into a transaction with what it
found: every further round trip is one more for whoever waits behind that transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from querybuilder import TEXT, Built, Dialect, all_of, clock_us, col, param, rows, select

from .lease_pools import POOL_COLUMNS, pool_of
from .lease_records import Given, Pool, Request, Resource
from .lease_resources import HERE, Key, live_pool, stored
from .lease_tables import LEASE_POOLS, LEASE_RESOURCES
from .store import Program, Rows, Store

_decode = msgspec.json.Decoder().decode


class Findings(NamedTuple):
    """What was found."""

    now_us: int  # by the store's own clock
    pools: dict[tuple[str, str], Pool]  # those that there are, by client and pool id
    held: dict[Key, Resource]  # what keys have, or had last and may find again, by pool and key

    def running(self, request: Request) -> Given | None:
        """What the key has, as long as it is not over."""
        pool = self.pools.get(request[:2])
        row = None if pool is None else self.held.get((pool.key, request.key))
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
        named = rows("n", param("pools"), client_id=TEXT, pool_id=TEXT)
        pools = select(*(col(name, "p") for name in POOL_COLUMNS)).from_(named)
        asked = rows("v", param("asked"), client_id=TEXT, pool_id=TEXT, name=TEXT)
        holds = (col("pool_key", HERE).eq(col("pool_key", "p")), col("holder", HERE).eq(col("name", "v")))
        held = stored().from_(asked).join(LEASE_POOLS, live_pool("v"), alias="p")
        self._find = (
            select(
                clock_us(),
                pools.join(LEASE_POOLS, live_pool("n"), alias="p").nested(),
                held.join(LEASE_RESOURCES, all_of(*holds), alias=HERE).nested(),
            )
            .packed()
            .compile(dialect)
        )

    def of(self, requests: Sequence[Request]) -> Program[Findings]:
        """What requests are decided on."""
        return _read((yield self._query(requests)))

    async def read(self, store: Store, requests: Sequence[Request]) -> Findings:
        """The same, outside of a transaction."""
        return _read(await store.read_one(self._query(requests)))

    def _query(self, requests: Sequence[Request]) -> Built:
        pools = sorted({request[:2] for request in requests})
        return self._find.bind(pools=pools, asked=sorted({request[:3] for request in requests}))


def _read(found: Rows) -> Findings:
    [(now_us, pools, held)] = found
    return Findings(
        now_us,
        {pool.name: pool for pool in map(pool_of, _rows(pools))},
        {(row[0], row[4]): Resource(*row) for row in _rows(held)},
    )


def _rows(nested: Any) -> list[list[Any]]:
    # Within a packed row some versions of SQLite hand the array through, others its text.
    return nested if isinstance(nested, list) else _decode(nested)


@lru_cache
def lease_findings(dialect: Dialect) -> LeaseFindings:
    """The statement, compiled once."""
    return LeaseFindings(dialect)

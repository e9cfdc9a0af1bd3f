"""What a transaction over resources reads before it decides: pools, what keys have in them, and the time, at once.

The rule: one statement. Every further round trip is one more for whoever waits behind this transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from querybuilder import TEXT, Dialect, clock_us, col, param, rows, select

from .lease_pools import POOL_COLUMNS, pool_of
from .lease_records import Pool, Request, Resource
from .lease_resources import Key, live_pool, of_asked, stored
from .lease_tables import LEASE_POOLS
from .store import Program

_decode = msgspec.json.Decoder().decode


class Findings(NamedTuple):
    """What was found."""

    now_us: int  # by the store's own clock
    pools: dict[tuple[str, str], Pool]  # those that there are, by client and pool id
    held: dict[Key, Resource]  # what keys have, or had last and may find again, by pool and key


class LeaseFindings:
    """The statement, for one dialect; see `lease_findings`."""

    def __init__(self, dialect: Dialect) -> None:
        named = rows("n", param("pools"), client_id=TEXT, pool_id=TEXT)
        pools = (
            select(*(col(name, "p") for name in POOL_COLUMNS))
            .from_(named)
            .join(LEASE_POOLS, live_pool("n"), alias="p")
            .nested()
        )
        self._find = select(clock_us(), pools, of_asked(stored()).nested()).packed().compile(dialect)

    def of(self, requests: Sequence[Request]) -> Program[Findings]:
        """What requests are decided on."""
        pools = sorted({request[:2] for request in requests})
        asked = sorted(request[:3] for request in requests)
        [(now_us, found, held)] = yield self._find.bind(pools=pools, asked=asked)
        return Findings(
            now_us,
            {pool.name: pool for pool in map(pool_of, _rows(found))},
            {(row[0], row[4]): Resource(*row) for row in _rows(held)},
        )


def _rows(nested: Any) -> list[list[Any]]:
    # Within a packed row some versions of SQLite hand the array through, others its text.
    return nested if isinstance(nested, list) else _decode(nested)


@lru_cache
def lease_findings(dialect: Dialect) -> LeaseFindings:
    """The statement, compiled once."""
    return LeaseFindings(dialect)

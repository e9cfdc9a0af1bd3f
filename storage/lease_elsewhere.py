"""Leases of regions whose resources are in stores of their own: what the other stores' journals said, as far as read.

    another store's journal ──> page after the cursor ──> leases of keys there ──> asked before a resource is given here

The rule: a page and the cursor past it are stored in one transaction, so every event counts once; what becomes of it
here is `lease_exchange`'s to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from querybuilder import (
    INTEGER,
    TEXT,
    Dialect,
    all_of,
    asc,
    col,
    delete,
    insert,
    param,
    rows,
    select,
)

from .lease_records import Given, Kind
from .lease_resources import Key
from .lease_tables import LEASE_ELSEWHERE, LEASE_PEERS
from .store import Program

_ENDS = (Kind.RELEASED, Kind.LIBERATED)
_FIELDS = ("resource", "region", "version", "expires_at", "acquired_at", "wanted_until")


class Elsewhere(NamedTuple):
    """A key's lease in another store."""

    pool_key: int
    key: str
    peer: str
    resource: str
    region: str
    version: int
    expires_at_us: int  # by that store's clock
    acquired_at_us: int
    wanted_until_us: int = 0  # what that store was asked to extend it to

    def given(self, now_us: int) -> Given:
        """What the key is told."""
        return Given(self.resource, self.region, self.key, self.version, self.expires_at_us, now_us, acquired=False)


class PeerEvent(NamedTuple):
    """What another store's journal says of a key."""

    kind: Kind
    pool_key: int  # here
    key: str
    resource: str
    region: str
    version: int
    at_us: int
    expires_at_us: int


class LeasesElsewhere:
    """The statements, for one dialect; see `leases_elsewhere`."""

    def __init__(self, dialect: Dialect) -> None:
        names = ("pool_key", "holder", "peer", *_FIELDS)
        same = (col("pool_key", "e").eq(col("pool_key", "v")), col("holder", "e").eq(col("name", "v")))
        asked = rows("v", param("keys"), pool_key=INTEGER, name=TEXT)
        self._by_keys = (
            select(*(col(name, "e") for name in names))
            .from_(asked)
            .join(LEASE_ELSEWHERE, all_of(*same), alias="e")
            .packed()
            .compile(dialect)
        )
        kinds = {"pool_key": INTEGER, "holder": TEXT, "peer": TEXT, "resource": TEXT, "region": TEXT}
        kinds |= dict.fromkeys(("version", "expires_at", "acquired_at", "wanted_until"), INTEGER)
        self._put = (
            insert(LEASE_ELSEWHERE)
            .rows(param("rows"), **kinds)
            .on_conflict("pool_key", "holder", "peer")
            .overwrite()
            .compile(dialect)
        )
        one = (col("pool_key").eq(param("pool_key")), col("holder").eq(param("key")), col("peer").eq(param("peer")))
        self._forget = delete(LEASE_ELSEWHERE).where(*one).compile(dialect)
        over = (
            select(col("expires_at"))
            .from_(LEASE_ELSEWHERE)
            .where(col("expires_at").lt(param("before_us")))
            .order_by(asc(col("expires_at")))
            .limit(param("limit"))
        )
        bounded = (col("expires_at").lt(param("before_us")), col("expires_at").in_(over))
        self._sweep = delete(LEASE_ELSEWHERE).where(*bounded).compile(dialect)
        self._cursor = select(col("position")).from_(LEASE_PEERS).where(col("peer").eq(param("peer"))).compile(dialect)
        self._set_cursor = (
            insert(LEASE_PEERS)
            .values(peer=param("peer"), position=param("position"))
            .on_conflict("peer")
            .overwrite()
            .compile(dialect)
        )

    def by_keys(self, keys: Iterable[Key]) -> Program[dict[Key, list[Elsewhere]]]:
        """The leases of keys in other stores, over or not."""
        found = yield self._by_keys.bind(keys=keys)
        leases: dict[Key, list[Elsewhere]] = {}
        for row in found:
            leases.setdefault((row[0], row[1]), []).append(Elsewhere(*row))
        return leases

    def put(self, leases: Sequence[Elsewhere]) -> Program[None]:
        """Store what is known of leases; of one key and peer there is one."""
        if leases:
            yield self._put.bind(rows=sorted(leases))

    def forget(self, pool_key: int, key: str, peer: str) -> Program[None]:
        """The key has no lease there any more."""
        yield self._forget.bind(pool_key=pool_key, key=key, peer=peer)

    def sweep(self, *, before_us: int, rows_max: int) -> Program[None]:
        """Forget some that were over before a time."""
        yield self._sweep.bind(before_us=before_us, limit=rows_max)

    def cursor(self, peer: str) -> Program[int]:
        """How far a peer's journal was read."""
        found = yield self._cursor.bind(peer=peer)
        return int(found[0][0]) if found else 0

    def apply(self, peer: str, events: Sequence[PeerEvent], *, position: int) -> Program[None]:
        """Take in a page of a peer's journal, and that it was read up to there."""
        known = yield from self.by_keys(sorted({(event.pool_key, event.key) for event in events}))
        state: dict[Key, Elsewhere | None] = {
            key: next((one for one in leases if one.peer == peer), None) for key, leases in known.items()
        }
        for event in events:
            key = (event.pool_key, event.key)
            before = state.get(key)
            if event.kind in (Kind.ACQUIRED, Kind.EXTENDED):
                same = before is not None and (before.resource, before.version) == (event.resource, event.version)
                acquired_at_us = before.acquired_at_us if same and before is not None else event.at_us
                wanted_us = before.wanted_until_us if same and before is not None else 0
                state[key] = Elsewhere(
                    *key, peer, event.resource, event.region, event.version, event.expires_at_us, acquired_at_us,
                    wanted_us,
                )  # fmt: skip
            elif (
                event.kind in (Kind.RELEASED, Kind.LIBERATED)
                and before is not None
                and before.resource == event.resource
            ):
                state[key] = None
        for (pool_key, name), lease in state.items():
            if lease is None:
                yield from self.forget(pool_key, name, peer)
        yield from self.put([lease for lease in state.values() if lease is not None])
        yield self._set_cursor.bind(peer=peer, position=position)


@lru_cache
def leases_elsewhere(dialect: Dialect) -> LeasesElsewhere:
    """The statements, compiled once."""
    return LeasesElsewhere(dialect)

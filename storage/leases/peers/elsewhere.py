"""Leases that keys have in other stores, as far as this store has read the journals of those stores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from querybuilder import INTEGER, TEXT, all_of, asc, col, delete, insert, param, rows, select
from storage.leases.lease_records import Grant, LeaseEventKind
from storage.leases.lease_resources import ResourceKey
from storage.schema.lease_tables import LEASE_ELSEWHERE, LEASE_PEERS
from storage.store import Program

_ENDS = (LeaseEventKind.RELEASED, LeaseEventKind.LIBERATED)
_FIELDS = ("resource", "region", "version", "expires_at", "acquired_at", "wanted_until")


class RemoteLease(NamedTuple):
    pool_key: int
    key: str
    peer: str
    resource: str
    region: str
    version: int
    expires_at_us: int  # the expiry by the other store's clock
    acquired_at_us: int
    wanted_until_us: int = 0  # the expiry that this store has requested from the other store

    def grant(self, now_us: int) -> Grant:
        return Grant(self.resource, self.region, self.key, self.version, self.expires_at_us, now_us, acquired=False)


class PeerEvent(NamedTuple):
    """An event of another store's journal that concerns a key of a pool here."""

    kind: LeaseEventKind
    pool_key: int  # the key of the pool in this store
    key: str
    resource: str
    region: str
    version: int
    at_us: int
    expires_at_us: int


class RemoteLeases:
    """Programs on leases in other stores."""

    def __init__(self) -> None:
        names = ("pool_key", "holder", "peer", *_FIELDS)
        same = (col("pool_key", "e").eq(col("pool_key", "v")), col("holder", "e").eq(col("name", "v")))
        asked = rows("v", param("keys"), pool_key=INTEGER, name=TEXT)
        self._by_keys = (
            select(*(col(name, "e") for name in names))
            .from_(asked)
            .join(LEASE_ELSEWHERE, all_of(*same), alias="e")
            .packed()
            .prepared()
        )
        kinds = {"pool_key": INTEGER, "holder": TEXT, "peer": TEXT, "resource": TEXT, "region": TEXT}
        kinds |= dict.fromkeys(("version", "expires_at", "acquired_at", "wanted_until"), INTEGER)
        self._put = (
            insert(LEASE_ELSEWHERE)
            .rows(param("rows"), **kinds)
            .on_conflict("pool_key", "holder", "peer")
            .overwrite()
            .prepared()
        )
        one = (col("pool_key").eq(param("pool_key")), col("holder").eq(param("key")), col("peer").eq(param("peer")))
        self._forget = delete(LEASE_ELSEWHERE).where(*one).prepared()
        over = (
            select(col("expires_at"))
            .from_(LEASE_ELSEWHERE)
            .where(col("expires_at").lt(param("before_us")))
            .order_by(asc(col("expires_at")))
            .limit(param("limit"))
        )
        bounded = (col("expires_at").lt(param("before_us")), col("expires_at").in_(over))
        self._sweep = delete(LEASE_ELSEWHERE).where(*bounded).prepared()
        self._cursor = select(col("position")).from_(LEASE_PEERS).where(col("peer").eq(param("peer"))).prepared()
        self._set_cursor = (
            insert(LEASE_PEERS)
            .values(peer=param("peer"), position=param("position"))
            .on_conflict("peer")
            .overwrite()
            .prepared()
        )

    def find_by_keys(self, keys: Iterable[ResourceKey]) -> Program[dict[ResourceKey, list[RemoteLease]]]:
        """Return the leases of keys in other stores, even expired ones."""
        found = yield self._by_keys.bind(keys=keys)
        leases: dict[ResourceKey, list[RemoteLease]] = {}
        for row in found:
            leases.setdefault((row[0], row[1]), []).append(RemoteLease(*row))
        return leases

    def store_leases(self, leases: Sequence[RemoteLease]) -> Program[None]:
        """Store leases, at most one for a key and peer. Each replaces the stored lease of the same key and peer."""
        if leases:
            yield self._put.bind(rows=sorted(leases))

    def delete_lease(self, pool_key: int, key: str, peer: str) -> Program[None]:
        yield self._forget.bind(pool_key=pool_key, key=key, peer=peer)

    def sweep_expired(self, *, before_us: int, rows_max: int) -> Program[None]:
        yield self._sweep.bind(before_us=before_us, limit=rows_max)

    def read_cursor(self, peer: str) -> Program[int]:
        """Return the number of the last event that was read from a peer's journal, or 0."""
        found = yield self._cursor.bind(peer=peer)
        return int(found[0][0]) if found else 0

    def apply_page(self, peer: str, events: Sequence[PeerEvent], *, position: int) -> Program[None]:
        """Apply a page of a peer's journal to the stored leases, and store `position` as the cursor."""
        known = yield from self.find_by_keys(sorted({(event.pool_key, event.key) for event in events}))
        state: dict[ResourceKey, RemoteLease | None] = {
            key: next((one for one in leases if one.peer == peer), None) for key, leases in known.items()
        }
        for event in events:
            key = (event.pool_key, event.key)
            before = state.get(key)
            if event.kind in (LeaseEventKind.ACQUIRED, LeaseEventKind.EXTENDED):
                same = before is not None and (before.resource, before.version) == (event.resource, event.version)
                acquired_at_us = before.acquired_at_us if same and before is not None else event.at_us
                wanted_us = before.wanted_until_us if same and before is not None else 0
                state[key] = RemoteLease(
                    *key, peer, event.resource, event.region, event.version, event.expires_at_us, acquired_at_us,
                    wanted_us,
                )  # fmt: skip
            elif (
                event.kind in (LeaseEventKind.RELEASED, LeaseEventKind.LIBERATED)
                and before is not None
                and before.resource == event.resource
            ):
                state[key] = None
        for (pool_key, name), lease in state.items():
            if lease is None:
                yield from self.delete_lease(pool_key, name, peer)
        yield from self.store_leases([lease for lease in state.values() if lease is not None])
        yield self._set_cursor.bind(peer=peer, position=position)


remote_leases = RemoteLeases()

"""Stores and finds the leases that keys have in other stores (peers), as the journals of these stores report them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from querybuilder import INTEGER, TEXT, all_of, asc, col, delete, param, rows, select
from storage.leases.lease_journal import PublishedLeaseEvent
from storage.leases.lease_records import Grant, LeaseEvent, LeaseEventKind, Resource
from storage.leases.lease_resources import ResourceKey
from storage.schema.lease_tables import LEASE_ELSEWHERE, LEASE_PEERS
from storage.schema.placement import TABLES, prepare_put, prepare_put_rows
from storage.store import Program

_BEGINS = (LeaseEventKind.ACQUIRED, LeaseEventKind.EXTENDED)
_ENDS = (LeaseEventKind.RELEASED, LeaseEventKind.LIBERATED)
_TABLE = TABLES[LEASE_ELSEWHERE]  # its columns have the order of the fields of `RemoteLease`

KeyEvent = tuple[ResourceKey, PublishedLeaseEvent]  # an event of a peer, with this store's pool key and the lease key


class RemoteLease(NamedTuple):
    pool_key: int
    key: str
    peer: str
    resource: str
    region: str
    version: int
    expires_at_us: int  # the expiry by the other store's clock
    acquired_at_us: int
    wanted_until_us: int = 0  # the expiry that this store requested from the other store; 0: none

    def grant(self, now_us: int) -> Grant:
        return Grant(self.resource, self.region, self.key, self.version, self.expires_at_us, now_us, acquired=False)

    def make_event(self, kind: LeaseEventKind, now_us: int) -> LeaseEvent:
        """Return an event for the other store to read: the lease's key wants more time, or gives the resource back."""
        row = Resource(self.pool_key, self.resource, self.region, self.key, self.version, self.expires_at_us, None)
        return LeaseEvent(kind, row, self.key, now_us)


class RemoteLeases:
    def __init__(self) -> None:
        same = (col("pool_key", "e").eq(col("pool_key", "v")), col("holder", "e").eq(col("name", "v")))
        self._by_keys = (
            select(*(col(name, "e") for name in _TABLE.kinds))
            .from_(rows("v", param("keys"), pool_key=INTEGER, name=TEXT))
            .join(LEASE_ELSEWHERE, all_of(*same), alias="e")
            .packed()
            .prepared()
        )
        self._put = prepare_put_rows(LEASE_ELSEWHERE)
        self._delete = delete(LEASE_ELSEWHERE).where(*(col(name).eq(param(name)) for name in _TABLE.keys)).prepared()
        is_over = col("expires_at").lt(param("before_us"))
        over = select(col("expires_at")).from_(LEASE_ELSEWHERE).where(is_over)
        first = over.order_by(asc(col("expires_at"))).limit(param("limit"))
        self._sweep = delete(LEASE_ELSEWHERE).where(is_over, col("expires_at").in_(first)).prepared()
        self._cursor = select(col("position")).from_(LEASE_PEERS).where(col("peer").eq(param("peer"))).prepared()
        self._set_cursor = prepare_put(LEASE_PEERS)

    def find_by_keys(self, keys: Iterable[ResourceKey]) -> Program[dict[ResourceKey, list[RemoteLease]]]:
        """Return the leases that these keys have in other stores, even expired ones."""
        found = yield self._by_keys.bind(keys=keys)
        leases: dict[ResourceKey, list[RemoteLease]] = {}
        for row in found:
            leases.setdefault((row[0], row[1]), []).append(RemoteLease(*row))
        return leases

    def find_running(
        self, keys: Iterable[ResourceKey], here: Mapping[ResourceKey, Resource], now_us: int
    ) -> Program[dict[ResourceKey, RemoteLease]]:
        """For keys without a running lease in this store, return the running leases that they have in other stores.

        `here` has the keys' resources in this store. Of several leases of a key, return the first that was acquired.
        """
        away = [key for key in keys if key not in here or here[key].is_free or here[key].expires_at_us <= now_us]
        if not away:
            return {}
        found = yield from self.find_by_keys(sorted(away))
        first: dict[ResourceKey, RemoteLease] = {}
        for key, leases in found.items():
            running = [one for one in leases if one.expires_at_us > now_us]
            if running:
                first[key] = min(running, key=lambda one: (one.acquired_at_us, one.peer))
        return first

    def write_leases(self, stored: Sequence[RemoteLease], deleted: Iterable[tuple[int, str, str]]) -> Program[None]:
        """Store leases. `deleted` names leases to delete by pool key, lease key and peer, which identify a lease."""
        if stored:
            yield self._put.bind(rows=sorted(stored))
        for pool_key, key, peer in deleted:
            yield self._delete.bind(pool_key=pool_key, holder=key, peer=peer)

    def sweep_expired(self, *, before_us: int, rows_max: int) -> Program[None]:
        yield self._sweep.bind(before_us=before_us, limit=rows_max)

    def read_cursor(self, peer: str) -> Program[int]:
        """Return the number of the last event that was read from a peer's journal, or 0 if none was read."""
        found = yield self._cursor.bind(peer=peer)
        return int(found[0][0]) if found else 0

    def apply_page(self, peer: str, events: Sequence[KeyEvent], *, position: int) -> Program[None]:
        """Change stored leases as a peer's events say, and store `position`, the number of the page's last event."""
        known = yield from self.find_by_keys(sorted({key for key, _ in events}))
        state: dict[ResourceKey, RemoteLease | None] = {
            key: next((one for one in leases if one.peer == peer), None) for key, leases in known.items()
        }
        for key, event in events:
            before = state.get(key)
            if event.kind in _BEGINS:
                lease = RemoteLease(
                    *key, peer, event.resource, event.region, event.version, event.expires_at_us, event.at_us
                )
                if before is not None and (before.resource, before.version) == (lease.resource, lease.version):
                    acquired_at_us, wanted_until_us = before.acquired_at_us, before.wanted_until_us
                    lease = lease._replace(acquired_at_us=acquired_at_us, wanted_until_us=wanted_until_us)
                state[key] = lease
            elif event.kind in _ENDS and before is not None and before.resource == event.resource:
                state[key] = None
        deleted = [(*key, peer) for key, lease in state.items() if lease is None]
        yield from self.write_leases([lease for lease in state.values() if lease is not None], deleted)
        yield self._set_cursor.bind(peer=peer, position=position)


remote_leases = RemoteLeases()

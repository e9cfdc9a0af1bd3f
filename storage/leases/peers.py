"""Coordinates leases across several stores, each of which has its own service and its own regions' resources.

A key should have only one resource, whichever store leases it. Stores never write to each other; instead, each store
reads the journals of the others:

    other store's journal ──> `LeaseExchange` applies a page ──> `RemoteLeases`: leases of keys in that store
                                                                  └──> a transaction answers a key with its lease

    key asks here for more time, or releases ──> WANTED, RETURNED in the journal here ──> the other store reads them

For each peer (another store), a store remembers a cursor: the number of the last event that it read from the peer's
journal. One transaction applies a page of events and stores the cursor after the page, so every event is applied once.
A store grants no leases on behalf of a peer; it answers a key with the last lease that the peer's journal reported.

Each kind of event in a peer's journal has its own effect here:

- acquired, extended, released, liberated: what this store knows of the peer's leases is updated.
- acquired, although the key has a lease here: if the lease here began later, it is reported as a duplicate and ended.
- wanted, returned: a key with a lease here made a request to the peer. The lease here is extended or ended.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from querybuilder import INTEGER, TEXT, all_of, asc, col, delete, param, rows, select
from storage.errors import RacesLostError
from storage.leases.lease_journal import PublishedLeaseEvent
from storage.leases.lease_records import Grant, LeaseEvent, LeaseEventKind, Resource, ResourceChange
from storage.leases.pools import ResourceKey, lease_pools, lease_resources
from storage.leases.work_leases import StoreClock
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
        """Create an event that tells the other store that the lease's key wants more time, or released the resource."""
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
        found = yield self._by_keys.bind(keys=keys)
        leases: dict[ResourceKey, list[RemoteLease]] = {}
        for row in found:
            leases.setdefault((row[0], row[1]), []).append(RemoteLease(*row))
        return leases

    def find_running(
        self, keys: Iterable[ResourceKey], here: Mapping[ResourceKey, Resource], now_us: int
    ) -> Program[dict[ResourceKey, RemoteLease]]:
        """Find the running leases in other stores for those of the keys that have none in this store.

        `here` holds the keys' resources in this store. If a key has several leases, return the one acquired first.
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
        """Store leases, and delete those that `deleted` identifies by pool key, lease key and peer."""
        if stored:
            yield self._put.bind(rows=sorted(stored))
        for pool_key, key, peer in deleted:
            yield self._delete.bind(pool_key=pool_key, holder=key, peer=peer)

    def sweep_expired(self, *, before_us: int, rows_max: int) -> Program[None]:
        yield self._sweep.bind(before_us=before_us, limit=rows_max)

    def read_cursor(self, peer: str) -> Program[int]:
        """Read the number of the last event that was read from a peer's journal, or 0 if none was read."""
        found = yield self._cursor.bind(peer=peer)
        return int(found[0][0]) if found else 0

    def apply_page(self, peer: str, events: Sequence[KeyEvent], *, position: int) -> Program[None]:
        """Apply a peer's events to the stored leases, and store `position`, the number of the page's last event."""
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


class AppliedPage(NamedTuple):
    events: int  # number of events on the page
    duplicates: int = 0  # leases ended here, because the key acquired its lease in the other store earlier


class _Attempt(NamedTuple):
    """The decisions of one attempt to apply a page. A decision takes effect only if its change is written."""

    changes: dict[ResourceKey, ResourceChange]
    events: list[tuple[ResourceKey, LeaseEvent]]
    duplicates: set[ResourceKey]


class LeaseExchange:
    def __init__(self, clock: StoreClock, *, store_name: str, attempts_max: int, rng: random.Random) -> None:
        """Create an object for this store. `store_name` is the name by which the other stores know this store."""
        self._clock, self._store_name = clock, store_name
        self._attempts_max, self._rng = attempts_max, rng

    def apply_page(self, peer: str, page: Sequence[PublishedLeaseEvent], *, rows_max: int) -> Program[AppliedPage]:
        """Apply a page of a peer's journal, which must begin after the stored cursor of this peer.

        Raises:
            RacesLostError: in every attempt, other transactions changed the resources first.
        """
        if not page:
            return AppliedPage(0)
        now_us = yield from self._clock()
        left = yield from self._of_pools_here(page)
        yield from remote_leases.apply_page(peer, left, position=page[-1].number)
        yield from remote_leases.sweep_expired(before_us=now_us, rows_max=rows_max)
        events: list[LeaseEvent] = []
        duplicates = 0
        for _ in range(self._attempts_max):
            trying = yield from self._decide(peer, left, now_us)
            written = yield from lease_resources.write_changes(list(trying.changes.values()))
            void = trying.changes.keys() - written
            duplicates += len(trying.duplicates - void)
            events += [event for place, event in trying.events if place not in void]
            if not void:
                yield from lease_resources.record_events(events, self._rng)
                return AppliedPage(len(page), duplicates)
            again = {trying.changes[place].before.holder for place in void}
            left = [(key, event) for key, event in left if event.key in again]
        raise RacesLostError(f"resources kept changing during {self._attempts_max} attempts")

    def _of_pools_here(self, page: Sequence[PublishedLeaseEvent]) -> Program[list[KeyEvent]]:
        pools = yield from lease_pools.find_by_names([(event.client_id, event.pool_id) for event in page])
        return [
            ((pools[event.client_id, event.pool_id].key, event.key), event)
            for event in page
            if event.key is not None and (event.client_id, event.pool_id) in pools
        ]

    def _decide(self, peer: str, events: Sequence[KeyEvent], now_us: int) -> Program[_Attempt]:
        ours = yield from lease_resources.find_by_holders(sorted({key for key, _ in events}))
        theirs = yield from remote_leases.find_by_keys(sorted(ours))
        duplicates: set[ResourceKey] = set()
        happened: list[tuple[ResourceKey, LeaseEvent]] = []
        after = dict(ours)
        for key, event in events:
            row = after.get(key)
            if row is None or row.is_free:
                continue
            named = (event.resource, event.version) == (row.resource, row.version)
            if event.kind == LeaseEventKind.WANTED and named and event.expires_at_us > row.expires_at_us:
                row = row._replace(expires_at_us=event.expires_at_us)
            elif event.kind == LeaseEventKind.RETURNED and named:
                row = row.release(now_us)
            elif event.kind == LeaseEventKind.ACQUIRED and self._comes_second(
                row, theirs.get(key, ()), peer, event, now_us
            ):
                duplicates.add(row[:2])
                row = row.release(now_us)
                happened.append((row[:2], LeaseEvent(LeaseEventKind.DUPLICATE, row, event.key, now_us)))
            happened += [(row[:2], one) for one in ResourceChange(after[key], row).find_events(now_us)]
            after[key] = row
        changes = {row[:2]: ResourceChange(ours[key], row) for key, row in after.items() if row != ours[key]}
        return _Attempt(changes, happened, duplicates)

    def _comes_second(
        self, row: Resource, theirs: Sequence[RemoteLease], peer: str, event: PublishedLeaseEvent, now_us: int
    ) -> bool:
        runs_there = any(
            one.peer == peer and one.version == event.version and one.expires_at_us > now_us for one in theirs
        )
        if not runs_there or row.expires_at_us <= now_us:
            return False
        return (event.at_us, peer) < (row.acquired_at_us, self._store_name)

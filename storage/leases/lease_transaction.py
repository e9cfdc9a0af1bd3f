"""Decides lease requests from many keys in one transaction: which resource each key gets, keeps or releases.

    read_findings: one statement reads pools, resources of keys and the time
        └──> LeaseTransactions decides each request
                ├── the key has a resource, or had it last ──> the same one, with a later expiry
                └── it has none ──> the longest free one, else one whose lease expired, else refused

A decision takes effect only if no other transaction has changed the resource since it was read. Otherwise the resource
is read again and the request is decided again.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from querybuilder import TEXT, all_of, clock_us, col, param, rows, select
from storage.errors import (
    LeaseInPastError,
    NoResourceError,
    RacesLostError,
    StorageError,
    UnknownLeaseError,
    UnknownPoolError,
    UnknownRegionError,
)
from storage.leases.peers import RemoteLease, remote_leases
from storage.schema.lease_tables import LEASE_POOLS, LEASE_RESOURCES
from storage.store import Program

from .lease_journal import Region, lease_counts
from .lease_records import (
    Grant,
    LeaseEvent,
    LeaseEventKind,
    LeaseRequest,
    Pool,
    PoolRequest,
    Release,
    Resource,
    ResourceChange,
)
from .pools import POOL_COLUMNS, RESOURCE_COLUMNS, ResourceKey, lease_pools, lease_resources, pool_condition
from .work_leases import StoreClock, store_clock

Outcome = Grant | StorageError

FRONT_KNOWN_US = 60_000_000  # how long a process remembers a front, see `_find_free`
FRONTS_MAX = 100_000  # the most fronts that are remembered; when this number is reached, all are forgotten

_POOL_END = 1 + len(POOL_COLUMNS)  # a result row has the store's time, the pool, and from this index the resource
_HOLDER = _POOL_END + list(RESOURCE_COLUMNS).index("holder")


class Findings(NamedTuple):
    now_us: int  # the time of the read by the store's own clock; 0 if none of the pools exists
    pools: dict[tuple[str, str], Pool]  # the pools that exist, by client id and pool id
    held: dict[ResourceKey, Resource]  # the resources that keys have, or had last and may get back, by pool and key

    def key(self, request: PoolRequest) -> ResourceKey:
        """Return the key of a request's resource in `held`: its pool key and lease key. The pool must exist."""
        return self.pools[request[:2]].key, request.key

    def find_running(self, request: PoolRequest) -> Grant | None:
        """Find the running lease held by the request's key, or return None if the key has none in this store."""
        row = self.held.get(self.key(request)) if request[:2] in self.pools else None
        if row is None or row.is_free or row.expires_at_us <= self.now_us:
            return None
        return row.grant(request.key, self.now_us, acquired=False)


class LeaseTransactions:
    def __init__(
        self,
        clock: StoreClock | None,
        *,
        margin_us: int,
        attempts_max: int,
        rng: random.Random,
        peers: bool = False,
    ) -> None:
        """Store the settings that all programs of this object use.

        After a lease expires, no other key gets its resource until `margin_us` have passed. The margin protects a store
        whose clock may jump, because somebody sets the clock or because another server takes over. If `clock` is None,
        `serve_requests` uses the time that `read_findings` reads from the store anyway. `peers` says whether keys may
        also have leases in other stores.
        """
        self._peers = peers
        self._fronts: dict[Region, tuple[int, int]] = {}  # `_find_free`'s front, and when it last searched without one
        self._clock, self._margin_us, self._attempts_max, self._rng = clock, margin_us, attempts_max, rng

    def serve_requests(self, requests: Sequence[PoolRequest]) -> Program[list[Outcome]]:
        """Decide requests from different keys, write the decisions, and return each request's outcome in order.

        Raises:
            RacesLostError: in every attempt, other transactions changed the resources first.
        """
        found = yield from read_findings(requests)
        if self._clock is not None:
            found = found._replace(now_us=(yield from self._clock()))
        group = _Group(requests, found)
        left = group.list_undecided()
        for attempt in range(self._attempts_max):
            if attempt:
                keys = sorted(map(found.key, left))
                group.found = found._replace(held=(yield from lease_resources.find_by_holders(keys)))
            yield from self._try(group, left)
            left = group.list_undecided()
            if not left:
                break
        else:
            raise RacesLostError(f"resources kept changing during {self._attempts_max} attempts")
        yield from remote_leases.write_leases(group.asked, [lease[:3] for lease in group.returned])
        yield from lease_resources.record_events(group.events, self._rng, refused=group.refused)
        return [group.outcomes[request] for request in requests]

    def find_lease(self, client_id: str, pool_id: str, key: str) -> Program[Grant]:
        """Find a key's running lease in another store. Raise `UnknownPoolError` or `UnknownLeaseError`."""
        pool = yield from lease_pools.read_pool(client_id, pool_id)
        if self._peers:
            now_us, place = (yield from (self._clock or store_clock)()), (pool.key, key)
            away = yield from remote_leases.find_running([place], {}, now_us)
            if place in away:
                return away[place].grant(now_us)
        raise UnknownLeaseError(f"{key!r} has no lease in this pool")

    def _try(self, group: _Group, left: list[PoolRequest]) -> Program[None]:
        found, away = group.found, {}
        if self._peers:
            away = yield from remote_leases.find_running(map(found.key, left), found.held, found.now_us)
        group.decide(left, away)
        for region in sorted(group.wanted):  # all transactions use this order, to avoid deadlocks
            yield from self._take(group, region)
        written = yield from lease_resources.write_changes(list(group.decided.values()))
        for request, change in group.decided.items():
            if change.before[:2] in written:
                group.settle(request, change)

    def _take(self, group: _Group, region: Region) -> Program[None]:
        """Serve a region's `wanted` requests from free resources, then from expired ones, and refuse the rest."""
        waiting, now_us = group.wanted[region], group.found.now_us
        limit = group.count_wanted(region, is_free=True)
        group.give_resources(region, (yield from self._find_free(region, limit=limit, now_us=now_us)))
        if waiting:
            limit, before_us = group.count_wanted(region, is_free=False), now_us - self._margin_us
            rows = yield from lease_resources.find_expired(*region, before_us=before_us, limit=limit)
            group.give_resources(region, rows)
        if waiting:
            known = yield from lease_counts.read_counts([region[0]])
            for request in waiting:
                if region not in known:  # do not count refused requests of a region that does not exist
                    group.outcomes[request] = UnknownRegionError(f"the pool has no region {region[1]!r}")
                    continue
                group.outcomes[request] = NoResourceError(f"the region {region[1]!r} has no resource left")
                group.refused.append(region)

    def _find_free(self, region: Region, *, limit: int, now_us: int) -> Program[list[Resource]]:
        """Find up to `limit` free resources, longest free first, starting where the last search found its first row.

        That row's `free_since` is the front. Without a front, PostgreSQL would scan the dead index entries of all
        earlier rows until vacuum removes them. A row may still appear before the front, because a free resource that is
        moved keeps its `free_since`, and because a long transaction commits an old `free_since`. Such a row is found
        after `FRONT_KNOWN_US`, or when too few rows follow the front.
        """
        since_us, read_us = self._fronts.get(region, (0, now_us))
        if not 0 <= now_us - read_us < FRONT_KNOWN_US:
            since_us, read_us = 0, now_us
        rows = yield from lease_resources.find_free(*region, limit=limit, since_us=since_us)
        if len(rows) < limit and since_us:
            read_us = now_us
            rows = yield from lease_resources.find_free(*region, limit=limit)
        if len(self._fronts) >= FRONTS_MAX:
            self._fronts.clear()
        self._fronts[region] = ((rows[0].free_since_us or 0) if rows else 0, read_us)
        return rows


_FIND = (
    select(clock_us(), *(col(name, "p") for name in POOL_COLUMNS), *(col(name, "r") for name in RESOURCE_COLUMNS))
    .from_(rows("v", param("asked"), client_id=TEXT, pool_id=TEXT, name=TEXT))
    .join(LEASE_POOLS, pool_condition("v"), alias="p")
    .left_join(
        LEASE_RESOURCES,
        all_of(col("pool_key", "r").eq(col("pool_key", "p")), col("holder", "r").eq(col("name", "v"))),
        alias="r",
    )
    .packed()
    .prepared()
)


def read_findings(requests: Sequence[PoolRequest]) -> Program[Findings]:
    """Read the pools, the resources that the requests' keys have, and the store's time, in one statement."""
    found = yield _FIND.bind(asked=sorted({request[:3] for request in requests}))
    pools: dict[tuple[str, str], Pool] = {}
    held: dict[ResourceKey, Resource] = {}
    for row in found:
        if (row[2], row[3]) not in pools:
            pools[row[2], row[3]] = Pool(*row[1:_POOL_END])
        if row[_HOLDER] is not None:
            held[row[1], row[_HOLDER]] = Resource(*row[_POOL_END:])
    return Findings(found[0][0] if found else 0, pools, held)


class _Group:
    def __init__(self, requests: Sequence[PoolRequest], found: Findings) -> None:
        self.requests, self.found = requests, found
        self.outcomes: dict[PoolRequest, Outcome] = {
            request: UnknownPoolError(f"the client {request.client_id!r} has no pool {request.pool_id!r}")
            for request in requests
            if request[:2] not in found.pools
        }
        self.events: list[LeaseEvent] = []
        self.refused: list[Region] = []  # the region of each request that found no resource
        # Leases in other stores:
        self.asked: list[RemoteLease] = []  # the other stores are now asked to extend these leases
        self.returned: list[RemoteLease] = []  # the keys of these leases gave the resources back
        # Decisions of one attempt. A decision takes effect only if its change is written.
        self.decided: dict[PoolRequest, ResourceChange] = {}
        self.wanted: dict[Region, list[LeaseRequest]] = {}  # requests that need a new resource

    def list_undecided(self) -> list[PoolRequest]:
        return [request for request in self.requests if request not in self.outcomes]

    def decide(self, left: list[PoolRequest], away: Mapping[ResourceKey, RemoteLease]) -> None:
        self.decided, self.wanted = {}, {}
        now_us = self.found.now_us
        for request in left:
            key = self.found.key(request)
            row = self.found.held.get(key)
            if key in away:
                self._answer_from_peer(request, away[key])
            elif isinstance(request, Release):
                if row is None or row.is_free:
                    self.outcomes[request] = UnknownLeaseError(f"{request.key!r} has no lease in this pool")
                else:
                    self.decided[request] = ResourceChange(row, row.release(now_us))
            elif max(request.until_us(now_us), row.expires_at_us if row is not None else 0) <= now_us:
                self.outcomes[request] = LeaseInPastError(f"the lease of {request.key!r} would already have ended")
            elif row is None:
                self.wanted.setdefault((key[0], request.region), []).append(request)
            elif row.is_free:  # the resource was liberated: a new lease begins
                self.decided[request] = ResourceChange(row, row.lease_to(request, now_us))
            elif request.until_us(now_us) <= row.expires_at_us:
                self.outcomes[request] = row.grant(request.key, now_us, acquired=False)
            else:
                self.decided[request] = ResourceChange(row, row._replace(expires_at_us=request.until_us(now_us)))

    def _answer_from_peer(self, request: PoolRequest, lease: RemoteLease) -> None:
        """Answer with a lease in another store, and tell that store of the request by an event in the journal."""
        now_us = self.found.now_us
        self.outcomes[request] = lease.grant(now_us)
        if isinstance(request, Release):
            self.returned.append(lease)
            self.events.append(lease.make_event(LeaseEventKind.RETURNED, now_us))
            return
        until_us = request.until_us(now_us)
        if until_us > max(lease.expires_at_us, lease.wanted_until_us):
            self.asked.append(lease._replace(wanted_until_us=until_us))
            self.events.append(lease._replace(expires_at_us=until_us).make_event(LeaseEventKind.WANTED, now_us))

    def count_wanted(self, region: Region, *, is_free: bool) -> int:
        """Count how many free (or expired) rows to read, so that each of the region's `wanted` requests gets one.

        Earlier decisions may already use some of these rows. `give_resources` skips them, so the count includes them.
        """
        here = [row for row, _ in self.decided.values() if (row.pool_key, row.region) == region]
        return len(self.wanted[region]) + sum(row.is_free == is_free for row in here)

    def give_resources(self, region: Region, rows: Sequence[Resource]) -> None:
        waiting, reserved = self.wanted[region], {row[:2] for row, _ in self.decided.values()}
        for row in rows:
            if waiting and row[:2] not in reserved:
                request = waiting.pop()
                self.decided[request] = ResourceChange(row, row.lease_to(request, self.found.now_us))

    def settle(self, request: PoolRequest, change: ResourceChange) -> None:
        now_us, is_new = self.found.now_us, change.after.version > change.before.version
        self.outcomes[request] = change.after.grant(request.key, now_us, acquired=is_new)
        self.events += change.find_events(now_us)

"""Decides the lease requests of many keys in one transaction: which resource each gets, keeps or gives back.

    LeaseFindings: one statement reads pools, resources of keys and the time
        └──> LeaseTransactions decides each request
                ├── the key has a resource, or had it last ──> the same one, with a later expiry
                └── it has none ──> a free one of a random partition, else of the next partitions,
                                    else one whose lease expired, else refused

A decision takes effect only if no other transaction has changed the resource since it was read. Otherwise the resource
is read again and the request is decided again.

A transaction uses the findings of an earlier read, because every further round trip also delays the requests that wait
for this transaction to end. `LeaseTransactions.plan_single_write` needs only one round trip: a single statement writes
everything or fails.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from querybuilder import TEXT, Dialect, all_of, clock_us, col, param, rows, select
from storage.errors import (
    LeaseInPastError,
    NoResourceError,
    RacesLostError,
    StorageError,
    UnknownLeaseError,
    UnknownPoolError,
    UnknownRegionError,
)
from storage.leases.peers.elsewhere import RemoteLease, remote_leases
from storage.schema.lease_tables import LEASE_POOLS, LEASE_RESOURCES
from storage.store import Program, Store

from .claims import StoreClock, store_clock
from .free_queue import FreeQueues
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
from .lease_resources import RESOURCE_COLUMNS, RESOURCES_ALIAS, ResourceKey, lease_resources, pool_condition
from .pools import POOL_COLUMNS, lease_pools, pool_from_row
from .region_counts import Region, lease_counts

Outcome = Grant | StorageError

_POOL_END = 1 + len(POOL_COLUMNS)  # index of the first result column after the store's time and the pool
_HOLDER = _POOL_END + list(RESOURCE_COLUMNS).index("holder")


class Findings(NamedTuple):
    """The pools, resources and time that one read found for some requests."""

    now_us: int  # the time of the read by the store's own clock; 0 if none of the pools exists
    pools: dict[tuple[str, str], Pool]  # the pools that exist, by client id and pool id
    held: dict[ResourceKey, Resource]  # the resources that keys have, or had last and may get back, by pool and key

    def key(self, request: PoolRequest) -> ResourceKey:
        """Return the key in `held` for a request, whose pool must exist."""
        return self.pools[request[:2]].key, request.key

    def find_running(self, request: PoolRequest) -> Grant | None:
        """Return the running lease of the request's key, or None."""
        row = self.held.get(self.key(request)) if request[:2] in self.pools else None
        if row is None or row.is_free or row.expires_at_us <= self.now_us:
            return None
        return row.grant(request.key, self.now_us, acquired=False)


class SingleWrite(NamedTuple):
    write: Callable[[], Program[None]]  # the program of the statement; run it with `write_single`
    outcomes: list[Outcome]
    regions: list[Region]  # the regions that the statement takes free resources from
    now_us: int


class LeaseTransactions:
    def __init__(
        self,
        dialect: Dialect,
        clock: StoreClock | None,
        *,
        margin_us: int,
        attempts_max: int,
        rng: random.Random,
        peers: bool = False,
    ) -> None:
        """Make the programs.

        No other key gets an expired lease before `margin_us` have passed since the expiry. This margin is for a store
        whose clock may jump, because somebody sets the clock or because another server takes over.

        If `clock` is None, the programs use the store's own clock, which needs no statement of its own. `peers` says
        whether keys may also lease in other stores.
        """
        self._peers, self._queues = peers, FreeQueues()
        # With peers, rows about other stores are written between the resources and the counts. So a transaction needs
        # several statements.
        self._writes_at_once = dialect.chains and not peers
        self._clock, self._margin_us, self._attempts_max, self._rng = clock, margin_us, attempts_max, rng

    def serve_requests(self, requests: Sequence[PoolRequest], found: Findings | None = None) -> Program[list[Outcome]]:
        """Decide and write requests of different keys; return an outcome for each, in their order.

        `found` holds the findings of an earlier read; it saves one round trip. If a key had no resource at that read
        and has since got one from another process, the transaction fails with a lost race, and the caller must run it
        again without `found`.

        Raises:
            RacesLostError: resources kept changing.
        """
        found = found or (yield from lease_findings.read_findings(requests))
        if self._clock is not None:
            found = found._replace(now_us=(yield from self._clock()))
        group = _Group(requests, found)
        for attempt in range(self._attempts_max):
            left = group.find_undecided()
            if not left:
                break
            if attempt:
                keys = sorted(found.key(requests[index]) for index in left)
                group.found = found._replace(held=(yield from lease_resources.find_by_holders(keys)))
            yield from self._try(group, left)
        else:
            if group.find_undecided():
                raise RacesLostError(f"resources kept changing during {self._attempts_max} attempts")
        yield from remote_leases.write_leases(group.asked, [lease[:3] for lease in group.returned])
        if not group.is_recorded:
            yield from lease_resources.record_events(group.events, self._rng, refused=group.refused)
        return group.list_outcomes()

    def plan_single_write(self, requests: Sequence[PoolRequest], found: Findings) -> SingleWrite | None:
        """Return a single statement that does all that `serve_requests` would do, or fails.

        Return None if the dialect has no such statement, or if further rows must be read.
        """
        if not self._writes_at_once or self._clock is not None:
            return None
        group, now_us = _Group(requests, found), found.now_us
        group.decide(group.find_undecided(), {})
        places: list[tuple[Region, int, int]] = []
        for region, pool in group.find_regions():
            partition = self._queues.order_partitions(region, pool.spec.partitions, rng=self._rng, now_us=now_us)[0]
            limit = group.count_wanted(region, partition)
            if not self._queues.has_remembered(region, partition, limit=limit, now_us=now_us):
                return None
            places.append((region, partition, limit))
        for region, partition, limit in places:
            rows = self._queues.take_remembered(region, partition, limit=limit, now_us=now_us)
            group.give_resources(region, rows)
        for index, change in group.decided.items():
            group.settle(index, change)
        if group.find_undecided() or not group.decided:
            return None
        write = partial(lease_resources.write_all, list(group.decided.values()), group.events, self._rng)
        return SingleWrite(write, group.list_outcomes(), [place[0] for place in places], now_us)

    async def read_ahead(self, store: Store, now_us: int) -> None:
        await self._queues.read_ahead(store, now_us)

    @property
    def should_read_ahead(self) -> bool:
        return bool(self._queues.running_low)

    def note_lost_race(self, failed: SingleWrite) -> None:
        """Note that a single statement failed, probably because another process took the resources first."""
        for region in failed.regions:
            self._queues.note_lost_race(region, failed.now_us)

    def find_lease(self, client_id: str, pool_id: str, key: str) -> Program[Grant]:
        """Return the running lease of a key in another store, as far as this store knows.

        Raises:
            UnknownPoolError, UnknownLeaseError: there is no such pool, or no running lease.
        """
        pool = yield from lease_pools.read_pool(client_id, pool_id)
        if self._peers:
            now_us, place = (yield from (self._clock or store_clock)()), (pool.key, key)
            away = yield from remote_leases.find_running([place], {}, now_us)
            if place in away:
                return away[place].grant(now_us)
        raise UnknownLeaseError(f"{key!r} has no lease in this pool")

    def _try(self, group: _Group, left: list[int]) -> Program[None]:
        found = group.found
        keys = [found.key(group.requests[index]) for index in left]
        away = (yield from remote_leases.find_running(keys, found.held, found.now_us)) if self._peers else {}
        group.decide(left, away)
        for region, pool in group.find_regions():
            yield from self._take(group, region, pool)
        written = yield from self._write(group)
        for index, change in group.decided.items():
            before = change.before
            if before[:2] in written:
                group.settle(index, change)
            elif before.is_free:
                self._queues.note_lost_race((before.pool_key, before.region), found.now_us)

    def _write(self, group: _Group) -> Program[set[ResourceKey]]:
        """Write the decided changes, and if possible journal and counts with them; return the changed resources."""
        changes = list(group.decided.values())
        if not self._writes_at_once or not changes:
            return (yield from lease_resources.write_changes(changes))
        events = group.events + [event for change in changes for event in change.find_events(group.found.now_us)]
        written = yield from lease_resources.write_at_once(changes, events, self._rng, refused=group.refused)
        group.is_recorded = len(written) == len(changes)
        return written

    def _take(self, group: _Group, region: Region, pool: Pool) -> Program[None]:
        """Give the longest-free resources of a region to the requests that need one."""
        waiting, now_us = group.wanted[region], group.found.now_us
        in_turn = self._queues.order_partitions(region, pool.spec.partitions, rng=self._rng, now_us=now_us)
        for partition in (*in_turn, None):
            if not waiting:
                return
            limit = group.count_wanted(region, partition)
            if partition is not None:
                rows = yield from self._queues.take_front(region, partition, limit=limit, now_us=now_us)
            else:  # no free resource is left: take resources whose lease has expired
                before_us = now_us - self._margin_us
                rows = yield from lease_resources.find_expired(*region, before_us=before_us, limit=limit)
            group.give_resources(region, rows)
        if waiting:
            known = yield from lease_counts.read_counts([pool.key])
            for index in waiting:
                if region not in known:  # a region that does not exist must not get counts
                    group.outcomes[index] = UnknownRegionError(f"the pool has no region {region[1]!r}")
                    continue
                group.outcomes[index] = NoResourceError(f"the region {region[1]!r} has no resource left")
                group.refused.append(region)


class LeaseFindings:
    """The statement that reads everything that is needed to decide requests."""

    def __init__(self) -> None:
        asked = rows("v", param("asked"), client_id=TEXT, pool_id=TEXT, name=TEXT)
        holds = (
            col("pool_key", RESOURCES_ALIAS).eq(col("pool_key", "p")),
            col("holder", RESOURCES_ALIAS).eq(col("name", "v")),
        )
        what = select(
            clock_us(),
            *(col(name, "p") for name in POOL_COLUMNS),
            *(col(name, RESOURCES_ALIAS) for name in RESOURCE_COLUMNS),
        )
        self._find = (
            what.from_(asked)
            .join(LEASE_POOLS, pool_condition("v"), alias="p")
            .left_join(LEASE_RESOURCES, all_of(*holds), alias=RESOURCES_ALIAS)
            .packed()
            .prepared()
        )

    def read_findings(self, requests: Sequence[PoolRequest]) -> Program[Findings]:
        """Read pools, the resources of keys, and the time."""
        found = yield self._find.bind(asked=sorted({request[:3] for request in requests}))
        pools: dict[tuple[str, str], Pool] = {}
        held: dict[ResourceKey, Resource] = {}
        for row in found:
            if (row[2], row[3]) not in pools:
                pools[row[2], row[3]] = pool_from_row(row[1:_POOL_END])
            if row[_HOLDER] is not None:
                held[row[1], row[_HOLDER]] = Resource(*row[_POOL_END:])
        return Findings(found[0][0] if found else 0, pools, held)


lease_findings = LeaseFindings()


def merge_findings(requests: Sequence[PoolRequest], found: Sequence[Findings]) -> Findings:
    """Merge the findings of requests with different keys."""
    pools: dict[tuple[str, str], Pool] = {}
    held: dict[ResourceKey, Resource] = {}
    for request, each in zip(requests, found, strict=True):
        if request[:2] in each.pools:
            pools[request[:2]] = each.pools[request[:2]]
            key = each.key(request)
            if key in each.held:
                held[key] = each.held[key]
    return Findings(max(each.now_us for each in found), pools, held)


class _Group:
    """The requests of one transaction, their outcomes, and what has to be written for them."""

    def __init__(self, requests: Sequence[PoolRequest], found: Findings) -> None:
        self.requests, self.found = requests, found
        self.outcomes: dict[int, Outcome] = {
            index: UnknownPoolError(f"the client {request.client_id!r} has no pool {request.pool_id!r}")
            for index, request in enumerate(requests)
            if request[:2] not in found.pools
        }
        self.events: list[LeaseEvent] = []
        self.refused: list[Region] = []  # the region of each request that found no resource
        # Leases in other stores whose keys asked for more time (each is asked for only once), or gave them back:
        self.asked: list[RemoteLease] = []
        self.returned: list[RemoteLease] = []
        self.is_recorded = False  # whether journal and counts are written already
        # Decisions of one attempt, by index of the request. A decision takes effect only if its change is written.
        self.decided: dict[int, ResourceChange] = {}
        self.wanted: dict[Region, list[int]] = {}  # indexes of requests for a new resource

    def find_undecided(self) -> list[int]:
        return [index for index in range(len(self.requests)) if index not in self.outcomes]

    def list_outcomes(self) -> list[Outcome]:
        return [self.outcomes[index] for index in range(len(self.requests))]

    def decide(self, left: list[int], away: Mapping[ResourceKey, RemoteLease]) -> None:
        """Decide the requests that need no free resource, and list the others in `wanted`."""
        self.decided, self.wanted = {}, {}
        now_us = self.found.now_us
        for index in left:
            request, key = self.requests[index], self.found.key(self.requests[index])
            row = self.found.held.get(key)
            if key in away:
                self._answer_from_peer(index, away[key])
            elif isinstance(request, Release):
                if row is None or row.is_free:
                    self.outcomes[index] = UnknownLeaseError(f"{request.key!r} has no lease in this pool")
                else:
                    self.decided[index] = ResourceChange(row, row.release(now_us))
            elif max(request.until_us(now_us), row.expires_at_us if row is not None else 0) <= now_us:
                self.outcomes[index] = LeaseInPastError(f"the lease of {request.key!r} would already have ended")
            elif row is None:
                self.wanted.setdefault((key[0], request.region), []).append(index)
            elif row.is_free:  # the resource was liberated: a new lease begins
                self._lease(index, row)
            elif request.until_us(now_us) <= row.expires_at_us:
                self.outcomes[index] = row.grant(request.key, now_us, acquired=False)
            else:
                self.decided[index] = ResourceChange(row, row._replace(expires_at_us=request.until_us(now_us)))

    def _lease(self, index: int, row: Resource) -> None:
        """Decide that the key gets this resource, which is free or has an expired lease."""
        request, now_us = self.requests[index], self.found.now_us
        assert isinstance(request, LeaseRequest)
        self.decided[index] = ResourceChange(row, row.lease_to(request.key, now_us, request.until_us(now_us)))

    def _answer_from_peer(self, index: int, lease: RemoteLease) -> None:
        """Answer with a lease in another store, and pass the request on: the other store reads the journal here."""
        request, now_us = self.requests[index], self.found.now_us
        self.outcomes[index] = lease.grant(now_us)
        if isinstance(request, Release):
            self.returned.append(lease)
            self.events.append(lease.make_event(LeaseEventKind.RETURNED, now_us))
            return
        until_us = request.until_us(now_us)
        if until_us > max(lease.expires_at_us, lease.wanted_until_us):
            self.asked.append(lease._replace(wanted_until_us=until_us))
            self.events.append(lease._replace(expires_at_us=until_us).make_event(LeaseEventKind.WANTED, now_us))

    def find_regions(self) -> list[tuple[Region, Pool]]:
        """Return the regions where resources are wanted, in the order that all transactions use."""
        by_key = {pool.key: pool for pool in self.found.pools.values()}
        return [(region, by_key[region[0]]) for region in sorted(self.wanted)]

    def count_wanted(self, region: Region, partition: int | None) -> int:
        """Return how many rows of a partition to read, so that every request that wants a resource gets one.

        Decisions may already change some of these rows: free ones, or leased ones if `partition` is None.
        """
        here = [row for row, _ in self.decided.values() if (row.pool_key, row.region) == region]
        reserved = sum(row.partition == partition if row.is_free else partition is None for row in here)
        return len(self.wanted[region]) + reserved

    def give_resources(self, region: Region, rows: Sequence[Resource]) -> None:
        """Give resources to the requests that want one, except resources that another decision changes."""
        waiting, reserved = self.wanted[region], {row[:2] for row, _ in self.decided.values()}
        for row in rows:
            if waiting and row[:2] not in reserved:
                self._lease(waiting.pop(), row)

    def settle(self, index: int, change: ResourceChange) -> None:
        before, after = change
        now_us, is_new = self.found.now_us, after.version > before.version
        self.outcomes[index] = after.grant(self.requests[index].key, now_us, acquired=is_new)
        self.events += change.find_events(now_us)

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
from dataclasses import dataclass, field
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
from storage.leases.peers.elsewhere import RemoteLease
from storage.leases.peers.roaming import RemoteRequests
from storage.schema.lease_tables import LEASE_POOLS, LEASE_RESOURCES
from storage.store import Program, Rows, Store

from .claims import GIVEN_BACK, StoreClock, store_clock
from .free_queue import FreeQueues
from .lease_journal import lease_journal
from .lease_records import (
    Grant,
    LeaseEvent,
    LeaseEventKind,
    LeaseRequest,
    Pool,
    PoolRequest,
    RegionCounts,
    Release,
    Resource,
)
from .lease_resources import (
    RESOURCE_COLUMNS,
    RESOURCES_ALIAS,
    ResourceChange,
    ResourceKey,
    lease_resources,
    lease_writes,
    pool_condition,
)
from .pools import POOL_COLUMNS, lease_pools, pool_from_row
from .region_counts import Region, lease_counts

Outcome = Grant | StorageError

_POOL_END = 1 + len(POOL_COLUMNS)  # index of the first result column after the store's time and the pool
_HOLDER = _POOL_END + RESOURCE_COLUMNS.index("holder")

_ACQUIRED = RegionCounts(held=1, acquired=1)
_TAKEN_OVER = RegionCounts(acquired=1, freed=1)
_FREED = RegionCounts(held=-1, freed=1)
_REFUSED = RegionCounts(refused=1)


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


@dataclass(frozen=True, slots=True)
class SingleWrite:
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
        self._dialect, self._peers, self._queues = dialect, peers, FreeQueues()
        # With peers, rows about other stores are written between the resources and the counts. So a transaction needs
        # several statements.
        self._writes = None if peers else lease_writes(dialect)
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
        settled, roaming = _Settled(_unknown(requests, found)), RemoteRequests()
        outcomes = settled.outcomes
        for attempt in range(self._attempts_max):
            left = [index for index in range(len(requests)) if index not in outcomes]
            if not left:
                break
            if attempt:
                keys = sorted((found.pools[requests[index][:2]].key, requests[index].key) for index in left)
                found = found._replace(held=(yield from lease_resources.find_by_holders(keys)))
            yield from self._try(requests, left, found, settled, roaming)
        else:
            if len(outcomes) < len(requests):
                raise RacesLostError(f"resources kept changing during {self._attempts_max} attempts")
        yield from roaming.store_requests()
        if not settled.stored:
            yield from lease_journal.append_events(settled.happened)
            yield from lease_counts.add_counts(settled.counts, self._rng)
        return [outcomes[index] for index in range(len(requests))]

    def plan_single_write(self, requests: Sequence[PoolRequest], found: Findings) -> SingleWrite | None:
        """Return a single statement that does all that `serve_requests` would do, or fails.

        Return None if the dialect has no such statement, or if further rows must be read.
        """
        if self._writes is None or self._clock is not None:
            return None
        settled, now_us = _Settled(_unknown(requests, found)), found.now_us
        left = [index for index in range(len(requests)) if index not in settled.outcomes]
        trying = self._decide(requests, left, found, {}, settled, RemoteRequests())
        places: list[tuple[Region, int, int]] = []
        for region, pool in trying.regions(found):
            partition = self._queues.order_partitions(region, pool.spec.partitions, rng=self._rng, now_us=now_us)[0]
            limit = trying.limit(region, partition)
            if not self._queues.has_remembered(region, partition, limit=limit, now_us=now_us):
                return None
            places.append((region, partition, limit))
        for region, partition, limit in places:
            _give(
                self._queues.take_remembered(region, partition, limit=limit, now_us=now_us),
                requests,
                region,
                trying,
                now_us,
            )
        for decided in trying.decided:
            settled.settle(decided)
        if len(settled.outcomes) < len(requests) or not trying.decided:
            return None
        changes = [one.change for one in trying.decided]
        write = partial(self._writes.write_all, changes, settled.happened, settled.counts, self._rng)
        return SingleWrite(
            write, [settled.outcomes[index] for index in range(len(requests))], [place[0] for place in places], now_us
        )

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
            away = yield from RemoteRequests().find_running([place], {}, now_us)
            if place in away:
                return away[place].grant(now_us)
        raise UnknownLeaseError(f"{key!r} has no lease in this pool")

    def _try(
        self,
        requests: Sequence[PoolRequest],
        left: list[int],
        found: Findings,
        settled: _Settled,
        roaming: RemoteRequests,
    ) -> Program[None]:
        now_us = found.now_us
        keys = [found.key(requests[index]) for index in left]
        away = (yield from roaming.find_running(keys, found.held, now_us)) if self._peers else {}
        trying = self._decide(requests, left, found, away, settled, roaming)
        for region, pool in trying.regions(found):
            yield from self._take(requests, pool, region, trying, now_us, settled)
        written = yield from self._write(trying.decided, settled)
        for decided in trying.decided:
            before = decided.change.before
            if before[:2] in written:
                settled.settle(decided)
            elif before.is_free:
                self._queues.note_lost_race((before.pool_key, before.region), now_us)

    def _decide(
        self,
        requests: Sequence[PoolRequest],
        left: list[int],
        found: Findings,
        away: Mapping[ResourceKey, RemoteLease],
        settled: _Settled,
        roaming: RemoteRequests,
    ) -> _Attempt:
        """Decide the requests that need no free resource, and list the others in `_Attempt.wanted`."""
        now_us, trying = found.now_us, _Attempt()
        for index in left:
            request, key = requests[index], found.key(requests[index])
            row = found.held.get(key)
            if key in away:
                until_us = _expiry(request, now_us) if isinstance(request, LeaseRequest) else 0
                settled.outcomes[index], events = roaming.answer_request(request, away[key], until_us, now_us)
                settled.happened += events
                continue
            if isinstance(request, Release):
                outcome = _given_back(index, request, row, now_us)
            elif row is not None:
                outcome = _kept(index, request, row, now_us)
            elif _expiry(request, now_us) <= now_us:
                outcome = LeaseInPastError(f"the lease of {request.key!r} would already have ended")
            else:
                trying.wanted.setdefault((key[0], request.region), []).append(index)
                continue
            if isinstance(outcome, Decision):
                trying.decide(outcome)
            else:
                settled.outcomes[index] = outcome
        return trying

    def _write(self, decided: Sequence[Decision], settled: _Settled) -> Program[set[ResourceKey]]:
        """Write the decided changes; return the changed resources.

        If all changes are written, `LeaseWrites` also writes journal and counts, in dialects that have it.
        """
        changes = [one.change for one in decided]
        if self._writes is None or not changes:
            return (yield from lease_resources.write_changes(changes))
        whole = settled.copy()
        for one in decided:
            whole.settle(one)
        written = yield from self._writes.write_changes(changes, whole.happened, whole.counts, self._rng)
        settled.stored = len(written) == len(changes)
        return written

    def _take(
        self,
        requests: Sequence[PoolRequest],
        pool: Pool,
        region: Region,
        trying: _Attempt,
        now_us: int,
        settled: _Settled,
    ) -> Program[None]:
        """Give the longest-free resources of a region to the requests that need one."""
        waiting = trying.wanted[region]
        in_turn = self._queues.order_partitions(region, pool.spec.partitions, rng=self._rng, now_us=now_us)
        for partition in (*in_turn, None):
            if not waiting:
                return
            limit = trying.limit(region, partition)
            if partition is not None:
                rows = yield from self._queues.take_front(region, partition, limit=limit, now_us=now_us)
            else:  # no free resource is left: take resources whose lease has expired
                before_us = now_us - self._margin_us
                rows = yield from lease_resources.find_expired(*region, before_us=before_us, limit=limit)
            _give(rows, requests, region, trying, now_us)
        if waiting:
            known = yield from lease_counts.read_counts([pool.key])
            for index in waiting:
                if region not in known:  # a region that does not exist must not get counts
                    settled.outcomes[index] = UnknownRegionError(f"the pool has no region {region[1]!r}")
                    continue
                settled.outcomes[index] = NoResourceError(f"the region {region[1]!r} has no resource left")
                settled.count(region, _REFUSED)


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
        return _findings((yield self._find.bind(asked=sorted({request[:3] for request in requests}))))


lease_findings = LeaseFindings()


def merge_findings(requests: Sequence[PoolRequest], found: Sequence[Findings]) -> Findings:
    """Merge the findings of requests with different keys."""
    pools: dict[tuple[str, str], Pool] = {}
    held: dict[ResourceKey, Resource] = {}
    for request, each in zip(requests, found, strict=True):
        pool = each.pools.get(request[:2])
        if pool is None:
            continue
        pools[pool.name] = pool
        row = each.held.get((pool.key, request.key))
        if row is not None:
            held[pool.key, request.key] = row
    return Findings(max(each.now_us for each in found), pools, held)


def _findings(found: Rows) -> Findings:
    pools: dict[tuple[str, str], Pool] = {}
    held: dict[ResourceKey, Resource] = {}
    for row in found:
        if (row[2], row[3]) not in pools:
            pools[row[2], row[3]] = pool_from_row(row[1:_POOL_END])
        if row[_HOLDER] is not None:
            held[row[1], row[_HOLDER]] = Resource(*row[_POOL_END:])
    return Findings(found[0][0] if found else 0, pools, held)


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on one request. The decision takes effect only if `change` is written."""

    index: int  # index of the request in its group
    change: ResourceChange
    happened: tuple[LeaseEvent, ...]
    counts: RegionCounts
    grant: Grant


@dataclass(slots=True)
class _Attempt:
    decided: list[Decision] = field(default_factory=list)
    wanted: dict[Region, list[int]] = field(default_factory=dict)  # indexes of requests for a new resource
    touched: set[ResourceKey] = field(default_factory=set)  # resources that a decision changes

    def decide(self, decided: Decision) -> None:
        self.decided.append(decided)
        self.touched.add(decided.change.before[:2])

    def regions(self, found: Findings) -> list[tuple[Region, Pool]]:
        """Return the regions where resources are wanted, in the order that all transactions use."""
        by_key = {pool.key: pool for pool in found.pools.values()}
        return [(region, by_key[region[0]]) for region in sorted(self.wanted)]

    def limit(self, region: Region, partition: int | None) -> int:
        """Return how many rows to read from a partition, so that every request that wants a resource gets one."""
        return len(self.wanted[region]) + self._count_reserved(region, partition)

    def _count_reserved(self, region: Region, partition: int | None) -> int:
        """Return how many decisions change a free resource of the partition, or a leased one if `partition` is None."""
        rows = [decided.change.before for decided in self.decided]
        here = [row for row in rows if (row.pool_key, row.region) == region]
        return sum(row.partition == partition if row.is_free else partition is None for row in here)


@dataclass(slots=True)
class _Settled:
    """The outcomes so far, and the events and counts that have to be written for them."""

    outcomes: dict[int, Outcome]
    happened: list[LeaseEvent] = field(default_factory=list)
    counts: dict[Region, RegionCounts] = field(default_factory=dict)
    stored: bool = False  # whether journal and counts are written already

    def copy(self) -> _Settled:
        return _Settled(dict(self.outcomes), list(self.happened), dict(self.counts))

    def settle(self, decided: Decision) -> None:
        self.outcomes[decided.index] = decided.grant
        self.happened.extend(decided.happened)
        after = decided.change.after
        self.count((after.pool_key, after.region), decided.counts)

    def count(self, region: Region, counts: RegionCounts) -> None:
        self.counts[region] = self.counts.get(region, RegionCounts()).plus(counts)


def _unknown(requests: Sequence[PoolRequest], found: Findings) -> dict[int, Outcome]:
    return {
        index: UnknownPoolError(f"the client {request.client_id!r} has no pool {request.pool_id!r}")
        for index, request in enumerate(requests)
        if request[:2] not in found.pools
    }


def _give(
    rows: Sequence[Resource], requests: Sequence[PoolRequest], region: Region, trying: _Attempt, now_us: int
) -> None:
    """Give resources to the requests that want one, except resources that another decision changes."""
    waiting = trying.wanted[region]
    for row in rows:
        if waiting and row[:2] not in trying.touched:
            index = waiting.pop()
            request = requests[index]
            assert isinstance(request, LeaseRequest)
            trying.decide(_taken(index, request, row, now_us))


def _expiry(ask: LeaseRequest, now_us: int) -> int:
    return now_us + ask.lease_us if ask.expires_at_us is None else ask.expires_at_us


def _kept(index: int, ask: LeaseRequest, row: Resource, now_us: int) -> Decision | Outcome:
    """Decide a request of a key that has this resource, or had it last."""
    expires_at_us = max(_expiry(ask, now_us), row.expires_at_us)
    if expires_at_us <= now_us:
        return LeaseInPastError(f"the lease of {ask.key!r} would already have ended")
    if row.is_free:  # the resource was liberated: a new lease begins
        return _taken(index, ask, row, now_us)
    if expires_at_us == row.expires_at_us:
        return row.grant(ask.key, now_us, acquired=False)
    after = row._replace(expires_at_us=expires_at_us)
    happened = (LeaseEvent(LeaseEventKind.EXTENDED, after, ask.key, now_us),)
    given = after.grant(ask.key, now_us, acquired=False)
    return Decision(index, ResourceChange(row, after), happened, RegionCounts(), given)


def _taken(index: int, ask: LeaseRequest, row: Resource, now_us: int) -> Decision:
    """Decide that the key gets this resource, which is free or has an expired lease."""
    expires_at_us = _expiry(ask, now_us)
    after = row._replace(
        holder=ask.key, version=row.version + 1, expires_at_us=expires_at_us, free_since_us=None, acquired_at_us=now_us
    )
    happened = [LeaseEvent(LeaseEventKind.ACQUIRED, after, ask.key, now_us)]
    if not row.is_free:
        freed = row._replace(expires_at_us=GIVEN_BACK, free_since_us=now_us, acquired_at_us=0)
        happened.insert(0, LeaseEvent(LeaseEventKind.LIBERATED, freed, row.holder, now_us))
    counts = _ACQUIRED if row.is_free else _TAKEN_OVER
    return Decision(
        index, ResourceChange(row, after), tuple(happened), counts, after.grant(ask.key, now_us, acquired=True)
    )


def _given_back(index: int, request: Release, row: Resource | None, now_us: int) -> Decision | Outcome:
    if row is None or row.is_free:
        return UnknownLeaseError(f"{request.key!r} has no lease in this pool")
    after = row._replace(holder=None, expires_at_us=GIVEN_BACK, free_since_us=now_us, acquired_at_us=0)
    happened = (LeaseEvent(LeaseEventKind.RELEASED, after, request.key, now_us),)
    given = after.grant(request.key, now_us, acquired=False)
    return Decision(index, ResourceChange(row, after), happened, _FREED, given)

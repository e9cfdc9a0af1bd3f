"""Many keys' requests in one transaction: what each has, gets, keeps for longer or gives back.

    has it, or had it last ──> stays its own, later expiry          nothing there ──> free in a random partition,
                                                                    the next ones, then what is over, then refused

The rule: a request is decided on what was read, and holds if it is written on condition that this is still so; what
another transaction changed meanwhile is read and decided again.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from querybuilder import Built, Dialect

from .claims import GIVEN_BACK, StoreClock, store_clock
from .errors import LeaseInPast, NoResource, RacesLost, StorageError, UnknownLease, UnknownPool, UnknownRegion
from .lease_counts import Region, lease_counts
from .lease_elsewhere import Elsewhere
from .lease_findings import Findings, lease_findings
from .lease_journal import lease_journal
from .lease_lines import LeaseLines
from .lease_pools import lease_pools
from .lease_records import Ask, GiveBack, Given, Happening, Kind, Pool, RegionCounts, Request, Resource
from .lease_resources import Change, Key, lease_resources
from .lease_roaming import Roaming
from .lease_writes import lease_writes
from .store import Program, Store

Outcome = Given | StorageError

_ACQUIRED = RegionCounts(held=1, acquired=1)
_TAKEN_OVER = RegionCounts(acquired=1, freed=1)
_FREED = RegionCounts(held=-1, freed=1)
_REFUSED = RegionCounts(refused=1)


@dataclass(frozen=True, slots=True)
class Decided:
    """What a request comes to if its change can be written."""

    index: int  # of the request
    change: Change
    happened: tuple[Happening, ...]
    counts: RegionCounts
    given: Given


@dataclass(frozen=True, slots=True)
class AtOnce:
    """What becomes of requests if `query` is written."""

    query: Built
    outcomes: list[Outcome]
    regions: list[Region]  # in which it takes free resources
    now_us: int


@dataclass(slots=True)
class _Round:
    """One try of the requests that are still open."""

    decided: list[Decided] = field(default_factory=list)
    wanted: dict[Region, list[int]] = field(default_factory=dict)  # requests that need a new resource
    touched: set[Key] = field(default_factory=set)  # resources that something was decided on

    def decide(self, decided: Decided) -> None:
        """Take it, and leave its resource to it."""
        self.decided.append(decided)
        self.touched.add(decided.change.before[:2])

    def regions(self, found: Findings) -> list[tuple[Region, Pool]]:
        """Where resources are wanted, in the order in which everyone takes them."""
        by_key = {pool.key: pool for pool in found.pools.values()}
        return [(region, by_key[region[0]]) for region in sorted(self.wanted)]

    def limit(self, region: Region, partition: int | None) -> int:
        """How many of a partition to look at, so that enough are there for all who want one."""
        return len(self.wanted[region]) + self._spoken_for(region, partition)

    def _spoken_for(self, region: Region, partition: int | None) -> int:
        """How many of a partition's free resources, or without one of a region's leased ones, are decided on."""
        rows = [decided.change.before for decided in self.decided]
        here = [row for row in rows if (row.pool_key, row.region) == region]
        return sum(row.partition == partition if row.is_free else partition is None for row in here)


class LeaseGroups:
    """Programs over the resources of a store."""

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
        """`clock`: None is the store's own, which needs no statement for itself.

        `margin_us`: how long an expired lease is nobody else's, for a store whose clock may be set, or fail over.

        `peers`: whether keys may lease in other stores too, whose journals are read here.
        """
        self._dialect, self._peers, self._lines = dialect, peers, LeaseLines(dialect)
        self._pools, self._resources = lease_pools(dialect), lease_resources(dialect)
        self._counts, self._journal = lease_counts(dialect), lease_journal(dialect)
        self._findings = lease_findings(dialect)
        self._writes = None if peers else lease_writes(dialect)  # what roams is stored before counts are locked
        self._clock, self._margin_us, self._attempts_max, self._rng = clock, margin_us, attempts_max, rng

    def run(self, requests: Sequence[Request], found: Findings | None = None) -> Program[list[Outcome]]:
        """What becomes of each; of two requests one key is in no more than one.

        `found`: what was found for them before, a round trip less. A key that had nothing then and got something from
        another process since fails the transaction as a lost race, which runs again without.

        Raises:
            RacesLost: resources kept changing.
        """
        found = found or (yield from self._findings.of(requests))
        if self._clock is not None:
            found = found._replace(now_us=(yield from self._clock()))
        settled, roaming = _Settled(_unknown(requests, found)), Roaming(self._dialect)
        outcomes = settled.outcomes
        for attempt in range(self._attempts_max):
            left = [index for index in range(len(requests)) if index not in outcomes]
            if not left:
                break
            if attempt:
                keys = sorted((found.pools[requests[index][:2]].key, requests[index].key) for index in left)
                found = found._replace(held=(yield from self._resources.by_holders(keys)))
            yield from self._try(requests, left, found, settled, roaming)
        else:
            if len(outcomes) < len(requests):
                raise RacesLost(f"resources kept changing during {self._attempts_max} attempts")
        yield from roaming.store()
        if not settled.told:
            yield from self._journal.append(settled.happened)
            yield from self._counts.add(settled.counts, self._rng)
        return [outcomes[index] for index in range(len(requests))]

    def at_once(self, requests: Sequence[Request], found: Findings) -> AtOnce | None:
        """What `run` would do, as one statement that does all of it or fails; see `Store.write_one`.

        None where the store has no such statement, or where more than was found has to be read, as a line's front.
        """
        if self._writes is None or self._clock is not None:
            return None
        settled, now_us = _Settled(_unknown(requests, found)), found.now_us
        left = [index for index in range(len(requests)) if index not in settled.outcomes]
        trying = self._decide(requests, left, found, {}, settled, Roaming(self._dialect))
        places: list[tuple[Region, int, int]] = []
        for region, pool in trying.regions(found):
            partition = self._lines.in_turn(region, pool.spec.partitions, rng=self._rng, now_us=now_us)[0]
            limit = trying.limit(region, partition)
            if not self._lines.reaches(region, partition, limit=limit, now_us=now_us):
                return None
            places.append((region, partition, limit))
        for region, partition, limit in places:
            _give(self._lines.taken(region, partition, limit=limit, now_us=now_us), requests, region, trying, now_us)
        for decided in trying.decided:
            settled.settle(decided)
        if len(settled.outcomes) < len(requests) or not trying.decided:
            return None
        changes = [one.change for one in trying.decided]
        query = self._writes.all_of(changes, settled.happened, settled.counts, self._rng)
        return AtOnce(
            query, [settled.outcomes[index] for index in range(len(requests))], [place[0] for place in places], now_us
        )

    async def look_on(self, store: Store, now_us: int) -> None:
        """See `LeaseLines.look_on`."""
        await self._lines.look_on(store, now_us)

    @property
    def should_look_on(self) -> bool:
        """Whether `look_on` would find something to do."""
        return bool(self._lines.low)

    def lost(self, at_once: AtOnce) -> None:
        """It was not written: somebody else was faster."""
        for region in at_once.regions:
            self._lines.lost(region, at_once.now_us)

    def look(self, client_id: str, pool_id: str, key: str) -> Program[Given]:
        """What a key has in another store, as it is known here.

        Raises:
            UnknownPool, UnknownLease: nothing.
        """
        pool = yield from self._pools.existing(client_id, pool_id)
        if self._peers:
            now_us, place = (yield from (self._clock or store_clock(self._dialect))()), (pool.key, key)
            away = yield from Roaming(self._dialect).running([place], {}, now_us)
            if place in away:
                return away[place].given(now_us)
        raise UnknownLease(f"{key!r} has no lease in this pool")

    def _try(
        self,
        requests: Sequence[Request],
        left: list[int],
        found: Findings,
        settled: _Settled,
        roaming: Roaming,
    ) -> Program[None]:
        now_us = found.now_us
        keys = [found.key(requests[index]) for index in left]
        away = (yield from roaming.running(keys, found.held, now_us)) if self._peers else {}
        trying = self._decide(requests, left, found, away, settled, roaming)
        for region, pool in trying.regions(found):
            yield from self._take(requests, pool, region, trying, now_us, settled)
        written = yield from self._write(trying.decided, settled)
        for decided in trying.decided:
            before = decided.change.before
            if before[:2] in written:
                settled.settle(decided)
            elif before.is_free:
                self._lines.lost((before.pool_key, before.region), now_us)

    def _decide(
        self,
        requests: Sequence[Request],
        left: list[int],
        found: Findings,
        away: Mapping[Key, Elsewhere],
        settled: _Settled,
        roaming: Roaming,
    ) -> _Round:
        """What needs no free resource is decided, or settled; who needs one is wanting."""
        now_us, trying = found.now_us, _Round()
        for index in left:
            request, key = requests[index], found.key(requests[index])
            row = found.held.get(key)
            if key in away:
                until_us = _expiry(request, now_us) if isinstance(request, Ask) else 0
                settled.outcomes[index], told = roaming.answer(request, away[key], until_us, now_us)
                settled.happened += told
                continue
            if isinstance(request, GiveBack):
                outcome = _given_back(index, request, row, now_us)
            elif row is not None:
                outcome = _kept(index, request, row, now_us)
            elif _expiry(request, now_us) <= now_us:
                outcome = LeaseInPast(f"the lease of {request.key!r} would be over already")
            else:
                trying.wanted.setdefault((key[0], request.region), []).append(index)
                continue
            if isinstance(outcome, Decided):
                trying.decide(outcome)
            else:
                settled.outcomes[index] = outcome
        return trying

    def _write(self, decided: Sequence[Decided], settled: _Settled) -> Program[set[Key]]:
        """Change what was decided on, and tell it too if that is all there will be; which were changed."""
        changes = [one.change for one in decided]
        if self._writes is None or not changes:
            return (yield from self._resources.write(changes))
        whole = settled.copy()
        for one in decided:
            whole.settle(one)
        written = yield from self._writes.write(changes, whole.happened, whole.counts, self._rng)
        settled.told = len(written) == len(changes)
        return written

    def _take(
        self,
        requests: Sequence[Request],
        pool: Pool,
        region: Region,
        trying: _Round,
        now_us: int,
        settled: _Settled,
    ) -> Program[None]:
        """Give the longest free resources of a region to those who need one."""
        waiting = trying.wanted[region]
        in_turn = self._lines.in_turn(region, pool.spec.partitions, rng=self._rng, now_us=now_us)
        for partition in (*in_turn, None):
            if not waiting:
                return
            limit = trying.limit(region, partition)
            if partition is not None:
                rows = yield from self._lines.front(region, partition, limit=limit, now_us=now_us)
            else:  # dry: what is over goes straight to who needs it
                before_us = now_us - self._margin_us
                rows = yield from self._resources.expired(*region, before_us=before_us, limit=limit)
            _give(rows, requests, region, trying, now_us)
        if waiting:
            known = yield from self._counts.of_pools([pool.key])
            for index in waiting:
                if region not in known:  # one that a caller made up leaves no trace
                    settled.outcomes[index] = UnknownRegion(f"the pool has no region {region[1]!r}")
                    continue
                settled.outcomes[index] = NoResource(f"the region {region[1]!r} has no resource left")
                settled.count(region, _REFUSED)


@dataclass(slots=True)
class _Settled:
    """What is decided and written."""

    outcomes: dict[int, Outcome]
    happened: list[Happening] = field(default_factory=list)
    counts: dict[Region, RegionCounts] = field(default_factory=dict)
    told: bool = False  # journal and counts have it all

    def copy(self) -> _Settled:
        """As far as it has come."""
        return _Settled(dict(self.outcomes), list(self.happened), dict(self.counts))

    def settle(self, decided: Decided) -> None:
        self.outcomes[decided.index] = decided.given
        self.happened.extend(decided.happened)
        after = decided.change.after
        self.count((after.pool_key, after.region), decided.counts)

    def count(self, region: Region, counts: RegionCounts) -> None:
        self.counts[region] = self.counts.get(region, RegionCounts()).plus(counts)


def _unknown(requests: Sequence[Request], found: Findings) -> dict[int, Outcome]:
    return {
        index: UnknownPool(f"the client {request.client_id!r} has no pool {request.pool_id!r}")
        for index, request in enumerate(requests)
        if request[:2] not in found.pools
    }


def _give(rows: Sequence[Resource], requests: Sequence[Request], region: Region, trying: _Round, now_us: int) -> None:
    """Give resources to those who want one, but those that something was decided on."""
    waiting = trying.wanted[region]
    for row in rows:
        if waiting and row[:2] not in trying.touched:
            index = waiting.pop()
            request = requests[index]
            assert isinstance(request, Ask)
            trying.decide(_taken(index, request, row, now_us))


def _expiry(ask: Ask, now_us: int) -> int:
    return now_us + ask.lease_us if ask.expires_at_us is None else ask.expires_at_us


def _kept(index: int, ask: Ask, row: Resource, now_us: int) -> Decided | Outcome:
    """The key has this one, or had it and nobody else since."""
    expires_at_us = max(_expiry(ask, now_us), row.expires_at_us)
    if expires_at_us <= now_us:
        return LeaseInPast(f"the lease of {ask.key!r} would be over already")
    if row.is_free:  # it was liberated: a new holding
        return _taken(index, ask, row, now_us)
    if expires_at_us == row.expires_at_us:
        return row.given(ask.key, now_us, acquired=False)
    after = row._replace(expires_at_us=expires_at_us)
    happened = (Happening(Kind.EXTENDED, after, ask.key, now_us),)
    given = after.given(ask.key, now_us, acquired=False)
    return Decided(index, Change(row, after), happened, RegionCounts(), given)


def _taken(index: int, ask: Ask, row: Resource, now_us: int) -> Decided:
    """A resource that is free, or whose lease is over, becomes the key's."""
    expires_at_us = _expiry(ask, now_us)
    after = row._replace(
        holder=ask.key, version=row.version + 1, expires_at_us=expires_at_us, free_since_us=None, acquired_at_us=now_us
    )
    happened = [Happening(Kind.ACQUIRED, after, ask.key, now_us)]
    if not row.is_free:
        freed = row._replace(expires_at_us=GIVEN_BACK, free_since_us=now_us, acquired_at_us=0)
        happened.insert(0, Happening(Kind.LIBERATED, freed, row.holder, now_us))
    counts = _ACQUIRED if row.is_free else _TAKEN_OVER
    return Decided(index, Change(row, after), tuple(happened), counts, after.given(ask.key, now_us, acquired=True))


def _given_back(index: int, request: GiveBack, row: Resource | None, now_us: int) -> Decided | Outcome:
    if row is None or row.is_free:
        return UnknownLease(f"{request.key!r} has no lease in this pool")
    after = row._replace(holder=None, expires_at_us=GIVEN_BACK, free_since_us=now_us, acquired_at_us=0)
    happened = (Happening(Kind.RELEASED, after, request.key, now_us),)
    given = after.given(request.key, now_us, acquired=False)
    return Decided(index, Change(row, after), happened, _FREED, given)

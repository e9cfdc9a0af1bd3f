"""What a page of another store's journal changes here: known leases, duplicates, and what keys there ask of ours.

    acquired, extended, released, liberated   what is known of that store's leases
    acquired, and the key has one here too    a duplicate: of two, the one that was given first stays
    wanted, returned                          a key that leases here asked there: it is kept for longer, or given back

The rule: a page is taken in once, with the cursor past it, in one transaction. Nothing is asked of the other store.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from querybuilder import Dialect

from .claims import GIVEN_BACK, StoreClock
from .errors import RacesLost
from .lease_counts import Region, lease_counts
from .lease_elsewhere import Elsewhere, PeerEvent, leases_elsewhere
from .lease_journal import LeaseEvent, lease_journal
from .lease_pools import lease_pools
from .lease_records import Happening, Kind, RegionCounts, Resource
from .lease_resources import Change, Key, lease_resources
from .store import Program

_FREED = RegionCounts(held=-1, freed=1)
_ROW_KINDS = frozenset((Kind.ACQUIRED, Kind.EXTENDED, Kind.RELEASED, Kind.LIBERATED, Kind.WANTED, Kind.RETURNED))


@dataclass(frozen=True, slots=True)
class TakenIn:
    """What became of a page."""

    events: int
    duplicates: int = 0  # found
    released: int = 0  # of them


@dataclass(slots=True)
class _Round:
    """What is decided on resources here, by pool and name; it counts if what changes could be written."""

    changes: dict[Key, Change] = field(default_factory=dict)
    told: list[tuple[Key, Happening]] = field(default_factory=list)
    duplicates: set[Key] = field(default_factory=set)

    def void(self, written: set[Key]) -> set[Key]:
        """Those that somebody else changed meanwhile."""
        return self.changes.keys() - written


class LeaseExchange:
    """Programs of a store that reads others' journals."""

    def __init__(
        self,
        dialect: Dialect,
        clock: StoreClock,
        *,
        store_name: str,
        release_duplicates: bool,
        attempts_max: int,
        rng: random.Random,
    ) -> None:
        """`store_name`: what the others call this store."""
        self._pools, self._resources = lease_pools(dialect), lease_resources(dialect)
        self._elsewhere, self._journal = leases_elsewhere(dialect), lease_journal(dialect)
        self._counts, self._clock = lease_counts(dialect), clock
        self._store_name, self._release = store_name, release_duplicates
        self._attempts_max, self._rng = attempts_max, rng

    def position(self, peer: str) -> Program[int]:
        """How far a peer's journal was read."""
        return (yield from self._elsewhere.cursor(peer))

    def take_in(self, peer: str, page: Sequence[LeaseEvent], *, rows_max: int) -> Program[TakenIn]:
        """Take in what follows `position` of a peer's journal.

        Raises:
            RacesLost: resources kept changing.
        """
        if not page:
            return TakenIn(0)
        now_us = yield from self._clock()
        events = yield from self._of_pools_here(page)
        yield from self._elsewhere.apply(peer, events, position=page[-1].number)
        yield from self._elsewhere.sweep(before_us=now_us, rows_max=rows_max)
        left, duplicates = events, 0
        for _ in range(self._attempts_max):
            trying = yield from self._decide(peer, left, now_us)
            written = yield from self._resources.write(list(trying.changes.values()))
            void = trying.void(written)
            duplicates += len(trying.duplicates - void)
            yield from self._settle(trying, void)
            if not void:
                return TakenIn(len(page), duplicates, duplicates if self._release else 0)
            again = {trying.changes[place].before.holder for place in void}
            left = [event for event in left if event.key in again]
        raise RacesLost(f"resources kept changing during {self._attempts_max} attempts")

    def _of_pools_here(self, page: Sequence[LeaseEvent]) -> Program[list[PeerEvent]]:
        pools = yield from self._pools.by_names([(event.client_id, event.pool_id) for event in page])
        found: list[PeerEvent] = []
        for event in page:
            pool = pools.get((event.client_id, event.pool_id))
            if pool is not None and event.key is not None and event.kind in _ROW_KINDS:
                found.append(
                    PeerEvent(
                        Kind(event.kind), pool.key, event.key, event.resource, event.region, event.version,
                        event.at_us, event.expires_at_us,
                    )
                )  # fmt: skip
        return found

    def _decide(self, peer: str, events: Sequence[PeerEvent], now_us: int) -> Program[_Round]:
        ours = yield from self._resources.by_holders(sorted({(event.pool_key, event.key) for event in events}))
        theirs = yield from self._elsewhere.by_keys(sorted(ours))
        trying = _Round()
        after = dict(ours)
        for event in events:
            key = (event.pool_key, event.key)
            row = after.get(key)
            if row is None or row.is_free:
                continue
            named = (event.resource, event.version) == (row.resource, row.version)
            kinds: tuple[Kind, ...] = ()
            if event.kind is Kind.WANTED and named and event.expires_at_us > row.expires_at_us:
                row, kinds = row._replace(expires_at_us=event.expires_at_us), (Kind.EXTENDED,)
            elif event.kind is Kind.RETURNED and named:
                row, kinds = _free(row, now_us), (Kind.RELEASED,)
            elif event.kind is Kind.ACQUIRED and self._comes_second(row, theirs.get(key, ()), peer, event, now_us):
                trying.duplicates.add(row[:2])
                kinds = (Kind.DUPLICATE, Kind.RELEASED) if self._release else (Kind.DUPLICATE,)
                row = _free(row, now_us) if self._release else row
            trying.told += [(row[:2], Happening(kind, row, event.key, now_us)) for kind in kinds]
            after[key] = row
        trying.changes = {row[:2]: Change(ours[key], row) for key, row in after.items() if row != ours[key]}
        return trying

    def _comes_second(
        self, row: Resource, theirs: Sequence[Elsewhere], peer: str, event: PeerEvent, now_us: int
    ) -> bool:
        """Whether the key's lease there runs, as the one here does, and was given before it."""
        runs_there = any(
            one.peer == peer and one.version == event.version and one.expires_at_us > now_us for one in theirs
        )
        if not runs_there or row.expires_at_us <= now_us:
            return False
        return (event.at_us, peer) < (row.acquired_at_us, self._store_name)

    def _settle(self, trying: _Round, void: set[Key]) -> Program[None]:
        counts: dict[Region, RegionCounts] = {}
        for place, change in trying.changes.items():
            if place not in void and change.after.is_free:
                region = (change.after.pool_key, change.after.region)
                counts[region] = counts.get(region, RegionCounts()).plus(_FREED)
        yield from self._journal.append([happened for place, happened in trying.told if place not in void])
        yield from self._counts.add(counts, self._rng)


def _free(row: Resource, now_us: int) -> Resource:
    return row._replace(holder=None, expires_at_us=GIVEN_BACK, free_since_us=now_us, acquired_at_us=0)

"""Applies a page of another store's journal in this store.

Each kind of event has its own effect:

- acquired, extended, released, liberated: the stored leases of the other store are updated.
- acquired, and the key has a lease here that was acquired later: the lease here is reported as a duplicate. It is freed
  if `release_duplicates` is set.
- wanted, returned: a key with a lease here sent its request to the other store. The lease here is extended or freed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from storage.errors import RacesLostError
from storage.leases.claims import StoreClock
from storage.leases.lease_journal import PublishedLeaseEvent
from storage.leases.lease_records import LeaseEvent, LeaseEventKind, Resource, ResourceChange
from storage.leases.lease_resources import ResourceKey, lease_resources
from storage.leases.pools import lease_pools
from storage.store import Program

from .elsewhere import PeerEvent, RemoteLease, remote_leases

_ROW_KINDS = frozenset(
    (
        LeaseEventKind.ACQUIRED,
        LeaseEventKind.EXTENDED,
        LeaseEventKind.RELEASED,
        LeaseEventKind.LIBERATED,
        LeaseEventKind.WANTED,
        LeaseEventKind.RETURNED,
    )
)


@dataclass(frozen=True, slots=True)
class AppliedPage:
    events: int  # number of events on the page
    duplicates: int = 0  # leases here whose key acquired a lease in the other store earlier
    released: int = 0  # duplicates whose resource here was freed


@dataclass(slots=True)
class _Attempt:
    """The decisions of one attempt to apply a page. A decision takes effect only if its change is written."""

    changes: dict[ResourceKey, ResourceChange] = field(default_factory=dict)
    events: list[tuple[ResourceKey, LeaseEvent]] = field(default_factory=list)
    duplicates: set[ResourceKey] = field(default_factory=set)


class LeaseExchange:
    def __init__(
        self, clock: StoreClock, *, store_name: str, release_duplicates: bool, attempts_max: int, rng: random.Random
    ) -> None:
        """Make the programs. The other stores know this store by `store_name`."""
        self._clock = clock
        self._store_name, self._release = store_name, release_duplicates
        self._attempts_max, self._rng = attempts_max, rng

    def read_cursor(self, peer: str) -> Program[int]:
        """Return the number of the last event that was read from a peer's journal; 0 before the first."""
        return (yield from remote_leases.read_cursor(peer))

    def apply_page(self, peer: str, page: Sequence[PublishedLeaseEvent], *, rows_max: int) -> Program[AppliedPage]:
        """Apply the page of a peer's journal that begins after the event at `read_cursor`.

        Raises:
            RacesLostError: resources kept changing.
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
                return AppliedPage(len(page), duplicates, duplicates if self._release else 0)
            again = {trying.changes[place].before.holder for place in void}
            left = [event for event in left if event.key in again]
        raise RacesLostError(f"resources kept changing during {self._attempts_max} attempts")

    def _of_pools_here(self, page: Sequence[PublishedLeaseEvent]) -> Program[list[PeerEvent]]:
        pools = yield from lease_pools.find_by_names([(event.client_id, event.pool_id) for event in page])
        found: list[PeerEvent] = []
        for event in page:
            pool = pools.get((event.client_id, event.pool_id))
            if pool is not None and event.key is not None and event.kind in _ROW_KINDS:
                found.append(
                    PeerEvent(
                        LeaseEventKind(event.kind), pool.key, event.key, event.resource, event.region, event.version,
                        event.at_us, event.expires_at_us,
                    )
                )  # fmt: skip
        return found

    def _decide(self, peer: str, events: Sequence[PeerEvent], now_us: int) -> Program[_Attempt]:
        ours = yield from lease_resources.find_by_holders(sorted({(event.pool_key, event.key) for event in events}))
        theirs = yield from remote_leases.find_by_keys(sorted(ours))
        trying = _Attempt()
        after = dict(ours)
        for event in events:
            key = (event.pool_key, event.key)
            row = after.get(key)
            if row is None or row.is_free:
                continue
            named = (event.resource, event.version) == (row.resource, row.version)
            if event.kind is LeaseEventKind.WANTED and named and event.expires_at_us > row.expires_at_us:
                row = row._replace(expires_at_us=event.expires_at_us)
            elif event.kind is LeaseEventKind.RETURNED and named:
                row = row.release(now_us)
            elif event.kind is LeaseEventKind.ACQUIRED and self._comes_second(
                row, theirs.get(key, ()), peer, event, now_us
            ):
                trying.duplicates.add(row[:2])
                row = row.release(now_us) if self._release else row
                trying.events.append((row[:2], LeaseEvent(LeaseEventKind.DUPLICATE, row, event.key, now_us)))
            trying.events += [(row[:2], one) for one in ResourceChange(after[key], row).find_events(now_us)]
            after[key] = row
        trying.changes = {row[:2]: ResourceChange(ours[key], row) for key, row in after.items() if row != ours[key]}
        return trying

    def _comes_second(
        self, row: Resource, theirs: Sequence[RemoteLease], peer: str, event: PeerEvent, now_us: int
    ) -> bool:
        """Return whether the key has running leases in both stores, and acquired the one in the other store first."""
        runs_there = any(
            one.peer == peer and one.version == event.version and one.expires_at_us > now_us for one in theirs
        )
        if not runs_there or row.expires_at_us <= now_us:
            return False
        return (event.at_us, peer) < (row.acquired_at_us, self._store_name)

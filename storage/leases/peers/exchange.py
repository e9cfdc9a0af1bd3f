"""Applies pages of the lease journals of other stores (peers) in this store, for `jobs.leases.peers`.

Each kind of event has its own effect:

- acquired, extended, released, liberated: the stored leases of the other store are updated.
- acquired, although the key has a lease here: if the lease here began later, it is reported as a duplicate and ended.
- wanted, returned: a key with a lease here made a request to the other store. The lease here is extended or ended.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

from storage.errors import RacesLostError
from storage.leases.claims import StoreClock
from storage.leases.lease_journal import PublishedLeaseEvent
from storage.leases.lease_records import LeaseEvent, LeaseEventKind, Resource, ResourceChange
from storage.leases.lease_resources import ResourceKey, lease_resources
from storage.leases.pools import lease_pools
from storage.store import Program

from .elsewhere import KeyEvent, RemoteLease, remote_leases


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
        """Return ((pool key here, lease key), event) for each event about a key whose pool exists here."""
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
        """Return whether the key has running leases in both stores, and acquired the one in the other store first."""
        runs_there = any(
            one.peer == peer and one.version == event.version and one.expires_at_us > now_us for one in theirs
        )
        if not runs_there or row.expires_at_us <= now_us:
            return False
        return (event.at_us, peer) < (row.acquired_at_us, self._store_name)

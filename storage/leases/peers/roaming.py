"""Answers keys whose lease is in another store, and passes their requests on to that store.

The answer is the last lease that the journal of that store reported for the key. If a key has leases in several other
stores, the answer is the lease that was acquired first. The request goes into this store's journal, which the other
store reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from storage.leases.lease_records import Grant, LeaseEvent, LeaseEventKind, PoolRequest, Release, Resource
from storage.leases.lease_resources import ResourceKey
from storage.store import Program

from .elsewhere import RemoteLease, remote_leases


@dataclass(slots=True)
class RemoteRequests:
    """The requests of one transaction about leases in other stores."""

    _asked: list[RemoteLease] = field(default_factory=list)
    _returned: list[RemoteLease] = field(default_factory=list)

    def find_running(
        self, keys: Iterable[ResourceKey], here: Mapping[ResourceKey, Resource], now_us: int
    ) -> Program[dict[ResourceKey, RemoteLease]]:
        """Return the leases that run in other stores, for those keys that have no running lease here."""
        away = [key for key in keys if key not in here or here[key].is_free or here[key].expires_at_us <= now_us]
        if not away:
            return {}
        found = yield from remote_leases.find_by_keys(sorted(away))
        running = {key: [one for one in leases if one.expires_at_us > now_us] for key, leases in found.items()}
        return {key: min(leases, key=_given_at) for key, leases in running.items() if leases}

    def answer_request(self, request: PoolRequest, lease: RemoteLease, now_us: int) -> tuple[Grant, list[LeaseEvent]]:
        """Return the lease as the answer to the key, and the events that the other store will read."""
        given = lease.grant(now_us)
        if isinstance(request, Release):
            self._returned.append(lease)
            return given, [_event_about(LeaseEventKind.RETURNED, lease, lease.expires_at_us, now_us)]
        expires_at_us = request.until_us(now_us)
        if expires_at_us <= max(lease.expires_at_us, lease.wanted_until_us):
            return given, []
        self._asked.append(lease._replace(wanted_until_us=expires_at_us))
        return given, [_event_about(LeaseEventKind.WANTED, lease, expires_at_us, now_us)]

    def store_requests(self) -> Program[None]:
        """Store the requested expiries, so that each is requested only once, and delete the returned leases."""
        yield from remote_leases.store_leases(self._asked)
        for lease in self._returned:
            yield from remote_leases.delete_lease(lease.pool_key, lease.key, lease.peer)


def _given_at(lease: RemoteLease) -> tuple[int, str]:
    return lease.acquired_at_us, lease.peer


def _event_about(kind: LeaseEventKind, lease: RemoteLease, expires_at_us: int, now_us: int) -> LeaseEvent:
    row = Resource(lease.pool_key, lease.resource, lease.region, 0, lease.key, lease.version, expires_at_us, None)
    return LeaseEvent(kind, row, lease.key, now_us)

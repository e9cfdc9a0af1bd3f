"""Records for pools, resources, requests and events. `Resource.lease_to` is where a resource's version grows.

Times are microseconds since 1970 by the store's clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from .work_leases import GIVEN_BACK


@dataclass(frozen=True, slots=True)
class Pool:
    key: int  # the number of the pool in this store, never used again for another pool
    client_id: str
    pool_id: str
    created_at_us: int
    # An added resource starts with this version. It is greater than the versions of all removed resources, because a
    # removed resource may be added again.
    floor: int = 0

    @property
    def name(self) -> tuple[str, str]:
        return self.client_id, self.pool_id


class LeaseRequest(NamedTuple):
    client_id: str
    pool_id: str
    key: str
    region: str  # the region that a new resource is taken from
    expires_at_us: int | None = None  # the requested expiry; None: `lease_us` from now
    lease_us: int = 0  # how long the lease lasts if no expiry is requested

    def until_us(self, now_us: int) -> int:
        return now_us + self.lease_us if self.expires_at_us is None else self.expires_at_us


class Release(NamedTuple):
    client_id: str
    pool_id: str
    key: str


PoolRequest = LeaseRequest | Release


class Grant(NamedTuple):
    resource: str
    region: str
    key: str
    version: int  # the fencing number: every new lease of the resource has a greater one
    expires_at_us: int
    now_us: int  # the store's time when the answer was made
    acquired: bool  # whether this request acquired the lease


class Resource(NamedTuple):
    """A pool's resource, as stored in its row. `LeaseResources.write_changes` writes all fields of a row together."""

    pool_key: int
    resource: str
    region: str
    # The key that leases the resource, or leased it last before it was liberated. That last key gets the resource back
    # if it asks before another key acquires the resource.
    holder: str | None
    version: int
    expires_at_us: int
    free_since_us: int | None  # None: leased, and after the expiry still leased until the resource is liberated
    acquired_at_us: int = 0  # when the holder acquired the resource; 0: the resource is free

    @property
    def is_free(self) -> bool:
        """Tell whether no key leases the resource. An expired lease still counts until the resource is liberated."""
        return self.free_since_us is not None

    def grant(self, key: str, now_us: int, *, acquired: bool) -> Grant:
        return Grant(self.resource, self.region, key, self.version, self.expires_at_us, now_us, acquired)

    def lease_to(self, request: LeaseRequest, now_us: int) -> Resource:
        leased = self._replace(holder=request.key, version=self.version + 1, expires_at_us=request.until_us(now_us))
        return leased._replace(free_since_us=None, acquired_at_us=now_us)

    def liberate(self, now_us: int) -> Resource:
        """End the resource's lease, but remember the key, which may still get the same resource again."""
        return self._replace(expires_at_us=GIVEN_BACK, free_since_us=now_us, acquired_at_us=0)

    def release(self, now_us: int) -> Resource:
        """Free the resource because its key released it, and forget the key, which has no further right to it."""
        return self.liberate(now_us)._replace(holder=None)

    def move(self, region: str, now_us: int) -> Resource:
        """Move the resource to another region, which ends its lease and gives it a new version."""
        free = self if self.is_free else self.liberate(now_us)
        return free._replace(region=region, version=self.version + 1)


class LeaseEventKind(StrEnum):
    ADDED = "added"
    REMOVED = "removed"
    ACQUIRED = "acquired"
    EXTENDED = "extended"
    RELEASED = "released"
    LIBERATED = "liberated"
    MOVED = "moved"
    # Kinds of events about a key that has a lease in another store:
    WANTED = "wanted"  # tells the other store that the key wants its resource until the expiry in the event
    RETURNED = "returned"  # tells the other store that the key gives its resource back
    DUPLICATE = "duplicate"  # the key also got a resource in this store, later than in the other store


class LeaseEvent(NamedTuple):
    kind: LeaseEventKind
    row: Resource  # the resource as it is after the event
    holder: str | None  # the key whose lease changes in the event
    at_us: int
    left: str | None = None  # the region that a moved resource left, for the counts; not stored in the journal


class ResourceChange(NamedTuple):
    before: Resource
    after: Resource

    def find_events(self, now_us: int) -> list[LeaseEvent]:
        """Find the events of this change, in the order in which they happen."""
        before, after = self
        is_new = after.version > before.version
        events: list[LeaseEvent] = []
        if not before.is_free and (after.is_free or is_new):
            ended = LeaseEventKind.RELEASED if after.holder is None else LeaseEventKind.LIBERATED
            events.append(LeaseEvent(ended, before.liberate(now_us), before.holder, now_us))
        if after.region != before.region:
            events.append(LeaseEvent(LeaseEventKind.MOVED, after, None, now_us, before.region))
        elif not after.is_free and after != before:
            kind = LeaseEventKind.ACQUIRED if is_new else LeaseEventKind.EXTENDED
            events.append(LeaseEvent(kind, after, after.holder, now_us))
        return events


class RegionCounts(NamedTuple):
    total: int = 0  # resources of the region
    held: int = 0  # leased resources, even if the lease expired
    acquired: int = 0  # leases acquired since the pool was created
    refused: int = 0  # requests refused since the pool was created, because no resource was left

    def plus(self, other: RegionCounts) -> RegionCounts:
        return RegionCounts(*(one + two for one, two in zip(self, other, strict=True)))

"""The records of pools: pools, resources, requests, grants and journal rows.

Times are microseconds since 1970 by the store's clock. The name of a resource is opaque: no code here interprets it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import msgspec


class PoolSpec(msgspec.Struct, frozen=True):
    """What an operator sets for a pool."""

    partitions: int  # in each region


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool of resources."""

    key: int  # never used again for another pool
    client_id: str
    pool_id: str
    spec: PoolSpec
    created_at_us: int
    floor: int = 0  # the version at which added resources start: one that comes back must exceed its earlier versions

    @property
    def name(self) -> tuple[str, str]:
        """Return the client id and pool id, by which callers name the pool."""
        return self.client_id, self.pool_id


class LeaseRequest(NamedTuple):
    """A key asks for a resource, or asks to keep its present one for longer."""

    client_id: str
    pool_id: str
    key: str
    region: str  # where a new resource is taken from
    expires_at_us: int | None = None  # the requested end; None: `lease_us` from now
    lease_us: int = 0


class Release(NamedTuple):
    """A key gives its resource back."""

    client_id: str
    pool_id: str
    key: str


PoolRequest = LeaseRequest | Release


class Grant(NamedTuple):
    """The lease that a key has, as the caller is told."""

    resource: str
    region: str
    key: str
    version: int  # the fencing number
    expires_at_us: int
    now_us: int  # the store's time of this answer
    acquired: bool  # whether this request acquired it


class Resource(NamedTuple):
    """A resource as it is stored. Conditional writes change it as a whole, see `Claims.write_changes`."""

    pool_key: int
    resource: str
    region: str
    partition: int
    holder: str | None  # of a free one: the key that had it last, which gets it back until another key acquires it
    version: int
    expires_at_us: int
    free_since_us: int | None  # None: leased, even if expired
    acquired_at_us: int = 0  # 0: free

    @property
    def is_free(self) -> bool:
        """Return whether no key leases it. An expired lease is not free until it is liberated."""
        return self.free_since_us is not None

    def grant(self, key: str, now_us: int, *, acquired: bool) -> Grant:
        """Return the answer for the key that has this resource."""
        return Grant(self.resource, self.region, key, self.version, self.expires_at_us, now_us, acquired)


class LeaseEventKind(StrEnum):
    """What happened to a resource, in the words of the journal."""

    ADDED = "added"
    REMOVED = "removed"
    ACQUIRED = "acquired"
    EXTENDED = "extended"
    RELEASED = "released"
    LIBERATED = "liberated"
    MOVED = "moved"
    # About a key that leases in another store:
    WANTED = "wanted"  # that store reads: the key asks to keep its resource until the row's expiry
    RETURNED = "returned"  # that store reads: the key gives its resource back
    DUPLICATE = "duplicate"  # the key also got a resource here, later than the one there


class LeaseEvent(NamedTuple):
    """An event for the journal of leases, before it has a number."""

    kind: LeaseEventKind
    row: Resource  # as it is after the event
    holder: str | None  # the key whose lease it is about
    at_us: int


class RegionCounts(NamedTuple):
    """The counts of one region of a pool, or changes to them."""

    total: int = 0
    held: int = 0  # leased, even if expired
    acquired: int = 0  # ever, like the next two
    freed: int = 0  # released or liberated
    refused: int = 0

    def plus(self, other: RegionCounts) -> RegionCounts:
        """Return the sum of both."""
        return RegionCounts(*(one + two for one, two in zip(self, other, strict=True)))

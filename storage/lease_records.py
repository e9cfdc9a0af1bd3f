"""What pools of resources are made of.

The rule: times are microseconds since 1970 by the store's clock. A resource is opaque: nobody here looks into it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import msgspec


class PoolSpec(msgspec.Struct, frozen=True):
    """What an operator says of a pool."""

    partitions: int  # of each region


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool of resources."""

    key: int  # never given twice
    client_id: str
    pool_id: str
    spec: PoolSpec
    created_at_us: int
    floor: int = 0  # versions of resources that come again have to be greater than those they had

    @property
    def name(self) -> tuple[str, str]:
        """What callers know it by."""
        return self.client_id, self.pool_id


class Ask(NamedTuple):
    """A key asks for a resource, or for the one that it has to stay its own for longer."""

    client_id: str
    pool_id: str
    key: str
    region: str  # where a new one is taken
    expires_at_us: int | None = None  # either this
    lease_us: int = 0  # or that long from now


class GiveBack(NamedTuple):
    """A key gives its resource back."""

    client_id: str
    pool_id: str
    key: str


Request = Ask | GiveBack


class Given(NamedTuple):
    """What a key has."""

    resource: str
    region: str
    key: str
    version: int  # the fencing number
    expires_at_us: int
    now_us: int  # the store's time of this answer
    acquired: bool  # newly, by this request


class Resource(NamedTuple):
    """A resource as it is stored: the document that conditional writes change."""

    pool_key: int
    resource: str
    region: str
    partition: int
    holder: str | None  # of a free one: who had it last, and gets it again unless it is given away before
    version: int
    expires_at_us: int
    free_since_us: int | None  # None: leased, be it over
    acquired_at_us: int = 0  # 0: free

    @property
    def is_free(self) -> bool:
        """Whether it waits to be given away."""
        return self.free_since_us is not None

    def given(self, key: str, now_us: int, *, acquired: bool) -> Given:
        """What a key is told of it."""
        return Given(self.resource, self.region, key, self.version, self.expires_at_us, now_us, acquired)


class Kind(StrEnum):
    """What happened to a resource, as the journal says it."""

    ADDED = "added"
    REMOVED = "removed"
    ACQUIRED = "acquired"
    EXTENDED = "extended"
    RELEASED = "released"
    LIBERATED = "liberated"
    MOVED = "moved"
    # Of a key that leases in another store, for that store to read:
    WANTED = "wanted"  # it asks to keep its resource until then
    RETURNED = "returned"  # it gives its resource back
    DUPLICATE = "duplicate"  # it has got another one here, after that one


class Happening(NamedTuple):
    """A row of the journal of leases as its writer hands it over; the resource as it is afterwards."""

    kind: Kind
    row: Resource
    holder: str | None  # whose lease it is about
    at_us: int


class RegionCounts(NamedTuple):
    """A region of a pool, or what changes in it."""

    total: int = 0
    held: int = 0  # leased, be it over
    acquired: int = 0  # so far, as the next two
    freed: int = 0  # released or liberated
    refused: int = 0

    def plus(self, other: RegionCounts) -> RegionCounts:
        """Both together."""
        return RegionCounts(*(one + two for one, two in zip(self, other, strict=True)))

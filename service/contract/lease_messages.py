"""The types of requests and answers about pools and leases, for the parser and the OpenAPI document."""

import unicodedata
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from .problems import ProblemError, clip_text
from .queries import ListQuery
from .requests import Instant, Reason, at_most, normalised
from .values import (
    NO_NUL_PATTERN,
    REGION_PATTERN,
    Time,
    matching,
    parse_name,
)

CLIENT_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._:=,@+-]{0,127}$"  # the id of a client or of a pool
LEASE_KEY_CHARS_MAX = 200
RESOURCE_CHARS_MAX = 500

ClientId = Annotated[str, matching(CLIENT_PATTERN)]
PoolId = Annotated[str, matching(CLIENT_PATTERN)]
RegionName = Annotated[str, matching(REGION_PATTERN)]
LeaseKey = Annotated[str, normalised(LEASE_KEY_CHARS_MAX)]
ResourceText = Annotated[
    str,
    Meta(
        description=f"Opaque: 1 to {RESOURCE_CHARS_MAX} characters without NUL, given out exactly as they were added.",
        extra_json_schema={"minLength": 1, "maxLength": RESOURCE_CHARS_MAX, "pattern": NO_NUL_PATTERN},
    ),
]


class AddResources(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Resources to add to a region of a pool. A resource that the pool already has stays in its region."""

    region: RegionName
    resources: Annotated[list[ResourceText], Meta(min_length=1), at_most("lease_resources_per_request_max")]
    reason: Reason | None = None


class RemoveResources(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Resources to remove from a pool."""

    resources: Annotated[list[ResourceText], Meta(min_length=1), at_most("lease_resources_per_request_max")]
    reason: Reason | None = None


class AskLease(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A request to lease a resource for a key, or to extend the lease that the key already has.

    Send either `lease_expires`, the time when the lease ends, or `lease_seconds`, how long it lasts, but not both.
    """

    client_id: ClientId
    pool_id: PoolId
    key: LeaseKey
    region: RegionName
    lease_expires: Instant | UnsetType = UNSET
    lease_seconds: Annotated[float, Meta(gt=0, extra_json_schema={"maximum": "lease_s_max"})] | UnsetType = UNSET


class PoolsQuery(ListQuery, frozen=True, forbid_unknown_fields=True):
    client_id: ClientId | None = None


class LeaseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A key's lease of a resource. `version` is a fencing number: later holders of the resource have greater ones."""

    resource: str
    key: str
    lease_expires: Time
    expires_in: float
    """Seconds that were left when the store read the lease."""
    version: int
    acquired: bool
    """True if this request took the resource; false if the key had it already."""
    region: str


class RegionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of resources in one region of a pool: all resources, leased resources and available resources."""

    total: int
    leased: int
    """Resources with a running lease. Those whose lease is over count as available."""
    available: int
    headroom: int | None
    """Forecast of the resources available `headroom_seconds` from now; null before it was measured."""


class PoolAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A pool. Lists of pools leave out `regions` and `headroom_seconds`; the answer about a single pool has them."""

    client_id: str
    pool_id: str
    created_at: Time
    headroom_seconds: float | UnsetType = UNSET
    regions: dict[str, RegionAnswer] | UnsetType = UNSET


class PoolList(msgspec.Struct, frozen=True):
    """A page of pools by client id and pool id. `next` is the next page's cursor; null on the last page."""

    pools: list[PoolAnswer]
    next: str | None


class AddedResources(msgspec.Struct, frozen=True):
    """The result of adding resources: how many are new (`added`), and how many the pool already had (`known`)."""

    added: int
    known: int


class RemovedResources(msgspec.Struct, frozen=True):
    """Counts the resources of a request that were removed, that stay because they are leased, and that are unknown.

    A leased resource can be removed once its key has returned it, or once its lease has ended and the service has
    liberated it.
    """

    removed: int
    leased: int
    unknown: int


class ResourceAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A resource of a pool, with the key that leases it. `key` and `lease_expires` are null if the resource is free."""

    resource: str
    region: str
    version: int
    key: str | None
    lease_expires: Time | None


class ResourceList(msgspec.Struct, frozen=True):
    """A page of resources by name. `next` is the cursor of the next page; null on the last page."""

    resources: list[ResourceAnswer]
    next: str | None


class LeaseEventLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the lease journal: one event of one resource, for example that a key acquired the resource."""

    seq: int
    at: Time
    kind: str
    client_id: str
    pool_id: str
    resource: str
    key: str | None
    region: str
    version: int
    lease_expires: Time | None


def parse_lease_key(text: str, *, pointer: str = "key") -> str:
    return parse_name(text, "a key", LEASE_KEY_CHARS_MAX, pointer)


def parse_resource(text: str, *, pointer: str) -> str:
    """Check the text of a resource and return it unchanged.

    Raises ProblemError `bad_request` if the text is empty or too long, or contains NUL or a surrogate.
    """
    surrogates = not text.isascii() and any(unicodedata.category(char) == "Cs" for char in text)
    if 0 < len(text) <= RESOURCE_CHARS_MAX and "\0" not in text and not surrogates:
        return text
    detail = f"a resource is 1 to {RESOURCE_CHARS_MAX} characters without NUL, not {clip_text(text)!r}"
    raise ProblemError("bad_request", detail, pointer=pointer)

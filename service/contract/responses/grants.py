"""The types of the answers about rewards and grants."""

from typing import Annotated

import msgspec
from msgspec import Meta, Raw

from service.contract.values import Time


class ExpectedGrant(msgspec.Struct, frozen=True, kw_only=True):
    """A reward that an owner would get if the leaderboard closed now. `data` comes from the reward."""

    owner: str
    reward: str
    rank: int
    data: Annotated[Raw, Meta(extra_json_schema={"type": "object"})]


class RewardPreview(msgspec.Struct, frozen=True):
    """A page of the grants that would be made now, by reward and rank. `next` is null on the last page.

    A page can be short or empty and still have a `next`, because owners who get only one reward are left out of others.
    """

    board: str
    grants: list[ExpectedGrant]
    next: str | None


class GrantAnswer(ExpectedGrant, frozen=True, kw_only=True):
    """A reward that an owner has got. `rank` is the owner's rank when the leaderboard closed.

    `id` is unique and never changes. `claimed_at` is null until the grant is claimed.
    """

    id: str
    board: str
    claimed_at: Time | None


class ClaimedGrant(GrantAnswer, frozen=True, kw_only=True):
    """A claimed grant. `first` is true only in the answer to the request that claimed it."""

    first: bool


class BoardGrants(msgspec.Struct, frozen=True):
    """A page of the grants of a leaderboard, by reward and rank. `next` is null on the last page.

    `made` is true once the leaderboard has closed and all its grants are made.
    """

    board: str
    made: bool
    grants: list[GrantAnswer]
    next: str | None


class OwnerGrants(msgspec.Struct, frozen=True):
    """A page of an owner's grants, newest leaderboard first. `next` is null on the last page."""

    owner: str
    grants: list[GrantAnswer]
    next: str | None

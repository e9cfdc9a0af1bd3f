"""The types of the answers about the acts of operators, and about hidden owners."""

from typing import Annotated

import msgspec
from msgspec import Meta, Raw

from service.contract.values import Time
from storage.boards.acts import ActName


class ActAnswer(msgspec.Struct, frozen=True):
    """An act of an operator, and its reason.

    `key` is the id of the operator's API key; null if the service had no keys. `owner` and `board` say whom and which
    leaderboard the act concerns, and `detail` names anything else, such as a family or a post. If the owner was erased
    later, the act has no owner and no detail.
    """

    id: str
    at: Time
    act: ActName
    key: str | None
    owner: str | None
    board: str | None
    reason: str | None
    detail: Annotated[Raw, Meta(extra_json_schema={"type": "object"})] | None


class ActList(msgspec.Struct, frozen=True):
    """A page of acts, the newest first. `next` is null on the last page."""

    acts: list[ActAnswer]
    next: str | None


class HiddenOwner(msgspec.Struct, frozen=True):
    """An owner who has been hidden since the time `since`. `key` is as in an act.

    If `shadow` is true, the owner does not notice, because answers about the owner continue as if it were ranked.
    """

    owner: str
    since: Time
    key: str | None
    reason: str | None
    shadow: bool


class HiddenList(msgspec.Struct, frozen=True):
    """A page of hidden owners, by name. `next` is null on the last page."""

    owners: list[HiddenOwner]
    next: str | None

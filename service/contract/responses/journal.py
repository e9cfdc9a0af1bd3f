"""The answers about the journal, an owner's posts, the events of streams, and profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from service.contract.problems import ProblemDocument
from service.contract.values import Number, json_text_of

from .boards import ProfileObject, RankedEntry, Stats, StatusName
from .curves import Time

JournalKind = Literal["post", "erase", "hide", "show", "reset", "delete", "erased"]


class JournalLine(msgspec.Struct):
    """A line of the journal: a post, or a change of an owner or a board.

    `stored` holds what an applied post left in the row. `error` says why a queued post was rejected when it was its
    turn. Once the owner is erased, `owner` is null and the members after `accepted_at` are missing. `board` is null if
    the leaderboard was deleted long ago.
    """

    seq: int
    kind: JournalKind
    board: str | None
    owner: str | None
    accepted_at: Time
    status: StatusName | UnsetType = UNSET
    stats: Stats | UnsetType = UNSET
    set: Stats | UnsetType = UNSET
    post_id: str | UnsetType = UNSET
    at: Time | UnsetType = UNSET
    stored: Stats | UnsetType = UNSET
    error: ProblemDocument | UnsetType = UNSET


class OwnerPosts(msgspec.Struct):
    """An owner's posts, the newest first. `next` is the `before` of the next page; null if no older posts are kept."""

    owner: str
    posts: list[JournalLine]
    next: int | None


class TopEvent(msgspec.Struct):
    """The data of an event `top`: the current best rows."""

    column: str
    total: int
    entries: list[RankedEntry]


class OwnerEvent(msgspec.Struct):
    """The data of an event `position`: where the owner stands now. All of it is null if the owner is no longer ranked.

    `overtaken_by` has up to ten owners who overtook this one since the previous event. `previous_rank` is the rank of
    that event.
    """

    owner: str
    column: str
    value: Number | None
    rank: int | None
    total: int
    percentile: float | None
    previous_rank: int | None
    overtaken_by: list[str]


class ResetEvent(msgspec.Struct, forbid_unknown_fields=True):
    """The data of an event `reset`: the last event that the client has seen is too old to continue from."""


if TYPE_CHECKING:
    EventData: TypeAlias = str
else:
    EventData = json_text_of(TopEvent, OwnerEvent, ResetEvent)


class StreamEvent(msgspec.Struct):
    """An event of a stream."""

    event: Literal["top", "position", "reset"]
    id: str
    data: EventData


class ProfileAnswer(msgspec.Struct):
    """The profile of an owner, such as a name and a picture."""

    owner: str
    profile: ProfileObject

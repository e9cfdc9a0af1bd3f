"""The answers about the journal, an owner's posts, the events of streams, and profiles."""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from service.contract.problems import ProblemDocument
from service.contract.values import Number, Time
from storage.records import PostStatus

from .boards import ProfileObject, RankedEntry, Stats

JournalKind = Literal["post", "erase", "hide", "show", "reset", "move", "delete", "erased"]


Place = int | str  # a sequence number of the journal, or a cursor if the store has several partitions


class JournalLine(msgspec.Struct):
    """A line of the journal: a post, or a change of an owner or a board.

    `stored` holds the values of the owner's row after the post was applied. If a queued post was rejected when a worker
    took it from the queue, `error` says why. After the owner was erased, `owner` is null and the members
    after `accepted_at` are missing. `board` is null if the leaderboard was deleted long ago.

    `seq` is a number. If the store has several partitions, it is an opaque cursor, which covers all of them.
    """

    seq: Place
    kind: JournalKind
    board: str | None
    owner: str | None
    accepted_at: Time
    status: PostStatus | UnsetType = UNSET
    stats: Stats | UnsetType = UNSET
    set: Stats | UnsetType = UNSET
    post_id: str | UnsetType = UNSET
    at: Time | UnsetType = UNSET
    stored: Stats | UnsetType = UNSET
    error: ProblemDocument | UnsetType = UNSET


class OwnerPosts(msgspec.Struct):
    """An owner's posts, the newest first.

    To get the next page, send the value of `next` as the parameter `before`. `next` is null if no older posts are kept.
    """

    owner: str
    posts: list[JournalLine]
    next: Place | None


class TopEvent(msgspec.Struct):
    """The data of an event `top`: the rows that are currently best."""

    column: str
    total: int
    entries: list[RankedEntry]


class OwnerEvent(msgspec.Struct):
    """The data of an event `position`: the owner's current value and rank.

    `value`, `rank` and `percentile` are null if the owner is no longer ranked. `previous_rank` is the rank in the
    previous event. `overtaken_by` has up to ten owners who have overtaken this one since that event.
    """

    owner: str
    column: str
    value: Number | None
    rank: int | None
    total: int
    percentile: float | None
    previous_rank: int | None
    overtaken_by: list[str]


class ProfileAnswer(msgspec.Struct):
    """The profile of an owner, such as a name and a picture."""

    owner: str
    profile: ProfileObject

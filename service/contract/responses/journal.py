"""The types of the answers about the journal, the posts of an owner, the events of streams, and profiles."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from service.contract.problems import ProblemDocument
from service.contract.values import Number, Time

from .boards import ProfileObject, RankedEntry, ResultStatus, Stats

JournalKind = Literal["post", "void", "erase", "hide", "show", "merge", "reset", "move", "delete", "erased"]


Place = int | str  # names a line of the journal: its sequence number, or a cursor if the store has several partitions


class JournalLine(msgspec.Struct):
    """A line of the journal: a post, or a change of an owner or of a leaderboard.

    `stored` has the values of the owner's entry after the post was applied. A line of the kind `void` says that the
    post `post_id` was taken back; it has no `stored` if the owner has no entry without the post. When an owner's entry
    is merged into another one's, each owner has a line of the kind `merge`: the first one's names the other in `into`,
    and the other one's has `stored`. If a queued post was rejected when a worker took it from the queue, `error` says
    why. If the owner was erased later, `owner` is null and the fields after `accepted_at` are missing. If the
    leaderboard was deleted long ago, `board` is null. `seq` is the sequence number of the line, or an opaque cursor if
    the store has several partitions.
    """

    seq: Place
    kind: JournalKind
    board: str | None
    owner: str | None
    accepted_at: Time
    status: ResultStatus | UnsetType = UNSET
    stats: Stats | UnsetType = UNSET
    set: Stats | UnsetType = UNSET
    post_id: str | UnsetType = UNSET
    at: Time | UnsetType = UNSET
    stored: Stats | UnsetType = UNSET
    into: str | UnsetType = UNSET
    error: ProblemDocument | UnsetType = UNSET


class OwnerPosts(msgspec.Struct):
    """A page of an owner's posts, newest first, with a line for each post that was taken back.

    For the next page, send `next` as the parameter `before`. `next` is null if no older posts are kept.
    `partitions_away` lists the partitions that do not answer. Their posts are missing.
    """

    owner: str
    posts: list[JournalLine]
    next: Place | None
    partitions_away: list[int] | UnsetType = UNSET


ExportKind = Literal[
    "export", "hidden_owners", "entrants", "seats", "standings", "held_posts", "gains", "profiles", "acts",
    "merged_owners", "merged_entries", "owner_changes", "token_voids", "grants", "queued_posts", "entries",
    "archived_entries", "changes", "end",
]  # fmt: skip


class ExportLine(msgspec.Struct, frozen=True):
    """A line of the export of everything stored about one person.

    `kind` says what it is about: the state of a hidden or shadowed owner, boards that it joined, held posts, what it
    gained within an hour, the profile, acts, ids that were merged into it, changes that wait for a partition, when
    tokens were voided, grants, posts that wait in the queue, entries on boards and in archives, and lines of the
    journal. `data` has what is stored. The first line is of the kind `export`, the last one of the kind `end`; an
    export without it is incomplete.
    """

    kind: ExportKind
    data: Annotated[Raw, Meta(extra_json_schema={"type": "object"})]


class TopEvent(msgspec.Struct):
    """The data of an event `top` of a stream: the best rows of the ranking at the time of the event."""

    column: str
    total: int
    entries: list[RankedEntry]


class OwnerEvent(msgspec.Struct):
    """The data of an event `position` of a stream: the owner's current value and rank.

    `value`, `rank` and `percentile` are null if the owner is no longer ranked. `previous_rank` is the rank in the
    previous event. `overtaken_by` names up to ten owners who have overtaken this owner since the previous event.
    `tier` is present if the column has tiers: the owner's current tier, null if no tier fits. `reached_at` is present
    if the earlier of two equal values ranks better, and the owner has a value: when the owner reached it.
    """

    owner: str
    column: str
    value: Number | None
    rank: int | None
    total: int
    percentile: float | None
    previous_rank: int | None
    overtaken_by: list[str]
    tier: str | UnsetType | None = UNSET
    reached_at: Time | UnsetType = UNSET


class ProfileAnswer(msgspec.Struct):
    """The profile of an owner: a JSON object, for example with a name and a picture."""

    owner: str
    profile: ProfileObject

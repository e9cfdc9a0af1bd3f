"""`Client` and `AsyncClient`: everything that a game asks of the service.

Both are HTTP clients with the methods of `Operations`: `Client` as plain methods, `AsyncClient` as coroutines.
Methods that walk return an iterator, or an async iterator. Every method may raise `ApiError` (the service refuses),
`UnreachableError` (no answer came) and `UnexpectedAnswerError`.

A board is named by its id. On a board of a family, the period may be an alias: `arena:this-week:clan=fox`. A column may
be left out, or None, if the board has one ranked column; otherwise `ColumnNeededError` names those that it has.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Generic, Literal, TypeVar

import msgspec

from .answers import (
    ENCODER,
    Act,
    Audit,
    Board,
    Bucket,
    ClaimedGrant,
    Cohort,
    Curve,
    Division,
    Entry,
    Erased,
    ExpectedGrant,
    FacetValue,
    FamilyBoard,
    Grant,
    HeldPost,
    HiddenOwner,
    IssuedToken,
    Joined,
    JournalLine,
    LeagueOwner,
    LeaguePast,
    Lookup,
    MergedBoard,
    OwnerBoard,
    OwnerPosition,
    Page,
    PastPosition,
    Position,
    PostResult,
    RankedEntry,
    Record,
    Refreshed,
    StreamEvent,
    Value,
    ValueAt,
    VoidedBoard,
    check_name,
    decode,
)
from .column_words import whole_spec
from .errors import RankcurveError, UnexpectedAnswerError
from .event_stream import follow
from .leases import AsyncLeases, Leases
from .offline_curve import OfflineCurve
from .post_buffer import (
    BUFFER_RETRIES,
    DELAY_S,
    POSTS_MAX,
    POSTS_PER_REQUEST,
    AsyncPostBuffer,
    PostBuffer,
    Receipt,
    Stat,
)
from .posting import Post, post_all
from .programs import Items, Program, Reply, Send, Walk, making, operation, walk
from .retries import Retries, Sender
from .transport import (
    AskToken,
    AskTokenAsync,
    AsyncRunner,
    AsyncTransport,
    SyncRunner,
    SyncTransport,
    path_of,
    with_query,
    without_password,
)

Rank = Literal["auto", "exact", "estimate"]
TIMEOUT_S = 30.0
STREAM_ATTEMPTS_MAX = 1_000  # in a row; with the longest pauses these are eight hours
LINES_PER_REQUEST = 1_000
PAGE_ENTRIES = 1_000
T = TypeVar("T")
Transport = TypeVar("Transport")
Buffer = TypeVar("Buffer")
Holders = TypeVar("Holders")


class _Positions(msgspec.Struct, frozen=True):
    positions: list[Position]


class _OwnerPositions(msgspec.Struct, frozen=True):
    owner: str
    positions: list[OwnerPosition]


Answered = TypeVar("Answered", _OwnerPositions, Entry, Joined, LeagueOwner)


class _Values(msgspec.Struct, frozen=True):
    values: list[ValueAt]


class _Buckets(msgspec.Struct, frozen=True):
    buckets: list[Bucket]


class _OwnerPosts(msgspec.Struct, frozen=True):
    posts: list[JournalLine]


class _VoidedPost(msgspec.Struct, frozen=True):
    boards: list[VoidedBoard]


class _MergedOwner(msgspec.Struct, frozen=True):
    boards: list[MergedBoard]


class _Divisions(msgspec.Struct, frozen=True):
    divisions: list[Division] = []


class _OwnerEntries(msgspec.Struct, frozen=True):
    entries: int


class _Profile(msgspec.Struct, frozen=True):
    profile: Record


class _ListEnd(msgspec.Struct, frozen=True):
    next: str | None = None


def board_path(board: str, *rest: str) -> str:
    return path_of("v1", "leaderboards", board, *rest)


def family_path(family: str, *rest: str) -> str:
    return path_of("v1", "families", family, *rest)


def league_path(league: str, *rest: str) -> str:
    return path_of("v1", "leagues", league, *rest)


def owner_path(owner: str, *rest: str) -> str:
    return path_of("v1", "owners", owner, *rest)


def ranking_path(board: str, column: str | None, *rest: str) -> str:
    """Build a path of a ranking. Without a column, it is the ranking of a board's only ranked column."""
    return board_path(board, "rankings", column or "-", *rest)


def check_owner(answer: Answered, owner: str) -> Answered:
    """Check that an answer is about this owner. Raises UnexpectedAnswerError if it is about another one."""
    check_name(answer.owner, owner)
    return answer


def ignore(_: object) -> None:
    """Do nothing."""


def utc_now() -> datetime:
    return datetime.now(timezone.utc)


class Operations(Generic[Transport, Buffer, Holders]):
    """The requests of both clients."""

    transport: Transport
    _sender: Sender
    _make_buffer: Callable[..., Buffer]
    _make_leases: Callable[..., Holders]

    # Reading ranks

    @operation
    def top(
        self, board: str, limit: int = 10, column: str | None = None, *, profiles: bool = False
    ) -> Program[list[RankedEntry]]:
        """Fetch the best rows of a board, best first. `page` and `entries` return more of them."""
        query = {"limit": limit, "column": column, "profiles": profiles or None}
        return (yield from self._get(Page, board_path(board, "rankings"), query)).entries

    @operation
    def rank(self, board: str, owner: str, column: str | None = None) -> Program[int]:
        """Look up an owner's rank; 1 is the best. `positions` also says how exact it is.

        Raises:
            NotFoundError: there is no such board, or the owner has no value there.
            RankcurveError: no column is named, and the board has several ranked columns.
        """
        found = yield from self._positions(board, owner, {"columns": column})
        rank = found[0].rank
        if len(found) > 1 or rank is None:
            names = ", ".join(position.column for position in found)
            raise RankcurveError(f"{board!r} has several ranked columns: name one of {names}")
        return rank

    @operation
    def positions(
        self,
        board: str,
        owner: str,
        columns: Sequence[str] = (),
        *,
        rank: Rank = "auto",
        next: bool = False,
        compare: Literal["previous"] | None = None,
    ) -> Program[list[OwnerPosition]]:
        """Look up an owner's positions in these columns, in their order; by default in every ranked column.

        With `next`, each has the next better place and the points still needed to reach it. With `compare="previous"`,
        each has the position in the period before.
        """
        query = {"columns": columns or None, "rank": rank, "next": next or None, "compare": compare}
        return (yield from self._positions(board, owner, query))

    @operation
    def positions_on_boards(
        self, owner: str, boards: Sequence[str], column: str | None = None
    ) -> Program[list[OwnerPosition]]:
        """Look up one owner's positions on many boards, in their order. Each names its board."""
        path, body = owner_path(owner, "positions"), {"boards": boards, "column": column}
        return check_owner((yield from self._ask(_OwnerPositions, "POST", path, body)), owner).positions

    @operation
    def value_positions(
        self, board: str, column: str | None, values: Sequence[Value | str], *, rank: Rank = "auto"
    ) -> Program[list[Position]]:
        """Look up the positions that these values have, or would have."""
        path = ranking_path(board, column, "positions")
        return (yield from self._get(_Positions, path, {"values": values, "rank": rank})).positions

    @operation
    def around(
        self,
        board: str,
        owner: str,
        column: str | None = None,
        *,
        better: int = 5,
        worse: int = 5,
        fill: bool = False,
        profiles: bool = False,
    ) -> Program[Page]:
        """Fetch the rows around an owner, best to worst, including the owner's own.

        With `fill`, one side has more rows if the ranking ends on the other side.
        """
        query = {"column": column, "better": better, "worse": worse, "fill": fill or None, "profiles": profiles or None}
        return (yield from self._get(Page, board_path(board, "entries", owner, "around"), query))

    @operation
    def value_around(
        self,
        board: str,
        column: str | None,
        value: Value | str,
        *,
        better: int = 5,
        worse: int = 5,
        fill: bool = False,
        profiles: bool = False,
    ) -> Program[Page]:
        """Fetch the rows around a value, best to worst. `fill` is that of `around`."""
        query = {"value": value, "better": better, "worse": worse, "fill": fill or None, "profiles": profiles or None}
        return (yield from self._get(Page, ranking_path(board, column, "around"), query))

    @operation
    def page(
        self,
        board: str,
        column: str | None = None,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        from_rank: int | None = None,
        tier: str | None = None,
        profiles: bool = False,
    ) -> Program[Page]:
        """Fetch one page of a ranking, or of one tier: from the top, from a cursor, or from a rank on."""
        query = {"limit": limit, "cursor": cursor, "from_rank": from_rank, "tier": tier, "profiles": profiles or None}
        return (yield from self._get(Page, ranking_path(board, column), query))

    @walk
    def pages(
        self,
        board: str,
        column: str | None = None,
        *,
        limit: int = PAGE_ENTRIES,
        order: Literal["rank", "owner"] = "rank",
    ) -> Walk[Page]:
        """Yield the pages of a ranking, best to worst. In the order of the owners, an archive yields all of them."""
        yield from self._walk_pages(board, column, limit, lambda page: [page], None if order == "rank" else order)

    @walk
    def entries(self, board: str, column: str | None = None, *, limit: int = PAGE_ENTRIES) -> Walk[RankedEntry]:
        """Yield every row of a ranking, best to worst. `limit` is how many one request asks for."""
        yield from self._walk_pages(board, column, limit, lambda page: page.entries)

    @operation
    def entry(self, board: str, owner: str, *, profiles: bool = False) -> Program[Entry]:
        """Fetch an owner's stats."""
        path = board_path(board, "entries", owner)
        return check_owner((yield from self._get(Entry, path, {"profiles": profiles or None})), owner)

    @operation
    def lookup(self, board: str, owners: Sequence[str], column: str | None = None) -> Program[Lookup]:
        """Fetch the entries of many owners, such as friends. With a column, each has its position and place."""
        body = {"owners": owners} | ({} if column is None else {"column": column})
        return (yield from self._ask(Lookup, "POST", board_path(board, "entries", "lookup"), body))

    @operation
    def values(
        self, board: str, column: str | None = None, *, ranks: Sequence[int] = (), percentiles: Sequence[float] = ()
    ) -> Program[list[ValueAt]]:
        """Look up the values at these ranks, and then those at these percentiles."""
        query = {"ranks": ranks or None, "percentiles": percentiles or None}
        return (yield from self._get(_Values, ranking_path(board, column, "values"), query)).values

    @operation
    def buckets(
        self,
        board: str,
        column: str | None = None,
        *,
        buckets: int = 20,
        rank: Literal["exact", "estimate"] = "exact",
    ) -> Program[list[Bucket]]:
        """Count the entries in each of `buckets` equal parts of the range of values."""
        path = ranking_path(board, column, "buckets")
        return (yield from self._get(_Buckets, path, {"buckets": buckets, "rank": rank})).buckets

    @operation
    def curve(self, board: str, column: str | None = None) -> Program[OfflineCurve]:
        """Fetch the curve of a column, which ranks values in microseconds without further requests."""
        path = ranking_path(board, column, "curve")
        reply: Reply = yield from self._sender.send(Send("GET", path))
        return OfflineCurve(decode(reply.content, Curve), path, reply.headers.get("etag", ""))

    @operation
    def renew_curve(self, curve: OfflineCurve) -> Program[bool]:
        """Fetch a curve again if it has changed, and rank with it from now on. Return whether it has changed."""
        reply: Reply = yield from self._sender.send(Send("GET", curve.path, headers={"If-None-Match": curve.tag}))
        if reply.status == 304:
            return False
        curve.take(decode(reply.content, Curve))
        curve.tag = reply.headers.get("etag", "")
        return True

    @walk
    def stream(
        self,
        board: str,
        column: str | None = None,
        *,
        top: int | None = None,
        owner: str | None = None,
        last_event_id: str = "",
        attempts_max: int = STREAM_ATTEMPTS_MAX,
    ) -> Walk[StreamEvent]:
        """Yield the top of a ranking, or an owner's position, whenever it changes, until the caller stops.

        After an interruption the stream continues where it stopped, if one of `attempts_max` attempts succeeds.
        `last_event_id` continues an earlier stream.
        """
        path = with_query(board_path(board, "stream"), {"column": column, "top": top, "owner": owner})
        yield from follow(path, last_event_id, self._sender.retries, attempts_max=attempts_max)

    # Posting

    @operation
    def post_one(
        self,
        board: str,
        owner: str,
        /,
        *,
        post_id: str | None = None,
        n: int | None = None,
        at: datetime | None = None,
        positions: Sequence[str] = (),
        moved: bool = False,
        **stats: Stat,
    ) -> Program[PostResult]:
        """Post one owner's stats, such as `xp=25`, and return the result once they are durable.

        Without `post_id` the post gets an id, so that a retry never counts twice. With a player token, give it its
        number `n` instead. Raises as `post` does. The result has the owner's positions in the columns that `positions`
        names; with `moved`, each has `rank_before`.
        """
        asked = {"positions": positions, "moved": moved}
        given = {"owner": owner, "post_id": post_id, "n": n, "at": at, "stats": stats}
        return (yield from self._post_one(board_path(board, "posts"), asked, given))

    @operation
    def post_one_to_family(
        self,
        family: str,
        owner: str,
        /,
        *,
        facets: Mapping[str, str] | None = None,
        post_id: str | None = None,
        n: int | None = None,
        at: datetime | None = None,
        positions: Sequence[str] = (),
        moved: bool = False,
        **stats: Stat,
    ) -> Program[PostResult]:
        """Post one owner's stats to the boards of a family, as `post_one` does. Each of `boards` has `positions`.

        A board of a period that is closed has the status `rejected` in the result's `boards`; nothing is raised for it.
        """
        path, asked = family_path(family, "posts"), {"positions": positions, "moved": moved}
        given = {"owner": owner, "post_id": post_id, "n": n, "at": at, "stats": stats, "facets": facets}
        return (yield from self._post_one(path, asked, given))

    @operation
    def post(
        self,
        board: str,
        posts: Sequence[Post] | Post,
        *,
        queued: bool = False,
        split: bool = False,
        round_floats: bool = False,
        raise_rejected: bool = True,
        positions: Sequence[str] = (),
        moved: bool = False,
    ) -> Program[list[PostResult]]:
        """Post one or many `{"owner", "stats", "post_id", "at"}`. Return a result for each, once all are durable.

        A post without `post_id` gets one, so that a retry never counts twice. Give ids of your own if you may call this
        again after an `UnreachableError`. A post by player token has its number `n` instead. With `queued`, the service
        applies the posts soon after its answer. If one post has no valid form, the service refuses all, unless `split`
        is true: then it alone is rejected. `round_floats` rounds floats to the decimals of their columns, for which it
        asks the service first. At most 100 posts may ask for `positions`, as `post_one` does.

        Raises:
            PostsRejectedError: posts were rejected, and the others stored; it has all results. Without
                `raise_rejected` they are returned instead.
        """
        path = board_path(board, "posts")
        options = {"queued": queued, "split": split, "round_floats": round_floats, "raise_rejected": raise_rejected}
        return (yield from post_all(self._sender, path, posts, **options, positions=positions, moved=moved))

    @operation
    def post_to_family(
        self,
        family: str,
        posts: Sequence[Post] | Post,
        *,
        split: bool = False,
        round_floats: bool = False,
        raise_rejected: bool = True,
        positions: Sequence[str] = (),
        moved: bool = False,
    ) -> Program[list[PostResult]]:
        """Post stats to the boards of a family, as `post` does. A post may have `facets`.

        A post is applied if one of its boards takes it. A board of a period that is closed does not take it, and has
        the status `rejected` in the result's `boards`; nothing is raised for it.
        """
        options = {"split": split, "round_floats": round_floats, "raise_rejected": raise_rejected}
        path = family_path(family, "posts")
        return (yield from post_all(self._sender, path, posts, **options, positions=positions, moved=moved))

    @operation
    def post_to_boards(self, posts: Sequence[Post] | Post, *, raise_rejected: bool = True) -> Program[list[PostResult]]:
        """Post stats to several boards at once, as `post` does. Each post names its `boards`."""
        return (yield from post_all(self._sender, path_of("v1", "posts"), posts, raise_rejected=raise_rejected))

    @operation
    def void_post(
        self, board: str, post_id: str, *, owner: str, reason: str | None = None
    ) -> Program[list[VoidedBoard]]:
        """Take back a post: recompute its owner's entry without it (role `ops`).

        A second call returns the same. The id stays reserved, so the same post again is rejected with `post_voided`.
        `reason` is kept in the list of acts.
        """
        return (yield from self._void(board_path(board, "posts", post_id), owner, reason))

    @operation
    def void_family_post(
        self, family: str, post_id: str, *, owner: str, reason: str | None = None
    ) -> Program[list[VoidedBoard]]:
        """Take back a post on all boards of a family that it reached, as `void_post` does (role `ops`)."""
        return (yield from self._void(family_path(family, "posts", post_id), owner, reason))

    @walk
    def held_posts(self, board: str) -> Walk[HeldPost]:
        """Yield the held posts of a board, the oldest first (role `ops`)."""
        yield from self._walk_list(board_path(board, "held"), "posts", HeldPost, {})

    @operation
    def judge_post(
        self, board: str, post_id: str, verdict: Literal["accept", "refuse"], *, owner: str, reason: str | None = None
    ) -> Program[Record]:
        """Accept a held post, which applies it, or refuse it (role `ops`). Return its state on the board.

        A second call with the same verdict returns the same.
        """
        path = with_query(board_path(board, "held", post_id), {"owner": owner})
        return (yield from self._ask(Record, "PUT", path, {"verdict": verdict, "reason": reason}))

    @walk
    def journal(self, after: int | str = 0) -> Walk[JournalLine]:
        """Yield the accepted posts and changes up to now, the oldest first (role `writer`).

        `after` is the `seq` of the last line seen.
        """
        while True:
            path = with_query(path_of("v1", "journal"), {"after": after, "limit": LINES_PER_REQUEST})
            reply: Reply = yield from self._sender.send(Send("GET", path))
            lines = [decode(line, JournalLine) for line in reply.content.splitlines()]
            if not lines:
                return
            yield Items(lines)
            after = lines[-1].seq

    @operation
    def owner_posts(self, owner: str, *, limit: int = 20) -> Program[list[JournalLine]]:
        """Fetch an owner's newest posts."""
        return (yield from self._get(_OwnerPosts, owner_path(owner, "posts"), {"limit": limit})).posts

    # Boards, families and owners

    @operation
    def create_board(
        self,
        board: str,
        /,
        spec: Mapping[str, Any] | str,
        *columns: str,
        ties: str | Sequence[str] | None = None,
        **members: Any,
    ) -> Program[Board]:
        """Create a board, or confirm that it has this specification (role `ops`).

        `spec` is the whole specification, whose columns may be in words, or the first column in words, such as `xp:sum`
        or `lap:min.3`; further `columns` are in words, too (`rankcurve.column_words` says which). `ties` says how
        equal values are ordered, and `members` are all others that the specification may have, such as `closes_at` and
        `segments`.
        """
        return (yield from self._ask(Board, "PUT", board_path(board), whole_spec(spec, columns, ties, members)))

    @operation
    def board(self, board: str) -> Program[Board]:
        """Fetch a board's specification, its number of entries and the state of its curves."""
        return (yield from self._get(Board, board_path(board)))

    @walk
    def boards(
        self,
        prefix: str = "",
        *,
        contains: str = "",
        order: Literal["id", "activity"] = "id",
        families: bool = True,
    ) -> Walk[Board]:
        """Yield the boards whose ids start with `prefix` and contain `contains`, by id or the most active first.

        `families` says whether boards of families are listed.
        """
        query = {
            "prefix": prefix or None,
            "contains": contains or None,
            "order": None if order == "id" else order,
            "families": None if families else False,
        }
        yield from self._walk_list(path_of("v1", "leaderboards"), "leaderboards", Board, query)

    @walk
    def families(self) -> Walk[Record]:
        """Yield the families with their specifications, by id."""
        yield from self._walk_list(path_of("v1", "families"), "families", Record, {})

    @walk
    def owner_boards(self, owner: str) -> Walk[OwnerBoard]:
        """Yield the boards on which an owner has an entry, by id, each with the entry."""
        yield from self._walk_list(owner_path(owner, "boards"), "boards", OwnerBoard, {})

    @walk
    def grants(self, board: str) -> Walk[Grant]:
        """Yield the grants of a closed board: who got which reward, by reward and rank."""
        yield from self._walk_list(board_path(board, "grants"), "grants", Grant, {})

    @walk
    def preview_rewards(self, board: str) -> Walk[ExpectedGrant]:
        """Yield the rewards that owners would get if the board closed now, by reward and rank."""
        yield from self._walk_list(board_path(board, "rewards", "preview"), "grants", ExpectedGrant, {})

    @walk
    def owner_grants(self, owner: str, *, state: Literal["open", "claimed"] | None = None) -> Walk[Grant]:
        """Yield an owner's grants, newest board first. `state`: only those that are not claimed, or are.

        Grants of deleted boards are included.
        """
        yield from self._walk_list(owner_path(owner, "grants"), "grants", Grant, {"state": state})

    @operation
    def claim_grant(self, grant: str) -> Program[ClaimedGrant]:
        """Claim a grant by its id (role `writer`). A second call returns the same, with `first` false.

        `first` is true in exactly one answer. That answer can get lost, so use `id` as the idempotency key of your
        payout.
        """
        return (yield from self._ask(ClaimedGrant, "POST", path_of("v1", "grants", grant, "claim")))

    @operation
    def reset_board(self, board: str, *, reason: str | None = None) -> Program[None]:
        """Empty a board, and keep its specification (role `ops`)."""
        yield from self._act("POST", board_path(board, "reset"), reason)

    @operation
    def reset_family(self, family: str, period: str, *, reason: str | None = None) -> Program[Record]:
        """Empty the current boards of a kind of period, such as `week` (role `ops`). Return the period."""
        path = family_path(family, "reset")
        body = {"period": period, "reason": reason}
        return (yield from self._ask(Record, "POST", path, body, repeatable=False))

    @operation
    def delete_board(self, board: str, *, reason: str | None = None) -> Program[None]:
        """Delete a board with all its entries (role `ops`)."""
        yield from self._act("DELETE", board_path(board), reason)

    @operation
    def refresh_curve(self, board: str, column: str | None = None) -> Program[Refreshed]:
        """Have a new curve fitted, and wait until readers get it (role `ops`)."""
        return (yield from self._ask(Refreshed, "POST", ranking_path(board, column, "refresh")))

    @operation
    def audit_curve(self, board: str, column: str | None = None, *, owners: int | None = None) -> Program[Audit]:
        """Have random owners counted, and compare the curve with the counts (role `ops`)."""
        path = with_query(ranking_path(board, column, "audit"), {"owners": owners})
        return (yield from self._ask(Audit, "POST", path))

    @operation
    def create_family(
        self,
        family: str,
        /,
        spec: Mapping[str, Any] | str,
        *columns: str,
        ties: str | Sequence[str] | None = None,
        **members: Any,
    ) -> Program[Record]:
        """Create a family, or confirm that it has this specification (role `ops`). Return its document.

        The arguments are those of `create_board`. A family needs `periods`, such as `["all", "week"]`.
        """
        return (yield from self._ask(Record, "PUT", family_path(family), whole_spec(spec, columns, ties, members)))

    @operation
    def family(self, family: str) -> Program[Record]:
        """Fetch a family's specification and its number of boards."""
        return (yield from self._get(Record, family_path(family)))

    @operation
    def delete_family(self, family: str, *, reason: str | None = None) -> Program[None]:
        """Delete a family with all its boards (role `ops`)."""
        yield from self._act("DELETE", family_path(family), reason)

    @walk
    def facet_values(
        self,
        family: str,
        facet: str,
        *,
        period: str = "all",
        at: datetime | str | None = None,
        facets: Mapping[str, str] | None = None,
    ) -> Walk[FacetValue]:
        """Yield the values of a facet, each with its board, in a period and perhaps within values of other facets."""
        query = {**(facets or {}), "facet": facet, "period": period, "at": at}
        yield from self._walk_list(family_path(family, "facets"), "values", FacetValue, query)

    @operation
    def family_board(
        self,
        family: str,
        *,
        period: str = "all",
        at: datetime | str | None = None,
        facets: Mapping[str, str] | None = None,
    ) -> Program[FamilyBoard]:
        """Find a family's board: of a kind of period (`year`, `week`, …), at a time in it, for values of facets."""
        query = {**(facets or {}), "period": period, "at": at}
        return (yield from self._get(FamilyBoard, family_path(family, "boards"), query))

    @walk
    def history(
        self,
        family: str,
        owner: str,
        column: str | None = None,
        *,
        period: str = "day",
        facets: Mapping[str, str] | None = None,
    ) -> Walk[PastPosition]:
        """Yield an owner's final positions in the closed periods, the newest first."""
        path = family_path(family, "owners", owner, "history")
        query = {**(facets or {}), "period": period, "column": column}
        yield from self._walk_list(path, "history", PastPosition, query)

    @operation
    def create_league(
        self,
        league: str,
        /,
        spec: Mapping[str, Any] | str,
        *columns: str,
        ties: str | Sequence[str] | None = None,
        **members: Any,
    ) -> Program[Record]:
        """Create a league, or change it (role `ops`). Return its document.

        The arguments are those of `create_board`. A league needs `column`, `period`, `cohort` and `divisions`.
        """
        return (yield from self._ask(Record, "PUT", league_path(league), whole_spec(spec, columns, ties, members)))

    @operation
    def league(self, league: str) -> Program[Record]:
        """Fetch the specification of a league."""
        return (yield from self._get(Record, league_path(league)))

    @operation
    def post_to_league(
        self,
        league: str,
        posts: Sequence[Post] | Post,
        *,
        split: bool = False,
        round_floats: bool = False,
        raise_rejected: bool = True,
        positions: Sequence[str] = (),
        moved: bool = False,
    ) -> Program[list[PostResult]]:
        """Post stats to a league, as `post_to_family` does. The first post of a period takes a seat in a cohort.

        A post may have a `division`, in which an owner who is new to the league begins.
        """
        options = {"split": split, "round_floats": round_floats, "raise_rejected": raise_rejected}
        path = league_path(league, "posts")
        return (yield from post_all(self._sender, path, posts, **options, positions=positions, moved=moved))

    @operation
    def league_owner(self, league: str, owner: str) -> Program[LeagueOwner]:
        """Fetch an owner's division and its cohort in the current period. Raises UnknownOwnerError."""
        return check_owner((yield from self._get(LeagueOwner, league_path(league, "owners", owner))), owner)

    @walk
    def league_history(self, league: str, owner: str) -> Walk[LeaguePast]:
        """Yield an owner's results in the closed periods of a league, the newest first."""
        yield from self._walk_list(league_path(league, "owners", owner, "history"), "history", LeaguePast, {})

    @operation
    def leave_league(self, league: str, owner: str) -> Program[None]:
        """Let an owner leave a league (role `writer`): its seat, its entry of this period and its division are gone."""
        yield from self._act("DELETE", league_path(league, "owners", owner), None)

    @operation
    def cohort(self, league: str, cohort: str, *, period: str | None = None) -> Program[Cohort]:
        """Fetch a cohort, such as `silver-12`, of the current period or of another one."""
        return (yield from self._get(Cohort, league_path(league, "cohorts", cohort), {"period": period}))

    @walk
    def stream_cohort(
        self, league: str, cohort: str, *, last_event_id: str = "", attempts_max: int = STREAM_ATTEMPTS_MAX
    ) -> Walk[StreamEvent]:
        """Yield a cohort of the current period whenever it changes, as `stream` does with a ranking."""
        path = league_path(league, "cohorts", cohort, "stream")
        yield from follow(path, last_event_id, self._sender.retries, attempts_max=attempts_max)

    @operation
    def divisions(self, league: str) -> Program[list[Division]]:
        """List the divisions of a league, the best one last, with how many owners have seats in the current period."""
        return (yield from self._get(_Divisions, league_path(league, "divisions"))).divisions

    @operation
    def hide_owner(self, owner: str, *, shadow: bool = False, reason: str | None = None) -> Program[int]:
        """Hide an owner from every ranking, total and stream (role `ops`). The owner's posts are still merged.

        With `shadow`, answers about the owner continue as if the owner were ranked, so that a cheater does not notice.
        Return the number of boards, archived ones included, on which the owner has or had an entry.
        """
        body = {"shadow": shadow, "reason": reason}
        return (yield from self._ask(_OwnerEntries, "PUT", owner_path(owner, "hidden"), body)).entries

    @operation
    def show_owner(self, owner: str, *, reason: str | None = None) -> Program[int]:
        """Show a hidden owner again (role `ops`).

        Return the number of boards, archived ones included, on which the owner has or had an entry.
        """
        return decode((yield from self._act("DELETE", owner_path(owner, "hidden"), reason)), _OwnerEntries).entries

    @operation
    def join(self, board: str, owner: str) -> Program[Joined]:
        """Let an owner join a board with entry rules, and return how many posts the owner has left.

        Joining again returns the same. Raises BoardFullError, NotOpenError or PeriodClosedError if it is too late.
        """
        body = {"owner": owner}
        return check_owner((yield from self._ask(Joined, "POST", board_path(board, "entries"), body)), owner)

    @operation
    def erase_entry(self, board: str, owner: str, *, reason: str | None = None) -> Program[None]:
        """Erase an owner's entry on one board (role `ops`). Entries on other boards and the profile stay."""
        yield from self._act("DELETE", board_path(board, "entries", owner), reason)

    @operation
    def erase_entries(
        self,
        board: str,
        *,
        owners: Sequence[str] | None = None,
        column: str | None = None,
        from_rank: int | None = None,
        worse_than: Value | str | None = None,
        reason: str | None = None,
    ) -> Program[Erased]:
        """Erase at most 10,000 entries of one board (role `ops`): those of owners, or those of a ranking.

        With `from_rank`, it erases that row and all worse ones, and with `worse_than` those worse than a value. Call it
        again while `more` is true.
        """
        given = {"owners": owners, "column": column, "from_rank": from_rank, "worse_than": worse_than}
        body = {name: each for name, each in (given | {"reason": reason}).items() if each is not None}
        path = board_path(board, "entries", "erase")
        return (yield from self._ask(Erased, "POST", path, body, repeatable=False))

    @operation
    def erase_owner(self, owner: str, *, reason: str | None = None) -> Program[int]:
        """Erase an owner everywhere: the entries, the profile, and the name and posts in the journal (role `ops`).

        Return the number of boards, archived ones included, on which the owner has or had an entry.
        """
        return decode((yield from self._act("DELETE", owner_path(owner), reason)), _OwnerEntries).entries

    @operation
    def export_owner(self, owner: str) -> Program[list[Record]]:
        """Export everything stored about one person, as lines with `kind` and `data` (role `ops`)."""
        reply: Reply = yield from self._sender.send(Send("GET", owner_path(owner, "export")))
        lines = [decode(line, Record) for line in reply.content.splitlines()]
        if not lines or lines[-1].get("kind") != "end":
            raise UnexpectedAnswerError("the export was cut off")
        return lines

    @walk
    def hidden_owners(self) -> Walk[HiddenOwner]:
        """Yield the hidden owners, by name (role `ops`)."""
        yield from self._walk_list(path_of("v1", "owners"), "owners", HiddenOwner, {"hidden": True})

    @walk
    def acts(self, *, owner: str | None = None, board: str | None = None, key: str | None = None) -> Walk[Act]:
        """Yield what operators have done, newest first (role `ops`).

        With `owner`, `board` or `key` (the id of an API key), yield only the acts that concern these.
        """
        query = {"owner": owner, "board": board, "key": key}
        yield from self._walk_list(path_of("v1", "acts"), "acts", Act, query)

    @operation
    def merge_owner(
        self, owner: str, into: str, *, source: str = "journal", reason: str | None = None
    ) -> Program[list[MergedBoard]]:
        """Merge an owner into another one, so that two accounts of one person become one (role `ops`).

        `source`: `journal` makes the entries from the posts of both, `entries` from the stored values. A second call
        returns the same, and finishes what an interrupted one left.
        """
        body = {"into": into, "from": source, "reason": reason}
        return (yield from self._ask(_MergedOwner, "POST", owner_path(owner, "merge"), body)).boards

    @operation
    def issue_token(
        self,
        owner: str,
        boards: Sequence[str] = (),
        *,
        families: Sequence[str] = (),
        posts: int = 1,
        expires_in_s: int = 900,
        limits: Mapping[str, Value | str] | None = None,
    ) -> Program[IssuedToken]:
        """Issue a player token, with which an owner posts to these boards and families (role `writer`).

        Each of them accepts that many `posts`, with the numbers `n` from 0 on. `limits` are the best values, by column,
        that one post may bring.
        """
        given = {"boards": boards, "families": families, "limits": limits or {}}
        body = {"owner": owner, "posts": posts, "expires_in": expires_in_s, **given}
        return (yield from self._ask(IssuedToken, "POST", path_of("v1", "tokens"), body))

    @operation
    def void_tokens(self, owner: str, *, reason: str | None = None) -> Program[None]:
        """Void all player tokens that were issued for an owner until now (role `ops`)."""
        yield from self._act("DELETE", owner_path(owner, "tokens"), reason)

    @operation
    def profile(self, owner: str) -> Program[Record]:
        """Fetch an owner's profile, a small object such as a name and a picture."""
        return (yield from self._get(_Profile, owner_path(owner, "profile"))).profile

    @operation
    def put_profile(self, owner: str, profile: Mapping[str, Any]) -> Program[None]:
        """Store an owner's profile (role `writer`)."""
        yield from self._ask(Record, "PUT", owner_path(owner, "profile"), profile)

    # Anything else

    @operation
    def request(
        self,
        method: str,
        path: str,
        answer: type[T],
        *,
        query: Mapping[str, object] | None = None,
        body: object = None,
        repeatable: bool = False,
    ) -> Program[T]:
        """Send a request that has no method here, and return its answer as this type; `bytes` is the body itself.

        `path` is percent-encoded (`rankcurve.transport.path_of`). Members of `query` that are None are not sent. A GET,
        a PUT, and a request that is named `repeatable`, may be sent twice, because that does no harm.
        """
        content = None if body is None else ENCODER.encode(body)
        repeatable = repeatable or method in ("GET", "PUT")
        sent = Send(method, with_query(path, query or {}), content, repeatable=repeatable)
        reply: Reply = yield from self._sender.send(sent)
        return reply.content if answer is bytes else decode(reply.content, answer)  # type: ignore[return-value]

    @walk
    def list_records(
        self, path: str, member: str, record: type[T], query: Mapping[str, object] | None = None
    ) -> Walk[T]:
        """Yield the records of a list that comes in pages. `member` is the list's name in a page."""
        yield from self._walk_list(path, member, record, query or {})

    # Buffers and leases

    @making("PostBuffer")
    def buffer(
        self,
        board: str | None = None,
        *,
        family: str | None = None,
        posts_per_request: int = POSTS_PER_REQUEST,
        delay_s: float = DELAY_S,
        posts_max: int = POSTS_MAX,
        spool: str | os.PathLike[str] | None = None,
        round_floats: bool = False,
        on_result: Callable[[Receipt], object] | None = None,
        retries: Retries = BUFFER_RETRIES,
    ) -> Buffer:
        """Make a buffer for posts to a board, to a family, or, with neither, for posts that name their boards.

        It sends after `posts_per_request` posts, or `delay_s` after the oldest. At most `posts_max` posts wait; then
        `submit` waits. `spool` is a folder that keeps them until they are settled, also if the process ends.
        `round_floats` rounds floats to the decimals of their columns. `on_result` is called with the receipt of each
        settled post. The first rejected post of each kind is logged, and `rejected` of the buffer counts all.
        """
        if board is not None and family is not None:
            raise ValueError("a buffer is for a board or for a family")
        if round_floats and board is None and family is None:
            raise ValueError("only a buffer for a board or for a family can round floats")
        targets = (board_path(board, "posts") if board else None, family_path(family, "posts") if family else None)
        return self._make_buffer(
            self.transport,
            self._sender,
            targets[0] or targets[1] or path_of("v1", "posts"),
            posts_per_request=posts_per_request,
            delay_s=delay_s,
            posts_max=posts_max,
            spool=spool,
            round_floats=round_floats,
            on_result=on_result or ignore,
            retries=retries,
        )

    @making("Leases")
    def leases(
        self,
        region: str,
        *,
        renew_before_s: float = 1.0,
        enough_ratio: float = 0.5,
        leases_max: int = 10_000,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = utc_now,
    ) -> Holders:
        """Make the leases of this program. `region` is where new resources come from.

        A remembered lease is returned without a request if it still lasts longer than `renew_before_s`, and at least
        `enough_ratio` times as long as the caller asks for. The `leases_max` leases used last are remembered.
        """
        return self._make_leases(
            self.transport,
            self._sender,
            region,
            renew_before_s=renew_before_s,
            enough_ratio=enough_ratio,
            leases_max=leases_max,
            monotonic=monotonic,
            now=now,
        )

    def _positions(self, board: str, owner: str, query: Mapping[str, object]) -> Program[list[OwnerPosition]]:
        path = board_path(board, "entries", owner, "positions")
        return check_owner((yield from self._get(_OwnerPositions, path, query)), owner).positions

    def _post_one(self, path: str, asked: Mapping[str, Any], given: Mapping[str, object]) -> Program[PostResult]:
        post = {name: each for name, each in given.items() if each is not None}
        [result] = yield from post_all(self._sender, path, post, **asked)
        return result

    def _void(self, path: str, owner: str, reason: str | None) -> Program[list[VoidedBoard]]:
        path = with_query(path, {"owner": owner, "reason": reason})
        return (yield from self._ask(_VoidedPost, "DELETE", path)).boards

    def _act(self, method: str, path: str, reason: str | None) -> Program[bytes]:
        sent = Send(method, with_query(path, {"reason": reason}), repeatable=method == "PUT")
        reply: Reply = yield from self._sender.send(sent)
        return reply.content

    def _get(self, answer: type[T], path: str, query: Mapping[str, object] | None = None) -> Program[T]:
        reply: Reply = yield from self._sender.send(Send("GET", with_query(path, query or {})))
        return decode(reply.content, answer)

    def _ask(
        self, answer: type[T], method: str, path: str, body: object = None, *, repeatable: bool = True
    ) -> Program[T]:
        content = None if body is None else ENCODER.encode(body)
        reply: Reply = yield from self._sender.send(Send(method, path, content, repeatable=repeatable))
        return decode(reply.content, answer)

    def _walk_list(self, path: str, member: str, record: type[T], query: Mapping[str, object]) -> Walk[T]:
        cursor: str | None = None
        while True:
            reply: Reply = yield from self._sender.send(Send("GET", with_query(path, {**query, "cursor": cursor})))
            members = decode(reply.content, dict[str, msgspec.Raw])
            records: list[T] = decode(bytes(members.get(member, b"")), list[record])  # type: ignore[valid-type]
            yield Items(records)
            following = decode(reply.content, _ListEnd).next
            if not following or following == cursor:
                return
            cursor = following

    def _walk_pages(
        self,
        board: str,
        column: str | None,
        limit: int,
        items_of: Callable[[Page], Sequence[T]],
        order: str | None = None,
    ) -> Walk[T]:
        cursor: str | None = None
        while True:
            query = {"limit": limit, "cursor": cursor, "order": order}
            page: Page = yield from self._get(Page, ranking_path(board, column), query)
            yield Items(items_of(page))
            if page.next is None:
                return
            if page.next == cursor or not (page.entries or order):
                raise UnexpectedAnswerError("the cursor of the ranking does not move on")
            cursor = page.next


class Client(Operations[SyncTransport, PostBuffer, Leases], SyncRunner):
    """A client that waits for each answer. Any thread may use it. Close it, or use it in a `with` block."""

    _make_buffer, _make_leases = PostBuffer, Leases

    def __init__(
        self,
        url: str,
        key: str | AskToken | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        retries: Retries | None = None,
        on_unreachable: Callable[[RankcurveError], object] | None = None,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        """`timeout_s` bounds each wait for the network. `on_unreachable` is called once for each outage.

        `key` is an API key, or a function that returns a player token. The client calls it when it has no token, and
        once more for a request whose token has expired or was voided.
        """
        self.transport = SyncTransport(url, key, timeout_s, pause)
        self._sender = Sender(without_password(self.transport.url), retries or Retries(), on_unreachable or ignore)

    def close(self) -> None:
        """Close the connections."""
        self.transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(Operations[AsyncTransport, AsyncPostBuffer, AsyncLeases], AsyncRunner):
    """A client whose methods are coroutines of one event loop. Close it, or use it in an `async with` block."""

    _make_buffer, _make_leases = AsyncPostBuffer, AsyncLeases

    def __init__(
        self,
        url: str,
        key: str | AskToken | AskTokenAsync | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        retries: Retries | None = None,
        on_unreachable: Callable[[RankcurveError], object] | None = None,
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """`timeout_s` bounds each wait for the network. `on_unreachable` is called once for each outage.

        `key` is an API key, or a function or a coroutine function that returns a player token, as for a `Client`.
        """
        self.transport = AsyncTransport(url, key, timeout_s, pause)
        self._sender = Sender(without_password(self.transport.url), retries or Retries(), on_unreachable or ignore)

    async def close(self) -> None:
        """Close the connections."""
        await self.transport.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

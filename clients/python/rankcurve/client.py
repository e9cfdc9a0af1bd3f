"""The synchronous and asynchronous clients, `Client` and `AsyncClient`, through which a game talks to the service.

Both offer the methods of `Operations`: `Client` as plain methods, `AsyncClient` as coroutines. A method that yields
results returns an iterator, or an async iterator on an `AsyncClient`. Every method may raise `ApiError` if the service
rejects the request, `UnreachableError` if no answer arrives, and `UnexpectedAnswerError` if the answer breaks the
service's contract.

A board is named by its id; for a board that belongs to a family, the period may be an alias, as in
`arena:this-week:clan=fox`. If a board has only one ranked column, `column` can be omitted or None; otherwise
`ColumnNeededError` names the columns to choose from.
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
    """Build the path of a board's ranking. Without a column, the path leads to the board's only ranked column."""
    return board_path(board, "rankings", column or "-", *rest)


def check_owner(answer: Answered, owner: str) -> Answered:
    """Return an answer after checking that it is about this owner.

    Raises UnexpectedAnswerError if it names another one.
    """
    check_name(answer.owner, owner)
    return answer


def ignore(_: object) -> None:
    """Do nothing."""


def utc_now() -> datetime:
    return datetime.now(timezone.utc)


class Operations(Generic[Transport, Buffer, Holders]):
    """The operations that `Client` and `AsyncClient` share."""

    transport: Transport
    _sender: Sender
    _make_buffer: Callable[..., Buffer]
    _make_leases: Callable[..., Holders]

    # Reading ranks

    @operation
    def top(
        self, board: str, limit: int = 10, column: str | None = None, *, profiles: bool = False
    ) -> Program[list[RankedEntry]]:
        """Fetch the top rows of a board, best first. To read further down, use `page` or `entries`."""
        query = {"limit": limit, "column": column, "profiles": profiles or None}
        return (yield from self._get(Page, board_path(board, "rankings"), query)).entries

    @operation
    def rank(self, board: str, owner: str, column: str | None = None) -> Program[int]:
        """Look up an owner's rank, where 1 is the best. `positions` also reports how exact the rank is.

        Raises:
            NotFoundError: the board does not exist, or the owner has no value on it.
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
        """Look up an owner's positions in the given columns, or by default in every ranked column.

        The positions come in the order of `columns`. With `next`, each includes the next better place and the points
        still needed to reach it. With `compare="previous"`, each includes the owner's position in the previous period.
        """
        query = {"columns": columns or None, "rank": rank, "next": next or None, "compare": compare}
        return (yield from self._positions(board, owner, query))

    @operation
    def positions_on_boards(
        self, owner: str, boards: Sequence[str], column: str | None = None
    ) -> Program[list[OwnerPosition]]:
        """Look up one owner's positions on several boards, in the order given. Each position names its board."""
        path, body = owner_path(owner, "positions"), {"boards": boards, "column": column}
        return check_owner((yield from self._ask(_OwnerPositions, "POST", path, body)), owner).positions

    @operation
    def value_positions(
        self, board: str, column: str | None, values: Sequence[Value | str], *, rank: Rank = "auto"
    ) -> Program[list[Position]]:
        """Look up the positions that these values have in a ranking, or would have if someone reached them."""
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
        """Fetch the rows around an owner, best to worst, including the owner's own row.

        If the ranking ends on one side of the owner, `fill` makes up for it with more rows on the other side.
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
        """Fetch the rows around a value, best to worst. `fill` works as it does in `around`."""
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
        """Fetch one page of a ranking, or of a single tier of it.

        The page begins at the top by default, at a `cursor` from another page, or at `from_rank`.
        """
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
        """Yield the pages of a ranking, best to worst.

        With `order="owner"`, rows are sorted by owner name instead. Use this order to read every row of an archived
        board.
        """
        yield from self._walk_pages(board, column, limit, lambda page: [page], None if order == "rank" else order)

    @walk
    def entries(self, board: str, column: str | None = None, *, limit: int = PAGE_ENTRIES) -> Walk[RankedEntry]:
        """Yield every row of a ranking, best to worst, fetching `limit` rows per request."""
        yield from self._walk_pages(board, column, limit, lambda page: page.entries)

    @operation
    def entry(self, board: str, owner: str, *, profiles: bool = False) -> Program[Entry]:
        """Fetch an owner's stats on a board."""
        path = board_path(board, "entries", owner)
        return check_owner((yield from self._get(Entry, path, {"profiles": profiles or None})), owner)

    @operation
    def lookup(self, board: str, owners: Sequence[str], column: str | None = None) -> Program[Lookup]:
        """Fetch the entries of several owners at once, such as a player's friends.

        With a `column`, each entry includes its position on the board and its place among these owners.
        """
        body = {"owners": owners} | ({} if column is None else {"column": column})
        return (yield from self._ask(Lookup, "POST", board_path(board, "entries", "lookup"), body))

    @operation
    def values(
        self, board: str, column: str | None = None, *, ranks: Sequence[int] = (), percentiles: Sequence[float] = ()
    ) -> Program[list[ValueAt]]:
        """Look up the values at the given ranks, followed by the values at the given percentiles."""
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
        """Divide the range of values into `buckets` equal parts, and count the entries in each."""
        path = ranking_path(board, column, "buckets")
        return (yield from self._get(_Buckets, path, {"buckets": buckets, "rank": rank})).buckets

    @operation
    def curve(self, board: str, column: str | None = None) -> Program[OfflineCurve]:
        """Fetch a column's curve, which ranks values within microseconds and without further requests."""
        path = ranking_path(board, column, "curve")
        reply: Reply = yield from self._sender.send(Send("GET", path))
        return OfflineCurve(decode(reply.content, Curve), path, reply.headers.get("etag", ""))

    @operation
    def renew_curve(self, curve: OfflineCurve) -> Program[bool]:
        """Refetch a curve if it has changed on the service, and update it in place. Return whether it has changed."""
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
        """Yield the top of a ranking, or an owner's position, each time it changes.

        The stream runs until the caller stops it. After an interruption it reconnects, with up to `attempts_max`
        attempts in a row, and continues where it left off. Pass `last_event_id` to continue an earlier stream.
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

        A post without a `post_id` is given one, so that a retry never counts twice. With a player token, pass the
        post's number `n` instead. To get the owner's positions along with the result, name their columns in
        `positions`; with `moved`, each position also has `rank_before`. Raises the same errors as `post`.
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
        """Post one owner's stats to the boards of a family, as `post_one` does for a single board.

        Each of the result's `boards` has its own `status` and `positions`. A board whose period is closed has the
        status `rejected`, but no error is raised for it.
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
        """Post one or more `{"owner", "stats", "post_id", "at"}`, and return a result for each once all are durable.

        A post without a `post_id` is given one, so that a retry never counts twice. Pass ids of your own if you may
        call this again after an `UnreachableError`. A post made with a player token has its number `n` instead of an
        id.

        With `queued`, the service applies the posts shortly after it has answered. If one post is malformed, the
        service rejects the whole request, unless `split` is true: then only that post is rejected. `round_floats`
        rounds floats to the decimals of their columns, which the client looks up on the service first. At most 100
        posts may ask for `positions`, which work as in `post_one`.

        Raises:
            PostsRejectedError: some posts were rejected, and the others stored. The error holds all results. With
                `raise_rejected=False`, they are returned instead.
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
        """Post stats to the boards of a family, as `post` does for a single board. A post may have `facets`.

        A post is applied if at least one of its boards accepts it. A board whose period is closed does not: it has the
        status `rejected` in the result's `boards`, but no error is raised for it.
        """
        options = {"split": split, "round_floats": round_floats, "raise_rejected": raise_rejected}
        path = family_path(family, "posts")
        return (yield from post_all(self._sender, path, posts, **options, positions=positions, moved=moved))

    @operation
    def post_to_boards(self, posts: Sequence[Post] | Post, *, raise_rejected: bool = True) -> Program[list[PostResult]]:
        """Post stats to several boards at once, as `post` does for a single board. Each post names its `boards`."""
        return (yield from post_all(self._sender, path_of("v1", "posts"), posts, raise_rejected=raise_rejected))

    @operation
    def void_post(
        self, board: str, post_id: str, *, owner: str, reason: str | None = None
    ) -> Program[list[VoidedBoard]]:
        """Void a post, so that its owner's entry is recomputed without it (role `ops`).

        A repeated call returns the same result. The id stays reserved, so sending the same post again is rejected with
        `post_voided`. `reason` is kept in the list of acts.
        """
        return (yield from self._void(board_path(board, "posts", post_id), owner, reason))

    @operation
    def void_family_post(
        self, family: str, post_id: str, *, owner: str, reason: str | None = None
    ) -> Program[list[VoidedBoard]]:
        """Void a post on every board of a family that it reached, as `void_post` does for one board (role `ops`)."""
        return (yield from self._void(family_path(family, "posts", post_id), owner, reason))

    @walk
    def held_posts(self, board: str) -> Walk[HeldPost]:
        """Yield the posts that a board holds for review, oldest first (role `ops`)."""
        yield from self._walk_list(board_path(board, "held"), "posts", HeldPost, {})

    @operation
    def judge_post(
        self, board: str, post_id: str, verdict: Literal["accept", "refuse"], *, owner: str, reason: str | None = None
    ) -> Program[Record]:
        """Accept a held post, which applies it, or refuse it (role `ops`). Return the post's state on the board.

        Repeating the same verdict returns the same state.
        """
        path = with_query(board_path(board, "held", post_id), {"owner": owner})
        return (yield from self._ask(Record, "PUT", path, {"verdict": verdict, "reason": reason}))

    @walk
    def journal(self, after: int | str = 0) -> Walk[JournalLine]:
        """Yield the posts and changes that the journal has accepted up to now, oldest first (role `writer`).

        To continue an earlier read, pass the `seq` of its last line as `after`.
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
        """Fetch an owner's most recent posts."""
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
        """Create a board, or confirm that the existing board has this specification (role `ops`).

        `spec` is either the whole specification, whose columns may be in words, or the first column in words, such as
        `xp:sum` or `lap:min.3`. Further `columns` are in words, too; `rankcurve.column_words` explains the syntax.
        `ties` sets how equal values are ordered, and `members` holds any other members of the specification, such as
        `closes_at` and `segments`.
        """
        return (yield from self._ask(Board, "PUT", board_path(board), whole_spec(spec, columns, ties, members)))

    @operation
    def board(self, board: str) -> Program[Board]:
        """Fetch a board's specification, its number of entries, and the state of its curves."""
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
        """Yield the boards whose ids start with `prefix` and contain `contains`.

        They are sorted by id or, with `order="activity"`, most recently changed first. Set `families` to False to leave
        out the boards that belong to families.
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
        """Yield the families with their specifications, sorted by id."""
        yield from self._walk_list(path_of("v1", "families"), "families", Record, {})

    @walk
    def owner_boards(self, owner: str) -> Walk[OwnerBoard]:
        """Yield the boards on which an owner has an entry, sorted by id, each with that entry."""
        yield from self._walk_list(owner_path(owner, "boards"), "boards", OwnerBoard, {})

    @walk
    def grants(self, board: str) -> Walk[Grant]:
        """Yield the grants of a closed board, which say who received which reward, sorted by reward and rank."""
        yield from self._walk_list(board_path(board, "grants"), "grants", Grant, {})

    @walk
    def preview_rewards(self, board: str) -> Walk[ExpectedGrant]:
        """Yield the rewards that owners would receive if the board closed now, sorted by reward and rank."""
        yield from self._walk_list(board_path(board, "rewards", "preview"), "grants", ExpectedGrant, {})

    @walk
    def owner_grants(self, owner: str, *, state: Literal["open", "claimed"] | None = None) -> Walk[Grant]:
        """Yield an owner's grants, those of the newest board first, including grants from deleted boards.

        With `state`, yield only the grants that are still unclaimed (`open`) or only those already `claimed`.
        """
        yield from self._walk_list(owner_path(owner, "grants"), "grants", Grant, {"state": state})

    @operation
    def claim_grant(self, grant: str) -> Program[ClaimedGrant]:
        """Claim a grant by its id (role `writer`). A repeated call returns the same grant, with `first` set to false.

        `first` is true in exactly one answer. Because that answer can get lost, use `id` as the idempotency key of your
        payout.
        """
        return (yield from self._ask(ClaimedGrant, "POST", path_of("v1", "grants", grant, "claim")))

    @operation
    def reset_board(self, board: str, *, reason: str | None = None) -> Program[None]:
        """Empty a board, but keep its specification (role `ops`)."""
        yield from self._act("POST", board_path(board, "reset"), reason)

    @operation
    def reset_family(self, family: str, period: str, *, reason: str | None = None) -> Program[Record]:
        """Empty a family's current boards for one kind of period, such as `week` (role `ops`). Return the period."""
        path = family_path(family, "reset")
        body = {"period": period, "reason": reason}
        return (yield from self._ask(Record, "POST", path, body, repeatable=False))

    @operation
    def delete_board(self, board: str, *, reason: str | None = None) -> Program[None]:
        """Delete a board with all its entries (role `ops`)."""
        yield from self._act("DELETE", board_path(board), reason)

    @operation
    def refresh_curve(self, board: str, column: str | None = None) -> Program[Refreshed]:
        """Fit a new curve, and wait until readers get it (role `ops`)."""
        return (yield from self._ask(Refreshed, "POST", ranking_path(board, column, "refresh")))

    @operation
    def audit_curve(self, board: str, column: str | None = None, *, owners: int | None = None) -> Program[Audit]:
        """Check a curve against the true ranks of randomly chosen owners (role `ops`)."""
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
        """Create a family, or confirm that the existing family has this specification (role `ops`).

        Return its document.

        The arguments are those of `create_board`. A family also needs `periods`, such as `["all", "week"]`.
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
        """Yield the values of a facet in a period, each with its board.

        To look only within certain values of other facets, pass these values as `facets`.
        """
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
        """Find a family's board by its kind of period (`year`, `week`, …), a time in that period, and facet values."""
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
        """Yield an owner's final positions in a family's closed periods, newest first."""
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
        """Create a league, or change an existing one (role `ops`). Return its document.

        The arguments are those of `create_board`. A league also needs `column`, `period`, `cohort` and `divisions`.
        """
        return (yield from self._ask(Record, "PUT", league_path(league), whole_spec(spec, columns, ties, members)))

    @operation
    def league(self, league: str) -> Program[Record]:
        """Fetch a league's specification."""
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
        """Post stats to a league, as `post_to_family` does for a family.

        An owner's first post of a period takes a seat in a cohort. For an owner who is new to the league, a post may
        name the `division` in which to begin.
        """
        options = {"split": split, "round_floats": round_floats, "raise_rejected": raise_rejected}
        path = league_path(league, "posts")
        return (yield from post_all(self._sender, path, posts, **options, positions=positions, moved=moved))

    @operation
    def league_owner(self, league: str, owner: str) -> Program[LeagueOwner]:
        """Fetch an owner's division, and the cohort it is in during the current period. Raises UnknownOwnerError."""
        return check_owner((yield from self._get(LeagueOwner, league_path(league, "owners", owner))), owner)

    @walk
    def league_history(self, league: str, owner: str) -> Walk[LeaguePast]:
        """Yield an owner's results in a league's closed periods, newest first."""
        yield from self._walk_list(league_path(league, "owners", owner, "history"), "history", LeaguePast, {})

    @operation
    def leave_league(self, league: str, owner: str) -> Program[None]:
        """Remove an owner from a league, along with its seat, this period's entry and its division (role `writer`)."""
        yield from self._act("DELETE", league_path(league, "owners", owner), None)

    @operation
    def cohort(self, league: str, cohort: str, *, period: str | None = None) -> Program[Cohort]:
        """Fetch a cohort, such as `silver-12`, of the current period or of the `period` given."""
        return (yield from self._get(Cohort, league_path(league, "cohorts", cohort), {"period": period}))

    @walk
    def stream_cohort(
        self, league: str, cohort: str, *, last_event_id: str = "", attempts_max: int = STREAM_ATTEMPTS_MAX
    ) -> Walk[StreamEvent]:
        """Yield a cohort of the current period each time it changes, as `stream` does for a ranking."""
        path = league_path(league, "cohorts", cohort, "stream")
        yield from follow(path, last_event_id, self._sender.retries, attempts_max=attempts_max)

    @operation
    def divisions(self, league: str) -> Program[list[Division]]:
        """List a league's divisions, the best one last, with the number of owners seated in each this period."""
        return (yield from self._get(_Divisions, league_path(league, "divisions"))).divisions

    @operation
    def hide_owner(self, owner: str, *, shadow: bool = False, reason: str | None = None) -> Program[int]:
        """Hide an owner from every ranking, total and stream (role `ops`). The owner's posts are still merged.

        With `shadow`, answers about the owner continue as if the owner were ranked, so that a cheater does not notice.
        Return the number of boards on which the owner has or had an entry, including archived ones.
        """
        body = {"shadow": shadow, "reason": reason}
        return (yield from self._ask(_OwnerEntries, "PUT", owner_path(owner, "hidden"), body)).entries

    @operation
    def show_owner(self, owner: str, *, reason: str | None = None) -> Program[int]:
        """Show a hidden owner again (role `ops`).

        Return the number of boards on which the owner has or had an entry, including archived ones.
        """
        return decode((yield from self._act("DELETE", owner_path(owner, "hidden"), reason)), _OwnerEntries).entries

    @operation
    def join(self, board: str, owner: str) -> Program[Joined]:
        """Enter an owner on a board with entry rules, and return how many posts the owner has left.

        Joining again returns the same. Raises BoardFullError if the board is full, NotOpenError if joining has not
        opened yet, and PeriodClosedError if it is too late.
        """
        body = {"owner": owner}
        return check_owner((yield from self._ask(Joined, "POST", board_path(board, "entries"), body)), owner)

    @operation
    def erase_entry(self, board: str, owner: str, *, reason: str | None = None) -> Program[None]:
        """Erase an owner's entry on one board (role `ops`), but keep the profile and the entries on other boards."""
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
        """Erase up to 10,000 entries of one board, selected by owner or by their place in a ranking (role `ops`).

        `owners` names the owners to erase. Otherwise `from_rank` erases the row at that rank and all worse ones, and
        `worse_than` erases the rows that are worse than a value. Call it again as long as the answer's `more` is true.
        """
        given = {"owners": owners, "column": column, "from_rank": from_rank, "worse_than": worse_than}
        body = {name: each for name, each in (given | {"reason": reason}).items() if each is not None}
        path = board_path(board, "entries", "erase")
        return (yield from self._ask(Erased, "POST", path, body, repeatable=False))

    @operation
    def erase_owner(self, owner: str, *, reason: str | None = None) -> Program[int]:
        """Erase an owner everywhere: the entries, the profile, and the name and posts in the journal (role `ops`).

        Return the number of boards on which the owner has or had an entry, including archived ones.
        """
        return decode((yield from self._act("DELETE", owner_path(owner), reason)), _OwnerEntries).entries

    @operation
    def export_owner(self, owner: str) -> Program[list[Record]]:
        """Export everything that is stored about one person, as records with `kind` and `data` (role `ops`).

        Raises UnexpectedAnswerError if the export was cut off.
        """
        reply: Reply = yield from self._sender.send(Send("GET", owner_path(owner, "export")))
        lines = [decode(line, Record) for line in reply.content.splitlines()]
        if not lines or lines[-1].get("kind") != "end":
            raise UnexpectedAnswerError("the export was cut off")
        return lines

    @walk
    def hidden_owners(self) -> Walk[HiddenOwner]:
        """Yield the hidden owners, sorted by name (role `ops`)."""
        yield from self._walk_list(path_of("v1", "owners"), "owners", HiddenOwner, {"hidden": True})

    @walk
    def acts(self, *, owner: str | None = None, board: str | None = None, key: str | None = None) -> Walk[Act]:
        """Yield the acts of operators, newest first (role `ops`).

        With `owner`, `board` or `key` (the id of an API key), yield only the acts that concern it.
        """
        query = {"owner": owner, "board": board, "key": key}
        yield from self._walk_list(path_of("v1", "acts"), "acts", Act, query)

    @operation
    def merge_owner(
        self, owner: str, into: str, *, source: str = "journal", reason: str | None = None
    ) -> Program[list[MergedBoard]]:
        """Merge an owner into another one, so that two accounts of one person become one (role `ops`).

        With `source="journal"`, the merged entries are recomputed from the posts of both owners; with `entries`, they
        are computed from the stored values. A repeated call returns the same result, and completes a merge that was
        interrupted.
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
        """Issue a player token, which lets an owner post to the given boards and families (role `writer`).

        Each of them accepts `posts` posts with this token, whose numbers `n` count from 0. `limits` sets, by column,
        the best value that a single post may have.
        """
        given = {"boards": boards, "families": families, "limits": limits or {}}
        body = {"owner": owner, "posts": posts, "expires_in": expires_in_s, **given}
        return (yield from self._ask(IssuedToken, "POST", path_of("v1", "tokens"), body))

    @operation
    def void_tokens(self, owner: str, *, reason: str | None = None) -> Program[None]:
        """Void every player token that was issued for an owner until now (role `ops`)."""
        yield from self._act("DELETE", owner_path(owner, "tokens"), reason)

    @operation
    def profile(self, owner: str) -> Program[Record]:
        """Fetch an owner's profile, a small object that holds, for example, a name and a picture."""
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
        """Send a request that has no method here, and decode its answer as the type `answer`.

        With `bytes`, the body is returned undecoded. `path` must be percent-encoded, for which there is
        `rankcurve.transport.path_of`, and members of `query` that are None are left out. A GET or PUT may be sent more
        than once. Mark any other request as `repeatable` only if sending it twice does no harm.
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
        """Yield the records of a list that comes in pages. `member` is the name of the list within a page."""
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
        """Create a buffer, which collects posts and sends them in batches.

        The posts go to a board or to a family; with neither, each post names its boards. A batch is sent when
        `posts_per_request` posts are waiting, or `delay_s` after the oldest was submitted. Once `posts_max` posts are
        unsettled, `submit` waits. `spool` is a folder in which posts are kept until they are settled, even if the
        process ends. `round_floats` rounds floats to the decimals of their columns. `on_result` is called with the
        receipt of each settled post. The first rejected post of each kind is logged, and the buffer's `rejected` counts
        all of them.
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
        """Create the object through which this program leases resources. New resources come from `region`.

        Leases are remembered, so that asking again usually needs no request: a remembered lease is returned if it still
        lasts longer than `renew_before_s`, and at least `enough_ratio` times as long as the caller asks for. The
        `leases_max` most recently used leases are remembered.
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
    """A synchronous HTTP client for one service, with connection pooling and automatic retries.

    It can be shared between threads. Close it when you are done, or use it in a `with` block.
    """

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
        """`timeout_s` limits each wait for the network. `on_unreachable` is called once for each outage.

        `key` is an API key, or a function that returns a player token. The client calls this function when it has no
        token, and once more for a request whose token has expired or was voided.
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
    """An asynchronous HTTP client for one service, whose methods are coroutines.

    It belongs to one event loop. Close it when you are done, or use it in an `async with` block.
    """

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
        """`timeout_s` limits each wait for the network. `on_unreachable` is called once for each outage.

        `key` is an API key, or a function or coroutine function that returns a player token, which is called as for a
        `Client`.
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

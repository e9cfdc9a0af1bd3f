"""The types of the query strings that callers send, the bounds of their parameters, and the parser of these types.

A misspelled parameter that is ignored would give a wrong answer without any sign of it, so a request with an unknown,
repeated or malformed parameter is refused. A list is one parameter with commas between its items. Only `with` may be
repeated, because ids of leaderboards may contain commas.
"""

import re
import unicodedata
from collections.abc import Callable, Container
from contextlib import suppress
from functools import cache, lru_cache
from math import isfinite
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta

from config.settings import Settings
from storage.boards.family_ids import FACETS_TOGETHER_MAX, is_facet, names_family_board
from storage.leaves.count_policy import RankMode

from .cursors import CURSOR_CHARS_MAX
from .problems import FieldError, ProblemError, check_count, clip_text
from .requests import FACETS_SCHEMA, BoardId, ColumnName, FacetName, Instant, OwnerName, PeriodName, Reason
from .strict_json import describe_mismatch
from .values import (
    ALIASES_DESCRIPTION,
    ANY_BOARD_PATTERN,
    DECIMAL_PATTERN,
    INT64_MAX,
    SEARCH_PATTERN,
    SEQ_PATTERN,
    TIER_PATTERN,
    matching,
)

Q = TypeVar("Q", bound=msgspec.Struct)

_Count = Annotated[int, Meta(ge=0)]
_Limit = Annotated[int, Meta(ge=1)]
# `extra_json_schema` is only for the OpenAPI document: msgspec does not check values against it. `__post_init__` or the
# handler checks the values instead, so that a wrong value raises an error with a code of its own.
_Rank = Annotated[int, Meta(extra_json_schema={"minimum": 1, "maximum": INT64_MAX})]
_Percentile = Annotated[float, Meta(extra_json_schema={"minimum": 0, "maximum": 100})]
_Board = Annotated[BoardId, Meta(description=ALIASES_DESCRIPTION)]
_Search = Annotated[str, Meta(extra_json_schema={"pattern": SEARCH_PATTERN})]
_Decimal = Annotated[str, Meta(extra_json_schema={"pattern": DECIMAL_PATTERN})]
_Cursor = Annotated[
    str,
    Meta(
        description="Opaque text: `next` or `prev` of an earlier answer.",
        extra_json_schema={"minLength": 1, "maxLength": CURSOR_CHARS_MAX, "pattern": SEARCH_PATTERN},
    ),
]
_Seq = Annotated[
    str,
    Meta(
        description="Opaque text: `seq` or `next` of an answer, if the store has several partitions.",
        extra_json_schema={"maxLength": CURSOR_CHARS_MAX},
    ),
    matching(SEQ_PATTERN),
]
_Facets = Annotated[dict[str, str], Meta(extra_json_schema={**FACETS_SCHEMA, "maxProperties": FACETS_TOGETHER_MAX})]
_REST = "facets"  # the field that collects all parameters without a field of their own: each is named after a facet
_IS_BOARD = re.compile(ANY_BOARD_PATTERN)
_BOARDS = "with"  # the only parameter that may be repeated: a list of leaderboard ids
PARAMETERS_MAX = 32
# Queries with more characters are not cached, because they are seldom repeated. So a route caches less than 512 KiB.
CACHED_CHARS_MAX = 256
CACHED_QUERIES_MAX = 1024


class PostsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Says when posts are applied: before the answer (`direct`), or soon after the answer by a worker (`queued`)."""

    mode: Literal["direct", "queued"] = "direct"


class PositionedPostsQuery(PostsQuery, frozen=True, forbid_unknown_fields=True):
    """Says when posts are applied, and whether each result also has the owner's positions in some columns."""

    positions: Annotated[tuple[ColumnName, ...], Meta(extra_json_schema={"minItems": 1})] = ()
    """Ranked columns. Each result, or each of its `boards`, then has the owner's positions after the request."""
    moved: bool = False
    """True: each position also has `rank_before`."""

    def __post_init__(self) -> None:
        if self.moved and not self.positions:
            raise ProblemError("bad_request", "name columns in positions", pointer="moved")
        if self.positions and self.mode != "direct":
            raise ProblemError("bad_request", "queued posts have no positions yet", pointer="positions")


class PostStateQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Asks for the state of one owner's post. Without `owner`, asks for the states of all posts with the post id."""

    owner: OwnerName | None = None


class ActQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    reason: Reason | None = None


class VoidQuery(ActQuery, frozen=True, forbid_unknown_fields=True):
    """Names the owner of the post that is taken back."""

    owner: OwnerName


class HeldQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names the owner of the held post."""

    owner: OwnerName


class ListQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: _Limit | None = None
    cursor: _Cursor | None = None


class OwnerGrantsQuery(ListQuery, frozen=True, forbid_unknown_fields=True):
    state: Literal["open", "claimed"] | None = None
    """Only grants that are not claimed yet, or only those that are. Default: all."""


class ActsQuery(ListQuery, frozen=True, forbid_unknown_fields=True):
    """Asks for the acts that concern this owner and this leaderboard, and were done with this API key."""

    owner: OwnerName | None = None
    board: BoardId | None = None
    key: _Search | None = None
    """The id of an API key."""


class HiddenQuery(ListQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    hidden: Literal["true"]
    """Only hidden owners are listed."""


class BoardsQuery(ListQuery, frozen=True, forbid_unknown_fields=True):
    prefix: _Search = ""
    contains: Annotated[_Search, Meta(max_length=128)] = ""
    """A part of the ids, in upper or lower case. Every id is compared."""
    order: Literal["id", "activity"] = "id"
    families: bool = True
    """True: the list has the leaderboards of families, too."""


class ProfilesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    profiles: bool = False


class JournalQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Asks for the journal lines that follow the line whose `seq` is `after`. 0 means the beginning of the journal."""

    after: Annotated[int, Meta(ge=0, le=INT64_MAX)] | _Seq = 0
    limit: _Limit | None = None


class EventsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Asks for the events that follow the event whose `seq` is `after`. 0 means the oldest event that is kept."""

    after: Annotated[int, Meta(ge=0, le=INT64_MAX)] = 0
    limit: _Limit | None = None


class LeaseJournalQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Asks for the lines of the lease journal whose sequence number is greater than `after`, the oldest line first."""

    after: Annotated[int, Meta(ge=0, le=INT64_MAX)] = 0
    limit: _Limit | None = None


class OwnerPostsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Asks for an owner's newest posts. For the next page, `before` is the `next` of the previous page."""

    limit: _Limit | None = None
    before: Annotated[int, Meta(ge=1, le=INT64_MAX)] | _Seq | None = None


class StreamQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Asks for a stream about the ranking of a column: either its top rows, or one owner's position."""

    column: ColumnName | None = None
    """Default: the only ranked column."""
    top: _Limit | None = None
    owner: OwnerName | None = None

    def __post_init__(self) -> None:
        if self.top is not None and self.owner is not None:
            raise ProblemError("bad_request", "a stream has the top or an owner, not both", pointer="owner")


class PositionsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Asks for an owner's positions in `columns`, or in every ranked column if `columns` is missing."""

    columns: tuple[ColumnName, ...] = ()
    rank: RankMode = "auto"
    next: bool = False
    compare: Literal["previous"] | None = None


class AroundOwnerQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    column: ColumnName | None = None
    """Default: the only ranked column."""
    better: _Count = 5
    worse: _Count = 5
    fill: bool = False
    """True: if one side has fewer rows, because the ranking ends there, the other side has more."""
    profiles: bool = False


class PageQuery(ListQuery, frozen=True, forbid_unknown_fields=True):
    """Asks for a page of a ranking. The page starts at the top, at a cursor, or at the rank `from_rank`."""

    from_rank: _Rank | None = None
    profiles: bool = False
    order: Literal["rank", "owner"] = "rank"
    tier: Annotated[str, matching(TIER_PATTERN)] | None = None
    """Only rows of this tier."""

    def __post_init__(self) -> None:
        if self.order == "owner" and (self.from_rank is not None or self.profiles or self.tier is not None):
            raise ProblemError("bad_request", "order=owner goes with limit and cursor only", pointer="order")
        if self.tier is not None and self.from_rank is not None:
            raise ProblemError("bad_request", "a tier has pages by cursor only", pointer="tier")
        if self.from_rank is not None:
            check_rank(self.from_rank, "from_rank")
            if self.cursor is not None:
                detail = "a page starts at a cursor or at a rank, not at both"
                raise ProblemError("bad_request", detail, pointer="from_rank")


class TopQuery(PageQuery, frozen=True, forbid_unknown_fields=True):
    """Asks for a page of the ranking of `column`, as a request for a page does. Default: the only ranked column."""

    column: ColumnName | None = None


class ValuePositionsQuery(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename={"with_": "with"}
):
    """Asks for the positions of values. `with` names further leaderboards, whose entries are counted too.

    `values` are texts here. The handler converts them to numbers, because only the handler knows the column's scale.
    """

    values: Annotated[tuple[_Decimal, ...], Meta(min_length=1)]
    rank: RankMode = "auto"
    with_: tuple[_Board, ...] = ()


class AroundValueQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    value: _Decimal
    better: _Count = 5
    worse: _Count = 5
    fill: bool = False
    """True: if one side has fewer rows, because the ranking ends there, the other side has more."""
    profiles: bool = False


class ValuesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ranks: tuple[_Rank, ...] = ()
    percentiles: tuple[_Percentile, ...] = ()

    def __post_init__(self) -> None:
        if not self.ranks and not self.percentiles:
            raise ProblemError("bad_request", "give ranks or percentiles", pointer="ranks")
        for rank in self.ranks:
            check_rank(rank, "ranks")
        for percentile in self.percentiles:
            if not (isfinite(percentile) and 0 <= percentile <= 100):
                raise ProblemError("bad_request", "a percentile lies between 0 and 100", pointer="percentiles")


class BucketsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Asks for a distribution in `buckets` parts of equal width.

    If `rank` is `estimate` and the column has a curve, the curve gives the number of entries in each part. Otherwise
    the entries are counted.
    """

    buckets: Annotated[int, Meta(ge=1)] = 20
    rank: Literal["exact", "estimate"] = "exact"


class AuditQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Asks for an audit of a curve with `owners` random owners. The default is the greatest allowed number."""

    owners: Annotated[int, Meta(ge=1)] | None = None


class FamilyBoardsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Asks for a family's leaderboard with the facet values `facets`, in the period at the time `at` (default: now)."""

    period: PeriodName
    at: Instant | None = None
    facets: _Facets = {}


class FacetsQuery(FamilyBoardsQuery, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Asks for the values of `facet`, or only for its values on leaderboards that also have the values `facets`."""

    facet: FacetName
    limit: _Limit | None = None
    cursor: _Cursor | None = None


class HistoryQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Asks for an owner's final positions in the newest closed periods of one length, such as days."""

    period: PeriodName
    column: ColumnName | None = None
    """Default: the only ranked column."""
    limit: _Limit = 30
    cursor: _Cursor | None = None
    rank: RankMode = "exact"
    facets: _Facets = {}


# parameter -> (the setting that bounds the value or the length of a list, the error code if the bound is exceeded)
_BOUNDS: dict[str, tuple[str, str]] = {
    "HistoryQuery.limit": ("history_periods_max", "too_many_entries"),
    "limit": ("page_entries_max", "too_many_entries"),
    "better": ("around_rows_max", "too_many_entries"),
    "worse": ("around_rows_max", "too_many_entries"),
    "buckets": ("buckets_max", "too_many_buckets"),
    "columns": ("query_values_max", "too_many_values"),
    "positions": ("query_values_max", "too_many_values"),
    "values": ("query_values_max", "too_many_values"),
    "with": ("query_values_max", "too_many_boards"),
    "ranks": ("query_values_max", "too_many_values"),
    "percentiles": ("query_values_max", "too_many_values"),
    "owners": ("audit_owners_max", "too_many_owners"),
    "top": ("stream_top_max", "too_many_entries"),
}
# The texts that are read as a number or a boolean. A parameter of one of these types refuses any other text.
_SCALAR = re.compile(r"-?(0|[1-9][0-9]{0,400})(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false")


def check_rank(rank: int, pointer: str) -> None:
    if not 1 <= rank <= INT64_MAX:
        raise ProblemError("bad_rank", "a rank is a whole number from 1", pointer=pointer)


def make_query_parsers(kind: type[Q], settings: Settings) -> tuple[Callable[[str], Q], Callable[[str], Q]]:
    """Make two functions that parse a raw query string into the type `kind`: for short queries and for long ones.

    Short queries have at most `CACHED_CHARS_MAX` characters. The function for short queries caches its results, and
    requests share them, so `kind` must be frozen. For a query with a fault, both functions raise ProblemError:
    `bad_request`, `unknown_field`, `duplicate_field`, `bad_rank`, or the code in `_BOUNDS`.
    """
    fields, scalars, lists = _read_fields(kind)
    bounds = [
        (field.name, field.encode_name, getattr(settings, bound[0]), bound[1])
        for field in fields
        if (bound := bound_of(kind, field.encode_name)) is not None
    ]

    def parse(raw: str) -> Q:
        found = _split(raw, lists)
        if _REST in scalars:
            _collect_rest(found, scalars)
        for name in found:
            if scalars.get(name):
                text = found[name]
                found[name] = _read_scalar(text) if isinstance(text, str) else tuple(map(_read_scalar, text))
        query = _converted(found, kind)
        for name, shown, most, code in bounds:
            value = getattr(query, name)
            count = len(value) if isinstance(value, tuple) else value
            if isinstance(count, int):
                check_count(count, most, code, shown, shown)
        return query

    return lru_cache(maxsize=CACHED_QUERIES_MAX)(parse), parse


@cache
def _read_fields(kind: type) -> tuple[tuple[msgspec.structs.FieldInfo, ...], dict[str, bool], frozenset[str]]:
    fields = msgspec.structs.fields(kind)
    scalars = {field.encode_name: _is_scalar(msgspec.inspect.type_info(field.type)) for field in fields}
    return fields, scalars, frozenset(field.encode_name for field in fields if "tuple" in str(field.type))


def _collect_rest(found: dict[str, Any], known: Container[str]) -> None:
    rest = {name: found.pop(name) for name in list(found) if name == _REST or name not in known}
    for name in rest:
        if not is_facet(name):
            shown = clip_text(name)
            raise ProblemError("unknown_field", f"{shown!r} is not a parameter of this path", pointer=shown)
    found[_REST] = rest


def _is_scalar(kind: msgspec.inspect.Type) -> bool:
    """Return whether a parameter of this type may be a number or a boolean. A list may if its items may."""
    match kind:
        case msgspec.inspect.Metadata():
            return _is_scalar(kind.type)
        case msgspec.inspect.VarTupleType():
            return _is_scalar(kind.item_type)
        case msgspec.inspect.UnionType():
            return any(map(_is_scalar, kind.types))
    return isinstance(kind, msgspec.inspect.IntType | msgspec.inspect.FloatType | msgspec.inspect.BoolType)


def _read_scalar(text: str) -> object:
    if _SCALAR.fullmatch(text):
        with suppress(msgspec.ValidationError):
            return msgspec.json.decode(text)
    return text


def _split(raw: str, lists: frozenset[str]) -> dict[str, Any]:
    try:
        raw.encode("utf-8")  # bytes that are not UTF-8 arrive as lone surrogates, which `encode` refuses
        pairs = parse_qsl(
            raw, keep_blank_values=True, strict_parsing=bool(raw), errors="strict", max_num_fields=PARAMETERS_MAX
        )
    except ValueError as error:  # UnicodeError is a ValueError too
        raise ProblemError("bad_request", "the query string is not name=value pairs in UTF-8") from error
    found: dict[str, Any] = {}
    boards: list[str] = []
    for name, value in pairs:
        if "\0" in value:  # PostgreSQL refuses texts with NUL
            raise ProblemError("bad_request", "the parameter has a NUL character", pointer=clip_text(name))
        if name == _BOARDS and name in lists:
            boards.append(value)
            found[name] = _boards(boards)
            continue
        if name in found:
            raise ProblemError(
                "duplicate_field",
                "the parameter is given twice; a list is separated by commas",
                pointer=clip_text(name),
            )
        found[name] = tuple(value.split(",")) if name in lists else value
    return found


def _boards(texts: list[str]) -> tuple[str, ...]:
    """Split a parameter that may be repeated into leaderboard ids. `texts` has its text for each repetition.

    If there are several texts, each is one id. A single text is a list of ids with commas between them, unless the
    whole text is the id of a family's board, which may contain commas, or a part of it can't be an id.
    """
    texts = [unicodedata.normalize("NFC", text) for text in texts]
    parts = tuple(texts[0].split(","))
    whole = len(texts) > 1 or names_family_board(texts[0]) or not all(map(_IS_BOARD.match, parts))
    return tuple(texts) if whole else parts


def _converted(found: dict[str, Any], kind: type[Q]) -> Q:
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        code, fault = describe_mismatch(error)
        name = fault.pointer[1:].partition("/")[0]
        given = found.get(name)
        detail = (
            f"{name} {clip_text(given)!r}: {fault.detail}"
            if isinstance(given, str)
            else f"{name or 'the query'}: {fault.detail}"
        )
        raise ProblemError(code, detail, errors=[FieldError(name, fault.detail)]) from error


def bound_of(kind: type[msgspec.Struct], name: str) -> tuple[str, str] | None:
    """Find the setting that bounds a parameter, and the error code for greater values.

    Return None if it has no bound.
    """
    return _BOUNDS.get(f"{kind.__name__}.{name}") or _BOUNDS.get(name)

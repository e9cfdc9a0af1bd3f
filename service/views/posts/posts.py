"""Posting to leaderboards: parse the posts of a request, apply them durably, and return their results."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

import msgspec
from msgspec import Raw

from service.context import Context
from service.contract.keys import Role
from service.contract.post_bodies import PostTarget, ReceivedPost, parse_posts
from service.contract.problems import ProblemError, name_post, post_problem_of
from service.contract.queries import PostStateQuery
from service.contract.responses.boards import (
    BoardResult,
    PostResult,
    PostResults,
    PostState,
    PostStates,
    Stats,
)
from service.contract.routes import Answer, Call
from service.contract.values import format_decimal, format_us, parse_decimal, parse_owner, parse_text, to_wire_number
from storage.boards.catalog import Catalog
from storage.errors import (
    AtInFutureError,
    FamilyBoardError,
    PostError,
    PostRejectedError,
    UnknownBoardError,
    UnknownColumnError,
    ValueOutOfRangeError,
)
from storage.queue.outcomes import POSTS_LISTED_MAX, find_post_fate, list_post_fates
from storage.records import (
    Board,
    BoardPost,
    ColumnChange,
    ColumnKind,
    ColumnSpec,
    Family,
    Merge,
    PartOutcome,
    Post,
    PostStatus,
    StatValue,
)

from .queue import QUEUED, queue_posts

BATCH_POSTS_MIN = 101  # the metrics count requests of so many posts apart
_FINGERPRINT_BYTES = 16
_BEST_FIRST = tuple(PostStatus)

_time_text = lru_cache(maxsize=64)(format_us)  # nearly all rows of one transaction have the same time


async def post_to_board(context: Context, call: Call) -> Answer:
    board = await _find_board(context, call.path["board"])
    return await _take_posts(context, call, PostTarget.ONE_BOARD, board.id)


async def post_to_boards(context: Context, call: Call) -> Answer:
    return await _take_posts(context, call, PostTarget.BOARDS, None)


def parse_request_posts(context: Context, call: Call, kind: PostTarget) -> tuple[list[ReceivedPost], bool]:
    """Return the posts of a request, and whether its body is a single post instead of a list.

    Raises:
        ProblemError: the request as a whole is faulty, or the caller's API key may not send that many posts now.
    """
    may_set = call.identity.role >= Role.OPS
    posts, single = parse_posts(call.body, call.media_type, context.settings, kind=kind, may_set=may_set)
    call.is_batch = len(posts) >= BATCH_POSTS_MIN
    if context.key_limits.posts.is_set:
        context.key_limits.posts.admit(call.identity.key_id, len(posts))
    return posts, single


async def get_post_state(context: Context, call: Call) -> PostState | PostStates:
    """Return the outcome of an owner's post from the store, or of every post with the id if the query has no owner."""
    query: PostStateQuery = call.query
    board, post_id = await context.catalog.find_board(call.path["board"]), call.path["post_id"]
    asked = context.store, context.posting.post_ids, board, post_id
    if query.owner is not None:
        owner = parse_owner(query.owner)
        return _state_of(board, post_id, owner, await find_post_fate(*asked, owner))
    fates = await list_post_fates(*asked)
    states = [_state_of(board, post_id, fate.owner, fate.outcome) for fate in fates[:POSTS_LISTED_MAX]]
    return PostStates(post_id, states, len(fates) > POSTS_LISTED_MAX)


def _state_of(board: Board, post_id: str, owner: str | None, fate: PartOutcome | None) -> PostState:
    if fate is None:
        return PostState(post_id=post_id, owner=owner, status="pending")
    if fate.error is not None:
        error = post_problem_of(fate.error).to_document()
        return PostState(post_id=post_id, owner=owner, status="rejected", error=error)
    return PostState(
        post_id=post_id,
        owner=owner,
        status=fate.status.value,  # type: ignore[arg-type]  # `duplicate` is never stored as an outcome
        updated_at=format_us(fate.updated_at_us or 0),
        stats=format_stats(board, fate.stats or ()),
    )


async def _take_posts(context: Context, call: Call, kind: PostTarget, only_board: str | None) -> Answer:
    posts, single = parse_request_posts(context, call, kind)

    async def resolve() -> list[Post]:
        asked, board = _Asked({}, set()), _find_plain_board(context, only_board)
        found: list[Post] = []
        for index, post in enumerate(posts):
            each = _resolved_here(context, post, board) or await _resolved(context, post, only_board, asked)
            if isinstance(each, PostOutcome):
                raise name_post(post_problem_of(each.find_cause()), None if single else index)
            found.append(each)
        return found

    if call.query.mode == QUEUED:
        return await queue_posts(context, resolve, single=single)
    return make_results(context, posts, await _settle(context, posts, only_board), single=single)


async def _settle(context: Context, posts: list[ReceivedPost], only_board: str | None) -> list[PostOutcome]:
    """Apply posts. Apply those again that were rejected because this process had outdated copies of their boards."""
    outcomes = await _apply(context, posts, only_board)
    if PostStatus.REJECTED in [outcome.status for outcome in outcomes]:
        again = await _find_outdated(context.catalog, outcomes)
        for index, outcome in zip(
            again, await _apply(context, [posts[index] for index in again], only_board), strict=True
        ):
            outcomes[index] = outcome
    return outcomes


async def _apply(context: Context, posts: Sequence[ReceivedPost], only_board: str | None) -> list[PostOutcome]:
    asked, board = _Asked({}, set()), _find_plain_board(context, only_board)
    resolved = [
        _resolved_here(context, post, board) or await _resolved(context, post, only_board, asked) for post in posts
    ]
    accepted = [post for post in resolved if isinstance(post, Post)]
    applied = iter(await context.posting.writer.submit(accepted) if accepted else [])
    outcomes = []
    for each in resolved:
        if isinstance(each, PostOutcome):
            outcomes.append(each)
            continue
        parts = next(applied)
        if only_board is None:
            outcomes.append(name_boards([(target.board, part) for target, part in zip(each.parts, parts, strict=True)]))
        else:
            outcomes.append(PostOutcome([(each.parts[0].board, parts[0])], parts[0].status, False))
    return outcomes


async def _find_outdated(catalog: Catalog, outcomes: Sequence[PostOutcome]) -> list[int]:
    """Return the indexes of posts with an unknown board that still exists but differs from this process's copy."""
    unknown = [outcome.list_unknown_boards() for outcome in outcomes]
    outdated: set[str] = set()
    for board in {board.id: board for boards in unknown for board in boards}.values():
        with suppress(UnknownBoardError):
            if board not in (await catalog.reread_board(board.id)).parts:
                outdated.add(board.id)
    return [index for index, boards in enumerate(unknown) if any(board.id in outdated for board in boards)]


async def _find_board(context: Context, named: str) -> Board:
    """Return the board with an id, or the board of a family that an alias stands for. Raises UnknownBoardError."""
    if (known := context.catalog.find_known(named)) is not None:
        return known
    if "\0" in named:  # PostgreSQL can't look it up
        raise UnknownBoardError(f"no leaderboard {named!r}")
    [board_id] = await context.catalog.resolve_aliases([named], context.now_us())
    return await context.catalog.find_board(board_id)


def _find_plain_board(context: Context, board_id: str | None) -> Board | None:
    """Return this process's copy of a board; None if it has none, or if the board belongs to a family."""
    board = None if board_id is None else context.catalog.find_known(board_id)
    return None if board is None or board.family_key is not None else board


def _resolved_here(context: Context, post: ReceivedPost, board: Board | None) -> Post | None:
    """Return the post if nothing has to be read from the store, else None. Nearly every post takes this fast path."""
    if board is None or post.at_us is not None:
        return None
    try:
        changes = parse_changes(board, post.stats, post.overwrite)
    except (PostError, ProblemError):
        return None
    # Most boards have no segments, and a batch then makes no call for each post.
    parts = [BoardPost(board.part_of(post.owner) if board.segments else board, changes)]
    if post.post_id is None:
        return Post(post.owner, parts, None, None, "")
    return make_post(context, post, board, changes, parts)


class _Asked(NamedTuple):
    """The boards that one request has already looked for in the store, so that it reads each board once."""

    unknown: dict[str, UnknownBoardError]
    reread: set[str]


async def _resolved(context: Context, post: ReceivedPost, only_board: str | None, asked: _Asked) -> Post | PostOutcome:
    """Return the post in the units of its boards, or the errors of the boards that can't take it."""
    board_ids = [only_board] if only_board is not None else post.boards or []
    errors: dict[str, Exception] = {}
    parts: list[BoardPost] = []
    if post.at_us is not None and post.at_us > context.now_us() + context.settings.at_ahead_s_max * 1e6:
        error = AtInFutureError(f"at is more than {context.settings.at_ahead_s_max:g} s ahead", pointer="/at")
        return PostOutcome([(each, error) for each in board_ids], PostStatus.REJECTED, only_board is None)
    for board_id in board_ids:
        try:
            if board_id in asked.unknown:
                raise asked.unknown[board_id]
            board = await _find_board(context, board_id)
            if board.family_key is not None:
                raise FamilyBoardError(f"{board.id!r} belongs to a family: post to the family")
            try:
                changes = parse_changes(board, post.stats, post.overwrite)
            except UnknownColumnError:
                if board_id in asked.reread:
                    raise
                asked.reread.add(board_id)
                board = await context.catalog.reread_board(board_id)  # another process may have added the column
                changes = parse_changes(board, post.stats, post.overwrite)
            parts.append(BoardPost(board.part_of(post.owner), changes))
        except UnknownBoardError as error:
            errors[board_id] = asked.unknown[board_id] = error
        except (PostError, ProblemError) as error:
            errors[board_id] = error
    if errors:
        refused = [(board_id, errors.get(board_id) or PostRejectedError()) for board_id in board_ids]
        return PostOutcome(refused, PostStatus.REJECTED, only_board is None)
    return make_post(context, post, parts[0].board, parts[0].changes, parts)


def make_post(
    context: Context,
    post: ReceivedPost,
    board: Board,
    changes: Sequence[ColumnChange],
    parts: list[BoardPost],
    family: Family | None = None,
) -> Post:
    """Return a post to these boards. `changes` are in the units of the columns of `board`."""
    if post.post_id is None:
        return Post(post.owner, parts, None, post.at_us, "", family)
    fingerprint = hash_post(post.owner, board, changes, post.at_us, post.facets)
    post_hash = context.posting.post_ids.hash_post_id(post.post_id, post.owner)
    return Post(post.owner, parts, post_hash, post.at_us, fingerprint, family, post.post_id)


def parse_changes(board: Board, stats: Mapping[str, Raw], overwrite: Mapping[str, Raw]) -> list[ColumnChange]:
    """Return the values of a post, in the units of the board's columns.

    Raises:
        UnknownColumnError, ValueOutOfRangeError, ProblemError: the board can't take the post.
    """
    changes = []
    for values in (stats, overwrite) if overwrite else (stats,):
        overwrites = values is overwrite
        for name, raw in values.items():
            index = board.column_index.get(name)
            if index is None:
                raise UnknownColumnError(f"no column {name!r} in {board.id!r}", pointer=_pointer(name, overwrites))
            column = board.spec.columns[index]
            try:
                value = parse_text(raw) if column.kind is ColumnKind.TEXT else parse_decimal(raw, column.scale)
            except ProblemError as problem:
                raise ProblemError(problem.code, problem.detail, pointer=_pointer(name, overwrites)) from None
            if column.merge is not Merge.SUM and isinstance(value, int):
                _check_range(column, value, overwrites)
            changes.append(ColumnChange(index, value, overwrites))
    return changes


def _check_range(column: ColumnSpec, value: int, overwrite: bool) -> None:
    if not column.min_scaled <= value <= column.max_scaled:
        bounds = f"{column.min_scaled / 10**column.scale:g} to {column.max_scaled / 10**column.scale:g}"
        raise ValueOutOfRangeError(f"{column.name} is outside {bounds}", pointer=_pointer(column.name, overwrite))


def _pointer(name: str, overwrite: bool) -> str:
    return f"/{'set' if overwrite else 'stats'}/{name}"


def hash_post(
    owner: str, board: Board, changes: Sequence[ColumnChange], at_us: int | None, facets: dict[str, str] | None = None
) -> str:
    """Return a hash of owner, values, `at` and facets. It tells a retry from a different post with the same id.

    Equal numbers give the same hash, whatever their spelling and the scale of the board's column.
    """
    columns = board.spec.columns
    values = sorted(_comparable(columns[change.index], change) for change in changes)
    text = msgspec.json.encode((owner, values, at_us, *([] if facets is None else [sorted(facets.items())])))
    return hashlib.blake2b(text, digest_size=_FINGERPRINT_BYTES).hexdigest()


def _comparable(column: ColumnSpec, change: ColumnChange) -> tuple[str, str, bool]:
    """Return the part of a fingerprint for one value: column name, value, and whether the value overwrites."""
    value = change.value
    if isinstance(value, int):
        value = format_decimal(value, column.scale)
        if column.scale:
            value = value.rstrip("0").rstrip(".")
    return column.name, value, change.overwrite


def format_stats(board: Board, values: Sequence[StatValue | None]) -> Stats:
    """Return stored values by column name, as the API shows them."""
    columns = board.spec.columns
    if len(columns) == 1 and values:  # most boards have one column
        column, value = columns[0], values[0]
        return {column.name: to_wire_number(value, column.scale) if isinstance(value, int) else value}
    return {
        column.name: to_wire_number(value, column.scale) if isinstance(value, int) else value
        for column, value in zip(columns, values, strict=False)
    }


class PostOutcome(msgspec.Struct, frozen=True):
    """The outcomes of a post on its boards, or one outcome of the whole post, which then is not `named`.

    Each is a board, or only the id of a board that was not looked up, with what the writer made of the post there. An
    error stands in its place if the post did not reach the writer.
    """

    boards: Sequence[tuple[Board | str, PartOutcome | Exception]]
    status: PostStatus  # the best of the statuses that the post has on its boards
    named: bool = True

    def find_cause(self) -> Exception:
        """Return the error that caused the others: the first that is no `PostRejectedError`, or else the first."""
        errors = [error for _, part in self.boards if (error := _error_of(part)) is not None] or [PostRejectedError()]
        return next((error for error in errors if not isinstance(error, PostRejectedError)), errors[0])

    def list_unknown_boards(self) -> list[Board]:
        """Return the boards that the writer did not find."""
        return [
            board
            for board, part in self.boards
            if isinstance(board, Board) and isinstance(_error_of(part), UnknownBoardError)
        ]


def name_boards(boards: Sequence[tuple[Board | str, PartOutcome | Exception]]) -> PostOutcome:
    """Return the outcome of a post whose result lists its boards."""
    best = PostStatus.REJECTED
    for _, part in boards:
        if isinstance(part, PartOutcome):
            best = min(best, part.status, key=_BEST_FIRST.index)
            if best is PostStatus.APPLIED:
                break
    return PostOutcome(boards, best)


def _error_of(part: PartOutcome | Exception) -> Exception | None:
    return part if isinstance(part, Exception) else part.error


def make_results(
    context: Context, posts: Sequence[ReceivedPost], outcomes: Sequence[PostOutcome], *, single: bool
) -> PostResults:
    """Return the results of the posts of a request.

    Raises:
        ProblemError: the body was a single post, which is rejected.
    """
    statuses = [outcome.status for outcome in outcomes]
    for status in _BEST_FIRST:
        if count := statuses.count(status):
            # `value` would call a function of Python
            context.metrics.meter.add("rankcurve_posts", count, status._value_)
    results = []
    for post, outcome in zip(posts, outcomes, strict=True):
        status = outcome.status
        if status is PostStatus.REJECTED:
            problem = post_problem_of(outcome.find_cause())
            if single:
                raise problem
            result = PostResult(owner=post.owner, status=status, error=problem.to_document())
        elif outcome.named:
            result = PostResult(owner=post.owner, status=status)
        else:
            [(board, part)] = outcome.boards
            assert isinstance(board, Board)
            assert isinstance(part, PartOutcome)
            updated_at = _time_text(part.updated_at_us or 0)
            stats = format_stats(board, part.stats or ())
            result = PostResult(owner=post.owner, status=status, updated_at=updated_at, stats=stats)
        if outcome.named:
            result.boards = [_board_result(board, part) for board, part in outcome.boards]
        results.append(result)
    return PostResults(results)


def _board_result(board: Board | str, part: PartOutcome | Exception) -> BoardResult:
    if isinstance(board, Board) and isinstance(part, PartOutcome) and part.error is None:
        return BoardResult(
            board=board.id,
            status=part.status,
            updated_at=_time_text(part.updated_at_us or 0),
            stats=format_stats(board, part.stats or ()),
        )
    problem = post_problem_of(_error_of(part) or PostRejectedError())
    board_id = board.id if isinstance(board, Board) else board
    return BoardResult(board=board_id, status=PostStatus.REJECTED, error=problem.to_document())

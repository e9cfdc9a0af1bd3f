"""Posting to leaderboards: parse the posts of a request, apply them durably, and return their results."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec import Raw

from service.context import Context
from service.contract.keys import Role
from service.contract.post_bodies import PostTarget, ReceivedPost, parse_posts
from service.contract.problems import ProblemError, post_problem_of
from service.contract.responses.boards import BoardResult, PostResult, PostResults, Stats
from service.contract.routes import Answer, Call
from service.contract.values import format_decimal, format_us, parse_decimal, parse_text, to_wire_number
from service.views.retry_on_change import find_retriable_posts
from storage.errors import (
    AtInFutureError,
    FamilyBoardError,
    PostError,
    PostRejectedError,
    UnknownBoardError,
    UnknownColumnError,
    ValueOutOfRangeError,
)
from storage.records import (
    Board,
    BoardPost,
    ColumnChange,
    ColumnKind,
    ColumnSpec,
    Merge,
    PartOutcome,
    Post,
    PostStatus,
    StatValue,
)

from .queueing import QUEUED, ResolvedPosts, find_closure, make_refusal, queue_posts

FINGERPRINT_BYTES = 16
BEST_FIRST = tuple(PostStatus)

_time_text = lru_cache(maxsize=64)(format_us)  # nearly all rows of one transaction have the same time


async def post_to_board(context: Context, call: Call) -> Answer:
    """Handle `POST /v1/leaderboards/{board}/posts`."""
    board_id = call.path["board"]
    await context.catalog.find_board(board_id)
    posts, single = parse_request_posts(context, call, PostTarget.ONE_BOARD)
    if call.query.mode == QUEUED:
        return await _queue(context, posts, single=single, only_board=board_id)
    return await _settle(context, posts, single=single, only_board=board_id)


async def post_to_boards(context: Context, call: Call) -> Answer:
    """Handle `POST /v1/posts`."""
    posts, single = parse_request_posts(context, call, PostTarget.BOARDS)
    if call.query.mode == QUEUED:
        return await _queue(context, posts, single=single, only_board=None)
    return await _settle(context, posts, single=single, only_board=None)


async def _queue(context: Context, posts: list[ReceivedPost], *, single: bool, only_board: str | None) -> Answer:
    async def resolve() -> ResolvedPosts:
        asked, to_queue = _Asked({}, set()), ResolvedPosts()
        for index, post in enumerate(posts):
            found = _resolved_here(context, post, only_board) or await _resolved(context, post, only_board, asked)
            if not isinstance(found, Post):
                raise make_refusal(first_cause(list(found.values())), None if single else index)
            if (closed := find_closure(found, context.now_us())) is None:
                to_queue.posts.append(found)
            else:
                to_queue.closed[index] = (found, closed)
        return to_queue

    return await queue_posts(context, resolve, single=single)


def parse_request_posts(context: Context, call: Call, kind: PostTarget) -> tuple[list[ReceivedPost], bool]:
    """Return the posts of a request, and whether its body is a single post instead of a list.

    Raises:
        ProblemError: the request as a whole is faulty, or the caller's API key may not send that many posts now.
    """
    may_set = call.identity.role >= Role.OPS
    posts, single = parse_posts(call.body, call.media_type, context.settings, kind=kind, may_set=may_set)
    if context.key_limits.limits_posts:
        context.key_limits.admit_posts(call.identity, len(posts))
    return posts, single


async def _settle(context: Context, posts: list[ReceivedPost], *, single: bool, only_board: str | None) -> PostResults:
    asked = _Asked({}, set())
    resolved: list[_Resolved] = [
        _resolved_here(context, post, only_board) or await _resolved(context, post, only_board, asked) for post in posts
    ]
    accepted = [post for post in resolved if isinstance(post, Post)]
    applied = await context.posting.writer.submit(accepted) if accepted else []
    if any(part.status is PostStatus.REJECTED for parts in applied for part in parts):
        resolved, applied = await _apply_again(context, posts, resolved, applied, only_board)
    outcomes = iter(applied)
    results = []
    for post, found in zip(posts, resolved, strict=True):
        try:
            if isinstance(found, Post):
                result, status = _result(found, next(outcomes), named=only_board is None, single=single)
            else:
                result, status = _refused(post, found, named=only_board is None, single=single), PostStatus.REJECTED
        except ProblemError:  # the body was a single post, which is rejected; the response is this problem
            context.metrics.posts_settled(PostStatus.REJECTED.value)
            raise
        context.metrics.posts_settled(status.value)
        results.append(result)
    return PostResults(results)


async def _apply_again(
    context: Context,
    posts: list[ReceivedPost],
    resolved: list[_Resolved],
    applied: list[list[PartOutcome]],
    only_board: str | None,
) -> tuple[list[_Resolved], list[list[PartOutcome]]]:
    """Apply posts again that were rejected because this process had outdated copies of their boards."""
    accepted = [index for index, found in enumerate(resolved) if isinstance(found, Post)]
    sent = [found for found in resolved if isinstance(found, Post)]
    outcomes = dict(zip(accepted, applied, strict=True))
    asked, again = _Asked({}, set()), {}
    for place in await find_retriable_posts(context.catalog, sent, applied):
        index = accepted[place]
        del outcomes[index]
        resolved[index] = found = await _resolved(context, posts[index], only_board, asked)
        if isinstance(found, Post):
            again[index] = found
    if again:
        outcomes.update(zip(again, await context.posting.writer.submit(list(again.values())), strict=True))
    return resolved, [outcomes[index] for index in sorted(outcomes)]


def _resolved_here(context: Context, post: ReceivedPost, only_board: str | None) -> Post | None:
    """Return the post if nothing has to be read from the store, else None. Nearly every post takes this fast path."""
    if only_board is None or post.at_us is not None:
        return None
    board = context.catalog.find_known(only_board)
    if board is None or board.family_key is not None:
        return None
    try:
        parts = [BoardPost(board, parse_changes(board, post.stats, post.overwrite))]
    except (PostError, ProblemError):
        return None
    return _identified(context, post, parts)


_Resolved: TypeAlias = "Post | dict[str, Exception]"


class _Asked(NamedTuple):
    """The boards that one request has already looked for in the store, so that it reads each board once."""

    unknown: dict[str, UnknownBoardError]
    reread: set[str]


async def _resolved(context: Context, post: ReceivedPost, only_board: str | None, asked: _Asked) -> _Resolved:
    """Return the post in the units of its boards, or, by board id, the errors of the boards that can't take it."""
    errors: dict[str, Exception] = {}
    parts: list[BoardPost] = []
    if post.at_us is not None and post.at_us > context.now_us() + context.settings.at_ahead_s_max * 1e6:
        error = AtInFutureError(f"at is more than {context.settings.at_ahead_s_max:g} s ahead", pointer="/at")
        return dict.fromkeys([only_board] if only_board is not None else post.boards or [], error)
    for board_id in (only_board,) if only_board is not None else post.boards or ():
        try:
            if board_id in asked.unknown:
                raise asked.unknown[board_id]
            board = context.catalog.find_known(board_id) or await context.catalog.find_board(board_id)
            if board.family_key is not None:
                raise FamilyBoardError(f"{board_id!r} belongs to a family: post to the family")
            try:
                changes = parse_changes(board, post.stats, post.overwrite)
            except UnknownColumnError:
                if board_id in asked.reread:
                    raise
                asked.reread.add(board_id)
                board = await context.catalog.reread_board(board_id)  # another process may have added the column
                changes = parse_changes(board, post.stats, post.overwrite)
            parts.append(BoardPost(board, changes))
        except UnknownBoardError as error:
            errors[board_id] = asked.unknown[board_id] = error
        except (PostError, ProblemError) as error:
            errors[board_id] = error
    if errors:
        return errors
    return _identified(context, post, parts)


def _identified(context: Context, post: ReceivedPost, parts: list[BoardPost]) -> Post:
    if post.post_id is None:
        return Post(post.owner, parts, None, post.at_us, "")
    fingerprint = hash_post(post.owner, parts[0].board, parts[0].changes, post.at_us)
    return Post(
        post.owner,
        parts,
        context.posting.post_ids.hash_post_id(post.post_id),
        post.at_us,
        fingerprint,
        post_id=post.post_id,
    )


def parse_changes(board: Board, stats: Mapping[str, Raw], overwrite: Mapping[str, Raw]) -> list[ColumnChange]:
    """Return the values of a post, in the units of the board's columns.

    Raises:
        UnknownColumnError, ValueOutOfRangeError, ProblemError: the board can't take the post.
    """
    changes = [_change(board, name, raw, overwrite=False) for name, raw in stats.items()]
    if overwrite:
        changes += [_change(board, name, raw, overwrite=True) for name, raw in overwrite.items()]
    return changes


def _change(board: Board, name: str, raw: Raw, *, overwrite: bool) -> ColumnChange:
    index = board.column_index.get(name)
    if index is None:
        raise UnknownColumnError(f"no column {name!r} in {board.id!r}", pointer=f"/{_member(overwrite)}/{name}")
    column = board.spec.columns[index]
    try:
        if column.kind is ColumnKind.TEXT:
            return ColumnChange(index, parse_text(raw), overwrite)
        value = parse_decimal(raw, column.scale)
    except ProblemError as problem:
        raise ProblemError(problem.code, problem.detail, pointer=f"/{_member(overwrite)}/{name}") from None
    if column.merge is not Merge.SUM and not column.min_scaled <= value <= column.max_scaled:
        raise ValueOutOfRangeError(f"{name} is outside {_bounds(column)}", pointer=f"/{_member(overwrite)}/{name}")
    return ColumnChange(index, value, overwrite)


def _member(overwrite: bool) -> str:
    return "set" if overwrite else "stats"


def _bounds(column: ColumnSpec) -> str:
    return f"{column.min_scaled / 10**column.scale:g} to {column.max_scaled / 10**column.scale:g}"


def hash_post(owner: str, board: Board, changes: Sequence[ColumnChange], at_us: int | None) -> str:
    """Return a hash of owner, values and `at`. It tells a retry of a post from a different post with the same id.

    Equal numbers give the same hash, whatever their spelling and the scale of the board's column.
    """
    columns = board.spec.columns
    values = sorted(make_comparable(columns[change.index], change) for change in changes)
    text = msgspec.json.encode((owner, values, at_us))
    return hashlib.blake2b(text, digest_size=FINGERPRINT_BYTES).hexdigest()


def make_comparable(column: ColumnSpec, change: ColumnChange) -> tuple[str, str, bool]:
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


def _result(post: Post, parts: list[PartOutcome], *, named: bool, single: bool) -> tuple[PostResult, PostStatus]:
    if not named:
        part = parts[0]
        if part.error is not None and single:
            raise post_problem_of(part.error)
        if part.error is not None:
            error = post_problem_of(part.error).to_document()
            return PostResult(owner=post.owner, status="rejected", error=error), part.status
        return (
            PostResult(
                owner=post.owner,
                status=part.status.value,
                updated_at=format_us(part.updated_at_us or 0),
                stats=format_stats(post.parts[0].board, part.stats or ()),
            ),
            part.status,
        )
    status = min((part.status for part in parts), key=BEST_FIRST.index)
    boards = [board_result(target.board, part) for target, part in zip(post.parts, parts, strict=True)]
    result = PostResult(owner=post.owner, status=status.value, boards=boards)
    if status is PostStatus.REJECTED:
        problem = post_problem_of(first_cause([part.error for part in parts if part.error is not None]))
        if single:
            raise problem
        result.error = problem.to_document()
    return result, status


def board_result(board: Board, part: PartOutcome) -> BoardResult:
    if part.error is not None:
        return BoardResult(board=board.id, status="rejected", error=post_problem_of(part.error).to_document())
    return BoardResult(
        board=board.id,
        status=part.status.value,
        updated_at=_time_text(part.updated_at_us or 0),
        stats=format_stats(board, part.stats or ()),
    )


def first_cause(errors: Sequence[Exception]) -> Exception:
    """Return the error that caused the others: the first that is no `PostRejectedError`, or else the first error."""
    return next((error for error in errors if not isinstance(error, PostRejectedError)), errors[0])


def _refused(post: ReceivedPost, errors: Mapping[str, Exception], *, named: bool, single: bool) -> PostResult:
    problem = post_problem_of(first_cause(list(errors.values())))
    if single:
        raise problem
    if not named:
        return PostResult(
            owner=post.owner, status="rejected", error=post_problem_of(next(iter(errors.values()))).to_document()
        )
    boards = [
        BoardResult(
            board=board_id,
            status="rejected",
            error=post_problem_of(errors.get(board_id, PostRejectedError())).to_document(),
        )
        for board_id in post.boards or ()
    ]
    return PostResult(owner=post.owner, status="rejected", boards=boards, error=problem.to_document())

"""Posting to families: find the boards that a post reaches by its time and its facets, and apply the post to each.

    post ──> periods of its time x facet lists that it has values for ──> closed boards: rejected, one by one
                                                                     └──> boards, made where they are missing ──> writer

A separate transaction creates the missing boards before the posts are applied. If the posts then fail, the boards
remain. This does no harm: readers see an empty board, whether the store has it or not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from service.context import Context
from service.contract.post_bodies import PostTarget, ReceivedPost
from service.contract.problems import ProblemError, clip_text, post_problem_of
from service.contract.responses.boards import BoardResult, PostResult, PostResults
from service.contract.routes import Answer, Call
from storage.boards.boards import find_boards_by_key
from storage.boards.families import NewBoard, make_boards
from storage.boards.family_ids import board_id, facets_of, is_facet_value, shelf
from storage.errors import (
    AtInFutureError,
    PeriodClosedError,
    PostError,
    PostIdConflictError,
    PostRejectedError,
    UnknownBoardError,
    UnknownColumnError,
    UnknownFacetError,
)
from storage.periods import calendar_of
from storage.records import Board, BoardPost, ColumnChange, Family, PartOutcome, Post, PostStatus

from .posts import (
    BEST_FIRST,
    FINGERPRINT_BYTES,
    board_result,
    first_cause,
    make_comparable,
    parse_changes,
    parse_request_posts,
)
from .queueing import QUEUED, ResolvedPosts, make_refusal, queue_posts

# The most pairs of a period and a set of facet values for which a process remembers the ids of the boards.
FACET_SETS_KEPT = 32_768


class _PeriodBoards(NamedTuple):
    boards: list[NewBoard]
    closed: bool


class _Wanted(NamedTuple):
    """The changes of a post in the units of the family's columns, and the boards that the post reaches."""

    periods: list[_PeriodBoards]
    changes: list[ColumnChange]

    def targets(self) -> Iterable[tuple[NewBoard, bool]]:
        return ((new, closed) for boards, closed in self.periods for new in boards)


class _PostOutcome(NamedTuple):
    """The outcome of a post: an outcome for each board, or one error for the whole post."""

    boards: list[tuple[Board | str, PartOutcome]]  # a board, or only its id if the board was not looked up
    status: PostStatus  # the best of the statuses that the post has on its boards
    error: Exception | None = None

    @property
    def found_board_deleted(self) -> bool:
        """Return whether the post was rejected because a board was deleted together with its family.

        Such a post is tried once more, because the family may have been created again.
        """
        if self.status is not PostStatus.REJECTED:
            return False
        return any(isinstance(part.error, UnknownBoardError) for _, part in self.boards)


async def post_to_family(context: Context, call: Call) -> Answer:
    """Handle `POST /v1/families/{family}/posts`."""
    family = await context.catalog.families.find_family(call.path["family"])
    posts, single = parse_request_posts(context, call, PostTarget.FAMILY)
    _check_parts(context, family, posts)
    if call.query.mode == QUEUED:
        return await _queue(context, family.id, posts, single=single)
    settled: dict[int, _PostOutcome] = {}
    for _ in range(2):
        left = [index for index in range(len(posts)) if index not in settled or settled[index].found_board_deleted]
        if not left:
            break
        if settled:
            family = await _forget(context, family)
        try:
            settled |= zip(left, await _settle(context, family, [posts[index] for index in left]), strict=True)
        except UnknownBoardError:  # the table that the family's boards share was dropped, so nothing was applied
            family = await _forget(context, family)
            settled |= zip(left, await _settle(context, family, [posts[index] for index in left]), strict=True)
            break
    for each in settled.values():
        context.metrics.posts_settled(each.status.value)
    if single and settled[0].status is PostStatus.REJECTED:
        raise _problem(settled[0])
    return PostResults([_result(post, settled[index]) for index, post in enumerate(posts)])


async def _queue(context: Context, family_id: str, posts: Sequence[ReceivedPost], *, single: bool) -> Answer:
    async def resolve() -> ResolvedPosts:
        family = await context.catalog.families.find_family(family_id)
        wanted: list[_Wanted] = []
        now_us = context.now_us()
        for index, post in enumerate(posts):
            found = _wanted(context, family, post, now_us)
            if isinstance(found, UnknownColumnError):  # another process may have added the column
                family = await context.catalog.families.reread_family(family.id)
                found = _wanted(context, family, post, now_us)
            if not isinstance(found, _Wanted):
                raise make_refusal(found, None if single else index)
            wanted.append(found)
        boards = await _boards(context, family, wanted)
        to_queue = ResolvedPosts()
        for index, each in enumerate(wanted):
            made = _post(context, family, posts[index], each, boards)
            if all(closed for _, closed in each.periods):
                closed = PeriodClosedError("every period of the post is closed", pointer="/at")
                to_queue.closed[index] = (made, closed)
            else:
                to_queue.posts.append(made)
        return to_queue

    return await queue_posts(context, resolve, single=single)


async def _forget(context: Context, family: Family) -> Family:
    """Drop this process's copies of a family's boards, and read the family from the store again.

    Raises:
        UnknownFamilyError: the family was deleted.
    """
    for board in context.catalog.list_known():
        if board.family_key == family.key:
            context.catalog.forget_board(board.id)
    return await context.catalog.families.reread_family(family.id)


def _check_parts(context: Context, family: Family, posts: Sequence[ReceivedPost]) -> None:
    parts = len(posts) * len(family.spec.periods) * len(family.spec.facets)
    most = context.settings.parts_per_request_max
    if parts > most:
        detail = f"{parts} posts, counted once for each board that they may reach; a request carries at most {most}"
        raise ProblemError("too_many_boards", detail, pointer="/posts")


async def _settle(context: Context, family: Family, posts: Sequence[ReceivedPost]) -> list[_PostOutcome]:
    now_us = context.now_us()
    wanted: list[_Wanted | Exception] = []
    for post in posts:
        found = _wanted(context, family, post, now_us)
        if isinstance(found, UnknownColumnError):  # another process may have added the column
            family = await context.catalog.families.reread_family(family.id)
            found = _wanted(context, family, post, now_us)
        wanted.append(found)
    boards = await _boards(context, family, [each for each in wanted if isinstance(each, _Wanted)])
    accepted = [
        _post(context, family, post, each, boards)
        for post, each in zip(posts, wanted, strict=True)
        if isinstance(each, _Wanted)
    ]
    applied = await context.posting.writer.submit(accepted) if accepted else []
    repeated = await _repeated(context, applied, boards)
    outcomes = iter(zip(accepted, applied, strict=True))
    return [
        _PostOutcome([], PostStatus.REJECTED, each)
        if isinstance(each, Exception)
        else _settled(each, *next(outcomes), repeated)
        for each in wanted
    ]


async def _repeated(
    context: Context, applied: Sequence[Sequence[PartOutcome]], boards: dict[str, Board]
) -> dict[int, Board]:
    """Return, by key, the boards that duplicate posts reached when they were first applied, without deleted boards."""
    again = [part for parts in applied if parts and parts[0].status is PostStatus.DUPLICATE for part in parts]
    if not again:
        return {}
    by_key = {board.key: board for board in boards.values()}
    away = {part.board_key for part in again if part.board_key is not None} - by_key.keys()
    if away:
        by_key |= await context.store.read(lambda: find_boards_by_key(list(away)))
    return by_key


def _wanted(context: Context, family: Family, post: ReceivedPost, now_us: int) -> _Wanted | Exception:
    at_us, settings = post.at_us, context.settings
    if at_us is not None and at_us > now_us + settings.at_ahead_s_max * 1e6:
        return AtInFutureError(f"at is more than {settings.at_ahead_s_max:g} s ahead", pointer="/at")
    values = post.facets or {}
    for name, value in values.items():
        if name not in family.facet_names:
            return UnknownFacetError(f"{family.id!r} has no facet {clip_text(name)!r}", pointer="/facets")
        if not is_facet_value(value):
            return ProblemError(
                "bad_value", f"{clip_text(value)!r} cannot be the value of a facet", pointer=f"/facets/{name}"
            )
    try:
        changes = parse_changes(family.template_board, post.stats, post.overwrite)
    except (PostError, ProblemError) as error:
        return error
    listed, given = family.spec.facets, tuple(sorted(values.items()))
    periods = []
    for kind in family.spec.periods:
        period = calendar_of(family.spec.time_zone).period_at(kind, now_us if at_us is None else at_us)
        closes_us = family.spec.closes_us(period)
        boards = _boards_in(family.id, period.id, listed, given)
        periods.append(_PeriodBoards(boards, closes_us is not None and now_us >= closes_us))
    if not any(boards for boards, _ in periods):
        return PostRejectedError("the post's facets reach none of the family's leaderboards", pointer="/facets")
    return _Wanted(periods, changes)


@lru_cache(maxsize=FACET_SETS_KEPT)
def _boards_in(
    family_id: str,
    period_id: str,
    listed: tuple[tuple[str, ...], ...],
    values: tuple[tuple[str, str], ...],
) -> list[NewBoard]:
    """Return the boards of a period that a post reaches: one for each facet list that the post has values for."""
    return [
        NewBoard(board_id(family_id, period_id, facets), _shelf(period_id, tuple([name for name, _ in facets])))
        for facets in facets_of(listed, dict(values))
    ]


_shelf = lru_cache(maxsize=1_024)(shelf)  # boards with the same period and facet names share one string


async def _boards(context: Context, family: Family, wanted: Iterable[_Wanted]) -> dict[str, Board]:
    """Return the boards of these posts by id, except boards of closed periods. Create the missing boards."""
    found: dict[str, Board] = {}
    missing: set[NewBoard] = set()
    columns, known = len(family.spec.board.columns), context.catalog.find_known
    for each in wanted:
        for boards, closed in each.periods:
            for new in () if closed else boards:
                if new.id in found:
                    continue
                board = known(new.id)
                if board is None or len(board.spec.columns) < columns:
                    missing.add(new)
                else:
                    found[new.id] = board
    if missing:
        now_us, settings = context.now_us(), context.settings
        made = await context.store.write(
            lambda: make_boards(
                family.id,
                missing,
                now_us=now_us,
                boards_max=settings.catalog_boards_max,
                own_tables_max=settings.own_tables_max,
            )
        )
        context.catalog.keep_boards(made)
        found |= {board.id: board for board in made}
    return found


def _post(context: Context, family: Family, post: ReceivedPost, wanted: _Wanted, boards: dict[str, Board]) -> Post:
    changes = wanted.changes
    parts = [BoardPost(boards[new.id], changes) for new, closed in wanted.targets() if not closed]
    if post.post_id is None:
        return Post(post.owner, parts, None, post.at_us, "", family)
    columns = family.spec.board.columns
    values = sorted(make_comparable(columns[change.index], change) for change in changes)
    text = msgspec.json.encode((post.owner, values, post.at_us, sorted((post.facets or {}).items())))
    fingerprint = hashlib.blake2b(text, digest_size=FINGERPRINT_BYTES).hexdigest()
    return Post(
        post.owner,
        parts,
        context.posting.post_ids.hash_post_id(post.post_id),
        post.at_us,
        fingerprint,
        family,
        post.post_id,
    )


def _settled(wanted: _Wanted, post: Post, parts: list[PartOutcome], repeated: dict[int, Board]) -> _PostOutcome:
    boards: list[tuple[Board | str, PartOutcome]]
    if parts and parts[0].status is PostStatus.DUPLICATE:
        boards = [(repeated[part.board_key], part) for part in parts if part.board_key in repeated]
    elif parts and isinstance(parts[0].error, PostIdConflictError):
        boards = [(new.id, parts[0]) for new, _ in wanted.targets()]
    elif any(closed for _, closed in wanted.periods):
        boards = _with_closed(wanted, post, parts)
    else:
        boards = [(target.board, part) for target, part in zip(post.parts, parts, strict=True)]
    return _PostOutcome(boards, _best(part.status for _, part in boards))


def _with_closed(wanted: _Wanted, post: Post, parts: list[PartOutcome]) -> list[tuple[Board | str, PartOutcome]]:
    outcomes = iter(zip(post.parts, parts, strict=True))
    boards: list[tuple[Board | str, PartOutcome]] = []
    for new, closed in wanted.targets():
        if closed:
            late = PeriodClosedError(f"the period of {new.id!r} is closed", pointer="/at")
            boards.append((new.id, PartOutcome(PostStatus.REJECTED, error=late)))
        else:
            target, part = next(outcomes)
            boards.append((target.board, part))
    return boards


def _best(found: Iterable[PostStatus]) -> PostStatus:
    best = PostStatus.REJECTED
    for status in found:
        if status is PostStatus.APPLIED:
            return status  # no other status is better
        best = min(best, status, key=BEST_FIRST.index)
    return best


def _result(post: ReceivedPost, settled: _PostOutcome) -> PostResult:
    if settled.error is not None:
        return PostResult(owner=post.owner, status="rejected", error=post_problem_of(settled.error).to_document())
    boards = [_board_result(board, part) for board, part in settled.boards]
    error = _problem(settled).to_document() if settled.status is PostStatus.REJECTED else UNSET
    return PostResult(owner=post.owner, status=settled.status.value, boards=boards, error=error)


def _board_result(board: Board | str, part: PartOutcome) -> BoardResult:
    if isinstance(board, Board):
        return board_result(board, part)
    error = part.error or PostRejectedError()
    return BoardResult(board=board, status="rejected", error=post_problem_of(error).to_document())


def _problem(settled: _PostOutcome) -> ProblemError:
    errors = [part.error for _, part in settled.boards if part.error is not None]
    return post_problem_of(settled.error or first_cause(errors or [PostRejectedError()]))

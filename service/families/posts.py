"""Posting to families: which boards a post reaches, by its time and its facets, and what became of it on each.

    post ──> periods of its time x facet lists that it has values for ──> closed ones: rejected alone
                                                                     └──> boards, made where they are missing ──> writer

The rule: boards are made before the posts are applied, in a transaction of their own. A board that nothing was posted
to is empty whether it is in the store or not, so one that is left over by a post that failed says nothing new.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from storage.errors import (
    AtInFuture,
    PeriodClosed,
    PostError,
    PostIdConflict,
    PostRejected,
    UnknownBoard,
    UnknownColumn,
    UnknownFacet,
)
from storage.families import NewBoard, make_boards
from storage.family_ids import board_id, facets_of, is_facet_value, shelf
from storage.leaderboards import boards_by_key
from storage.periods import calendar_of
from storage.records import Board, BoardPost, Change, Family, PartOutcome, Post, Status

from ..answers import BoardResult, PostResult, PostResults
from ..context import Context
from ..post_bodies import PostIn, PostKind
from ..posts import BEST_FIRST, FINGERPRINT_BYTES, board_result, changes_of, compared, first_cause, parse
from ..problems import BadValue, Problem, post_problem_of, shown
from ..queue.queueing import QUEUED, ToQueue, queue_posts, refused
from ..routes import Answer, Call

FACET_SETS_KEPT = 32_768  # sets of facet values whose boards' ids are remembered, each counted once a period


class _Shelved(NamedTuple):
    """The boards that a post reaches in one period."""

    boards: list[NewBoard]
    closed: bool


class _Wanted(NamedTuple):
    """A post in the family's own units, and the boards of its time."""

    periods: list[_Shelved]
    changes: list[Change]

    def targets(self) -> Iterable[tuple[NewBoard, bool]]:
        """Every board, and whether its period is closed."""
        return ((new, closed) for boards, closed in self.periods for new in boards)


class _Settled(NamedTuple):
    """What became of a post: a result for each board, or one error for all of it."""

    boards: list[tuple[Board | str, PartOutcome]]  # an id, where the board was not looked up
    status: Status  # the best of its boards'
    error: Exception | None = None

    @property
    def is_gone(self) -> bool:
        """Whether nothing was applied because a board went with its family, which may have been made anew."""
        if self.status is not Status.REJECTED:
            return False
        return any(isinstance(part.error, UnknownBoard) for _, part in self.boards)


async def post_to_family(context: Context, call: Call) -> Answer:
    """`POST /v1/families/{family}/posts`."""
    family = await context.catalog.families.find(call.path["family"])
    posts, single = parse(context, call, PostKind.FAMILY)
    _check_parts(context, family, posts)
    if call.query.mode == QUEUED:
        return await _queue(context, family.id, posts, single=single)
    settled: dict[int, _Settled] = {}
    for _ in range(2):
        left = [index for index in range(len(posts)) if index not in settled or settled[index].is_gone]
        if not left:
            break
        if settled:
            family = await _forget(context, family)
        try:
            settled |= zip(left, await _settle(context, family, [posts[index] for index in left]), strict=True)
        except UnknownBoard:  # of the table that the family's boards share: nothing was applied
            family = await _forget(context, family)
            settled |= zip(left, await _settle(context, family, [posts[index] for index in left]), strict=True)
            break
    for each in settled.values():
        context.metrics.posts_settled(each.status.value)
    if single and settled[0].status is Status.REJECTED:
        raise _problem(settled[0])
    return PostResults([_result(post, settled[index]) for index, post in enumerate(posts)])


async def _queue(context: Context, family_id: str, posts: Sequence[PostIn], *, single: bool) -> Answer:
    async def resolve() -> ToQueue:
        family = await context.catalog.families.find(family_id)
        wanted: list[_Wanted] = []
        now_us = context.now_us()
        for index, post in enumerate(posts):
            found = _wanted(context, family, post, now_us)
            if isinstance(found, UnknownColumn):  # another process may have added it
                family = await context.catalog.families.reread(family.id)
                found = _wanted(context, family, post, now_us)
            if not isinstance(found, _Wanted):
                raise refused(found, None if single else index)
            wanted.append(found)
        boards = await _boards(context, family, wanted)
        to_queue = ToQueue()
        for index, each in enumerate(wanted):
            made = _post(context, family, posts[index], each, boards)
            if all(closed for _, closed in each.periods):
                closed = PeriodClosed("every period of the post is closed", pointer="/at")
                to_queue.closed[index] = (made, closed)
            else:
                to_queue.posts.append(made)
        return to_queue

    return await queue_posts(context, resolve, single=single)


async def _forget(context: Context, family: Family) -> Family:
    """The family as it is now, none of whose boards is known.

    Raises:
        UnknownFamily: it is gone.
    """
    for board in context.catalog.boards():
        if board.family_key == family.key:
            context.catalog.drop(board.id)
    return await context.catalog.families.reread(family.id)


def _check_parts(context: Context, family: Family, posts: Sequence[PostIn]) -> None:
    parts = len(posts) * len(family.spec.periods) * len(family.spec.facets)
    most = context.settings.parts_per_request_max
    if parts > most:
        detail = f"{parts} posts, each counted once a board that it may reach; a request carries at most {most}"
        raise Problem("too_many_boards", detail, pointer="/posts")


async def _settle(context: Context, family: Family, posts: Sequence[PostIn]) -> list[_Settled]:
    now_us = context.now_us()
    wanted: list[_Wanted | Exception] = []
    for post in posts:
        found = _wanted(context, family, post, now_us)
        if isinstance(found, UnknownColumn):  # another process may have added it
            family = await context.catalog.families.reread(family.id)
            found = _wanted(context, family, post, now_us)
        wanted.append(found)
    boards = await _boards(context, family, [each for each in wanted if isinstance(each, _Wanted)])
    accepted = [
        _post(context, family, post, each, boards)
        for post, each in zip(posts, wanted, strict=True)
        if isinstance(each, _Wanted)
    ]
    applied = await context.writer.submit(accepted) if accepted else []
    repeated = await _repeated(context, applied, boards)
    outcomes = iter(zip(accepted, applied, strict=True))
    return [
        _Settled([], Status.REJECTED, each)
        if isinstance(each, Exception)
        else _settled(each, *next(outcomes), repeated)
        for each in wanted
    ]


async def _repeated(
    context: Context, applied: Sequence[Sequence[PartOutcome]], boards: dict[str, Board]
) -> dict[int, Board]:
    """The boards by key that posts sent again had reached then, where they are still there."""
    again = [part for parts in applied if parts and parts[0].status is Status.DUPLICATE for part in parts]
    if not again:
        return {}
    by_key = {board.key: board for board in boards.values()}
    away = {part.board_key for part in again if part.board_key is not None} - by_key.keys()
    if away:
        by_key |= await context.store.read(lambda: boards_by_key(context.store.dialect, list(away)))
    return by_key


def _wanted(context: Context, family: Family, post: PostIn, now_us: int) -> _Wanted | Exception:
    at_us, settings = post.at_us, context.settings
    if at_us is not None and at_us > now_us + settings.at_ahead_s_max * 1e6:
        return AtInFuture(f"at is more than {settings.at_ahead_s_max:g} s ahead", pointer="/at")
    values = post.facets or {}
    for name, value in values.items():
        if name not in family.facet_names:
            return UnknownFacet(f"{family.id!r} has no facet {shown(name)!r}", pointer="/facets")
        if not is_facet_value(value):
            return BadValue(f"{shown(value)!r} is no value of a facet", pointer=f"/facets/{name}")
    try:
        changes = changes_of(family.any_board, post.stats, post.overwrite)
    except (PostError, Problem) as error:
        return error
    listed, given = family.spec.facets, tuple(sorted(values.items()))
    periods = []
    for kind in family.spec.periods:
        period = calendar_of(family.spec.time_zone).period_at(kind, now_us if at_us is None else at_us)
        closes_us = family.spec.closes_us(period)
        boards = _boards_in(family.id, period.id, listed, given)
        periods.append(_Shelved(boards, closes_us is not None and now_us >= closes_us))
    if not any(boards for boards, _ in periods):
        return PostRejected("the post has the facets of none of the family's leaderboards", pointer="/facets")
    return _Wanted(periods, changes)


@lru_cache(maxsize=FACET_SETS_KEPT)
def _boards_in(
    family_id: str,
    period_id: str,
    listed: tuple[tuple[str, ...], ...],
    values: tuple[tuple[str, str], ...],
) -> list[NewBoard]:
    """What boards a post with these facet values needs in a period: one of each list whose facets all have one."""
    return [
        NewBoard(board_id(family_id, period_id, facets), _shelf(period_id, tuple([name for name, _ in facets])))
        for facets in facets_of(listed, dict(values))
    ]


_shelf = lru_cache(maxsize=1_024)(shelf)  # one text for all boards there


async def _boards(context: Context, family: Family, wanted: Iterable[_Wanted]) -> dict[str, Board]:
    """The open boards of these posts by id, made where they are missing."""
    found: dict[str, Board] = {}
    missing: set[NewBoard] = set()
    columns, known = len(family.spec.board.columns), context.catalog.known
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
                context.store.dialect,
                family.id,
                missing,
                now_us=now_us,
                boards_max=settings.catalog_boards_max,
                own_tables_max=settings.own_tables_max,
            )
        )
        context.catalog.put_all(made)
        found |= {board.id: board for board in made}
    return found


def _post(context: Context, family: Family, post: PostIn, wanted: _Wanted, boards: dict[str, Board]) -> Post:
    changes = wanted.changes
    parts = [BoardPost(boards[new.id], changes) for new, closed in wanted.targets() if not closed]
    if post.post_id is None:
        return Post(post.owner, parts, None, post.at_us, "", family)
    columns = family.spec.board.columns
    values = sorted(compared(columns[change.index], change) for change in changes)
    text = msgspec.json.encode((post.owner, values, post.at_us, sorted((post.facets or {}).items())))
    fingerprint = hashlib.blake2b(text, digest_size=FINGERPRINT_BYTES).hexdigest()
    return Post(post.owner, parts, context.post_ids.hash(post.post_id), post.at_us, fingerprint, family, post.post_id)


def _settled(wanted: _Wanted, post: Post, parts: list[PartOutcome], repeated: dict[int, Board]) -> _Settled:
    boards: list[tuple[Board | str, PartOutcome]]
    if parts and parts[0].status is Status.DUPLICATE:
        boards = [(repeated[part.board_key], part) for part in parts if part.board_key in repeated]
    elif parts and isinstance(parts[0].error, PostIdConflict):
        boards = [(new.id, parts[0]) for new, _ in wanted.targets()]
    elif any(closed for _, closed in wanted.periods):
        boards = _with_closed(wanted, post, parts)
    else:
        boards = [(target.board, part) for target, part in zip(post.parts, parts, strict=True)]
    return _Settled(boards, _best(part.status for _, part in boards))


def _with_closed(wanted: _Wanted, post: Post, parts: list[PartOutcome]) -> list[tuple[Board | str, PartOutcome]]:
    outcomes = iter(zip(post.parts, parts, strict=True))
    boards: list[tuple[Board | str, PartOutcome]] = []
    for new, closed in wanted.targets():
        if closed:
            late = PeriodClosed(f"the period of {new.id!r} is closed", pointer="/at")
            boards.append((new.id, PartOutcome(Status.REJECTED, error=late)))
        else:
            target, part = next(outcomes)
            boards.append((target.board, part))
    return boards


def _best(found: Iterable[Status]) -> Status:
    best = Status.REJECTED
    for status in found:
        if status is Status.APPLIED:
            return status  # there is no better one
        best = min(best, status, key=BEST_FIRST.index)
    return best


def _result(post: PostIn, settled: _Settled) -> PostResult:
    if settled.error is not None:
        return PostResult(owner=post.owner, status="rejected", error=post_problem_of(settled.error).document())
    boards = [_board_result(board, part) for board, part in settled.boards]
    error = _problem(settled).document() if settled.status is Status.REJECTED else UNSET
    return PostResult(owner=post.owner, status=settled.status.value, boards=boards, error=error)


def _board_result(board: Board | str, part: PartOutcome) -> BoardResult:
    if isinstance(board, Board):
        return board_result(board, part)
    error = part.error or PostRejected()
    return BoardResult(board=board, status="rejected", error=post_problem_of(error).document())


def _problem(settled: _Settled) -> Problem:
    errors = [part.error for _, part in settled.boards if part.error is not None]
    return post_problem_of(settled.error or first_cause(errors or [PostRejected()]))

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
from storage.periods import PeriodKind, calendar_of
from storage.records import Board, BoardPost, Change, Family, PartOutcome, Post, Status

from .answers import BoardResult, PostResult, PostResults
from .context import Context
from .post_bodies import PostIn, PostKind
from .posts import BEST_FIRST, FINGERPRINT_BYTES, board_result, changes_of, compared, first_cause, parse
from .problems import BadValue, Problem, post_problem_of, shown
from .routes import Call

FACET_SETS_KEPT = 65_536  # sets of facet values whose ids and shelves are remembered


class _Target(NamedTuple):
    """A board that a post reaches."""

    board: NewBoard
    closed: bool


class _Wanted(NamedTuple):
    """A post in the family's own units, and the boards of its time."""

    targets: list[_Target]
    changes: list[Change]


class _Settled(NamedTuple):
    """What became of a post: a result for each board, or one error for all of it."""

    boards: list[tuple[Board | str, PartOutcome]]  # an id, where the board was not looked up
    error: Exception | None = None

    @property
    def status(self) -> Status:
        """The best of its boards'."""
        return min((part.status for _, part in self.boards), key=BEST_FIRST.index, default=Status.REJECTED)

    @property
    def is_gone(self) -> bool:
        """Whether nothing was applied because a board went with its family, which may have been made anew."""
        return any(isinstance(part.error, UnknownBoard) for _, part in self.boards)


async def post_to_family(context: Context, call: Call) -> PostResults:
    """`POST /v1/families/{family}/posts`."""
    family = await context.catalog.families.find(call.path["family"])
    posts, single = parse(context, call, PostKind.FAMILY)
    _check_parts(context, family, posts)
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
    wanted: list[_Wanted | Exception] = []
    for post in posts:
        found = _wanted(context, family, post)
        if isinstance(found, UnknownColumn):  # another process may have added it
            family = await context.catalog.families.reread(family.id)
            found = _wanted(context, family, post)
        wanted.append(found)
    boards = await _boards(context, family, [each for each in wanted if isinstance(each, _Wanted)])
    accepted = [
        _post(context, family, post, each, boards)
        for post, each in zip(posts, wanted, strict=True)
        if isinstance(each, _Wanted)
    ]
    applied = await context.writer.submit(accepted) if accepted else []
    by_key = {board.key: board for board in boards.values()}
    away = {part.board_key for parts in applied for part in parts if part.board_key is not None} - by_key.keys()
    if away:  # a retry: its boards of then
        by_key |= await context.store.read(lambda: boards_by_key(context.store.dialect, list(away)))
    outcomes = iter(applied)
    return [
        _Settled([], each) if isinstance(each, Exception) else _settled(each, next(outcomes), by_key) for each in wanted
    ]


def _wanted(context: Context, family: Family, post: PostIn) -> _Wanted | Exception:
    now_us, settings = context.now_us(), context.settings
    if post.at_us is not None and post.at_us > now_us + settings.at_ahead_s_max * 1e6:
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
    splits = _splits(family.spec.facets, tuple(sorted(values.items())))
    if not splits:
        return PostRejected("the post has the facets of none of the family's leaderboards", pointer="/facets")
    targets = []
    for kind in family.spec.periods:
        period_id, closes_us = _period(family, kind, now_us if post.at_us is None else post.at_us)
        closed = closes_us is not None and now_us >= closes_us
        targets += [
            _Target(NewBoard(f"{family.id}:{period_id}{split}", shelf(period_id, names), closes_us), closed)
            for split, names in splits
        ]
    return _Wanted(targets, changes)


@lru_cache(maxsize=FACET_SETS_KEPT)
def _splits(
    listed: tuple[tuple[str, ...], ...], values: tuple[tuple[str, str], ...]
) -> list[tuple[str, tuple[str, ...]]]:
    """What stands after the period in the ids of a post's boards, and the names of the facets there."""
    found = facets_of(listed, dict(values))
    return [(board_id("", "", facets).removeprefix(":"), tuple([name for name, _ in facets])) for facets in found]


def _period(family: Family, kind: PeriodKind, at_us: int) -> tuple[str, int | None]:
    """The period of a kind that a time lies in, and when it closes."""
    calendar = calendar_of(family.spec.time_zone)
    period = calendar.period_at(kind, at_us)
    bounds = calendar.bounds_us(period)
    return period.id, None if bounds is None else bounds[1] + family.spec.grace_seconds * 1_000_000


async def _boards(context: Context, family: Family, wanted: Iterable[_Wanted]) -> dict[str, Board]:
    """The open boards of these posts by id, made where they are missing."""
    found: dict[str, Board] = {}
    missing: set[NewBoard] = set()
    columns = len(family.spec.board.columns)
    for each in wanted:
        for new, closed in each.targets:
            if closed or new.id in found or new in missing:
                continue
            board = context.catalog.known(new.id)
            if board is None or len(board.spec.columns) < columns:
                missing.add(new)
            else:
                found[new.id] = board
    if missing:
        now_us, boards_max = context.now_us(), context.settings.catalog_boards_max
        made = await context.store.write(
            lambda: make_boards(context.store.dialect, family.id, missing, now_us=now_us, boards_max=boards_max)
        )
        context.catalog.put_all(made)
        found |= {board.id: board for board in made}
    return found


def _post(context: Context, family: Family, post: PostIn, wanted: _Wanted, boards: dict[str, Board]) -> Post:
    parts = [BoardPost(boards[new.id], wanted.changes) for new, closed in wanted.targets if not closed]
    if post.post_id is None:
        return Post(post.owner, parts, None, post.at_us, "", family)
    columns = family.spec.board.columns
    values = sorted(compared(columns[change.index], change) for change in wanted.changes)
    text = msgspec.json.encode((post.owner, values, post.at_us, sorted((post.facets or {}).items())))
    fingerprint = hashlib.blake2b(text, digest_size=FINGERPRINT_BYTES).hexdigest()
    return Post(post.owner, parts, context.post_ids.hash(post.post_id), post.at_us, fingerprint, family)


def _settled(wanted: _Wanted, parts: list[PartOutcome], by_key: dict[int, Board]) -> _Settled:
    if parts and parts[0].status is Status.DUPLICATE:
        return _Settled([(by_key[part.board_key], part) for part in parts if part.board_key in by_key])
    if parts and isinstance(parts[0].error, PostIdConflict):
        return _Settled([(new.id, parts[0]) for new, _ in wanted.targets])
    outcomes = iter(parts)
    boards: list[tuple[Board | str, PartOutcome]] = []
    for new, closed in wanted.targets:
        if closed:
            late = PeriodClosed(f"the period of {new.id!r} is closed", pointer="/at")
            boards.append((new.id, PartOutcome(Status.REJECTED, error=late)))
            continue
        part = next(outcomes)
        board = None if part.board_key is None else by_key.get(part.board_key)
        boards.append((new.id if board is None else board, part))
    return _Settled(boards)


def _result(post: PostIn, settled: _Settled) -> PostResult:
    if settled.error is not None:
        return PostResult(owner=post.owner, status="rejected", error=post_problem_of(settled.error).document())
    boards = [_board_result(board, part) for board, part in settled.boards]
    return PostResult(owner=post.owner, status=settled.status.value, boards=boards)


def _board_result(board: Board | str, part: PartOutcome) -> BoardResult:
    if isinstance(board, Board):
        return board_result(board, part)
    error = part.error or PostRejected()
    return BoardResult(board=board, status="rejected", error=post_problem_of(error).document())


def _problem(settled: _Settled) -> Problem:
    errors = [part.error for _, part in settled.boards if part.error is not None]
    return post_problem_of(settled.error or first_cause(errors))

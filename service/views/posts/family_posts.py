"""Posting to families: find the boards that a post reaches by its time and its facets, and apply the post to each.

    post ──> periods of its time x facet lists that it has values for ──> closed boards: rejected, one by one
                                                                     └──> boards, made where they are missing ──> writer

A separate transaction creates the missing boards before the posts are applied. If the posts then fail, the boards
remain. This does no harm: readers see an empty board, whether the store has it or not.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from service.context import Context
from service.contract.post_bodies import PostTarget, ReceivedPost
from service.contract.problems import ProblemError, clip_text, name_post, post_problem_of
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

from .posts import PostOutcome, make_post, make_results, name_boards, parse_changes, parse_request_posts
from .queue import QUEUED, queue_posts

_TRIES = 3  # of a post whose boards are deleted meanwhile
# The most pairs of a period and a set of facet values for which a process remembers the ids of the boards.
FACET_SETS_KEPT = 32_768


class _Wanted(NamedTuple):
    """The changes of a post in the units of the family's columns, and the boards that the post reaches."""

    boards: list[tuple[NewBoard, bool]]  # each with whether its period is closed
    changes: list[ColumnChange]


async def post_to_family(context: Context, call: Call) -> Answer:
    family = await context.catalog.families.find_family(call.path["family"])
    posts, single = parse_request_posts(context, call, PostTarget.FAMILY)
    _check_parts(context, family, posts)

    async def resolve() -> list[Post]:
        now, wanted = await _find_wanted(context, await context.catalog.families.find_family(family.id), posts)
        for index, each in enumerate(wanted):
            if isinstance(each, Exception):
                raise name_post(post_problem_of(each), None if single else index)
        return await _make_posts(context, now, posts, wanted)

    if call.query.mode == QUEUED:
        return await queue_posts(context, resolve, single=single)
    outcomes: dict[int, PostOutcome] = {}
    left = list(range(len(posts)))
    for tries_left in reversed(range(_TRIES)):
        try:
            outcomes |= zip(left, await _settle(context, family, [posts[index] for index in left]), strict=True)
            left = [index for index in left if _found_board_deleted(outcomes[index])]
        except UnknownBoardError:  # the table that the family's boards share was dropped, so nothing was applied
            if not tries_left:
                raise
        if not left or not tries_left:
            break
        family = await _forget(context, family)
    return make_results(context, posts, [outcomes[index] for index in range(len(posts))], single=single)


def _found_board_deleted(outcome: PostOutcome) -> bool:
    """Return whether a post was rejected because a board was deleted together with its family.

    Such a post is tried again, because the family may have been created again.
    """
    return outcome.status is PostStatus.REJECTED and bool(outcome.list_unknown_boards())


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


async def _settle(context: Context, family: Family, posts: Sequence[ReceivedPost]) -> list[PostOutcome]:
    family, wanted = await _find_wanted(context, family, posts)
    accepted = await _make_posts(context, family, posts, wanted)
    applied = await context.posting.writer.submit(accepted) if accepted else []
    repeated = await _repeated(context, accepted, applied)
    outcomes = iter(zip(accepted, applied, strict=True))
    return [
        PostOutcome([(family.id, each)], PostStatus.REJECTED, False)
        if isinstance(each, Exception)
        else _outcome(each, *next(outcomes), repeated)
        for each in wanted
    ]


async def _find_wanted(
    context: Context, family: Family, posts: Sequence[ReceivedPost]
) -> tuple[Family, list[_Wanted | Exception]]:
    """Return for each post what it wants, or why it is rejected. Return the family as it was when that was found."""
    now_us = context.now_us()
    wanted: list[_Wanted | Exception] = []
    for post in posts:
        found = _wanted(context, family, post, now_us)
        if isinstance(found, UnknownColumnError):  # another process may have added the column
            family = await context.catalog.families.reread_family(family.id)
            found = _wanted(context, family, post, now_us)
        wanted.append(found)
    return family, wanted


async def _make_posts(
    context: Context, family: Family, posts: Sequence[ReceivedPost], wanted: Sequence[_Wanted | Exception]
) -> list[Post]:
    """Return the posts that are not rejected, to boards that are not closed. Create the missing boards."""
    boards = await _boards(context, family, [each for each in wanted if isinstance(each, _Wanted)])
    made = []
    for post, each in zip(posts, wanted, strict=True):
        if isinstance(each, _Wanted):
            parts = [BoardPost(boards[new.id], each.changes) for new, closed in each.boards if not closed]
            made.append(make_post(context, post, family.template_board, each.changes, parts, family))
    return made


async def _repeated(
    context: Context, posts: Sequence[Post], applied: Sequence[Sequence[PartOutcome]]
) -> dict[int, Board]:
    """Return, by key, the boards that duplicate posts reached when they were first applied, without deleted boards."""
    again = [part for parts in applied if parts and parts[0].status is PostStatus.DUPLICATE for part in parts]
    if not again:
        return {}
    by_key = {part.board.key: part.board for post in posts for part in post.parts}
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
    given, shut_us = tuple(sorted(values.items())), family.shut_through_us(now_us)
    boards: list[tuple[NewBoard, bool]] = []
    for kind in family.spec.periods:
        period = calendar_of(family.spec.time_zone).period_at(kind, now_us if at_us is None else at_us)
        ends_us = family.spec.ends_us(period)
        closed = ends_us is not None and ends_us <= shut_us
        boards += [(new, closed) for new in _boards_in(family.id, period.id, family.spec.facets, given)]
    if not boards:
        return PostRejectedError("the post's facets reach none of the family's leaderboards", pointer="/facets")
    return _Wanted(boards, changes)


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
        for new, closed in each.boards:
            if closed or new.id in found:
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
                own_tables_max=context.own_tables_max,
            )
        )
        context.catalog.keep_boards(made)
        found |= {board.id: board for board in made}
    return found


def _outcome(wanted: _Wanted, post: Post, parts: list[PartOutcome], repeated: dict[int, Board]) -> PostOutcome:
    if parts and parts[0].status is PostStatus.DUPLICATE:
        return name_boards([(repeated[part.board_key], part) for part in parts if part.board_key in repeated])
    if parts and isinstance(parts[0].error, PostIdConflictError):
        return name_boards([(new.id, parts[0]) for new, _ in wanted.boards])
    outcomes = iter(zip(post.parts, parts, strict=True))
    boards: list[tuple[Board | str, PartOutcome | Exception]] = []
    for new, closed in wanted.boards:
        if closed:
            boards.append((new.id, PeriodClosedError(f"the period of {new.id!r} is closed", pointer="/at")))
        else:
            target, part = next(outcomes)
            boards.append((target.board, part))
    return name_boards(boards)

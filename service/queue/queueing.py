"""Posts that are queued: accepted as one, and answered before they are applied.

The rule: whatever is wrong with a post by what is known now refuses the whole request, and nothing of it is queued. A
retry of an applied post is not wrong, even if no board takes posts of its time any more: it is a duplicate.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from msgspec import UNSET

from storage.closures import known_closure
from storage.errors import BoardChanged, PeriodClosed, UnknownBoard, UnknownFamily
from storage.post_ids import find_repeats
from storage.records import Post, Status

from ..context import Context
from ..problems import FieldError, Problem, post_problem_of
from ..routes import Answer, Reply
from .answers import Accepted

QUEUED = "queued"  # as the parameter `mode`
_RENEWALS_MAX = 3  # boards that change as often while one request is answered


@dataclass(slots=True)
class ToQueue:
    """The posts of a request, none of which is wrong."""

    posts: list[Post] = field(default_factory=list)  # each may be taken by some board
    closed: dict[int, tuple[Post, PeriodClosed]] = field(default_factory=dict)  # no board takes them; by index


async def queue_posts(context: Context, resolve: Callable[[], Awaitable[ToQueue]], *, single: bool) -> Answer:
    """Queue the posts of a request; `resolve` returns them, or raises what is wrong with one of them."""
    for _ in range(_RENEWALS_MAX):
        found = await resolve()
        if found.closed:
            await _check_repeats(context, found.closed, single=single)
        try:
            if found.posts:
                await context.enqueuer.submit(found.posts)
        except BoardChanged:
            await _reread(context, found.posts)
            continue
        if found.closed:
            context.metrics.posts_settled(Status.DUPLICATE.value, len(found.closed))
        accepted = Accepted(len(found.posts) + len(found.closed), len(found.closed) or UNSET)
        return Reply(accepted, status=202)
    raise BoardChanged


async def _check_repeats(context: Context, closed: Mapping[int, tuple[Post, PeriodClosed]], *, single: bool) -> None:
    """Refuse the request unless every post of it that no board takes was applied before."""
    posts = [post for post, _ in closed.values()]
    repeats = await context.store.read(lambda: find_repeats(context.post_ids, posts))
    for (index, (_, error)), repeat in zip(closed.items(), repeats, strict=True):
        if repeat is not True:
            raise refused(repeat or error, None if single else index)


async def _reread(context: Context, posts: list[Post]) -> None:
    """Have this process know the boards and families of posts as they are now."""
    for family_id in {post.family.id for post in posts if post.family is not None}:
        for part in (part for post in posts for part in post.parts):
            if part.board.family_key is not None:
                context.catalog.drop(part.board.id)
        try:
            await context.catalog.families.reread(family_id)
        except UnknownFamily:
            continue  # `resolve` says so
    for board_id in {part.board.id for post in posts if post.family is None for part in post.parts}:
        try:
            await context.catalog.reread(board_id)
        except UnknownBoard:
            continue


def shut_to(post: Post, now_us: int) -> PeriodClosed | None:
    """Why none of a post's boards takes it any more, or yet; None where one may."""
    error = None
    for part in post.parts:
        if not part.board.may_close:
            return None
        try:
            known_closure(part.board, now_us).check(part.board, now_us if post.at_us is None else post.at_us)
        except PeriodClosed as closed:
            error = closed
        else:
            return None
    return error


def refused(error: Exception, index: int | None) -> Problem:
    """Why a request is refused: one of its posts can't be taken; None: it is the only one, and the body itself."""
    problem = post_problem_of(error)
    if index is None:
        return problem
    errors = [FieldError(f"/posts/{index}{each.pointer}", each.detail) for each in problem.errors]
    errors = errors or [FieldError(f"/posts/{index}", problem.detail)]
    return Problem(problem.code, f"post {index + 1}: {problem.detail}", errors=errors, status=problem.status)

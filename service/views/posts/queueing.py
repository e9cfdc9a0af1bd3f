"""Posting with `mode=queued`: a request is accepted as a whole, and answered before its posts are applied.

A retry of an applied post is no fault. It counts as a duplicate, even if all boards of the post are closed now.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from msgspec import UNSET

from service.context import Context
from service.contract.problems import FieldError, ProblemError, post_problem_of
from service.contract.responses.boards import Accepted
from service.contract.routes import Answer, Reply
from storage.boards.closed_boards import derive_closure
from storage.errors import BoardChangedError, PeriodClosedError, UnknownBoardError, UnknownFamilyError
from storage.posting.post_ids import find_repeats
from storage.records import Post, PostStatus

QUEUED = "queued"  # the value of the parameter `mode`
_RENEWALS_MAX = 3  # the most tries of a request whose boards change


@dataclass(slots=True)
class ResolvedPosts:
    """The posts of a request in which no post has a fault."""

    posts: list[Post] = field(default_factory=list)  # posts that at least one board may take
    # By index in the request: posts that none of their boards takes now. Each must be a duplicate of an applied post.
    closed: dict[int, tuple[Post, PeriodClosedError]] = field(default_factory=dict)


async def queue_posts(context: Context, resolve: Callable[[], Awaitable[ResolvedPosts]], *, single: bool) -> Answer:
    """Queue the posts of a request. `resolve` returns the posts, or raises the `ProblemError` of a faulty post.

    Raises:
        BoardChangedError: the boards changed during every try.
    """
    for _ in range(_RENEWALS_MAX):
        found = await resolve()
        if found.closed:
            await _check_repeats(context, found.closed, single=single)
        try:
            if found.posts:
                await context.posting.enqueuer.submit(found.posts)
        except BoardChangedError:
            await _reread(context, found.posts)
            continue
        if found.closed:
            context.metrics.posts_settled(PostStatus.DUPLICATE.value, len(found.closed))
        accepted = Accepted(len(found.posts) + len(found.closed), len(found.closed) or UNSET)
        return Reply(accepted, status=202)
    raise BoardChangedError


async def _check_repeats(
    context: Context, closed: Mapping[int, tuple[Post, PeriodClosedError]], *, single: bool
) -> None:
    """Refuse the request unless every post in `closed` is a duplicate of an applied post.

    Raises:
        ProblemError: a post is not a duplicate.
    """
    posts = [post for post, _ in closed.values()]
    repeats = await context.store.read(lambda: find_repeats(context.posting.post_ids, posts))
    for (index, (_, error)), repeat in zip(closed.items(), repeats, strict=True):
        if repeat is not True:
            raise make_refusal(repeat or error, None if single else index)


async def _reread(context: Context, posts: list[Post]) -> None:
    """Read the boards and families of the posts from the store again."""
    for family_id in {post.family.id for post in posts if post.family is not None}:
        for part in (part for post in posts for part in post.parts):
            if part.board.family_key is not None:
                context.catalog.forget_board(part.board.id)
        try:
            await context.catalog.families.reread_family(family_id)
        except UnknownFamilyError:
            continue  # `resolve` raises this error when it runs again
    for board_id in {part.board.id for post in posts if post.family is None for part in post.parts}:
        try:
            await context.catalog.reread_board(board_id)
        except UnknownBoardError:
            continue


def find_closure(post: Post, now_us: int) -> PeriodClosedError | None:
    """Return an error if all of a post's boards are closed or not yet open. Otherwise return None."""
    error = None
    for part in post.parts:
        if not part.board.may_close:
            return None
        try:
            derive_closure(part.board, now_us).check(part.board, now_us if post.at_us is None else post.at_us)
        except PeriodClosedError as closed:
            error = closed
        else:
            return None
    return error


def make_refusal(error: Exception, index: int | None) -> ProblemError:
    """Return the problem that refuses a request because of one post. `index` is None if the post is the whole body."""
    problem = post_problem_of(error)
    if index is None:
        return problem
    errors = [FieldError(f"/posts/{index}{each.pointer}", each.detail) for each in problem.errors]
    errors = errors or [FieldError(f"/posts/{index}", problem.detail)]
    return ProblemError(problem.code, f"post {index + 1}: {problem.detail}", errors=errors, status=problem.status)

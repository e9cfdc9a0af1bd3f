"""Posting to families: find the boards that a post reaches by its time and its facets, and apply the post to each.

In each period that contains the post's time, the post reaches one board for each list of facets for which it has
values. A closed board rejects the post, but the other boards accept it.

Missing boards are created in a separate transaction, before the posts are applied. If applying the posts then fails,
the new boards stay. This does no harm, because readers see an empty board whether or not the store has it.
"""

from collections.abc import Sequence
from functools import partial

from service.context import Context
from service.contract.post_bodies import PostTarget, check_parts
from service.contract.problems import ProblemError, clip_text
from service.contract.requests import FacetedPostBody
from service.contract.routes import Answer, Call
from storage.boards.family_ids import FACET_VALUES, find_reached, parse_facet_value
from storage.errors import PostError, UnknownFacetError
from storage.records import BoardPost, ColumnChange, Family

from .posted_positions import find_asked
from .posts import Resolve, Resolved, check_time, make_post, parse_changes, parse_request_posts, take_posts


async def post_to_family(context: Context, call: Call) -> Answer:
    family = await context.catalog.families.find_family(call.path["family"])
    if call.identity.player is not None:
        call.identity.player.check_family(family.id)
    posts, single = parse_request_posts(context, call, PostTarget.FAMILY)
    return await take_family_posts(context, call, family, posts, partial(resolve_posts, context, family.id), single)


async def take_family_posts(
    context: Context,
    call: Call,
    family: Family,
    posts: Sequence[FacetedPostBody],
    resolve: Resolve,
    single: bool,  # as in `parse_request_posts`
) -> Answer:
    boards = len(family.spec.periods) * len(family.spec.facets)
    check_parts(len(posts) * boards, context.settings)
    asked = await find_asked(context, call, len(posts), family) if call.query.positions else None
    return await take_posts(context, call, posts, resolve, single=single, boards=boards, asked=asked)


async def resolve_posts(context: Context, family_id: str, posts: Sequence[FacetedPostBody]) -> list[Resolved]:
    """Find each post's boards and create those that are missing. Return posts for the writer, or their errors."""
    family, now_us = await context.catalog.families.find_family(family_id), context.now_us()
    if family.spec.may_have_grown(max(now_us if post.at_us is None else post.at_us for post in posts)):
        family = await context.catalog.families.reread_family(family_id)
    found = [_resolve(context, family, post, now_us) for post in posts]
    boards = await context.catalog.make_boards(
        family,
        {str(each) for resolved, _ in found for each, error in resolved.targets if error is None},
        now_us=now_us,
        boards_max=context.settings.catalog_boards_max,
        own_tables_max=context.own_tables_max,
    )
    for post, (resolved, changes) in zip(posts, found, strict=True):
        if changes is not None:
            parts = [BoardPost(boards[str(each)].leaf, changes) for each, error in resolved.targets if error is None]
            resolved.post = make_post(context, post, family.spec.board, changes, parts, family.scope)
    return [resolved for resolved, _ in found]


def _resolve(
    context: Context, family: Family, post: FacetedPostBody, now_us: int
) -> tuple[Resolved, list[ColumnChange] | None]:
    """Find the boards that a post reaches, and the post's changes.

    If the post is faulty, it has an error instead of boards, and the changes are None.
    """
    try:
        if (early := check_time(context, post)) is not None:
            raise early
        facets, at_us = _check_facets(family, post.facets), post.at_us
        boards = find_reached(family, facets, now_us if at_us is None else at_us, now_us)
        changes = parse_changes(family.template_board, post.stats, post.set, context.settings.text_bytes_max)
    except (PostError, ProblemError) as error:
        return Resolved([(family.template_board.leaf, error)], False), None
    return Resolved(boards, True), changes


def _check_facets(family: Family, values: dict[str, str]) -> dict[str, str]:
    for name, value in values.items():
        if name not in family.facet_names:
            raise UnknownFacetError(f"{family.id!r} has no facet {clip_text(name)!r}", pointer="/facets")
        if (found := parse_facet_value(value)) is None:
            what = f"{clip_text(value)!r} cannot be the value of a facet: {FACET_VALUES}"
            raise ProblemError("bad_value", what, pointer=f"/facets/{name}")
        values[name] = found
    return values

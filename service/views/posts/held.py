"""Handlers for held posts: list a leaderboard's held posts, and accept or refuse one."""

import msgspec
from msgspec import UNSET

from service.context import Context
from service.contract.problems import ProblemError, post_problem_of
from service.contract.queries import HeldQuery, ListQuery
from service.contract.requests import JudgePost
from service.contract.responses.boards import HeldPostAnswer, HeldPosts, PostState
from service.contract.routes import Call
from service.contract.values import format_us, parse_owner
from storage.errors import BoardChangedError, PostRejectedError, UnknownBoardError, UnknownPostError
from storage.limits.held_posts import HeldPost, list_held
from storage.queue.outcomes import find_post_fate
from storage.records import BoardSpec, Post, PostAct, PostStatus
from storage.verdicts import find_accepted, refuse_post

from .posts import name_changes, state_of


async def get_held_posts(context: Context, call: Call) -> HeldPosts:
    query: ListQuery = call.query
    board = await context.catalog.reread_board(call.path["board"])
    limit, of = query.limit or context.settings.page_entries_default, f"held {board.key}"
    after = context.cursors.find_start(query.cursor, of, (0, ""))
    found: list[HeldPost] = []
    for leaf in board.leaves:
        key, store = leaf.key, context.store.at(leaf.partition)
        found += await store.read(lambda key=key: list_held(key, after, limit + 1))  # type: ignore[misc]
    found.sort(key=_place_of)
    shown, following = context.cursors.cut_page(found, limit, of, _place_of)
    return HeldPosts(board.id, [_answer(each, board.spec) for each in shown], following)


def _place_of(post: HeldPost) -> tuple[int, str]:
    return post.held_us, post.post_hash


def _answer(post: HeldPost, spec: BoardSpec) -> HeldPostAnswer:
    changes = post.decoded_changes
    return HeldPostAnswer(
        post_id=post.post_id,
        owner=post.owner,
        held_at=format_us(post.held_us),
        at=format_us(post.at_us),
        stats=name_changes(spec, changes, overwrite=False),
        set=name_changes(spec, changes, overwrite=True) or UNSET,
        reason=post.reason,
    )


async def judge_post(context: Context, call: Call) -> PostState:
    """Apply or void a held post. If the same verdict was already given, repeat its answer."""
    query: HeldQuery = call.query
    body: JudgePost = call.body
    board = await context.catalog.reread_board(call.path["board"])
    owner, post_id = parse_owner(query.owner), call.path["post_id"]
    leaf, post_hash = board.leaf_of(owner), context.posting.post_ids.hash_post_id(post_id, owner)
    if body.verdict == "refuse":
        call.act, now_us = "post.refused", context.now_us()
        await context.store.write(lambda: refuse_post(leaf, owner, post_hash, now_us=now_us))
    else:
        call.act = None  # the transaction that applies the post stores the act
        post = await context.store.read(lambda: find_accepted(leaf, owner, post_hash))
        if post is not None:
            detail = msgspec.json.encode({"post_id": post_id}).decode()
            post.act = PostAct(call.identity.stored_key, body.reason or None, detail)
            await _apply(context, post)
    fate = await find_post_fate(context.store, context.posting.post_ids, board, post_id, owner)
    if fate is None or fate.status is PostStatus.HELD:
        raise UnknownPostError("the post waits in the queue" if fate is None else "the held post was erased")
    if (fate.status is PostStatus.VOIDED) is not (body.verdict == "refuse"):
        raise ProblemError("verdict_conflict", f"the post is {fate.status.value} already")
    context.metrics.meter.add("rankcurve_verdicts", 1, body.verdict)
    return state_of(board, post_id, owner, fate)


async def _apply(context: Context, post: Post) -> None:
    """Apply an accepted post. If all of its boards refuse it, raise their error."""
    [outcomes] = await context.posting.writer.submit([post])
    errors = [part.error for part in outcomes if part.error is not None]
    if any(isinstance(error, UnknownBoardError) for error in errors):
        raise BoardChangedError
    if errors and len(errors) == len(outcomes):
        raise post_problem_of(next((each for each in errors if not isinstance(each, PostRejectedError)), errors[0]))

"""What became of one post: asked by whoever queued it, or never heard what came of it.

The rule: only a post that came with an id can be asked for.
"""

from __future__ import annotations

from storage.post_fates import post_fate

from ..context import Context
from ..posts import stats_of
from ..problems import post_problem_of
from ..routes import Call
from ..values import format_us
from .answers import PostState


async def post_state(context: Context, call: Call) -> PostState:
    """`GET /v1/leaderboards/{board}/posts/{post_id}`."""
    board, post_id = await context.catalog.find(call.path["board"]), call.path["post_id"]
    fate = await post_fate(context.store, context.post_ids, board, post_id)
    if fate.error is not None:
        return PostState(post_id=post_id, status="rejected", error=post_problem_of(fate.error).document())
    if fate.status is None:
        return PostState(post_id=post_id, status="pending")
    return PostState(
        post_id=post_id,
        status=fate.status.value,  # type: ignore[arg-type]  # a duplicate is never remembered
        updated_at=format_us(fate.updated_at_us or 0),
        stats=stats_of(board, fate.stats or ()),
    )

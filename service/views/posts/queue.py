"""Handlers that show the ingest queue to operators, and the outcome of one post to its sender.

Both handlers read from the store, so every process gives the same answer. Only a post with a `post_id` can be looked
up, for example after its sender queued it or received no response to it.
"""

from __future__ import annotations

from service.context import Context
from service.contract.problems import post_problem_of
from service.contract.responses.boards import PostState, QueueAnswer, ShardAnswer
from service.contract.routes import Call
from service.contract.values import format_us
from storage.queue.outcomes import find_post_fate
from storage.queue.queue_status import read_queue_state

from .posts import format_stats


async def show_queue(context: Context, _call: Call) -> QueueAnswer:
    """Handle `GET /v1/queue`."""
    queue = context.posting.queue
    state = await context.store.read(lambda: read_queue_state(queue.leases, queue.semaphore))
    now_us = context.now_us()

    def age_s(oldest_us: int) -> float:
        return round(max(0, now_us - oldest_us) / 1e6, 3)

    shards = []
    for shard, count in sorted(state.counts.items()):
        waiting = state.backlog.get(shard)
        shards.append(
            ShardAnswer(
                shard=shard,
                posts=waiting.posts if waiting else 0,
                age_seconds=age_s(waiting.oldest_us) if waiting else 0.0,
                applied=count.applied,
                worker=state.workers.get(shard),
            )
        )
    oldest_us = min((waiting.oldest_us for waiting in state.backlog.values()), default=now_us)
    return QueueAnswer(
        posts=sum(waiting.posts for waiting in state.backlog.values()),
        age_seconds=age_s(oldest_us),
        workers=state.holders,
        workers_max=state.sizing.size,
        capacity=state.sizing.capacity or None,
        speed=state.sizing.speed or None,
        shards=shards,
    )


async def post_state(context: Context, call: Call) -> PostState:
    """Handle `GET /v1/leaderboards/{board}/posts/{post_id}`."""
    board, post_id = await context.catalog.find_board(call.path["board"]), call.path["post_id"]
    fate = await find_post_fate(context.store, context.posting.post_ids, board, post_id)
    if fate.error is not None:
        return PostState(post_id=post_id, status="rejected", error=post_problem_of(fate.error).to_document())
    if fate.status is None:
        return PostState(post_id=post_id, status="pending")
    return PostState(
        post_id=post_id,
        status=fate.status.value,  # type: ignore[arg-type]  # `duplicate` is never stored as an outcome
        updated_at=format_us(fate.updated_at_us or 0),
        stats=format_stats(board, fate.stats or ()),
    )

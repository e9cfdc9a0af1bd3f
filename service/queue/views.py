"""The ingest queue, for its operators.

The rule: what the store says, whichever process is asked.
"""

from __future__ import annotations

from storage.queue_states import queue_state

from ..context import Context
from ..routes import Call
from .answers import QueueAnswer, ShardAnswer


async def show_queue(context: Context, _call: Call) -> QueueAnswer:
    """`GET /v1/queue`."""
    queue = context.queue
    state = await context.store.read(lambda: queue_state(context.store.dialect, queue.leases, queue.semaphore))
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

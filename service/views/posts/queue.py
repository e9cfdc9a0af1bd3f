"""Posting with `mode=queued`, and the state of the ingest queue for operators.

A queued request is accepted or refused as a whole. An accepted request is answered before its posts are applied.

A retry of a post that was already applied is accepted as a duplicate, even if all boards of the post are closed now.
"""

from collections.abc import Awaitable, Callable, Collection

from msgspec import UNSET

from service.context import Context
from service.contract.problems import name_post, post_problem_of
from service.contract.responses.boards import Accepted, QueueAnswer, ShardAnswer
from service.contract.routes import Answer, Call, Reply
from storage.errors import BoardChangedError, PeriodClosedError, UnknownBoardError
from storage.posting.rules import find_closure
from storage.queue.ingest_queue import Shard, list_queues
from storage.queue.workers import QueueState, find_workers, read_queue_state
from storage.records import Post, PostStatus
from storage.store import CONTROL, Program

QUEUED = "queued"  # the value of the parameter `mode`
_RENEWALS_MAX = 3  # how often a request is tried at most, if its boards change during each try


async def queue_posts(context: Context, resolve: Callable[[], Awaitable[list[Post]]], *, single: bool) -> Answer:
    """Queue the posts of a request. `resolve` returns the posts, or raises the `ProblemError` of a faulty post.

    If all boards of a post are closed or not open yet, the post is not queued. The writer is then asked whether it was
    applied before. If it was, it counts as a duplicate, and otherwise the whole request is refused.

    Raises:
        ProblemError: a post is faulty, or all its boards are closed or not open yet.
        BoardChangedError: the boards changed during every try.
    """
    for _ in range(_RENEWALS_MAX):
        found, now_us = await resolve(), context.now_us()
        late = {index: closed for index, post in enumerate(found) if (closed := find_closure(post, now_us)) is not None}
        if late:
            repeats = await context.posting.writer.submit([found[index] for index in late])
            if any(isinstance(part.error, UnknownBoardError) for parts in repeats for part in parts):
                await context.catalog.confirm({part.leaf.id for index in late for part in found[index].parts})
                continue
            for (index, closed), parts in zip(late.items(), repeats, strict=True):
                errors = [part.error for part in parts if part.error is not None]
                if not parts or len(errors) == len(parts):  # no board took the post, now or earlier: refuse it
                    error = next((error for error in errors if not isinstance(error, PeriodClosedError)), closed)
                    raise name_post(post_problem_of(error), None if single else index)
        posts = [post for index, post in enumerate(found) if index not in late]
        try:
            if posts:
                await context.posting.enqueuer.submit(posts)
        except BoardChangedError:
            await context.catalog.confirm({part.leaf.id for post in posts for part in post.parts})
            continue
        if late:
            context.metrics.meter.add("rankcurve_posts", len(late), PostStatus.DUPLICATE.value)
        return Reply(Accepted(len(found), len(late) or UNSET), status=202)
    raise BoardChangedError


async def show_queue(context: Context, _call: Call) -> QueueAnswer:
    queue = context.posting.queue
    every = list_queues(context.store.dialect, context.store.partitions)

    def program(away: Collection[int]) -> Program[tuple[list[int], QueueState, dict[Shard, str]]]:
        queues = [each for each in every if each not in away]
        state = yield from read_queue_state(queue.semaphore, queues)
        return queues, state, (yield from find_workers(queue.leases, queues))

    (queues, state, workers), away = await context.read_living(program)
    now_us = context.now_us()

    def age_s(oldest_us: int) -> float:
        return round(max(0, now_us - oldest_us) / 1e6, 3)

    shards = []
    for shard in sorted(Shard(partition, number) for partition in queues for number in range(queue.shards)):
        waiting, counted = state.backlog.get(shard), state.counts.get(shard)
        shards.append(
            ShardAnswer(
                partition=None if shard.partition == CONTROL else shard.partition,
                shard=shard.number,
                posts=waiting.posts if waiting else 0,
                age_seconds=age_s(waiting.oldest_us) if waiting else 0.0,
                applied=counted.applied if counted else 0,
                worker=workers.get(shard),
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
        partitions_away=[*away] or UNSET,
    )

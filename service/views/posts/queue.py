"""Posting with `mode=queued`, and the state of the ingest queue for operators.

An accepted request is answered before its posts are applied, and afterwards nobody can be told about a single bad post.
So a queued request is accepted or refused as a whole. A retry of a post that was already applied is accepted as a
duplicate, even if all of the post's boards are closed by then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import product, starmap
from typing import TYPE_CHECKING

from msgspec import UNSET

from service.context import Context
from service.contract.problems import name_post, post_problem_of
from service.contract.responses.boards import Accepted, QueueAnswer, ShardAnswer
from service.contract.routes import Answer, Call, Reply
from storage.errors import BoardChangedError, NotOwnerError, PeriodClosedError, PostError, UnknownBoardError
from storage.posting.rules import find_closure
from storage.queue.ingest_queue import Shard, ShardBacklog, list_queues
from storage.queue.workers import QueueState, find_workers, read_queue_state
from storage.records import PartOutcome, Post, PostStatus
from storage.store import CONTROL, Program

if TYPE_CHECKING:
    from .posts import PostRequest

QUEUED = "queued"  # the value of the parameter `mode`
_RENEWALS_MAX = 3  # maximum tries for a request whose boards change during each try


async def queue_posts(request: PostRequest) -> Answer:
    if request.context.relay is not None:
        raise NotOwnerError
    for _ in range(_RENEWALS_MAX):
        found = await request.find_accepted()
        try:
            return await _queue(request, found)
        except BoardChangedError:
            await request.confirm(part.leaf for post in found for part in post.parts)
    raise BoardChangedError


async def _queue(request: PostRequest, found: Sequence[Post]) -> Answer:
    """Queue posts. One that all its boards now refuse is not queued, but accepted if it repeats an applied post."""
    context, now_us = request.context, request.context.now_us()
    judged: dict[tuple[int, int | None], PostError | None] = {}
    closures = [find_closure(post, now_us, judged) for post in found]
    late = {index: error for index, error in enumerate(closures) if error is not None}
    if late:
        await _check_repeats(request, found, late)
    if posts := [post for index, post in enumerate(found) if index not in late]:
        await context.posting.enqueuer.submit(posts)
    if late:
        context.metrics.meter.add("rankcurve_posts", len(late), PostStatus.DUPLICATE.value)
    return Reply(Accepted(len(found), len(late) or UNSET), status=202)


async def _check_repeats(request: PostRequest, found: Sequence[Post], late: Mapping[int, PostError]) -> None:
    """Raise ProblemError unless all late posts were applied before. `late` has the reason to refuse each, by index."""
    repeats = await request.context.posting.writer.submit([found[index] for index in late])
    for (index, error), parts in zip(late.items(), repeats, strict=True):
        if (cause := _find_cause(error, parts)) is not None:
            raise name_post(post_problem_of(cause), None if request.single else index)


def _find_cause(closed: PostError, parts: Sequence[PartOutcome]) -> PostError | None:
    """Find why a post that is too late can't be queued; return None if a board accepted it earlier.

    `parts`: of the writer.

    Raises:
        BoardChangedError: the writer did not find a board.
    """
    errors = [part.error for part in parts if part.error is not None]
    if any(isinstance(error, UnknownBoardError) for error in errors):
        raise BoardChangedError
    if parts and len(errors) < len(parts):
        return None
    return next((error for error in errors if not isinstance(error, PeriodClosedError)), closed)


async def show_queue(context: Context, _call: Call) -> QueueAnswer:
    queue = context.posting.queue
    every = list_queues(context.store.dialect, context.store.partitions)

    def program(away: Collection[int]) -> Program[tuple[list[int], QueueState, dict[Shard, str]]]:
        queues = [each for each in every if each not in away]
        state = yield from read_queue_state(queue.semaphore, queues)
        return queues, state, (yield from find_workers(queue.leases, queues))

    (queues, state, workers), away = await context.read_living(program)
    now_us = context.now_us()
    empty = ShardBacklog(0, now_us)
    shards = []
    for shard in sorted(starmap(Shard, product(queues, range(queue.shards)))):
        waiting, counted = state.backlog.get(shard, empty), state.counts.get(shard)
        shards.append(
            ShardAnswer(
                partition=None if shard.partition == CONTROL else shard.partition,
                shard=shard.number,
                posts=waiting.posts,
                age_seconds=round(max(0, now_us - waiting.oldest_us) / 1e6, 3),
                applied=counted.applied if counted else 0,
                worker=workers.get(shard),
            )
        )
    return QueueAnswer(
        posts=sum(each.posts for each in shards),
        age_seconds=max((each.age_seconds for each in shards), default=0.0),
        workers=state.holders,
        workers_max=state.sizing.size,
        capacity=state.sizing.capacity or None,
        speed=state.sizing.speed or None,
        shards=shards,
        partitions_away=[*away] or UNSET,
    )

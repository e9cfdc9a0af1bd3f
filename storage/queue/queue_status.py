"""The state of the ingest queue for operators, read from the store in one snapshot."""

from __future__ import annotations

from dataclasses import dataclass

from storage.leases.work_leases import WorkLeases
from storage.store import Program

from .ingest_queue import ShardBacklog, ShardCount, ingest_queue
from .workers import SHARD_POOL, Semaphore, Sizing


@dataclass(frozen=True, slots=True)
class QueueState:
    """The state of the queue. The keys of all dictionaries are numbers of shards."""

    backlog: dict[int, ShardBacklog]
    counts: dict[int, ShardCount]
    workers: dict[int, str]  # the worker that leases each shard
    holders: int  # number of workers that have a permit
    sizing: Sizing


def read_queue_state(leases: WorkLeases, semaphore: Semaphore) -> Program[QueueState]:
    """Return the present state of the queue."""
    backlog = yield from ingest_queue.backlog()
    counts = yield from ingest_queue.counts()
    held, _ = yield from leases.find_held(SHARD_POOL)
    holders = yield from semaphore.holders()
    sizing = yield from semaphore.sizing()
    return QueueState(backlog, counts, {int(name): lease.holder for name, lease in held.items()}, holders, sizing)

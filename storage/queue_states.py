"""The ingest queue as its operators see it: what waits where, whose it is, and how many may work on it.

The rule: one snapshot of the store, and nothing of the process that is asked.
"""

from __future__ import annotations

from dataclasses import dataclass

from querybuilder import Dialect

from .ingest_queue import ShardBacklog, ShardCount, ingest_queue
from .leases import Leases
from .semaphores import Semaphore, Sizing
from .shard_leases import POOL
from .store import Program


@dataclass(frozen=True, slots=True)
class QueueState:
    """By shard: what waits, what was done, and which worker has it."""

    backlog: dict[int, ShardBacklog]
    counts: dict[int, ShardCount]
    workers: dict[int, str]
    holders: int
    sizing: Sizing


def queue_state(dialect: Dialect, leases: Leases, semaphore: Semaphore) -> Program[QueueState]:
    """The queue now."""
    queue = ingest_queue(dialect)
    backlog = yield from queue.backlog()
    counts = yield from queue.counts()
    held, _ = yield from leases.held_in(POOL)
    holders = yield from semaphore.holders()
    sizing = yield from semaphore.sizing()
    return QueueState(backlog, counts, {int(name): lease.holder for name, lease in held.items()}, holders, sizing)

"""The workers of the ingest queue in one process, and who says how many may work in all.

The rule: a worker is one of several like it: what it is called tells it from every other one, here and elsewhere.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, fields
from typing import TypeVar

from storage.draining import Drainer, DrainLimits
from storage.leases import Leases
from storage.semaphores import Semaphore
from storage.shard_leases import ShardLeases

from .drain import DrainJobLimits, DrainObserver, DrainWorker
from .runner import Runner
from .size_workers import SizeWorkersJob, SizingLimits
from .tools import JobTools

SEMAPHORE = "ingest"

L = TypeVar("L")


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """The bounds of all workers of a process; each is a setting of the same name."""

    ingest_workers: int
    ingest_workers_max: int
    ingest_sizing_s: float
    ingest_round_posts_max: int
    ingest_round_parts_max: int
    ingest_alone_attempts_max: int
    ingest_lease_s: float
    ingest_poll_s: float
    ingest_gather_s: float
    ingest_look_s: float
    ingest_backoff_s_max: float
    lease_renewal_ratio: float
    job_backoff_base_s: float
    write_attempts_max: int
    write_backoff_base_s: float
    write_backoff_s_max: float
    change_log: bool

    def part(self, kind: type[L]) -> L:
        """Those of one part."""
        return kind(**{field.name: getattr(self, field.name) for field in fields(kind)})  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class QueueParts:
    """What the queue's workers work with, besides what all jobs do."""

    shards: int
    leases: Leases
    limits: QueueLimits
    observer: DrainObserver
    wake: asyncio.Event  # set when posts were queued in this process
    semaphore: Semaphore  # how many may work at once


def start_queue(runner: Runner, parts: QueueParts, tools: JobTools) -> None:
    """Run this process's workers."""
    for number in range(1, parts.limits.ingest_workers + 1):
        worker = drain_worker(parts, tools, holder=f"{tools.holder}/{number}")
        runner.start(f"drain worker {number}", worker.run)
    if parts.limits.ingest_workers and not tools.store.sole_writer:  # a store of its own has one worker's process
        runner.start("size workers", _sizing_job(parts, tools).run)


def _sizing_job(parts: QueueParts, tools: JobTools) -> SizeWorkersJob:
    limits = parts.limits
    return SizeWorkersJob(
        tools.store,
        parts.semaphore,
        limits.part(SizingLimits),
        now_us=tools.now_us,
        monotonic=tools.monotonic,
        sleep=tools.sleep,
    )


def drain_worker(parts: QueueParts, tools: JobTools, *, holder: str) -> DrainWorker:
    """One worker, not started."""
    store, limits = tools.store, parts.limits
    drainer = Drainer(
        store,
        tools.open_boards,
        tools.post_ids,
        parts.leases,
        limits.part(DrainLimits),
        now_us=tools.now_us,
        monotonic=tools.monotonic,
        sleep=tools.sleep,
        rng=tools.rng,
    )
    leases = ShardLeases(
        parts.leases,
        parts.semaphore,
        shards=parts.shards,
        holder=holder,
        lease_us=round(limits.ingest_lease_s * 1e6),
        rng=tools.rng,
    )
    return DrainWorker(
        store,
        drainer,
        leases,
        limits.part(DrainJobLimits),
        parts.observer,
        wake=parts.wake,
        now_us=tools.now_us,
        monotonic=tools.monotonic,
        sleep=tools.sleep,
    )

"""Starts the workers of the ingest queue in one process, and the job that limits the workers of all processes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from jobs.job_context import JobContext
from jobs.runner import Runner
from storage.leases.work_leases import WorkLeases
from storage.queue.queue_application import Drainer
from storage.queue.workers import Semaphore, ShardLeases

from .drain import DrainWorker
from .size_workers import JOB, SizeWorkersJob

SEMAPHORE = "ingest"


@dataclass(frozen=True, slots=True)
class QueueParts:
    shards: int
    leases: WorkLeases
    wake: asyncio.Event  # set when posts are queued in this process
    semaphore: Semaphore  # limits how many workers of the store work at the same time


def start_queue(runner: Runner, parts: QueueParts, context: JobContext) -> None:
    """Start the workers of this process, and the job that limits how many workers may work."""
    workers = context.limits.ingest_workers
    for number in range(1, workers + 1):
        worker = _make_worker(parts, context, holder=f"{context.holder}/{number}")
        runner.start(f"drain worker {number}", worker.run_forever, job="drain")
    # If this process is the sole writer of the store, no other process has workers, so their number needs no limit.
    if workers and not context.store.sole_writer:
        runner.start(JOB, SizeWorkersJob(context, parts.semaphore).run_forever)


def _make_worker(parts: QueueParts, context: JobContext, *, holder: str) -> DrainWorker:
    sleep = context.make_sleep("drain")
    drainer = Drainer(
        context.store,
        context.open_boards,
        parts.leases,
        context.limits,
        now_us=context.now_us,
        monotonic=context.monotonic,
        sleep=sleep,
        rng=context.rng,
    )
    leases = ShardLeases(
        parts.leases,
        parts.semaphore,
        shards=parts.shards,
        holder=holder,
        lease_us=round(context.limits.ingest_lease_s * 1e6),
        rng=context.rng,
    )
    return DrainWorker(context, drainer, leases, wake=parts.wake, sleep=sleep)

"""Starts the workers of the ingest queue in one process, and the job that limits the workers of all processes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TypeVar

from config.settings import Settings
from jobs.job_context import JobTools
from jobs.runner import Runner
from storage.leases.work_leases import WorkLeases
from storage.queue.queue_application import Drainer
from storage.queue.workers import Semaphore, ShardLeases

from .drain import DrainObserver, DrainWorker
from .size_workers import SizeWorkersJob

SEMAPHORE = "ingest"

L = TypeVar("L")


@dataclass(frozen=True, slots=True)
class QueueParts:
    shards: int
    leases: WorkLeases
    limits: Settings
    observer: DrainObserver
    wake: asyncio.Event  # set when posts are queued in this process
    semaphore: Semaphore  # limits how many workers of the store work at the same time


def start_queue(runner: Runner, parts: QueueParts, tools: JobTools) -> None:
    """Start the workers of this process, and the job that limits how many workers may work."""
    for number in range(1, parts.limits.ingest_workers + 1):
        worker = drain_worker(parts, tools, holder=f"{tools.holder}/{number}")
        runner.start(f"drain worker {number}", worker.run_forever)
    # If this process is the sole writer of the store, no other process has workers, so their number needs no limit.
    if parts.limits.ingest_workers and not tools.store.sole_writer:
        runner.start("size workers", _sizing_job(parts, tools).run_forever)


def _sizing_job(parts: QueueParts, tools: JobTools) -> SizeWorkersJob:
    limits = parts.limits
    return SizeWorkersJob(
        tools.store,
        parts.semaphore,
        limits,
        now_us=tools.now_us,
        monotonic=tools.monotonic,
        sleep=tools.sleep,
    )


def drain_worker(parts: QueueParts, tools: JobTools, *, holder: str) -> DrainWorker:
    store, limits = tools.store, parts.limits
    drainer = Drainer(
        store,
        tools.open_boards,
        tools.post_ids,
        parts.leases,
        limits,
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
        limits,
        parts.observer,
        wake=parts.wake,
        now_us=tools.now_us,
        monotonic=tools.monotonic,
        sleep=tools.sleep,
    )

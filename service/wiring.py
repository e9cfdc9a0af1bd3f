"""Where a process is wired: store, catalog, writer, curves and jobs, started in order and stopped in reverse.

The rule: clocks and chance enter here; everything below gets them as arguments.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

import structlog

from config import Settings
from config.peers import parse_peers
from jobs.audit import Auditor
from jobs.close_periods import CloseLimits
from jobs.controls import JobControls
from jobs.demands import DemandLimits, StoreDesk
from jobs.desk import Desk, RefreshDesk
from jobs.drift import DriftLimits
from jobs.exchange import ReadPeer
from jobs.fitting import FittingLimits
from jobs.ownership import LeaseLimits
from jobs.prune import PruneLimits
from jobs.queue import SEMAPHORE, QueueLimits, QueueParts
from jobs.refresh import RefreshLimits
from jobs.runner import RunnerLimits
from jobs.schedule import ScheduleLimits
from jobs.wiring import JobLimits, JobParts, start_jobs, start_watch
from storage.archiving import ArchiveLimits
from storage.auditing import AuditLimits
from storage.backlog import Backlog, BacklogLimits
from storage.boards import OpenBoards
from storage.catalog import Catalog
from storage.claims import store_clock
from storage.coalesce import Coalescers
from storage.curves import CurveBook
from storage.enqueuing import EnqueueLimits, Enqueuer
from storage.entry_reads import EntryReads
from storage.envelope import Envelopes
from storage.folding import FoldLimits
from storage.ingest_queue import ingest_queue
from storage.lease_desk import LeaseDesk, LeaseDeskLimits
from storage.leases import Leases
from storage.memcached import Memcached, MemcachedLimits
from storage.post_ids import PostIds
from storage.scanning import ScanLimits
from storage.semaphores import Semaphore
from storage.shared_curves import SharedCurves
from storage.store import Store
from storage.transaction_numbers import bring_up
from storage.writer import Writer, WriterLimits, WriterObserver
from storage.writers import Writers

from .context import Context
from .cursors import Cursors
from .jolokia.answering import Agent
from .journal_lane import JournalLane
from .key_limits import KeyLimitBounds, KeyLimits
from .key_watch import KeyWatch, watch_keys
from .leases.peers import peer_reader
from .leases.wiring import lease_groups_of, leases_of, pool_parts
from .limits import limits_of
from .locators import Locators
from .logs import RequestLog
from .managed.wiring import ManagedParts, managing
from .metrics.process import CurveFigures, Metrics
from .openapi import service_version
from .pages import first_pages
from .positions import CountLimits
from .stores import open_sampling, open_store
from .streams.feed import Feed, FeedLimits
from .tracing import TracedRefreshes, make_tracer

log = structlog.get_logger(__name__)


def now_us() -> int:
    """The service's clock: microseconds since 1970."""
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True)
class _Stored:
    """What stands on the store and knows nothing of requests; handlers and jobs share it."""

    store: Store
    salt: str
    key_watch: KeyWatch
    catalog: Catalog
    boards: OpenBoards
    post_ids: PostIds
    book: CurveBook
    writer: Writers
    enqueuer: Enqueuer
    queue: QueueParts
    auditor: Auditor
    lease_desk: LeaseDesk


@asynccontextmanager
async def context_of(
    settings: Settings, metrics: Metrics, *, clock: Callable[[], int] = now_us
) -> AsyncIterator[Context]:
    """Everything that handlers and jobs work with, started; stopped at the end, what was accepted first.

    `clock` tells the microseconds since 1970; only leases go by the store's own.

    Raises:
        StoreLocked, StoreUnsupported, StoreAway, SchemaTooNew: the store can't be opened.
    """
    async with AsyncExitStack() as stack:
        stored = await _open_store(settings, metrics, clock, stack)
        sizes = metrics.watch_store(version=service_version(), store=stored.store.dialect.name)
        await stack.enter_async_context(sizes.measuring(stored.store, asyncio.sleep))
        desk = RefreshDesk(demands_max=settings.refresh_demands_max, wait_s_max=settings.refresh_wait_s_max)
        # Without jobs too: other processes store the curves then, and this one has to notice.
        start = start_jobs if settings.jobs == "embedded" else start_watch
        read_peer = None
        if settings.lease_peers:
            read_peer = await stack.enter_async_context(peer_reader(parse_peers(settings.lease_peers)))
        controls = JobControls(asyncio.sleep, metrics.jobs, monotonic=time.monotonic)
        parts = _job_parts(settings, metrics, stored, clock, desk, read_peer)
        parts = replace(parts, controls=controls, sleep=controls.sleep)
        tracer = make_tracer(settings)
        if tracer is not None:
            stack.push_async_callback(asyncio.to_thread, tracer.close)
            parts = replace(parts, observer=TracedRefreshes(metrics, tracer))
        if settings.jobs == "embedded":
            sampled = await open_sampling(settings, stored.store, metrics.store)
            if sampled is not stored.store:
                stack.push_async_callback(sampled.close)
            parts = replace(parts, sampled=sampled)
        jobs = start(parts)
        stack.push_async_callback(jobs.stop)
        ending = asyncio.create_task(_end_when_damaged(stored.store, jobs.stop), name="end jobs")
        stack.callback(ending.cancel)
        # On a store of its own nobody else could meet a demand: the desk that no job attends refuses it.
        far = settings.jobs == "none" and not stored.store.sole_writer
        context = _context(settings, metrics, stored, clock, _store_desk(settings, stored) if far else desk)
        if settings.managed_objects:
            managed = ManagedParts(stored.store, stored.catalog, stored.book, context.desk, controls, clock)
            tree = await stack.enter_async_context(managing(settings, metrics, managed, service_version()))
            context = replace(context, agent=Agent(tree, service_version(), failed=_managed_failed))
        if tracer is not None:
            context = replace(context, tracer=tracer)
        yield context


async def _end_when_damaged(store: Store, stop: Callable[[], Awaitable[object]]) -> None:
    """End the jobs of a damaged store: what they write there makes it worse, and each round would fail anew."""
    await store.damaged.wait()
    await stop()


async def _open_store(settings: Settings, metrics: Metrics, clock: Callable[[], int], stack: AsyncExitStack) -> _Stored:
    store = await open_store(settings, metrics.store)
    stack.push_async_callback(store.close)
    salt = await bring_up(store)
    catalog = Catalog(store)
    await catalog.load(boards_max=settings.catalog_boards_max)
    await catalog.families.load(families_max=settings.catalog_families_max)
    boards = OpenBoards(store.dialect, open_boards_max=settings.open_boards_max)
    post_ids = PostIds(store.dialect, salt)
    book = await _open_curves(settings, metrics, store, salt, stack)
    catalog.watch_gone(book.forget)
    key_watch = await watch_keys(settings, store, stack)

    def make_writer(by: Store, observer: WriterObserver) -> Writer:
        return Writer(
            by,
            boards,
            post_ids,
            limits_of(WriterLimits, settings),
            observer,
            now_us=clock,
            monotonic=time.monotonic,
            rng=random.Random(),
        )

    writer = Writers(store, make_writer, metrics)
    stack.push_async_callback(writer.close)
    enqueuer, queue = await _open_queue(settings, metrics, store)
    stack.push_async_callback(enqueuer.close)
    audit_limits = limits_of(AuditLimits, settings)
    auditor = Auditor(store, boards, book, audit_limits, metrics.audits, monotonic=time.monotonic, rng=random.Random())
    lease_desk = LeaseDesk(
        store, lease_groups_of(settings, store), limits_of(LeaseDeskLimits, settings), metrics.leases
    )
    stack.push_async_callback(lease_desk.close)
    return _Stored(
        store, salt, key_watch, catalog, boards, post_ids, book, writer, enqueuer, queue, auditor, lease_desk
    )


async def _open_curves(
    settings: Settings, metrics: Metrics, store: Store, salt: str, stack: AsyncExitStack
) -> CurveBook:
    book = CurveBook(
        store,
        _shared_curves(settings, metrics, salt, stack),
        poll_rows_max=settings.curve_poll_rows_max,
        on_corrupt=metrics.curve_corrupt,
    )
    await book.poll()
    await book.poll_live()
    metrics.watch_curves(
        lambda: [
            CurveFigures(served.curve.as_of_us, len(served.fit.knots), served.live_version > 0) for served in book.all()
        ]
    )
    return book


async def _open_queue(settings: Settings, metrics: Metrics, store: Store) -> tuple[Enqueuer, QueueParts]:
    shards = await store.read(ingest_queue(store.dialect).shards)
    if not shards:
        shards = await store.write(lambda: ingest_queue(store.dialect).make_shards(settings.ingest_shards))
    wake = asyncio.Event()
    backlog = Backlog(store, limits_of(BacklogLimits, settings), now_us=now_us, monotonic=time.monotonic)
    enqueuer = Enqueuer(
        store,
        backlog,
        shards,
        limits_of(EnqueueLimits, settings),
        metrics.queue,
        now_us=now_us,
        appended=wake.set,
    )
    enqueuer.start()
    # Fenced in the transaction that applies: a lease that overlaps another one does no harm, so there is no margin.
    leases = Leases(store.dialect, store_clock(store.dialect), margin_us=0)
    semaphore = Semaphore(store.dialect, leases, SEMAPHORE, size=settings.ingest_workers_max)
    return enqueuer, QueueParts(shards, leases, limits_of(QueueLimits, settings), metrics.queue, wake, semaphore)


def _shared_curves(settings: Settings, metrics: Metrics, salt: str, stack: AsyncExitStack) -> SharedCurves | None:
    if not settings.memcached_servers:
        return None
    cache = Memcached(limits_of(MemcachedLimits, settings), monotonic=time.monotonic)
    stack.push_async_callback(cache.close)
    metrics.sharing.watch_servers(lambda: cache.servers_left_alone)
    return SharedCurves(cache, Envelopes(salt), metrics.sharing)


def _store_desk(settings: Settings, stored: _Stored) -> StoreDesk:
    return StoreDesk(stored.store, stored.book, limits_of(DemandLimits, settings), sleep=asyncio.sleep)


def _job_parts(
    settings: Settings,
    metrics: Metrics,
    stored: _Stored,
    clock: Callable[[], int],
    desk: RefreshDesk,
    read_peer: ReadPeer | None,
) -> JobParts:
    return JobParts(
        store=stored.store,
        catalog=stored.catalog,
        open_boards=stored.boards,
        book=stored.book,
        post_ids=stored.post_ids,
        queue=stored.queue,
        desk=desk,
        leases=leases_of(settings, stored.store),
        holder=new_holder(),
        limits=job_limits(settings),
        observer=metrics,
        folds=metrics.folds,
        prunes=metrics.folds,
        closings=metrics.closings,
        now_us=clock,
        monotonic=time.monotonic,
        sleep=asyncio.sleep,
        rng=random.Random(),
        pools=pool_parts(settings, stored.store, metrics.leases, read_peer),
        auditor=stored.auditor,
        audit_interval_s=settings.audit_interval_s,
    )


def _context(settings: Settings, metrics: Metrics, stored: _Stored, clock: Callable[[], int], desk: Desk) -> Context:
    store, boards = stored.store, stored.boards
    return Context(
        settings=settings,
        metrics=metrics,
        keyring=stored.key_watch.keyring,
        key_watch=stored.key_watch,
        key_limits=KeyLimits(limits_of(KeyLimitBounds, settings), metrics, monotonic=time.monotonic),
        request_log=RequestLog(sample_ratio=settings.log_sample_ratio, slow_s=settings.slow_request_s),
        store=store,
        catalog=stored.catalog,
        boards=boards,
        reads=EntryReads(
            store,
            boards,
            point_reads_per_batch_max=settings.point_reads_per_batch_max,
            reads_waiting_max=settings.reads_waiting_max,
            lanes=settings.point_read_lanes,
        ),
        writer=stored.writer,
        enqueuer=stored.enqueuer,
        queue=stored.queue,
        post_ids=stored.post_ids,
        book=stored.book,
        desk=desk,
        feed=Feed(
            store, limits_of(FeedLimits, settings), metrics.streaming, monotonic=time.monotonic, sleep=asyncio.sleep
        ),
        auditor=stored.auditor,
        lease_desk=stored.lease_desk,
        cursors=Cursors(stored.salt),
        first_pages=Coalescers(
            first_pages,
            batch_max=settings.point_reads_per_batch_max,
            waiting_max=settings.reads_waiting_max,
            lanes=settings.point_read_lanes,
        ),
        locators=Locators(
            store,
            boards,
            stored.book,
            limits_of(CountLimits, settings),
            now_us=clock,
            open_boards_max=settings.open_boards_max,
        ),
        journal_lane=JournalLane(reads_waiting_max=settings.reads_waiting_max),
        now_us=clock,
    )


def _managed_failed(error: Exception) -> None:
    log.error("managed_request_failed", exc_info=error)


def new_holder() -> str:
    """A holder of leases that people can find, and that never was one before."""
    return f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"


def fitting_limits(settings: Settings) -> FittingLimits:
    """The fits' part of the settings."""
    return FittingLimits(
        scan=limits_of(ScanLimits, settings),
        gap_rows_max=settings.gap_rows_max,
        scan_bound_ratio=settings.scan_bound_ratio,
        scan_changes_ratio=settings.scan_changes_ratio,
        scan_rows_per_s=settings.scan_rows_per_s,
    )


def job_limits(settings: Settings) -> JobLimits:
    """The jobs' part of the settings."""
    return JobLimits(
        runner=limits_of(RunnerLimits, settings),
        refresh=RefreshLimits(
            schedule=limits_of(ScheduleLimits, settings),
            drift=limits_of(DriftLimits, settings),
            fitting=fitting_limits(settings),
            refresh_concurrency=settings.refresh_concurrency,
            refresh_tick_s=settings.refresh_tick_s,
            refresh_load_ratio=settings.refresh_load_ratio,
        ),
        prune=limits_of(PruneLimits, settings),
        lease=limits_of(LeaseLimits, settings),
        demands=limits_of(DemandLimits, settings),
        fold=limits_of(FoldLimits, settings),
        close=limits_of(CloseLimits, settings),
        archive=limits_of(ArchiveLimits, settings),
        curve_poll_s=settings.curve_poll_s,
        live_poll_s=settings.live_poll_s,
    )

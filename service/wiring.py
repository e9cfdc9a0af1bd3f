"""Builds and starts one process of the service: store, catalog, writer, curves and jobs. Stops them in reverse order.

    open_context ──> _open_store (the parts that use the store) ──> _job_parts ──> jobs
                                                                └──> _context ──> Context, for handlers

Storage and jobs receive clocks and random generators as arguments, from here and from `lease_wiring`. There are two
exceptions: `storage.schema.creation` draws the salt of a new store, and `storage.engines.postgres` draws its retry
delays.
In the package `service`, random numbers are also drawn in `contract.keys`, `http.endpoint` (request ids),
`http.key_watch`, `processes.node`, `views.leases.pools`, `views.owners.owner_admin` and the request log (for its
sample).
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
from jobs.controls import JobControls
from jobs.curves.audit import Auditor
from jobs.curves.refresh_requests import Refresher, RefreshQueue, RemoteRefresher
from jobs.leases.peers import ReadPeer
from jobs.queue.workers import SEMAPHORE, QueueParts
from jobs.wiring import JobParts, start_jobs, start_watch
from service.client.lease_peers import open_peer_reader
from service.contract.cursors import CursorCodec
from service.http.key_limits import KeyLimits
from service.http.key_watch import KeyWatch, watch_keys
from service.http.openapi import service_version
from service.monitoring.jolokia.answering import JolokiaAgent
from service.monitoring.managed.wiring import ManagedParts, manage_objects
from service.ranks.locator_cache import LocatorCache
from service.ranks.pages import first_pages
from service.ranks.rank_context import RankContext
from service.streams.feed import Feed
from service.streams.journal_lane import JournalLane
from service.telemetry.logs import RequestLog
from service.telemetry.metrics.process import Metrics, ServingCurve
from service.telemetry.tracing import TracedRefreshes, make_tracer
from storage.boards.catalog import Catalog
from storage.coalesce import StoreCoalescers
from storage.curves.memcached import Memcached
from storage.curves.shared_curves import Envelopes, SharedCurves
from storage.curves.stored_curves import CurveBook
from storage.engines.store_start import prepare_store
from storage.leases.batcher import LeaseBatcher
from storage.leases.claims import store_clock
from storage.leases.work_leases import WorkLeases
from storage.posting.post_ids import PostIds
from storage.posting.writer import Writer, WriterObserver, Writers
from storage.queue.ingest_queue import ingest_queue
from storage.queue.intake import Enqueuer, QueueBacklog
from storage.queue.workers import Semaphore
from storage.reads.open_boards import OpenBoards
from storage.reads.point_reads import PointReads
from storage.store import Store

from .context import Context, CurveContext, PostingContext
from .lease_wiring import make_lease_groups, make_leases, make_pool_parts
from .stores import open_sampling_store, open_store

log = structlog.get_logger(__name__)


def now_us() -> int:
    """Return the service's time in microseconds since 1970."""
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True)
class _Stored:
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
    lease_batcher: LeaseBatcher


@asynccontextmanager
async def open_context(
    settings: Settings, metrics: Metrics, *, clock: Callable[[], int] = now_us
) -> AsyncIterator[Context]:
    """Build and start all parts that handlers and jobs use. At the end, finish the accepted work and stop the parts.

    `clock` returns microseconds since 1970. Leases use the store's own clock instead.

    Raises:
        StoreLockedError, StoreUnsupportedError, StoreAwayError, SchemaTooNewError: the store can't be opened.
    """
    async with AsyncExitStack() as stack:
        stored = await _open_store(settings, metrics, clock, stack)
        sizes = metrics.watch_store(version=service_version(), store=stored.store.dialect.name)
        await stack.enter_async_context(sizes.measure_periodically(stored.store, asyncio.sleep))
        refresh_queue = RefreshQueue(requests_max=settings.refresh_demands_max, wait_s_max=settings.refresh_wait_s_max)
        # A process without jobs has to poll, too, because it must load the curves that other processes store.
        start = start_jobs if settings.jobs == "embedded" else start_watch
        read_peer = None
        if settings.lease_peers:
            read_peer = await stack.enter_async_context(open_peer_reader(parse_peers(settings.lease_peers)))
        controls = JobControls(asyncio.sleep, metrics.jobs, monotonic=time.monotonic)
        parts = _job_parts(settings, metrics, stored, clock, refresh_queue, read_peer)
        parts = replace(parts, controls=controls)
        tracer = make_tracer(settings)
        if tracer is not None:
            stack.push_async_callback(asyncio.to_thread, tracer.close)
            parts = replace(parts, observer=TracedRefreshes(metrics, tracer))
        if settings.jobs == "embedded":
            sampled = await open_sampling_store(settings, stored.store, metrics.store)
            if sampled is not stored.store:
                stack.push_async_callback(sampled.close)
            parts = replace(parts, sampled=sampled)
        jobs = start(parts)
        stack.push_async_callback(jobs.stop)
        ending = asyncio.create_task(_end_when_damaged(stored.store, jobs.stop), name="end jobs")
        stack.callback(ending.cancel)
        # If this process runs no jobs, its refresh requests wait in the store for a job process. A store with a sole
        # writer has no other process. So its requests go to the refresh queue of this process. The queue refuses them
        # while no job runs.
        remote = settings.jobs == "none" and not stored.store.sole_writer
        refresher = _remote_refresher(settings, stored) if remote else refresh_queue
        context = _context(settings, metrics, stored, clock, refresher)
        if settings.managed_objects:
            managed = ManagedParts(stored.store, stored.catalog, stored.book, context.curves.refreshes, controls, clock)
            tree = await stack.enter_async_context(manage_objects(settings, metrics, managed, service_version()))
            context = replace(context, agent=JolokiaAgent(tree, service_version(), failed=_managed_failed))
        if tracer is not None:
            context = replace(context, tracer=tracer)
        yield context


async def _end_when_damaged(store: Store, stop: Callable[[], Awaitable[object]]) -> None:
    """Stop the jobs once the store is damaged: further writes could do more damage, and all rounds would fail."""
    await store.damaged.wait()
    await stop()


async def _open_store(settings: Settings, metrics: Metrics, clock: Callable[[], int], stack: AsyncExitStack) -> _Stored:
    store = await open_store(settings, metrics.store)
    stack.push_async_callback(store.close)
    salt = await prepare_store(store)
    catalog = Catalog(store)
    await catalog.load(boards_max=settings.catalog_boards_max)
    await catalog.families.load(families_max=settings.catalog_families_max)
    boards = OpenBoards(open_boards_max=settings.open_boards_max)
    post_ids = PostIds(salt)
    book = await _open_curves(settings, metrics, store, salt, stack)
    catalog.watch_removals(book.forget_board)
    key_watch = await watch_keys(settings, store, stack)

    def make_writer(by: Store, observer: WriterObserver) -> Writer:
        return Writer(
            by,
            boards,
            post_ids,
            settings,
            observer,
            now_us=clock,
            monotonic=time.monotonic,
            rng=random.Random(),
        )

    writer = Writers(store, make_writer, metrics)
    stack.push_async_callback(writer.close)
    enqueuer, queue = await _open_queue(settings, metrics, clock, store)
    stack.push_async_callback(enqueuer.close)
    audit_limits = settings
    auditor = Auditor(store, boards, book, audit_limits, metrics.audits, monotonic=time.monotonic, rng=random.Random())
    lease_batcher = LeaseBatcher(store, make_lease_groups(settings, store), settings, metrics.leases)
    stack.push_async_callback(lease_batcher.close)
    return _Stored(
        store, salt, key_watch, catalog, boards, post_ids, book, writer, enqueuer, queue, auditor, lease_batcher
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
            ServingCurve(served.curve.as_of_us, len(served.fit.knots), served.live_version > 0)
            for served in book.list_served()
        ]
    )
    return book


async def _open_queue(
    settings: Settings, metrics: Metrics, clock: Callable[[], int], store: Store
) -> tuple[Enqueuer, QueueParts]:
    shards = await store.read(ingest_queue.shards)
    if not shards:
        shards = await store.write(lambda: ingest_queue.make_shards(settings.ingest_shards))
    wake = asyncio.Event()
    backlog = QueueBacklog(store, settings, now_us=clock, monotonic=time.monotonic)
    enqueuer = Enqueuer(
        store,
        backlog,
        shards,
        settings,
        metrics.queue,
        now_us=clock,
        appended=wake.set,
    )
    enqueuer.start()
    # The leases of queue workers need no margin. A transaction that applies queued posts checks the fencing numbers of
    # its shards, so two overlapping leases do no harm.
    leases = WorkLeases(store_clock, margin_us=0)
    semaphore = Semaphore(leases, SEMAPHORE, size=settings.ingest_workers_max)
    return enqueuer, QueueParts(shards, leases, metrics.queue, wake, semaphore)


def _shared_curves(settings: Settings, metrics: Metrics, salt: str, stack: AsyncExitStack) -> SharedCurves | None:
    if not settings.memcached_servers:
        return None
    cache = Memcached(settings, monotonic=time.monotonic)
    stack.push_async_callback(cache.close)
    metrics.sharing.watch_servers(lambda: cache.servers_left_alone)
    return SharedCurves(cache, Envelopes(salt), metrics.sharing)


def _remote_refresher(settings: Settings, stored: _Stored) -> RemoteRefresher:
    return RemoteRefresher(stored.store, stored.book, settings, sleep=asyncio.sleep)


def _job_parts(
    settings: Settings,
    metrics: Metrics,
    stored: _Stored,
    clock: Callable[[], int],
    refresh_queue: RefreshQueue,
    read_peer: ReadPeer | None,
) -> JobParts:
    return JobParts(
        store=stored.store,
        catalog=stored.catalog,
        open_boards=stored.boards,
        book=stored.book,
        post_ids=stored.post_ids,
        queue=stored.queue,
        refresh_queue=refresh_queue,
        leases=make_leases(settings, stored.store),
        holder=make_holder(),
        limits=settings,
        observer=metrics,
        folds=metrics.folds,
        prunes=metrics.folds,
        closings=metrics.closings,
        now_us=clock,
        monotonic=time.monotonic,
        sleep=asyncio.sleep,
        rng=random.Random(),
        pools=make_pool_parts(settings, stored.store, metrics.leases, read_peer),
        auditor=stored.auditor,
    )


def _context(
    settings: Settings, metrics: Metrics, stored: _Stored, clock: Callable[[], int], refresher: Refresher
) -> Context:
    store, boards, cursors = stored.store, stored.boards, CursorCodec(stored.salt)
    return Context(
        settings=settings,
        metrics=metrics,
        keyring=stored.key_watch.keyring,
        key_watch=stored.key_watch,
        key_limits=KeyLimits(settings, metrics, monotonic=time.monotonic),
        request_log=RequestLog(sample_ratio=settings.log_sample_ratio, slow_s=settings.slow_request_s),
        store=store,
        catalog=stored.catalog,
        boards=boards,
        reads=PointReads(
            store,
            boards,
            point_reads_per_batch_max=settings.point_reads_per_batch_max,
            reads_waiting_max=settings.reads_waiting_max,
            lanes=settings.point_read_lanes,
        ),
        posting=PostingContext(stored.writer, stored.enqueuer, stored.queue, stored.post_ids),
        curves=CurveContext(stored.book, refresher, stored.auditor),
        feed=Feed(store, settings, metrics.streaming, monotonic=time.monotonic, sleep=asyncio.sleep),
        lease_batcher=stored.lease_batcher,
        cursors=cursors,
        ranks=_rank_context(settings, stored, clock, cursors),
        journal_lane=JournalLane(reads_waiting_max=settings.reads_waiting_max),
        now_us=clock,
    )


def _rank_context(settings: Settings, stored: _Stored, clock: Callable[[], int], cursors: CursorCodec) -> RankContext:
    locators = LocatorCache(
        stored.store,
        stored.boards,
        stored.book,
        settings,
        now_us=clock,
        open_boards_max=settings.open_boards_max,
    )
    pages = StoreCoalescers(
        first_pages,
        batch_max=settings.point_reads_per_batch_max,
        waiting_max=settings.reads_waiting_max,
        lanes=settings.point_read_lanes,
    )
    return RankContext(stored.store, locators, cursors, pages)


def _managed_failed(error: Exception) -> None:
    log.error("managed_request_failed", exc_info=error)


def make_holder() -> str:
    """Return a new name for a holder of leases: host, process id and a random part."""
    return f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"

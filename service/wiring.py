"""Builds the parts of one service process (store, catalog, writer, curves, jobs), and starts and stops them in order.

    open_context ──> the store ──> _make_context (the parts that use it) ──> Context, for handlers
                               └─> _start_jobs, with the parts of the context

Parts are stopped in the reverse order of their start.

Storage and jobs receive clocks and random generators as arguments from here, so that tests can replace them. There are
a few exceptions in storage: `storage.schema.creation` draws the salt of a new store, `storage.boards.acts` draws ids,
and `storage.engines` draws retry delays and the mark of a session. In the package `service`, handlers and
`http.endpoint` draw the ids, tokens and secrets that they create, and the request log draws its sample.
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
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import structlog

from config import Settings
from config.kinds import parse_peers
from jobs.controls import JobControls
from jobs.curves.audit import Auditor
from jobs.curves.refresh import Refresher
from jobs.queue import QueueParts
from jobs.wiring import JobParts, start_jobs, start_watch
from service.contract.cursors import CursorCodec
from service.http.api_key_watch import watch_keys
from service.http.foreign_pages import CrossOrigin
from service.http.openapi import service_version
from service.http.rate_limits import AnonymousCallers, KeyLimits
from service.http.relay import Relay
from service.lease_peers import open_peer_reader
from service.monitoring.jolokia import JolokiaAgent
from service.monitoring.managed.node_objects import manage_objects
from service.ranks.rank_context import RankContext
from service.streams.feed import Feeds
from service.streams.long_answers import LongAnswers
from service.telemetry.logs import RequestLog
from service.telemetry.metrics.process import Metrics, curve_metrics, memcached_metrics
from service.telemetry.metrics.store_figures import StoreFigures
from service.telemetry.tracing import make_tracer
from service.webhook_sender import open_sender
from storage.boards.catalog import Catalog
from storage.coalesce import Crowd
from storage.curves.curve_book import CurveBook
from storage.curves.memcached import Memcached
from storage.curves.shared_curves import Envelopes, SharedCurves
from storage.errors import StoreBusyError
from storage.leases.batcher import LeaseBatcher
from storage.leases.lease_transaction import LeaseTransactions
from storage.leases.work_leases import WorkLeases, store_clock
from storage.meter import Meter
from storage.posting.post_ids import PostIds
from storage.posting.remote_writer import RemoteWriter
from storage.posting.writer import Writer, Writers
from storage.queue import ingest_queue
from storage.queue.intake import Enqueuer, QueueBacklog
from storage.queue.workers import Semaphore
from storage.reads.open_boards import OpenBoards
from storage.reads.point_reads import PointReads
from storage.schema.creation import find_salt, prepare_store
from storage.store import Store

from .context import Context, CurveContext, PostingContext
from .stores import OwnerSockets, open_store

if TYPE_CHECKING:
    from service.contract.player_tokens import PlayerTokens

log = structlog.get_logger(__name__)


def now_us() -> int:
    return time.time_ns() // 1000


@asynccontextmanager
async def open_context(
    settings: Settings,
    metrics: Metrics,
    *,
    clock: Callable[[], int] = now_us,
    owner: OwnerSockets | None = None,
) -> AsyncIterator[Context]:
    """Build and start the parts that handlers and jobs use. After the block, finish accepted work and stop the parts.

    `clock` returns microseconds since 1970; leases use the store's own clock instead. `owner` has the sockets of the
    process that owns the SQLite file, which this process then only reads.

    Raises:
        StoreLockedError, StoreUnsupportedError, StoreAwayError, SchemaUnknownError: the store can't be opened.
    """
    async with AsyncExitStack() as stack:
        writer = None
        if owner is not None:
            writer = RemoteWriter(owner.posts, settings, metrics.meter)
            stack.push_async_callback(writer.close)
            await writer.wait_ready()
        store = await open_store(settings, metrics.meter, beside_owner=owner is not None)
        stack.push_async_callback(store.close)
        if writer is not None:
            writer.damaged = store.damaged
        if owner is None and not settings.read_only:
            salt: str | None = await prepare_store(store)
            if store.sole_writer:
                await store.write(make_work_leases(settings).end_all)
        else:
            salt = await store.read(partial(find_salt, reads_only=settings.read_only))
        assert salt is not None
        boards = OpenBoards(open_boards_max=settings.open_boards_max)
        basics = _Basics(settings, metrics, metrics.meter, clock, store, salt, boards, stack)
        controls = JobControls(asyncio.sleep, metrics.meter, monotonic=time.monotonic)
        context = await _make_context(basics, controls, owner, writer)
        await stack.enter_async_context(context.store_figures.measure_periodically(asyncio.sleep))
        await _start_jobs(context, controls, stack)
        yield context


class _Basics(NamedTuple):
    settings: Settings
    metrics: Metrics
    meter: Meter
    now_us: Callable[[], int]
    store: Store
    salt: str
    boards: OpenBoards
    stack: AsyncExitStack


async def _make_context(
    basics: _Basics, controls: JobControls, owner: OwnerSockets | None, remote_writer: RemoteWriter | None
) -> Context:
    settings, metrics, meter, clock, store, salt, boards, stack = basics
    catalog = Catalog(store)
    await catalog.load(boards_max=settings.catalog_boards_max)
    await catalog.families.load(families_max=settings.catalog_families_max)
    curves = await _open_curves(basics)
    catalog.watch_removals(curves.book.forget_board)
    key_watch = await watch_keys(settings, store, stack, tokens=_open_tokens(basics))
    posting = await _open_posting(basics, remote_writer)
    lease_batcher = _open_leases(basics)
    relay = None
    if owner is not None and remote_writer is not None:
        relay = Relay(owner.requests, remote_writer, lambda: asyncio.gather(key_watch.poll_keys(), curves.book.poll(0)))
        stack.push_async_callback(relay.close)
    tracer = make_tracer(settings)
    if tracer is not None:
        stack.push_async_callback(asyncio.to_thread, tracer.close)
    cursors = CursorCodec(salt)
    crowd = Crowd(settings.crowd_min)
    point_reads = PointReads(
        store,
        boards,
        point_reads_per_batch_max=settings.point_reads_per_batch_max,
        reads_waiting_max=settings.reads_waiting_max,
        tasks_max=settings.point_read_tasks_max,
        crowd=crowd,
        gap_rows_max=settings.exact_gap_rows_max,
    )
    return Context(
        settings=settings,
        metrics=metrics,
        keyring=key_watch.keyring,
        key_watch=key_watch,
        key_limits=KeyLimits(settings, meter, monotonic=time.monotonic),
        anonymous=AnonymousCallers(settings, meter, monotonic=time.monotonic),
        cross_origin=CrossOrigin(settings.cors_origins) if settings.cors_origins else None,
        request_log=RequestLog(sample_ratio=settings.log_sample_ratio, slow_s=settings.slow_request_s),
        store=store,
        catalog=catalog,
        boards=boards,
        reads=point_reads,
        posting=posting,
        curves=curves,
        feeds=Feeds(store, settings, meter, monotonic=time.monotonic, sleep=asyncio.sleep),
        lease_batcher=lease_batcher,
        cursors=cursors,
        ranks=RankContext(store, boards, point_reads, curves.book, settings, cursors, crowd=crowd, now_us=clock),
        long_answers=LongAnswers(reads_waiting_max=settings.reads_waiting_max),
        now_us=clock,
        tracer=tracer,
        relay=relay,
        store_figures=_watch_store(basics),
        agent=await _open_agent(basics, controls),
    )


def _open_tokens(basics: _Basics) -> PlayerTokens | None:
    if not basics.settings.player_token_keys and not basics.settings.player_token_jwks:
        return None
    from service.contract.player_tokens import PlayerTokens

    return PlayerTokens(basics.settings, basics.salt, now_us=basics.now_us)


def _watch_store(basics: _Basics) -> StoreFigures:
    wait_s_max = basics.settings.connect_timeout_s
    figures = StoreFigures(basics.store, basics.meter, version=service_version(), wait_s_max=wait_s_max)
    basics.metrics.watch(figures.collect)
    return figures


async def _open_agent(basics: _Basics, controls: JobControls) -> JolokiaAgent:
    version, store = service_version(), basics.store.dialect.name
    managing = manage_objects(basics.settings, basics.metrics, controls, store=store, version=version)
    return JolokiaAgent(await basics.stack.enter_async_context(managing), version)


async def _open_curves(basics: _Basics) -> CurveContext:
    settings, metrics, meter, _, store, salt, boards, stack = basics
    shared = None
    if settings.memcached_servers:
        cache = Memcached(settings, monotonic=time.monotonic)
        stack.push_async_callback(cache.close)
        metrics.watch(lambda: memcached_metrics(cache.servers_left_alone))
        shared = SharedCurves(cache, Envelopes(salt), meter)
    book = CurveBook(store, shared, poll_rows_max=settings.curve_poll_rows_max, meter=meter)
    for partition in range(store.partitions):
        try:
            await book.poll(partition)
        except StoreBusyError as error:  # a later poll loads the curves, once the partition answers again
            log.warning("curves_not_loaded", partition=partition, detail=error.detail)
    metrics.watch(lambda: curve_metrics(book.list_served(), time.time()))
    auditor = Auditor(store, boards, book, settings, meter, monotonic=time.monotonic, rng=random.Random())
    refreshes = Refresher(store, book, make_work_leases(settings), settings, sleep=asyncio.sleep)
    return CurveContext(book, refreshes, auditor)


async def _open_posting(basics: _Basics, remote_writer: RemoteWriter | None) -> PostingContext:
    settings, _, meter, clock, store, salt, boards, stack = basics
    monotonic = time.monotonic

    def make_writer(by: Store, siblings: list[Writer]) -> Writer:
        return Writer(
            by, boards, settings, meter, siblings=siblings, now_us=clock, monotonic=monotonic, rng=random.Random()
        )

    writer: Writers | RemoteWriter | None = remote_writer
    if writer is None:
        writer = Writers(store, make_writer)
        stack.push_async_callback(writer.close)
    shards = await store.read(ingest_queue.count_shards)
    if not shards:
        shards = await store.write(lambda: ingest_queue.make_shards(settings.ingest_shards))
    wake = asyncio.Event()
    backlog = QueueBacklog(store, settings, now_us=clock, monotonic=monotonic)
    enqueuer = Enqueuer(store, backlog, shards, settings, meter, now_us=clock, appended=wake.set)
    stack.push_async_callback(enqueuer.close)
    # The leases of queue workers need no safety margin. A transaction that applies queued posts checks the fencing
    # numbers of its shards, so it does no harm if two workers believe that they have the lease of a shard.
    leases = WorkLeases(store_clock, margin_us=0)
    semaphore = Semaphore(leases, "ingest", size=settings.ingest_workers_max)
    queue = QueueParts(shards, leases, wake, semaphore)
    return PostingContext(writer, enqueuer, queue, PostIds(salt))


def make_work_leases(settings: Settings) -> WorkLeases:
    return WorkLeases(store_clock, margin_us=round(settings.lease_margin_s * 1e6))


def _open_leases(basics: _Basics) -> LeaseBatcher:
    settings = basics.settings
    transactions = LeaseTransactions(
        None,
        margin_us=round(settings.lease_margin_s * 1e6),
        attempts_max=settings.write_attempts_max,
        rng=random.Random(),
        peers=bool(settings.lease_peers),
    )
    batcher = LeaseBatcher(basics.store, transactions, settings, basics.meter)
    basics.stack.push_async_callback(batcher.close)
    return batcher


async def _start_jobs(context: Context, controls: JobControls, stack: AsyncExitStack) -> None:
    settings, store, meter = context.settings, context.store, context.metrics.meter
    embedded = settings.jobs == "embedded" and not settings.read_only
    read_peer = None
    if settings.lease_peers:
        read_peer = await stack.enter_async_context(open_peer_reader(parse_peers(settings.lease_peers)))
    send_event = await stack.enter_async_context(open_sender(settings.webhook_hosts)) if embedded else None
    parts = JobParts(
        store=store,
        catalog=context.catalog,
        open_boards=context.boards,
        book=context.curves.book,
        queue=context.posting.queue,
        refresher=context.curves.refreshes,
        leases=make_work_leases(settings),
        holder=make_holder(),
        limits=settings,
        meter=meter,
        now_us=context.now_us,
        monotonic=time.monotonic,
        sleep=asyncio.sleep,
        rng=random.Random(),
        runs_pools=True,
        read_peer=read_peer,
        send_event=send_event,
        auditor=context.curves.auditor,
        controls=controls,
        record_span=None if context.tracer is None else context.tracer.record_span,
    )
    # Even a process without jobs has to poll the store, because it serves the curves that job processes store.
    jobs = start_jobs(parts) if embedded else start_watch(parts)
    stack.push_async_callback(jobs.stop)
    ending = asyncio.create_task(_end_when_damaged(context, jobs.stop), name="end jobs")
    stack.callback(ending.cancel)


async def _end_when_damaged(context: Context, stop: Callable[[], Awaitable[object]]) -> None:
    """Wait until the store is damaged, then stop all jobs, which would only fail or do more damage by their writes."""
    await context.store.damaged.wait()
    if isinstance(context.posting.writer, RemoteWriter):
        context.posting.writer.report_damage()
    await stop()


def make_holder() -> str:
    """Make a unique name under which a process holds leases: its host, its process id and a random part."""
    return f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"

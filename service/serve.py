"""Where a serving process is wired: store, writer, curves, jobs and the HTTP application, started in order and stopped in reverse.

The rule: SIGTERM and SIGINT stop taking requests, finish what was accepted, and end with exit code 0.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import structlog
from aiohttp import web

from config import Settings
from jobs.start import JobLimits, JobParts, start_jobs
from storage.boards import OpenBoards
from storage.curves import CurveBook
from storage.entry_reads import EntryReads
from storage.keys import list_keys
from storage.leaderboards import Catalog
from storage.migrate import migrate
from storage.post_ids import PostIds
from storage.sqlite import SqliteLimits, SqliteStore
from storage.writer import Writer, WriterLimits

from .api import ROUTES
from .app import make_app
from .context import Context
from .cursors import Cursors
from .keys import KeyRing
from .logs import RequestLog, configure
from .metrics import CurveFigures, Metrics

log = structlog.get_logger(__name__)
SQLITE_PREFIX = "sqlite:///"


def now_us() -> int:
    """The service's clock: microseconds since 1970."""
    return time.time_ns() // 1000


def sqlite_path(store_url: str) -> Path:
    """The file of a `sqlite:///PATH` store."""
    return Path(store_url.removeprefix(SQLITE_PREFIX))


def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        StorageError: the store can't be opened.
        ServiceError: the service would be open to others without a key.
        OSError: the address can't be bound.
    """
    metrics = Metrics()
    lines = configure(level=settings.log_level, style=settings.log_format, on_drop=metrics.log_line_dropped)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(settings, metrics))
    finally:
        lines.close()


def _loop_factory() -> object:
    try:
        import uvloop
    except ImportError:  # not on every platform; the loop of the standard library serves as well, slower
        return None
    return uvloop.new_event_loop


async def _serve(settings: Settings, metrics: Metrics) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with context_of(settings, metrics) as context:
        context.keyring.check_binding(settings.host)
        if context.keyring.open:
            log.warning("open_to_this_machine", detail="no API key is configured: every caller is ops", host=settings.host)
        # aiohttp closes what is idle at once and waits for what runs.
        runner = web.AppRunner(
            make_app(ROUTES, context), access_log=None, handle_signals=False, shutdown_timeout=settings.shutdown_s
        )
        await runner.setup()
        try:
            site = web.TCPSite(runner, settings.host, settings.port, backlog=1024)
            await site.start()
            log.info("serving", addresses=[f"{address[0]}:{address[1]}" for address in runner.addresses])
            await stop.wait()
            log.info("stopping")
        finally:
            await runner.cleanup()
    log.info("stopped")


@asynccontextmanager
async def context_of(settings: Settings, metrics: Metrics) -> AsyncIterator[Context]:
    """Everything that handlers and jobs work with, started; stopped at the end, what was accepted first.

    Raises:
        StoreLocked, StoreUnsupported, SchemaTooNew: the store can't be opened.
    """
    async with AsyncExitStack() as stack:
        store = await SqliteStore.open(sqlite_path(settings.store), sqlite_limits(settings))
        stack.push_async_callback(store.close)
        salt = await store.write(lambda: migrate(store.dialect))
        catalog = Catalog(store)
        await catalog.load(boards_max=settings.catalog_boards_max)
        boards = OpenBoards(store.dialect, open_boards_max=settings.open_boards_max)
        post_ids = PostIds(store.dialect, salt)
        book = CurveBook(store, catalog, poll_rows_max=settings.curve_poll_rows_max, on_corrupt=metrics.curve_corrupt)
        await book.poll()
        metrics.watch_curves(
            lambda: [CurveFigures(served.curve.as_of_us, len(served.curve.knots)) for served in book.all()]
        )
        writer = Writer(
            store,
            boards,
            post_ids,
            writer_limits(settings),
            metrics,
            now_us=now_us,
            monotonic=time.monotonic,
            rng=random.Random(),
        )
        writer.start()
        stack.push_async_callback(writer.close)
        keys = await store.read(lambda: list_keys(store.dialect, keys_max=settings.keys_max))
        jobs = start_jobs(
            JobParts(store=store, catalog=catalog, boards=boards, book=book, post_ids=post_ids, observer=metrics),
            JobLimits.of(settings),
            embedded=settings.jobs == "embedded",
        )
        stack.push_async_callback(jobs.stop)
        yield Context(
            settings=settings,
            metrics=metrics,
            keyring=KeyRing(keys),
            request_log=RequestLog(sample_ratio=settings.log_sample_ratio, slow_s=settings.slow_request_s),
            store=store,
            catalog=catalog,
            boards=boards,
            reads=EntryReads(
                store,
                boards,
                point_reads_per_batch_max=settings.point_reads_per_batch_max,
                reads_waiting_max=settings.reads_waiting_max,
                lanes=settings.reader_connections,
            ),
            writer=writer,
            post_ids=post_ids,
            book=book,
            desk=jobs.desk,
            cursors=Cursors(salt),
            now_us=now_us,
        )


def sqlite_limits(settings: Settings) -> SqliteLimits:
    """The store's part of the settings."""
    return SqliteLimits(
        reader_connections=settings.reader_connections,
        heavy_reader_connections=settings.heavy_reader_connections,
        reads_waiting_max=settings.reads_waiting_max,
        sqlite_cache_mib=settings.sqlite_cache_mib,
        checkpoint_pages=settings.checkpoint_pages,
        checkpoint_idle_s=settings.checkpoint_idle_s,
        statement_cache=settings.statement_cache,
    )


def writer_limits(settings: Settings) -> WriterLimits:
    """The writer's part of the settings."""
    return WriterLimits(
        queue_posts_max=settings.queue_posts_max,
        group_posts_max=settings.group_posts_max,
        write_attempts_max=settings.write_attempts_max,
        write_backoff_base_s=settings.write_backoff_base_s,
        write_backoff_s_max=settings.write_backoff_s_max,
        post_wait_s_max=settings.post_wait_s_max,
        grouping=settings.grouping,
    )

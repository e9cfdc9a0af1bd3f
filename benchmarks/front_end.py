"""A front end and a job process in one process, for measurements on SQLite.

python -m benchmarks.front_end PORT     (RANKCURVE_ variables give all other settings)

Only one process may open a SQLite file, so the front end and the jobs run in one process here. Both share the store.
Each has a curve book and memcached connections of its own, so the front end gets curves only through the database table
and memcached.
"""

import asyncio
import os
import random
import signal
import sys
import time
from contextlib import AsyncExitStack

import uvloop
from aiohttp import web

from config import Settings, load
from jobs.curves.refresh_requests import RefreshQueue
from jobs.wiring import JobParts, start_jobs
from service.api import ROUTES
from service.app import make_server
from service.context import Context
from service.http.malformed import ProblemRunner
from service.serve import SWITCH_INTERVAL_S
from service.telemetry.metrics.process import Metrics
from service.wiring import make_holder, make_work_leases, now_us, open_context
from storage.curves.memcached import Memcached
from storage.curves.shared_curves import Envelopes, SharedCurves
from storage.curves.stored_curves import CurveBook
from storage.schema.creation import create_schema


async def start_job_side(context: Context, settings: Settings, stack: AsyncExitStack) -> None:
    """Start the jobs with a curve book of their own. So the front end finds new curves only by polling."""
    metrics = Metrics()
    salt = await context.store.write(lambda: create_schema(context.store.dialect))
    cache = Memcached(settings, monotonic=time.monotonic)
    stack.push_async_callback(cache.close)
    shared = SharedCurves(cache, Envelopes(salt), metrics)
    parts = JobParts(
        store=context.store,
        catalog=context.catalog,
        open_boards=context.boards,
        book=CurveBook(
            context.store, shared, poll_rows_max=settings.curve_poll_rows_max, on_corrupt=metrics.curve_corrupt
        ),
        refresh_queue=RefreshQueue(requests_max=settings.refresh_demands_max, wait_s_max=settings.refresh_wait_s_max),
        leases=make_work_leases(settings),
        holder=make_holder(),
        limits=settings,
        observer=metrics,
        now_us=now_us,
        monotonic=time.monotonic,
        sleep=asyncio.sleep,
        rng=random.Random(),
    )
    stack.push_async_callback(start_jobs(parts).stop)


async def serve_until_stopped(settings: Settings) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with AsyncExitStack() as stack:
        context = await stack.enter_async_context(open_context(settings, Metrics()))
        await start_job_side(context, settings, stack)
        runner = ProblemRunner(make_server(ROUTES, context))
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, settings.host, settings.port, backlog=1024).start()
        await stop.wait()


def main() -> int:
    settings = load({"port": sys.argv[1], "jobs": "none"}, os.environ)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve_until_stopped(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Builds the object tree of one process, the objects that do not come from metrics, and the actions of the channel.

An operation runs in every process of the node, and every process shows the same objects.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

from config.masking import masked
from jobs.curves.refresh_requests import Refresher, refresh_board
from jobs.job_context import JobContext
from service.telemetry.metrics.partitions import MeasuredPartition
from service.telemetry.metrics.process import Metrics
from storage.records import Board

from .boards import BoardObjects
from .history import MetricHistory, MetricsMoment
from .metric_mapping import MetricMapping
from .node_channel import NodeChannel
from .object_names import ObjectName
from .objects import (
    BOOLEAN,
    COMPOSITE,
    DOMAIN,
    DOUBLE,
    LIST,
    LONG,
    TEXT,
    ManagedObject,
    Operation,
    Rows,
    UnknownObjectError,
    declare,
)
from .tree import ObjectTree
from .verdict import Figures, find_alerts

_JOB_OPERATIONS = {
    "run": "Run the job now in every process of the node, by ending its rest; returns how many processes have it",
    "pause": "Pause the job: no process of the node begins another round; returns how many processes have it",
    "resume": "Let the paused job continue; returns how many processes have it",
}


def _view(family: str) -> Callable[[MetricsMoment], float]:
    # Call `read_view` only when an operator reads the attribute, because the call reads every curve.
    return lambda now: now.metrics.read_view(family)


def _find_partition(number: int, now: MetricsMoment) -> MeasuredPartition | None:
    return now.metrics.partitions.measured.get(number)


_NODE: Rows = (
    ("UptimeSeconds", DOUBLE, "Time since the start of the first process [seconds]",
     lambda now: max(0.0, time.time() - now.read_process("process_start_time_seconds"))),
    ("CpuSeconds", DOUBLE, "Processor time of all processes [seconds]",
     lambda now: now.read_process("process_cpu_seconds_total")),
    ("Memory", COMPOSITE, "Memory of all processes [bytes]",
     lambda now: {each: int(now.read_process(f"process_{each}_memory_bytes")) for each in ("resident", "virtual")}),
)  # fmt: skip
_VERDICT: Rows = (
    ("Alerts", LIST, "The alerts of docs/alerts.yml whose conditions hold, the most severe first [alerts]",
     lambda now: find_alerts(Figures(now))),
)  # fmt: skip
_SNAPSHOTS = "Snapshots of the last quarter of an hour: pairs of an age in seconds and {}, oldest first"
_RECENT: Rows = (
    ("Posts", LIST, f"{_SNAPSHOTS.format('all posts')} [posts]", lambda now: now.list_totals("rankcurve_posts")),
    ("Requests", LIST, f"{_SNAPSHOTS.format('all requests')} [requests]",
     lambda now: now.list_totals("rankcurve_requests")),
    ("Failures", LIST, f"{_SNAPSHOTS.format('all requests that ended in 5xx')} [requests]",
     lambda now: now.list_totals("rankcurve_requests", status="5")),
    ("Cpu", LIST, f"{_SNAPSHOTS.format('processor time')} [seconds]",
     lambda now: now.list_process_numbers("process_cpu_seconds_total")),
)  # fmt: skip
_CURVES: Rows = (
    ("CurvesLive", DOUBLE, "Live curves in the answering process [count]", _view("rankcurve_curves_live")),
    ("CurveAgeMax", DOUBLE, "Age of the oldest curve [seconds]", _view("rankcurve_curve_age_seconds_max")),
    ("LiveLagMax", DOUBLE, "Longest time that a live curve is behind the posts [seconds]",
     _view("rankcurve_live_lag_seconds_max")),
)  # fmt: skip
_PARTITION: Rows = (  # the functions read a `MeasuredPartition`
    ("Reachable", BOOLEAN, "True if the partition answered the last check", lambda found: found.reachable),
    ("Node", TEXT, "With Citus, the server of the partition, as host:port", lambda found: found.node),
    ("StoreBytes", LONG, "Size of the partition when it was last measured [bytes]", lambda found: found.bytes),
    ("Boards", LONG, "Leaderboards of the partition [count]", lambda found: found.boards),
    ("Entries", LONG, "Entries of the partition's leaderboards [entries]", lambda found: found.entries),
    ("LogNext", LONG, "Log position of the next changes in the partition [count]", lambda found: found.log_next),
    ("FoldLagSeconds", DOUBLE, "Time for which changes in the partition have not been folded [seconds]",
     lambda found: found.fold_lag_seconds),
)  # fmt: skip


@asynccontextmanager
async def manage_objects(
    context: JobContext, refreshes: Refresher, metrics: Metrics, version: str
) -> AsyncIterator[ObjectTree]:
    """Provide the tree within the block, while a task takes snapshots of metrics and the channel listens."""
    settings = context.limits
    history = MetricHistory(metrics, settings, monotonic=context.monotonic)

    async def flush() -> int:
        await context.catalog.load(boards_max=settings.catalog_boards_max)
        return await context.book.reread()

    async def refresh(board: Board, column_index: int) -> float:
        return (await refresh_board(refreshes, board, column_index))[1]

    actions = {f"job.{name}": _job_action(getattr(context.controls, name)) for name in _JOB_OPERATIONS}
    channel = NodeChannel({**actions, "cache.flush": flush}, settings, metrics.node)
    fixed = _Fixed(context, channel, version)
    mapping = MetricMapping(context.store.dialect.name, metrics.totals)
    tree = ObjectTree(history, mapping, BoardObjects(context, refresh), fixed.objects, settings)
    ticking = asyncio.create_task(history.run(), name="rates")
    try:
        async with channel.listen_for_actions():
            yield tree
    finally:
        ticking.cancel()


def _job_action(do: Callable[[str], bool]) -> Callable[[str], Awaitable[bool | None]]:
    async def act(job: str) -> bool | None:
        return do(job) or None

    return act


class _Fixed:
    """Makes the objects that do not come from metrics: facts about the node and the store, operations."""

    def __init__(self, context: JobContext, channel: NodeChannel, version: str) -> None:
        self._context, self._channel, self._version = context, channel, version

    def objects(self, mapped: Mapping[ObjectName, ManagedObject]) -> Iterable[ManagedObject]:
        """Yield the objects. Objects from metrics (`mapped`) with the same names are later merged with them."""
        version: Rows = (("Version", TEXT, "Version of the service", lambda _: self._version),)
        yield declare("The processes of this node", (*version, *_NODE), type="Node")
        yield self._store(mapped)
        yield declare("Whether the node is well", _VERDICT, type="Verdict")
        yield declare("Figures of the last quarter of an hour", _RECENT, type="Recent")
        text = "Read every curve again in every process of the node; returns how many processes did"
        curves: Rows = (
            ("Curves", LONG, "Curves that the answering process holds [count]", lambda _: self._context.book.count),
        )
        flush = {"flush": Operation(text, self._flush, LONG)}
        yield declare("The curves that ranks are read off, and memcached", (*curves, *_CURVES), flush, type="Cache")
        for name, managed in mapped.items():
            if managed.type == "Partition":
                number = name.values["number"]
                yield declare(
                    "A partition of the store; null until it was measured", _PARTITION, type="Partition", number=number,
                    subject=partial(_find_partition, int(number)),
                )  # fmt: skip
            if managed.type == "Job" and "Rounds" in managed.attributes:
                job = name.values["name"]
                yield declare("A background job", (), self._operations(job), type="Job", name=job)

    def _store(self, mapped: Mapping[ObjectName, ManagedObject]) -> ManagedObject:
        store = self._context.store
        rows: Rows = (
            ("Url", TEXT, "Address of the store, without passwords", lambda _: masked(self._context.limits.store)),
            ("SizeBytes", DOUBLE, "Size of the store when it was last measured [bytes]",
             _view("rankcurve_store_bytes")),
            ("SoleWriter", BOOLEAN, "True if no other process writes to the store", lambda _: store.sole_writer),
            ("WritesAtOnce", LONG, "Write transactions that may run at the same time [count]",
             lambda _: store.writes_at_once),
            ("DiskFreeBytes", DOUBLE, "Free space on the disk of the store when it was last measured [bytes]",
             _view("rankcurve_store_disk_free_bytes")),
        )  # fmt: skip
        rows = rows if store.sole_writer else rows[:-1]  # only SQLite has a disk of its own
        made = declare("The store, and the writing of posts to it", rows, type="Store", name=store.dialect.name)
        throttle = mapped.get(ObjectName.of(DOMAIN, type="Throttle"))
        attributes = {} if throttle is None else throttle.attributes
        refused = {name: attribute for name, attribute in attributes.items() if name.startswith("WriteRefused")}
        return replace(made, attributes={**refused, **made.attributes})

    def _operations(self, job: str) -> dict[str, Operation]:
        def operation_everywhere(action: str) -> Callable[[], Awaitable[int]]:
            async def act() -> int:
                done = await self._channel.run_everywhere(f"job.{action}", job)
                if not done:
                    raise UnknownObjectError(f"no process of this node currently has the job {job}")
                return len(done)

            return act

        return {name: Operation(text, operation_everywhere(name), LONG) for name, text in _JOB_OPERATIONS.items()}

    async def _flush(self) -> int:
        return len(await self._channel.run_everywhere("cache.flush"))

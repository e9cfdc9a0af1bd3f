"""Builds the object tree of one process, the objects that do not come from metrics, and the actions of the channel.

An operation runs in every process of the node, and every process shows the same objects.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from config import Settings
from config.masking import masked
from jobs.controls import JobControls
from jobs.curves.refresh_requests import Refresher
from service.telemetry.metrics.process import Metrics
from storage.boards.catalog import Catalog
from storage.curves.stored_curves import CurveBook
from storage.records import Board
from storage.store import Store

from .boards import BoardObjects
from .history import MetricHistory
from .metric_mapping import DOMAIN, MetricMapping
from .node_channel import NodeChannel
from .object_names import ObjectName
from .objects import (
    BOOLEAN,
    DOUBLE,
    LONG,
    TEXT,
    Attribute,
    ManagedObject,
    Operation,
    Rows,
    UnknownObjectError,
    attributes_of,
)
from .runtime import make_java_objects
from .tree import ObjectTree

_JOB_OPERATIONS = {
    "run": "Run the job now in every process of the node, by ending its rest; returns how many processes have it",
    "pause": "Pause the job: no process of the node begins another round; returns how many processes have it",
    "resume": "Let the paused job continue; returns how many processes have it",
}


class ManagedParts(NamedTuple):
    store: Store
    catalog: Catalog
    book: CurveBook
    desk: Refresher
    controls: JobControls
    now_us: Callable[[], int]


@asynccontextmanager
async def manage_objects(
    settings: Settings, metrics: Metrics, parts: ManagedParts, version: str
) -> AsyncIterator[ObjectTree]:
    """Provide the tree within the block, while a task takes snapshots of metrics and the channel listens."""
    history = MetricHistory(metrics.collect_counted, settings, monotonic=time.monotonic)

    async def flush() -> int:
        await parts.catalog.load(boards_max=settings.catalog_boards_max)
        return await parts.book.reread()

    async def refresh(board: Board, column_index: int) -> float:
        return (await parts.desk.refresh_now(board, column_index)).seconds

    actions = {f"job.{name}": _job_action(getattr(parts.controls, name)) for name in _JOB_OPERATIONS}
    channel = NodeChannel({**actions, "cache.flush": flush}, settings, metrics.node)
    fixed = _Fixed(settings, metrics, parts, channel, make_java_objects(version))
    tree = ObjectTree(
        history,
        MetricMapping(parts.store.dialect.name),
        BoardObjects(parts.catalog, parts.book, refresh, now_us=parts.now_us, boards_max=settings.managed_boards_max),
        fixed.objects,
        settings,
    )
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
    """Makes the objects that do not come from metrics: java.lang, facts about the store, operations."""

    def __init__(
        self, settings: Settings, metrics: Metrics, parts: ManagedParts, channel: NodeChannel, java: list[ManagedObject]
    ) -> None:
        self._settings, self._metrics, self._parts = settings, metrics, parts
        self._channel, self._java = channel, java

    def objects(self, grouped: Mapping[ObjectName, ManagedObject]) -> Iterable[ManagedObject]:
        """Yield the objects. Objects from metrics (`grouped`) with the same names are later merged with them."""
        yield from self._java
        yield self._store(grouped)
        text = "Read every curve again in every process of the node; returns how many processes did"
        yield ManagedObject(
            ObjectName.of(DOMAIN, type="Cache"),
            "The curves that ranks are read off, and memcached",
            self._curves(),
            {"flush": Operation(text, self._flush, LONG)},
            kind="rankcurve.Cache",
        )
        for name, managed in grouped.items():
            if managed.type == "Job" and "Rounds" in managed.attributes:
                operations = self._operations(name.values["name"])
                yield ManagedObject(name, "A background job", {}, operations, kind="rankcurve.Job")

    def _viewed(self, family: str) -> Callable[[Any], float]:
        # Call `read_view` only when an operator reads the attribute, because the call reads every curve.
        return lambda _: self._metrics.read_view(family)

    def _curves(self) -> dict[str, Attribute]:
        viewed = self._viewed
        rows: Rows = (
            ("Curves", LONG, "Curves that the answering process holds [count]", lambda _: self._parts.book.count),
            ("CurvesLive", DOUBLE, "Live curves in the answering process [count]", viewed("rankcurve_curves_live")),
            ("CurveAgeMax", DOUBLE, "Age of the oldest curve [seconds]", viewed("rankcurve_curve_age_seconds_max")),
            ("LiveLagMax", DOUBLE, "Longest time that a live curve is behind the posts [seconds]",
             viewed("rankcurve_live_lag_seconds_max")),
        )  # fmt: skip
        return attributes_of(rows)

    def _store(self, grouped: Mapping[ObjectName, ManagedObject]) -> ManagedObject:
        store, viewed = self._parts.store, self._viewed
        rows: Rows = (
            ("Url", TEXT, "Address of the store, without passwords", lambda _: masked(self._settings.store)),
            ("SizeBytes", DOUBLE, "Size of the store when it was last measured [bytes]",
             viewed("rankcurve_store_bytes")),
            ("SoleWriter", BOOLEAN, "True if no other process writes to the store", lambda _: store.sole_writer),
            ("WritesAtOnce", LONG, "Write transactions that may run at the same time [count]",
             lambda _: store.writes_at_once),
            ("DiskFreeBytes", DOUBLE, "Free space on the disk of the store when it was last measured [bytes]",
             viewed("rankcurve_store_disk_free_bytes")),
        )  # fmt: skip
        throttle = grouped.get(ObjectName.of(DOMAIN, type="Throttle"))
        refused = {} if throttle is None else throttle.attributes
        return ManagedObject(
            ObjectName.of(DOMAIN, type="Store", name=store.dialect.name),
            "The store, and the writing of posts to it",
            {name: attribute for name, attribute in refused.items() if name.startswith("WriteRefused")}
            | attributes_of(rows if store.sole_writer else rows[:-1]),  # only SQLite has a disk of its own
            kind="rankcurve.Store",
        )

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

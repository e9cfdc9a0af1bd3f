"""Builds the object tree of one process, the objects that do not come from metrics, and the actions of the channel.

An operation runs in every process of the node, and every process shows the same objects.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

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
from .objects import BOOLEAN, DOUBLE, LONG, TEXT, Attribute, ManagedObject, Operation, UnknownObjectError
from .runtime import make_java_objects
from .tree import ObjectTree

_JOB_OPERATIONS = {
    "run": "Run the job now in every process of the node, by ending its rest; returns how many processes have it",
    "pause": "Pause the job: no process of the node begins another round; returns how many processes have it",
    "resume": "Let the paused job continue; returns how many processes have it",
}


@dataclass(frozen=True, slots=True)
class ManagedParts:
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
    actions = {**_job_actions(parts.controls), "cache.flush": lambda: _flush(parts, settings.catalog_boards_max)}
    node = metrics.node
    channel = NodeChannel(
        actions,
        settings,
        folder=None if node is None else node.folder,
        name="" if node is None else node.name,
    )
    fixed = _Fixed(settings, metrics, parts, channel, make_java_objects(version))
    tree = ObjectTree(
        history,
        MetricMapping(parts.store.dialect.name),
        BoardObjects(
            parts.catalog,
            parts.book,
            _refreshing(parts.desk),
            now_us=parts.now_us,
            boards_max=settings.managed_boards_max,
        ),
        fixed.objects,
        settings,
    )
    ticking = asyncio.create_task(history.run(), name="rates")
    try:
        async with channel.listen_for_actions():
            yield tree
    finally:
        ticking.cancel()


def _job_actions(controls: JobControls) -> dict[str, Callable[..., Awaitable[Any]]]:
    def make_action(do: Callable[[str], bool]) -> Callable[[str], Awaitable[bool | None]]:
        async def act(job: str) -> bool | None:
            return do(job) or None

        return act

    return {f"job.{name}": make_action(getattr(controls, name)) for name in _JOB_OPERATIONS}


async def _flush(parts: ManagedParts, boards_max: int) -> int:
    await parts.catalog.load(boards_max=boards_max)
    return await parts.book.reread()


def _refreshing(desk: Refresher) -> Callable[[Board, int], Awaitable[float]]:
    async def refresh(board: Board, column_index: int) -> float:
        return (await desk.refresh_now(board, column_index)).seconds

    return refresh


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
        yield ManagedObject(
            ObjectName.of(DOMAIN, type="Cache"),
            "The curves that ranks are read off, and memcached",
            self._curves(),
            {
                "flush": Operation(
                    "Read every curve again in every process of the node; returns how many processes did",
                    self._flush,
                    (),
                    LONG,
                )
            },
            kind="rankcurve.Cache",
        )
        for name, managed in grouped.items():
            if name.values.get("type") == "Job" and "Rounds" in managed.attributes:
                yield ManagedObject(
                    name, "A background job", {}, self._operations(name.values["name"]), kind="rankcurve.Job"
                )

    def _viewed(self, family: str) -> Callable[[Any], float]:
        # Call `read_view` only when an operator reads the attribute, because the call reads every curve.
        return lambda _: self._metrics.read_view(family)

    def _curves(self) -> dict[str, Attribute]:
        viewed = self._viewed
        return {
            "Curves": Attribute(
                LONG, "Curves that the answering process holds [count]", lambda _: self._parts.book.count
            ),
            "CurvesLive": Attribute(
                DOUBLE, "Live curves in the answering process [count]", viewed("rankcurve_curves_live")
            ),
            "CurveAgeMax": Attribute(
                DOUBLE, "Age of the oldest curve [seconds]", viewed("rankcurve_curve_age_seconds_max")
            ),
            "LiveLagMax": Attribute(
                DOUBLE,
                "Longest time that a live curve is behind the posts [seconds]",
                viewed("rankcurve_live_lag_seconds_max"),
            ),
        }

    def _store(self, grouped: Mapping[ObjectName, ManagedObject]) -> ManagedObject:
        store, dialect = self._parts.store, self._parts.store.dialect.name
        throttle = grouped.get(ObjectName.of(DOMAIN, type="Throttle"))
        refused = {} if throttle is None else dict(throttle.attributes)
        attributes = {
            **{name: attribute for name, attribute in refused.items() if name.startswith("WriteRefused")},
            "Url": Attribute(TEXT, "Address of the store, without passwords", lambda _: masked(self._settings.store)),
            "SizeBytes": Attribute(
                DOUBLE, "Size of the store when it was last measured [bytes]", self._viewed("rankcurve_store_bytes")
            ),
            "SoleWriter": Attribute(
                BOOLEAN, "True if no other process writes to the store", lambda _: store.sole_writer
            ),
            "WritesAtOnce": Attribute(
                LONG, "Write transactions that may run at the same time [count]", lambda _: store.writes_at_once
            ),
        }
        if store.sole_writer:
            free = self._viewed("rankcurve_store_disk_free_bytes")
            attributes["DiskFreeBytes"] = Attribute(
                DOUBLE, "Free space on the disk of the store when it was last measured [bytes]", free
            )
        return ManagedObject(
            ObjectName.of(DOMAIN, type="Store", name=dialect),
            "The store, and the writing of posts to it",
            attributes,
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

        return {name: Operation(text, operation_everywhere(name), (), LONG) for name, text in _JOB_OPERATIONS.items()}

    async def _flush(self) -> int:
        return len(await self._channel.run_everywhere("cache.flush"))

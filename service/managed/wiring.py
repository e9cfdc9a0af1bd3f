"""The managed objects of one process, put together: what stands beside the metrics, and who does what is asked of all.

The rule: what operators do is done in every process of the node, and the objects are the same in each.
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
from jobs.desk import Desk
from storage.catalog import Catalog
from storage.curves import CurveBook
from storage.records import Board
from storage.store import Store

from ..limits import limits_of
from ..metrics.process import Metrics
from .boards import BoardObjects
from .channel import Channel, ChannelLimits
from .groups import DOMAIN, Grouping
from .history import History, HistoryLimits
from .object_names import ObjectName
from .objects import BOOLEAN, DOUBLE, LONG, TEXT, Attribute, Managed, Operation, UnknownObject
from .runtime import java_lang
from .tree import Tree, TreeLimits

_JOB_OPERATIONS = {
    "run": "End the job's rest in every process of the node, so that it works now; how many have the job",
    "pause": "Let the job begin no further round in any process of the node; how many have it",
    "resume": "Let it go on; how many have it",
}


@dataclass(frozen=True, slots=True)
class ManagedParts:
    """What the objects are made of."""

    store: Store
    catalog: Catalog
    book: CurveBook
    desk: Desk
    controls: JobControls
    now_us: Callable[[], int]


@asynccontextmanager
async def managing(settings: Settings, metrics: Metrics, parts: ManagedParts, version: str) -> AsyncIterator[Tree]:
    """The tree, its snapshots being taken and its operations being listened for."""
    history = History(metrics.counted, limits_of(HistoryLimits, settings), monotonic=time.monotonic)
    actions = {**_job_actions(parts.controls), "cache.flush": lambda: _flush(parts, settings.catalog_boards_max)}
    node = metrics.node
    channel = Channel(
        actions,
        limits_of(ChannelLimits, settings),
        folder=None if node is None else node.folder,
        name="" if node is None else node.name,
    )
    fixed = _Fixed(settings, metrics, parts, channel, java_lang(version))
    tree = Tree(
        history,
        Grouping(parts.store.dialect.name),
        BoardObjects(
            parts.catalog,
            parts.book,
            _refreshing(parts.desk),
            now_us=parts.now_us,
            boards_max=settings.managed_boards_max,
        ),
        fixed.objects,
        limits_of(TreeLimits, settings),
    )
    ticking = asyncio.create_task(history.run(), name="rates")
    try:
        async with channel.listening():
            yield tree
    finally:
        ticking.cancel()


def _job_actions(controls: JobControls) -> dict[str, Callable[..., Awaitable[Any]]]:
    def action(do: Callable[[str], bool]) -> Callable[[str], Awaitable[bool | None]]:
        async def act(job: str) -> bool | None:
            return do(job) or None

        return act

    return {f"job.{name}": action(getattr(controls, name)) for name in _JOB_OPERATIONS}


async def _flush(parts: ManagedParts, boards_max: int) -> int:
    await parts.catalog.load(boards_max=boards_max)
    return await parts.book.reread()


def _refreshing(desk: Desk) -> Callable[[Board, int], Awaitable[float]]:
    async def refresh(board: Board, column_index: int) -> float:
        return (await desk.refresh_now(board, column_index)).seconds

    return refresh


class _Fixed:
    """What the metrics don't give: java.lang, facts about the store, operations."""

    def __init__(
        self, settings: Settings, metrics: Metrics, parts: ManagedParts, channel: Channel, java: list[Managed]
    ) -> None:
        self._settings, self._metrics, self._parts = settings, metrics, parts
        self._channel, self._java = channel, java

    def objects(self, grouped: Mapping[ObjectName, Managed]) -> Iterable[Managed]:
        """The objects, beside those that metrics were grouped to."""
        yield from self._java
        yield self._store(grouped)
        yield Managed(
            ObjectName.of(DOMAIN, type="Cache"),
            "The curves that ranks are read off, and memcached",
            self._curves(),
            {
                "flush": Operation(
                    "Read every curve anew in every process of the node; how many did", self._flush, (), LONG
                )
            },
            kind="rankcurve.Cache",
        )
        for name, managed in grouped.items():
            if name.values.get("type") == "Job" and "Rounds" in managed.attributes:
                yield Managed(name, "A background job", {}, self._operations(name.values["name"]), kind="rankcurve.Job")

    def _viewed(self, family: str) -> Callable[[Any], float]:
        return lambda _: self._metrics.viewed(family)  # looks at every curve: only where it is asked for

    def _curves(self) -> dict[str, Attribute]:
        viewed = self._viewed
        return {
            "Curves": Attribute(
                LONG, "Curves that the answering process holds [count]", lambda _: self._parts.book.count
            ),
            "CurvesLive": Attribute(DOUBLE, "Those that count what is posted [count]", viewed("rankcurve_curves_live")),
            "CurveAgeMax": Attribute(
                DOUBLE, "Age of the oldest one [seconds]", viewed("rankcurve_curve_age_seconds_max")
            ),
            "LiveLagMax": Attribute(
                DOUBLE,
                "Age of the oldest moment that a live one is of [seconds]",
                viewed("rankcurve_live_lag_seconds_max"),
            ),
        }

    def _store(self, grouped: Mapping[ObjectName, Managed]) -> Managed:
        store, dialect = self._parts.store, self._parts.store.dialect.name
        throttle = grouped.get(ObjectName.of(DOMAIN, type="Throttle"))
        refused = {} if throttle is None else dict(throttle.attributes)
        attributes = {
            **{name: attribute for name, attribute in refused.items() if name.startswith("WriteRefused")},
            "Url": Attribute(TEXT, "Where it is, passwords left out", lambda _: masked(self._settings.store)),
            "SizeBytes": Attribute(DOUBLE, "Its size at the last look [bytes]", self._viewed("rankcurve_store_bytes")),
            "SoleWriter": Attribute(BOOLEAN, "Whether nobody else writes there", lambda _: store.sole_writer),
            "WritesAtOnce": Attribute(
                LONG, "Transactions that may run at once [count]", lambda _: store.writes_at_once
            ),
        }
        if store.sole_writer:
            free = self._viewed("rankcurve_store_disk_free_bytes")
            attributes["DiskFreeBytes"] = Attribute(DOUBLE, "What its disk had left at the last look [bytes]", free)
        return Managed(
            ObjectName.of(DOMAIN, type="Store", name=dialect),
            "The store, and the writing of posts to it",
            attributes,
            kind="rankcurve.Store",
        )

    def _operations(self, job: str) -> dict[str, Operation]:
        def everywhere(action: str) -> Callable[[], Awaitable[int]]:
            async def act() -> int:
                done = await self._channel.everywhere(f"job.{action}", job)
                if not done:
                    raise UnknownObject(f"no process of this node has the job {job} now")
                return len(done)

            return act

        return {name: Operation(text, everywhere(name), (), LONG) for name, text in _JOB_OPERATIONS.items()}

    async def _flush(self) -> int:
        return len(await self._channel.everywhere("cache.flush"))

"""Builds the managed objects of a node. They show metrics, version, recent figures and alerts, and control its jobs.

An operation runs in every process of the node, and every process shows the same objects.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from config import Settings
from config.masking import masked
from jobs.controls import JobControls
from service.telemetry.metrics.process import Metrics

from .history import MetricHistory, MetricsMoment
from .metric_mapping import map_metrics
from .node_channel import NodeChannel
from .objects import COMPOSITE, DOUBLE, LIST, TEXT, Attribute, ManagedObject, Objects, Operation, name_object
from .verdict import Figures, find_alerts

# For each attribute: its name, its kind, its description with the unit, and the function that reads it.
_Rows = Sequence[tuple[str, str, str, Callable[[MetricsMoment], Any]]]
_NODE: _Rows = (
    ("UptimeSeconds", DOUBLE, "Time since the start of the first process [seconds]",
     lambda now: max(0.0, time.time() - now.read_process("process_start_time_seconds"))),
    ("CpuSeconds", DOUBLE, "Processor time of all processes [seconds]",
     lambda now: now.read_process("process_cpu_seconds_total")),
    ("Memory", COMPOSITE, "Memory of all processes [bytes]",
     lambda now: {each: int(now.read_process(f"process_{each}_memory_bytes")) for each in ("resident", "virtual")}),
)  # fmt: skip
_VERDICT: _Rows = (
    ("Alerts", LIST, "The alerts of docs/alerts.yml whose conditions hold, the most severe first [alerts]",
     lambda now: find_alerts(Figures(now))),
)  # fmt: skip
_SNAPSHOTS = "Snapshots of the last quarter of an hour: pairs of an age in seconds and {}, oldest first"
_RECENT: _Rows = (
    ("Posts", LIST, f"{_SNAPSHOTS.format('all posts')} [posts]", lambda now: now.list_totals("rankcurve_posts")),
    ("Requests", LIST, f"{_SNAPSHOTS.format('all requests')} [requests]",
     lambda now: now.list_totals("rankcurve_requests")),
    ("Failures", LIST, f"{_SNAPSHOTS.format('all requests that ended in 5xx')} [requests]",
     lambda now: now.list_totals("rankcurve_requests", status="5")),
    ("Cpu", LIST, f"{_SNAPSHOTS.format('processor time')} [seconds]",
     lambda now: now.list_process_numbers("process_cpu_seconds_total")),
)  # fmt: skip
_JOB_OPERATIONS = {
    "run": "Run the job now in every process of the node, by ending its rest; returns how many processes have it",
    "pause": "Pause the job: no process of the node begins another round; returns how many processes have it",
    "resume": "Let the paused job continue; returns how many processes have it",
}

ReadObjects = Callable[[], Objects]


@asynccontextmanager
async def manage_objects(
    settings: Settings, metrics: Metrics, controls: JobControls, *, store: str, version: str
) -> AsyncIterator[ReadObjects]:
    """Provide a function that returns the current managed objects. `store` is the kind of store.

    Within the `async with` block, a task takes snapshots of metrics, and the process runs actions that others send.
    """
    history = MetricHistory(metrics, settings, monotonic=time.monotonic)
    actions = {name: getattr(controls, name) for name in _JOB_OPERATIONS}
    channel = NodeChannel(lambda action, job: actions[action](job), settings, metrics.node)
    facts: _Rows = (
        ("Version", TEXT, "Version of the service", lambda _: version),
        ("StoreUrl", TEXT, "Address of the store, without passwords", lambda _: masked(settings.store)),
    )

    def read_objects() -> Objects:
        now = history.read_moment()
        objects = map_metrics(now, store=store)
        for object_type, about, rows in (
            ("Node", "The processes of this node", (*facts, *_NODE)),
            ("Verdict", "Whether the node is well", _VERDICT),
            ("Recent", "Figures of the last quarter of an hour", _RECENT),
        ):
            name = name_object(object_type)
            attributes = objects.setdefault(name.text, ManagedObject(name, about)).attributes
            attributes |= {each: Attribute(kind, text, partial(read, now)) for each, kind, text, read in rows}
        for managed in objects.values():
            if managed.name.properties["type"] == "Job" and "Rounds" in managed.attributes:
                job = managed.name.properties["name"]
                for each, text in _JOB_OPERATIONS.items():
                    managed.operations[each] = Operation(text, partial(channel.run_everywhere, each, job))
        return objects

    ticking = asyncio.create_task(history.run(), name="rates")
    try:
        async with channel.listen_for_actions():
            yield read_objects
    finally:
        ticking.cancel()

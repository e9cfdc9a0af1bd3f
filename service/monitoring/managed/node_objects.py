"""Builds a node's managed objects, which show metrics, version, recent figures and alerts, and control the node's jobs.

An operation has to run in every process of the node, because every process has its own jobs, but an operator reaches
only one of them:

    exec ──> run the action here, and send it to every other process ──> how many processes have run it

So every process listens on a socket in the node's folder, which only the user that runs the node can open. If a process
does not answer in time, the error names it, and all other processes still run the action.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import structlog

from config import Settings
from config.masking import masked
from config.settings import ManagedSettings
from jobs.controls import JobControls
from jobs.request_origin import describe_origin, working_for
from service.telemetry.metrics.node_metrics import NodeMember
from service.telemetry.metrics.process import Metrics

from .history import MetricHistory, MetricsMoment
from .metric_mapping import map_metrics
from .objects import (
    COMPOSITE,
    DOUBLE,
    LIST,
    TEXT,
    Attribute,
    Fault,
    ManagedObject,
    Objects,
    Operation,
    RefusedError,
    name_object,
)
from .verdict import Figures, find_alerts

log = structlog.get_logger(__name__)

Act = Callable[[str, str], bool]  # takes an action and the name of a job; returns whether this process has the job
_SUFFIX = ".sock"
_ALONE = "process"


class _ActionRequest(msgspec.Struct, frozen=True):
    action: str
    job: str
    origin: str


class NodeChannel:
    """Connects a process to the other processes of its node. `node` is None if this is the only process."""

    def __init__(self, act: Act, limits: ManagedSettings, node: NodeMember | None) -> None:
        self._act, self._limits = act, limits
        self._folder = None if node is None else node.folder
        self._name = _ALONE if node is None else node.name

    @asynccontextmanager
    async def listen_for_actions(self) -> AsyncIterator[None]:
        """Listen on the socket within the `async with` block, and run the actions that other processes send."""
        if self._folder is None:
            yield
            return
        path = self._folder / f"{self._name}{_SUFFIX}"
        path.unlink(missing_ok=True)  # an earlier process with the same name may have left its socket
        server = await asyncio.start_unix_server(self._serve, path)
        try:
            yield
        finally:
            server.close()
            path.unlink(missing_ok=True)

    async def run_everywhere(self, action: str, job: str) -> int:
        """Run an action on a job in every process of the node. Return how many processes have the job.

        Raises:
            RefusedError: the action failed in a process, a process did not answer, or no process has the job. All
                other processes have run the action.
        """
        paths = [] if self._folder is None else sorted(self._folder.glob(f"*{_SUFFIX}"))
        others = [path for path in paths if path.stem != self._name]
        asked = _ActionRequest(action, job, describe_origin())
        done = int(self._do(asked))
        results = await asyncio.gather(*(self._ask(path, asked) for path in others), return_exceptions=True)
        failed = {path.stem: each for path, each in zip(others, results, strict=True) if isinstance(each, Exception)}
        if failed:
            text = "; ".join(f"{name}: {str(error) or type(error).__name__}" for name, error in failed.items())
            raise RefusedError(Fault.FAILED, text)
        done += sum(result is True for result in results)
        if not done:
            raise RefusedError(Fault.OBJECT_UNKNOWN, f"no process of this node currently has the job {job}")
        return done

    def _do(self, asked: _ActionRequest) -> bool:
        with working_for(asked.origin):
            done = self._act(asked.action, asked.job)
            if done:
                log.info("managed_action", action=asked.action, job=asked.job)
            return done

    async def _ask(self, path: Path, asked: _ActionRequest) -> bool:
        try:
            async with asyncio.timeout(self._limits.managed_wait_s_max):
                reader, writer = await asyncio.open_unix_connection(path)
                try:
                    writer.write(msgspec.json.encode(asked) + b"\n")
                    return msgspec.json.decode(await reader.readline(), type=bool)
                finally:
                    writer.close()
                    with suppress(OSError):
                        await writer.wait_closed()
        except (FileNotFoundError, ConnectionRefusedError):
            return False  # the process has ended, or was killed and will soon be replaced

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = msgspec.json.decode(await reader.readline(), type=_ActionRequest)
            writer.write(msgspec.json.encode(self._do(asked)) + b"\n")
            await writer.drain()
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            log.warning("managed_request_unreadable", detail=str(error))
        finally:
            writer.close()


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

    Within the `async with` block, a task takes snapshots of metrics, and the process runs the actions that others send.
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

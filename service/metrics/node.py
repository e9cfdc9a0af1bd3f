"""The figures of a node: of all processes that one supervisor runs, whichever of them is asked.

Each process counts in files of the node's folder, which the kernel keeps when the process is killed. The rule: what was
counted stays for as long as the node runs, and what was said of the present goes with the process that said it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import prometheus_client.values
from prometheus_client import ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.multiprocess import mark_process_dead
from prometheus_client.registry import Collector
from prometheus_client.values import MultiProcessValue

from .cells import CellSet, forget_gauges
from .node_values import NodeValues

# In memory where the system has a place for it: a page of a file on a disk that is just being written back makes
# whoever changes it wait for that disk.
_MEMORY = Path("/dev/shm")
_FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # where the library's own values look
_PID_SUFFIX = ".pid"
SUPERVISOR = "supervisor"  # its place's name: the processor time of ended processes is told by the one that had them


def make_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder for a node's figures, gone when it is closed."""
    place = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    return tempfile.TemporaryDirectory(prefix="rankcurve-node-", dir=place, ignore_cleanup_errors=True)


class Node(Collector):
    """A process' place in a node: what it counts is added to the node's, and it can tell the whole."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self._values = NodeValues(folder)

    def join(self) -> CellSet:
        """Count in the node's folder from now on; a process that takes the place of another goes on with its counts."""
        os.environ[_FOLDER_VARIABLE] = str(self.folder)
        prometheus_client.values.ValueClass = MultiProcessValue(lambda: self.name)  # type: ignore[no-untyped-call]
        write_pid(self.folder, self.name)
        return CellSet(self.folder, self.name)

    def collect(self) -> Iterator[Metric]:
        """What all processes counted, and what the living ones say of themselves."""
        yield from self._values.collect()
        yield from _processes(self.folder)


def write_pid(folder: Path, name: str) -> None:
    """Tell who this process is, so that its memory and time are added to the node's."""
    (folder / f"{name}{_PID_SUFFIX}").write_text(str(os.getpid()))


def leave(folder: Path, name: str) -> None:
    """A process has ended: its counts stay, its gauges go."""
    mark_process_dead(name, str(folder))  # type: ignore[no-untyped-call]
    forget_gauges(folder, name)
    (folder / f"{name}{_PID_SUFFIX}").unlink(missing_ok=True)


def _processes(folder: Path) -> list[Metric]:
    """The library's figures of a process, added up; the start is the first one's."""
    sums: dict[str, Metric] = {}
    ended_s = 0.0
    for path in sorted(folder.glob(f"*{_PID_SUFFIX}")):
        pid = path.read_text() if path.exists() else ""
        # Ended a moment ago, or just beginning: then it has none.
        found = ProcessCollector(pid=lambda pid=pid: pid, registry=None).collect() if pid else ()  # type: ignore[misc]
        ended_s += _ended_cpu_s(pid) if pid and path.stem == SUPERVISOR else 0
        for metric in found:
            known = sums.setdefault(metric.name, metric)
            if known is not metric:
                [ours], [theirs] = known.samples, metric.samples
                both = min if metric.name == "process_start_time_seconds" else sum
                known.samples = [ours._replace(value=both((ours.value, theirs.value)))]
    if cpu := sums.get("process_cpu_seconds"):
        cpu.samples = [cpu.samples[0]._replace(value=cpu.samples[0].value + ended_s)]
    return list(sums.values())


def _ended_cpu_s(pid: str) -> float:
    """Processor time of the processes that this one started and that have ended: without it a sum would fall."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(after_name[13]) + int(after_name[14])) / os.sysconf("SC_CLK_TCK")

"""The processes of a node, which one supervisor runs. Each process can show the metrics of the whole node.

    process starts ──> counts in its own file in the node's folder ──process ends──> its counts stay, its gauges do not

The kernel keeps the file when a process is killed, and the counts stay for as long as the node runs. Gauges describe
the present. So a process's gauges are included only while the node's folder has a file with the process id.
"""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from prometheus_client import ProcessCollector
from prometheus_client.core import Metric

# The folder in memory, which is used if the system has it. With files on a disk, a process would have to wait whenever
# it changes a page that the system is writing to the disk at that moment.
_MEMORY = Path("/dev/shm")
_PID_SUFFIX = ".pid"
# The supervisor's name in the folder. From the supervisor, `_ended_cpu_s` learns the processor time of ended processes.
SUPERVISOR = "supervisor"


class NodeMember(NamedTuple):
    """A process of a node. If it ends, the process that replaces it has the same name and continues its counts."""

    folder: Path
    name: str

    @property
    def numbers_path(self) -> Path:
        return self.folder / f"{self.name}.db"


def make_folder() -> tempfile.TemporaryDirectory[str]:
    """Make a folder for a node's metrics. The folder is removed when the returned object is cleaned up."""
    place = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    return tempfile.TemporaryDirectory(prefix="rankcurve-node-", dir=place, ignore_cleanup_errors=True)


def write_pid(folder: Path, name: str) -> None:
    """Record the id of this process, so that its memory and processor time are included in the sums over the node."""
    (folder / f"{name}{_PID_SUFFIX}").write_text(str(os.getpid()))


def leave_node(folder: Path, name: str) -> None:
    """Record that a process has ended: from now on, the node shows its counts, but not its gauges."""
    (folder / f"{name}{_PID_SUFFIX}").unlink(missing_ok=True)


def collect_processes(folder: Path | None) -> Iterable[Metric]:
    """Return metrics such as the memory of this process or, if `folder` is given, of all processes of that node.

    Numbers of several processes are added up, except the start time: it is the earliest.
    """
    if folder is None:
        return ProcessCollector(registry=None).collect()
    sums: dict[str, Metric] = {}
    ended_s = 0.0
    for path in sorted(folder.glob(f"*{_PID_SUFFIX}")):
        pid = path.read_text() if path.exists() else ""
        # The id is missing if the process has just ended or is just starting.
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
    """Return the processor time of a process's ended children in seconds, so that the node's sum counts them, too."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(after_name[13]) + int(after_name[14])) / os.sysconf("SC_CLK_TCK")

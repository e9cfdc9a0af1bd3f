"""The processes of a node, which one supervisor runs. Each process can show the metrics of the whole node.

    process starts ──> counts in its own file in the node's folder ──process ends──> its counts stay, its gauges do not

The kernel keeps the file when a process is killed, so no count is lost while the node runs. Gauges describe the
present, so those of a process are included only while the node's folder has a file with its process id.

The collector in prometheus_client computes the same sums, but at every scrape it parses every key in every file, while
requests wait. This module parses each series once, when it first appears. At every later scrape, it only reads numbers.
"""

import mmap
import os
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from math import inf
from pathlib import Path
from typing import NamedTuple

from prometheus_client import ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from .metric_families import Family
from .numbers import HEAD_BYTES, read_series

# A folder in memory, which is used if the system has it. With files on a disk, a process would have to wait whenever it
# changes a page that the system is writing to the disk at that moment.
_MEMORY = Path("/dev/shm")
_PID_SUFFIX = ".pid"
# The supervisor's name in the folder. From the supervisor, `_ended_cpu_s` learns the processor time of ended processes.
SUPERVISOR = "supervisor"


class NodeMember(NamedTuple):
    """A process of a node. If it ends, its replacement has the same name and continues its counts."""

    folder: Path
    name: str

    @property
    def numbers_path(self) -> Path:
        return self.folder / f"{self.name}.db"


def make_folder() -> tempfile.TemporaryDirectory[str]:
    place = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    return tempfile.TemporaryDirectory(prefix="rankcurve-node-", dir=place, ignore_cleanup_errors=True)


def write_pid(folder: Path, name: str) -> None:
    """Record this process's id, so that its memory and processor time are included in the sums over the node."""
    (folder / f"{name}{_PID_SUFFIX}").write_text(str(os.getpid()))


def leave_node(folder: Path, name: str) -> None:
    """Record that a process has ended. From now on, the node shows its counts, but not its gauges."""
    (folder / f"{name}{_PID_SUFFIX}").unlink(missing_ok=True)


def collect_processes(folder: Path | None) -> Iterable[Metric]:
    """Collect metrics such as the memory of this process or, if `folder` is given, of all processes of that node.

    Numbers of several processes are added up, except for the start time, which is the earliest.
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
    """Read the processor time, in seconds, of a process's ended children, so that the node's sum includes it."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(after_name[13]) + int(after_name[14])) / os.sysconf("SC_CLK_TCK")


class Source:
    """The numbers of one process, whose gauges are included only while it is `alive`."""

    def __init__(self, content: mmap.mmap) -> None:
        self.alive = True
        self.content = content
        self.values = memoryview(content).cast("d")
        self.read_bytes = HEAD_BYTES  # where the first series in `content` begins that is not yet in the pairs below
        # Each pair is for one number to add up: its index in `values`, and its index in the totals. A gauge has two
        # numbers, its value and then its time. The pair of a gauge has the indexes of the value.
        self.sums: list[tuple[int, int]] = []
        self.gauges: list[tuple[int, int]] = []
        self.latest: list[tuple[int, int]] = []


class NodeFiles:
    """The number files in a node's folder, one for each process that runs or has ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[Path, Source] = {}

    def list_sources(self) -> Sequence[Source]:
        for path in sorted(self._folder.glob("*.db")):
            if path not in self._known:
                with suppress(OSError, ValueError), path.open("rb") as file:  # the file is new and empty, or gone
                    self._known[path] = Source(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        for path, source in self._known.items():
            source.alive = path.with_suffix(".pid").exists()
        return list(self._known.values())


class Totals:
    """Adds up the numbers from all sources. A series' index in the totals never changes."""

    def __init__(self, families: Sequence[Family], list_sources: Callable[[], Sequence[Source]]) -> None:
        self.families: Mapping[str, Family] = {family.name: family for family in families}
        # Metric -> label values -> index in the totals of the first number of the series with these label values.
        self.series: dict[str, dict[tuple[str, ...], int]] = {name: {} for name in self.families}
        self._samples: dict[int, list[tuple[str, dict[str, str]]]] = {}
        self._list_sources = list_sources
        self._size = 0

    def add_up(self) -> "array[float]":
        """Return the totals of all series in one array. A gauge that no living process reports has value and time 0."""
        sources = self._list_sources()
        for source in sources:
            for (name, *labels), index, end in read_series(source.content, source.read_bytes):
                self._note_series(source, self.families[name], tuple(labels), index)
                source.read_bytes = end
        totals = array("d", bytes(8 * self._size))
        for source in sources:
            values = source.values
            for index, place in source.sums:
                totals[place] += values[index]
            if source.alive:
                for index, place in source.gauges:
                    totals[place] += values[index]
                    totals[place + 1] = max(totals[place + 1], values[index + 1])
                for index, place in source.latest:
                    if values[index + 1] > totals[place + 1]:
                        totals[place], totals[place + 1] = values[index], values[index + 1]
        return totals

    def _note_series(self, source: Source, family: Family, labels: tuple[str, ...], index: int) -> None:
        place = self.series[family.name].setdefault(labels, self._size)
        if place == self._size:
            self._size += family.numbers_count
            self._samples[place] = _name_samples(family, labels)
        if family.is_gauge:
            (source.latest if family.kind == "latest" else source.gauges).append((index, place))
        else:
            source.sums += [(index + step, place + step) for step in range(family.numbers_count)]

    def collect(self) -> Iterator[Metric]:
        totals = self.add_up()
        for family in self.families.values():
            metric = Metric(family.name, family.documentation, "gauge" if family.is_gauge else family.kind)
            for place in self.series[family.name].values():
                shown = zip(self._samples[place], _values(family, totals[place : place + family.numbers_count]))  # noqa: B905
                metric.samples += [Sample(name, labels, value) for (name, labels), value in shown]
            if metric.samples or family.kind != "latest":
                yield metric


def _name_samples(family: Family, values: tuple[str, ...]) -> list[tuple[str, dict[str, str]]]:
    labels = dict(zip(family.labels, values, strict=True))
    if family.kind == "counter" or family.is_gauge:
        return [(family.name + ("" if family.is_gauge else "_total"), labels)]
    bounds = [floatToGoString(bound) for bound in (*family.bounds, inf)] if family.kind == "histogram" else []  # type: ignore[no-untyped-call]
    buckets = [(f"{family.name}_bucket", {**labels, "le": bound}) for bound in bounds]
    return [*buckets, (f"{family.name}_count", labels), (f"{family.name}_sum", labels)]


def _values(family: Family, numbers: Sequence[float]) -> Sequence[float]:
    """Compute the value of each sample of a series, or no values for a gauge that no living process reports.

    For a histogram, the value for each bound is the number of all observations up to the bound.
    """
    if family.kind == "counter":
        return numbers
    if family.is_gauge:
        return numbers[:1] if numbers[1] else ()
    below = list(accumulate(numbers[1:]))
    return [*(below if family.kind == "histogram" else ()), below[-1], numbers[0]]

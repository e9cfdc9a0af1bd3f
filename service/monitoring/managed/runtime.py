"""Objects that monitoring tools expect in every Java process: `java.lang:type=Runtime`, `Memory`, `OperatingSystem`.

Names and units are those of Java (milliseconds, nanoseconds, bytes). The figures cover all processes of the node.
"""

from __future__ import annotations

import os
import platform
import socket
import sys
import time

from .history import MetricsMoment
from .object_names import ObjectName
from .objects import COMPOSITE, DOUBLE, LONG, TEXT, ManagedObject, Rows, attributes_of


def make_java_objects(version: str) -> list[ManagedObject]:
    """Return the three objects; `version` is that of the service."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    runtime: Rows = (
        ("Name", TEXT, "The answering process and its host, as PID@HOST",
         lambda _: f"{os.getpid()}@{socket.gethostname()}"),
        ("Pid", LONG, "Process id of the answering process", lambda _: os.getpid()),
        ("StartTime", LONG, "Start of the first process, as time since 1970 [milliseconds]", _started_ms),
        ("Uptime", LONG, "Time since the start [milliseconds]",
         lambda now: max(0, round(time.time() * 1000) - _started_ms(now))),
        ("VmName", TEXT, "Interpreter", lambda _: platform.python_implementation()),
        ("VmVendor", TEXT, "Maker of the interpreter", lambda _: "Python Software Foundation"),
        ("VmVersion", TEXT, "Version of the interpreter", lambda _: platform.python_version()),
        ("SpecName", TEXT, "Name of the service", lambda _: "rankcurve"),
        ("SpecVersion", TEXT, "Version of the service", lambda _: version),
    )  # fmt: skip
    memory: Rows = (
        ("HeapMemoryUsage", COMPOSITE, "Resident memory of all processes [bytes]",
         lambda now: _usage(now, "resident", pages)),
        ("NonHeapMemoryUsage", COMPOSITE, "Virtual memory of all processes [bytes]",
         lambda now: _usage(now, "virtual", -1)),
        ("ObjectPendingFinalizationCount", LONG, "Always 0", lambda _: 0),
    )  # fmt: skip
    system: Rows = (
        ("Name", TEXT, "Operating system", lambda _: platform.system()),
        ("Version", TEXT, "Release of the operating system", lambda _: platform.release()),
        ("Arch", TEXT, "Type of the machine", lambda _: platform.machine()),
        ("AvailableProcessors", LONG, "Processors [count]", lambda _: os.cpu_count()),
        ("SystemLoadAverage", DOUBLE, "Load average of the last minute", lambda _: os.getloadavg()[0]),
        ("ProcessCpuTime", LONG, "Processor time of all processes [nanoseconds]",
         lambda now: round(now.value("process_cpu_seconds_total") * 1e9)),
        ("OpenFileDescriptorCount", LONG, "Open files of all processes [count]",
         lambda now: int(now.value("process_open_fds"))),
        ("MaxFileDescriptorCount", LONG, "Files that the processes may open [count]",
         lambda now: int(now.value("process_max_fds"))),
        ("TotalPhysicalMemorySize", LONG, "Memory of the machine [bytes]", lambda _: pages),
    )  # fmt: skip
    return [
        ManagedObject(ObjectName.of("java.lang", type=kind), description, attributes_of(rows), kind=f"rankcurve.{kind}")
        for kind, description, rows in (
            ("Runtime", "The runtime of the node", runtime),
            ("Memory", "Memory of the node's processes", memory),
            ("OperatingSystem", f"The operating system of the node: {sys.platform}", system),
        )
    ]


def _started_ms(now: MetricsMoment) -> int:
    return round(now.value("process_start_time_seconds") * 1000)


def _usage(now: MetricsMoment, what: str, most: int) -> dict[str, int]:
    used = int(now.value(f"process_{what}_memory_bytes"))
    return {"init": 0, "used": used, "committed": used, "max": most}

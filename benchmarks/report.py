"""Prints the machine, the figures and whether the bars are met, in the same form for all benchmarks.

A figure is never printed without the machine, the size and the baseline with which it was measured.
"""

import contextlib
import importlib.metadata
import json
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from benchmarks.options import Options, parse_options, working_folder

_SYNCS = 100
_LIBRARIES = ("aiohttp", "uvloop", "aiosqlite", "msgspec", "redis", "hiredis")


@dataclass(frozen=True, slots=True)
class Bar:
    """A promise of the project: `measured` must be at least `target`, or at most `target` if `at_most` is true.

    If `target` is None, the figure is only reported.
    """

    name: str
    measured: float
    target: float | None
    unit: str = ""
    at_most: bool = False

    @property
    def met(self) -> bool:
        if self.target is None:
            return True
        return self.measured <= self.target if self.at_most else self.measured >= self.target

    def line(self) -> str:
        if self.target is None:
            return f"reported    {self.name}: {plain(self.measured)}{self.unit}"
        sign = "<=" if self.at_most else ">="
        verdict = "met       " if self.met else "FELL SHORT"
        return (
            f"{verdict}  {self.name}: {plain(self.measured)}{self.unit} (bar: {sign} {plain(self.target)}{self.unit})"
        )


def plain(number: float) -> str:
    """Return a figure as text, with about three digits."""
    if number == int(number) or abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.1f}" if abs(number) >= 100 else f"{number:.3g}"


def print_heading(title: str, folder: Path) -> None:
    print(f"\n== {title}")
    for line in machine_facts(folder):
        print(f"   {line}")


def machine_facts(folder: Path) -> list[str]:
    """Return lines about the processor, memory, disk, versions and load average.

    The line about the disk names the file system, and the time of one durable append of 4 KiB in `folder`.
    """
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load_1m, _, _ = os.getloadavg()
    libraries = []
    for name in _LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            libraries.append(f"{name} {importlib.metadata.version(name)}")
    cores = len(os.sched_getaffinity(0))
    return [
        f"{_processor()}, {cores} cores, {memory_gib:.0f} GiB, Linux {platform.release()}, load {load_1m:.2f}",
        f"{_file_system(folder)}, durable 4 KiB append {_sync_ms(folder):.2f} ms (median of {_SYNCS})",
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, " + ", ".join(libraries),
    ]


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(folder: Path) -> str:
    found = subprocess.run(["df", "--output=fstype", str(folder)], capture_output=True, text=True, check=False)
    kind = found.stdout.split()[-1] if found.stdout.split() else "unknown file system"
    return f"{kind} (in memory: figures of durable writes mean nothing)" if kind in ("tmpfs", "ramfs") else kind


def _sync_ms(folder: Path) -> float:
    path = folder / "sync-probe"
    took_s = []
    try:
        with path.open("wb", buffering=0) as file:
            for _ in range(_SYNCS):
                begun = time.perf_counter()
                file.write(b"\0" * 4096)
                os.fdatasync(file.fileno())
                took_s.append(time.perf_counter() - begun)
    finally:
        path.unlink(missing_ok=True)
    return 1000 * statistics.median(took_s)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str | float]]) -> None:
    """Print rows under their column names, with text aligned left and numbers right."""
    cells = [[cell if isinstance(cell, str) else plain(cell) for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(columns), *cells]) for i in range(len(columns))]
    print()
    for line in [list(columns), *cells]:
        print(
            "   "
            + line[0].ljust(widths[0])
            + "".join("  " + c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))
        )


def run_program(
    measure: Callable[[Options, Path], Sequence[Bar]],
    doc: str | None,
    title: str,
    *,
    rows: int = 1_000_000,
    seconds: float = 5,
    rounds: int = 5,
) -> NoReturn:
    """Run a benchmark as a program: parse its options, measure in a new folder, and print heading, figures and bars.

    `title` may name options in braces. `rows`, `seconds` and `rounds` are the benchmark's own defaults. The exit status
    is 0 if all bars are met, else 1.
    """
    options = parse_options(doc, rows=rows, seconds=seconds, rounds=rounds)
    with working_folder(options) as folder:
        print_heading(title.format_map(asdict(options)), folder)
        bars = measure(options, folder)
        if options.figures is not None:
            options.figures.write_text(json.dumps({bar.name: bar.measured for bar in bars}), encoding="utf-8")
    print()
    for bar in bars:
        print(f"   {bar.line()}", flush=True)
    sys.exit(0 if all(bar.met for bar in bars) else 1)

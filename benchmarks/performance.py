"""Measure the speed of the service, and write docs/performance.md from the figures.

python -m benchmarks.performance [--only PROGRAM ...] [--boards FOLDER] [--quick]

Every figure stands beside the figure of the day when its bar was first met, and beside the bar. docs/performance.json
keeps the figures with their date, commit and machine, so `--only` renews single ones. `--quick` measures small boards
for a short time, to show that everything runs; it writes nothing.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import report
from benchmarks.servers import PROJECT

DOCS = PROJECT / "docs"
_TIMEOUT_S = 3600
_QUICK = ("--rows", "20000", "--seconds", "1", "--rounds", "2")
_BAR_PX, _LINE_PX, _TEXT_PX = 420, 24, 420  # of the chart
Figures = dict[str, dict[str, Any]]  # by program: date, commit, machine, seconds, and the measured bars by name


class Row(NamedTuple):
    """A line of the page."""

    program: str
    bar: str  # the name of the bar that the program measures
    goal: float
    then: float | None = None  # what was measured when the bar was first met
    unit: str = ""
    at_most: bool = False


ROWS = (
    Row("positions", "positions / hello-world, 32 connections", 0.6, 0.567),
    Row("positions", "around / hello-world, 32 connections", 0.3),
    Row("positions", "top 10 / hello-world, 32 connections", 0.75),
    Row("positions", "top 10 unchanged / hello-world, 32 connections", 0.8),
    Row("against_redis", "around, service / Redis of scores alone", 2, 1.53),
    Row("against_redis", "top 10, service / Redis of scores alone", 4, 3.2),
    Row("against_redis", "single posts, service / Redis of scores alone", 1.2, 0.94),
    Row("against_redis", "single posts, p99 of the service / of Redis of scores alone", 2, at_most=True),
    Row("single_posts", "single posts / hello-world, 64 clients", 0.25, 0.212),
    Row("batch_posts", "batches of 1,000 / bare sqlite3 loop", 0.8, 0.79),
    Row("batch_posts", "with post ids / bare sqlite3 loop without", 0.65, 0.53),
    Row("batch_posts_postgres", "batches of 1,000 / bare asyncpg, 4 connections", 0.65, 0.46),
    Row("refresh_343k", "one column, median of the slowest", 25, 27, " ms", at_most=True),
    Row("busy_season", "posts, p99", 30, unit=" ms", at_most=True),
    Row("busy_season", "positions, p99", 10, unit=" ms", at_most=True),
    Row("busy_season", "around, p99", 10, unit=" ms", at_most=True),
    Row("busy_season", "top page, p99", 10, unit=" ms", at_most=True),
    Row("queued_latency", "quiet: accepted to visible, p99", 0.8, unit=" s", at_most=True),
    Row("queued_latency", "one core busy: most posts that waited", 50_000, at_most=True),
    Row("exact_unless_busy", "SQLite: exact at half of the saturating rate", 99, unit=" %"),
    Row("exact_unless_busy", "SQLite: rate at saturation / rate of rank=estimate", 0.9),
    Row("exact_unless_busy", "SQLite: p99 at saturation / p99 of rank=estimate", 1.2, at_most=True),
    Row("exact_unless_busy", "PostgreSQL: exact at half of the saturating rate", 99, unit=" %"),
    Row("exact_unless_busy", "PostgreSQL: rate at saturation / rate of rank=estimate", 0.9),
    Row("exact_unless_busy", "PostgreSQL: p99 at saturation / p99 of rank=estimate", 1.2, at_most=True),
    Row("start_cpu", "SQLite, start to ready", 0.35, 0.9, " s", at_most=True),
    Row("start_cpu", "PostgreSQL, start to ready", 0.35, unit=" s", at_most=True),
)
_INTRODUCTION = (
    "# How fast it is",
    "",
    "`make bench` wrote this page and its chart. Each ratio is measured in one run with its baseline: a route of",
    "aiohttp that says hello, a loop over the bare driver, or Redis behind the same HTTP shell. `benchmarks/README.md`",
    "tells what each program does. A `+` after a commit says that the tree had changes.",
    "",
    "![Each figure as a share of its goal](performance.svg)",
    "",
)
PROGRAMS = tuple(dict.fromkeys(row.program for row in ROWS))


def measure_program(program: str, boards: Path, *, quick: bool) -> dict[str, Any]:
    """Run a benchmark, and return its figures. Raises RuntimeError if it fails."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rankcurve-figures-") as folder:
        file = Path(folder) / "figures.json"
        command = [sys.executable, "-m", f"benchmarks.{program}", "--boards", str(boards), "--figures", str(file)]
        subprocess.run([*command, *(_QUICK if quick else ())], check=False, timeout=_TIMEOUT_S)
        if not file.exists():
            raise RuntimeError(f"the benchmark {program} failed")
        bars = json.loads(file.read_text(encoding="utf-8"))
        machine = report.machine_facts(Path(folder))
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": _git("rev-parse", "--short=8", "HEAD") + ("+" if _changed() else ""),
        "machine": machine,
        "seconds": round(time.monotonic() - begun),
        "bars": bars,
    }


def _changed() -> bool:
    """Return whether the tree has changes, apart from those that this command makes."""
    return bool(_git("status", "--porcelain", "--", ".", ":!docs/performance.*"))


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True, text=True, check=True).stdout.strip()


def render_page(figures: Figures) -> str:
    """Return the text of docs/performance.md."""
    lines = [
        *_INTRODUCTION,
        "| program | figure | now | first met | goal | met |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row, found in _measured(figures):
        goal = f"{'<=' if row.at_most else '>='} {report.plain(row.goal)}{row.unit}"
        then = "–" if row.then is None else f"{report.plain(row.then)}{row.unit}"
        met = "yes" if _share(row, found) >= 1 else "**no**"
        lines.append(f"| `{row.program}` | {row.bar} | {report.plain(found)}{row.unit} | {then} | {goal} | {met} |")
    lines += ["", "| program | date | commit | minutes |", "| --- | --- | --- | --- |"]
    runs = {program: figures[program] for program in PROGRAMS if program in figures}
    for program, run in runs.items():
        lines.append(f"| `{program}` | {run['date']} | {run['commit']} | {run['seconds'] / 60:.1f} |")
    lines += ["", "The machine, with its load at the end of each run:", ""]
    lines += [f"- `{program}`: {'; '.join(run['machine'])}" for program, run in runs.items()]
    return "\n".join(lines) + "\n"


def render_chart(figures: Figures) -> str:
    """Return an SVG with a bar for each figure. A bar that reaches the line meets its goal."""
    found = list(_measured(figures))
    height, line_at = _LINE_PX * (len(found) + 1), _TEXT_PX + _BAR_PX // 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_TEXT_PX + _BAR_PX}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="100%" height="100%" fill="#fff"/><text x="{line_at}" y="14" text-anchor="middle">goal</text>',
    ]
    for number, (row, measured) in enumerate(found, start=1):
        share, top = min(2.0, _share(row, measured)), number * _LINE_PX
        colour, width = "#2a7f62" if share >= 1 else "#b5651d", round(share * _BAR_PX / 2)
        parts.append(
            f'<text x="{_TEXT_PX - 8}" y="{top + 14}" text-anchor="end">{escape(row.bar)}</text>'
            f'<rect x="{_TEXT_PX}" y="{top + 3}" width="{width}" height="{_LINE_PX - 8}" fill="{colour}"/>'
        )
    parts.append(f'<path d="M{line_at} 18V{height}" stroke="#333" stroke-dasharray="3"/></svg>')
    return "\n".join(parts) + "\n"


def _measured(figures: Figures) -> Iterator[tuple[Row, float]]:
    for row in ROWS:
        found = figures.get(row.program, {}).get("bars", {}).get(row.bar)
        if found is not None:
            yield row, found


def _share(row: Row, measured: float) -> float:
    """Return how much of its goal a figure reaches; 1 or more meets the goal."""
    return row.goal / max(measured, 1e-9) if row.at_most else measured / row.goal


def read_figures() -> Figures:
    path = DOCS / "performance.json"
    found: Figures = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def write_page(figures: Figures) -> None:
    (DOCS / "performance.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    (DOCS / "performance.md").write_text(render_page(figures), encoding="utf-8")
    (DOCS / "performance.svg").write_text(render_chart(figures), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.performance", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--only", nargs="+", action="extend", choices=PROGRAMS, metavar="PROGRAM")
    parser.add_argument("--boards", type=Path, help="keep filled boards in this folder, and use those already there")
    parser.add_argument("--quick", action="store_true", help="small boards and short rounds; write nothing")
    given = parser.parse_args()
    figures = read_figures()
    with tempfile.TemporaryDirectory(prefix="rankcurve-boards-") as own:
        for program in given.only or PROGRAMS:
            figures[program] = measure_program(program, given.boards or Path(own), quick=given.quick)
            if not given.quick:
                write_page(figures)
    print(render_page(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())

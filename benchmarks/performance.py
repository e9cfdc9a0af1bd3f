"""Measure the speed of the service, and write docs/performance.md from the figures.

python -m benchmarks.performance [--only PROGRAM ...] [--boards FOLDER] [--quick]

Every figure comes with its rival or its floor, and with what was measured first. docs/performance.json keeps the
figures with their date, commit and machine, so `--only` renews single ones. `--quick` measures small boards for a short
time, to show that everything runs; it writes nothing.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import report
from benchmarks.servers import PROJECT

DOCS = PROJECT / "docs"
_TIMEOUT_S = 3600
_QUICK = ("--rows", "20000", "--seconds", "1", "--rounds", "2")
_BAR_PX, _LINE_PX, _TEXT_PX, _SHOWN_MAX = 420, 30, 360, 7.0  # of the chart; a bar ends at _SHOWN_MAX
Figures = dict[str, dict[str, Any]]  # by program: date, commit, machine, seconds, and the measured bars by name


class Row(NamedTuple):
    """One row of the page."""

    program: str
    bar: str  # the name of the bar that the program measures
    what: str  # the line's text
    beside: str = ""  # the rival or the floor, whose rate is 1
    then: float | None = None  # the first figure that was kept
    unit: str = ""


class Section(NamedTuple):
    title: str
    text: str
    rows: tuple[Row, ...]


_REDIS, _SCORES, _HELLO = "Redis", "Redis, scores alone", "hello-world route"
_SQLITE, _POSTGRES, _ESTIMATE = "bare sqlite3 loop", "bare asyncpg loop", "`rank=estimate`"
_SCRIPTED = "around by script, service / Redis of scores alone"
_OF_ASYNCPG = "batches of 1,000 / bare asyncpg, 4 connections"
_AT_MOST_BUSY, _EXACT = "rate at saturation / rate of rank=estimate", "exact at half of the saturating rate"
_P99_OF_POSTS = "single posts, p99 of the service / of Redis of scores alone"
SECTIONS = (
    Section(
        "Beside Redis",
        "The service's requests a second, divided by those of a Redis sorted set with 1,000,000 members behind the "
        "same HTTP layer. Both write durably before they answer. *Scores alone* is a set that, unlike the service, "
        "does not store when an entry last changed. Redis has no post ids, brackets or journal.",
        (
            Row("against_redis", "positions, service / Redis", "positions", _REDIS),
            Row("against_redis", "around, service / Redis", "rows around a player", _REDIS),
            Row("against_redis", "around, service / Redis of scores alone", "rows around a player", _SCORES, 1.53),
            Row("against_redis", _SCRIPTED, "rows around a player", f"{_SCORES}, a Lua script"),
            Row("against_redis", "top 10, service / Redis", "top 10", _REDIS),
            Row("against_redis", "top 10, service / Redis of scores alone", "top 10", _SCORES, 3.2),
            Row("against_redis", "single posts, service / Redis", "single posts", _REDIS),
            Row("against_redis", "single posts, service / Redis of scores alone", "single posts", _SCORES, 0.94),
            Row("against_redis", "batch posts, service / Redis", "batches of 1,000 posts", _REDIS),
        ),
    ),
    Section(
        "Beside a floor",
        "The service's rate, divided by the rate of the least code that could do a comparable job on the same machine: "
        "an aiohttp route that says hello, a loop over the bare database driver without a journal, or a rank that need "
        "not be exact.",
        (
            Row("positions", "positions / hello-world, 32 connections", "positions", _HELLO, 0.567),
            Row("positions", "around / hello-world, 32 connections", "rows around a player", _HELLO),
            Row("positions", "top 10 / hello-world, 32 connections", "top 10", _HELLO),
            Row("positions", "top 10 unchanged / hello-world, 32 connections", "top 10, unchanged (`304`)", _HELLO),
            Row("single_posts", "single posts / hello-world, 64 clients", "single posts, 64 clients", _HELLO, 0.212),
            Row("batch_posts", "batches of 1,000 / bare sqlite3 loop", "batches of 1,000", _SQLITE, 0.79),
            Row("batch_posts", "with post ids / bare sqlite3 loop without", "batches with post ids", _SQLITE, 0.53),
            Row("batch_posts_postgres", _OF_ASYNCPG, "batches of 1,000, 4 connections", _POSTGRES, 0.46),
            Row("exact_unless_busy", f"SQLite: {_AT_MOST_BUSY}", "positions at saturation, SQLite", _ESTIMATE),
            Row("exact_unless_busy", f"PostgreSQL: {_AT_MOST_BUSY}", "positions at saturation, PostgreSQL", _ESTIMATE),
        ),
    ),
    Section(
        "Times, memory and exactness",
        "A busy season is a game with 2,500 posts and 185 reads a second on SQLite. p99 is the time within which "
        "99 % of the requests finish.",
        (
            Row("busy_season", "posts, p99", "busy season: posts, p99", unit=" ms"),
            Row("busy_season", "positions, p99", "busy season: positions, p99", unit=" ms"),
            Row("busy_season", "around, p99", "busy season: rows around a player, p99", unit=" ms"),
            Row("busy_season", "top page, p99", "busy season: top page, p99", unit=" ms"),
            Row("against_redis", _P99_OF_POSTS, "single posts: p99, times that of Redis, scores alone"),
            Row("queued_latency", "quiet: accepted to visible, p99", "queued posts: until visible, p99", unit=" s"),
            Row(
                "queued_latency", "one core busy: most posts that waited", "queued posts, a core busy: most that waited"
            ),
            Row("refresh_343k", "one column, median of the slowest", "refresh of 343,000 rows", then=27, unit=" ms"),
            Row("exact_unless_busy", f"SQLite: {_EXACT}", "exact at half of the highest rate, SQLite", unit=" %"),
            Row(
                "exact_unless_busy", f"PostgreSQL: {_EXACT}", "exact at half of the highest rate, PostgreSQL", unit=" %"
            ),
            Row("start_cpu", "SQLite, start to ready", "processor time of a start, SQLite", then=0.9, unit=" s"),
            Row("start_cpu", "PostgreSQL, start to ready", "processor time of a start, PostgreSQL", unit=" s"),
            Row("against_redis", "resident memory, service", "memory with 1,000,000 rows, service", unit=" MiB"),
            Row("against_redis", "resident memory, redis-server", "memory with 1,000,000 rows, Redis", unit=" MiB"),
        ),
    ),
)
ROWS = tuple(row for section in SECTIONS for row in section.rows)
_INTRODUCTION = (
    "# How fast it is",
    "",
    "`make bench` generates this page and its chart. Because the speed of a machine varies over the day, each program",
    "measures the service and what it is compared with in turns, within one run. `benchmarks/README.md` describes",
    "the programs. *Then* is the first recorded figure.",
    "",
    "![Rates beside those of rivals and floors, then and now](performance.svg)",
)
PROGRAMS = tuple(dict.fromkeys(row.program for row in ROWS))


def measure_program(program: str, boards: Path, *, quick: bool) -> dict[str, Any]:
    """Run a benchmark as a program, and return its figures. Raises RuntimeError if it fails."""
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
    """Return whether the tree has uncommitted changes other than those that this command makes."""
    return bool(_git("status", "--porcelain", "--", ".", ":!docs/performance.*"))


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True, text=True, check=True).stdout.strip()


def render_page(figures: Figures) -> str:
    """Return the text of docs/performance.md."""
    lines = list(_INTRODUCTION)
    for section in SECTIONS:
        rivals = any(row.beside for row in section.rows)
        lines += ["", f"## {section.title}", "", *textwrap.wrap(section.text, 120), ""]
        lines += ["| | beside | then | now | program |" if rivals else "| | then | now | program |"]
        lines += ["| --- | --- | --- | --- | --- |" if rivals else "| --- | --- | --- | --- |"]
        for row, found in _measured(figures, section.rows):
            then = "–" if row.then is None else f"{report.plain(row.then)}{row.unit}"
            cells = [row.what, *([row.beside] if rivals else []), then, f"{report.plain(found)}{row.unit}"]
            lines.append(f"| {' | '.join(cells)} | `{row.program}` |")
    lines += ["", "## When and where", "", "A `+` after a commit means uncommitted changes in the working tree.", ""]
    lines += ["| program | date | commit | minutes | load after it |", "| --- | --- | --- | --- | --- |"]
    machines: dict[str, None] = {}  # in their order
    for program in (program for program in PROGRAMS if program in figures):
        run = figures[program]
        processor, load = run["machine"][0].rsplit(", load ", 1)
        disk = run["machine"][1].split(",")[0]
        machines["; ".join((processor, disk, *run["machine"][2:]))] = None
        lines.append(f"| `{program}` | {run['date']} | {run['commit']} | {run['seconds'] / 60:.1f} | {load} |")
    return "\n".join([*lines, "", *(f"Measured on: {machine}." for machine in machines)]) + "\n"


def render_chart(figures: Figures) -> str:
    """Return an SVG of the rates relative to a rival or a floor: one bar for then, one for now, and a line at 1."""
    found = list(_measured(figures, [row for row in ROWS if row.beside]))
    height, line_at = _LINE_PX * (len(found) + 1), _TEXT_PX + round(_BAR_PX / _SHOWN_MAX)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_TEXT_PX + _BAR_PX + 50}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="100%" height="100%" fill="#fff"/><text x="{line_at}" y="14" text-anchor="middle">as fast</text>'
        f'<text x="{line_at + 90}" y="14" fill="#2a7f62">now</text>'
        f'<text x="{line_at + 130}" y="14" fill="#777">then</text>',
    ]
    for number, (row, now) in enumerate(found, start=1):
        top = number * _LINE_PX
        name = escape(f"{row.what} / {row.beside}".replace("`", ""))
        parts.append(f'<text x="{_TEXT_PX - 8}" y="{top + 14}" text-anchor="end">{name}</text>')
        for at, value, colour in ((top + 3, now, "#2a7f62"), (top + 15, row.then, "#bbb")):
            if value is not None:
                width = round(min(value, _SHOWN_MAX) / _SHOWN_MAX * _BAR_PX)
                parts.append(f'<rect x="{_TEXT_PX}" y="{at}" width="{width}" height="10" fill="{colour}"/>')
                parts.append(
                    f'<text x="{_TEXT_PX + width + 4}" y="{at + 9}" font-size="10">{report.plain(value)}</text>'
                )
    parts.append(f'<path d="M{line_at} 18V{height}" stroke="#333" stroke-dasharray="3"/></svg>')
    return "\n".join(parts) + "\n"


def _measured(figures: Figures, rows: Iterable[Row]) -> Iterator[tuple[Row, float]]:
    for row in rows:
        found = figures.get(row.program, {}).get("bars", {}).get(row.bar)
        if found is not None:
            yield row, found


def read_figures() -> Figures:
    path = DOCS / "performance.json"
    found: Figures = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def write_page(figures: Figures) -> None:
    (DOCS / "performance.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    (DOCS / "performance.md").write_text(render_page(figures), encoding="utf-8")
    (DOCS / "performance.svg").write_text(render_chart(figures), encoding="utf-8")


def main() -> int:
    description = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.performance", description=description)
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

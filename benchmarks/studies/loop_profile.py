"""Show what the event loop spends its time on: positions, the rows around an owner, single posts and batches on SQLite.

python -m benchmarks.studies.loop_profile [--rows N] [--seconds S]

For each path, a service runs under cProfile while clients saturate it. The profile has only the event loop's thread, so
it lacks the writer's thread and the readers'. Profiling slows down Python calls more than built-in functions. So the
shares tell what to look at, and not how much could be saved.

All figures are only reported; there is no bar.
"""

import asyncio
import pstats
import sys
from collections import Counter
from pathlib import Path

from benchmarks import report
from benchmarks.against_commit import contestants
from benchmarks.boards import copy_store, fill_board
from benchmarks.options import Options
from benchmarks.servers import PROJECT, Server, serve_file
from service.stores import SQLITE_PREFIX
from tests.servers import free_port

_FILLED = "filled.db"
_SHOWN = 16  # parts of each path, those with the most time
_ROOM_DEPTH = 2  # modules of this project are added up by package and room


def part_of(file: str, function: str) -> str:
    """Return the name of the part to which a profiled function belongs: a room, a library, or built-in functions."""
    if file == "~":
        return f"built-in {function.strip('<>').removeprefix('built-in method ').removeprefix('method ')}"
    path = Path(file)
    if path.is_relative_to(PROJECT) and ".venv" not in path.parts:
        return "/".join(path.relative_to(PROJECT).parts[:_ROOM_DEPTH])
    _, found, inside = file.partition("site-packages/")
    return inside.split("/")[0] if found else f"python {path.stem}"


def profile_path(path: str, folder: Path, options: Options) -> Counter[str]:
    """Saturate one path. Return the event loop's own time by part, in seconds."""
    port, profile = free_port(), folder / f"{path}.profile"
    store = folder / f"{path}.db"
    copy_store(folder / _FILLED, store)
    serve = ["-m", "service.cli", "serve", "--store", f"{SQLITE_PREFIX}{store}", "--port", str(port)]
    command = [sys.executable, "-m", "cProfile", "-o", str(profile), *serve]
    with Server(command, folder, port=port, ready_path="/readyz") as server:
        contestants(server.port, options)[path](1)
    times: Counter[str] = Counter()
    for (file, _, function), (_, _, own_s, _, _) in pstats.Stats(str(profile)).stats.items():  # type: ignore[attr-defined]
        times[part_of(file, function)] += own_s
    return times


def measure(options: Options, folder: Path) -> list[report.Bar]:
    with serve_file(folder / _FILLED) as server:
        asyncio.run(fill_board(server.port, rows=options.rows))
    for path in contestants(0, options):
        times = profile_path(path, folder, options)
        total_s = times.total()
        rows = [(part, round(100 * own_s / total_s, 1)) for part, own_s in times.most_common(_SHOWN)]
        report.print_table((path, "% of own time"), rows)
    return []


if __name__ == "__main__":
    report.run_program(
        measure, __doc__, "profile of the event loop: {rows:,} rows, {seconds:g} s for each path", rows=100_000
    )

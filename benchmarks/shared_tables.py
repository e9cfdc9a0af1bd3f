"""Compare boards in a shared table with boards in tables of their own, and 10,000 small boards with 10.

    python -m benchmarks.shared_tables [--rows N] [--rounds N]

Both table layouts have the same rows and get the same requests, one request after the other. The large board (343,000
rows of 6 columns) shares its table with another board of the same size.

Bars: a refresh in a shared table takes at most 1.3 times as long as in a table of its own. Views take at most 1.3 times
as long with 10,000 small boards as with 10. An idle service with 10,000 boards takes at most 1 % of a core.
"""

import asyncio
import random
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.boards import board_spec, column_names, draw_values, owner_at
from benchmarks.bulk import add_entries
from benchmarks.client import Connection, call_service
from benchmarks.options import Options
from benchmarks.servers import serve_file
from config import load
from service.stores import open_store
from storage.boards.boards import find_board
from storage.leaves.entries import Entries
from storage.log.cells import Padding
from storage.records import Entry

_COLUMNS = 6
_LARGE = {"own": ("own-a", "own-b"), "shared": ("shared-a", "shared-b")}
_FIRST_US = 1_760_000_000_000_000
_BATCH_ROWS = 20_000
_FAMILY = "small"
_FEW, _MANY = 10, 10_000
_OWNERS = 20
_VIEWS = 400
_SETTLED_S = 70.0  # within this time after the posts, the schedule checks every board once
_IDLE_S = 20.0
_FAMILY_SPEC: dict[str, Any] = {**board_spec(["xp"]), "periods": ["all"], "facets": [["org"]]}


async def _put_large(port: int) -> None:
    for table, names in _LARGE.items():
        for name in names:
            body = {**board_spec(column_names(_COLUMNS)), "table": table, "predictor": {"method": "skip"}}
            await call_service(port, "PUT", f"/v1/leaderboards/{name}", body)


async def _load_large(path: Path, rows: int) -> None:
    """Insert the rows and totals of the large board directly, equal to those that posts would write."""
    store = await open_store(load({"store": f"sqlite:///{path}"}, {}))
    drawn = [draw_values(rows, index) for index in range(_COLUMNS)]
    try:
        for name in (name for names in _LARGE.values() for name in names):
            board = await store.read(partial(find_board, name))
            entries = Entries(board.leaf)
            paddings = [Padding(board.spec, column) for column in board.spec.columns]
            for start in range(0, rows, _BATCH_ROWS):
                chunk = range(start, min(start + _BATCH_ROWS, rows))
                new = [
                    Entry(owner_at(at), _FIRST_US + at, [pad.pad(drawn[i][at]) for i, pad in enumerate(paddings)])
                    for at in chunk
                ]
                await store.write(partial(add_entries, entries, new))
    finally:
        await store.close()


async def _time_refreshes(port: int, rounds: int) -> dict[str, list[float]]:
    """Refresh all columns in rounds in which the layouts take turns. Return the seconds of each round by layout."""
    took: dict[str, list[float]] = {table: [] for table in _LARGE}
    connection = Connection(port)
    for number in range(rounds + 1):
        for table in list(_LARGE) if number % 2 else list(_LARGE)[::-1]:
            path = f"/v1/leaderboards/{_LARGE[table][0]}/rankings"
            found = [await connection.call_ok("POST", f"{path}/{name}/refresh") for name in column_names(_COLUMNS)]
            if number:
                took[table].append(sum(answer["seconds"] for answer in found))
    connection.close()
    return took


async def _fill_small(port: int, first: int, past: int) -> None:
    await call_service(port, "PUT", f"/v1/families/{_FAMILY}", _FAMILY_SPEC)
    chosen = random.Random(first)
    posts = [
        {"owner": owner_at(index), "stats": {"xp": chosen.randrange(1_000)}, "facets": {"org": str(org)}}
        for org in range(first, past)
        for index in range(_OWNERS)
    ]
    for start in range(0, len(posts), 5_000):
        await call_service(port, "POST", f"/v1/families/{_FAMILY}/posts", {"posts": posts[start : start + 5_000]})


async def _time_views(port: int, boards: int, seed: int) -> dict[str, float]:
    """Time the first page of random boards, and an owner's position on them. Return the median in ms by view."""
    connection, chosen = Connection(port), random.Random(seed)
    paths = {"page": "/rankings/xp?limit=10", "positions": f"/entries/{owner_at(3)}/positions?columns=xp"}
    took: dict[str, list[float]] = {name: [] for name in paths}
    for _ in range(_VIEWS):
        for name, path in paths.items():
            begun = time.perf_counter()
            await connection.call_ok("GET", f"/v1/leaderboards/{_FAMILY}:all:org={chosen.randrange(boards)}{path}")
            took[name].append(1000 * (time.perf_counter() - begun))
    connection.close()
    return {name: statistics.median(each) for name, each in took.items()}


def _measure_small(options: Options, folder: Path) -> list[report.Bar]:
    ratios: dict[str, list[float]] = {"page": [], "positions": []}
    with serve_file(folder / "few.db") as few, serve_file(folder / "many.db") as many:
        asyncio.run(_fill_small(few.port, 0, _FEW))
        for start in range(0, _MANY, 1_000):
            asyncio.run(_fill_small(many.port, start, start + 1_000))
        for number in range(options.rounds + 1):
            by_few = asyncio.run(_time_views(few.port, _FEW, number))
            by_many = asyncio.run(_time_views(many.port, _MANY, number))
            print(f"   median ms with {_FEW} boards {by_few}, with {_MANY:,} {by_many}")
            for view in ratios if number else ():  # round 0 only warms up
                ratios[view].append(by_many[view] / by_few[view])
        time.sleep(_SETTLED_S)
        before = many.cpu_s()
        time.sleep(_IDLE_S)
        idle = 100 * (many.cpu_s() - before) / _IDLE_S
    slowest = max(statistics.median(found) for found in ratios.values())
    return [
        report.Bar(f"view of one of {_MANY:,} boards / of {_FEW}", slowest, 1.3, at_most=True),
        report.Bar(f"idle with {_MANY:,} boards, of a core", idle, 1, " %", at_most=True),
    ]


def measure(options: Options, folder: Path) -> list[report.Bar]:
    path = folder / "large.db"
    with serve_file(path) as server:
        asyncio.run(_put_large(server.port))
    begun = time.perf_counter()
    asyncio.run(_load_large(path, options.rows))
    print(f"   4 x {options.rows:,} rows x {_COLUMNS} in {time.perf_counter() - begun:.0f} s", flush=True)
    with serve_file(path) as server:
        took = asyncio.run(_time_refreshes(server.port, options.rounds))
    report.print_table(
        ("all six columns", "ms", "lowest", "highest"),
        [(name, 1000 * statistics.median(each), 1000 * min(each), 1000 * max(each)) for name, each in took.items()],
    )
    ratio = statistics.median(one / other for one, other in zip(took["shared"], took["own"], strict=True))
    bars = [report.Bar("refresh, shared / own", ratio, 1.3, at_most=True)]
    return bars + _measure_small(options, folder)


if __name__ == "__main__":
    report.run_program(
        measure, __doc__, f"4 boards of {{rows:,}} x {_COLUMNS}, {_MANY:,} small ones, {{rounds}} rounds", rows=343_000
    )

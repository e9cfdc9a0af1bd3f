"""Measure the bytes of an entry, of a post in the change log, of a post id and of a curve, and the service's memory.

python -m benchmarks.sizes [--rows N]

Both stores are measured. Entries have 1 or 6 ranked columns, and each entry is posted twice, the second time with a
post id. A figure is the size of a whole table with its indexes, as the database reports it, divided by the number of
rows.

All figures are only reported; there is no bar.
"""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.boards import (
    BATCH,
    BOARD,
    batch_body,
    board_spec,
    column_names,
    create_board,
    draw_batches,
    draw_values,
    owner_at,
    refresh_columns,
    send_batches,
)
from benchmarks.options import Options
from benchmarks.servers import POSTGRES_SETTINGS, run_sql, serve_file
from querybuilder import col, select
from service.stores import SQLITE_PREFIX
from storage.schema.tables import CURVES
from tests.schemas import fresh_schema
from tests.servers import postgres
from tests.service.real_service import Service

_COLUMNS = (1, 6)
_IN_SQLITE = "SELECT i.tbl_name, sum(d.pgsize) FROM dbstat d JOIN sqlite_schema i ON i.name = d.name GROUP BY 1"
_IN_POSTGRES = (
    "SELECT relname, pg_total_relation_size(oid) FROM pg_class "
    "WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"
)


def _posts(rows: int, columns: int, *, ids: bool) -> Iterator[dict[str, object]]:
    named = {name: draw_values(rows, index) for index, name in enumerate(column_names(columns))}
    for index in range(rows):
        post: dict[str, object] = {"owner": owner_at(index), "stats": {name: named[name][index] for name in named}}
        yield {**post, "post_id": f"match-{index:012d}"} if ids else post


async def _read_table_bytes(service: Service) -> Mapping[str, int]:
    url = str(service.settings["store"])
    sql = _IN_SQLITE if url.startswith(SQLITE_PREFIX) else _IN_POSTGRES
    return dict(await asyncio.to_thread(run_sql, url, sql))


async def _measure_store(service: Service, rows: int, columns: int) -> list[float]:
    """Return the bytes of a new entry, an entry changed once, a post in the change log, a post id, and a curve."""
    body = {**board_spec(column_names(columns)), "table": "own"}
    await service.must("PUT", f"/v1/leaderboards/{BOARD}", body)
    entries = []
    for ids in (False, True):
        posts = list(_posts(rows, columns, ids=ids))
        for start in range(0, rows, BATCH):
            await service.post(BOARD, *posts[start : start + BATCH])
        found = await _read_table_bytes(service)
        entries.append(next(size for name, size in found.items() if name.startswith("entries_")) / rows)
    await service.refresh(BOARD, *column_names(columns))
    store = service.context.store
    curves = await store.read_query(select(col("document")).from_(CURVES).bind())
    curve = sum(len(row[0]) for row in curves) / len(curves)
    return [*entries, found["changes"] / (2 * rows), found["post_ids"] / rows, curve]


async def _measure_stores(options: Options, folder: Path, url: str) -> list[list[Any]]:
    found = []
    for columns in _COLUMNS:
        async with fresh_schema(url) as place:
            for name, store in (("SQLite", f"sqlite:///{folder}/sizes{columns}.db"), ("PostgreSQL", place)):
                service = Service(folder, store=store, log_sample_ratio=0)
                await service.start()
                try:
                    found.append([name, columns, *(await _measure_store(service, options.rows, columns))])
                finally:
                    await service.stop()
    return found


def _measure_memory(rows: int, folder: Path) -> list[Any]:
    """Return the MiB of a process on a SQLite file after its start, after posts, after a scan, and at its peak."""
    with serve_file(folder / "memory.db") as server:
        started = server.resident_mib()
        asyncio.run(_fill(server.port, rows))
        filled = server.resident_mib()
        asyncio.run(refresh_columns(server.port, BOARD, column_names(1)))
        return [started, filled, server.resident_mib(), server.most_resident_mib()]


async def _fill(port: int, rows: int) -> None:
    await create_board(port, BOARD, board_spec(column_names(1)))
    await send_batches(port, BOARD, map(batch_body, draw_batches(rows, seed=1, count=rows // BATCH)))


def measure(options: Options, folder: Path) -> list[report.Bar]:
    with postgres(POSTGRES_SETTINGS) as cluster:
        stores = asyncio.run(_measure_stores(options, folder, cluster.url()))
    memory = _measure_memory(options.rows, folder)
    report.print_table(
        ("", "columns", "entry B", "changed once B", "post in the log B", "post id B", "curve B"), stores
    )
    report.print_table(("", "started MiB", "after posts", "after a refresh", "most"), [["serve", *memory]])
    return [report.Bar("bytes an entry of one ranked column, most", max(row[2] for row in stores[:2]), None)]


if __name__ == "__main__":
    report.run_program(measure, __doc__, "sizes of {rows:,} entries, each posted twice", rows=100_000)

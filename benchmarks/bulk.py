"""Fills boards of many million rows through the store, because over HTTP this would take an hour.

The rows, totals and indexes are the same as if posts had written them. The ranking index is created after the rows, as
is usual in bulk loads. Because the change log has no changes for these rows, every curve must be fitted after the load.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.boards import BOARD, COLUMN, board_spec, create_board, keep_store, owner_at
from benchmarks.options import Options
from benchmarks.report import Bar
from benchmarks.servers import POSTGRES_SETTINGS, serve_store
from config import load
from querybuilder import Query
from querybuilder.render import Command
from service.stores import SQLITE_PREFIX, open_store
from storage.boards.boards import find_board
from storage.leaves.entries import Entries, add_totals
from storage.leaves.row_tables import create_ranking_index, index_name, layout_of
from storage.leaves.totals import ALL_ENTRIES, CHANGES
from storage.log.cells import Padding
from storage.records import Entry
from storage.store import Program, Store
from tests.servers import postgres

_BATCH_ROWS = 50_000
_FIRST_POST_US = 1_760_000_000_000_000


def draw_scores(rows: int) -> Any:
    """Return lognormal whole numbers, one per owner, in the order of the owners' indexes."""
    import numpy

    return numpy.random.default_rng(11).lognormal(10, 1.5, rows).round().astype(numpy.int64)


def load_bulk_board(store_url: str, folder: Path, rows: int) -> None:
    """Create BOARD with `rows` rows in an empty store, and print the time this took."""
    print(f"   loading {rows:,} rows", end="", flush=True)
    begun = time.perf_counter()
    with serve_store(store_url, folder) as server:
        asyncio.run(create_board(server.port, BOARD, board_spec([COLUMN])))
    asyncio.run(load_rows(store_url, rows))
    print(f": {time.perf_counter() - begun:.0f} s", flush=True)


def prepare_bulk_store(options: Options, folder: Path, *, rows: int) -> Path:
    """Return the path of a SQLite file in `folder` that has a board of `rows` rows."""
    return keep_store(
        options, folder, f"bulk-{rows}x1", lambda store: load_bulk_board(f"{SQLITE_PREFIX}{store}", folder, rows)
    )


def measure_bulk_stores(options: Options, folder: Path, measure_on: Callable[[str, str], list[Bar]]) -> list[Bar]:
    """Measure on a board of `options.rows` rows, first on SQLite and then on PostgreSQL.

    `measure_on` is called with the name and the address of each store.
    """
    store = prepare_bulk_store(options, folder, rows=options.rows)
    bars = measure_on("SQLite", f"{SQLITE_PREFIX}{store}")
    store.unlink()
    with postgres(POSTGRES_SETTINGS) as cluster:
        load_bulk_board(cluster.url(), folder, options.rows)
        cluster.run_sql("VACUUM ANALYZE")
        return bars + measure_on("PostgreSQL", cluster.url())


async def load_rows(store_url: str, rows: int, *, board_id: str = BOARD) -> None:
    """Write `rows` rows to an empty board, through the store."""
    store = await open_store(load({"store": store_url, "statement_timeout_s": 3_600}, {}))
    try:
        board = await store.read(lambda: find_board(board_id))
        index = board.column_index[COLUMN]
        for leaf in board.leaves:
            layout = layout_of(leaf)
            dropped = drop_index(index_name(layout, layout.columns[index]), layout.table)
            await run_statement(store.at(leaf.partition), dropped)
        padding = Padding(board.spec, board.spec.columns[index])
        scores = draw_scores(rows)
        for start in range(0, rows, _BATCH_ROWS):
            new: dict[int, list[Entry]] = {leaf.key: [] for leaf in board.leaves}
            for at, score in enumerate(scores[start : start + _BATCH_ROWS].tolist(), start=start):
                entry = Entry(owner_at(at), _FIRST_POST_US + at, [padding.pad(score)])
                new[board.leaf_of(entry.owner).key].append(entry)
            for leaf in board.leaves:
                await store.at(leaf.partition).write(partial(add_entries, Entries(leaf), new[leaf.key]))
        for leaf in board.leaves:
            layout = layout_of(leaf)
            await store.at(leaf.partition).write(partial(create_ranking_index, layout, layout.columns[index]))
    finally:
        await store.close()


def add_entries(entries: Entries, new: list[Entry]) -> Program[None]:
    """Insert new entries of a board and add them to the board's totals, as posts would do."""
    leaf = entries.leaf
    yield from entries.table.insert_rows((leaf.rows_key, entry) for entry in new)
    counted = {ALL_ENTRIES: len(new), CHANGES: len(new), **dict.fromkeys(leaf.sorted_indexes, len(new))}
    yield from add_totals({leaf.key: counted})


def drop_index(name: str, table: str) -> Query:
    """Return the statement that drops an index from the schema of its table."""
    return Command(lambda out: f"DROP INDEX {out.table(table).removesuffix(out.name(table))}{out.name(name)}")


async def run_statement(store: Store, query: Query) -> None:
    def program() -> Program[None]:
        yield query.bind()

    await store.write(program)

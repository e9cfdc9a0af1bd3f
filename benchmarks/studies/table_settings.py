"""Compare five settings of PostgreSQL's fillfactor and autovacuum: posts/s, size, and the time of a count after posts.

    python -m benchmarks.studies.table_settings [--rows N]

Every table layout starts with the same rows and gets the same batches; the layouts take turns. The work of autovacuum
during a run is part of the measurement.

All figures are only reported; there is no bar.
"""

import asyncio
import itertools
import time
from collections.abc import Sequence
from pathlib import Path

import asyncpg

from benchmarks import report
from benchmarks.boards import draw_batches, draw_values, owner_at
from benchmarks.options import Options
from tests.servers import DURABLE, postgres

_ZERO = 10**15
_SERVER = {**DURABLE, "shared_buffers": "1GB", "max_wal_size": "8GB", "autovacuum_naptime": "5s"}
_EAGER = "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05"
_LAYOUTS = {
    "as it comes": "",
    "fillfactor 90": "fillfactor = 90",
    "fillfactor 70": "fillfactor = 70",
    "eager vacuum": _EAGER,
    "fillfactor 90, eager vacuum": f"fillfactor = 90, {_EAGER}",
}


async def _make_table(connection: asyncpg.Connection, rows: int, layout: str) -> None:
    await connection.execute("DROP TABLE IF EXISTS e")
    await connection.execute(
        'CREATE TABLE e (owner text COLLATE "C" NOT NULL PRIMARY KEY, updated_at bigint NOT NULL, '
        f'c1 text COLLATE "C", c2 bigint) {f"WITH ({layout})" if layout else ""}'
    )
    await connection.execute("CREATE INDEX e_c1 ON e (c1 DESC, owner) WHERE c1 IS NOT NULL")
    made = ((owner_at(index), 1, f"{_ZERO + value:016d}", 0) for index, value in enumerate(draw_values(rows)))
    while chunk := list(itertools.islice(made, 10_000)):
        await connection.copy_records_to_table("e", records=chunk)
    await connection.execute("VACUUM ANALYZE e")


async def _post_batch(connection: asyncpg.Connection, batch: Sequence[tuple[str, int]], *, ranked: bool) -> None:
    change = "c1 = lpad((e.c1::bigint + v.more)::text, 16, '0')" if ranked else "c2 = e.c2 + v.more"
    ordered = sorted(batch)
    await connection.execute(
        f"UPDATE e SET updated_at = e.updated_at + 1, {change} "
        "FROM unnest($1::text[], $2::bigint[]) AS v(owner, more) WHERE e.owner = v.owner",
        [name for name, _ in ordered],
        [more for _, more in ordered],
    )


async def _measure_layout(url: str, rows: int, layout: str, *, ranked: bool) -> list[float]:
    """Return posts per second, MiB of the heap and of the indexes, the ratio of hot updates, and the ms of a count.

    The count reads half of the board through the ranking index, right after the posts.
    """
    connection = await asyncpg.connect(url)
    await _make_table(connection, rows, layout)
    count = max(10, 2 * rows // 1000)  # this many batches of 1,000 posts change every row twice on average
    work = draw_batches(rows, seed=5, count=count)
    begun = time.perf_counter()
    for batch in work:
        await _post_batch(connection, batch, ranked=ranked)
    took_s = time.perf_counter() - begun
    begun = time.perf_counter()
    await connection.fetchval(
        "SELECT count(*) FROM e WHERE c1 > (SELECT c1 FROM e ORDER BY c1 DESC OFFSET $1 LIMIT 1)", rows // 2
    )
    count_ms = 1000 * (time.perf_counter() - begun)
    heap, indexes = await connection.fetchrow("SELECT pg_relation_size('e'), pg_indexes_size('e')")
    await connection.execute("SELECT pg_stat_force_next_flush()")
    hot, updated = await connection.fetchrow(
        "SELECT n_tup_hot_upd, n_tup_upd FROM pg_stat_user_tables WHERE relname = 'e'"
    )
    await connection.close()
    return [count * 1000 / took_s, heap / 2**20, indexes / 2**20, hot / max(updated, 1), count_ms]


def measure(options: Options, folder: Path) -> list[report.Bar]:
    del folder
    with postgres(_SERVER) as cluster:
        for ranked, title in ((True, "a ranked column changes"), (False, "only an unranked column changes")):
            rows: list[list[str | float]] = []
            for name, layout in _LAYOUTS.items():
                outcome = asyncio.run(_measure_layout(cluster.url(), options.rows, layout, ranked=ranked))
                rows.append([name, *outcome])
            report.print_table([title, "posts/s", "heap MiB", "indexes MiB", "hot", "count ms"], rows)
    return []


if __name__ == "__main__":
    report.run_program(
        measure, __doc__, "table settings on PostgreSQL: {rows:,} rows, each changed twice", rows=300_000
    )

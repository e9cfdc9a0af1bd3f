"""The baseline of batch posts on PostgreSQL: the same batches in a bare asyncpg loop, in a process of its own.

`batch_posts_postgres` starts this process. The table and the index are like those of the service's board, and each
batch is one transaction. The loop reads and locks the rows, merges the values, and writes a row only if it still has
the version that was read. The loop does nothing else. The SQL is written out here, because the loop must not use the
project's own layers.
"""

import asyncio
import json
import sys
import time
from itertools import islice

import asyncpg
import uvloop

from benchmarks.boards import draw_batches, draw_values, owner_at

_ZERO = 10**15
_TABLE = (
    'CREATE TABLE bare (owner text COLLATE "C" NOT NULL PRIMARY KEY, updated_at bigint NOT NULL, c1 text COLLATE "C")'
)
_INDEX = "CREATE INDEX bare_c1 ON bare (c1 DESC, owner) WHERE c1 IS NOT NULL"
_SELECT = "SELECT owner, updated_at, c1 FROM bare WHERE owner = ANY($1) ORDER BY owner FOR NO KEY UPDATE"
_UPDATE = (
    "UPDATE bare SET updated_at = v.next, c1 = v.c1 FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[]) "
    "AS v(owner, expected, next, c1) WHERE bare.owner = v.owner AND bare.updated_at = v.expected"
)


async def make_board(connection: asyncpg.Connection, rows: int) -> None:
    """Create the board of `boards.draw_values` in a table of its own, with its index and fresh statistics."""
    await connection.execute("DROP TABLE IF EXISTS bare")
    await connection.execute(_TABLE)
    await connection.execute(_INDEX)
    made = ((owner_at(index), 1, f"{_ZERO + value:016d}") for index, value in enumerate(draw_values(rows)))
    while chunk := list(islice(made, 10_000)):
        await connection.copy_records_to_table("bare", records=chunk)
    await connection.execute("VACUUM ANALYZE bare")


async def apply_batch(connection: asyncpg.Connection, batch: list[tuple[str, int]]) -> None:
    """Merge a batch into the table in one durable transaction. A row is written only if its version is the one read."""
    async with connection.transaction():
        found = await connection.fetch(_SELECT, [name for name, _ in batch])
        now_us = time.time_ns() // 1000
        more = dict(batch)
        names = [row[0] for row in found]
        expected = [row[1] for row in found]
        later = [max(now_us, row[1] + 1) for row in found]
        texts = [f"{int(row[2]) + more[row[0]]:016d}" for row in found]
        done = await connection.execute(_UPDATE, names, expected, later, texts)
    assert done == f"UPDATE {len(batch)}", "a row was changed by someone else"


async def serve(url: str, rows: int) -> None:
    """Run a round for each line of standard input, until the input ends.

    A line is a JSON object with "seed", "count", "size" and "connections". After each round, print a line with the
    seconds that the round took.
    """
    first = await asyncpg.connect(url)
    await make_board(first, rows)
    connections = [first]
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        while len(connections) < order["connections"]:
            connections.append(await asyncpg.connect(url))
        work = iter(draw_batches(rows, seed=order["seed"], count=order["count"], size=order["size"]))

        async def lane(connection: asyncpg.Connection, work: object = work) -> None:
            for batch in work:  # type: ignore[attr-defined]
                await apply_batch(connection, batch)

        begun = time.perf_counter()
        await asyncio.gather(*(lane(connection) for connection in connections[: order["connections"]]))
        print(time.perf_counter() - begun, flush=True)


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], int(sys.argv[2])))

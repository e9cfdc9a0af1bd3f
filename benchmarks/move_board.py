"""Measure `rankcurve partition move` of a board while four writers post to it, on PostgreSQL with four partitions.

    python -m benchmarks.move_board [--rows N]

Every post has a post id and adds 1. A writer repeats a post that failed, with the same id. The board moves from one
partition to another and back. Then the sum of each writer must equal its accepted posts, and all of its ids, sent once
more, must be duplicates. Operators use the same command for a move, and its start is part of the time.

Bars: posts lost 0, posts applied twice 0, rows lost 0. The rates and the longest post are only reported.
"""

import asyncio
import json
import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import report
from benchmarks.boards import BATCH, BOARD, COLUMN, batch_body, board_spec, create_board, draw_batches, send_batches
from benchmarks.client import BadAnswerError, Connection
from benchmarks.options import Options, parse_options
from benchmarks.servers import POSTGRES_SETTINGS, Server, rankcurve_command, serve_store
from config import load
from storage.engines.postgres import PostgresStore
from tests.servers import postgres

WRITERS = 4
PARTITIONS = 4
_REPEAT_IDS = 200  # how many of a writer's ids one request repeats
_PAUSE_S = 0.05
_TRIES_MAX = 100
_WAITED = re.compile(r"waited for at most ([\d.]+) s")


@dataclass(slots=True)
class Writer:
    """Posts one post after the other to an owner of its own."""

    name: str
    posts: int = 0
    latencies_s: list[float] = field(default_factory=list)

    async def run(self, port: int, stop: asyncio.Event) -> None:
        connection = Connection(port)
        while not stop.is_set():
            begun_s = time.monotonic()
            await self._post(connection)
            self.latencies_s.append(time.monotonic() - begun_s)
            self.posts += 1
        connection.close()

    async def _post(self, connection: Connection) -> None:
        for _ in range(_TRIES_MAX):
            status, answer = await connection.call("POST", f"/v1/leaderboards/{BOARD}/posts", self._body([self.posts]))
            if status == 200 and json.loads(answer)["results"][0]["status"] != "rejected":
                return
            await asyncio.sleep(_PAUSE_S)
        raise BadAnswerError(f"{status} {answer[:300]!r}")

    def _body(self, numbers: list[int]) -> bytes:
        made = [{"owner": self.name, "stats": {COLUMN: 1}, "post_id": f"{self.name}/{each}"} for each in numbers]
        return json.dumps({"posts": made}).encode()

    async def count_forgotten(self, connection: Connection) -> int:
        """Send every post once more, and return how many of them are not duplicates."""
        forgotten = 0
        for start in range(0, self.posts, _REPEAT_IDS):
            body = self._body(list(range(start, min(start + _REPEAT_IDS, self.posts))))
            _, answer = await connection.call("POST", f"/v1/leaderboards/{BOARD}/posts", body)
            forgotten += sum(each["status"] != "duplicate" for each in json.loads(answer)["results"])
        return forgotten

    async def read_sum(self, connection: Connection) -> int:
        found = await connection.call_ok("GET", f"/v1/leaderboards/{BOARD}/entries/{self.name}")
        return int(found["stats"][COLUMN])


async def _create_store(url: str) -> None:
    store = await PostgresStore.open(url, load({"store": url}, {}))
    try:
        await store.create_apart(PARTITIONS)
    finally:
        await store.close()


async def _move(url: str, partition: int) -> tuple[float, float]:
    """Move the board by the command. Return the seconds of the command, and the longest wait that it printed."""
    begun_s = time.monotonic()
    command = [*rankcurve_command(), "partition", "move", BOARD, str(partition), "--store", url]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    text = out.decode()
    print("   " + text.strip().replace("\n", "\n   "))
    waited = _WAITED.search(text)
    if process.returncode or waited is None:
        raise BadAnswerError(f"the command ended with {process.returncode}")
    return time.monotonic() - begun_s, float(waited[1])


async def _run(url: str, server: Server, rows: int) -> list[report.Bar]:
    await create_board(server.port, BOARD, board_spec([COLUMN]))
    bodies = [batch_body(batch) for batch in draw_batches(rows, seed=1, count=rows // BATCH)]
    await send_batches(server.port, BOARD, bodies, size=BATCH)
    connection = Connection(server.port)
    before = (await connection.call_ok("GET", f"/v1/leaderboards/{BOARD}"))["entries"]
    writers = [Writer(f"writer-{number}") for number in range(WRITERS)]
    stop, moves = asyncio.Event(), []
    async with asyncio.TaskGroup() as group:
        for writer in writers:
            group.create_task(writer.run(server.port, stop))
        for partition in (1, 0):
            moves.append(await _move(url, partition))
        stop.set()
    sums = [await writer.read_sum(connection) for writer in writers]
    forgotten = sum([await writer.count_forgotten(connection) for writer in writers])
    after = (await connection.call_ok("GET", f"/v1/leaderboards/{BOARD}"))["entries"]
    connection.close()
    posts = [writer.posts for writer in writers]
    latencies_s = sorted(each for writer in writers for each in writer.latencies_s)
    seconds = sum(took_s for took_s, _ in moves)
    return [
        report.Bar(
            "posts lost", sum(max(0, want - got) for want, got in zip(posts, sums, strict=True)), 0, at_most=True
        ),
        report.Bar(
            "applied twice", sum(max(0, got - want) for want, got in zip(posts, sums, strict=True)), 0, at_most=True
        ),
        report.Bar("post ids forgotten", forgotten, 0, at_most=True),
        report.Bar("rows lost", before + WRITERS - after, 0, at_most=True),
        report.Bar("rows moved a second", len(moves) * before / seconds, None),
        report.Bar("posts a second meanwhile", sum(posts) / seconds, None),
        report.Bar("median post", 1000 * latencies_s[len(latencies_s) // 2], None, " ms"),
        report.Bar("longest post", latencies_s[-1], None, " s"),
        report.Bar("longest wait that the command printed", max(waited_s for _, waited_s in moves), None, " s"),
    ]


def measure(options: Options, folder: Path) -> list[report.Bar]:
    with postgres(POSTGRES_SETTINGS) as cluster:
        url = cluster.url()
        asyncio.run(_create_store(url))
        with serve_store(url, folder) as server:
            return asyncio.run(_run(url, server, options.rows))


def main() -> int:
    options = parse_options(__doc__, rows=1_000_000)
    return report.run_benchmark(options, f"moves of a board of {options.rows:,} rows under {WRITERS} writers", measure)


if __name__ == "__main__":
    sys.exit(main())

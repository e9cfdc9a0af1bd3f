"""Read the journal of a store with four partitions beside writers, while processes are killed. Check every line.

python -m benchmarks.journal_partitions [--seconds S] [--store URL]

Four writers post to two boards of each partition, through four processes. A writer repeats a request with the same post
ids until the request gets status 200, and has owners of its own. Four readers come and go: each reads some pages of
random length from one process, leaves, and goes on at another process after the last line that it has got. Every 5 s a
process is killed and started again. The PostgreSQL server runs with fsync on.

With `--store`, the benchmark runs on that PostgreSQL or Citus database, which is empty or has a store with several
partitions.

Bars: no reader loses an accepted post, gets one twice, or gets two posts of an owner to a board in the wrong order.
"""

import asyncio
import json
import random
import secrets
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import report
from benchmarks.boards import create_board
from benchmarks.client import BadAnswerError, Connection
from benchmarks.options import Options
from benchmarks.servers import Server, serve_store
from config import Settings
from storage.engines.postgres import PostgresStore
from storage.schema.tables import META
from tests.servers import DURABLE, postgres

_PARTITIONS = 4
_BOARDS_EACH = 2  # boards in each partition
_PROCESSES = 4
_WRITERS = 4
_READERS = 4
_OWNERS = 20  # owners of each writer
_POSTS_MAX = 20  # posts of a request
_KILL_EVERY_S = 5.0
_PAUSE_S = 0.02
_REFUSED = (429, 503)
_SPEC: dict[str, object] = {
    "columns": [
        {"name": "posts", "sorted": True, "merge": "sum"},
        {"name": "number", "sorted": False, "merge": "last"},
    ]
}


@dataclass(slots=True)
class _Run:
    ports: list[int]
    boards: list[str]
    settled: set[tuple[str, str]] = field(default_factory=set)  # pairs of a board and the id of an accepted post
    writing: bool = True
    resent: int = 0
    kills: int = 0


@dataclass(slots=True)
class _Reader:
    after: str
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)  # lines by board and post id
    numbers: dict[tuple[str, str], int] = field(default_factory=dict)  # the last number by board and owner
    disordered: int = 0
    visits: int = 0

    def take_lines(self, lines: Sequence[bytes], boards: Sequence[str]) -> None:
        for text in lines:
            line = json.loads(text)
            self.after = str(line["seq"])
            if line["kind"] != "post" or line["board"] not in boards:
                continue
            self.seen[line["board"], line["post_id"]] += 1
            owner, number = (line["board"], line["owner"]), line["stats"]["number"]
            self.disordered += number <= self.numbers.get(owner, 0)
            self.numbers[owner] = number


async def _write(run: _Run, name: str) -> None:
    """Post until the run ends. Each of an owner's posts to a board has a larger number than the one before it."""
    connections, rng, number = [Connection(port) for port in run.ports], random.Random(name), 0
    while run.writing:
        boards = rng.sample(run.boards, rng.choice((1, 1, 3)))
        posts: list[dict[str, object]] = []
        for _ in range(rng.randint(1, _POSTS_MAX)):
            number += 1
            owner, post_id = f"{name}-{rng.randrange(_OWNERS)}", f"{name}-{number}"
            posts.append(
                {"owner": owner, "boards": boards, "post_id": post_id, "stats": {"posts": 1, "number": number}}
            )
        body = json.dumps({"posts": posts}).encode()
        connection = rng.choice(connections)
        while True:
            try:
                status, answer = await connection.call("POST", "/v1/posts", body)
            except (OSError, EOFError):
                status, answer = 503, b""
            if status == 200:
                break
            if status not in _REFUSED:
                raise BadAnswerError(f"{status} {answer[:300]!r}")
            run.resent += 1
            await asyncio.sleep(_PAUSE_S)
            connection = rng.choice(connections)
        run.settled |= {(board, str(post["post_id"])) for board in boards for post in posts}
    for connection in connections:
        connection.close()


async def _read_page(connection: Connection, after: str, limit: int) -> list[bytes] | None:
    """Return the lines of a page, or None if the process is unreachable."""
    try:
        status, answer = await connection.call("GET", f"/v1/journal?after={after}&limit={limit}")
    except (OSError, EOFError):
        return None
    if status in _REFUSED:
        return None
    if status != 200:
        raise BadAnswerError(f"{status} {answer[:300]!r}")
    return answer.splitlines()


async def _read_to_end(port: int, reader: _Reader, boards: Sequence[str]) -> None:
    connection = Connection(port)
    while (lines := await _read_page(connection, reader.after, 1_000)) != []:
        reader.take_lines(lines or (), boards)
    connection.close()


async def _visit_until_end(run: _Run, reader: _Reader, seed: int) -> None:
    """Read the journal in visits to random processes until the writers have ended."""
    rng = random.Random(seed)
    while run.writing:
        connection = Connection(rng.choice(run.ports))
        reader.visits += 1
        for _ in range(rng.randint(1, 20)):
            lines = await _read_page(connection, reader.after, rng.choice((1, 7, 100, 1_000)))
            if lines is None:
                break
            reader.take_lines(lines, run.boards)
        connection.close()
        await asyncio.sleep(rng.uniform(0, 10 * _PAUSE_S))


async def _kill_repeatedly(servers: Sequence[Server], run: _Run, seconds: float) -> None:
    """Kill a process every 5 s, or only twice in a short run, and start it again at once."""
    rng, pause_s = random.Random(1), min(_KILL_EVERY_S, seconds / 2)
    for _ in range(round(seconds / pause_s)):
        await asyncio.sleep(pause_s)
        server = rng.choice(servers)
        await asyncio.to_thread(server.stop, signal.SIGKILL)
        run.kills += 1
        server.spawn()
        await asyncio.to_thread(server.wait_ready)
    run.writing = False


async def prepare_store(url: str) -> int:
    """Create a store with four partitions if the database is empty. Return the store's number of partitions."""
    store = await PostgresStore.open(url, Settings())
    try:
        if store.dialect.schema_of(META) is None:
            await store.create_apart(_PARTITIONS, distributed=await store.has_citus())
        return store.partitions
    finally:
        await store.close()


async def _run_readers(servers: Sequence[Server], partitions: int, seconds: float) -> tuple[_Run, list[_Reader]]:
    name = secrets.token_hex(3)
    run = _Run([each.port for each in servers], [f"{name}-{number}" for number in range(partitions * _BOARDS_EACH)])
    for board in run.boards:
        await create_board(run.ports[0], board, _SPEC)
    begin = _Reader("0")
    await _read_to_end(run.ports[0], begin, ())
    readers = [_Reader(begin.after) for _ in range(_READERS)]
    async with asyncio.TaskGroup() as group:
        for number in range(_WRITERS):
            group.create_task(_write(run, f"{name}-w{number}"))
        for number, reader in enumerate(readers):
            group.create_task(_visit_until_end(run, reader, number))
        group.create_task(_kill_repeatedly(servers, run, seconds))
    for reader in (*readers, begin):  # the last reads everything at the end
        await _read_to_end(run.ports[0], reader, run.boards)
    return run, [*readers, begin]


def measure(options: Options, folder: Path) -> list[report.Bar]:
    with ExitStack() as stack:
        url = options.store or stack.enter_context(postgres(DURABLE)).create_database("journal")
        partitions = asyncio.run(prepare_store(url))
        servers = [stack.enter_context(serve_store(url, folder, jobs="none")) for _ in range(_PROCESSES)]
        run, readers = asyncio.run(_run_readers(servers, partitions, options.seconds))
    visits, lines = sum(each.visits for each in readers), sum(each.seen.total() for each in readers)
    print(f"   {partitions} partitions; {len(run.settled):,} posts accepted, {run.resent:,} requests sent again;")
    print(f"   {run.kills} kills; {lines:,} lines read in {visits:,} visits")
    lost = sum(len(run.settled - each.seen.keys()) for each in readers)
    repeated = sum(each.seen.total() - len(each.seen) for each in readers)
    return [
        report.Bar("accepted posts that a reader lost", lost, 0, at_most=True),
        report.Bar("posts that a reader got twice", repeated, 0, at_most=True),
        report.Bar("posts of an owner out of order", sum(each.disordered for each in readers), 0, at_most=True),
        report.Bar("partitions", partitions, 2),
        report.Bar("accepted posts", len(run.settled) / options.seconds, None, "/s"),
    ]


if __name__ == "__main__":
    report.run_program(
        measure,
        __doc__,
        f"journal over partitions: {{seconds:.0f}} s, {_WRITERS} writers, {_READERS} readers, and kills",
        seconds=120,
    )

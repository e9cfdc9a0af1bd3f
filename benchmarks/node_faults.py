"""Post and read beside kills, freezes, moves and splits on a cluster of Citus. Check every answer, and all posts.

    PATH=/usr/lib/postgresql/15/bin:$PATH python -m benchmarks.node_faults --store URL [--rounds N] [--rows POSTS]

The URL is the connection string of a superuser and names all nodes of a running cluster on this machine, the
coordinator first, as for `citus_page`. The cluster has no database `rankcurve` and no such role. It gets a store in the
way that docs/citus.md describes.

The load is that of `partitions_disturbed`: four processes with 16 posters each (`ledger`), and readers of boards that
do not change. Beside it, two boards get new best entries all the time (`brackets_as_of`), one of them with segments,
and readers compare their brackets with what was posted until `as_of`. Each of N rounds (20) has four faults, which are
`--seconds` (12) apart:

- a kill: of all processes of a worker, of the coordinator, or of a front end. It is back after a second.
- a freeze: all processes of a worker stop for ten seconds.
- a move: of a partition to another worker (`citus_schema_move`), or of a board (`rankcurve partition move`).
- a split: of a board with posters into another number of segments (`rankcurve board split`).

Bars: no accepted post is lost or applied twice, no post id is forgotten, no rank, page or bracket is wrong. 2 s after a
move or split, brackets are as of a later moment. Every partition takes posts 10 s after a fault. `--rows` (100,000)
posts were accepted.
"""

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import time
from bisect import insort
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks import report
from benchmarks.boards import COLUMN, owner_at
from benchmarks.brackets_as_of import BEST, PLAIN, SPLIT, Posted, fill_boards, to_us
from benchmarks.citus_page import POSTGRES_USER, Cluster, move_partition
from benchmarks.client import Connection, call_service
from benchmarks.ledger import BOARDS
from benchmarks.options import Options
from benchmarks.partitions_disturbed import BACK_S_MAX, Load, rotate_hosts
from benchmarks.postgres_restarts import PROCESSES
from benchmarks.servers import PROJECT, Server, rankcurve_command, run_sql, serve_store

_PARTITIONS = 8  # as docs/citus.md creates a store
_DEAD_S = 1.0
_FROZEN_S = 10.0
_CURRENT_S_MAX = 2.0
_BEST_ROWS = 5_000
_MODES = ("auto", "exact", "estimate", "estimate")
_TRIES = 5  # a partition moves back only after Citus has dropped what an earlier move left there
_PAUSE_S = 0.02


@dataclass
class _Brackets:
    """Posts that bring new best entries to two boards, and the readers that check the brackets there."""

    ports: list[int]
    stopped: Callable[[], bool]
    posted: Posted = field(default_factory=Posted)
    # For each board, when an estimate was answered, on the monotonic clock, and its `as_of`, in microseconds since 1970
    read: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: {PLAIN: [], SPLIT: []})

    async def _call(self, connections: list[Connection], method: str, path: str, body: bytes = b"") -> bytes:
        """Send a request to one process after another until one answers with 200."""
        while True:
            try:
                status, answer = await random.choice(connections).call(method, path, body)
            except (OSError, EOFError):
                status, answer = 503, b""
            if status not in (200, 503):
                self.posted.wrong[f"{status} {path.partition('?')[0].split('/')[3]}"] += 1
                print(f"   wrong: {method} {path}: {status} {answer[:300]!r}", flush=True)
            if status == 200 or self.stopped():
                return answer if status == 200 else b""
            await asyncio.sleep(_PAUSE_S)

    async def post(self, board: str) -> None:
        connections, number = [Connection(port) for port in self.ports], 0
        while not self.stopped():
            number += 1
            post = {"owner": f"best-{number}", "post_id": f"{board}-{number}", "stats": {COLUMN: BEST}}
            body = json.dumps(post).encode()
            insort(self.posted.sent_us[board], time.time_ns() // 1000)
            if await self._call(connections, "POST", f"/v1/leaderboards/{board}/posts", body):
                insort(self.posted.answered_us[board], time.time_ns() // 1000)
            await asyncio.sleep(_PAUSE_S)

    async def check(self, board: str) -> None:
        connections = [Connection(port) for port in self.ports]
        while not self.stopped():
            number, mode, by_owner = random.randrange(_BEST_ROWS), random.choice(_MODES), random.random() < 0.5
            path = f"/v1/leaderboards/{board}/rankings/{COLUMN}/positions?values={number}&rank={mode}"
            if by_owner:
                path = f"/v1/leaderboards/{board}/entries/{owner_at(number)}/positions?rank={mode}"
            answer = await self._call(connections, "GET", path)
            if not answer:
                return
            [position] = json.loads(answer)["positions"]
            before = self.posted.wrong.total()
            self.posted.check(f"{board} {mode} {position['method']}", (board,), _BEST_ROWS - number, position)
            if self.posted.wrong.total() > before:
                print(f"   wrong: {path}: {position}, {len(self.posted.sent_us[board])} posts sent", flush=True)
            if mode == "estimate":
                self.read[board].append((time.monotonic(), to_us(position["as_of"])))
            await asyncio.sleep(_PAUSE_S)

    def current_after_s(self, ended_s: float, ended_us: int) -> float:
        """Return the seconds from the end of a move until the estimates of both boards were as of a later moment."""
        return max(
            next((at_s - ended_s for at_s, as_of_us in found if as_of_us >= ended_us), float("inf"))
            for found in self.read.values()
        )


@dataclass
class _Faults:
    """Causes faults in a cluster and in front ends. `done` holds the kind of each fault and its end on both clocks."""

    cluster: Cluster
    url: str  # of the service
    services: list[Server]
    folders: list[Path]  # of the data of each node
    done: list[tuple[str, float, int]] = field(default_factory=list)

    async def run(self, options: Options) -> None:
        kinds: list[Callable[[int], Awaitable[None]]] = [self._kill, self._freeze, self._move, self._split]
        for number in range(options.rounds):
            for kind in kinds:
                await asyncio.sleep(options.seconds)
                await kind(number)
                name = kind.__name__.strip("_")
                self.done.append((name, time.monotonic(), time.time_ns() // 1000))
                print(f"   {time.strftime('%H:%M:%S')} {name} {number + 1}", flush=True)
        await asyncio.sleep(BACK_S_MAX)

    async def _kill(self, number: int) -> None:
        """In turn, kill a worker, the other worker, the coordinator or a front end, and start it again."""
        victim = number % (len(self.folders) + 1)
        if victim == len(self.folders):
            service = self.services[number // 4 % len(self.services)]
            await asyncio.to_thread(service.stop, signal.SIGKILL)
            service.spawn()
            await asyncio.to_thread(service.wait_ready)
            return
        data = self.folders[(victim + 1) % len(self.folders)]
        _signal_node(data, signal.SIGKILL)
        await asyncio.sleep(_DEAD_S)
        program = Path(shutil.which("pg_basebackup") or "").with_name("pg_ctl")
        command = [str(program), "-D", str(data), "-l", f"{data}.log", "-w", "start"]
        for _ in range(_TRIES):  # a process that was killed may still hold the shared memory
            start = partial(subprocess.call, command, user=POSTGRES_USER, cwd=data)
            if await asyncio.to_thread(start, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0:
                return
            await asyncio.sleep(_DEAD_S)
        raise RuntimeError(f"{data} does not start again")

    async def _freeze(self, number: int) -> None:
        data = self.folders[1 + number % (len(self.folders) - 1)]
        _signal_node(data, signal.SIGSTOP)
        try:
            await asyncio.sleep(_FROZEN_S)
        finally:
            _signal_node(data, signal.SIGCONT)

    async def _move(self, number: int) -> None:
        """In turn, move a partition to another worker, or a board to another partition."""
        if number % 2 == 0:
            await self._move_partition(number // 2 % _PARTITIONS)
            return
        board = (PLAIN, BOARDS[0])[number // 2 % 2]
        found = await call_service(self.services[0].port, "GET", f"/v1/leaderboards/{board}")
        await self._command("partition", "move", board, str((found["partition"] + 3) % _PARTITIONS))

    async def _move_partition(self, partition: int) -> None:
        for left in reversed(range(_TRIES)):
            try:
                await asyncio.to_thread(move_partition, self.cluster, partition)
                return
            except Exception as error:
                print(f"   the partition {partition} did not move: {error}", flush=True)
                if not left:
                    raise
            await asyncio.to_thread(run_sql, self.cluster.url(0), "CALL citus_cleanup_orphaned_resources()")

    async def _split(self, number: int) -> None:
        await self._command("board", "split", (SPLIT, BOARDS[2])[number % 2], str(2 + number // 2 % 5))

    async def _command(self, *words: str) -> None:
        command = [*rankcurve_command(), *words, "--store", self.url]
        process = await asyncio.create_subprocess_exec(*command, cwd=PROJECT, stdout=subprocess.DEVNULL)
        if await process.wait():
            raise RuntimeError(f"{' '.join(words)} failed with {process.returncode}")


def _signal_node(data: Path, number: signal.Signals) -> None:
    """Send a signal to all processes of a node, of which the first has started the others."""
    first = int((data / "postmaster.pid").read_text().split()[0])
    children = Path(f"/proc/{first}/task/{first}/children")
    for process in (first, *map(int, children.read_text().split())):
        try:
            os.kill(process, number)
        except ProcessLookupError:  # it has ended
            continue


def measure(options: Options, folder: Path) -> list[report.Bar]:
    if options.store is None:
        print("   nothing is measured without the address of a cluster: --store")
        return []
    cluster = Cluster.of(options.store)
    cluster.create_store(folder)
    url = cluster.service_url()
    folders = [Path(run_sql(cluster.url(node), "SHOW data_directory")[0][0]) for node in range(len(cluster.nodes))]
    with ExitStack() as stack:
        services = [stack.enter_context(serve_store(rotate_hosts(url, index), folder)) for index in range(PROCESSES)]
        load = Load([service.port for service in services], _PARTITIONS)
        brackets = _Brackets(load.ports, lambda: load.ledger.stop)
        asyncio.run(fill_boards(load.ports[0], _BEST_ROWS))
        faults, begun_s = _Faults(cluster, url, services, folders), time.monotonic()
        more = [work(board) for board in (PLAIN, SPLIT) for work in (brackets.post, brackets.check)]
        asyncio.run(load.run(lambda: faults.run(options), more))
    bars = load.make_bars(time.monotonic() - begun_s, [ended_s for _, ended_s, _ in faults.done])
    print(f"   {dict(Counter(kind for kind, _, _ in faults.done))}, brackets: {dict(brackets.posted.answers)}")
    late_s = [
        brackets.current_after_s(ended_s, ended_us)
        for kind, ended_s, ended_us in faults.done
        if kind in ("move", "split")
    ]
    return [
        *bars,
        report.Bar("wrong brackets of boards that change", brackets.posted.wrong.total(), 0, at_most=True),
        report.Bar("brackets as of later than a move or split", max(late_s), _CURRENT_S_MAX, " s", at_most=True),
        report.Bar("posts", load.ledger.count() + brackets.posted.count(), options.rows),
    ]


if __name__ == "__main__":
    report.run_program(
        measure, __doc__, "{rounds} kills, freezes, moves and splits each", rows=100_000, seconds=12, rounds=20
    )

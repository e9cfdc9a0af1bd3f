"""Check ranks while all job processes are killed and two front ends restart one after the other, on PostgreSQL.

python -m benchmarks.jobs_away [--rows N] [--seconds S] [--rounds N]

Readers send requests all the time, and every answer is checked. If a restarting front end refuses a connection, the
reader sends its request to the other front end.

Bars: every answer is a rank. While no job process runs, the `as_of` of the answers does not change. At most 10 s after
the job processes are started again, answers have a newer `as_of`.
"""

import asyncio
import json
import random
import signal
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import report
from benchmarks.boards import BOARD, COLUMN, board_spec, draw_values, fill_board, owner_at
from benchmarks.client import Connection
from benchmarks.options import Options, parse_options
from benchmarks.servers import Server, serve_store
from tests.servers import DURABLE, postgres

FRONT_ENDS = 2
JOB_PROCESSES = 2
REFRESH_S = 1
_READERS = 4
_ROWS = 20_000
_MOVES_S_MAX = 10.0  # the bar; enough for the wait of the schedule, the refresh, and the next poll
_POLLED_S = 3.0  # curve_poll_s plus a second: every front end has polled the stored curve by then
_WAIT_S = 60.0


@dataclass(slots=True)
class Seen:
    statuses: Counter[int] = field(default_factory=Counter)
    methods: Counter[str] = field(default_factory=Counter)
    as_of: set[str] = field(default_factory=set)
    unreachable: int = 0
    stop: bool = False
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    def forget_times(self, last: str) -> None:
        self.as_of = {last}

    async def wait_for_younger(self, known: str) -> float:
        """Wait for an answer with a later `as_of` than `known`. Return the seconds waited."""
        begun = time.monotonic()
        async with asyncio.timeout(_WAIT_S):
            while max(self.as_of, default="") <= known:
                self.answered.clear()
                await self.answered.wait()
        return time.monotonic() - begun


async def ask_until_stopped(front_ends: list[Server], rows: int, seen: Seen, seed: int) -> None:
    """Request the ranks of random owners. If a front end refuses the connection, use the next front end."""
    connections, rng = [Connection(server.port) for server in front_ends], random.Random(seed)
    turn = seed
    while not seen.stop:
        turn += 1
        path = f"/v1/leaderboards/{BOARD}/entries/{owner_at(rng.randrange(rows))}/positions?rank=estimate"
        try:
            status, answer = await connections[turn % FRONT_ENDS].call("GET", path)
        except (OSError, EOFError):
            seen.unreachable += 1
            await asyncio.sleep(0.01)
            continue
        seen.statuses[status] += 1
        if status == 200:
            [position] = json.loads(answer)["positions"]
            seen.methods[position["method"]] += 1
            if position["method"] != "count":  # a count has an `as_of` of its own, which is not the curve's
                seen.as_of.add(position["as_of"])
                seen.answered.set()
    for connection in connections:
        connection.close()


async def post_change(port: int) -> None:
    """Send a post, so that the curve is out of date."""
    connection = Connection(port)
    try:
        await connection.call_ok(
            "POST", f"/v1/leaderboards/{BOARD}/posts", {"posts": [{"owner": owner_at(0), "stats": {COLUMN: 1}}]}
        )
    finally:
        connection.close()


async def restart_everything(
    front_ends: list[Server], jobs: list[Server], seen: Seen, seconds: float
) -> tuple[int, float]:
    """Kill the job processes, restart the front ends one after the other, and start the job processes again.

    Return the number of different `as_of` times seen while no job process ran, and the seconds until a newer `as_of`
    was seen.
    """
    for job in jobs:
        await asyncio.to_thread(job.stop, signal.SIGKILL)
    await asyncio.sleep(_POLLED_S)
    seen.forget_times(max(seen.as_of))
    await post_change(front_ends[0].port)
    for server in front_ends:
        await asyncio.sleep(seconds / (FRONT_ENDS + 1))
        await asyncio.to_thread(server.stop, signal.SIGTERM)
        server.spawn()
        await asyncio.to_thread(server.wait_ready)
    await asyncio.sleep(seconds / (FRONT_ENDS + 1))
    times, last = len(seen.as_of), max(seen.as_of)
    for job in jobs:
        job.spawn()
    for job in jobs:
        await asyncio.to_thread(job.wait_ready)
    return times, await seen.wait_for_younger(last)


async def run_rounds(
    front_ends: list[Server], jobs: list[Server], options: Options
) -> tuple[Seen, list[int], list[float]]:
    body = board_spec([COLUMN]) | {"predictor": {"refresh_seconds": REFRESH_S}}
    owners = [owner_at(index) for index in range(options.rows)]
    await fill_board(front_ends[0].port, BOARD, owners=owners, named={COLUMN: draw_values(options.rows)}, body=body)
    seen, times, moved_s = Seen(), [], []
    async with asyncio.TaskGroup() as group:
        readers = [
            group.create_task(ask_until_stopped(front_ends, options.rows, seen, seed)) for seed in range(_READERS)
        ]
        await seen.wait_for_younger("")
        await asyncio.sleep(_POLLED_S)
        seen.methods.clear()
        for _ in range(options.rounds):
            found, seconds = await restart_everything(front_ends, jobs, seen, options.seconds)
            times.append(found)
            moved_s.append(seconds)
        seen.stop = True
        await asyncio.wait(readers)
    return seen, times, moved_s


def measure(options: Options, folder: Path) -> list[report.Bar]:
    with ExitStack() as stack:
        server = stack.enter_context(postgres(DURABLE))
        url = server.create_database("away")
        front_ends = [stack.enter_context(serve_store(url, folder, jobs="none")) for _ in range(FRONT_ENDS)]
        jobs = [stack.enter_context(serve_store(url, folder)) for _ in range(JOB_PROCESSES)]
        seen, times, moved_s = asyncio.run(run_rounds(front_ends, jobs, options))
    print(f"   {sum(seen.statuses.values()):,} answers {dict(seen.statuses)}, by {dict(seen.methods)},", end=" ")
    print(f"{seen.unreachable:,} connections refused; as_of moved on after {[round(one, 1) for one in moved_s]} s")
    failed = sum(count for status, count in seen.statuses.items() if status != 200)
    return [
        report.Bar("answers that are no rank", failed, 0, at_most=True),
        report.Bar("values of as_of while no job process lived", max(times), 1, at_most=True),
        report.Bar("as_of moved on after the jobs were up", max(moved_s), _MOVES_S_MAX, " s", at_most=True),
        report.Bar("ranks counted because there was no curve", seen.methods["count"], 0, at_most=True),
        report.Bar("ranks from a curve", seen.methods["curve"] + seen.methods["knot"], 1),
    ]


def main() -> int:
    options = parse_options(__doc__, rows=_ROWS, rounds=3, seconds=6)
    title = f"{JOB_PROCESSES} job processes killed, {FRONT_ENDS} front ends restarted, {options.rounds} times"
    return report.run_benchmark(options, title, measure)


if __name__ == "__main__":
    sys.exit(main())

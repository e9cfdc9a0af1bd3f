"""Kill the service 100 times by `kill -9` under load. Check that no post is lost or applied twice, and no id is lost.

python -m benchmarks.kill9 [--kills N]

Clients post all the time. A client repeats a request with the same post ids until the request gets status 200, and then
sends its next request. In the end the store is compared with the answers that the clients got (`ledger`).

Bars: no post is lost, no post is applied twice, no post id is forgotten, and the SQLite file is sound. During at least
90 % of the kills a request is under way.
"""

import asyncio
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks import report
from benchmarks.boards import board_spec, create_board
from benchmarks.ledger import BOARDS, COLUMNS, Ledger, audit_store, fault_bars, post_until_stopped
from benchmarks.options import Options
from benchmarks.servers import Server, run_sql, serve_file
from service.stores import SQLITE_PREFIX

OWNERS = [f"owner-{number}" for number in range(200)]
_CLIENTS = 16
_LOAD_S_MAX = 0.4  # longest time from the first status 200 after a start to the next kill
_PROGRESS_S = 30.0  # after a start, a request must get status 200 within this time, or the run fails


@dataclass(slots=True)
class Kills:
    under_way: int = 0  # number of kills while a request was under way
    start_ms: float = 0.0  # median time from a start until the service is ready


async def kill_and_start(server: Server, ledger: Ledger, kills: int) -> Kills:
    """Kill the service and start it again, `kills` times, while clients are posting."""
    rng, starts_ms, seen = random.Random(9), [], Kills()
    for _ in range(kills):
        ledger.progress.clear()
        async with asyncio.timeout(_PROGRESS_S):
            await ledger.progress.wait()
        await asyncio.sleep(rng.uniform(0, _LOAD_S_MAX))
        seen.under_way += ledger.under_way > 0
        await asyncio.to_thread(server.stop, signal.SIGKILL)
        server.spawn()
        await asyncio.to_thread(server.wait_ready, poll_s=0.005)
        starts_ms.append(1000 * (time.perf_counter() - server.spawned_at))
    seen.start_ms = sorted(starts_ms)[len(starts_ms) // 2]
    return seen


async def run_kills(server: Server, kills: int) -> tuple[Ledger, Counter[str], Kills]:
    ledger = Ledger()
    for board in BOARDS:
        await create_board(server.port, board, board_spec(COLUMNS))
    async with asyncio.TaskGroup() as group:
        for number in range(_CLIENTS):
            group.create_task(post_until_stopped([server.port], f"client-{number}", OWNERS, ledger))
        seen = await kill_and_start(server, ledger, kills)
        ledger.stop = True
    return ledger, await audit_store(server.port, ledger), seen


def measure(options: Options, folder: Path) -> list[report.Bar]:
    store = folder / "kill.db"
    with serve_file(store) as server:
        ledger, faults, seen = asyncio.run(run_kills(server, options.kills))
    sound = run_sql(f"{SQLITE_PREFIX}{store}", "PRAGMA integrity_check") == [("ok",)]
    print(f"   {ledger.count():,} posts settled: {dict(ledger.statuses)}, {ledger.retries:,} requests sent again,")
    print(f"   {seen.under_way} of {options.kills} kills under way, start to ready {seen.start_ms:.0f} ms")
    return [
        *fault_bars(ledger, faults),
        report.Bar("damaged store files", int(not sound), 0, at_most=True),
        report.Bar("committed posts whose answer a kill lost", ledger.statuses["duplicate"], None),
        report.Bar("kills with requests under way", seen.under_way, options.kills * 0.9),
    ]


if __name__ == "__main__":
    report.run_program(measure, __doc__, f"kill -9: {{kills}} times, {_CLIENTS} clients, {len(BOARDS)} boards")

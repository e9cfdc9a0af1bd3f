"""Kill single processes of an embedded store's service under load: the owner process and the fronts, in turn.

    python -m benchmarks.killed_processes [--kills N]

The service has an owner process and two fronts. Clients post as in `kill9`. A checker posts, reads its own entry over a
new connection, which any front may accept, and reads positions on a board that does not change.

Bars: N kills of each kind; no post is lost or applied twice, no id is forgotten, no acknowledged post is missing in the
next read, no bracket is wrong. No read is refused after a front's death, and posts go on at most 1 s after an owner's.
"""

import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.boards import board_spec, create_board
from benchmarks.client import Connection, call_service
from benchmarks.kill9 import OWNERS
from benchmarks.ledger import BOARDS, COLUMNS, Ledger, audit_store, fault_bars, post_until_stopped
from benchmarks.options import Options
from benchmarks.servers import Server, run_sql, serve_file
from service.stores import SQLITE_PREFIX

_FRONTS = 2
_CLIENTS = 8
# Each process lives for longer than the supervisor's `STEADY_S`. Otherwise the supervisor's pauses would grow.
_KILL_EVERY_S = (1.6, 2.2)
_RESENT_MAX = 20_000  # for each path, because sending all of the settled posts again would take minutes
_PROGRESS_S = 30.0  # after a kill, a request must get status 200 within this time, or the run fails
_QUIET, _CHECKER, _QUIET_ROWS = "quiet", "checker", 2_000


@dataclass(slots=True)
class Seen:
    missing: int = 0  # acknowledged posts that were missing in the next read
    wrong: int = 0  # brackets without the true rank
    reads: int = 0
    refused: Counter[str] = field(default_factory=Counter)  # reads that a front refused, by status
    reset: int = 0  # reads whose front was killed while it answered
    posts_back_s: list[float] = field(default_factory=list)  # from an owner's death to the next acknowledged post


async def _read(port: int, path: str, seen: Seen) -> Any:
    """Read until an answer has status 200, and return its body.

    Each attempt uses a new connection, and failed attempts are counted.
    """
    while True:
        connection = Connection(port)
        try:
            status, answer = await connection.call("GET", path)
        except (OSError, EOFError) as error:
            if isinstance(error, ConnectionRefusedError):
                seen.refused["connection"] += 1
            else:
                seen.reset += 1
            continue
        finally:
            connection.close()
        seen.reads += 1
        if status == 200:
            return json.loads(answer)
        seen.refused[str(status)] += 1


async def _check_reads(port: int, ledger: Ledger, seen: Seen) -> None:
    for number in count(1):
        if ledger.stop:
            return
        body = json.dumps({"owner": _CHECKER, "stats": {"xp": 1, "posts": 1}, "post_id": str(number)}).encode()
        while True:
            connection = Connection(port)
            try:
                status, _ = await connection.call("POST", f"/v1/leaderboards/{BOARDS[0]}/posts", body)
            except (OSError, EOFError):
                continue
            finally:
                connection.close()
            if status == 200:
                break
        entry = await _read(port, f"/v1/leaderboards/{BOARDS[0]}/entries/{_CHECKER}", seen)
        seen.missing += entry["stats"]["posts"] != number
        better = number % _QUIET_ROWS
        path = f"/v1/leaderboards/{_QUIET}/entries/{_QUIET_ROWS - better}/positions"
        [position] = (await _read(port, path, seen))["positions"]
        seen.wrong += not position["low"] <= better + 1 <= position["high"]


async def _kill_in_turn(server: Server, store: Path, ledger: Ledger, kills: int, seen: Seen) -> None:
    rng = random.Random(41)
    for number in range(2 * kills):
        await asyncio.sleep(rng.uniform(*_KILL_EVERY_S))
        ledger.progress.clear()
        owner = int((store.parent / f"{store.name}.lock").read_text())
        fronts = [pid for pid in server.list_processes() if pid not in (server.pid, owner)]
        victim = rng.choice(fronts) if number % 2 else owner
        os.kill(victim, signal.SIGKILL)
        killed_s = time.monotonic()
        async with asyncio.timeout(_PROGRESS_S):
            await asyncio.sleep(0.001)  # answers that the victim had sent are on their way
            ledger.progress.clear()
            await ledger.progress.wait()
        if victim == owner:
            seen.posts_back_s.append(time.monotonic() - killed_s)


async def attack(server: Server, store: Path, kills: int) -> tuple[Ledger, Counter[str], Seen]:
    """Kill processes while clients post and read. Return the clients' records, the faults and the observations."""
    ledger, seen, port = Ledger(), Seen(), server.port
    for board in BOARDS:
        await create_board(port, board, board_spec(COLUMNS))
    await create_board(port, _QUIET, board_spec(COLUMNS[:1]))
    for begin in range(1, _QUIET_ROWS + 1, 1_000):
        posts = [{"owner": str(each), "stats": {"xp": each}} for each in range(begin, begin + 1_000)]
        await call_service(port, "POST", f"/v1/leaderboards/{_QUIET}/posts", {"posts": posts})
    async with asyncio.TaskGroup() as group:
        for number in range(_CLIENTS):
            group.create_task(post_until_stopped([port], f"client-{number}", OWNERS, ledger))
        group.create_task(_check_reads(port, ledger, seen))
        await _kill_in_turn(server, store, ledger, kills, seen)
        ledger.stop = True
    return ledger, await audit_store(port, ledger, resent_max=_RESENT_MAX), seen


def measure(options: Options, folder: Path) -> list[report.Bar]:
    store = folder / "kill.db"
    with serve_file(store, environment={"RANKCURVE_WORKERS": str(_FRONTS)}) as server:
        ledger, faults, seen = asyncio.run(attack(server, store, options.kills))
    sound = run_sql(f"{SQLITE_PREFIX}{store}", "PRAGMA integrity_check") == [("ok",)]
    back_s = sorted(seen.posts_back_s)
    print(f"   {ledger.count():,} posts settled: {dict(ledger.statuses)}, {ledger.retries:,} requests sent again,")
    print(f"   {seen.reads:,} reads, {seen.reset} reset by a kill, refused {dict(seen.refused)};")
    print(f"   from an owner's death to the next post: median {1000 * back_s[len(back_s) // 2]:.0f} ms")
    return [
        *fault_bars(ledger, faults),
        report.Bar("damaged store files", int(not sound), 0, at_most=True),
        report.Bar("acknowledged posts missing in the next read", seen.missing, 0, at_most=True),
        report.Bar("wrong brackets", seen.wrong, 0, at_most=True),
        report.Bar("refused reads", seen.refused.total(), 0, at_most=True),
        report.Bar("longest time from an owner's death to the next post, s", back_s[-1], 1.0, at_most=True),
    ]


if __name__ == "__main__":
    report.run_program(measure, __doc__, f"kill -9 of single processes: {{kills}} of each kind, {_CLIENTS} clients")

"""Check that restarts of PostgreSQL lose no post and repeat none. Measure how soon each process takes posts again.

python -m benchmarks.postgres_restarts [--seconds S]

The PostgreSQL server runs with fsync on. The benchmark restarts it five times as if it had crashed, and ends a random
session every 2 s, as an operator might. Four processes with 16 posters each post to the same 1,000 owners. A client
repeats a request until its answer has status 200 (`ledger`).

Bars: no post is lost or applied twice, no post id is forgotten, and no answer names a deadlock. Every process
acknowledges a post at most 5 s after the server takes connections again.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from benchmarks import report
from benchmarks.boards import board_spec, create_board
from benchmarks.ledger import BOARDS, COLUMNS, Ledger, audit_store, fault_bars, post_until_stopped, print_ledger
from benchmarks.options import Options
from benchmarks.servers import serve_store
from tests.servers import DURABLE, PostgresServer, postgres

T = TypeVar("T")
PROCESSES = 4
POSTERS = 16  # posters per process
OWNERS = [f"owner-{number}" for number in range(1000)]
RESENT_MAX = 20_000  # this many posts of each path are sent again at the end
_RESTARTS = 5
_TERMINATE_EVERY_S = 2.0
_AFTER_S = 5.0  # the load continues for at least this long after the last restart
_TERMINATE = (
    "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity"
    " WHERE application_name = 'rankcurve' ORDER BY random() LIMIT 1) AS chosen"
)


@dataclass(slots=True)
class Attack:
    terminated: int = 0
    back_at: list[float] = field(default_factory=list)  # when each restart was complete, on the monotonic clock


async def terminate_back_ends(server: PostgresServer, attack: Attack, ledger: Ledger) -> None:
    """End a random database session every 2 s, unless the server is unreachable."""
    while not ledger.stop:
        with contextlib.suppress(RuntimeError):
            attack.terminated += int(await asyncio.to_thread(server.run_sql, _TERMINATE))
        await asyncio.sleep(_TERMINATE_EVERY_S)


async def restart_repeatedly(server: PostgresServer, attack: Attack, seconds: float) -> None:
    """Restart the server five times within `seconds` seconds, each time as if the server had crashed."""
    for _ in range(_RESTARTS):
        await asyncio.sleep(seconds / (_RESTARTS + 1))
        await asyncio.to_thread(server.restart, "immediate")
        attack.back_at.append(time.monotonic())
    await asyncio.sleep(max(_AFTER_S, seconds / (_RESTARTS + 1)))


async def run_restarts(ports: list[int], server: PostgresServer, seconds: float) -> tuple[Ledger, Attack, Counter[str]]:
    attack = Attack()

    async def attacked(ledger: Ledger) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(terminate_back_ends(server, attack, ledger))
            await restart_repeatedly(server, attack, seconds)
            ledger.stop = True

    ledger, _, faults = await attack_under_load(ports, attacked)
    return ledger, attack, faults


async def attack_under_load(
    ports: list[int], attack: Callable[[Ledger], Awaitable[T]]
) -> tuple[Ledger, T, Counter[str]]:
    """Run the posters while `attack` disturbs the store.

    Return the posters' ledger, the result of `attack`, and the faults found in the store.
    """
    ledger = Ledger()
    for board in BOARDS:
        await create_board(ports[0], board, board_spec(COLUMNS))
    async with asyncio.TaskGroup() as group:
        for index in range(PROCESSES * POSTERS):
            first = index % PROCESSES
            own_first = [*ports[first:], *ports[:first]]
            group.create_task(post_until_stopped(own_first, f"client-{index}", OWNERS, ledger))
        done = await attack(ledger)
        ledger.stop = True
    return ledger, done, await audit_store(ports[0], ledger, resent_max=RESENT_MAX)


def measure(options: Options, folder: Path) -> list[report.Bar]:
    with ExitStack() as stack:
        server = stack.enter_context(postgres(DURABLE))
        url = server.create_database("restarts")
        services = [stack.enter_context(serve_store(url, folder)) for _ in range(PROCESSES)]
        ports = [service.port for service in services]
        ledger, attack, faults = asyncio.run(run_restarts(ports, server, options.seconds))
        deadlocks = server.log.count("deadlock detected")
    back_s = [[ledger.first_after_s(port, at) for port in ports] for at in attack.back_at]
    report.print_table(
        ["restart", *(f"process {index + 1}: s to first post" for index in range(PROCESSES))],
        [[f"{index + 1}", *row] for index, row in enumerate(back_s)],
    )
    print_ledger(ledger, options.seconds)
    return [
        *fault_bars(ledger, faults),
        report.Bar("slowest first post after a restart", max(max(row) for row in back_s), 5, " s", at_most=True),
        report.Bar("deadlocks that the server saw", deadlocks, None),
        report.Bar("restarts", len(attack.back_at), _RESTARTS),
        report.Bar("sessions ended", attack.terminated, options.seconds / _TERMINATE_EVERY_S / 2),
        report.Bar("committed posts whose answer was lost", ledger.statuses["duplicate"], None),
    ]


if __name__ == "__main__":
    report.run_program(
        measure,
        __doc__,
        f"PostgreSQL restarted {_RESTARTS} times in {{seconds:.0f}} s: {PROCESSES} processes x {POSTERS} posters",
        seconds=120,
    )

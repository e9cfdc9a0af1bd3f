"""Let 64 clients on four processes race for the places and the attempts of boards with entry rules.

python -m benchmarks.joins [--rounds N]

Each round is a race on a board of 300 places with three attempts each, for which 450 owners compete. In every second
round, owners have to join first. On PostgreSQL, boards are in tables of their own, in a shared table, and in segments.
Between two heats of a race, a quarter of the owners is erased, so that their places are free again. The races run on a
SQLite store (an owner process and three fronts) and on PostgreSQL.

Bars: no race ends with more or fewer owners or posts than the rules allow, and no request is refused while a place is
free or an attempt is left.
"""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.options import Options
from benchmarks.servers import Server, serve_file, serve_store
from tests.servers import DURABLE, postgres
from tests.service.entry_races import EntryRace
from tests.service.real_service import Caller

CLIENTS, PROCESSES, OWNERS_MAX, POSTS_MAX = 64, 4, 300, 3
LAYOUTS: dict[str, list[dict[str, Any]]] = {
    "SQLite": [{}, {"segments": 4}],
    "PostgreSQL": [{}, {"table": "shared"}, {"segments": 4}],
}


async def run_races(
    servers: list[Server], layouts: list[dict[str, Any]], rounds: int
) -> tuple[list[str], Counter[str]]:
    """Return the faults of all races, and the codes of their answers."""
    faults: list[str] = []
    codes = Counter[str]()
    async with AsyncExitStack() as stack:
        callers = [
            await stack.enter_async_context(Caller(servers[number % len(servers)].url)) for number in range(PROCESSES)
        ]
        for number in range(rounds):
            for at, layout in enumerate(layouts):
                race = EntryRace(callers, f"cup-{number}-{at}", number % 2 > 0, OWNERS_MAX, POSTS_MAX, CLIENTS)
                await race.run(**layout)
                faults += race.faults
                codes += race.codes
    return faults, codes


def measure(options: Options, folder: Path) -> list[report.Bar]:
    bars = []
    with ExitStack() as stack:
        url = stack.enter_context(postgres(DURABLE)).url()
        on_file = [stack.enter_context(serve_file(folder / "joins.db", workers=PROCESSES - 1))]
        on_server = [
            stack.enter_context(serve_store(url, folder, jobs="none" if number else "embedded"))
            for number in range(PROCESSES)
        ]
        for store, servers in (("SQLite", on_file), ("PostgreSQL", on_server)):
            faults, codes = asyncio.run(run_races(servers, LAYOUTS[store], options.rounds))
            print(f"   {store}: {dict(codes)}", *faults[:3], sep="\n   ")
            bars.append(report.Bar(f"{store}: places or attempts too many or too few", len(faults), 0, at_most=True))
            bars.append(report.Bar(f"{store}: requests", codes.total(), None))
    return bars


if __name__ == "__main__":
    report.run_program(
        measure, __doc__, f"{CLIENTS} clients, {PROCESSES} processes: {{rounds}} rounds of races", rounds=2
    )

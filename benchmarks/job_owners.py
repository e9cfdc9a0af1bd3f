"""Measure how soon curves are refreshed again after a job process is killed, or stopped, in the middle of a refresh.

python -m benchmarks.job_owners [--rows N] [--rounds N]

Three job processes share one PostgreSQL database. The owner of a refresh is the process that holds the lease of this
refresh. A stopped owner does nothing for longer than its lease lasts; afterwards the owner is *fenced*: it must not
store its curve. For this measurement only, a trigger in the database records each stored curve with its `as_of` and the
fencing number of its lease. If a fenced owner had stored a curve, its `as_of` or its fencing number would not be
greater than that of the curve before. An owner counts as killed while refreshing if its lease is still in the database
after the kill.

Bars: after a kill every curve is refreshed again at most 5 s after the end of the lease. Fenced owners store no curve.
"""

import asyncio
import random
import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks import report
from benchmarks.boards import COLUMN, fill_board, owner_at
from benchmarks.client import Connection, read_metrics
from benchmarks.options import Options
from benchmarks.servers import Server, serve_store
from tests.servers import DURABLE, postgres

PROCESSES = 3
BOARDS = [f"owned-{number}" for number in range(6)]
REFRESH_S = 2
LEASE_S = 4.0
MARGIN_S = 0.5
_LATE_S = 5.0  # the bar: the longest time from the end of a lease to the next refresh of its curve
_ROWS = 50_000  # rows of each board; so many that a refresh still runs when the signal comes
_POST_EVERY_S = 0.2
_WAIT_S = 60.0
_RECORD = (
    "CREATE TABLE stored (board_key bigint, version bigint, as_of bigint, fence bigint, at bigint)",
    """CREATE FUNCTION record_stored() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO stored SELECT NEW.leaf_key, NEW.version, NEW.as_of, leases.version,
        (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
        FROM leases WHERE kind = 'refresh' AND resource = NEW.leaf_key || '/' || NEW.column_index;
    RETURN NEW; END $$""",
    "CREATE TRIGGER record_stored AFTER INSERT OR UPDATE ON curves FOR EACH ROW EXECUTE FUNCTION record_stored()",
)
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_HELD = "SELECT resource, version, expires_at FROM leases WHERE kind = 'refresh' AND holder LIKE $1 AND expires_at > 0"


@dataclass(slots=True)
class Figures:
    killed_while_refreshing: int = 0
    stopped_while_refreshing: int = 0
    refreshed_after_s: list[float] = field(default_factory=list)  # seconds from each kill to the refresh of each curve
    # Seconds from the end of a killed owner's lease to the refresh of the curve that the lease was for.
    past_expiry_s: list[float] = field(default_factory=list)
    bound_s: list[float] = field(default_factory=list)  # after each kill: from the last refresh to the limit of the bar
    fenced: int = 0


class Observer:
    """Reads leases and stored curves directly from the database, without the service."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def held_leases(self, server: Server) -> list[Any]:
        """Return the refresh leases that a process holds, each as (resource, fencing number, expiry)."""
        rows: list[Any] = await self._connection.fetch(_HELD, f"%/{server.pid}/%")
        return rows

    async def read_clock_us(self) -> int:
        return int(await self._connection.fetchval(_NOW))

    async def wait_for_refreshes(self, after_us: int) -> dict[int, int]:
        """Wait until every board has a curve whose `as_of` is later than `after_us`.

        Return the time at which the first such curve was stored, by board key.
        """
        query = "SELECT board_key, min(at) FROM stored WHERE as_of > $1 GROUP BY board_key"
        until = time.monotonic() + _WAIT_S
        while time.monotonic() < until:
            rows = await self._connection.fetch(query, after_us)
            if len(rows) == len(BOARDS):
                return {row[0]: row[1] for row in rows}
            await asyncio.sleep(0.05)
        raise TimeoutError(f"after {_WAIT_S:.0f} s {len(rows)} of {len(BOARDS)} curves were refreshed")

    async def signal_while_refreshing(self, server: Server, signal_number: int) -> tuple[list[Any], int]:
        """Send a signal to a process as soon as it is refreshing a curve.

        Return the leases that the process holds just after the signal, and the time of the signal.
        """
        until = time.monotonic() + _WAIT_S
        while time.monotonic() < until:
            if await self.held_leases(server):
                server.send_signal(signal_number)
                at_us = await self.read_clock_us()
                await asyncio.sleep(0.1)  # by then, a commit that was under way has ended or never will
                held = await self.held_leases(server)
                if held or signal_number == signal.SIGKILL:
                    return held, at_us
                server.send_signal(signal.SIGCONT)
        raise TimeoutError("the process refreshes nothing")

    async def count_wrong_stores(self) -> int:
        """Count the stored curves whose `as_of` or fencing number is not greater than that of the previous curve."""
        rows = await self._connection.fetch("SELECT board_key, as_of, fence FROM stored ORDER BY board_key, version")
        pairs = [(one, next_) for one, next_ in pairwise(rows) if one[0] == next_[0]]
        return sum(next_[1] <= one[1] or next_[2] <= one[2] for one, next_ in pairs)


async def keep_changing(port: int) -> None:
    """Post to every board until cancelled, so that each curve is due for a refresh after every refresh interval."""
    connection, rng = Connection(port), random.Random(5)
    while True:
        for board in BOARDS:
            posts = [{"owner": owner_at(rng.randrange(1000)), "stats": {COLUMN: rng.randint(1, 9)}} for _ in range(5)]
            await connection.call_ok("POST", f"/v1/leaderboards/{board}/posts", {"posts": posts})
        await asyncio.sleep(_POST_EVERY_S)


async def kill_owner(observer: Observer, server: Server, figures: Figures) -> None:
    """Kill an owner in the middle of a refresh, wait until every curve is refreshed, and start the process again."""
    held, at_us = await observer.signal_while_refreshing(server, signal.SIGKILL)
    await asyncio.to_thread(server.stop, signal.SIGKILL)
    stored_at = await observer.wait_for_refreshes(at_us)
    after_s = {key: (stored - at_us) / 1e6 for key, stored in stored_at.items()}
    figures.refreshed_after_s += after_s.values()
    figures.killed_while_refreshing += bool(held)
    longest_s = max(((row["expires_at"] - at_us) / 1e6 for row in held), default=0.0)
    figures.bound_s.append(longest_s + _LATE_S - max(after_s.values()))
    for row in held:
        key = int(row["resource"].partition("/")[0])
        figures.past_expiry_s.append((stored_at[key] - row["expires_at"]) / 1e6)
    server.spawn()
    await asyncio.to_thread(server.wait_ready)


async def freeze_owner(observer: Observer, server: Server, figures: Figures) -> None:
    """Stop an owner in the middle of a refresh, and let it continue once other processes have refreshed every curve."""
    held, at_us = await observer.signal_while_refreshing(server, signal.SIGSTOP)
    figures.stopped_while_refreshing += bool(held)
    try:
        await observer.wait_for_refreshes(at_us)
    finally:
        server.send_signal(signal.SIGCONT)
    await observer.wait_for_refreshes(await observer.read_clock_us())


async def run_rounds(front_end: Server, jobs: list[Server], url: str, options: Options) -> tuple[Figures, int]:
    """Kill one process and stop another in each round.

    Return the figures, and the number of curves stored out of order.
    """
    for board in BOARDS:
        await fill_board(front_end.port, board, rows=options.rows, fields={"predictor": {"refresh_seconds": REFRESH_S}})
    connection = await asyncpg.connect(url)
    observer, figures = Observer(connection), Figures()
    changing = asyncio.create_task(keep_changing(front_end.port))
    try:
        await observer.wait_for_refreshes(await observer.read_clock_us())
        for turn in range(options.rounds):
            stopped = jobs[(turn + 1) % PROCESSES]
            await kill_owner(observer, jobs[turn % PROCESSES], figures)
            await freeze_owner(observer, stopped, figures)
            metrics = await asyncio.to_thread(read_metrics, stopped.port)
            figures.fenced += round(metrics["rankcurve_refreshes_fenced_total"])
        return figures, await observer.count_wrong_stores()
    finally:
        changing.cancel()
        await asyncio.gather(changing, return_exceptions=True)
        await connection.close()


def measure(options: Options, folder: Path) -> list[report.Bar]:
    environment = {
        "RANKCURVE_LEASE_S": str(LEASE_S),
        "RANKCURVE_LEASE_MARGIN_S": str(MARGIN_S),
        "RANKCURVE_FOLD_LAG_ROWS_MAX": "1",  # no curve is kept live, so only a curve's age makes it due
    }
    with ExitStack() as stack:
        server = stack.enter_context(postgres(DURABLE))
        url = server.create_database("owners")
        front_end = stack.enter_context(serve_store(url, folder, jobs="none", environment=environment))
        server.run_sql(*_RECORD, database="owners")
        jobs = [stack.enter_context(serve_store(url, folder, environment=environment)) for _ in range(PROCESSES)]
        figures, wrong = asyncio.run(run_rounds(front_end, jobs, url, options))
    after, past = sorted(figures.refreshed_after_s), max(figures.past_expiry_s, default=0.0)
    print(f"   curves refreshed after a kill: median {after[len(after) // 2]:.2f} s, last {after[-1]:.2f} s")
    return [
        report.Bar("time left until lease expiry + 5 s, last curve of a kill", min(figures.bound_s), 0, " s"),
        report.Bar("a killed owner's curve, past its lease's expiry", past, _LATE_S, " s", at_most=True),
        report.Bar("curves stored by a fenced owner", wrong, 0, at_most=True),
        report.Bar("kills in the middle of a refresh", figures.killed_while_refreshing, 1),
        report.Bar("owners stopped in the middle of a refresh", figures.stopped_while_refreshing, 1),
        report.Bar("curves that a fenced owner tried to store, or gave up", figures.fenced, 1),
    ]


if __name__ == "__main__":
    report.run_program(
        measure,
        __doc__,
        f"{PROCESSES} job processes, {len(BOARDS)} boards of {{rows:,}}: {{rounds}} owners killed, {{rounds}} stopped",
        rows=_ROWS,
        rounds=6,
    )

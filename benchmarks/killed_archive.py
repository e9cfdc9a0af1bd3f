"""Measure how soon another process goes on after the one that closes, or archives, a season was killed.

    python -m benchmarks.killed_archive [--rows N]

The season has 50,000 owners, on PostgreSQL with two job processes. The closing one is killed while it fits a final
curve, and its successor while it writes the archive. The store itself says which process works. The survivor has taken
over once it holds the lease on closing and the board moves on under it. Leases have their default length.

Bar: at most `lease_s` + 2 s after each kill.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks import report
from benchmarks.boards import owner_at
from benchmarks.client import Connection
from benchmarks.options import Options, parse_options
from benchmarks.servers import Server, serve_jobs, serve_store
from config import Settings
from tests.servers import DURABLE, postgres

BOARD = "season"
PROCESSES = 2
_LATE_S = 2.0  # more than one lease, which includes the margin of the store's clock
_WAIT_S = 120.0
_BATCH = 1_000
_COLUMNS = [f"c{number}" for number in range(6)]
_PATH = f"/v1/leaderboards/{BOARD}"
_CLOSER = "SELECT holder FROM leases WHERE pool = 'job' AND resource = 'close' AND expires_at > 0"
_FITTER = """SELECT leases.holder FROM leases JOIN boards ON resource LIKE board_key || '/%'
    WHERE pool = 'refresh' AND boards.id = $1 AND stage = 1 AND expires_at > 0"""
_MOVED = """SELECT (SELECT coalesce(max(version), 0) FROM curves), (SELECT count(*) FROM archive_blocks),
    (SELECT stage FROM boards WHERE id = $1)"""


def season_spec(ends_at: datetime) -> dict[str, Any]:
    """Return the spec of a board that gives up its rows when it is closed."""
    columns = [{"name": name, "sorted": True, "merge": "sum"} for name in _COLUMNS]
    return {"columns": columns, "closes_at": ends_at.isoformat(), "grace_seconds": 0, "keep_seconds": 0}


async def fill_season(port: int, rows: int) -> None:
    """Fill a season, and let it end a second later."""
    connection, rng = Connection(port), random.Random(15)
    await connection.call_ok("PUT", _PATH, season_spec(datetime.now(UTC) + timedelta(days=1)))
    for begin in range(0, rows, _BATCH):
        numbers = range(begin, min(rows, begin + _BATCH))
        posts = [
            {"owner": owner_at(each), "stats": {name: rng.randrange(10**6) for name in _COLUMNS}} for each in numbers
        ]
        await connection.call_ok("POST", f"{_PATH}/posts", {"posts": posts})
    await connection.call_ok("PUT", _PATH, season_spec(datetime.now(UTC) + timedelta(seconds=1)))
    connection.close()


async def wait_until(what: str, found: Callable[[], Awaitable[bool]]) -> None:
    """Wait until the condition holds."""
    until_s = time.monotonic() + _WAIT_S
    while not await found():
        if time.monotonic() > until_s:
            raise TimeoutError(f"{what} did not come within {_WAIT_S:.0f} s")
        await asyncio.sleep(0.01)


class Season:
    """The board as the store has it."""

    def __init__(self, database: Any, jobs: list[Server]) -> None:
        self._database, self._jobs = database, jobs

    async def find_closer(self) -> Server | None:
        """Return the process that has the lease on closing, or None."""
        holder = await self._database.fetchval(_CLOSER)
        return next((each for each in self._jobs if holder and f"/{each.pid}/" in holder), None)

    async def is_fitted(self) -> bool:
        """Return whether the closer is at a final curve."""
        closer, holder = await self.find_closer(), await self._database.fetchval(_FITTER, BOARD)
        return closer is not None and holder is not None and f"/{closer.pid}/" in holder

    async def is_written(self) -> bool:
        """Return whether a part of the archive is stored, and not all of it."""
        _, blocks, stage = await self._database.fetchrow(_MOVED, BOARD)
        return bool(blocks) and stage < 3

    async def kill_closer(self) -> float:
        """Kill the closer. Return the seconds until the board moves on under another one."""
        victim = await self.find_closer()
        assert victim is not None
        victim.send_signal(signal.SIGKILL)
        begun_s = time.monotonic()
        before: Any = None

        async def moved() -> bool:
            nonlocal before
            closer = await self.find_closer()
            now = await self._database.fetchrow(_MOVED, BOARD)
            if closer is None or closer is victim:
                before = now  # the survivor refreshes curves meanwhile, as it always does
                return False
            return bool(now != before) or await self.is_fitted()

        await wait_until("another closer", moved)
        took_s = time.monotonic() - begun_s
        await asyncio.to_thread(victim.stop, signal.SIGKILL)
        victim.spawn()
        await asyncio.to_thread(victim.wait_ready)
        return took_s


async def kill_closers(url: str, jobs: list[Server]) -> tuple[float, float]:
    """Return the seconds from each kill until closing, and archiving, went on."""
    database = await asyncpg.connect(url)
    try:
        board = Season(database, jobs)
        await wait_until("a final curve", board.is_fitted)
        fitting_s = await board.kill_closer()
        await wait_until("a part of the archive", board.is_written)
        return fitting_s, await board.kill_closer()
    finally:
        await database.close()


def measure(options: Options, folder: Path) -> list[report.Bar]:
    bound_s = Settings().lease_s + _LATE_S
    with ExitStack() as stack:
        url = stack.enter_context(postgres(DURABLE)).url()
        front = stack.enter_context(serve_store(url, folder, jobs="none"))
        asyncio.run(fill_season(front.port, options.rows))
        jobs = [stack.enter_context(serve_jobs(url, folder)) for _ in range(PROCESSES)]
        fitting_s, archiving_s = asyncio.run(kill_closers(url, jobs))
    return [
        report.Bar("closing goes on after a kill at a final curve", fitting_s, bound_s, " s", at_most=True),
        report.Bar("archiving goes on after a kill at the archive", archiving_s, bound_s, " s", at_most=True),
    ]


def main() -> int:
    options = parse_options(__doc__, rows=50_000)
    title = f"killed archive: a season of {options.rows:,} owners and {len(_COLUMNS)} columns, its closer killed twice"
    return report.run_benchmark(options, title, measure)


if __name__ == "__main__":
    sys.exit(main())

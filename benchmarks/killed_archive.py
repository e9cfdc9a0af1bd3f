"""Measure how soon another process takes over after the process that closes, or archives, a season was killed.

python -m benchmarks.killed_archive [--rows N]

The season has 50,000 owners, on PostgreSQL with two job processes. The closing process is killed while it fits a final
curve. The second process takes over, and is killed while it writes the archive. The leases in the database show which
process works. A process has taken over once it holds the lease on closing and has begun to work: it fits a final curve,
or has changed the board's curves, archive or stage of closing. Leases have their default length.

Bar: after each kill, the other process takes over within `lease_s` + 2 s.
"""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks import report
from benchmarks.boards import BOARD, board_spec, column_names, create_board, fill_board
from benchmarks.options import Options
from benchmarks.servers import Server, serve_jobs, serve_store
from config import Settings
from tests.servers import DURABLE, postgres

PROCESSES = 2
_LATE_S = 2.0  # the bar allows a lease plus this time, which includes the margin of the lease
_WAIT_S = 120.0
_COLUMNS = 6
_CLOSER = "SELECT holder FROM leases WHERE kind = 'job' AND resource = 'close' AND expires_at > 0"
_FITTER = """SELECT leases.holder FROM leases JOIN boards ON resource LIKE board_key || '/%'
    WHERE leases.kind = 'refresh' AND boards.id = $1 AND stage = 1 AND expires_at > 0"""
_MOVED = """SELECT (SELECT coalesce(max(version), 0) FROM curves), (SELECT count(*) FROM archive_blocks),
    (SELECT stage FROM boards WHERE id = $1)"""


async def fill_season(port: int, rows: int) -> None:
    """Fill a season that is archived as soon as it is closed, then set its end to one second from now."""
    fields = {"closes_at": _after(timedelta(days=1)), "grace_seconds": 0, "keep_seconds": 0}
    await fill_board(port, BOARD, rows=rows, columns=_COLUMNS, fields=fields, refresh=False)
    ended = {**board_spec(column_names(_COLUMNS)), **fields, "closes_at": _after(timedelta(seconds=1))}
    await create_board(port, BOARD, ended)


def _after(time: timedelta) -> str:
    return (datetime.now(UTC) + time).isoformat()


async def wait_until(what: str, found: Callable[[], Awaitable[bool]]) -> None:
    until_s = time.monotonic() + _WAIT_S
    while not await found():
        if time.monotonic() > until_s:
            raise TimeoutError(f"{what} did not come within {_WAIT_S:.0f} s")
        await asyncio.sleep(0.01)


class Season:
    """Reads the board's state from the database, and kills the process that is closing the board."""

    def __init__(self, database: Any, jobs: list[Server]) -> None:
        self._database, self._jobs = database, jobs

    async def find_closer(self) -> Server | None:
        """Return the process that holds the lease on closing, or None if no process does."""
        holder = await self._database.fetchval(_CLOSER)
        return next((each for each in self._jobs if holder and f"/{each.pid}/" in holder), None)

    async def is_fitted(self) -> bool:
        """Return whether the closing process is fitting a final curve."""
        closer, holder = await self.find_closer(), await self._database.fetchval(_FITTER, BOARD)
        return closer is not None and holder is not None and f"/{closer.pid}/" in holder

    async def is_written(self) -> bool:
        """Return whether the archive is stored in part, but not completely."""
        _, blocks, stage = await self._database.fetchrow(_MOVED, BOARD)
        return bool(blocks) and stage < 3

    async def kill_closer(self) -> float:
        """Kill the process that holds the lease on closing. Return the seconds until another process has taken over."""
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
                before = now  # changes before the takeover do not count: they come from ordinary refreshes
                return False
            return bool(now != before) or await self.is_fitted()

        await wait_until("another closer", moved)
        took_s = time.monotonic() - begun_s
        await asyncio.to_thread(victim.stop, signal.SIGKILL)
        victim.spawn()
        await asyncio.to_thread(victim.wait_ready)
        return took_s


async def kill_closers(url: str, jobs: list[Server]) -> tuple[float, float]:
    """Kill the process that fits, then the process that archives. Return the seconds until each takeover."""
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


if __name__ == "__main__":
    report.run_program(
        measure,
        __doc__,
        f"a season of {{rows:,}} owners and {_COLUMNS} columns, its closer killed twice",
        rows=50_000,
    )

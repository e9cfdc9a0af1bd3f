"""Compare brackets with what was posted up to their `as_of`, while posts arrive all the time, on both stores.

python -m benchmarks.brackets_as_of [--rows N] [--seconds S]

Each post brings a new owner with the best value, so it moves every other owner down by one rank. An answer with
the time `as_of` must count all posts that were answered before this time, and none that was sent after it. The answers
are those about one board, about a board with segments in four partitions, and about both added up (`with`).

Bars: no bracket lies outside of what `as_of` allows, no rank of one board asked for with `rank=exact` is an estimate,
and some posts arrived between the reads.
"""

import asyncio
import random
import time
from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.boards import COLUMN, fill_board, owner_at
from benchmarks.client import Connection
from benchmarks.journal_partitions import prepare_store
from benchmarks.options import Options
from benchmarks.servers import serve_store
from service.stores import SQLITE_PREFIX
from tests.servers import DURABLE, postgres

PLAIN, SPLIT = "plain", "split"
BEST = 10**9
_POSTERS = 4
_READERS = 8
_SAMPLES = 50
_MODES = ("auto", "exact", "estimate")


@dataclass(slots=True)
class Posted:
    """The times at which each board's posts were sent and answered, in microseconds since 1970, ascending."""

    sent_us: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    answered_us: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    answers: Counter[str] = field(default_factory=Counter)  # checked positions, by kind
    wrong: Counter[str] = field(default_factory=Counter)

    def count(self) -> int:
        return sum(map(len, self.answered_us.values()))

    def check(self, kind: str, boards: tuple[str, ...], first_rank: int, position: dict[str, Any]) -> None:
        """Check a bracket, given the rank before any post, and check that `rank=exact` has returned an exact rank."""
        as_of_us = to_us(position["as_of"])
        least = first_rank + sum(bisect_left(self.answered_us[board], as_of_us) for board in boards)
        most = first_rank + sum(bisect_right(self.sent_us[board], as_of_us) for board in boards)
        self.answers[kind] += 1
        estimated = "exact" in kind and len(boards) == 1 and not position["exact"]
        self.wrong[kind] += position["high"] < least or position["low"] > most or estimated


def to_us(text: str) -> int:
    at = datetime.fromisoformat(text)
    return round(at.replace(microsecond=0).timestamp()) * 1_000_000 + at.microsecond


def _now_us() -> int:
    return time.time_ns() // 1000


async def fill_boards(port: int, rows: int) -> None:
    """Create and fill both boards. The owner at index n has the value n, so that each owner has a rank of its own."""
    predictor = {"samples": _SAMPLES, "exact_top": 10, "refresh_seconds": 1}
    for board, more in ((PLAIN, {}), (SPLIT, {"segments": 4})):
        columns = [{"name": COLUMN, "sorted": True, "merge": "max"}]
        fields = {"columns": columns, "predictor": predictor, **more}
        await fill_board(port, board, rows=rows, draw=lambda rows, _: range(rows), fields=fields)


async def _post(port: int, name: str, posted: Posted, until_s: float) -> None:
    connection, rng, number = Connection(port), random.Random(name), 0
    while time.monotonic() < until_s:
        board, number = rng.choice((PLAIN, SPLIT)), number + 1
        insort(posted.sent_us[board], _now_us())
        body = {"owner": f"{name}-{number}", "stats": {COLUMN: BEST}}
        await connection.call_ok("POST", f"/v1/leaderboards/{board}/posts", body)
        insort(posted.answered_us[board], _now_us())
    connection.close()


async def _read(port: int, rows: int, name: str, posted: Posted, until_s: float) -> None:
    connection, rng = Connection(port), random.Random(name)
    while time.monotonic() < until_s:
        number, mode, board = rng.randrange(rows), rng.choice(_MODES), rng.choice((PLAIN, SPLIT))
        kind = rng.choice(("owner", "next", "value", "with"))
        boards: tuple[str, ...] = (board,)
        first_rank = rows - number
        if kind == "with":
            boards, first_rank = (PLAIN, SPLIT), 2 * (rows - number) - 1
        if kind in ("owner", "next"):
            path = f"entries/{owner_at(number)}/positions?rank={mode}&next={'true' if kind == 'next' else 'false'}"
        else:
            path = f"rankings/{COLUMN}/positions?values={number}&rank={mode}" + f"&with={SPLIT}" * (kind == "with")
        answer = await connection.call_ok("GET", f"/v1/leaderboards/{boards[0]}/{path}")
        (position,) = answer["positions"]
        name_of_kind = f"{'+'.join(boards)} {kind} {mode} {position['method']}"
        posted.check(name_of_kind, boards, first_rank, position)
        if kind == "next" and number < rows - 1:
            posted.check(f"{name_of_kind}, the next", boards, first_rank - 1, position["next"])
    connection.close()


async def check_brackets(port: int, rows: int, seconds: float) -> Posted:
    """Post and read for some seconds, on boards that have been filled before."""
    await fill_boards(port, rows)
    posted, until_s = Posted(), time.monotonic() + seconds
    async with asyncio.TaskGroup() as group:
        for number in range(_POSTERS):
            group.create_task(_post(port, f"poster-{number}", posted, until_s))
        for number in range(_READERS):
            group.create_task(_read(port, rows, f"reader-{number}", posted, until_s))
    return posted


def measure(options: Options, folder: Path) -> list[report.Bar]:
    with postgres(DURABLE) as cluster:
        url = cluster.create_database("brackets")
        asyncio.run(prepare_store(url))
        stores = {"SQLite": f"{SQLITE_PREFIX}{folder / 'brackets.db'}", "PostgreSQL, 4 partitions": url}
        return [bar for name, each in stores.items() for bar in measure_on(name, each, options, folder)]


def measure_on(name: str, url: str, options: Options, folder: Path) -> list[report.Bar]:
    with serve_store(url, folder) as server:
        posted = asyncio.run(check_brackets(server.port, options.rows, options.seconds))
    wrong = {kind: count for kind, count in posted.wrong.items() if count}
    print(f"   {name}: {posted.count():,} posts, {posted.answers.total():,} brackets, wrong: {wrong}")
    return [
        report.Bar(f"{name}: brackets that as_of or the mode does not allow", posted.wrong.total(), 0, at_most=True),
        report.Bar(f"{name}: posts meanwhile", posted.count(), 100),
    ]


if __name__ == "__main__":
    report.run_program(measure, __doc__, "brackets as of as_of: {rows:,} owners, {seconds:g} s", rows=5_000, seconds=20)

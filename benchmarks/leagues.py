"""Measure a league: posts beside reads of own cohorts, then the closing of all cohorts while posts go on, then kills.

    python -m benchmarks.leagues [--rows N] [--seconds S] [--kills N]

N owners post first, spread over 10 divisions with cohorts of 30. For S seconds, batches of 25 posts and reads of own
cohorts come at a steady rate. Then the period ends, and batches come until all owners have moved. Measured on SQLite
and PostgreSQL. Then leagues of fewer owners end on a SQLite file while the service is killed again and again. In the
end, every owner is compared with a model in plain Python, which knows who was in which cohort with what value.

Bars: p99 of own cohorts at most 15 ms, of batches at most 40 ms, while 2,500 posts/s are kept up. All owners have moved
60 s after the end on SQLite, 30 s on PostgreSQL. No owner has moved otherwise than the model says.
"""

import asyncio
import json
import random
import signal
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from benchmarks import report
from benchmarks.boards import owner_at
from benchmarks.client import BadAnswerError, Connection, for_each
from benchmarks.options import Options
from benchmarks.paced import PacedClient, build_get, build_post, run_punctually, send_kinds
from benchmarks.servers import POSTGRES_SETTINGS, Server, serve_store
from service.stores import SQLITE_PREFIX
from tests.servers import postgres

_SIZE, _DIVISIONS, _UP, _DOWN = 30, 10, 10, 5
_BATCH, _BATCHES_PER_S, _READS_PER_S = 25, 100, 50
_FILLED = 1_000  # posts per request while the league is filled
_CONNECTIONS = 4
_POSTS_PER_S_LEAST = 2_500  # at a lower rate, the period would end before all owners have posted
_WINDOW_S, _LOOK_S = 0.25, 0.1
_KILLED_ROWS, _LIVES_S = 6_000, (0.05, 0.6)
_TIMES = "%Y-%m-%dT%H:%M:%S.%f"
# One process, which dies often while it closes.
_QUICK = {"RANKCURVE_LEASE_S": "1", "RANKCURVE_WORKERS": "0"}

Cohorts = Mapping[str, dict[str, int]]  # the values of the owners of each cohort


def _path(league: str, *rest: str) -> str:
    return "/".join([f"/v1/leagues/{league}", *rest])


async def _create(port: int, league: str, ends_at: datetime) -> None:
    """Create a league whose first period ends at the given time. Its second period never ends."""
    bounds = [f"{each:{_TIMES}}" for each in (datetime(2020, 1, 1, tzinfo=UTC), ends_at)] + ["2100-01-01T00:00:00"]
    divisions = [
        {"name": f"d{at}", "promote": _UP * (at < _DIVISIONS - 1), "relegate": _DOWN * (at > 0)}
        for at in range(_DIVISIONS)
    ]
    spec = {
        "columns": [{"name": "xp", "merge": "sum"}], "column": "xp", "period": {"name": "round", "bounds": bounds},
        "cohort": _SIZE, "divisions": divisions,
    }  # fmt: skip
    connection = Connection(port)
    await connection.call_ok("PUT", _path(league), spec)
    connection.close()


async def _fill(port: int, league: str, rows: int) -> float:
    """Let each owner post once. Return the time this took, in seconds."""
    rng = random.Random(3)

    async def post(connection: Connection, batch: Sequence[dict[str, object]]) -> None:
        await connection.call_ok("POST", _path(league, "posts"), {"posts": batch})

    def batches() -> Iterable[Sequence[dict[str, object]]]:
        for start in range(0, rows, _FILLED):
            yield [
                {"owner": owner_at(at), "stats": {"xp": rng.randrange(1, 10_000)}, "division": f"d{rng.randrange(10)}"}
                for at in range(start, min(rows, start + _FILLED))
            ]

    begun = time.perf_counter()
    await for_each(port, batches(), post, connections=_CONNECTIONS)
    return time.perf_counter() - begun


async def _wait_closed(port: int, league: str, *, wait_s: float = 600) -> float:
    """Wait until all owners have moved, and return the time by `perf_counter`. Raises TimeoutError."""
    connection, after = Connection(port), 0
    until_s = time.perf_counter() + wait_s
    while time.perf_counter() < until_s:
        with suppress(OSError, EOFError, TimeoutError, BadAnswerError):  # the service was killed
            status, answer = await connection.call("GET", f"/v1/events?after={after}&limit=1000")
            for line in answer.splitlines() if status == 200 else ():
                event = json.loads(line)
                after = event["seq"]
                if event["type"] == "league.closed" and event["board"].startswith(f"{league}:"):
                    connection.close()
                    return time.perf_counter()
        await asyncio.sleep(_LOOK_S)
    raise TimeoutError(f"{league} is not closed after {wait_s} s")


async def _measure_period(
    port: int, rows: int, seconds: float
) -> tuple[float, dict[str, list[float]], float, list[float]]:
    """Return the seconds of the first posts, the milliseconds of requests by kind, and those of the closing."""
    ends_at = datetime.now(UTC) + timedelta(seconds=rows / _POSTS_PER_S_LEAST + seconds + 3)
    ends_s = time.perf_counter() + (ends_at - datetime.now(UTC)).total_seconds()
    await _create(port, "climb", ends_at)
    filled_s, rng = await _fill(port, "climb", rows), random.Random(5)

    def ask_post() -> bytes:
        posts = [{"owner": owner_at(rng.randrange(rows)), "stats": {"xp": 1}} for _ in range(_BATCH)]
        return build_post(_path("climb", "posts"), json.dumps({"posts": posts}).encode())

    def ask_own() -> bytes:
        return build_get(_path("climb", "owners", owner_at(rng.randrange(rows))))

    kinds = {"batches": (ask_post, _BATCHES_PER_S), "own cohorts": (ask_own, _READS_PER_S)}
    took = await send_kinds(port, kinds, seconds, rng)
    await asyncio.sleep(max(0, ends_s - time.perf_counter()))
    waiting, meanwhile = asyncio.create_task(_wait_closed(port, "climb")), list[float]()
    async with PacedClient(port) as client:
        while not waiting.done():
            meanwhile += await client.send_at_rate(ask_post, per_s=_BATCHES_PER_S, seconds=_WINDOW_S, rng=rng)
    return filled_s, took, await waiting - ends_s, sorted(meanwhile)


async def read_cohorts(port: int, league: str, period: str) -> Cohorts:
    """Return the owners and values of all cohorts in a period."""
    connection, found = Connection(port), dict[str, dict[str, int]]()
    for division in range(_DIVISIONS):
        number = 1
        while True:
            name = f"d{division}-{number}"
            status, answer = await connection.call("GET", f"{_path(league, 'cohorts', name)}?period={period}")
            if status == 404:
                break
            found[name] = {each["owner"]: each["value"] for each in json.loads(answer)["entries"]}
            number += 1
    connection.close()
    return found


def expect_divisions(cohorts: Cohorts) -> dict[str, int]:
    """Return the division in which each owner begins the next period. Equal values are ordered by their arrival."""
    found = {}
    for name, values in cohorts.items():  # in the order of the answer, which is best first
        division, ranked = int(name.partition("-")[0][1:]), sorted(values, key=lambda owner: -values[owner])
        up, down = _UP * (division < _DIVISIONS - 1), _DOWN * (division > 0)
        if len(ranked) * 3 < _SIZE:
            up, down = len(ranked) * up // _SIZE, len(ranked) * down // _SIZE
        for rank, owner in enumerate(ranked, 1):
            found[owner] = division + (rank <= up) - (up < rank and rank > len(ranked) - down)
    return found


async def count_wrong(port: int, league: str, expected: Mapping[str, int]) -> int:
    """Let all owners post in the second period. Return how many are in an unexpected division or in two cohorts."""
    owners = sorted(expected)
    connection = Connection(port)
    for start in range(0, len(owners), _FILLED):
        posts = [{"owner": owner, "stats": {"xp": 1}} for owner in owners[start : start + _FILLED]]
        await connection.call_ok("POST", _path(league, "posts"), {"posts": posts})
    connection.close()
    found: dict[str, list[int]] = defaultdict(list)
    for name, values in (await read_cohorts(port, league, "round-2")).items():
        assert len(values) <= _SIZE, f"{name} has {len(values)} owners"
        for owner in values:
            found[owner].append(int(name.partition("-")[0][1:]))
    return sum(found[owner] != [division] for owner, division in expected.items()) + len(found.keys() - {*owners})


def run_kills(url: str, folder: Path, *, kills: int, rows: int) -> tuple[int, int]:
    """End leagues, and kill the service while they close.

    Return the number of kills that hit a closing, and the number of owners who are wrong.
    """
    rng, done, wrong = random.Random(9), 0, 0
    for trial in count():
        if done >= kills:
            break
        league = f"kill{trial}"
        with serve_store(url, folder, environment=_QUICK) as server:
            ends_at = datetime.now(UTC) + timedelta(seconds=2 + rows / _POSTS_PER_S_LEAST)
            asyncio.run(_create(server.port, league, ends_at))
            asyncio.run(_fill(server.port, league, rows))
            expected = expect_divisions(asyncio.run(read_cohorts(server.port, league, "round-1")))
            time.sleep(max(0, (ends_at - datetime.now(UTC)).total_seconds()))
            hit = _kill_soon(server, league, rng)
        done += hit
        while hit and done < kills:
            with serve_store(url, folder, environment=_QUICK) as server:
                hit = _kill_soon(server, league, rng)
            done += hit
        with serve_store(url, folder, environment=_QUICK) as server:
            asyncio.run(_wait_closed(server.port, league, wait_s=120))
            wrong += asyncio.run(count_wrong(server.port, league, expected))
    return done, wrong


def _kill_soon(server: Server, league: str, rng: random.Random) -> int:
    """Kill a service after a moment in which a league may close. Return 1 if the league was not closed yet."""
    time.sleep(rng.uniform(*_LIVES_S))
    is_open = True
    with suppress(TimeoutError):
        asyncio.run(_wait_closed(server.port, league, wait_s=2 * _LOOK_S))
        is_open = False
    server.stop(signal.SIGKILL)
    return int(is_open)


def measure_service(name: str, port: int, rows: int, seconds: float, closing_s_max: float) -> list[report.Bar]:
    """Measure one period of a league on a service. `name` is the name of its store."""
    filled_s, took, closing_s, meanwhile = run_punctually(_measure_period(port, rows, seconds))
    p99 = {kind: each[len(each) * 99 // 100] for kind, each in took.items()}
    posted = len(took["batches"]) * _BATCH / seconds
    print(f"   {name}: first posts {rows / filled_s:,.0f}/s; {posted:,.0f} posts/s kept up", flush=True)
    print(f"   {name}: p99 of {p99}, all results {closing_s:.1f} s after the end", flush=True)
    is_sqlite = name == "SQLite"
    return [
        report.Bar(f"{name}: p99 of own cohorts", p99["own cohorts"], 15.0 if is_sqlite else None, " ms", at_most=True),
        report.Bar(f"{name}: p99 of batches", p99["batches"], 40.0 if is_sqlite else None, " ms", at_most=True),
        report.Bar(f"{name}: p99 of batches while closing", meanwhile[len(meanwhile) * 99 // 100], None, " ms"),
        report.Bar(f"{name}: end of the period to all results", closing_s, closing_s_max, " s", at_most=True),
    ]


def measure(options: Options, folder: Path) -> list[report.Bar]:
    store = folder / "league.db"
    with serve_store(f"{SQLITE_PREFIX}{store}", folder) as server:
        bars = measure_service("SQLite", server.port, options.rows, options.seconds, 60.0)
    size = sum(each.stat().st_size for each in folder.glob("league.db*"))
    bars.append(report.Bar("SQLite: bytes for an owner and a period, post and log included", size / options.rows, None))
    store.unlink()
    with postgres(POSTGRES_SETTINGS) as cluster, serve_store(cluster.url(), folder) as server:
        bars += measure_service("PostgreSQL", server.port, options.rows, options.seconds, 30.0)
    kills, wrong = run_kills(f"{SQLITE_PREFIX}{folder}/kills.db", folder, kills=options.kills, rows=_KILLED_ROWS)
    bars.append(report.Bar("kills while a league closed", kills, options.kills))
    bars.append(report.Bar("owners moved otherwise than the model says", wrong, 0, at_most=True))
    return bars


if __name__ == "__main__":
    report.run_program(measure, __doc__, "league: {rows:,} owners", seconds=20)

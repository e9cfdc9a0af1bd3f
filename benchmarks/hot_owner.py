"""Measure lost races and rates while 500 posters post to one clan through two processes, direct and queued.

    python -m benchmarks.hot_owner [--seconds S] [--rounds N]

The processes share one PostgreSQL database. Every post changes the same row and has a post id. Each poster waits for
the answer before it posts again. A round ends when all accepted posts are applied. The clan's sum must then equal the
number of accepted posts. The rate with one transaction per post is reported, too.

Bar: at most 0.05 lost races per accepted post. The rates are only reported.
"""

import asyncio
import contextlib
import itertools
import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks import load, report
from benchmarks.client import BadAnswerError, Connection
from benchmarks.options import Options, parse_options
from benchmarks.servers import POSTGRES_SETTINGS, Server, serve_store
from tests.servers import postgres

POSTERS = 500
FRONT_ENDS = 2
CONFLICTS_MAX = 0.05  # lost races per accepted post
_BOARD = "clans"
_CLAN = "clan"
_SPEC = {"columns": [{"name": "xp", "sorted": True, "merge": "sum"}]}
_APPLIED_S_MAX = 60.0
_CONFLICTS = re.compile(rb"^rankcurve_(?:write|ingest)_conflicts_total (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Round:
    posts: int
    seconds: float
    conflicts: int
    latencies_s: list[float]

    def figure(self) -> load.Figure:
        ordered = sorted(self.latencies_s)
        p50_ms, p99_ms = (1000 * ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.99))
        return load.Figure(self.posts / self.seconds, p50_ms, p99_ms)


async def count_conflicts(servers: Sequence[Server]) -> int:
    total = 0.0
    for server in servers:
        connection = Connection(server.port)
        _, text = await connection.call("GET", "/metrics")
        connection.close()
        total += sum(map(float, _CONFLICTS.findall(text)))
    return round(total)


async def read_clan_xp(server: Server) -> int:
    connection = Connection(server.port)
    status, body = await connection.call("GET", f"/v1/leaderboards/{_BOARD}/entries/{_CLAN}")
    connection.close()
    return int(json.loads(body)["stats"]["xp"]) if status == 200 else 0


async def run_round(servers: Sequence[Server], name: str, seconds: float, *, mode: str) -> Round:
    """Let all posters post for `seconds` seconds, and wait until every post is applied. Return the round's figures."""
    before, lost = await read_clan_xp(servers[0]), await count_conflicts(servers)
    path = f"/v1/leaderboards/{_BOARD}/posts" + ("?mode=queued" if mode == "queued" else "")
    latencies_s: list[float] = []
    begun_s = time.monotonic()

    async def poster(number: int) -> None:
        connection = Connection(servers[number % len(servers)].port)
        for turn in itertools.count():
            if time.monotonic() - begun_s > seconds:
                break
            post = f'{{"owner":"{_CLAN}","stats":{{"xp":1}},"post_id":"{name}/{number}/{turn}"}}'.encode()
            at_s = time.monotonic()
            status, answer = await connection.call("POST", path, post)
            if status in (429, 503):
                await asyncio.sleep(0.1)
                continue
            if status not in (200, 202):
                raise BadAnswerError(f"{status} {answer[:300]!r}")
            latencies_s.append(time.monotonic() - at_s)
        connection.close()

    async with asyncio.TaskGroup() as group:
        for number in range(POSTERS):
            group.create_task(poster(number))
    xp, until_s = before, time.monotonic() + _APPLIED_S_MAX
    while xp < before + len(latencies_s) and time.monotonic() < until_s:
        xp = await read_clan_xp(servers[0])
    took_s = time.monotonic() - begun_s
    if xp != before + len(latencies_s):
        raise BadAnswerError(f"the clan has {xp - before} points for {len(latencies_s)} posts")
    return Round(len(latencies_s), took_s, await count_conflicts(servers) - lost, latencies_s)


def run_rounds(folder: Path, options: Options, mode: str, environment: Mapping[str, str]) -> list[Round]:
    """Start a PostgreSQL server and front ends for these rounds, run the rounds and return their figures."""
    with postgres(POSTGRES_SETTINGS) as cluster, ExitStack() as stack:
        url = cluster.url()
        front_ends = [serve_store(url, folder, environment=environment) for _ in range(FRONT_ENDS)]
        servers = [stack.enter_context(server) for server in front_ends]
        connection = Connection(servers[0].port)
        asyncio.run(connection.call_ok("PUT", f"/v1/leaderboards/{_BOARD}", _SPEC))
        with contextlib.suppress(RuntimeError):  # the event loop of the connection is already closed
            connection.close()
        return [
            asyncio.run(run_round(servers, f"round-{number}", options.seconds, mode=mode))
            for number in range(options.rounds)
        ]


def measure(options: Options, folder: Path) -> list[report.Bar]:
    rounds = {
        "direct": run_rounds(folder, options, "direct", {}),
        "queued": run_rounds(folder, options, "queued", {}),
        "direct, a transaction a post": run_rounds(folder, options, "direct", {"RANKCURVE_GROUPING": "false"}),
    }
    figures = {name: [each.figure() for each in found] for name, found in rounds.items()}
    per_post = {
        name: sum(each.conflicts for each in found) / sum(each.posts for each in found)
        for name, found in rounds.items()
    }
    rows = [[*load.table_row(name, found), per_post[name]] for name, found in figures.items()]
    report.print_table((*load.COLUMNS, "conflicts a post"), rows)
    return [
        report.Bar("conflicts per accepted post, direct", per_post["direct"], CONFLICTS_MAX, at_most=True),
        report.Bar("conflicts per accepted post, queued", per_post["queued"], CONFLICTS_MAX, at_most=True),
        report.Bar("posts/s, direct", load.median_per_s(figures["direct"]), None),
        report.Bar("posts/s, queued", load.median_per_s(figures["queued"]), None),
    ]


def main() -> int:
    options = parse_options(__doc__, rounds=3)
    title = f"a hot owner: {POSTERS} posters, {FRONT_ENDS} processes, {options.rounds} rounds of {options.seconds:g} s"
    return report.run_benchmark(options, title, measure)


if __name__ == "__main__":
    sys.exit(main())

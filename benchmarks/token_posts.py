"""Measure the rate of single posts by player token against that of posts by API key.

    python -m benchmarks.token_posts [--rows N] [--seconds S] [--rounds N]

32 clients post at random for 64 players of a larger board. Posts by key have ids, as the clients' posts do. Posts by
token are numbered, and each player has its own token with limits, which is new in each round. An owner process with one
front answers. A process verifies a token once and remembers it: only the first post of a token costs 0.2 ms more.

Bar: the rate of posts by token is at least 0.85 times that of posts by key.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import jwt

from benchmarks import load, report
from benchmarks.boards import BOARD, COLUMN, owner_at, prepare_store
from benchmarks.client import call_service
from benchmarks.options import Options
from benchmarks.servers import serve_file

CLIENTS, PLAYERS, POSTS_MAX = 32, 64, 1_000
_SECRET = "s" * 32
# A player of the benchmark posts faster than one of a game.
_SETTINGS = {"RANKCURVE_PLAYER_TOKEN_KEYS": _SECRET, "RANKCURVE_PLAYER_REQUESTS_PER_S": "1000000"}
_PATH = f"/v1/leaderboards/{BOARD}/posts"


def write_tokens(path: Path, players: int) -> Path:
    """Write a line with a name and a new token for each player, in the form that requests.lua reads."""
    now_s, rights = int(time.time()), {"boards": [BOARD], "posts": POSTS_MAX, "limits": {COLUMN: 1_000}}
    with path.open("w") as file:
        for index in range(players):
            claims = {"sub": owner_at(index), "iat": now_s, "exp": now_s + 900, "jti": f"{path.stem}.{index}"}
            token = jwt.encode({**claims, "rankcurve": rights}, _SECRET, algorithm="HS256")
            file.write(f"{owner_at(index)} {token}\n")
    return path


def measure(options: Options, folder: Path) -> list[report.Bar]:
    players = min(PLAYERS, options.rows)
    store = prepare_store(options, folder, rows=options.rows)
    with serve_file(store, environment=_SETTINGS) as server:
        made = asyncio.run(call_service(server.port, "POST", "/v1/keys", {"name": "benchmark", "role": "ops"}))

        def contestant(make_target: Callable[[int], load.Target]) -> Callable[[int], load.Figure]:
            return lambda number: load.run_wrk(
                make_target(number), connections=CLIENTS, seconds=options.seconds if number else 1.0, seed=number
            )

        def by_key(number: int) -> load.Target:
            body = f'{{"stats":{{"{COLUMN}":%d}},"owner":"%s","post_id":"round-{number}-%d"}}'
            bearer = f"Bearer {made['key']}"
            return load.Target(server.url, _PATH, body=body, rows=players, authorization=bearer)

        def by_token(number: int) -> load.Target:
            body = f'{{"stats":{{"{COLUMN}":%d}},"owner":"%s","n":%d}}'
            owners = write_tokens(folder / f"round-{number}.txt", players)
            return load.Target(server.url, _PATH, body=body, rows=players, owners=owners)

        figures = load.compare({"by key": contestant(by_key), "by token": contestant(by_token)}, rounds=options.rounds)
    ratio = load.median_ratio(figures["by token"], figures["by key"])
    return [report.Bar(f"posts by token / posts by key, {CLIENTS} clients", ratio, 0.85)]


if __name__ == "__main__":
    heading = "posts by token: {rows:,} rows, {rounds} rounds of {seconds:g} s"
    report.run_program(measure, __doc__, heading, rows=100_000, rounds=7)

"""Compare the port for Redis clients with a real Redis, and its speed with the same requests over HTTP.

python -m benchmarks.redis_door [--rows N] [--seconds S] [--rounds N]

First, 100,000 random commands go to both servers, and every answer must be the same. Scores are multiples of 1/8, which
a double holds exactly, and of errors only the kind is compared. Then pipelines of 1,000 ZINCRBY race against batches of
the same posts over HTTP, and ZREVRANK of 32 connections against `positions`. Bars: no answer differs; the pipelines are
at least 1.3 times as fast, and ZREVRANK 1.8 times. The rates of Redis itself, which syncs every write, are reported.
"""

import asyncio
import csv
import random
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import load, report
from benchmarks.boards import BATCH, BOARD, COLUMN, batch_body, draw_values, fill_board, keep_store, send_batches
from benchmarks.client import HOST, BadAnswerError
from benchmarks.options import Options
from benchmarks.servers import require_program, serve_file, serve_redis
from tests.servers import free_port

MEMBERS = [f"m{number}" for number in range(40)] + ["Ada", "zoë", "李", "b b"]
KEYS = ["arena", "other"]
COMMANDS, SEED = 100_000, 1
COMMANDS, SEED = 100_000, 1
PIPELINE_COMMANDS = 20  # the random commands go in pipelines of up to so many
RANK_CONNECTIONS, POST_CONNECTIONS = 32, 4
PIPELINES = 40  # of `BATCH` posts, a round
RANKS_PER_S = 10_000  # an assumed rate, from which the number of reads of a round is computed
_HTTP, _DOOR, _REDIS = "HTTP", "Redis clients", "Redis itself"


def draw_commands(rng: random.Random, count: int) -> Iterator[list[str]]:
    """Yield random commands about sorted sets and their keys."""
    for _ in range(count):
        yield [str(word) for word in _draw_command(rng)]


def _draw_command(rng: random.Random) -> Sequence[object]:
    key, member, score = rng.choice(KEYS), rng.choice(MEMBERS), rng.randint(-40, 40) / 8
    scores = [each for _ in range(rng.randint(1, 3)) for each in (rng.randint(-12, 12) / 4, rng.choice(MEMBERS))]
    first, last = rng.randint(-50, 50), rng.randint(-50, 50)
    least, most = _draw_bound(rng), _draw_bound(rng)
    flags = [flag for flag in ("NX", "XX", "GT", "LT", "CH", "INCR") if rng.random() < 0.12]
    limits = ["LIMIT", rng.randint(-1, 8), rng.randint(-1, 8)] if rng.random() < 0.4 else []
    scored = ["WITHSCORES"] if rng.random() < 0.6 else []
    found: list[tuple[int, Sequence[object]]] = [
        (20, ["ZADD", key, *flags, *scores]),
        (12, ["ZINCRBY", key, score, member]),
        (6, ["ZREM", key, member, rng.choice(MEMBERS)]),
        (6, ["ZSCORE", key, member]),
        (3, ["ZMSCORE", key, member, rng.choice(MEMBERS), "nobody"]),
        (8, ["ZRANK", key, member]),
        (8, ["ZREVRANK", key, member]),
        (3, ["ZCARD", key]),
        (6, ["ZCOUNT", key, least, most]),
        (5, ["ZRANGE", key, first, last, *scored]),
        (5, ["ZRANGE", key, first, last, "REV", *scored]),
        (5, ["ZRANGE", key, least, most, "BYSCORE", *limits, *scored]),
        (5, ["ZRANGE", key, most, least, "BYSCORE", "REV", *limits, *scored]),
        (4, ["ZREVRANGE", key, first, last, *scored]),
        (4, ["ZRANGEBYSCORE", key, least, most, *scored, *limits]),
        (4, ["ZREVRANGEBYSCORE", key, most, least, *scored, *limits]),
        (1, ["ZREMRANGEBYRANK", key, first, first + rng.randint(0, 4)]),
        (1, ["ZREMRANGEBYSCORE", key, score, score + 0.5]),
        (1, ["ZPOPMAX", key]),
        (1, ["ZPOPMIN", key, rng.randint(0, 3)]),
        (1, ["EXISTS", *KEYS, "nothing"]),
        (1, ["TYPE", key]),
        (1, ["TTL", key]),
        (1, ["ZUNIONSTORE", "both", len(KEYS), *KEYS, "WEIGHTS", 1, 2, "AGGREGATE", rng.choice(["SUM", "MIN", "MAX"])]),
        (1, ["ZINTERSTORE", "both", len(KEYS), *KEYS, "AGGREGATE", rng.choice(["SUM", "MIN", "MAX"])]),
        (2, ["ZRANGE", "both", 0, -1, "WITHSCORES"]),
        (1, ["HSET", f"{key}:member_data", member, f"name {score}"]),
        (1, ["HGET", f"{key}:member_data", member]),
        (1, ["HMGET", f"{key}:member_data", member, "nobody"]),
        (1, ["HDEL", f"{key}:member_data", member]),
        (1, ["ZADD", key, rng.choice(["x", ""]), member]),
        (1, ["ZRANGE", key, "a", 3]),
        (1, ["ZSCORE", key]),
        (1, ["NOSUCH", key]),
    ]
    weights, commands = zip(*found, strict=True)
    return rng.choices(commands, weights)[0]  # type: ignore[no-any-return]


def _draw_bound(rng: random.Random) -> str:
    return rng.choice(["-inf", "+inf", *[f"{rng.choice(['', '('])}{rng.randint(-40, 40) / 8}"] * 6])


def simplify(answer: Any) -> Any:
    """Return an answer in the form in which answers are compared; of an error, only the kind is kept."""
    if isinstance(answer, Exception):
        return type(answer).__name__
    return [simplify(each) for each in answer] if isinstance(answer, list) else answer


def compare(port: int, redis_port: int, *, commands: int, seed: int, protocol: int = 2) -> list[str]:
    """Send the same random commands to both servers, and return a line for each answer that differs."""
    import redis

    rng, differing = random.Random(seed), list[str]()
    with (
        redis.Redis(port=port, protocol=protocol) as ours,
        redis.Redis(port=redis_port, protocol=protocol) as theirs,
    ):
        for side in (ours, theirs):
            side.response_callbacks.clear()
            side.delete(*KEYS, "both")
        theirs.delete(*[f"{key}:member_data" for key in KEYS])
        drawn = list(draw_commands(rng, commands))
        while drawn:
            size, transaction = rng.randint(1, PIPELINE_COMMANDS), rng.random() < 0.3
            batch, drawn = drawn[:size], drawn[size:]
            answers = []
            for side in (ours, theirs):
                pipeline = side.pipeline(transaction=transaction and not any(map(_is_refused, batch)))
                for command in batch:
                    pipeline.execute_command(*command)
                answers.append([simplify(each) for each in pipeline.execute(raise_on_error=False)])
            for command, one, other in zip(batch, *answers, strict=True):
                if one != other:
                    differing.append(f"{' '.join(command)}: {one} instead of {other}")
    return differing


def _is_refused(command: Sequence[str]) -> bool:
    """Return whether a transaction with this command is discarded."""
    return command[0] == "NOSUCH" or len(command) < 3


def owner_of(index: int) -> str:
    """Return the owner at an index, with the name that redis-benchmark draws."""
    return f"m{index:012d}"


def draw_batches(rows: int, seed: int) -> list[list[tuple[str, int]]]:
    rng = random.Random(seed)
    return [
        [(owner_of(index), rng.randint(1, 1_000)) for index in rng.sample(range(rows), BATCH)] for _ in range(PIPELINES)
    ]


def by_pipelines(port: int, rows: int) -> Callable[[int], load.Figure]:
    """Return a contestant that sends pipelines of ZINCRBY."""

    def contestant(number: int) -> load.Figure:
        sent = [
            b"".join([encode_command("ZINCRBY", BOARD, str(more), owner) for owner, more in batch])
            for batch in draw_batches(rows, number)
        ]
        begun = time.perf_counter()
        asyncio.run(_send_pipelines(port, sent))
        return load.Figure(PIPELINES * BATCH / (time.perf_counter() - begun))

    return contestant


def encode_command(*words: str) -> bytes:
    parts = "".join([f"${len(word)}\r\n{word}\r\n" for word in words])
    return f"*{len(words)}\r\n{parts}".encode()


async def _send_pipelines(port: int, pipelines: Iterable[bytes]) -> None:
    left = iter(pipelines)

    async def work() -> None:
        reader, writer = await asyncio.open_connection(HOST, port)
        for sent in left:
            writer.write(sent)
            lines = 0
            while lines < 2 * BATCH:  # an answer is a length and a score
                piece = await reader.read(2**16)
                if not piece or b"-" in piece:
                    raise BadAnswerError(f"a pipeline was answered {piece[:200]!r}")
                lines += piece.count(b"\n")
        writer.close()

    await asyncio.gather(*[work() for _ in range(POST_CONNECTIONS)])


def by_batches(port: int, rows: int) -> Callable[[int], load.Figure]:
    """Return a contestant that posts the same by batches over HTTP."""

    def contestant(number: int) -> load.Figure:
        bodies = list(map(batch_body, draw_batches(rows, number)))
        begun = time.perf_counter()
        asyncio.run(send_batches(port, BOARD, bodies, size=BATCH, connections=POST_CONNECTIONS))
        return load.Figure(PIPELINES * BATCH / (time.perf_counter() - begun))

    return contestant


def by_ranks(port: int, options: Options) -> Callable[[int], load.Figure]:
    """Return a contestant that asks for the ranks of random members with redis-benchmark."""
    program = require_program("redis-benchmark", "redis-tools")

    def contestant(number: int) -> load.Figure:
        requests = str(round(RANKS_PER_S * (options.seconds if number else 1)))
        command = [
            program,
            "-p",
            str(port),
            "-c",
            str(RANK_CONNECTIONS),
            "-n",
            requests,
            "-r",
            str(options.rows),
            "--csv",
        ]
        ran = subprocess.run(
            [*command, "ZREVRANK", BOARD, "m__rand_int__"], capture_output=True, text=True, check=True, timeout=600
        )
        [row] = csv.DictReader(ran.stdout.splitlines())
        return load.Figure(float(row["rps"]), float(row["p50_latency_ms"]), float(row["p99_latency_ms"]))

    return contestant


def by_positions(url: str, folder: Path, options: Options) -> Callable[[int], load.Figure]:
    """Return a contestant that asks for the same ranks over HTTP with wrk."""
    owners = folder / "owners.txt"
    owners.write_text("".join([f"{owner_of(index)}\n" for index in range(options.rows)]))
    path = f"/v1/leaderboards/{BOARD}/entries/"
    target = load.Target(url, path, "/positions", rows=options.rows, owners=owners)
    return load.wrk_contestant(target, connections=RANK_CONNECTIONS, seconds=options.seconds)


def _fill_redis(port: int, rows: int) -> None:
    import redis

    values = draw_values(rows)
    with redis.Redis(port=port) as client:
        for first in range(0, rows, BATCH):
            these = range(first, min(rows, first + BATCH))
            client.zadd(BOARD, {owner_of(index): values[index] for index in these})


def count_differing(folder: Path) -> int:
    """Return how many random commands get another answer than from Redis, and print some of them."""
    port = free_port()
    environment = {"RANKCURVE_RESP_PORT": str(port)}
    with serve_redis(folder) as theirs, serve_file(folder / "random.db", environment=environment):
        half = COMMANDS // 2
        found = [
            line
            for version in (2, 3)
            for line in compare(port, theirs.port, commands=half, seed=SEED + version, protocol=version)
        ]
    for line in found[:10]:
        print(f"   {line}")
    return len(found)


def _fill(options: Options, store: Path) -> None:
    with serve_file(store) as server:
        asyncio.run(fill_board(server.port, rows=options.rows, owner=owner_of))


def measure(options: Options, folder: Path) -> list[report.Bar]:
    differing = count_differing(folder)
    store = keep_store(options, folder, f"{options.rows}-door", partial(_fill, options))
    port = free_port()
    with (
        serve_file(store, environment={"RANKCURVE_RESP_PORT": str(port)}) as server,
        serve_redis(folder) as theirs,
    ):
        _fill_redis(theirs.port, options.rows)
        ranks = load.compare(
            {
                _HTTP: by_positions(server.url, folder, options),
                _DOOR: by_ranks(port, options),
                _REDIS: by_ranks(theirs.port, options),
            },
            rounds=options.rounds,
        )
        posts = load.compare(
            {
                _HTTP: by_batches(server.port, options.rows),
                _DOOR: by_pipelines(port, options.rows),
                _REDIS: by_pipelines(theirs.port, options.rows),
            },
            rounds=options.rounds,
        )
    return [
        report.Bar(f"answers of {COMMANDS:,} random commands that differ from Redis", differing, 0, at_most=True),
        report.Bar("ZINCRBY in pipelines / batches over HTTP", load.median_ratio(posts[_DOOR], posts[_HTTP]), 1.3),
        report.Bar("ZREVRANK / positions over HTTP", load.median_ratio(ranks[_DOOR], ranks[_HTTP]), 1.8),
        report.Bar("ZINCRBY in pipelines / Redis", load.median_ratio(posts[_DOOR], posts[_REDIS]), None),
        report.Bar("ZREVRANK / Redis", load.median_ratio(ranks[_DOOR], ranks[_REDIS]), None),
    ]


if __name__ == "__main__":
    heading = f"the port for Redis clients: {{rows:,}} members of {COLUMN}, {{rounds}} rounds of {{seconds:g}} s"
    report.run_program(measure, __doc__, heading, rows=100_000, seconds=3.0)

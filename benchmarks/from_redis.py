"""Copy a sorted set of Redis to a leaderboard while a game writes to it, copy it again, and write it back.

    python -m benchmarks.from_redis [--rows N]

The members have random integer scores. During the first copy, a thread changes scores and adds members without a pause.
The second copy runs when the thread has stopped, with `kill -9` of the command in its middle. Then `rankcurve export`
and `redis-cli --pipe` make a second sorted set of the leaderboard. Redis runs as in `against_redis`: it syncs each
answered write to disk.

Bars: the two sorted sets are equal. The times are reported.
"""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from subprocess import DEVNULL

from redis import Redis

from benchmarks import report
from benchmarks.boards import board_spec, create_board, draw_values, owner_at
from benchmarks.options import Options, parse_options
from benchmarks.servers import Server, rankcurve_command, require_program, serve_file, serve_redis

BOARD, KEY, COPY_KEY = "arena", "arena", "arena:copy"
_MEMBERS_PER_COMMAND = 1000
_KILLED_AT = 0.3  # the second copy is killed after this share of the time of the first


def fill(redis: Redis, rows: int) -> None:
    values = draw_values(rows)
    for start in range(0, rows, _MEMBERS_PER_COMMAND):
        some = range(start, min(start + _MEMBERS_PER_COMMAND, rows))
        redis.zadd(KEY, {owner_at(index): values[index] for index in some})


def play(port: int, rows: int, stopped: threading.Event, changes: list[int]) -> None:
    """Change scores and add members until `stopped`. Append the number of changed members."""
    number = 0
    with Redis(port=port) as redis:
        while not stopped.is_set():
            redis.zadd(KEY, {owner_at(number * 7919 % rows): number, f"new {number}": number})
            number += 1
    changes.append(2 * number)


def run_command(server: Server, folder: Path, *words: str) -> float:
    """Run a command of `rankcurve`, print its last line, and return its seconds."""
    began_s = time.monotonic()
    command = [*rankcurve_command(), *words, "--url", server.url]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    print(f"   rankcurve {words[0]}: {(done.stdout or done.stderr).strip().splitlines()[-1]}", flush=True)
    return time.monotonic() - began_s


def kill_command(server: Server, folder: Path, after_s: float, *words: str) -> None:
    process = subprocess.Popen([*rankcurve_command(), *words, "--url", server.url], cwd=folder, stdout=DEVNULL)
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def write_back(server: Server, port: int, folder: Path) -> float:
    """Make the second sorted set of the leaderboard. Return the seconds."""
    cli = [require_program("redis-cli", "redis-tools"), "-p", str(port), "--pipe"]
    path = folder / "commands"
    seconds = run_command(
        server, folder, "export", BOARD, "--format", "redis", "--redis-key", COPY_KEY, "--output", str(path)
    )
    began_s = time.monotonic()
    with path.open("rb") as commands:
        subprocess.run(cli, stdin=commands, stdout=DEVNULL, check=True)
    return seconds + time.monotonic() - began_s


def count_differences(redis: Redis) -> int:
    """Return the number of members that only one sorted set has, or that have another score."""
    one, other = (dict(redis.zscan_iter(key, count=_MEMBERS_PER_COMMAND)) for key in (KEY, COPY_KEY))
    return sum(one.get(member) != other.get(member) for member in one.keys() | other.keys())


def measure(options: Options, folder: Path) -> Sequence[report.Bar]:
    with serve_redis(folder) as redis_server, serve_file(folder / "copied.db") as server:
        copy = ["import", "--redis", f"redis://127.0.0.1:{redis_server.port}", KEY, BOARD]
        with Redis(port=redis_server.port, socket_timeout=60) as redis:
            fill(redis, options.rows)
            asyncio.run(create_board(server.port, BOARD, board_spec(["xp"], merge="max")))
            stopped, changes = threading.Event(), list[int]()
            game = threading.Thread(target=play, args=(redis_server.port, options.rows, stopped, changes))
            game.start()
            try:
                first_s = run_command(server, folder, *copy)
            finally:
                stopped.set()
                game.join()
            kill_command(server, folder, first_s * _KILLED_AT, *copy)
            second_s = run_command(server, folder, *copy)
            back_s = write_back(server, redis_server.port, folder)
            different = count_differences(redis)
            members = redis.zcard(KEY)
    print(f"   {changes[0]:,} members written during the first copy")
    return [
        report.Bar("members that differ after two copies and the way back", different, 0, at_most=True),
        report.Bar("members", members, options.rows),
        report.Bar("first copy, beside live writes", first_s / 60, None, " min"),
        report.Bar("second copy, continued after kill -9", second_s / 60, None, " min"),
        report.Bar("back into Redis", back_s / 60, None, " min"),
    ]


def main() -> int:
    options = parse_options(__doc__)
    return report.run_benchmark(options, f"from Redis and back: {options.rows:,} members", measure)


if __name__ == "__main__":
    sys.exit(main())

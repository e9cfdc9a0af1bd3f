"""Measure reads while memcached is killed, stopped, flushed every second or filled with garbage.

python -m benchmarks.memcached_faults [--rows N] [--seconds S] [--rounds N]

Curves are replaced every second. They reach the front end (`front_end`) through memcached or, if memcached fails, only
through the database table. Each fault must be visible in the metrics. If a fault is not visible, it had no effect, and
its bar is not met.

Bars: no read fails; p99 is at most 50 ms longer than without a fault; no curve is older than 10 s or belongs to another
board.
"""

import asyncio
import json
import random
import signal
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import load, report
from benchmarks.boards import BOARD, COLUMN, batch_body, board_spec, column_names, draw_values, fill_board, owner_at
from benchmarks.client import HOST, Connection, call_once
from benchmarks.options import Options, parse_options
from benchmarks.servers import Server, free_port, require_program

_CONNECTIONS = 16
_COLUMNS = 6
_WRITE_PAUSE_S = 0.05
_POSTS = 20  # posts per request
_SPOIL_PAUSE_S = 0.02
_AGE_S_MAX = 10.0  # greatest allowed age of a curve; curves are replaced every second and polled every half second
_SETTINGS = {
    "CURVE_POLL_S": "0.5",
    "MEMCACHED_PAUSE_S": "0.5",
    "SQLITE_CACHE_MIB": "64",
    "LOG_LEVEL": "error",
    "FOLD_LAG_ROWS_MAX": "1",  # no curve is kept live, so each curve is refreshed every second and shared
}
# For each fault, the outcome that reads from memcached must have. Without this outcome, the fault had no effect.
_EFFECTS = {"killed": "errors", "stopped": "errors", "flushed": "miss", "garbage": "corrupt", "healthy": "hit"}


def serve_memcached(folder: Path, port: int) -> Server:
    command = [require_program("memcached", "memcached"), "-p", str(port), "-l", HOST, "-u", "nobody", "-U", "0"]
    return Server(command, folder, port=port, ready_path=None)


def serve_front_end(folder: Path, memcached_port: int) -> Server:
    port = free_port()
    environment = {f"RANKCURVE_{name}": value for name, value in _SETTINGS.items()}
    environment |= {"RANKCURVE_STORE": f"sqlite:///{folder.resolve()}/shared.db"}
    environment |= {"RANKCURVE_MEMCACHED_SERVERS": f"{HOST}:{memcached_port}"}
    command = [sys.executable, "-m", "benchmarks.front_end", str(port)]
    return Server(command, folder, port=port, ready_path="/readyz", environment=environment)


def ask_memcached(port: int, command: bytes, end: bytes = b"\r\n") -> bytes:
    with socket.create_connection((HOST, port), timeout=5) as connection:
        connection.sendall(command)
        answer = b""
        while not answer.endswith(end) and (piece := connection.recv(65_536)):
            answer += piece
        return answer


def spoil_keys(port: int, rng: random.Random) -> None:
    """Overwrite every key of memcached with random bytes, with a cut value, or with the value of another key."""
    dumped = ask_memcached(port, b"lru_crawler metadump all\r\n", b"END\r\n").decode()
    keys = [line.split()[0].removeprefix("key=").replace("%3A", ":") for line in dumped.splitlines() if "key=" in line]
    for key in keys:
        head, _, rest = ask_memcached(port, f"get {rng.choice(keys)}\r\n".encode(), b"END\r\n").partition(b"\r\n")
        value = rest[: -len(b"\r\nEND\r\n")] if head.startswith(b"VALUE") else b""
        value = rng.choice((rng.randbytes(5_000), value[: rng.randrange(len(value) + 1)], value))
        ask_memcached(port, f"set {key} 0 0 {len(value)}\r\n".encode() + value + b"\r\n")


@contextmanager
def repeat_on_thread(work: Callable[[], object], pause_s: float) -> Iterator[None]:
    """Repeat `work` on a thread until the block of the `with` statement ends."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            with suppress(OSError):
                work()
            over.wait(pause_s)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def cause_fault(name: str, cache: Server) -> Iterator[None]:
    """Cause the fault `name` as long as the block of the `with` statement runs."""
    if name == "killed":
        cache.stop(signal.SIGKILL)
        try:
            yield
        finally:
            cache.spawn()
            cache.wait_ready()
    elif name == "stopped":
        cache.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            cache.send_signal(signal.SIGCONT)
    elif name == "flushed":
        with repeat_on_thread(lambda: ask_memcached(cache.port, b"flush_all\r\n"), 1.0):
            yield
    elif name == "garbage":
        rng = random.Random(5)
        with repeat_on_thread(lambda: spoil_keys(cache.port, rng), _SPOIL_PAUSE_S):
            yield
    else:
        yield


def count_outcomes(port: int) -> dict[str, float]:
    """Return, by outcome, how many reads from memcached the front end has made."""
    found = {}
    for line in call_once(port, "GET", "/metrics")[1].decode().splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith("rankcurve_shared_curve_reads_total"):
            found[name.split('"')[1]] = float(value)
        elif name == "rankcurve_memcached_errors_total":
            found["errors"] = float(value)
    return found


@dataclass(slots=True)
class Seen:
    met: dict[str, float] = field(default_factory=dict)
    ages_s: list[float] = field(default_factory=list)  # at the end of each round, the age of the oldest curve in use
    failed_rounds: int = 0
    wrong: int = 0  # number of curves with a total that is not the board's


class Faults:
    """The contestants for `load.run_alternately`, one for each fault. A contestant sends reads during its fault."""

    def __init__(self, server: Server, cache: Server, options: Options) -> None:
        self._server, self._cache, self._options = server, cache, options
        self._rng = random.Random(3)
        self.seen = {name: Seen() for name in _EFFECTS}
        path = f"/v1/leaderboards/{BOARD}/entries/"
        self._target = load.Target(server.url, path, f"/positions?columns={COLUMN}", rows=options.rows)

    def contestants(self) -> dict[str, Callable[[int], load.Figure]]:
        return {name: lambda number, name=name: self._round(name, number) for name in _EFFECTS}  # type: ignore[misc]

    def _round(self, name: str, number: int) -> load.Figure:
        seen, before = self.seen[name], count_outcomes(self._server.port)
        measured = load.wrk_contestant(self._target, connections=_CONNECTIONS, seconds=self._options.seconds)
        with cause_fault(name, self._cache), repeat_on_thread(self._post, _WRITE_PAUSE_S):
            try:
                figure = measured(number)
            except load.LoadFailedError as error:
                print(f"   {name}: {error}")
                seen.failed_rounds += 1
                figure = load.Figure(0.0)
            if number:
                self._record(seen, before)
        return figure

    def _post(self) -> None:
        batch = [(owner_at(self._rng.randrange(self._options.rows)), 1) for _ in range(_POSTS)]
        with suppress(OSError):
            asyncio.run(post_batch(self._server.port, batch_body(batch)))

    def _record(self, seen: Seen, before: dict[str, float]) -> None:
        for outcome, count in count_outcomes(self._server.port).items():
            seen.met[outcome] = seen.met.get(outcome, 0) + count - before.get(outcome, 0)
        status, body = call_once(self._server.port, "GET", f"/v1/leaderboards/{BOARD}/rankings/{COLUMN}/curve")
        curve = json.loads(body) if status == 200 else {"total": 0, "as_of": None}
        seen.wrong += curve["total"] != self._options.rows
        seen.ages_s.append(read_oldest_age_s(self._server.port))


async def post_batch(port: int, body: bytes) -> None:
    connection = Connection(port)
    await connection.call("POST", f"/v1/leaderboards/{BOARD}/posts", body)
    connection.close()


def read_oldest_age_s(port: int) -> float:
    for line in call_once(port, "GET", "/metrics")[1].decode().splitlines():
        if line.startswith("rankcurve_curve_age_seconds_max "):
            return float(line.rpartition(" ")[2])
    return float("inf")


async def fill_refreshed_board(port: int, rows: int) -> None:
    """Create and fill a board whose curves are refreshed every second if the board changes."""
    names = column_names(_COLUMNS)
    body = {**board_spec(names), "predictor": {"refresh_seconds": 1}}
    named = {name: draw_values(rows, index) for index, name in enumerate(names)}
    await fill_board(port, BOARD, owners=[owner_at(index) for index in range(rows)], named=named, body=body)


def wait_for_curves(port: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if call_once(port, "GET", f"/v1/leaderboards/{BOARD}/rankings/{COLUMN}/curve")[0] == 200:
            return
        time.sleep(0.1)
    raise load.LoadFailedError("no curve was stored within 60 s")


def measure(options: Options, folder: Path) -> list[report.Bar]:
    port = free_port()
    with serve_memcached(folder, port) as cache, serve_front_end(folder, port) as server:
        asyncio.run(fill_refreshed_board(server.port, options.rows))
        wait_for_curves(server.port)
        faults = Faults(server, cache, options)
        figures = load.run_alternately(faults.contestants(), rounds=options.rounds)
    report.print_table(load.COLUMNS, [load.table_row(name, found) for name, found in figures.items()])
    outcomes = ("hit", "miss", "stale", "corrupt", "errors")
    rows: list[tuple[str | float, ...]] = [
        (name, *(seen.met.get(outcome, 0) for outcome in outcomes), max(seen.ages_s))
        for name, seen in faults.seen.items()
    ]
    report.print_table(("curves met in memcached", *outcomes, "oldest s"), rows)
    bars = [
        report.Bar("rounds with a read error", sum(s.failed_rounds for s in faults.seen.values()), 0, at_most=True),
        report.Bar("curves that are not the board's", sum(s.wrong for s in faults.seen.values()), 0, at_most=True),
    ]
    for name, found in figures.items():
        seen = faults.seen[name]
        bars.append(report.Bar(f"{name}: age of the oldest curve", max(seen.ages_s), _AGE_S_MAX, " s", at_most=True))
        bars.append(report.Bar(f"{name}: {_EFFECTS[name]} met", seen.met.get(_EFFECTS[name], 0), 1))
        if name != "healthy":
            added_ms = [one.p99_ms - other.p99_ms for one, other in zip(found, figures["healthy"], strict=True)]
            bars.append(report.Bar(f"{name}: p99 added", statistics.median(added_ms), 50, " ms", at_most=True))
    return bars


def main() -> int:
    options = parse_options(__doc__, rows=100_000)
    title = f"faults of memcached: {options.rows:,} rows, {options.rounds} rounds of {options.seconds:g} s each"
    return report.run_benchmark(options, title, measure)


if __name__ == "__main__":
    sys.exit(main())

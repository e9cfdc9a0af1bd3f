"""Measure reads while memcached is killed, stopped, flushed every second or filled with garbage.

python -m benchmarks.memcached_faults [--rows N] [--seconds S] [--rounds N]

A job process replaces curves on PostgreSQL every second. They reach the front end through memcached or, if memcached
fails, only through the database table. Each fault must be visible in the metrics. If a fault is not visible, it had no
effect, and its bar is not met. A round is longer than the pause after which a failed memcached is tried again.

Bars: no read fails; p99 is at most 50 ms longer than without a fault; no curve is older than 10 s or belongs to another
board.
"""

import asyncio
import json
import random
import statistics
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks import load, report
from benchmarks.boards import BOARD, COLUMN, batch_body, fill_board, owner_at, send_batches
from benchmarks.client import BadAnswerError, call_once, read_metrics
from benchmarks.options import Options
from benchmarks.servers import Server, serve_jobs, serve_store
from tests.memcached import OpenMemcached
from tests.servers import DURABLE, postgres

_CONNECTIONS = 16
_COLUMNS = 6
_WRITE_PAUSE_S = 0.05
_POSTS = 20  # posts per request
_SPOIL_PAUSE_S = 0.02
_READS = "rankcurve_shared_curve_reads_total"
_AGE_S_MAX = 10.0  # greatest allowed age of a curve; curves are replaced every second and polled every half second
_SETTINGS = {
    "RANKCURVE_CURVE_POLL_S": "0.5",
    "RANKCURVE_LOG_LEVEL": "error",
    "RANKCURVE_FOLD_LAG_ROWS_MAX": "1",  # no curve is kept live, so each curve is refreshed every second and shared
}
# For each fault, the outcome that reads from memcached must have. Without this outcome, the fault had no effect.
_EFFECTS = {"killed": "errors", "stopped": "errors", "flushed": "miss", "garbage": "corrupt", "healthy": "hit"}


def spoil_keys(cache: OpenMemcached, rng: random.Random) -> None:
    """Overwrite every key in memcached with random bytes, with a cut value, or with the value of another key."""
    keys = cache.held()
    for key in keys:
        value = cache.value(rng.choice(keys))
        cache.put(key, rng.choice((rng.randbytes(5_000), value[: rng.randrange(len(value) + 1)], value)))


@contextmanager
def repeat_on_thread(work: Callable[[], object], pause_s: float) -> Iterator[None]:
    """Repeat `work` on a thread until the `with` block ends."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            with suppress(OSError, AssertionError):  # a key or the server may be gone
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
def cause_fault(name: str, cache: OpenMemcached) -> Iterator[None]:
    """Cause the fault `name` until the `with` block ends."""
    with ExitStack() as stack:
        if name == "killed":
            cache.kill()
            stack.callback(cache.start)
        elif name == "stopped":
            cache.pause()
            stack.callback(cache.resume)
        elif name == "flushed":
            stack.enter_context(repeat_on_thread(cache.flush, 1.0))
        elif name == "garbage":
            stack.enter_context(repeat_on_thread(partial(spoil_keys, cache, random.Random(5)), _SPOIL_PAUSE_S))
        yield


def count_outcomes(port: int) -> dict[str, float]:
    """Return the number of the front end's reads from memcached, by outcome."""
    metrics = read_metrics(port)
    found = {name.split('"')[1]: count for name, count in metrics.items() if name.startswith(_READS)}
    return {**found, "errors": metrics["rankcurve_memcached_errors_total"]}


@dataclass(slots=True)
class Seen:
    met: dict[str, float] = field(default_factory=dict)
    ages_s: list[float] = field(default_factory=list)  # at the end of each round, the age of the oldest curve in use
    failed_rounds: int = 0
    wrong: int = 0  # number of curves with a total that is not the board's


class Faults:
    """The contestants for `load.run_alternately`, one for each fault, which send reads while their fault lasts."""

    def __init__(self, server: Server, cache: OpenMemcached, options: Options) -> None:
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
        with suppress(OSError, BadAnswerError):
            asyncio.run(send_batches(self._server.port, BOARD, [batch_body(batch)], connections=1))

    def _record(self, seen: Seen, before: dict[str, float]) -> None:
        for outcome, count in count_outcomes(self._server.port).items():
            seen.met[outcome] = seen.met.get(outcome, 0) + count - before.get(outcome, 0)
        status, body = call_once(self._server.port, "GET", f"/v1/leaderboards/{BOARD}/rankings/{COLUMN}/curve")
        curve = json.loads(body) if status == 200 else {"total": 0, "as_of": None}
        seen.wrong += curve["total"] != self._options.rows
        seen.ages_s.append(read_metrics(self._server.port)["rankcurve_curve_age_seconds_max"])


def measure(options: Options, folder: Path) -> list[report.Bar]:
    with ExitStack() as stack:
        url = stack.enter_context(postgres(DURABLE)).url()
        cache = stack.enter_context(OpenMemcached())
        settings = {**_SETTINGS, "RANKCURVE_MEMCACHED_SERVERS": cache.address}
        server = stack.enter_context(serve_store(url, folder, jobs="none", environment=settings))
        stack.enter_context(serve_jobs(url, folder, environment=settings))
        fields = {"predictor": {"refresh_seconds": 1}}
        asyncio.run(fill_board(server.port, rows=options.rows, columns=_COLUMNS, fields=fields))
        faults = Faults(server, cache, options)
        figures = load.compare(faults.contestants(), rounds=options.rounds)
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


if __name__ == "__main__":
    report.run_program(
        measure,
        __doc__,
        "faults of memcached: {rows:,} rows, {rounds} rounds of {seconds:g} s each",
        rows=100_000,
        seconds=10,
    )

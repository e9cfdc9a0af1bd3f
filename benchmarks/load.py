"""Creates load with wrk, in rounds that alternate between contestants, so that servers can be compared.

A contestant is a function that receives the number of a round, runs the round and returns its figure. Contestants take
turns (A B, B A, …) in one run, so that other work on the machine affects them alike. Figures are medians.
"""

import json
import statistics
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks import report
from benchmarks.servers import require_program

_SCRIPT = Path(__file__).with_name("requests.lua")
_WARM_UP_S = 1.0


class LoadFailedError(Exception):
    """A request of a measured round got no answer, or one other than 2xx, so the round's rate means nothing."""


@dataclass(frozen=True, slots=True)
class Figure:
    per_s: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Target:
    """The kind of request that wrk sends in a round.

    If `rows` is 0, every request is `GET path`. Otherwise every request is for a random owner of a board with `rows`
    owners: a post if `column` or `body` is given, which adds 1 to 1,000 to that column or is as `body` says, and else a
    `GET` of `path`, the owner and `after` joined. Before such a request, each connection pauses at random, for
    `pause_ms` on average.
    """

    url: str
    path: str
    after: str = ""
    column: str | None = None
    body: str = ""  # what a post sends instead of stats: a format of Lua, filled with the amount
    rows: int = 0
    owners: Path | None = None  # a line an owner, perhaps with a space and a token; None: the owners of `boards`
    authorization: str = ""  # the header of each request whose line in `owners` has no token
    then: tuple[str, str] = ("", "")  # after every post a `GET` for its owner, with these two joined to the owner
    known: str = ""  # the entity tag of the answer that the client has already
    pause_ms: float = 0.0

    def arguments(self, seed: int) -> list[str]:
        if not self.rows:
            return ["fixed"]
        body = self.body or (f'{{"stats":{{"{self.column}":%d}},"owner":"%s"}}' if self.column else "")
        kind = ["post", self.path, body] if body else ["get", self.path, self.after]
        rest = [str(self.owners or ""), *self.then] if self.then[0] else [str(self.owners)] if self.owners else []
        return [*kind, str(self.rows), str(seed), str(self.pause_ms), *rest]


def run_wrk(target: Target, *, connections: int, seconds: float, seed: int) -> Figure:
    """Run one round and return its figure. Raises LoadFailedError if any request failed."""
    whole_s = max(1, round(seconds))
    address = target.url + ("/" if target.rows else target.path)
    command = [require_program("wrk", "wrk"), "-t1", f"-c{connections}", f"-d{whole_s}s", "--timeout", "10s"]
    if target.known:
        command += ["-H", f"If-None-Match: {target.known}"]
    if target.authorization:
        command += ["-H", f"Authorization: {target.authorization}"]
    command += ["-s", str(_SCRIPT), address, "--", *target.arguments(seed)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=whole_s + 60)
    figures = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    if ran.returncode or not figures:
        raise LoadFailedError(f"wrk: {ran.stdout[-300:]} {ran.stderr[-300:]}")
    found: dict[str, int] = json.loads(figures[-1])
    if found["refused"] or found["socket_errors"] or not found["requests"]:
        raise LoadFailedError(f"{target.path}: {figures[-1]}")
    per_s = found["requests"] / (found["duration_us"] / 1e6)
    return Figure(per_s, found["p50_us"] / 1000, found["p99_us"] / 1000)


def wrk_contestant(target: Target, *, connections: int, seconds: float) -> Callable[[int], Figure]:
    """Return a contestant that runs wrk. The round's number seeds the random owners, and round 0 is a short warm-up."""
    return lambda number: run_wrk(
        target, connections=connections, seconds=seconds if number else _WARM_UP_S, seed=number + connections
    )


def run_alternately(contestants: Mapping[str, Callable[[int], Figure]], *, rounds: int) -> dict[str, list[Figure]]:
    """Run rounds in which contestants take turns, and return each contestant's figures round by round.

    Every second round has the reverse order. Round 0 warms up and is not counted.
    """
    figures: dict[str, list[Figure]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        names = list(contestants) if number % 2 else list(contestants)[::-1]
        for name in names:
            figure = contestants[name](number)
            if number:
                figures[name].append(figure)
    return figures


def compare(contestants: Mapping[str, Callable[[int], Figure]], *, rounds: int) -> dict[str, list[Figure]]:
    """Run `run_alternately`, print a table of the contestants, and return their figures."""
    figures = run_alternately(contestants, rounds=rounds)
    timed = any(figure.p99_ms for found in figures.values() for figure in found)
    shown = len(COLUMNS) if timed else COLUMNS.index("p50 ms")
    report.print_table(COLUMNS[:shown], [table_row(name, found)[:shown] for name, found in figures.items()])
    return figures


def median_per_s(figures: list[Figure]) -> float:
    return statistics.median(figure.per_s for figure in figures)


def median_ratio(figures: list[Figure], baseline: list[Figure]) -> float:
    """Divide each round's rate by the baseline's rate in the same round, and return the median."""
    return statistics.median(one.per_s / other.per_s for one, other in zip(figures, baseline, strict=True))


COLUMNS = ("", "per second", "lowest", "highest", "p50 ms", "p99 ms")


def table_row(name: str, figures: list[Figure]) -> list[str | float]:
    """Return one contestant's row for a table with the columns COLUMNS."""
    rates = [figure.per_s for figure in figures]
    p50_ms = statistics.median(figure.p50_ms for figure in figures)
    p99_ms = statistics.median(figure.p99_ms for figure in figures)
    return [name, median_per_s(figures), min(rates), max(rates), p50_ms, p99_ms]

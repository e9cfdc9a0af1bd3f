"""Measure the worst error of live and frozen curves after a part of the board has changed.

python -m benchmarks.live_accuracy [DATA]

A frozen curve was fitted before the changes and does not count these changes. Certified curves with 1,000 knots are
measured after 10 % and after 50 % of the entries got new random values. If DATA is given, the changes that a real board
had in a month are posted, too. After each tenth of these posts, the ranks of all values are requested. Errors are
measured at every value and at the next lattice point after it. Only ranks beyond 1,000 are measured, because a service
counts better ranks exactly. Brackets and bounds are checked at all ranks.

Bars: the worst error is at most 0.40 % after 10 % of the entries changed, 0.60 % after 50 %, and 0.7 % in the replay of
the month (500 knots). No bracket or bound is broken.
"""

import asyncio
import json
import random
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from benchmarks import report
from benchmarks.boards import BATCH, COLUMN, RealBoard, fill_board, refresh_columns, send_batches
from benchmarks.boards import read_real_board as read_board
from benchmarks.client import Connection
from benchmarks.curve_boards import (
    SEED,
    CurveBoard,
    Keys,
    count_entries_by_key,
    fit_certified,
    make_boards,
    read_boards,
)
from benchmarks.options import Options, parse_options
from benchmarks.servers import serve_file
from benchmarks.skip_quality import Answers
from predictor import AsOf, Bracket, Curve, LiveCounts, LiveCurve
from storage.entries.exact_ranks import SHORT_GAP_ROWS
from tests.predictor.quality import Quality, count_by_key, measure_quality

FROM_RANK = 1_001
REDRAWN = {0.1: 0.40, 0.5: 0.60}  # the bar in percent, by the ratio of entries that get new values
KNOTS = 1_000
REPLAY_KNOTS = 500
REPLAY_WORST = 0.7
REPLAY_STEPS = 10
_LOOK_S = 0.2
_ASKED = 300  # values per request: the request line stays under 8 KiB
BEFORE, AFTER = "bgg_rated_2020-10-13", "bgg_rated_2020-11-13"


class ShortGapsCounted:
    """A live curve that counts in short gaps, as `rank=auto` does in a busy process. Ranks in short gaps are exact."""

    def __init__(self, live: LiveCurve, sorted_keys: Keys) -> None:
        self._live, self._keys = live, sorted_keys
        self.step, self._rows_max = live.step, SHORT_GAP_ROWS

    def locate(self, key: int) -> Bracket:
        if self._live.find_gap(key).rows > self._rows_max:
            return self._live.locate(key)
        rank = 1 + int(np.searchsorted(self._keys, key))
        return Bracket(rank, rank, rank, "knot")


@dataclass(frozen=True, slots=True)
class Changed:
    live: Quality
    auto: Quality
    frozen: Quality
    bound: float  # the current certificate for ranks from FROM_RANK on
    move_us: float


def change_board(board: CurveBoard, fit: Curve, part: float) -> Changed:
    """Give a random part of the entries new values, count each as a move, and measure the curves of the new board."""
    rng = np.random.default_rng(SEED + 1)
    keys: Keys = board.keys.copy()
    chosen = rng.choice(len(keys), round(part * len(keys)), replace=False)
    drawn = board.draw(rng, len(chosen))
    moves = list(zip(keys[chosen].tolist(), drawn.tolist(), strict=True))
    keys[chosen] = drawn
    counts = LiveCounts(fit)
    begun = time.perf_counter()
    counts.count_moves(moves)
    move_us = (time.perf_counter() - begun) / len(moves) * 1e6
    live, now = LiveCurve(fit, counts, as_of=AsOf(0)), count_entries_by_key(keys)
    return Changed(
        measure_quality(live, now, from_rank=FROM_RANK),
        measure_quality(ShortGapsCounted(live, np.sort(keys)), now, from_rank=FROM_RANK),
        measure_quality(fit, now, from_rank=FROM_RANK),
        live.estimate_drift(FROM_RANK).bound,
        move_us,
    )


def measure_redrawn(boards: list[CurveBoard]) -> list[report.Bar]:
    bars, rows = [], []
    for board in boards:
        fit = fit_certified(board.keys, KNOTS)
        for part, bar in REDRAWN.items():
            found = change_board(board, fit, part)
            worst, broken = 100 * found.live.worst_error, found.live.broken_brackets
            broken += found.live.worst_error > found.bound
            auto, frozen = 100 * found.auto.worst_error, 100 * found.frozen.worst_error
            rows.append((board.name, f"{part:.0%}", worst, auto, 100 * found.bound, frozen, broken, found.move_us))
            name = f"{board.name}, {part:.0%} redrawn"
            bars.append(report.Bar(f"{name}: worst relative error", worst, bar, " %", at_most=True))
            bars.append(report.Bar(f"{name}: broken brackets and bounds", broken, 0, at_most=True))
    report.print_table(
        ("board", "redrawn", "live worst %", "auto %", "bound %", "frozen worst %", "broken", "us a move"), rows
    )
    return bars


async def replay_month(port: int, before: RealBoard, after: RealBoard) -> list[report.Bar]:
    """Post the changes between two days of a real board in random order. After each tenth, check the live ranks."""
    spec = before.spec() | {"predictor": {"samples": REPLAY_KNOTS, "method": "scan", "refresh_seconds": 86_400}}
    await fill_board(port, before.name, owners=before.owners, named={COLUMN: before.texts}, body=spec)
    await refresh_columns(port, before.name, [COLUMN])
    now = dict(zip(before.owners, before.values, strict=True))
    target = dict(zip(after.owners, after.values, strict=True))
    posts = [(owner, value) for owner, value in target.items() if now.get(owner) != value]
    random.Random(SEED).shuffle(posts)
    worst, broken, rows = 0.0, 0, []
    size = -(-len(posts) // REPLAY_STEPS)
    for first in range(0, len(posts), size):
        step = posts[first : first + size]
        bodies = [
            json.dumps(
                {"posts": [{"owner": owner, "stats": {COLUMN: value}} for owner, value in step[at : at + BATCH]]}
            )
            for at in range(0, len(step), BATCH)
        ]
        await send_batches(port, before.name, [body.encode() for body in bodies])
        now.update(step)
        await wait_for_fold(port, before.name, time.time())
        found = await ask_service(port, before.name, sorted(-value for value in now.values()))
        worst, broken = max(worst, found.worst_error), broken + found.broken_brackets
        rows.append((first + len(step), 100 * found.worst_error, 100 * found.widest_bracket, found.broken_brackets))
    report.print_table(("posts", "worst %", "widest bracket %", "broken"), rows)
    return [
        report.Bar(
            f"replay, {len(posts):,} posts: worst without a refresh", 100 * worst, REPLAY_WORST, " %", at_most=True
        ),
        report.Bar("replay: broken brackets", broken, 0, at_most=True),
    ]


async def wait_for_fold(port: int, board: str, posted_s: float) -> None:
    """Wait until the live curve counts all posts that were answered before `posted_s` (seconds since 1970)."""
    connection = Connection(port)
    try:
        while True:
            state = (await connection.call_ok("GET", f"/v1/leaderboards/{board}"))["curves"][COLUMN]
            if datetime.fromisoformat(state["as_of"]).timestamp() >= posted_s:
                return
            await asyncio.sleep(_LOOK_S)
    finally:
        connection.close()


async def ask_service(port: int, board: str, keys: list[int]) -> Quality:
    """Request an estimate at every value and at the next possible value, and measure the errors of the answers."""
    answers = Answers(1)
    wanted = sorted({*keys, *(key + 1 for key in keys)})
    connection = Connection(port)
    try:
        for first in range(0, len(wanted), _ASKED):
            chunk = wanted[first : first + _ASKED]
            values = ",".join(str(-key) for key in chunk)
            path = f"/v1/leaderboards/{board}/rankings/{COLUMN}/positions?rank=estimate&values={values}"
            for key, position in zip(chunk, (await connection.call_ok("GET", path))["positions"], strict=True):
                answers.take(key, position)
    finally:
        connection.close()
    return measure_quality(answers, count_by_key(keys), from_rank=FROM_RANK)


def measure(options: Options, folder: Path) -> list[report.Bar]:
    boards = make_boards()
    if options.data is not None:
        boards += read_boards(options.data)
    bars = measure_redrawn(boards)
    if options.data is not None:
        with serve_file(folder / "replay.db") as server:
            before, after = read_board(options.data, BEFORE), read_board(options.data, AFTER)
            bars += asyncio.run(replay_month(server.port, before, after))
    return bars


def main() -> int:
    options = parse_options(__doc__)
    title = f"live curves, {KNOTS:,} knots, after random changes"
    if options.data is None:
        title += "; no folder of real boards is given"
    return report.run_benchmark(options, title, measure)


if __name__ == "__main__":
    sys.exit(main())

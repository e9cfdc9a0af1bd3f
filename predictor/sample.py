"""Which rows to read so that few knots leave no wide bracket: the read-skip-read plan, without the reading.

The one rule: never more than `knots_max` knots, whatever is answered. A walk yields questions and is sent the
answers, so that one plan serves every store. The next row read is the last whose rank is within (1 + d) of the first
rank past the knot before (geometric spacing: uniform spacing is off by 1,000 % and more near the top). Without ties d
follows from the number of entries; ties save knots, so d is corrected at every knot from what is left, and knots left
over at the end split the widest brackets. Skips are also
capped in rows, for which knots come on top: a count inside a gap has to stay short however deep the rank. Measured
against the best single d, which only knowing every row would tell: the widest bracket was 1.0 to 1.2 times it on seven
ordinary boards, up to 2.7 times on two made of long runs of ties.
"""

from __future__ import annotations

from collections.abc import Generator
from heapq import heapify, heappop, heappush
from math import isqrt, log, log1p
from typing import NamedTuple

from .curve import Knot
from .errors import WalkInconsistent

RATIO_UNIT = 1_000_000  # of `Stride.ratio_ppm`: whole numbers, so that every store skips the same rows
Reads = Generator["Skip | Last | Stride", "Landing | list[Landing] | None", "list[Knot]"]


class Skip(NamedTuple):
    """Skip `rows` entries among those strictly worse than `after_key` (None: from the top), then read one.

    Answer None past the end.
    """

    after_key: int | None
    rows: int


class Last(NamedTuple):
    """Read the worst entry. Answer None where there is none; `ties_before` of the answer is not looked at."""


class Stride(NamedTuple):
    """Skip and read `steps` times with one spacing: for stores whose round trips cost more than what they skip.

    Of the entries strictly worse than `after_key`, the first of which has `next_rank`, skip
    next_rank * ratio_ppm // RATIO_UNIT, but at most `rows_max`, read one, and go on from its key; end before the
    `total`-th. Answer a list.
    """

    after_key: int
    next_rank: int
    ratio_ppm: int
    steps: int
    total: int
    rows_max: int


class Landing(NamedTuple):
    """The entry landed on."""

    key: int
    ties_before: int  # entries with this key that stand before the row landed on, whatever order breaks ties
    ties: int  # entries with this key in all


def walk(total: int, *, knots_max: int, gap_rows_max: int = 1 << 62, stride_max: int = 1) -> Reads:
    """Yields `Skip` and `Last`, is sent a `Landing` or None for each, returns the knots, best first.

    With a `stride_max` above 1 it yields `Stride` too, of at most so many steps; the spacing is then corrected for ties
    once a stride.

    At most `knots_max` (at least 2) knots, and total / gap_rows_max more where gaps would hold more entries than
    `gap_rows_max`, one question each; every value is a knot where there are no more values than that. The first and the
    last knot are the best and the worst value.
    `total`: how many entries the snapshot holds. Were it wrong, the walk would still end, after two questions more at
    most, but the worst knot's count would be as wrong as it.
    Raises `WalkInconsistent` where an answer contradicts an earlier one, ValueError for fewer than 2 knots.
    """
    if knots_max < 2:
        raise ValueError("a curve needs 2 knots, for the best and the worst value")
    knots_max += max(0, total) // gap_rows_max
    knots = yield from _geometric(total, knots_max, gap_rows_max, stride_max)
    if 0 < len(knots) < knots_max:
        knots = yield from _split_widest(knots, knots_max)
    return knots


def _geometric(total: int, knots_max: int, gap_rows_max: int, stride_max: int) -> Reads:
    """The first pass: from the best value to the worst."""
    knots: list[Knot] = []
    key: int | None = None
    next_rank = 1  # of the first entry past the knots so far
    ratio = _solve(total, knots_max, gap_rows_max)
    while len(knots) + 1 < knots_max:
        rows = int(next_rank * ratio) if knots else 0  # the best value is a knot, however few there may be
        spare = _spare(knots_max - len(knots), total - next_rank, rows, gap_rows_max)
        if knots and spare < 0:
            ratio = 2 * (gap_rows_max + 1) / next_rank  # the knots left are for the cap on rows alone
            rows = gap_rows_max
        if rows >= gap_rows_max:
            rows, spare = gap_rows_max, knots_max
        if knots and next_rank + rows >= total:
            break  # the target is the worst entry: found from the other end, without skipping
        steps = min(stride_max, knots_max - 1 - len(knots), spare + 1)
        if knots and steps > 1:
            read = yield from _stride(knots[-1], next_rank, ratio, steps, total, gap_rows_max)
            if not read:
                break
            knots += read
        else:
            landing = yield Skip(key, rows)
            if not isinstance(landing, Landing):
                total = min(total, next_rank + rows - 1)
                break
            knots.append(_knot(landing, key, next_rank, rows))
        key, next_rank = knots[-1].key, knots[-1].better_count + knots[-1].ties + 1
        left = knots_max - len(knots)
        # One step of the fixed point d = d * steps(d) / left: ties only ever save knots, so the last d is near.
        ratio = ratio * _steps(next_rank, total, ratio, gap_rows_max) / left if total - next_rank >= left else 0.0
    if knots and next_rank != total + 1:
        knots.extend((yield from _worst(total, knots[-1])))
    return knots


def _spare(left: int, entries: int, rows: int, gap_rows_max: int) -> int:
    """How many of the knots left the cap on rows will not need, once one more is set so many rows further."""
    return left - 2 - (entries - rows) // (gap_rows_max + 1)


def _stride(before: Knot, next_rank: int, ratio: float, steps: int, total: int, gap_rows_max: int) -> Reads:
    """The knots of several steps with one spacing."""
    ratio_ppm = int(ratio * RATIO_UNIT)
    landings = yield Stride(before.key, next_rank, ratio_ppm, steps, total, gap_rows_max)
    if not isinstance(landings, list) or len(landings) > steps:
        raise WalkInconsistent("a stride is answered with a list of at most its steps")
    knots = [before]
    for landing in landings:
        rows = min(next_rank * ratio_ppm // RATIO_UNIT, gap_rows_max)
        knots.append(_knot(landing, knots[-1].key, next_rank, rows))
        next_rank = knots[-1].better_count + landing.ties + 1
    return knots[1:]


def _worst(total: int, before: Knot) -> Reads:
    """The worst entry's knot, unless it is the knot before."""
    landing = yield Last()
    if not isinstance(landing, Landing) or landing.key < before.key:
        raise WalkInconsistent("the worst entry is better than one read before")
    if landing.key == before.key:
        return []
    if landing.ties < 1:
        raise WalkInconsistent("an entry has itself as a tie")
    return [Knot(landing.key, max(total - landing.ties, before.better_count + before.ties), landing.ties)]


def _split_widest(knots: list[Knot], knots_max: int) -> Reads:
    """The second pass: spends what ties saved on the brackets that are widest for their rank."""
    gaps = [gap for i in range(1, len(knots)) if (gap := _gap(knots[i - 1], knots[i]))]
    heapify(gaps)
    while gaps and len(knots) < knots_max:
        _, before, after = heappop(gaps)
        low = 1 + before.better_count + before.ties
        rows = isqrt(low * (1 + after.better_count)) - low
        landing = yield Skip(before.key, rows)
        if not isinstance(landing, Landing) or landing.key >= after.key:
            raise WalkInconsistent("entries counted before are gone")
        middle = _knot(landing, before.key, low, rows)
        if middle.better_count + middle.ties > after.better_count:
            raise WalkInconsistent("more entries before a value than were counted")
        knots.append(middle)
        for gap in (_gap(before, middle), _gap(middle, after)):
            if gap:
                heappush(gaps, gap)
    return sorted(knots)


def _gap(before: Knot, after: Knot) -> tuple[float, Knot, Knot] | None:
    """(minus the bracket's relative width, its two knots), or None where no entry stands between them."""
    low = before.better_count + before.ties
    rows = after.better_count - low
    return (-rows / (low + 1), before, after) if rows else None


def _knot(landing: Landing, after_key: int | None, next_rank: int, rows: int) -> Knot:
    """The knot for a landing `rows` rows past rank `next_rank`."""
    key, ties_before, ties = landing
    if (after_key is not None and key <= after_key) or not 0 <= ties_before <= rows or ties <= ties_before:
        raise WalkInconsistent("the row landed on is not where it was said to be")
    return Knot(key, next_rank - 1 + rows - ties_before, ties)


def _steps(rank: int, total: int, ratio: float, gap_rows_max: int) -> float:
    """About how many knots follow `rank` without ties: every row up to rank 1/d, from there d·rank + 1/2 rows each, and
    where that were more than gap_rows_max, so many.
    """
    flat = max(1 / ratio - rank, 0.0)
    start = rank + flat
    if start >= total:
        return float(total - rank)
    capped = min(max(gap_rows_max / ratio, start), total)
    growing = log((capped * ratio + 0.5) / (start * ratio + 0.5)) / log1p(ratio)
    return flat + growing + (total - capped) / gap_rows_max


def _solve(total: int, knots_max: int, gap_rows_max: int) -> float:
    """The d with which a board without ties takes `knots_max` knots, by bisection; 0 where every row is one."""
    if total <= knots_max:
        return 0.0
    low, high = 1 / total, float(total)
    for _ in range(60):
        middle = (low * high) ** 0.5
        if _steps(1, total, middle, gap_rows_max) > knots_max:
            low = middle
        else:
            high = middle
    return high

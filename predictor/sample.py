"""Chooses which of a column's rows, read by the caller, become knots, so that even few knots leave no bracket wide.

A walk is a generator that yields requests for rows and is sent the rows, so the same walk works for every store. The
number of knots never exceeds its limit, whatever rows the caller sends.

- Spacing is geometric. The next row is the last one whose rank is at most (1 + d) times the first rank past the
  previous knot. (With uniform spacing, estimates of ranks near the top are wrong by 1,000 % and more.)
- If a board has no ties, the number of entries determines d. Ties save knots, because equal values share a knot. At
  every knot, d is therefore recomputed from the remaining knots and entries. At the end, unused knots split wide
  brackets.
- The number of rows between two knots is also limited, so that counting them takes little time at any rank. The knots
  that this limit needs are added to `knots_max`.

The best constant d can be found only by reading every row. On seven ordinary boards, the widest bracket of this walk
was 1.0 to 1.2 times as wide as with the best d. On two boards with long runs of ties it was up to 2.7 times as wide.
"""

from collections.abc import Generator
from heapq import heapify, heappop, heappush
from math import isqrt, log, log1p
from typing import NamedTuple

from .curve import Knot, limit_gap_rows
from .errors import WalkInconsistentError

# `Stride.ratio_ppm` is a ratio times RATIO_UNIT. It is an integer, so that every store skips the same rows.
RATIO_UNIT = 1_000_000
Reads = Generator["Skip | WorstEntry | Stride", "Landing | list[Landing] | None", "list[Knot]"]


class Skip(NamedTuple):
    """A walk's request: skip `rows` of the entries strictly worse than `after_key`, then read the next entry.

    If `after_key` is None, skip from the best entry. The caller sends a `Landing`, or None if no entry is left to read.
    """

    after_key: int | None
    rows: int


class WorstEntry(NamedTuple):
    """A walk's request: read the worst entry. The caller sends a `Landing` (`ties_before` is ignored), or None."""


class Stride(NamedTuple):
    """A walk's request: skip and read `steps` times with one spacing.

    This suits stores where a round trip costs more than the skipped rows. Begin after `after_key`: the first strictly
    worse entry has rank `next_rank`. In each step, skip next_rank * ratio_ppm // RATIO_UNIT entries, but at most
    `rows_max`. Then read one entry. The next step begins with the first entry strictly worse than this entry, with
    its rank as the new `next_rank`. Never read the `total`-th entry. The caller sends a list of `Landing`.
    """

    after_key: int
    next_rank: int
    ratio_ppm: int
    steps: int
    total: int
    rows_max: int


class Landing(NamedTuple):
    """The answer to a request of a walk: the entry that the caller read, and how many entries have the same key."""

    key: int
    ties_before: int  # number of entries with this key before this entry; ties may be in any order
    ties: int  # number of all entries with this key


def walk(total: int, *, knots_max: int, gap_rows_max: int = 1 << 62, stride_max: int = 1) -> Reads:
    """Choose the knots of a column. Yield `Skip` and `WorstEntry`, and expect a `Landing` or None for each.

    Return at most `knots_max` + total // gap_rows_max knots, from the best value to the worst. The second term is for
    knots that limit the entries of a gap to `gap_rows_max`. If the column has no more distinct values than this sum,
    every value is a knot. Without strides, each knot costs one request.

    If `stride_max` is greater than 1, the walk also yields `Stride`, each with at most `stride_max` steps. It then
    recomputes d only after each stride, not after each knot.

    `total` is the number of entries in the snapshot. If `total` is wrong, the walk needs at most two requests more, but
    the `better_count` of the worst knot is wrong by as much as `total`.

    Raises:
        WalkInconsistentError: a row contradicts an earlier row.
        ValueError: `knots_max` is below 2.
    """
    if knots_max < 2:
        raise ValueError("a curve needs 2 knots, for the best and the worst value")
    gap_rows_max = limit_gap_rows(total, gap_rows_max)
    knots_max += max(0, total) // gap_rows_max
    knots = yield from _geometric(total, knots_max, gap_rows_max, stride_max)
    if 0 < len(knots) < knots_max:
        knots = yield from _split_widest(knots, knots_max)
    return knots


def _geometric(total: int, knots_max: int, gap_rows_max: int, stride_max: int) -> Reads:
    """Choose knots with geometric spacing, from the best value to the worst. This is the first pass of a walk."""
    knots: list[Knot] = []
    key: int | None = None
    next_rank = 1  # rank of the first entry past the last knot
    ratio = _solve_spacing(total, knots_max, gap_rows_max)
    while len(knots) + 1 < knots_max:
        rows = int(next_rank * ratio) if knots else 0  # the best value is always a knot
        # `spare` is the number of remaining knots that the row limit will not need after a skip of `rows` rows.
        spare = knots_max - len(knots) - 2 - (total - next_rank - rows) // (gap_rows_max + 1)
        if knots and spare < 0:
            ratio = 2 * (gap_rows_max + 1) / next_rank  # no knots to spare: every gap gets `gap_rows_max` rows
            rows = gap_rows_max
        if rows >= gap_rows_max:
            rows, spare = gap_rows_max, knots_max
        if knots and next_rank + rows >= total:
            break  # the target is the worst entry, which `WorstEntry` reads without skipping
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
        # The `left` remaining knots should just suffice for the rest of the board. So multiply the spacing d (`ratio`)
        # by (estimated knots for the rest) / `left`. One correction is enough, because only ties change this factor.
        ratio = (
            ratio * _estimate_knots(next_rank, total, ratio, gap_rows_max) / left if total - next_rank >= left else 0.0
        )
    if knots and next_rank != total + 1:
        knots.extend((yield from _worst(total, knots[-1])))
    return knots


def _stride(before: Knot, next_rank: int, ratio: float, steps: int, total: int, gap_rows_max: int) -> Reads:
    ratio_ppm = int(ratio * RATIO_UNIT)
    landings = yield Stride(before.key, next_rank, ratio_ppm, steps, total, gap_rows_max)
    if not isinstance(landings, list) or len(landings) > steps:
        raise WalkInconsistentError("a stride is answered with a list of at most its steps")
    knots = [before]
    for landing in landings:
        rows = min(next_rank * ratio_ppm // RATIO_UNIT, gap_rows_max)
        knots.append(_knot(landing, knots[-1].key, next_rank, rows))
        next_rank = knots[-1].better_count + landing.ties + 1
    return knots[1:]


def _worst(total: int, before: Knot) -> Reads:
    landing = yield WorstEntry()
    if not isinstance(landing, Landing) or landing.key < before.key:
        raise WalkInconsistentError("the worst entry is better than one read before")
    if landing.key == before.key:
        return []
    if landing.ties < 1:
        raise WalkInconsistentError("an entry has itself as a tie")
    return [Knot(landing.key, max(total - landing.ties, before.better_count + before.ties), landing.ties)]


def _split_widest(knots: list[Knot], knots_max: int) -> Reads:
    gaps = [gap for i in range(1, len(knots)) if (gap := _gap(knots[i - 1], knots[i]))]
    heapify(gaps)
    while gaps and len(knots) < knots_max:
        _, before, after = heappop(gaps)
        low = 1 + before.better_count + before.ties
        rows = isqrt(low * (1 + after.better_count)) - low
        landing = yield Skip(before.key, rows)
        if not isinstance(landing, Landing) or landing.key >= after.key:
            raise WalkInconsistentError("entries counted before are gone")
        middle = _knot(landing, before.key, low, rows)
        if middle.better_count + middle.ties > after.better_count:
            raise WalkInconsistentError("more entries before a value than were counted")
        knots.append(middle)
        for gap in (_gap(before, middle), _gap(middle, after)):
            if gap:
                heappush(gaps, gap)
    return sorted(knots)


def _gap(before: Knot, after: Knot) -> tuple[float, Knot, Knot] | None:
    """Describe a gap for the heap, widest first: (-(entries / first rank), better knot, worse knot); None if empty."""
    low = before.better_count + before.ties
    rows = after.better_count - low
    return (-rows / (low + 1), before, after) if rows else None


def _knot(landing: Landing, after_key: int | None, next_rank: int, rows: int) -> Knot:
    """Create the knot for an entry read after skipping `rows` rows, the first of which has rank `next_rank`."""
    key, ties_before, ties = landing
    if (after_key is not None and key <= after_key) or not 0 <= ties_before <= rows or ties <= ties_before:
        raise WalkInconsistentError("the row landed on is not where it was said to be")
    return Knot(key, next_rank - 1 + rows - ties_before, ties)


def _estimate_knots(rank: int, total: int, ratio: float, gap_rows_max: int) -> float:
    """Estimate the number of knots after `rank` on a board without ties; `ratio` is the d of the spacing.

    Up to rank 1/d every row is a knot. After that, a gap holds d * rank + 1/2 rows, but at most `gap_rows_max`.
    """
    flat = max(1 / ratio - rank, 0.0)
    start = rank + flat
    if start >= total:
        return float(total - rank)
    capped = min(max(gap_rows_max / ratio, start), total)
    growing = log((capped * ratio + 0.5) / (start * ratio + 0.5)) / log1p(ratio)
    return flat + growing + (total - capped) / gap_rows_max


def _solve_spacing(total: int, knots_max: int, gap_rows_max: int) -> float:
    """Solve for the spacing d with which a board without ties gets `knots_max` knots, or 0 if every row is a knot."""
    if total <= knots_max:
        return 0.0
    low, high = 1 / total, float(total)
    for _ in range(60):
        middle = (low * high) ** 0.5
        if _estimate_knots(1, total, middle, gap_rows_max) > knots_max:
            low = middle
        else:
            high = middle
    return high

"""Compare live curves with a recount after every kind of move: brackets, order, exact ranks and encoded bytes."""

from bisect import bisect_left
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from math import gcd
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor import (
    SHAPE_UNIT,
    AsOf,
    Bracket,
    Curve,
    CurveCorruptError,
    Gap,
    Knot,
    KnotsInvalidError,
    LiveCounts,
    LiveCurve,
)
from tests.predictor.quality import check_order, rank_of

SEEDS = st.integers(0, 2**32)


def fit_values(rng: Random, entries: list[int], *, errors: bool = True) -> Curve:
    """Return a curve with knots at some of the values.

    Unless `errors` is false, measure the errors at lattice points.
    """
    entries = sorted(entries)
    values = sorted(set(entries))
    chosen = sorted({*values[:1], *values[-1:], *rng.sample(values, min(len(values), rng.randrange(1, 8)))})
    ties = Counter(entries)
    knots = [Knot(key, bisect_left(entries, key), ties[key]) for key in chosen]
    step = gcd(*(key - values[0] for key in values)) or 1 if values else 1
    pairs = [(rng.randrange(SHAPE_UNIT // 2), rng.randrange(SHAPE_UNIT // 2, SHAPE_UNIT + 1)) for _ in chosen[1:]]
    shapes = pairs if rng.random() < 0.5 else None
    curve = Curve(knots, total=len(entries), as_of_us=0, step=step, shapes=shapes)
    worst = [
        max(abs(curve.locate(key).rank - rank_of(entries, key)) for key in range(start + step, end + 1, step))
        for start, end in pairwise(chosen)
    ]
    return replace(curve, errors=worst if errors else None)


def draw_board(rng: Random) -> tuple[list[int], int]:
    """Draw the keys of a board and their lattice step.

    Few keys are distinct, so that ties, knots and gaps all occur.
    """
    step, reach = rng.choice([1, 1, 3, 10]), rng.choice([3, 20, 60])
    return [step * rng.randrange(-reach, reach) for _ in range(rng.choice([0, 1, 2, 30, 120]))], step


def move_entries(rng: Random, keys: list[int], step: int, counts: LiveCounts, times: int) -> None:
    """Add, remove and change entries in `keys`, and count these moves. A few new keys are not on the lattice."""
    for _ in range(times):
        after = step * rng.randrange(-80, 80) + (rng.random() < 0.02)
        kind = rng.random()
        if kind < 0.25 or not keys:
            counts.count_moves([(None, after)])
            keys.append(after)
            continue
        index = rng.randrange(len(keys))
        if kind < 0.4:
            counts.count_moves([(keys[index], None)])
            keys.pop(index)
        else:
            counts.count_moves([(keys[index], after)])
            keys[index] = after


@given(seed=SEEDS, errors=st.booleans())
def test_brackets_and_bounds_hold_whatever_entries_moved(seed: int, errors: bool) -> None:
    rng = Random(seed)
    entries, step = draw_board(rng)
    fit = fit_values(rng, entries, errors=errors)
    counts = LiveCounts(fit)
    for times in (0, 1, 5, 40):
        move_entries(rng, entries, step, counts, times)
        now = sorted(entries)
        live = LiveCurve(fit, counts, as_of=AsOf(9))
        before = Bracket(1, 1, 1, "knot")
        for key in range(-1000, 1000):
            bracket, rank = live.locate(key), rank_of(now, key)
            assert 1 <= bracket.low <= rank <= bracket.high <= len(now) + 1
            check_order(before, bracket)
            assert not bracket.exact or bracket.rank == rank
            before = bracket


def draw_moved(seed: int, times: int) -> tuple[Curve, LiveCounts, list[int]]:
    """Draw a board and change its entries.

    Return its fit, the live counts of the changes, and the current sorted keys.
    """
    rng = Random(seed)
    entries, step = draw_board(rng)
    fit = fit_values(rng, entries)
    counts = LiveCounts(fit)
    move_entries(rng, entries, step, counts, times)
    return fit, counts, sorted(entries)


def draw_live_board(seed: int) -> tuple[LiveCurve, list[int]]:
    """Draw a board and change its entries. Return its live curve, and its current keys in ascending order."""
    fit, counts, now = draw_moved(seed, 30)
    return LiveCurve(fit, counts, as_of=AsOf(0)), now


@given(seed=SEEDS)
def test_live_counts_equal_a_recount(seed: int) -> None:
    fit, counts, now = draw_moved(seed, 60)
    live = LiveCurve(fit, LiveCounts.decode(counts.encode(), fit), as_of=AsOf(9))
    assert (live.total, live.as_of_us) == (len(now), 9)
    assert live.knots == [Knot(knot.key, bisect_left(now, knot.key), now.count(knot.key)) for knot in fit.knots]
    for key in (*now, *(knot.key for knot in fit.knots)):
        assert live.ties_at(key) == (now.count(key) if any(knot.key == key for knot in fit.knots) else 0)
        gap = live.find_gap(key)
        between = [one for one in now if (gap.better_key is None or one > gap.better_key) and one < key]
        assert 1 + gap.better_count + len(between) == rank_of(now, key)
        rest = [one for one in now if one >= key and (gap.worse_key is None or one < gap.worse_key)]
        assert len(between) + len(rest) == gap.rows


@given(seed=SEEDS)
def test_the_drift_is_no_smaller_than_any_error(seed: int) -> None:
    live, now = draw_live_board(seed)
    for from_rank in (1, 5, 40):
        drift = live.estimate_drift(from_rank)
        for key in range(-900, 900):
            rank = rank_of(now, key)
            if rank >= from_rank:
                assert abs(live.locate(key).rank - rank) / rank <= drift.bound + 1e-12
        assert drift.bound <= drift.bracket


@given(seed=SEEDS)
def test_the_key_of_a_rank_lies_in_its_bracket(seed: int) -> None:
    live, now = draw_live_board(seed)
    assert (live.key_at(1) is None) == (not now)
    for rank in range(1, len(now) + 2):
        found = live.key_at(rank)
        if found is not None:
            assert found.low <= now[min(rank, len(now)) - 1] <= found.high
            assert found.low <= found.key <= found.high


@given(seed=SEEDS)
def test_the_order_of_moves_does_not_matter(seed: int) -> None:
    rng = Random(seed)
    entries, step = draw_board(rng)
    fit = fit_values(rng, entries)
    moves = [(key, step * rng.randrange(-90, 90)) for key in entries] + [(None, 5), (None, -700)]
    first, second = LiveCounts(fit), LiveCounts(fit)
    first.count_moves(moves)
    second.count_moves(rng.sample(moves, len(moves)))
    assert first.encode() == second.encode()


@given(seed=SEEDS, flip=st.integers(0, 10**6))
def test_damaged_counts_are_noticed(seed: int, flip: int) -> None:
    fit, counts, _ = draw_moved(seed, 20)
    stored = bytearray(counts.encode())
    stored[flip // 8 % len(stored)] ^= 1 << flip % 8
    with pytest.raises(CurveCorruptError):
        LiveCounts.decode(bytes(stored), fit)


def test_counts_of_another_curve_are_refused() -> None:
    one = Curve([Knot(1, 0, 1)], total=1, as_of_us=0)
    two = Curve([Knot(1, 0, 1), Knot(2, 1, 1)], total=2, as_of_us=0)
    with pytest.raises(CurveCorruptError, match="another"):
        LiveCounts.decode(LiveCounts(one).encode(), two)
    with pytest.raises(CurveCorruptError):
        LiveCounts.decode(b"", two)


def test_more_departures_than_entries_make_no_live_curve() -> None:
    fit = Curve([Knot(1, 0, 1)], total=1, as_of_us=0)
    counts = LiveCounts(fit)
    counts.count_moves([(1, None), (1, None)])
    with pytest.raises(KnotsInvalidError):
        LiveCurve(fit, counts, as_of=AsOf(0))


def test_a_live_curve_without_moves_equals_its_fit() -> None:
    fit = Curve([Knot(0, 0, 1), Knot(10, 5, 1)], total=6, as_of_us=3, method="scan", certificate=0.5, errors=[2])
    live = LiveCurve(fit, LiveCounts(fit), as_of=AsOf(3))
    assert all(live.locate(key) == fit.locate(key) for key in range(-3, 14))
    assert (live.certificate, live.method, live.step, live.total) == (0.5, "scan", 1, 6)
    assert [live.key_at(rank) for rank in range(1, 8)] == [fit.key_at(rank) for rank in range(1, 8)]


def test_a_live_curve_equals_its_fit_again_once_its_counts_are_back() -> None:
    fit = Curve([Knot(0, 0, 2), Knot(10, 5, 1)], total=6, as_of_us=0, step=1)
    counts = LiveCounts(fit)
    seen = []
    for move in ((None, 0), (0, None), (3, 5)):
        seen.append(LiveCurve(fit, counts, as_of=AsOf(0)).is_as_fitted)
        counts.count_moves([move])
    seen.append(LiveCurve(fit, counts, as_of=AsOf(0)).is_as_fitted)
    assert seen == [True, False, True, False], "a move within a gap is a change"


def test_ranks_beyond_the_best_and_the_worst_arrival_are_exact() -> None:
    fit = Curve([Knot(0, 0, 1), Knot(100, 1, 1)], total=2, as_of_us=0)
    counts = LiveCounts(fit)
    counts.count_moves([(None, -50), (None, -20), (None, 140)])
    live = LiveCurve(fit, counts, as_of=AsOf(0))
    exact = {key: live.locate(key).exact for key in (-51, -50, -49, 0, 101, 140, 141)}
    assert exact == {-51: True, -50: True, -49: False, 0: True, 101: False, 140: False, 141: True}
    assert live.locate(141) == Bracket(6, 6, 6, "knot")
    assert live.find_gap(-50) == Gap(None, 0, better_count=0, rows=2)
    assert live.find_gap(150) == Gap(100, None, better_count=4, rows=1)


def test_a_key_off_the_lattice_ends_the_snapping() -> None:
    fit = Curve([Knot(0, 0, 1), Knot(10, 1, 1)], total=2, as_of_us=0, method="scan", step=10, errors=[0])
    counts = LiveCounts(fit)
    counts.count_moves([(None, 20)])
    assert LiveCurve(fit, counts, as_of=AsOf(0)).step == 10
    counts.count_moves([(None, 7)])
    live = LiveCurve(fit, counts, as_of=AsOf(0))
    assert live.step == 1
    # If `locate` rounded key 8 to the lattice point 10, key 8 would get the wrong rank 3, marked as exact.
    bracket = live.locate(8)
    assert bracket.low <= 3 <= bracket.high
    assert live.locate(6).low <= 2

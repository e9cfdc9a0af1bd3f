"""Compare curves with a brute-force count: brackets hold, exact means exact, and the ranks of shards add up."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from predictor import SHAPE_UNIT, Bracket, Curve, KeyBracket, Knot, KnotsInvalidError, SummedCurve
from tests.predictor.quality import check_order, make_curve, rank_of
from tests.predictor.walking import sample

WIDE = 10**40
BOARDS = st.one_of(
    st.lists(st.integers(-30, 30), max_size=200),
    st.lists(st.integers(-WIDE, WIDE), max_size=60),
    st.lists(st.tuples(st.integers(-9, 9), st.integers(1, 40)), max_size=12).map(
        lambda runs: [key for key, ties in runs for _ in range(ties)]
    ),
).map(sorted)


def measure_errors(curve: Curve, keys: list[int]) -> Curve:
    """Return the curve with `errors`: for each gap, the largest difference between an estimated and a true rank."""
    errors = []
    for knot, worse in pairwise(curve.knots):
        within = [key for key in keys if knot.key < key < worse.key]
        asked = {knot.key + 1, *within, *(key + 1 for key in within)}
        errors.append(max(abs(curve.locate(key).rank - rank_of(keys, key)) for key in asked))
    return replace(curve, errors=errors)


def list_probes(keys: list[int]) -> list[int]:
    """Return keys to look up: the given keys, their neighbours, the middle of every two, and keys beyond both ends."""
    around = {near for key in keys for near in (key - 1, key, key + 1)}
    middles = {(key + next_key) // 2 for key, next_key in pairwise(keys)}
    return sorted(around | middles | {-10 * WIDE, 0, 10 * WIDE})


@example(keys=[], knots_max=2)
@given(keys=BOARDS, knots_max=st.integers(2, 20))
def test_every_bracket_has_the_true_rank_and_ranks_never_fall(keys: list[int], knots_max: int) -> None:
    curve = sample(keys, knots_max)
    before = Bracket(1, 1, 1, "knot")
    for key in list_probes(keys):
        bracket = curve.locate(key)
        assert 1 <= bracket.low <= rank_of(keys, key) <= bracket.high <= len(keys) + 1
        check_order(before, bracket)
        assert bracket.exact == (bracket.method == "knot")
        before = bracket


SHAPES = st.lists(st.tuples(st.integers(0, SHAPE_UNIT), st.integers(0, SHAPE_UNIT)), min_size=19, max_size=19)


def add_shapes(curve: Curve, pairs: list[tuple[int, int]] | None) -> Curve:
    """If there are pairs of control values, replace the curve's lines by cubics with these control values."""
    if pairs is None:
        return curve
    gap_count = max(0, len(curve.knots) - 1)
    return replace(curve, shapes=[(min(pair), max(pair)) for pair in pairs[:gap_count]])


@example(keys=[], knots_max=2, pairs=None)
@given(keys=BOARDS, knots_max=st.integers(2, 20), pairs=st.none() | SHAPES)
def test_a_rank_is_answered_by_the_worst_key_that_still_has_it(
    keys: list[int], knots_max: int, pairs: list[tuple[int, int]] | None
) -> None:
    curve = add_shapes(sample(keys, knots_max), pairs)
    for rank in range(1, len(keys) + 3):
        found = curve.key_at(rank)
        if not keys:
            assert found is None
            continue
        assert found is not None
        true_key = keys[min(rank, len(keys)) - 1]
        assert found.low <= true_key <= found.high
        assert found.low <= found.key <= found.high
        assert not found.exact or found.key == true_key
        # `key_at` is the inverse of `locate`, unless the key is limited to an end of the bracket.
        assert curve.locate(found.key).rank <= rank or found.key == found.low
        assert curve.locate(found.key + 1).rank > min(rank, len(keys)) or found.key == found.high


@given(keys=BOARDS, knots_max=st.integers(2, 20), pairs=st.none() | SHAPES)
def test_a_known_error_narrows_the_bracket_around_the_true_rank(
    keys: list[int], knots_max: int, pairs: list[tuple[int, int]] | None
) -> None:
    plain = add_shapes(sample(keys, knots_max), pairs)
    curve = measure_errors(plain, keys)
    before = Bracket(1, 1, 1, "knot")
    for key in list_probes(keys):
        bracket, wide = curve.locate(key), plain.locate(key)
        assert wide.low <= bracket.low <= rank_of(keys, key) <= bracket.high <= wide.high
        assert bracket.rank == wide.rank
        check_order(before, bracket)
        before = bracket
    for rank in range(1, len(keys) + 1):
        found, broad = curve.key_at(rank), plain.key_at(rank)
        assert found is not None
        assert broad is not None
        assert broad.low <= found.low <= keys[rank - 1] <= found.high <= broad.high
        assert found.low <= found.key == broad.key <= found.high


def test_the_value_of_a_rank_is_as_precise_as_the_rank() -> None:
    knots = [Knot(0, 0, 1), Knot(1001, 1000, 1)]
    found = Curve(knots, total=1001, as_of_us=0, errors=[3]).key_at(501)
    assert found is not None
    assert (found.key, found.low, found.high) == (500, 497, 504)  # without `errors`, the bracket would be (1, 1000)


def test_a_cubic_follows_its_control_values() -> None:
    knots = [Knot(0, 0, 1), Knot(1001, 1000, 1)]
    early = Curve(knots, total=1001, as_of_us=0, shapes=[(SHAPE_UNIT, SHAPE_UNIT)])
    late = Curve(knots, total=1001, as_of_us=0, shapes=[(0, 0)])
    # The cubics are 1 - (1 - t)^3 and t^3. Both rise from rank 2 to rank 1001.
    assert [early.locate(key).rank for key in (1, 101, 501, 1001)] == [2, 273, 876, 1001]
    assert [late.locate(key).rank for key in (1, 101, 501, 1001)] == [2, 3, 127, 1001]


@pytest.mark.parametrize("columns", [
    {"errors": [0]}, {"errors": [-1, 0]}, {"shapes": [(0, 1)]}, {"shapes": [(2, 1), (0, 0)]},
    {"shapes": [(0, SHAPE_UNIT + 1), (0, 0)]}, {"shapes": [(-1, 0), (0, 0)]},
    {"certificate": -0.1}, {"certificate": float("nan")}, {"certificate": float("inf")},
])  # fmt: skip
def test_errors_shapes_and_certificates_out_of_their_bounds_make_no_curve(columns: dict[str, Any]) -> None:
    knots = [Knot(0, 0, 1), Knot(5, 2, 1), Knot(9, 3, 1)]
    with pytest.raises(KnotsInvalidError):
        Curve(knots, total=4, as_of_us=0, **columns)


@given(
    lattice=st.lists(st.integers(-20, 20), min_size=1, max_size=80), step=st.integers(1, 7), offset=st.integers(-9, 9)
)
def test_keys_between_lattice_points_have_the_rank_of_the_next_point(
    lattice: list[int], step: int, offset: int
) -> None:
    keys = sorted(offset + step * point for point in lattice)
    plain = sample(keys, 8)
    curve = Curve(plain.knots, total=plain.total, as_of_us=0, method="scan", step=step)
    for key in list_probes(keys):
        bracket = curve.locate(key)
        assert bracket.low <= rank_of(keys, key) <= bracket.high
    for rank in range(1, len(keys) + 1):
        found = curve.key_at(rank)
        assert found is not None
        assert found.low <= keys[rank - 1] <= found.high
        assert (found.key - offset) % step == 0


def test_one_entry_is_first_and_everything_worse_is_second() -> None:
    curve = Curve([Knot(10, 0, 1)], total=1, as_of_us=0)
    assert [curve.locate(key).rank for key in (9, 10, 11)] == [1, 1, 2]
    assert [curve.key_at(rank) for rank in (1, 2, 99)] == [KeyBracket(10, 10, 10)] * 3


def test_ties_at_both_ends_count_in_full() -> None:
    curve = Curve([Knot(0, 0, 4), Knot(100, 104, 6)], total=110, as_of_us=0)
    assert curve.locate(0) == Bracket(1, 1, 1, "knot")
    assert curve.locate(1) == Bracket(5, 5, 105, "curve")
    assert curve.locate(100) == Bracket(105, 105, 105, "knot")
    assert curve.locate(101) == Bracket(111, 111, 111, "knot")


def test_a_line_starts_after_the_ties_of_its_knot_and_rounds_halves_up() -> None:
    curve = Curve([Knot(0, 0, 1), Knot(11, 6, 1)], total=8 - 1, as_of_us=0)
    # The line rises from rank 2 at key 1 to rank 7 at key 11, by half a rank for each key.
    assert [curve.locate(key).rank for key in range(1, 12)] == [2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]


def test_a_gap_without_entries_is_exact() -> None:
    curve = Curve([Knot(0, 0, 3), Knot(10**40, 3, 1)], total=4, as_of_us=0)
    assert curve.locate(10**39) == Bracket(4, 4, 4, "knot")


def test_neighbouring_ranks_differ_where_keys_of_forty_digits_differ_by_one() -> None:
    start = 10**40
    curve = Curve([Knot(start, 0, 1), Knot(start + 101, 101, 1)], total=102, as_of_us=0)
    assert [curve.locate(start + i).rank for i in range(102)] == list(range(1, 103))


def test_ranks_below_one_have_no_key() -> None:
    with pytest.raises(ValueError, match="start at 1"):
        Curve([Knot(1, 0, 1)], total=1, as_of_us=0).key_at(0)


@pytest.mark.parametrize(("knots", "total", "step"), [
    ([], 1, 1), ([Knot(1, 0, 1)], 2, 1), ([Knot(1, 1, 1)], 2, 1), ([Knot(1, 0, 0)], 0, 1), ([Knot(1, 0, 1)], 1, 0),
    ([Knot(1, 0, 1), Knot(1, 1, 1)], 2, 1), ([Knot(2, 0, 1), Knot(1, 1, 1)], 2, 1),
    ([Knot(1, 0, 2), Knot(5, 1, 1)], 2, 1), ([Knot(1, 0, 1), Knot(2, 2, 1)], 3, 1),
    ([Knot(1, 0, 1), Knot(4, 1, 1)], 2, 2),
])  # fmt: skip
def test_knots_that_contradict_each_other_make_no_curve(knots: list[Knot], total: int, step: int) -> None:
    with pytest.raises(KnotsInvalidError):
        Curve(knots, total=total, as_of_us=0, step=step)


KEYS = st.lists(st.integers(-30, 30), max_size=60)


@given(shards=st.lists(KEYS, min_size=1, max_size=4), every=st.integers(1, 5), key=st.integers(-35, 35))
def test_the_rank_over_shards_lies_in_the_sum_of_their_brackets(shards: list[list[int]], every: int, key: int) -> None:
    whole = sorted(key for shard in shards for key in shard)
    true_rank = rank_of(whole, key)
    found = SummedCurve([make_curve(sorted(shard), every) for shard in shards]).locate(key)
    assert found.low <= true_rank <= found.high
    assert found.low <= found.rank <= found.high
    if every == 1:
        assert found[:3] == (true_rank, true_rank, true_rank)

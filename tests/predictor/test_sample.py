"""Test that a walk asks no more questions than its bound allows, and that errors are measured as by hand."""

from bisect import bisect_left, bisect_right
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from predictor import Curve, Knot, Landing, Skip, WalkInconsistentError, WorstEntry, walk
from tests.predictor.quality import count_by_key, find_widest_bracket, list_gap_rows, measure_quality
from tests.predictor.walking import drive, sample

BOARDS = st.one_of(
    st.lists(st.integers(-50, 50), max_size=300),
    st.lists(st.tuples(st.integers(-(10**40), 10**40), st.integers(1, 60)), max_size=30).map(
        lambda runs: [key for key, ties in runs for _ in range(ties)]
    ),
    st.integers(0, 2_000).map(lambda rows: list(range(rows))),
).map(sorted)


@given(keys=BOARDS, knots_max=st.integers(2, 70), stride_max=st.integers(1, 9))
def test_knots_are_values_counted_exactly_and_include_both_ends(
    keys: list[int], knots_max: int, stride_max: int
) -> None:
    knots = drive(keys, knots_max, stride_max=stride_max)
    assert len(knots) == min(knots_max, len(set(keys))), "a walk leaves knots over only if no value is left to find"
    assert knots == sorted(set(knots))
    for key, better_count, ties in knots:
        assert better_count == bisect_left(keys, key)
        assert ties == bisect_right(keys, key) - better_count > 0
    if keys:
        assert (knots[0].key, knots[-1].key) == (keys[0], keys[-1])


@given(keys=BOARDS, knots_max=st.integers(2, 40), total=st.integers(-10, 10**18))
def test_a_wrong_total_neither_keeps_the_walk_from_ending_nor_gives_it_more_knots(
    keys: list[int], knots_max: int, total: int
) -> None:
    try:
        assert len(drive(keys, knots_max, total=total)) <= knots_max
    except WalkInconsistentError:
        assert total != len(keys)


@given(
    knots_max=st.integers(2, 20),
    total=st.integers(0, 1_000),
    answers=st.lists(st.none() | st.builds(Landing, *[st.integers(-5, 40)] * 3), min_size=25, max_size=25),
)
def test_answers_without_sense_also_end_the_walk(knots_max: int, total: int, answers: list[Landing | None]) -> None:
    questions = walk(total, knots_max=knots_max)
    next(questions)
    knots: list[Knot] = []
    for asked, answer in enumerate(answers, start=1):
        try:
            questions.send(answer)
        except StopIteration as done:
            knots = done.value
            break
        except WalkInconsistentError:
            break
        assert asked <= knots_max + 1
    assert len(knots) <= knots_max


def test_the_first_question_is_for_the_best_entry_and_the_worst_is_read_from_its_own_end() -> None:
    questions = walk(10**9, knots_max=2)
    assert next(questions) == Skip(None, 0)
    assert questions.send(Landing(5, 0, 1)) == WorstEntry()
    with pytest.raises(StopIteration) as done:
        questions.send(Landing(99, 0, 3))
    assert done.value.value == [Knot(5, 0, 1), Knot(99, 10**9 - 3, 3)]


def test_an_empty_column_takes_one_question() -> None:
    questions = walk(0, knots_max=100)
    next(questions)
    with pytest.raises(StopIteration) as done:
        questions.send(None)
    assert done.value.value == []


def test_a_curve_needs_two_knots() -> None:
    with pytest.raises(ValueError, match="2 knots"):
        next(walk(10, knots_max=1))


@pytest.mark.parametrize("rows", [1_001, 20_000, 343_000])
def test_spacing_uses_the_knots_up_and_leaves_no_bracket_wider_than_the_next(rows: int) -> None:
    keys = list(range(rows))
    curve = sample(keys, 1_000)
    assert len(curve.knots) == 1_000
    # For n rows without ties and K knots, the relative width d of every bracket solves 1/d + ln(n·d)/d = K. For 343,000
    # rows and 1,000 knots, d is 0.9 %.
    assert find_widest_bracket(curve.knots) <= 0.009


def find_best_single_ratio(keys: list[int], knots_max: int) -> float:
    """Find the smallest relative width of brackets that is possible with `knots_max` knots, if all rows are known."""

    def knots(ratio: float) -> int:
        next_rank, taken = 1 + bisect_right(keys, keys[0]), 1
        while next_rank <= len(keys):
            next_rank = 1 + bisect_right(keys, keys[min(len(keys), int(next_rank * (1 + ratio))) - 1])
            taken += 1
        return taken

    low, high = 0.0, 1.0
    for _ in range(20):
        low, high = (low, (low + high) / 2) if knots((low + high) / 2) <= knots_max else ((low + high) / 2, high)
    return high


@pytest.mark.parametrize("knots_max", [300, 1_000])
@pytest.mark.parametrize("sign", [-1, 1])
def test_knots_that_ties_save_make_brackets_nearly_as_narrow_as_full_knowledge(knots_max: int, sign: int) -> None:
    rng = Random(11)
    keys = sorted(sign * round(rng.lognormvariate(5, 1.5)) for _ in range(60_000))
    curve = sample(keys, knots_max)
    quality = measure_quality(curve, count_by_key(keys))
    assert len(curve.knots) == knots_max
    assert quality.broken_brackets == 0
    assert quality.worst_error <= quality.widest_bracket <= 1.25 * find_best_single_ratio(keys, knots_max)


def test_strides_leave_brackets_about_as_narrow_as_single_steps() -> None:
    rng = Random(3)
    keys = sorted(-round(rng.lognormvariate(10, 1.5)) for _ in range(60_000))
    single, strides = (find_widest_bracket(drive(keys, 500, stride_max=stride_max)) for stride_max in (1, 64))
    assert strides <= 1.15 * single


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=400).map(sorted),
    st.integers(2, 30),
    st.integers(1, 60),
    st.sampled_from([1, 8]),
)
@example(list(range(400)), 2, 3, 1)
@example(list(range(400)), 2, 3, 8)
def test_extra_knots_keep_every_gap_within_its_allowed_rows(
    keys: list[int], knots_max: int, gap_rows_max: int, stride_max: int
) -> None:
    knots = drive(keys, knots_max, gap_rows_max=gap_rows_max, stride_max=stride_max)
    assert max(list_gap_rows(knots), default=0) <= gap_rows_max
    assert len(knots) <= knots_max + len(keys) // gap_rows_max


def test_the_worst_error_is_found_at_the_first_point_past_a_value() -> None:
    keys = [0, 1, 1, 1, 1, 9]
    quality = measure_quality(Curve([Knot(0, 0, 1), Knot(9, 5, 1)], total=6, as_of_us=0), count_by_key(keys))
    # At key 2 the line has rank 3. Five entries are better, so the true rank is 6.
    assert (quality.worst_error, quality.worst_key) == (0.5, 2)
    assert quality.worst_entry_error == quality.mean_error == 0.0
    assert quality.widest_bracket == 2.0
    assert quality.broken_brackets == 0


def test_entries_of_another_board_break_brackets() -> None:
    curve = Curve([Knot(0, 0, 1), Knot(9, 1, 1)], total=2, as_of_us=0)
    assert measure_quality(curve, count_by_key([0, 4, 5, 9])).broken_brackets > 0

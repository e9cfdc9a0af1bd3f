"""Compare measured errors with errors that were worked out by hand."""

from predictor import Curve, Knot
from tests.predictor.quality import count_by_key, measure_quality


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

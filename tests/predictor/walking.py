"""Answer the questions of a walk from a sorted list of keys, so that tests of walks need no store."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from predictor import RATIO_UNIT, Curve, Knot, Landing, Skip, Stride, WorstEntry, walk


def _answer(question: Skip | WorstEntry, keys: Sequence[int]) -> Landing | None:
    if isinstance(question, WorstEntry):
        row = len(keys) - 1
    else:
        assert question.rows >= 0
        row = question.rows + (0 if question.after_key is None else bisect_right(keys, question.after_key))
    if not 0 <= row < len(keys):
        return None
    first = bisect_left(keys, keys[row])
    return Landing(keys[row], row - first, bisect_right(keys, keys[row]) - first)


def _strides(stride: Stride, keys: Sequence[int]) -> list[Landing]:
    landings: list[Landing] = []
    after_key, next_rank = stride.after_key, stride.next_rank
    for _ in range(stride.steps):
        rows = min(next_rank * stride.ratio_ppm // RATIO_UNIT, stride.rows_max)
        landing = _answer(Skip(after_key, rows), keys)
        if landing is None or next_rank + rows >= stride.total:
            break
        landings.append(landing)
        after_key = landing.key
        next_rank += rows - landing.ties_before + landing.ties
    return landings


def drive(
    sorted_keys: Sequence[int],
    knots_max: int,
    total: int | None = None,
    *,
    gap_rows_max: int = 1 << 62,
    stride_max: int = 1,
) -> list[Knot]:
    """Run a walk on sorted keys, and return the knots that the walk chose. Fail if it asks more than it may.

    By default, `total` is the number of keys.
    """
    entries = len(sorted_keys) if total is None else total
    questions = walk(entries, knots_max=knots_max, gap_rows_max=gap_rows_max, stride_max=stride_max)
    knots_max += max(0, entries) // gap_rows_max
    question = next(questions)
    for _ in range(knots_max + 2 if total is not None else knots_max):
        try:
            question = questions.send(
                _strides(question, sorted_keys) if isinstance(question, Stride) else _answer(question, sorted_keys)
            )
        except StopIteration as done:
            knots: list[Knot] = done.value
            return knots
    raise AssertionError("the walk asks more than it may")


def sample(sorted_keys: Sequence[int], knots_max: int) -> Curve:
    """Make a curve from the knots of a walk."""
    return Curve(drive(sorted_keys, knots_max), total=len(sorted_keys), as_of_us=0)

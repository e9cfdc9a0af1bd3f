"""Skip sampling: drives the predictor's walk with seeks over a ranked column, in one snapshot, and makes the curve."""

from __future__ import annotations

from predictor import Curve, Knot, Landing, Last, Stride, walk
from querybuilder import Dialect

from .entries import Entries
from .leaderboards import count_entries
from .rankings import Sample
from .store import Program
from .strides import Strides

KNOTS_MIN = 2  # the best and the worst value
# Samples of one statement where a server can walk by itself. The spacing is corrected for ties between them.
STRIDE_MAX = 64


def sample_curve(
    dialect: Dialect, entries: Entries, column_index: int, *, gap_rows_max: int, now_us: int
) -> Program[Curve]:
    """Read one row, skip many, read one row …: a curve of about `samples` knots, true at this snapshot.

    More of them where gaps would hold more than `gap_rows_max` entries.
    """
    totals = yield from count_entries(dialect, [entries.board.key])
    total = totals[entries.board.key].get(column_index, 0)
    if total == 0:
        return Curve((), total=0, as_of_us=now_us)
    knots = yield from _walk(entries, column_index, total, gap_rows_max)
    return Curve(knots, total=total, as_of_us=now_us)


def _walk(entries: Entries, column_index: int, total: int, gap_rows_max: int) -> Program[list[Knot]]:
    ranking = entries.rankings[column_index]
    padding = ranking.padding
    stride_max = STRIDE_MAX if entries.dialect.lateral else 1
    strides = Strides(entries.dialect, entries.board, column_index, total=total)
    samples = max(KNOTS_MIN, entries.board.spec.predictor.samples)
    plan = walk(total, knots_max=samples, gap_rows_max=gap_rows_max, stride_max=stride_max)

    def landing(found: Sample | None) -> Landing | None:
        return None if found is None else Landing(padding.key(found.cell), found.ties_before, found.ties)

    answer: Landing | list[Landing] | None = None
    try:
        question = next(plan)
        while True:
            if isinstance(question, Last):
                answer = landing((yield from ranking.sample_worst()))
            elif isinstance(question, Stride):
                found = yield from strides.read(question, padding.cell_of_key(question.after_key))
                answer = [Landing(padding.key(each.cell), each.ties_before, each.ties) for each in found]
            else:
                below = None if question.after_key is None else padding.cell_of_key(question.after_key)
                answer = landing((yield from ranking.sample(question.rows, below)))
            question = plan.send(answer)
    except StopIteration as stop:
        yield from strides.close()
        return stop.value  # type: ignore[no-any-return]

"""Skip sampling: drives the predictor's walk with seeks over a ranked column, in one snapshot, and makes the curve."""

from __future__ import annotations

from predictor import Curve, Knot, Landing, Last, walk
from querybuilder import Dialect

from .entries import Entries
from .leaderboards import count_entries
from .store import Program

KNOTS_MIN = 2  # the best and the worst value


def sample_curve(dialect: Dialect, entries: Entries, column_index: int, *, now_us: int) -> Program[Curve]:
    """Read one row, skip many, read one row …: a curve of at most `samples` knots, true at this snapshot."""
    totals = yield from count_entries(dialect, [entries.board.key])
    total = totals[entries.board.key].get(column_index, 0)
    if total == 0:
        return Curve((), total=0, as_of_us=now_us)
    knots = yield from _walk(entries, column_index, total)
    return Curve(knots, total=total, as_of_us=now_us)


def _walk(entries: Entries, column_index: int, total: int) -> Program[list[Knot]]:
    ranking = entries.rankings[column_index]
    padding = ranking.padding
    plan = walk(total, knots_max=max(KNOTS_MIN, entries.board.spec.predictor.samples))
    answer: Landing | None = None
    try:
        question = next(plan)
        while True:
            if isinstance(question, Last):
                found = yield from ranking.sample_worst()
            else:
                below = None if question.after_key is None else padding.cell_of_key(question.after_key)
                found = yield from ranking.sample(question.rows, below)
            answer = None
            if found is not None:
                answer = Landing(padding.key(found.cell), found.ties_before, found.ties)
            question = plan.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]

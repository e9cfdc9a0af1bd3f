"""What is known of stored curves without reading them: enough to say which are old.

The rule: a mark is written with its curve, so whoever reads it knows what the curve counts and how it was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from querybuilder import Dialect, Statement, col, param, select

from .migrate import CURVES
from .records import Board
from .store import Program


@dataclass(frozen=True, slots=True)
class CurveMark:
    """One curve's mark."""

    epoch: int
    version: int
    as_of_us: int
    changes: int | None  # the board's count of changes in the snapshot of the fit; None: not known
    rules: str | None  # `rules_of` its board at that time; None: not known


def rules_of(board: Board) -> str:
    """What of a board's spec makes its curves: other rules want another curve, though no row changed."""
    return f"{board.spec.predictor.method.value}/{board.spec.predictor.samples}"


def curve_marks(dialect: Dialect, board_keys: Sequence[int]) -> Program[dict[tuple[int, int], CurveMark]]:
    """The marks of the boards' curves, by board key and column index."""
    rows = yield _curve_marks(dialect).bind(keys=board_keys)
    return {(row[0], row[1]): CurveMark(row[2], row[3], row[4], row[5], row[6]) for row in rows}


@lru_cache
def _curve_marks(dialect: Dialect) -> Statement:
    names = ("board_key", "column_index", "epoch", "version", "as_of", "changes", "rules")
    marks = select(*(col(name) for name in names)).from_(CURVES).where(col("board_key").in_(param("keys")))
    return marks.packed().compile(dialect)


def curve_version(dialect: Dialect, board_key: int, column_index: int) -> Program[int]:
    """The version of the column's stored curve, 0 where there is none."""
    rows = yield _curve_version(dialect).bind(board_key=board_key, column_index=column_index)
    return int(rows[0][0]) if rows else 0


@lru_cache
def _curve_version(dialect: Dialect) -> Statement:
    one = (col("board_key").eq(param("board_key")), col("column_index").eq(param("column_index")))
    return select(col("version")).from_(CURVES).where(*one).compile(dialect)

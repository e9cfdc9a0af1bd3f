"""The curve as a document: everything that a client needs to rank offline what the service ranks with the same curve.

The rule: whoever follows docs/rank_offline.py with this document and nothing else gets the service's answer, digit by
digit.
"""

from __future__ import annotations

from msgspec import UNSET

from predictor import Curve, Knot
from storage.curves import Served
from storage.padding import Padding
from storage.records import Board

from .answers import CurveAnswer, KnotAnswer
from .values import format_us, number


def curve_etag(served: Served) -> str:
    """The entity tag of a curve's document: another one as soon as any rank may be another."""
    return f'"{served.board_key}-{served.column_index}-{served.version}"'


def curve_document(board: Board, column_index: int, curve: Curve) -> CurveAnswer:
    """The document of a column's curve."""
    column = board.spec.columns[column_index]
    padding = Padding.of(board.spec, column)

    def knot_answer(knot: Knot) -> KnotAnswer:
        cell = padding.cell_of_key(knot.key)
        return KnotAnswer(
            value=number(padding.value(cell), column.scale),
            rank=1 + knot.better_count,
            ties=knot.ties,
            reached_at=format_us(padding.reached_us(cell)) if padding.timed else UNSET,
        )

    return CurveAnswer(
        column=column.name,
        best=column.best.value,
        scale=column.scale,
        ties=board.spec.ties.value,
        method=curve.method,
        total=curve.total,
        as_of=format_us(curve.as_of_us),
        certificate=curve.certificate,
        step=curve.step,
        knots=[knot_answer(knot) for knot in curve.knots],
        errors=None if curve.errors is None else list(curve.errors),
        shapes=None if curve.shapes is None else [list(shape) for shape in curve.shapes],
    )

"""The curve as a document: everything that a client needs to rank offline what the service ranks with the same curve.

The rule: whoever follows docs/rank_offline.py with this document and nothing else gets the service's answer, digit by
digit.
"""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from predictor import Curve, LiveCurve
from storage.curves import Served
from storage.padding import Padding
from storage.records import Board

from .answers import CurveAnswer, EndAnswer, KnotAnswer, OutsideAnswer
from .values import Number, format_us, number


def curve_etag(served: Served) -> str:
    """The entity tag of a curve's document: another one as soon as any rank may be another.

    Weak: a live curve goes on in time without a change, so that the same ranks come with another `as_of`. The first
    live counts of a curve are such a step: they come about a second after the fit, and nothing has moved yet.
    """
    as_fitted = not isinstance(served.curve, LiveCurve) or served.curve.is_as_fitted
    live_version = 0 if as_fitted else served.live_version
    return f'W/"{served.board_key}-{served.column_index}-{served.version}-{live_version}"'


def curve_document(board: Board, column_index: int, curve: Curve | LiveCurve) -> CurveAnswer:
    """The document of a column's curve, as it was fitted or as it is kept live."""
    column = board.spec.columns[column_index]
    at = _Places(board, column_index)
    return CurveAnswer(
        column=column.name,
        best=column.best.value,
        scale=column.scale,
        ties=board.spec.ties.value,
        method=curve.method,
        total=curve.total,
        as_of=format_us(curve.as_of_us),
        certificate=curve.certificate,
        step=curve.grid,
        snaps=curve.snaps,
        knots=[
            KnotAnswer(value=at.value(key), reached_at=at.reached_at(key), rank=1 + better_count, ties=ties)
            for key, better_count, ties in curve.knots
        ],
        errors=None if curve.reaches is None else list(curve.reaches[1:-1]),
        shapes=None if curve.cubics is None else [list(shape) for shape in curve.cubics],
        outside=_outside(curve, at),
    )


class _Places:
    """Keys of one column as clients read them."""

    def __init__(self, board: Board, column_index: int) -> None:
        column = board.spec.columns[column_index]
        self._padding, self._scale = Padding.of(board.spec, column), column.scale

    def value(self, key: int) -> Number:
        return number(self._padding.value(self._padding.cell_of_key(key)), self._scale)

    def reached_at(self, key: int) -> str | UnsetType:
        padding = self._padding
        return format_us(padding.reached_us(padding.cell_of_key(key))) if padding.timed else UNSET


def _outside(curve: Curve | LiveCurve, at: _Places) -> OutsideAnswer | None:
    """What stands beyond the knots, who came after the fit: None where nobody does."""
    if curve.ends is None:
        return None
    best_key, worst_key = curve.ends
    knots = curve.knots
    better = knots[0].better_count if knots else curve.total
    worse = curve.total - (knots[-1].better_count + knots[-1].ties) if knots else curve.total
    if not better and not worse:
        return None
    reaches = curve.reaches
    return OutsideAnswer(
        best=EndAnswer(value=at.value(best_key), reached_at=at.reached_at(best_key)) if better else None,
        worst=EndAnswer(value=at.value(worst_key), reached_at=at.reached_at(worst_key)) if worse else None,
        errors=None if reaches is None else [reaches[0], reaches[-1]],
    )

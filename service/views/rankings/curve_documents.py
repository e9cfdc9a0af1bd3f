"""The document of a curve: everything that a client needs to calculate ranks offline with the same curve.

A client that calculates ranks as docs/rank_offline.py does gets exactly the ranks of the service.
"""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from predictor import Curve, LiveCurve
from service.contract.responses.boards import CurveAnswer, EndAnswer, KnotAnswer, OutsideAnswer
from service.contract.values import Number, format_us, to_wire_number
from storage.curves.stored_curves import ServedCurve
from storage.log.cells import Padding
from storage.records import Board


def curve_etag(served: ServedCurve) -> str:
    """Return the entity tag of a curve's document. The tag changes whenever a rank may have changed.

    The tag is weak, because the `as_of` of a live curve becomes later even while no rank changes.
    """
    as_fitted = not isinstance(served.curve, LiveCurve) or served.curve.is_as_fitted
    live_version = 0 if as_fitted else served.live_version
    return f'W/"{served.board_key}-{served.column_index}-{served.version}-{live_version}"'


def curve_document(board: Board, column_index: int, curve: Curve | LiveCurve) -> CurveAnswer:
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
        snaps=curve.rounds_to_lattice,
        knots=[
            KnotAnswer(value=at.value(key), reached_at=at.reached_at(key), rank=1 + better_count, ties=ties)
            for key, better_count, ties in curve.knots
        ],
        errors=None if curve.error_bounds is None else list(curve.error_bounds[1:-1]),
        shapes=None if curve.cubics is None else [list(shape) for shape in curve.cubics],
        outside=_outside(curve, at),
    )


class _Places:
    """Turns keys of a column's curve into the values and times that clients read."""

    def __init__(self, board: Board, column_index: int) -> None:
        column = board.spec.columns[column_index]
        self._padding, self._scale = Padding.for_column(board.spec, column), column.scale

    def value(self, key: int) -> Number:
        return to_wire_number(self._padding.decode_value(self._padding.cell_of_key(key)), self._scale)

    def reached_at(self, key: int) -> str | UnsetType:
        padding = self._padding
        return format_us(padding.reached_us(padding.cell_of_key(key))) if padding.timed else UNSET


def _outside(curve: Curve | LiveCurve, at: _Places) -> OutsideAnswer | None:
    """Return what is known about entries beyond the outer knots, which came after the fit, or None."""
    if curve.ends is None:
        return None
    best_key, worst_key = curve.ends
    knots = curve.knots
    better = knots[0].better_count if knots else curve.total
    worse = curve.total - (knots[-1].better_count + knots[-1].ties) if knots else curve.total
    if not better and not worse:
        return None
    reaches = curve.error_bounds
    return OutsideAnswer(
        best=EndAnswer(value=at.value(best_key), reached_at=at.reached_at(best_key)) if better else None,
        worst=EndAnswer(value=at.value(worst_key), reached_at=at.reached_at(worst_key)) if worse else None,
        errors=None if reaches is None else [reaches[0], reaches[-1]],
    )

"""The state of a board's curves. A number that is not known is null, never a guess."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from predictor import FitMethod, LiveCurve, RankCurve
from service.contract.values import format_us
from storage.records import Board

Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"}, description="ISO 8601 in UTC, with microseconds")]


class CurveState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a ranked column's curve: how and when it was fitted, its knots, and the changes since the fit."""

    method: FitMethod
    total: int
    knots: int
    as_of: Time
    age_seconds: float
    certificate: float | None = None
    live: bool  # whether the curve has live counts, which add the changes since its fit
    moves: int  # how many changes since the fit entered a gap between knots, left one, or stayed within one
    bound: float  # the greatest relative error that a current rank below the exactly counted top may have


def curve_state(board: Board, curve: RankCurve, now_us: int) -> CurveState:
    return CurveState(
        method=curve.method,
        total=curve.total,
        knots=len(curve.knots),
        as_of=format_us(curve.as_of_us),
        age_seconds=max(0.0, (now_us - curve.as_of_us) / 1e6),
        certificate=curve.certificate,
        live=isinstance(curve, LiveCurve),
        moves=curve.moved if isinstance(curve, LiveCurve) else 0,
        bound=curve.estimate_drift(board.spec.predictor.exact_top + 1).bound,
    )

"""What a board tells of its curves: how good each one is by now.

The rule: a figure that is not known is null, never a guess; the bound is of this moment, not of the fit.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from predictor import LiveCurve, Method, RankCurve
from storage.records import Board

from .values import format_us

Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"}, description="ISO 8601 in UTC, microseconds")]


class CurveState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a ranked column's curve: how it was made, how many knots, of when, and what has moved since."""

    method: Method
    total: int
    knots: int
    as_of: Time
    age_seconds: float
    certificate: float | None = None
    live: bool  # whether it counts what is posted after its fit
    moves: int  # changes in, out of and within the gaps between its knots since then
    bound: float  # how far a rank may be off by now, relative to it, past those that are counted


def curve_state(board: Board, curve: RankCurve, now_us: int) -> CurveState:
    """The state of the curve that serves."""
    return CurveState(
        method=curve.method,
        total=curve.total,
        knots=len(curve.knots),
        as_of=format_us(curve.as_of_us),
        age_seconds=max(0.0, (now_us - curve.as_of_us) / 1e6),
        certificate=curve.certificate,
        live=isinstance(curve, LiveCurve),
        moves=curve.moved if isinstance(curve, LiveCurve) else 0,
        bound=curve.drift(board.spec.predictor.exact_top + 1).bound,
    )

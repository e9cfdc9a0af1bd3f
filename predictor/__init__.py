"""Where a value stands, without counting: sample a ranked column, keep a curve, answer ranks with their brackets.

Pure and synchronous: no I/O, no clock, no randomness; the caller reads rows and passes the time in. Keys are Python
integers of any width and SMALLER IS BETTER throughout: on a `high` board the caller negates values on the way in and
out.
"""

from __future__ import annotations

from .codec import decode, encode
from .curve import Curve, Knot, Method
from .errors import CurveCorrupt, KnotsInvalid, PredictorError, WalkInconsistent
from .live import AsOf, LiveCounts, LiveCurve, Move, RankCurve
from .locate import SHAPE_UNIT, Bracket, Drift, KeyBracket, KnotRanks, Rung
from .sample import RATIO_UNIT, Landing, Last, Skip, Stride, walk
from .shards import Bounded, added_up
from .tally import LIMB_BITS, Tally

__all__ = [
    "LIMB_BITS",
    "RATIO_UNIT",
    "SHAPE_UNIT",
    "AsOf",
    "Bounded",
    "Bracket",
    "Curve",
    "CurveCorrupt",
    "Drift",
    "KeyBracket",
    "Knot",
    "KnotRanks",
    "KnotsInvalid",
    "Landing",
    "Last",
    "LiveCounts",
    "LiveCurve",
    "Method",
    "Move",
    "PredictorError",
    "RankCurve",
    "Rung",
    "Skip",
    "Stride",
    "Tally",
    "WalkInconsistent",
    "added_up",
    "decode",
    "encode",
    "walk",
]

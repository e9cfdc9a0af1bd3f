"""Where a value stands, without counting: sample a ranked column, keep a curve, answer ranks with the bracket the true rank lies in.

Pure and synchronous: no I/O, no clock, no randomness; the caller reads rows and passes the time in. Keys are Python integers of any
width and SMALLER IS BETTER throughout: a `high` board negates its values before it comes here and after it leaves.
"""

from __future__ import annotations

from .codec import decode, encode
from .curve import Bracket, Curve, KeyBracket, Knot, Method
from .errors import CurveCorrupt, KnotsInvalid, PredictorError, WalkInconsistent
from .sample import Landing, Last, Skip, walk

__all__ = [
    "Bracket",
    "Curve",
    "CurveCorrupt",
    "KeyBracket",
    "Knot",
    "KnotsInvalid",
    "Landing",
    "Last",
    "Method",
    "PredictorError",
    "Skip",
    "WalkInconsistent",
    "decode",
    "encode",
    "walk",
]

"""Estimates ranks without counting entries: it samples or scans a ranked column, fits a curve, and reads ranks off it.

    rows of a store ──walk──> knots ──┐
    rows of a store ──scan──> Tally ──┴─fit──> Curve (+ LiveCounts of later changes) ──> LiveCurve ──> Bracket of a rank

This package does no I/O, uses no clock and no randomness, and imports nothing else from the project. Only `fit`,
`greedy` and `cubic` load numpy, and only `cubic` loads scipy, so a process that never fits a curve loads neither.

SMALLER KEYS ARE BETTER everywhere in this package. If high values are better on a board, the caller negates the values
that it passes in and the keys that it gets back. Keys are Python integers of any size, for example of 40 digits.

A rank always comes with a bracket: two ranks between which the true rank lies. If they are equal, the rank is exact.

Begin with `curve` (what a curve is) and `locate` (how a rank is read off it). `sample` chooses the rows to read, `fit`
fits a curve to a `Tally` (all distinct keys), `live` corrects it while its board changes, and `codec` encodes it.
"""

from .codec import decode_curve, encode_curve
from .curve import Curve, FitMethod, Knot
from .errors import CurveCorruptError, KnotsInvalidError, WalkInconsistentError
from .live import AsOf, LiveCounts, LiveCurve, Move, RankCurve
from .locate import SHAPE_UNIT, BoundedRank, Bracket, Gap, KeyBracket, KnotRanks
from .sample import RATIO_UNIT, Landing, Skip, Stride, WorstEntry, walk
from .summed import AnyCurve, SummedCurve
from .tally import LIMB_BITS, Tally

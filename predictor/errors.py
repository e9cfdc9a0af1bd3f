"""The errors that this package raises on purpose. A caller who catches the root catches all that the data can cause.

PredictorError
    KnotsInvalid      the knots, or the numbers that belong to them, do not form a curve
    WalkInconsistent  an answer during sampling contradicts an earlier one
    CurveCorrupt      stored bytes are not a curve of this format
"""

from __future__ import annotations


class PredictorError(Exception):
    """Root of everything that predictor raises on purpose."""


class KnotsInvalid(PredictorError, ValueError):
    """These numbers cannot be the knots of one consistent snapshot."""


class WalkInconsistent(PredictorError):
    """An answer contradicts an earlier one: the reads were not from one snapshot."""


class CurveCorrupt(PredictorError):
    """The bytes are not a curve of this format and version."""

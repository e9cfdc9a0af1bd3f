"""The errors that this package raises on purpose. A caller who catches the root catches all that the data can cause.

PredictorError
    KnotsInvalidError      the knots, or the numbers that belong to them, do not form a curve
    WalkInconsistentError  an answer during sampling contradicts an earlier one
    CurveCorruptError      stored bytes are not a curve of this format
"""

from __future__ import annotations


class PredictorError(Exception):
    """Root of everything that predictor raises on purpose."""


class KnotsInvalidError(PredictorError, ValueError):
    """These numbers cannot be the knots of one consistent snapshot."""


class WalkInconsistentError(PredictorError):
    """An answer contradicts an earlier one: the reads were not from one snapshot."""


class CurveCorruptError(PredictorError):
    """The bytes are not a curve of this format and version."""

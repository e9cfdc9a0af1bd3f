"""The errors that this package raises on purpose. `PredictorError` is the root of every error that data can cause.

PredictorError
    KnotsInvalidError      the knots, or the numbers that belong to them, do not form a curve
    WalkInconsistentError  a row that was read during sampling contradicts a row that was read before it
    CurveCorruptError      stored bytes are not a curve of this format
"""

from __future__ import annotations


class PredictorError(Exception):
    """Root of all errors that this package raises on purpose."""


class KnotsInvalidError(PredictorError, ValueError):
    """The numbers cannot be those of knots that were counted in one snapshot."""


class WalkInconsistentError(PredictorError):
    """A row contradicts a row that was read before it, because the two reads did not use the same snapshot."""


class CurveCorruptError(PredictorError):
    """The bytes are not a curve of this format and version."""

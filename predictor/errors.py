"""The errors that this package raises on purpose. Catching `PredictorError` catches every error that data can cause.

PredictorError
    KnotsInvalidError      the knots, or the numbers that belong to them, do not form a curve
    WalkInconsistentError  a row that was read during sampling contradicts an earlier one
    CurveCorruptError      stored bytes are not a curve of this format
"""

from __future__ import annotations


class PredictorError(Exception):
    """Root of all errors that this package raises on purpose."""


class KnotsInvalidError(PredictorError, ValueError):
    """These numbers cannot be the knots of one consistent snapshot."""


class WalkInconsistentError(PredictorError):
    """A row that was read contradicts an earlier one, because the reads were not from one snapshot."""


class CurveCorruptError(PredictorError):
    """The bytes are not a curve of this format and version."""

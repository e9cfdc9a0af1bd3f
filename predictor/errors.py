"""What can go wrong in here, in one tree, so that a caller who catches the root misses nothing that the data can cause.

PredictorError
    KnotsInvalid      the knots, or what was said about them, can't be a curve
    WalkInconsistent  an answer during sampling contradicts an earlier one
    CurveCorrupt      stored bytes are not a curve of this format
"""

from __future__ import annotations


class PredictorError(Exception):
    """Root of everything that predictor raises on purpose."""


class KnotsInvalid(PredictorError, ValueError):
    """These numbers can't be the knots of one consistent snapshot."""


class WalkInconsistent(PredictorError):
    """An answer contradicts an earlier one: the reads were not from one snapshot."""


class CurveCorrupt(PredictorError):
    """The bytes are not a curve of this format and version."""

"""The errors that this package raises on purpose."""


class PredictorError(Exception):
    """Root of all errors that this package raises on purpose."""


class KnotsInvalidError(PredictorError, ValueError):
    """Some numbers of a curve are out of range or contradict each other."""


class WalkInconsistentError(PredictorError):
    """An answer to a walk contradicts an earlier answer, for example because the two reads used different snapshots."""


class CurveCorruptError(PredictorError):
    """The bytes are not a curve, or not live counts of the curve, in the current format."""

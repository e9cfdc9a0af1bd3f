"""The errors that this package raises on purpose."""


class PredictorError(Exception):
    """Root of all errors that this package raises on purpose."""


class KnotsInvalidError(PredictorError, ValueError):
    """The numbers cannot be those of knots that were counted in one snapshot."""


class WalkInconsistentError(PredictorError):
    """A row contradicts a row that was read before it, because the two reads did not use the same snapshot."""


class CurveCorruptError(PredictorError):
    """The bytes are not a curve of this format and version."""

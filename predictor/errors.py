"""The errors that this package raises on purpose."""


class PredictorError(Exception):
    """The base class of all errors in this package."""


class KnotsInvalidError(PredictorError, ValueError):
    """Some of a curve's numbers are out of range or contradict each other."""


class WalkInconsistentError(PredictorError):
    """The rows read for a walk (`predictor.sample`) contradict each other. They may come from different snapshots."""


class CurveCorruptError(PredictorError):
    """Stored bytes are damaged or have another format, or they are live counts of another curve."""

"""The errors with which jobs refuse work. The docstring of a class is its default message.

If the store refuses something, its own error passes through the job.
"""

from storage.errors import StorageError


class NoJobProcessError(StorageError):
    """No job process is alive to refresh the curve."""


class TooManyRefreshRequestsError(StorageError):
    """Too many requested refreshes are waiting for the job."""


def describe_failure(error: BaseException) -> dict[str, object]:
    """Return what a log line says of an error: of the store's refusal a sentence, of anything else a traceback."""
    return {"detail": error.detail} if isinstance(error, StorageError) else {"exc_info": error}

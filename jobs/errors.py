"""The errors with which jobs refuse work. The docstring of a class is its default message.

If the store refuses a job's work, the job raises the store's error unchanged.
"""

import logging

from storage.errors import StorageError, StoreDamagedError, StoreFullError


class NoJobProcessError(StorageError):
    """No job process is running to refresh the curve."""


class DeliveryFailedError(StorageError):
    """A receiver of events did not accept a delivery."""


def describe_failure(error: BaseException) -> dict[str, object]:
    """Build the fields of a log line about an error: a sentence for a `StorageError`, a traceback for other errors."""
    return {"detail": error.detail} if isinstance(error, StorageError) else {"exc_info": error}


def level_of(error: BaseException, level: int = logging.ERROR) -> int:
    """Choose the level for logging an error. That the store is full or damaged, the store itself logs, once."""
    return logging.DEBUG if isinstance(error, StoreFullError | StoreDamagedError) else level

"""What jobs can refuse, as one tree whose class docstrings are the messages.

    JobError
    ├── NoJobProcessError         (try again where a job process is alive)
    ├── TooManyDemandsError       (try again later)
    └── MethodUnsupportedError

The rule: what the store refuses passes through a job as the store's own error.
"""

from __future__ import annotations


class JobError(Exception):
    """the job refused"""

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail or self.__class__.__doc__ or "")


class NoJobProcessError(JobError):
    """no job process is alive to refresh the curve"""


class TooManyDemandsError(JobError):
    """too many refreshes are waiting for the job"""


class MethodUnsupportedError(JobError):
    """the version of the job process cannot fit a curve by that method"""

"""What jobs can refuse, as one tree whose class docstrings are the messages.

    JobError
    ├── NoJobProcess         (try again where a job process is alive)
    ├── TooManyDemands       (try again later)
    └── MethodUnsupported

The rule: what the store refuses passes through a job as the store's own error.
"""

from __future__ import annotations


class JobError(Exception):
    """the job refused"""

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail or self.__class__.__doc__ or "")


class NoJobProcess(JobError):
    """no job process is alive to refresh the curve"""


class TooManyDemands(JobError):
    """too many refreshes are waiting for the job"""


class MethodUnsupported(JobError):
    """the version of the job process cannot fit a curve by that method"""

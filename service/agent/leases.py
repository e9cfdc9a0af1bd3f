"""The lease that an agent returns, and the errors that it raises.

AgentError ├── RefusedError │ └── NoResourceAvailableError └── ServiceAwayError
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


class AgentError(Exception):
    """Root of every error that an agent raises."""


class RefusedError(AgentError):
    """The service refused the request; sending it again at once is of no use. `code` is the code of the problem."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code


class NoResourceAvailableError(RefusedError):
    """The region has no resource left."""


class ServiceAwayError(AgentError):
    """No attempt got a final answer, because the service was too busy or did not answer in time."""


@dataclass(frozen=True, slots=True)
class Lease:
    resource: str
    key: str
    region: str
    version: int  # the fencing number
    lease_expires: datetime  # the end of the lease by the store's clock
    # The end of the lease by this process's monotonic clock. The agent read this clock before it sent the request, so
    # this time is never later than the true end.
    good_until_s: float
    acquired: bool  # true: this request gave the key its resource; false: the key already had it

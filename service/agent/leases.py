"""What an agent hands out, and what it raises.

AgentError
├── RefusedError           the service refused the request; asking again is of no use
│   └── NoResourceAvailableError
└── ServiceAwayError            at every attempt the service was too busy, or did not answer in time
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


class AgentError(Exception):
    """Root of every error that an agent raises."""


class RefusedError(AgentError):
    """The service refused; `code` is the problem's."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code


class NoResourceAvailableError(RefusedError):
    """The region has no resource left."""


class ServiceAwayError(AgentError):
    """The service did not answer, or was too busy at every attempt."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A resource that a key holds, and until when."""

    resource: str
    key: str
    region: str
    version: int  # the fencing number
    lease_expires: datetime  # by the store's clock
    good_until_s: float  # by this process's monotonic clock, counted from before the request, so it is never too late
    acquired: bool  # whether this agent's request took the resource newly

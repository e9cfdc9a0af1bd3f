"""What an agent hands out, and what it raises.

AgentError
├── Refused                the service will not, and asking again is of no use
│   └── NoResourceAvailable
└── ServiceAway            it did not answer in time, or was too busy, as often as it was asked
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


class AgentError(Exception):
    """Root of what an agent raises."""


class Refused(AgentError):
    """The service refused; `code` is the problem's."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code


class NoResourceAvailable(Refused):
    """The region has no resource left."""


class ServiceAway(AgentError):
    """No answer, or none but "busy"."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A resource that a key has."""

    resource: str
    key: str
    region: str
    version: int  # the fencing number
    lease_expires: datetime  # by the store's clock
    good_until_s: float  # by this process's monotonic clock, counted from before it was asked for: never too late
    acquired: bool  # newly, by this agent's request

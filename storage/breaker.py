"""Leaves a server alone for a while once it has failed several times in a row.

    closed ── failures_max in a row ──> open ── pause_s later ──> one trial ── failed: open again, answered: closed

The rule: every call that was allowed is told of, so that a trial always ends. Callers take turns. The libraries for
this bring clocks, locks and exceptions of their own, more than these few lines.
"""

from __future__ import annotations

from collections.abc import Callable


class Breaker:
    """The state of one server, for one thread."""

    def __init__(self, *, failures_max: int, pause_s: float, monotonic: Callable[[], float]) -> None:
        self._failures_max, self._pause_s, self._monotonic = failures_max, pause_s, monotonic
        self._failures = 0  # in a row
        self._closed_again_s = 0.0

    @property
    def open(self) -> bool:
        """Whether the server has failed so often that it is asked for trial only."""
        return self._failures >= self._failures_max

    def allows(self) -> bool:
        """Whether the server may be asked now."""
        return not self.open or self._monotonic() >= self._closed_again_s

    def succeeded(self) -> None:
        """The server answered."""
        self._failures = 0

    def failed(self) -> None:
        """The server did not answer, or nothing that could be understood."""
        self._failures += 1
        self._closed_again_s = self._monotonic() + self._pause_s

"""The store's own clock as a term.

The rule it keeps: it is for selects. What is written on condition of a time, or with one, gets it bound: Citus takes no
function that changes by itself in `do_update`.
"""

from __future__ import annotations

from dataclasses import dataclass

from querybuilder.dialect import INTEGER, Kind
from querybuilder.render import Rendering
from querybuilder.terms import Term


@dataclass(frozen=True, slots=True)
class ClockUs(Term):
    @property
    def value_kind(self) -> Kind | None:
        return INTEGER

    def render(self, out: Rendering) -> str:
        return out.dialect.clock_us


def clock_us() -> Term:
    """Microseconds since 1970 by the clock of the machine that the store runs on, now, not when the transaction began.

    SQLite knows milliseconds.
    """
    return ClockUs()

"""What the server alone knows, as terms: its clock, and how far transactions have come.

The rule it keeps: they are for selects, and a reader only reads. What is written on condition of a time, or with one,
gets it bound: Citus takes no function that changes by itself in `do_update`. A number given to a reader's transaction
would be one that replicas can't give and that writers wait for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from querybuilder.dialect import INTEGER, Kind
from querybuilder.errors import Inexpressible
from querybuilder.render import Rendering
from querybuilder.terms import Term


@dataclass(frozen=True, slots=True)
class Known(Term):
    name: Literal["clock_us", "transaction", "oldest_transaction", "next_transaction"]  # the dialect's text for it
    otherwise: str = ""  # where the dialect has none

    @property
    def value_kind(self) -> Kind | None:
        return INTEGER

    def render(self, out: Rendering) -> str:
        text: str = getattr(out.dialect, self.name) or self.otherwise
        if not text:
            raise Inexpressible("transactions have no numbers in this dialect")
        return text


def clock_us() -> Term:
    """Microseconds since 1970 by the clock of the machine that the store runs on, now, not when the transaction began.

    SQLite knows milliseconds.
    """
    return Known("clock_us")


def oldest_transaction() -> Term:
    """Every transaction with a lower number had ended when the snapshot was taken; on a standby too."""
    return Known("oldest_transaction")


def this_transaction() -> Term:
    """The number of a transaction that writes, given to it here at the latest; 0 where transactions stand in line."""
    return Known("transaction", otherwise="0")


def next_transaction() -> Term:
    """What is seen in this snapshot was written by transactions with lower numbers."""
    return Known("next_transaction")

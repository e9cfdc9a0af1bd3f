"""Terms for values that only the server knows: the time of its clock, and the numbers of transactions.

Use these terms in selects only. If a write needs a time, read the time first and bind it, because Citus accepts no
volatile function in `do_update`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from querybuilder.dialect import INTEGER, SqlType
from querybuilder.errors import InexpressibleError
from querybuilder.render import Rendering
from querybuilder.terms import Term


@dataclass(frozen=True, slots=True)
class Known(Term):
    name: Literal["clock_us", "transaction", "oldest_transaction", "next_transaction"]  # a field of `Dialect`
    otherwise: str = ""  # the SQL to use if the field of the dialect is empty

    @property
    def value_kind(self) -> SqlType | None:
        return INTEGER

    def render(self, out: Rendering) -> str:
        text: str = getattr(out.dialect, self.name) or self.otherwise
        if not text:
            raise InexpressibleError("transactions have no numbers in this dialect")
        return text


def clock_us() -> Term:
    """Return the time in microseconds since 1970, by the clock of the store's machine. SQLite gives whole milliseconds.

    It is the time at which the statement runs, not the time at which the transaction began.
    """
    return Known("clock_us")


def oldest_transaction() -> Term:
    """Return a number; every transaction with a lower number had ended when the snapshot was taken.

    A standby server can compute this number too.
    """
    return Known("oldest_transaction")


def this_transaction() -> Term:
    """Return the number of the current writing transaction. If the transaction has no number yet, it gets one now.

    On a store with one writer at a time, the number is 0. A reader must not use this term: replicas cannot number
    transactions, and writers wait for transactions that have a number.
    """
    return Known("transaction", otherwise="0")


def next_transaction() -> Term:
    """Return a number greater than the numbers of all transactions whose writes this snapshot sees."""
    return Known("next_transaction")

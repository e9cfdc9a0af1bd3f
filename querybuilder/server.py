"""Terms for what only the server knows: its clock, and which transactions have ended.

Use them in selects only. Where a time decides about a write, or is written, read it first and bind it: Citus accepts no
volatile function in `do_update`. A reader must not ask for `this_transaction`: replicas cannot give a number, and
writers wait for transactions that have one.
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
    """A value that the server computes, by the text of the dialect."""

    name: Literal["clock_us", "transaction", "oldest_transaction", "next_transaction"]  # the dialect's text for it
    otherwise: str = ""  # where the dialect has none

    @property
    def value_kind(self) -> SqlType | None:
        return INTEGER

    def render(self, out: Rendering) -> str:
        text: str = getattr(out.dialect, self.name) or self.otherwise
        if not text:
            raise InexpressibleError("transactions have no numbers in this dialect")
        return text


def clock_us() -> Term:
    """Return the time in microseconds since 1970, by the clock of the machine that the store runs on.

    It is the time when the statement runs, not when the transaction began. SQLite gives whole milliseconds.
    """
    return Known("clock_us")


def oldest_transaction() -> Term:
    """Return a number below which every transaction had ended when the snapshot was taken.

    A standby gives it too.
    """
    return Known("oldest_transaction")


def this_transaction() -> Term:
    """Return the number of a writing transaction, which it gets here at the latest.

    It is 0 on a store with one writer at a time.
    """
    return Known("transaction", otherwise="0")


def next_transaction() -> Term:
    """Return a number below which lie all transactions whose writes this snapshot sees."""
    return Known("next_transaction")

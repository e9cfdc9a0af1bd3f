"""How far transactions have come, as a term.

The rule it keeps: a reader only reads. A number given to one would be one that replicas can't give and that writers
wait for.
"""

from __future__ import annotations

from dataclasses import dataclass

from querybuilder.dialect import INTEGER, Kind
from querybuilder.errors import Inexpressible
from querybuilder.render import Rendering
from querybuilder.terms import Term


@dataclass(frozen=True, slots=True)
class OldestTransaction(Term):
    @property
    def value_kind(self) -> Kind | None:
        return INTEGER

    def render(self, out: Rendering) -> str:
        if not out.dialect.oldest_transaction:
            raise Inexpressible("transactions have no numbers in this dialect")
        return out.dialect.oldest_transaction


def oldest_transaction() -> Term:
    """Every transaction with a lower number had ended when the snapshot was taken; on a standby too."""
    return OldestTransaction()


@dataclass(frozen=True, slots=True)
class ThisTransaction(Term):
    @property
    def value_kind(self) -> Kind | None:
        return INTEGER

    def render(self, out: Rendering) -> str:
        return out.dialect.transaction or "0"


def this_transaction() -> Term:
    """The number of a transaction that writes, given to it here at the latest; 0 where transactions stand in line."""
    return ThisTransaction()


@dataclass(frozen=True, slots=True)
class NextTransaction(Term):
    @property
    def value_kind(self) -> Kind | None:
        return INTEGER

    def render(self, out: Rendering) -> str:
        if not out.dialect.next_transaction:
            raise Inexpressible("transactions have no numbers in this dialect")
        return out.dialect.next_transaction


def next_transaction() -> Term:
    """What is seen in this snapshot was written by transactions with lower numbers."""
    return NextTransaction()

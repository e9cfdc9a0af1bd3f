"""Terms that tell a database what it can't infer: the kind of a null, the order of a text.

The rule it keeps: where SQLite needs no telling, the text still says the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from querybuilder.dialect import Kind
from querybuilder.render import Rendering
from querybuilder.terms import Term


@dataclass(frozen=True, slots=True)
class Null(Term):
    kind: Kind

    @property
    def value_kind(self) -> Kind | None:
        return self.kind

    def render(self, out: Rendering) -> str:
        # No value is carried. Cast, because in the arm of a union PostgreSQL takes a bare null for text.
        return f"CAST(NULL AS {out.dialect.type_names[self.kind]})"


@dataclass(frozen=True, slots=True)
class Collated(Term):
    operand: Term

    def render(self, out: Rendering) -> str:
        return f"({self.operand.render(out)}{out.dialect.collation})"


def null(kind: Kind) -> Null:
    """No value of this kind: what an arm of a union has where another arm has a column."""
    return Null(kind)


def collated(text: Term) -> Term:
    """A text that compares by code points, as sortable columns do: what starts a recursion has to say so."""
    return Collated(text)

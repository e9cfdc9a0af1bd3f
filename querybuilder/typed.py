"""Terms that tell a database what it can't infer: the kind of a null, the order of a text, how wide a number is.

The rule it keeps: where SQLite needs no telling, the text still says the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from querybuilder.dialect import Kind
from querybuilder.errors import BadValue
from querybuilder.render import Rendering
from querybuilder.terms import Call, Condition, Operand, Term, term


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


@dataclass(frozen=True, slots=True)
class Part(Term):
    operand: Term
    start: Term
    width: int

    @property
    def value_kind(self) -> Kind | None:
        return Kind.TEXT

    def render(self, out: Rendering) -> str:
        # PostgreSQL's substr takes no 64-bit integers.
        cast = "::int" if out.dialect.arrays else ""
        text, start = self.operand.render(out), self.start.render(out)
        return f"substr({text}, {start}{cast}, {out.constant(self.width)}{cast})"


@dataclass(frozen=True, slots=True)
class Holds(Condition):
    operand: Term
    piece: Term

    def render(self, out: Rendering) -> str:
        find = "strpos" if out.dialect.arrays else "instr"
        return f"({find}({self.operand.render(out)}, {self.piece.render(out)}) > 0)"


def null(kind: Kind) -> Null:
    """No value of this kind: what an arm of a union has where another arm has a column."""
    return Null(kind)


def collated(text: Term) -> Term:
    """A text that compares by code points, as sortable columns do: what starts a recursion has to say so."""
    return Collated(text)


def part(text: Operand, start: int | Term, width: int) -> Term:
    """`width` characters of a text from `start` on, the first being 1: fewer, or none, where the text is shorter."""
    if (isinstance(start, int) and start < 1) or width < 1:
        raise BadValue("a part of a text starts at 1 or later and is at least 1 wide")
    return Part(term(text), term(start), width)


def length(text: Operand) -> Term:
    """How many characters a text has."""
    return Call("length", (term(text),), Kind.INTEGER)


def holds(text: Operand, piece: Operand) -> Condition:
    """Whether a text has a piece in it, character for character."""
    return Holds(term(text), term(piece))

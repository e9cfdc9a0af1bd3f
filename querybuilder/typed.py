"""Terms that tell a database what it cannot infer: the kind of a null, the order of a text, the width of a number."""

from __future__ import annotations

from dataclasses import dataclass

from querybuilder.dialect import SqlType
from querybuilder.errors import BadValueError
from querybuilder.render import Rendering
from querybuilder.terms import Call, Condition, Operand, Term, term


@dataclass(frozen=True, slots=True)
class Null(Term):
    kind: SqlType

    @property
    def value_kind(self) -> SqlType | None:
        return self.kind

    def render(self, out: Rendering) -> str:
        # Without the cast, PostgreSQL would infer the type text for a null in an arm of a union.
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
    def value_kind(self) -> SqlType | None:
        return SqlType.TEXT

    def render(self, out: Rendering) -> str:
        # PostgreSQL's substr does not accept 64-bit integers.
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


def null(kind: SqlType) -> Null:
    """Return a null for an arm of a union where another arm has a column of this kind."""
    return Null(kind)


def collated(text: Term) -> Term:
    """Return a text that is compared by code points, as in a sortable column. A `seed` of `recursive` needs this."""
    return Collated(text)


def part(text: Operand, start: int | Term, width: int) -> Term:
    """Return `width` characters of a text from the 1-based `start`, or fewer if the text ends earlier."""
    if (isinstance(start, int) and start < 1) or width < 1:
        raise BadValueError("a part of a text starts at character 1 or later and has at least 1 character")
    return Part(term(text), term(start), width)


def length(text: Operand) -> Term:
    return Call("length", (term(text),), SqlType.INTEGER)


def contains_text(text: Operand, piece: Operand) -> Condition:
    """Return whether a text contains a piece. Case matters, and no character is a wildcard."""
    return Holds(term(text), term(piece))

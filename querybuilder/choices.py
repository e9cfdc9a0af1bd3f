"""Parts of a statement, and whole statements, that are not the same in every dialect.

Programs do not know the dialect of their store. Where a query needs two forms, it contains both, and compiling it for
a dialect chooses one. `bind` takes the same parameters in every dialect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, overload

from querybuilder.dialect import Dialect, SqlType
from querybuilder.render import Node, Query, Rendering, Statement
from querybuilder.terms import Condition, Term

Feature = Literal["transaction", "row_locks", "parses_schema"]  # a field of `Dialect`


@dataclass(frozen=True, slots=True)
class TermChoice(Term):
    feature: Feature
    then: Term
    otherwise: Term

    @property
    def value_kind(self) -> SqlType | None:
        return self.then.value_kind

    def render(self, out: Rendering) -> str:
        return _choose(out, self.feature, self.then, self.otherwise)


@dataclass(frozen=True, slots=True)
class ConditionChoice(Condition):
    feature: Feature
    then: Condition
    otherwise: Condition

    def render(self, out: Rendering) -> str:
        return _choose(out, self.feature, self.then, self.otherwise)


@dataclass(frozen=True, slots=True)
class QueryChoice(Query):
    feature: Feature
    then: Query
    otherwise: Query

    def compile(self, dialect: Dialect) -> Statement:
        return (self.then if getattr(dialect, self.feature) else self.otherwise).compile(dialect)


def _choose(out: Rendering, feature: Feature, then: Node, otherwise: Node) -> str:
    chosen, other = (then, otherwise) if getattr(out.dialect, feature) else (otherwise, then)
    out.skip(other)
    return chosen.render(out)


@overload
def if_dialect(feature: Feature, then: Term, otherwise: Term) -> Term: ...


@overload
def if_dialect(feature: Feature, then: Condition, otherwise: Condition) -> Condition: ...


def if_dialect(feature: Feature, then: Term | Condition, otherwise: Term | Condition) -> Term | Condition:
    """Return `then` for dialects that have a feature, and `otherwise` for the others."""
    if isinstance(then, Condition) and isinstance(otherwise, Condition):
        return ConditionChoice(feature, then, otherwise)
    assert isinstance(then, Term)
    assert isinstance(otherwise, Term)
    return TermChoice(feature, then, otherwise)


def query_if_dialect(feature: Feature, then: Query, otherwise: Query) -> Query:
    """Return `then` for dialects that have a feature, and `otherwise` for the others. Both take the same parameters."""
    return QueryChoice(feature, then, otherwise)

"""Parts of a statement, and whole statements, that are not the same in every dialect.

Programs do not know the dialect of their store. Where a query needs two forms, it contains both, and compiling it for
a dialect chooses one. `bind` takes the same parameters in every dialect.
"""

from dataclasses import dataclass
from typing import Literal, overload

from querybuilder.dialect import Dialect
from querybuilder.render import Query, Rendering, Statement
from querybuilder.terms import Condition, Expression, Term

Feature = Literal["transaction", "row_locks", "parses_schema"]  # a field of `Dialect`


@overload
def if_dialect(feature: Feature, then: Term, otherwise: Term) -> Term: ...


@overload
def if_dialect(feature: Feature, then: Condition, otherwise: Condition) -> Condition: ...


def if_dialect(feature: Feature, then: Term | Condition, otherwise: Term | Condition) -> Term | Condition:
    """Return `then` for dialects that have a feature, and `otherwise` for the others."""

    def write(out: Rendering) -> str:
        chosen, other = (then, otherwise) if getattr(out.dialect, feature) else (otherwise, then)
        out.skip(other)
        return chosen.render(out)

    return Expression(write, then.kind) if isinstance(then, Term) else Condition(write)


@dataclass(frozen=True, slots=True)
class QueryChoice(Query):
    feature: Feature
    then: Query
    otherwise: Query

    def compile(self, dialect: Dialect) -> Statement:
        return self._choose(dialect).compile(dialect)

    def render(self, out: Rendering) -> str:
        return self._choose(out.dialect).render(out)

    def _choose(self, dialect: Dialect) -> Query:
        return self.then if getattr(dialect, self.feature) else self.otherwise


def query_if_dialect(feature: Feature, then: Query, otherwise: Query) -> Query:
    """Return `then` for dialects that have a feature, and `otherwise` for the others. Both take the same parameters."""
    return QueryChoice(feature, then, otherwise)

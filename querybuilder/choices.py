"""Parts of a statement that are not the same in every dialect.

Programs do not know the dialect of their store. Where a query needs two forms, it contains both, and compiling it for
a dialect chooses one. `bind` takes the same parameters in every dialect.
"""

from typing import Literal, overload

from querybuilder.render import Rendering
from querybuilder.terms import Condition, Expression, Term

Feature = Literal["row_locks", "parses_schema"]  # a field of `Dialect`


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

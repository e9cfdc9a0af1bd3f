"""Several changes in one statement: an update, and inserts that may ask what it did.

The rule it keeps: what the update answers is all that passes from one to the next; the tables themselves look to every
part as they did before the statement.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from querybuilder.dialect import Dialect
from querybuilder.errors import IncompleteQuery, Inexpressible
from querybuilder.render import Query, Rendering, Statement
from querybuilder.terms import Param
from querybuilder.write import Insert, Update


@dataclass(frozen=True, slots=True)
class Chained(Query):
    name: str
    first: Update
    inserts: tuple[Insert, ...]
    changes: Param | None = None

    def exactly(self, changes: Param) -> Chained:
        """All or nothing: fails, by a division by zero, unless the update changes so many rows; answers 1."""
        return replace(self, changes=changes)

    def compile(self, dialect: Dialect) -> Statement:
        if not dialect.chains:
            raise Inexpressible("a statement changes one table in this dialect")
        if not self.first.outputs:
            raise IncompleteQuery("the update that begins a chain answers what it did: it needs returning()")
        out = Rendering(dialect)
        answer = out.name(self.name)
        parts = [f"{answer} AS ({self.first.render(out)})"]
        parts += [f"{out.fresh_name('n')} AS ({insert.render(out)})" for insert in self.inserts]
        with_ = f"WITH {', '.join(parts)} SELECT "
        if self.changes is None:
            return out.statement(f"{with_}* FROM {answer}")
        return out.statement(
            f"{with_}1 / CASE count(*) WHEN {self.changes.render(out)} THEN 1 ELSE 0 END FROM {answer}"
        )


def chained(name: str, first: Update, *inserts: Insert) -> Chained:
    """An update, then these inserts, whose conditions may select from `name` what the update returned.

    It answers what the update returned. The order of the inserts is not promised.
    """
    return Chained(name, first, inserts)

"""Several changes in one statement: an update, and inserts that may use what it returned.

Only the rows that the update returns pass from one part to the next. Every part sees the tables as they were before the
statement.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from querybuilder.dialect import Dialect
from querybuilder.errors import IncompleteQueryError, InexpressibleError
from querybuilder.render import Query, Rendering, Statement
from querybuilder.terms import Param
from querybuilder.write import Insert, Update


@dataclass(frozen=True, slots=True)
class Chained(Query):
    """An update and the inserts after it, as one statement; see `chained`."""

    name: str
    first: Update
    inserts: tuple[Insert, ...]
    changes: Param | None = None

    def require_changes(self, changes: Param) -> Chained:
        """Make the statement fail, by a division by zero, unless the update changes exactly this many rows.

        Then nothing is changed. Otherwise the statement returns 1.
        """
        return replace(self, changes=changes)

    def compile(self, dialect: Dialect) -> Statement:
        if not dialect.chains:
            raise InexpressibleError("a statement can change only one table in this dialect")
        if not self.first.outputs:
            raise IncompleteQueryError(
                "the update that begins a chain needs returning(), because its inserts read its rows"
            )
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
    """Return a statement that updates, and then inserts. Conditions of the inserts may select from `name`.

    `name` holds the rows that the update returned; the statement returns them too. The inserts may run in any order.
    """
    return Chained(name, first, inserts)

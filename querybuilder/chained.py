"""Several changes in one statement: an update, and inserts that may use the rows that the update returns.

The inserts see the tables as they were before the statement. Of the update they see only the rows that it returns.
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
    name: str
    first: Update
    inserts: tuple[Insert, ...]
    changes: Param | None = None

    def require_changes(self, changes: Param) -> Chained:
        """Make the statement fail, by a division by zero, unless the update changes exactly this many rows.

        A statement that succeeds returns 1.
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
    """Return one statement that runs an update and some inserts. The inserts may run in any order.

    Conditions of the inserts may select from `name`, which holds the rows that the update returned. The statement
    returns these rows too.
    """
    return Chained(name, first, inserts)

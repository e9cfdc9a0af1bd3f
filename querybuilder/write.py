"""Builds inserts, conditional upserts, updates and deletes. Inserts and updates take one row or a batch of rows.

An update or delete needs a condition, so that no statement changes every row by mistake.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

from querybuilder.dialect import Dialect, SqlType
from querybuilder.errors import QueryError
from querybuilder.render import Command, Node, Query, Rendering, Statement, Written
from querybuilder.select import Output, Rows, as_outputs, render_outputs, render_where
from querybuilder.terms import Aliased, Condition, Operand, Param, Term, col, excluded, lit, term

BULK_ALIAS = "v"

Assignments = tuple[tuple[str, Term], ...]


@dataclass(frozen=True, slots=True)
class Change(Query):
    table: str
    _: KW_ONLY
    conditions: tuple[Condition, ...] = ()
    outputs: tuple[Output, ...] = ()

    def where(self, *conditions: Condition) -> Self:
        """Change only the rows that meet all conditions.

        An insert may have conditions only with `rows`. In a condition, col(name, BULK_ALIAS) is a cell of these rows.
        """
        return replace(self, conditions=self.conditions + conditions)

    def returning(self, *outputs: Operand | Aliased) -> Self:
        """Make the statement return columns of the changed rows. With `from_rows`, name the table: col("n", table)."""
        return replace(self, outputs=as_outputs(outputs))

    def count_changed(self, rows: Sequence[Sequence[Any]]) -> int:
        return len(rows) if self.outputs else int(rows[0][0])

    def _where(self, out: Rendering) -> str:
        if not self.conditions:
            raise QueryError(f"the {type(self).__name__.lower()} needs where()")
        return render_where(out, self.conditions)

    def _returning(self, out: Rendering) -> str:
        return f" RETURNING {render_outputs(out, self.outputs)}" if self.outputs else ""


@dataclass(frozen=True, slots=True)
class Conflict:
    insert: Insert
    keys: tuple[str, ...]

    def do_nothing(self) -> Insert:
        skip = Written(lambda out: f" ON CONFLICT {self._target(out)} DO NOTHING")
        return replace(self.insert, conflict=skip, skips=True)

    def do_update(self, /, *, where: Condition | None = None, **assignments: Operand) -> Insert:
        """Change an existing row with the same key, if `where` is true. col("n", table) is a column of this row."""
        return self._update(_terms(assignments), where)

    def overwrite(self) -> Insert:
        """If a row with the same keys exists, overwrite the other columns that the insert names, if there are any."""
        named = self.insert.single if self.insert.bulk is None else self.insert.bulk.columns
        others = tuple((name, excluded(name)) for name, _ in named if name not in self.keys)
        return self._update(others, None) if others else self.do_nothing()

    def _update(self, assignments: Assignments, where: Condition | None) -> Insert:
        if not assignments:
            raise QueryError("an upsert needs at least one assignment")
        if self.insert.table.lower() == "excluded":
            raise QueryError("in an upsert `excluded` is the row that was not inserted, not a table")

        def write(out: Rendering) -> str:
            sql = f" ON CONFLICT {self._target(out)} DO UPDATE SET {_assignments(out, assignments)}"
            return sql + render_where(out, () if where is None else (where,))

        return replace(self.insert, conflict=Written(write))

    def _target(self, out: Rendering) -> str:
        return f"({', '.join(map(out.name, self.keys))})"


@dataclass(frozen=True, slots=True)
class Insert(Change):
    single: Assignments = ()
    bulk: Rows | None = None
    conflict: Node | None = None
    skips: bool = False
    part: str | None = None
    computed: Assignments = ()

    def values(self, /, **assignments: Operand) -> Insert:
        return replace(self, single=_terms(assignments), bulk=None)

    def rows(self, parameter: Param, /, **kinds: SqlType) -> Insert:
        """Insert many rows. `bind` takes an iterable of tuples or lists, with one cell for each column in `kinds`.

        With `do_update`, PostgreSQL refuses a batch that has two rows with the same key, so merge such rows first.
        """
        return replace(self, single=(), bulk=Rows(BULK_ALIAS, parameter, tuple(kinds.items())))

    def compute_from(self, part: str, /, **computed: Term) -> Insert:
        """Compute some columns of a batch from the row that an update returned. If it returned none, insert nothing.

        `part` is the name that `chained` gives the update. In a computed column, col(name, part) is a column of the
        returned row, and col(name, BULK_ALIAS) is a cell of the batch.
        """
        return replace(self, part=part, computed=_terms(dict(computed)))

    def on_conflict(self, *keys: str) -> Conflict:
        """Begin an upsert. The methods of the result choose what happens if a row with the same key exists."""
        if not keys:
            raise QueryError("an upsert needs the key columns")
        return Conflict(self, keys)

    def compile(self, dialect: Dialect) -> Statement:
        out = Rendering(dialect)
        if not self.skips or self.bulk is None or self.outputs or dialect.counts_skipped:
            return out.statement(self.render(out))
        inserted = self.returning(lit(1)).render(out)
        part = out.fresh_name("n")
        return out.statement(f"WITH {part} AS ({inserted}) SELECT count(*) FROM {part}")

    def render(self, out: Rendering) -> str:
        into = f"INSERT INTO {out.table(self.table)}"
        if self.bulk is not None:
            names = [name for name, _ in self.bulk.columns]
            sql = f"{into} ({', '.join(map(out.name, names))}) SELECT {self._cells(out, names)} FROM "
            sql += self.bulk.render(out) + ("" if self.part is None else f" CROSS JOIN {out.name(self.part)}")
            # Without WHERE TRUE, SQLite would parse the ON of ON CONFLICT as the ON of a join.
            sql += render_where(out, self.conditions) or " WHERE TRUE"
        elif self.single and not self.conditions:
            names = [name for name, _ in self.single]
            sql = f"{into} ({', '.join(map(out.name, names))})"
            sql += f" VALUES ({', '.join(one.render(out) for _, one in self.single)})"
        else:
            raise QueryError("an insert needs rows, or values without conditions")
        if self.conflict is not None:
            sql += self.conflict.render(out)
        return sql + self._returning(out)

    def _cells(self, out: Rendering, names: list[str]) -> str:
        if self.part is None:
            return "*"
        computed = dict(self.computed)
        return ", ".join(computed.get(name, col(name, BULK_ALIAS)).render(out) for name in names)


@dataclass(frozen=True, slots=True)
class Update(Change):
    assignments: Assignments = ()
    bulk: Rows | None = None

    def set(self, /, **assignments: Operand) -> Update:
        return replace(self, assignments=self.assignments + _terms(assignments))

    def from_rows(self, alias: str, parameter: Param, /, **kinds: SqlType) -> Update:
        """Update the table from rows that `bind` gets. In `set` and `where`, col(name, alias) is a cell of a row."""
        return replace(self, bulk=Rows(alias, parameter, tuple(kinds.items())))

    def render(self, out: Rendering) -> str:
        if not self.assignments:
            raise QueryError("an update needs at least one assignment")
        sql = f"UPDATE {out.table(self.table)} SET {_assignments(out, self.assignments)}"
        if self.bulk is not None:
            sql += " FROM " + self.bulk.render(out)
        return sql + self._where(out) + self._returning(out)


class Delete(Change):
    __slots__ = ()

    def render(self, out: Rendering) -> str:
        return f"DELETE FROM {out.table(self.table)}{self._where(out)}{self._returning(out)}"


@dataclass(frozen=True, slots=True)
class Chained(Query):
    name: str
    first: Update
    inserts: tuple[Insert, ...]

    def count_changed(self, rows: Sequence[Sequence[Any]]) -> int:
        return len(rows)

    def render(self, out: Rendering) -> str:
        if not out.dialect.chains:
            raise QueryError("a statement can change only one table in this dialect")
        if not self.first.outputs:
            raise QueryError("the update that begins a chain needs returning(), because its inserts read its rows")
        answer = out.name(self.name)
        parts = [f"{answer} AS ({self.first.render(out)})"]
        parts += [f"{out.fresh_name('n')} AS ({insert.render(out)})" for insert in self.inserts]
        return f"WITH {', '.join(parts)} SELECT * FROM {answer}"


def _terms(assignments: dict[str, Operand]) -> Assignments:
    return tuple((name, term(operand)) for name, operand in assignments.items())


def _assignments(out: Rendering, assignments: Assignments) -> str:
    return ", ".join(f"{out.name(name)} = {one.render(out)}" for name, one in assignments)


def insert(table: str) -> Insert:
    return Insert(table)


def update(table: str) -> Update:
    return Update(table)


def delete(table: str) -> Delete:
    return Delete(table)


def truncate(table: str) -> Query:
    """Build a statement that deletes all rows of a table.

    On PostgreSQL, readers and writers of the table wait until the transaction ends. No number of rows is returned.
    """
    return Command(lambda out: f"{out.dialect.empty_table} {out.table(table)}")


def hold_table(table: str) -> Query:
    """Build a statement that makes all writers of a table wait until the transaction ends.

    The statement itself waits for transactions that have written to the table or locked its rows. In a dialect without
    row locks it does nothing.
    """
    return Command(
        lambda out: f"LOCK TABLE {out.table(table)} IN EXCLUSIVE MODE" if out.dialect.row_locks else "SELECT 1"
    )


def chained(name: str, first: Update, *inserts: Insert) -> Chained:
    """Chain an update and some inserts into one statement, which returns the rows of the update.

    The update and the inserts see the tables as they were before the statement, and may run in any order. The exception
    is an insert that selects from the update by its name, `name`: it runs after the update and sees the returned rows.
    """
    return Chained(name, first, inserts)

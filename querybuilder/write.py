"""Insert, conditional upsert, update and delete. Inserts and updates take one row or a batch of rows.

An update or delete without a condition needs `everything()`, so no statement changes every row by mistake.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from querybuilder.dialect import Dialect, SqlType
from querybuilder.errors import BadIdentifierError, IncompleteQueryError
from querybuilder.render import Query, Rendering, Statement
from querybuilder.select import Output, as_outputs, render_outputs, render_where
from querybuilder.sources import Rows
from querybuilder.terms import Aliased, Condition, Operand, Param, Term, excluded, term

BULK_ALIAS = "v"

Assignments = tuple[tuple[str, Term], ...]


@dataclass(frozen=True, slots=True)
class OnConflict:
    keys: tuple[str, ...]
    assignments: Assignments = ()  # changes of the existing row; empty: keep the row unchanged
    condition: Condition | None = None

    def render(self, out: Rendering) -> str:
        target = f" ({', '.join(map(out.name, self.keys))})" if self.keys else ""
        if not self.assignments:
            return f" ON CONFLICT{target} DO NOTHING"
        sql = f" ON CONFLICT{target} DO UPDATE SET {_assignments(out, self.assignments)}"
        return sql + render_where(out, () if self.condition is None else (self.condition,))


@dataclass(frozen=True, slots=True)
class Conflict:
    insert: Insert
    keys: tuple[str, ...]

    def do_nothing(self) -> Insert:
        return replace(self.insert, conflict=OnConflict(self.keys))

    def do_update(self, /, *, where: Condition | None = None, **assignments: Operand) -> Insert:
        """Change the existing row if the condition holds. Name its columns with their table: col("n", table)."""
        return self._update(_terms(assignments), where)

    def overwrite(self) -> Insert:
        """Replace the inserted columns of the existing row, except the keys, with the values of the insert."""
        named = self.insert.single if self.insert.bulk is None else self.insert.bulk.columns
        return self._update(tuple((name, excluded(name)) for name, _ in named if name not in self.keys), None)

    def _update(self, assignments: Assignments, where: Condition | None) -> Insert:
        if not self.keys or not assignments:
            raise IncompleteQueryError("an upsert needs the key columns and at least one assignment")
        if self.insert.table.lower() == "excluded":
            raise BadIdentifierError("in an upsert `excluded` is the row that was not inserted, not a table")
        return replace(self.insert, conflict=OnConflict(self.keys, assignments, where))


@dataclass(frozen=True, slots=True)
class Insert(Query):
    table: str
    single: Assignments = ()
    bulk: Rows | None = None
    conditions: tuple[Condition, ...] = ()
    conflict: OnConflict | None = None
    outputs: tuple[Output, ...] = ()
    numbered_only: tuple[str, ...] = ()

    def values(self, /, **assignments: Operand) -> Insert:
        return replace(self, single=_terms(assignments), bulk=None)

    def rows(self, parameter: Param, /, **kinds: SqlType) -> Insert:
        """Insert many rows. `bind` takes an iterable of tuples or lists, with one cell for each column in `kinds`.

        With `do_update`, two rows of a batch with the same key are an error on PostgreSQL, so merge them first.
        """
        return replace(self, single=(), bulk=Rows(BULK_ALIAS, parameter, tuple(kinds.items())))

    def where(self, *conditions: Condition) -> Insert:
        """Insert only the rows of a batch that meet all conditions. In them, col(name, BULK_ALIAS) is a cell."""
        return replace(self, conditions=self.conditions + conditions)

    def only_numbered(self, *names: str) -> Insert:
        """Leave these columns out if the dialect's transactions have no numbers. `bind` takes their values anyway."""
        return replace(self, numbered_only=names)

    def on_conflict(self, *keys: str) -> Conflict:
        """Begin an upsert. The methods of the result choose what happens if a row with the same key exists.

        Without key columns, a conflict with any unique key counts, and only `do_nothing` is possible.
        """
        return Conflict(self, keys)

    def returning(self, *outputs: Operand | Aliased) -> Insert:
        return replace(self, outputs=as_outputs(outputs))

    def compile(self, dialect: Dialect) -> Statement:
        out = Rendering(dialect)
        return out.statement(self.render(out))

    def render(self, out: Rendering) -> str:
        into = f"INSERT INTO {out.name(self.table)}"
        left_out = () if out.dialect.transaction else self.numbered_only
        if self.bulk is not None:
            names = ", ".join(out.name(name) for name, _ in self.bulk.columns if name not in left_out)
            # Without WHERE TRUE, SQLite would parse the ON of ON CONFLICT as the ON of a join.
            sql = f"{into} ({names}) SELECT {names if left_out else '*'} FROM {self.bulk.render(out)}"
            sql += render_where(out, self.conditions) or " WHERE TRUE"
        elif self.single:
            out.skip(*(one for name, one in self.single if name in left_out))
            single = [(name, one) for name, one in self.single if name not in left_out]
            names = ", ".join(out.name(name) for name, _ in single)
            sql = f"{into} ({names}) VALUES ({', '.join(one.render(out) for _, one in single)})"
        else:
            raise IncompleteQueryError("an insert needs values or rows")
        if self.conflict is not None:
            sql += self.conflict.render(out)
        return sql + _returning(out, self.outputs)


@dataclass(frozen=True, slots=True)
class Update(Query):
    table: str
    assignments: Assignments = ()
    bulk: Rows | None = None
    conditions: tuple[Condition, ...] = ()
    all_rows: bool = False
    outputs: tuple[Output, ...] = ()

    def set(self, /, **assignments: Operand) -> Update:
        return replace(self, assignments=self.assignments + _terms(assignments))

    def from_rows(self, alias: str, parameter: Param, /, **kinds: SqlType) -> Update:
        """Join the table with rows that `bind` gets. In `set` and `where`, a cell of these rows is col(name, alias)."""
        return replace(self, bulk=Rows(alias, parameter, tuple(kinds.items())))

    def where(self, *conditions: Condition) -> Update:
        return replace(self, conditions=self.conditions + conditions)

    def everything(self) -> Update:
        return replace(self, all_rows=True)

    def returning(self, *outputs: Operand | Aliased) -> Update:
        """Make the statement return columns of the changed rows. With `from_rows`, write col("owner", table)."""
        return replace(self, outputs=as_outputs(outputs))

    def compile(self, dialect: Dialect) -> Statement:
        out = Rendering(dialect)
        return out.statement(self.render(out))

    def render(self, out: Rendering) -> str:
        if not self.assignments:
            raise IncompleteQueryError("an update needs at least one assignment")
        _check_extent("an update", self.conditions, all_rows=self.all_rows)
        sql = f"UPDATE {out.name(self.table)} SET {_assignments(out, self.assignments)}"
        if self.bulk is not None:
            sql += " FROM " + self.bulk.render(out)
        sql += render_where(out, self.conditions)
        return sql + _returning(out, self.outputs)


@dataclass(frozen=True, slots=True)
class Delete(Query):
    table: str
    conditions: tuple[Condition, ...] = ()
    all_rows: bool = False
    outputs: tuple[Output, ...] = ()

    def where(self, *conditions: Condition) -> Delete:
        return replace(self, conditions=self.conditions + conditions)

    def everything(self) -> Delete:
        return replace(self, all_rows=True)

    def returning(self, *outputs: Operand | Aliased) -> Delete:
        return replace(self, outputs=as_outputs(outputs))

    def compile(self, dialect: Dialect) -> Statement:
        _check_extent("a delete", self.conditions, all_rows=self.all_rows)
        out = Rendering(dialect)
        sql = f"DELETE FROM {out.name(self.table)}{render_where(out, self.conditions)}"
        return out.statement(sql + _returning(out, self.outputs))


@dataclass(frozen=True, slots=True)
class Truncate(Query):
    table: str

    def compile(self, dialect: Dialect) -> Statement:
        out = Rendering(dialect)
        return out.statement(f"{dialect.empty_table} {out.name(self.table)}")


@dataclass(frozen=True, slots=True)
class HoldTable(Query):
    table: str

    def compile(self, dialect: Dialect) -> Statement:
        out = Rendering(dialect)
        lock = f"LOCK TABLE {out.name(self.table)} IN EXCLUSIVE MODE"
        return out.statement(lock if dialect.row_locks else "SELECT 1")


def _terms(assignments: dict[str, Operand]) -> Assignments:
    return tuple((name, term(operand)) for name, operand in assignments.items())


def _assignments(out: Rendering, assignments: Assignments) -> str:
    return ", ".join(f"{out.name(name)} = {one.render(out)}" for name, one in assignments)


def _returning(out: Rendering, outputs: tuple[Output, ...]) -> str:
    return f" RETURNING {render_outputs(out, outputs)}" if outputs else ""


def _check_extent(what: str, conditions: tuple[Condition, ...], *, all_rows: bool) -> None:
    if bool(conditions) == all_rows:
        raise IncompleteQueryError(f"{what} needs either where() or everything(), and not both")


def insert(table: str) -> Insert:
    return Insert(table)


def update(table: str) -> Update:
    return Update(table)


def truncate(table: str) -> Truncate:
    """Return a statement that deletes all rows of a table.

    Other writers of the table wait until the transaction ends. The statement does not return the number of rows.
    """
    return Truncate(table)


def hold_table(table: str) -> HoldTable:
    """Return a statement that makes all writers of a table wait until the transaction ends.

    The statement itself waits for transactions that have written to the table or locked its rows. With a dialect
    without row locks it does nothing.
    """
    return HoldTable(table)


def delete(table: str) -> Delete:
    return Delete(table)

"""Changing rows: insert, conditional upsert, update, delete, one row or a batch.

A batch is one statement with one argument (one array a column on PostgreSQL), see arguments.py for the figures.

The rule it keeps: no statement changes every row unless it says `everything()`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from querybuilder.dialect import Dialect, Kind
from querybuilder.errors import BadIdentifier, IncompleteQuery
from querybuilder.render import Query, Rendering, Statement
from querybuilder.select import Output, as_outputs, render_outputs, render_where
from querybuilder.sources import Rows
from querybuilder.terms import Aliased, Condition, Operand, Param, Term, excluded, term

BULK_ALIAS = "v"

Assignments = tuple[tuple[str, Term], ...]


@dataclass(frozen=True, slots=True)
class OnConflict:
    keys: tuple[str, ...]
    assignments: Assignments = ()  # none: do nothing
    condition: Condition | None = None

    def render(self, out: Rendering) -> str:
        target = f" ({', '.join(map(out.name, self.keys))})" if self.keys else ""
        if not self.assignments:
            return f" ON CONFLICT{target} DO NOTHING"
        sql = f" ON CONFLICT{target} DO UPDATE SET {_assignments(out, self.assignments)}"
        return sql + render_where(out, () if self.condition is None else (self.condition,))


@dataclass(frozen=True, slots=True)
class Conflict:
    """What `on_conflict` answers: say what to do."""

    insert: Insert
    keys: tuple[str, ...]

    def do_nothing(self) -> Insert:
        """Leave the row that is there as it is."""
        return replace(self.insert, conflict=OnConflict(self.keys))

    def do_update(self, /, *, where: Condition | None = None, **assignments: Operand) -> Insert:
        """Change the row that is there, where the condition holds. Columns of it need their table: col("n", table)."""
        return self._update(_terms(assignments), where)

    def overwrite(self) -> Insert:
        """Give the row that is there what was to be inserted: every column but the keys."""
        named = self.insert.single if self.insert.bulk is None else self.insert.bulk.columns
        return self._update(tuple((name, excluded(name)) for name, _ in named if name not in self.keys), None)

    def _update(self, assignments: Assignments, where: Condition | None) -> Insert:
        if not self.keys or not assignments:
            raise IncompleteQuery("an upsert needs the key columns and at least one assignment")
        if self.insert.table.lower() == "excluded":
            raise BadIdentifier("in an upsert `excluded` is the row that was not inserted, not a table")
        return replace(self.insert, conflict=OnConflict(self.keys, assignments, where))


@dataclass(frozen=True, slots=True)
class Insert(Query):
    table: str
    single: Assignments = ()
    bulk: Rows | None = None
    conditions: tuple[Condition, ...] = ()
    conflict: OnConflict | None = None
    outputs: tuple[Output, ...] = ()

    def values(self, /, **assignments: Operand) -> Insert:
        """One row: columns and their values."""
        return replace(self, single=_terms(assignments), bulk=None)

    def rows(self, parameter: Param, /, **kinds: Kind) -> Insert:
        """Many rows: `bind` takes an iterable of tuples or lists, one cell per column given here, in this order.

        Two rows of a batch with the same key and `do_update` are an error on PostgreSQL: merge them before.
        """
        return replace(self, single=(), bulk=Rows(BULK_ALIAS, parameter, tuple(kinds.items())))

    def where(self, *conditions: Condition) -> Insert:
        """Of many rows only those for which all conditions hold; their cells are col(name, BULK_ALIAS)."""
        return replace(self, conditions=self.conditions + conditions)

    def on_conflict(self, *keys: str) -> Conflict:
        """What to do with a row that is there already, by these key columns (none: by any, only to do nothing)."""
        return Conflict(self, keys)

    def returning(self, *outputs: Operand | Aliased) -> Insert:
        return replace(self, outputs=as_outputs(outputs))

    def compile(self, dialect: Dialect) -> Statement:
        out = Rendering(dialect)
        return out.statement(self.render(out))

    def render(self, out: Rendering) -> str:
        """The statement as a part of one; see `chained`."""
        into = f"INSERT INTO {out.name(self.table)}"
        if self.bulk is not None:
            names = ", ".join(out.name(name) for name, _ in self.bulk.columns)
            # WHERE TRUE: without it SQLite reads ON CONFLICT as the ON of a join.
            sql = f"{into} ({names}) SELECT * FROM {self.bulk.render(out)}"
            sql += render_where(out, self.conditions) or " WHERE TRUE"
        elif self.single:
            names = ", ".join(out.name(name) for name, _ in self.single)
            sql = f"{into} ({names}) VALUES ({', '.join(one.render(out) for _, one in self.single)})"
        else:
            raise IncompleteQuery("an insert needs values or rows")
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
        """Adds columns and their new values."""
        return replace(self, assignments=self.assignments + _terms(assignments))

    def from_rows(self, alias: str, parameter: Param, /, **kinds: Kind) -> Update:
        """Joins rows given to `bind`; refer to their cells as col(name, alias) in `set` and `where`."""
        return replace(self, bulk=Rows(alias, parameter, tuple(kinds.items())))

    def where(self, *conditions: Condition) -> Update:
        return replace(self, conditions=self.conditions + conditions)

    def everything(self) -> Update:
        """Change every row: needed where there is no condition."""
        return replace(self, all_rows=True)

    def returning(self, *outputs: Operand | Aliased) -> Update:
        """Columns of the changed rows; with `from_rows`, name the table: col("owner", table)."""
        return replace(self, outputs=as_outputs(outputs))

    def compile(self, dialect: Dialect) -> Statement:
        out = Rendering(dialect)
        return out.statement(self.render(out))

    def render(self, out: Rendering) -> str:
        """The statement as a part of one; see `chained`."""
        if not self.assignments:
            raise IncompleteQuery("an update needs at least one assignment")
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
        """Delete every row: needed where there is no condition."""
        return replace(self, all_rows=True)

    def returning(self, *outputs: Operand | Aliased) -> Delete:
        return replace(self, outputs=as_outputs(outputs))

    def compile(self, dialect: Dialect) -> Statement:
        _check_extent("a delete", self.conditions, all_rows=self.all_rows)
        out = Rendering(dialect)
        sql = f"DELETE FROM {out.name(self.table)}{render_where(out, self.conditions)}"
        return out.statement(sql + _returning(out, self.outputs))


@dataclass(frozen=True, slots=True)
class Empty(Query):
    """Every row of a table, gone in one step."""

    table: str

    def compile(self, dialect: Dialect) -> Statement:
        out = Rendering(dialect)
        return out.statement(f"{dialect.empty_table} {out.name(self.table)}")


@dataclass(frozen=True, slots=True)
class HoldTable(Query):
    """A lock on a table, until the transaction ends."""

    table: str

    def compile(self, dialect: Dialect) -> Statement:
        out = Rendering(dialect)
        return out.statement(f"LOCK TABLE {out.name(self.table)} IN EXCLUSIVE MODE")


def _terms(assignments: dict[str, Operand]) -> Assignments:
    return tuple((name, term(operand)) for name, operand in assignments.items())


def _assignments(out: Rendering, assignments: Assignments) -> str:
    return ", ".join(f"{out.name(name)} = {one.render(out)}" for name, one in assignments)


def _returning(out: Rendering, outputs: tuple[Output, ...]) -> str:
    return f" RETURNING {render_outputs(out, outputs)}" if outputs else ""


def _check_extent(what: str, conditions: tuple[Condition, ...], *, all_rows: bool) -> None:
    if bool(conditions) == all_rows:
        raise IncompleteQuery(f"{what} needs either where() or everything(), and not both")


def insert(table: str) -> Insert:
    """An insert into this table; give it `values` or `rows`."""
    return Insert(table)


def update(table: str) -> Update:
    """An update of this table."""
    return Update(table)


def empty(table: str) -> Empty:
    """All rows of this table go, and who writes to it meanwhile waits. The number of rows is not answered."""
    return Empty(table)


def hold_table(table: str) -> HoldTable:
    """Who writes to this table waits until the transaction ends, and who holds rows of it; for dialects with locks."""
    return HoldTable(table)


def delete(table: str) -> Delete:
    """A delete from this table."""
    return Delete(table)

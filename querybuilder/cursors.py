"""Cursors of the database. A cursor remembers a place in a long result.

One statement of a transaction opens a cursor, and later statements of the same transaction read on from its place. The
database only counts the rows that such a statement skips. Without a cursor, it would test a condition on each row.

One function, stored in the database, reads from all cursors. It executes no SQL text that it gets as an argument, so
only statements of this package name tables.
"""

from __future__ import annotations

from dataclasses import dataclass

from querybuilder.dialect import Dialect
from querybuilder.errors import InexpressibleError
from querybuilder.render import Query, Rendering, Statement
from querybuilder.select import Select
from querybuilder.terms import RowSource, Term

_READER = "row_at"
# FETCH accepts no rank above CURSOR_ROWS_MAX.
_READER_TEXT = (
    "(place refcursor, rank bigint) RETURNS TABLE (first_text text, second_text text) LANGUAGE plpgsql AS "
    "$$BEGIN FETCH ABSOLUTE rank FROM place INTO first_text, second_text; IF FOUND THEN RETURN NEXT; END IF; END$$"
)
CURSOR_ROWS_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class CreateRowReader(Query):
    def compile(self, dialect: Dialect) -> Statement:
        out = Rendering(_with_cursors(dialect), without_arguments="a definition")
        return out.statement(f"CREATE FUNCTION {out.name(_READER)}{_READER_TEXT}")


@dataclass(frozen=True, slots=True)
class OpenCursor(Query):
    name: str
    query: Select

    def compile(self, dialect: Dialect) -> Statement:
        out = Rendering(_with_cursors(dialect))
        name = out.name(self.name)
        return out.statement(f"DECLARE {name} NO SCROLL CURSOR FOR {self.query.render(out)}")


@dataclass(frozen=True, slots=True)
class CloseCursor(Query):
    name: str

    def compile(self, dialect: Dialect) -> Statement:
        out = Rendering(_with_cursors(dialect))
        return out.statement(f"CLOSE {out.name(self.name)}")


@dataclass(frozen=True, slots=True)
class RowAt(RowSource):
    cursor: str
    rank: Term
    names: tuple[str, str]

    def render(self, out: Rendering) -> str:
        _with_cursors(out.dialect)
        first, second = (out.name(name) for name in self.names)
        place = f"{out.constant(self.cursor)}::refcursor"
        return (
            f"SELECT first_text AS {first}, second_text AS {second} "
            f"FROM {out.name(_READER)}({place}, {self.rank.render(out)})"
        )


def _with_cursors(dialect: Dialect) -> Dialect:
    if not dialect.cursors:
        raise InexpressibleError("this dialect has no cursors: a statement can't go on where an earlier one ended")
    return dialect


def create_row_reader() -> CreateRowReader:
    """Return the statement that creates the database function for `row_at`. Run it once in each database."""
    return CreateRowReader()


def open_cursor(name: str, query: Select) -> OpenCursor:
    """Return a statement that opens a cursor before the first row of a select."""
    return OpenCursor(name, query)


def close_cursor(name: str) -> CloseCursor:
    """Return a statement that closes a cursor, so that the transaction can use the name for another cursor."""
    return CloseCursor(name)


def row_at(cursor: str, rank: Term, *names: str) -> RowAt:
    """Return a source with one row of a cursor: row number `rank`, from 1 to CURSOR_ROWS_MAX.

    The select of the cursor has to return two texts, which get these names. Past the end of the result, the source has
    no row. Read the ranks in ascending order, because a cursor only moves forward. A read costs more the more rows it
    skips.
    """
    first, second = names
    return RowAt(cursor, rank, (first, second))

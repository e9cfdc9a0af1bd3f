"""Cursors of the database. A cursor remembers a place in a long result.

One statement of a transaction opens a cursor, and later statements of the same transaction read on from its place. The
database only counts the rows that such a statement skips. Without a cursor, it would test a condition on each row.

One function, stored in the database, reads from all cursors. It executes no SQL text that it gets as an argument, so
only statements of this package name tables.
"""

from querybuilder.errors import InexpressibleError
from querybuilder.render import Command, Query, Rendering, Written
from querybuilder.schema import Definition
from querybuilder.select import Select
from querybuilder.terms import RowSource, Term

ROW_READER = "row_at"
# FETCH accepts no rank above CURSOR_ROWS_MAX.
_READER_TEXT = (
    "(place refcursor, rank bigint) RETURNS TABLE (first_text text, second_text text) LANGUAGE plpgsql AS "
    "$$BEGIN FETCH ABSOLUTE rank FROM place INTO first_text, second_text; IF FOUND THEN RETURN NEXT; END IF; END$$"
)
CURSOR_ROWS_MAX = 2**31 - 1


def create_row_reader() -> Query:
    """Return the statement that creates the database function for `row_at`. Run it once in each database."""
    return Definition(lambda out: f"CREATE FUNCTION {_with_cursors(out).table(ROW_READER)}{_READER_TEXT}")


def open_cursor(name: str, query: Select) -> Query:
    """Return a statement that opens a cursor before the first row of a select."""
    return Command(lambda out: f"DECLARE {_with_cursors(out).name(name)} NO SCROLL CURSOR FOR {query.render(out)}")


def close_cursor(name: str) -> Query:
    """Return a statement that closes a cursor, so that the transaction can use the name for another cursor."""
    return Command(lambda out: f"CLOSE {_with_cursors(out).name(name)}")


class RowAt(Written, RowSource):
    """One row of a cursor."""

    __slots__ = ()


def row_at(cursor: str, rank: Term, *names: str) -> RowAt:
    """Return a source with one row of a cursor: row number `rank`, from 1 to CURSOR_ROWS_MAX.

    The select of the cursor has to return two texts, which get these names. Past the end of the result, the source has
    no row. Read the ranks in ascending order, because a cursor only moves forward. A read costs more the more rows it
    skips.
    """

    def write(out: Rendering) -> str:
        first, second = map(_with_cursors(out).name, names)
        place = f"{out.constant(cursor)}::refcursor"
        reader = f"{out.table(ROW_READER)}({place}, {rank.render(out)})"
        return f"SELECT first_text AS {first}, second_text AS {second} FROM {reader}"

    return RowAt(write)


def _with_cursors(out: Rendering) -> Rendering:
    if not out.dialect.cursors:
        raise InexpressibleError("this dialect has no cursors: a statement can't go on where an earlier one ended")
    return out

"""Turns values (constants, lists and rows) into statement arguments.

Either a value arrives in the database unchanged, or QueryError is raised. SQLite, for example, would read a 65-bit
integer in JSON as a float, and before version 3.45 end a text in JSON at its first NUL.

SQLite gets a whole batch as one JSON text. It runs in another thread, where every step of a statement may wait for the
interpreter lock, and one text for all rows saves such steps (docs/decisions.md, "Packed statements").

PostgreSQL gets rows as one array for each column, written as text, because the driver encodes one text faster than the
items of an array. Only bytes columns stay arrays (docs/decisions.md, "Rows travel to PostgreSQL as one text a column").

When PostgreSQL plans a statement, it does not know the length of a bound array and assumes a few items. It therefore
looks up each row of the batch in an index, whatever size it estimates for the table.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

import msgspec

from querybuilder.dialect import Dialect, SqlType
from querybuilder.errors import QueryError

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1

Value = int | str | bytes | None

_Int64 = Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]
_CELLS: dict[SqlType, Any] = {SqlType.TEXT: str | None, SqlType.INTEGER: _Int64 | None, SqlType.BLOB: bytes | None}
_NUL = "text in a list or in rows cannot hold NUL"
_TEXT_ENCODER = msgspec.json.Encoder()


def constant_kind(value: object) -> SqlType | None:
    """Find the `SqlType` of a constant, or None for null. Raises QueryError if the type or size is not allowed."""
    if value is None:
        return None
    if isinstance(value, str):
        return SqlType.TEXT
    if isinstance(value, bytes):
        return SqlType.BLOB
    if isinstance(value, int) and not isinstance(value, bool):
        if INT64_MIN <= value <= INT64_MAX:
            return SqlType.INTEGER
        raise QueryError("an integer has at most 64 bits")
    raise QueryError(f"a constant is an integer, text, bytes or None, not {type(value).__name__}")


@dataclass(frozen=True, slots=True)
class Encoder:
    """Turns one parameter's value, a plain list or a list of rows, into arguments for the database driver."""

    kinds: tuple[SqlType, ...] | None  # the kind of each column of the rows; None: the parameter is a plain list
    arrays: bool  # from `Dialect.arrays`

    def encode(self, given: object) -> tuple[object, ...]:
        """Encode a list or rows as arguments. Raises QueryError for values that would not arrive unchanged."""
        if not isinstance(given, Iterable) or isinstance(given, str | bytes):
            raise QueryError(f"a list or rows are an iterable, not {type(given).__name__}")
        try:
            if self.arrays and self.kinds is not None:
                return _arrays(list(given), self.kinds)
            items: list[Any] = msgspec.convert((list(given),), _shape(self.kinds)).items
        except msgspec.ValidationError as error:
            raise QueryError(f"a list or rows do not fit: {error}") from None
        return (items,) if self.arrays else (_json_text(items),)


def array_type(dialect: Dialect, kind: SqlType) -> str:
    """Choose the SQL type to which PostgreSQL casts an argument that holds one column of a batch of rows.

    A column of bytes is sent as an array, because turning bytes into text is expensive. Other columns are sent as text.
    """
    array = f"{dialect.type_names[kind]}[]"
    return array if kind is SqlType.BLOB else f"text::{array}"


@cache
def _shape(kinds: tuple[SqlType, ...] | None, *, by_columns: bool = False) -> Any:
    """Define a struct type, whose only field is a plain list, a list of rows or, `by_columns`, a list for each column.

    msgspec checks each cell when it converts the lists. It analyses a struct type once, but a bare list type on every
    call. It does so at the first use, and the process crashes if another thread uses the type at that time. Therefore
    the type is used here.
    """
    cells = [_CELLS[kind] for kind in kinds or ()]
    cell: Any = str | _Int64 if kinds is None else tuple.__class_getitem__(tuple(cells))
    items = list.__class_getitem__(cell)
    if by_columns:
        items = tuple.__class_getitem__(tuple(map(list.__class_getitem__, cells)))
    shape = msgspec.defstruct("Batch", [("items", items)], array_like=True)
    msgspec.convert((((),) * len(cells) if by_columns else [],), shape)
    return shape


def _arrays(rows: list[Any], kinds: tuple[SqlType, ...]) -> tuple[object, ...]:
    if not all(isinstance(row, tuple | list) for row in rows):
        raise msgspec.ValidationError("Expected rows to be tuples or lists")
    try:
        columns = tuple(zip(*rows, strict=True)) if rows else ((),) * len(kinds)
    except ValueError as error:
        raise msgspec.ValidationError(f"Expected rows of one length: {error}") from None
    fitting: tuple[list[Any], ...] = msgspec.convert((columns,), _shape(kinds, by_columns=True)).items
    return tuple(
        column if kind is SqlType.BLOB else _array_text(column) for kind, column in zip(kinds, fitting, strict=True)
    )


def _array_text(cells: list[Any]) -> str:
    """Return a list as the text of a PostgreSQL array, which differs from JSON in brackets and backslash escapes."""
    text = _encoded(cells)
    if "\\" in text:
        if "\\\\" not in text:
            text = text.replace("\\n", "\n")
        # In JSON and in PostgreSQL's notation, a backslash escapes a backslash or a quotation mark. But PostgreSQL
        # drops a backslash before a letter.
        if "\\" in text.replace("\\\\", "").replace('\\"', ""):
            return f"{{{','.join(map(_array_cell, cells))}}}"
    return f"{{{text[1:-1]}}}"


def _array_cell(cell: object) -> str:
    if not isinstance(cell, str):
        return "null" if cell is None else str(cell)
    if "\0" in cell:
        raise QueryError(_NUL)
    escaped = cell.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _encoded(items: list[Any]) -> str:
    try:
        return _TEXT_ENCODER.encode(items).decode()
    except UnicodeEncodeError as error:
        raise QueryError("text cannot hold lone surrogates") from error


def _json_text(items: list[Any]) -> str:
    text = _encoded(items)
    # The first test is cheap, but it also matches an escaped backslash before "u0000". So the second test decides.
    if "\\u0000" in text and any("\0" in cell for row in items for cell in _texts(row)):
        raise QueryError(_NUL)
    return text


def _texts(row: object) -> Iterable[str]:
    cells = row if isinstance(row, tuple) else (row,)
    return (cell for cell in cells if isinstance(cell, str))

"""How values travel: which constants may be bound, and how lists and rows become arguments.

SQLite takes a whole batch as one JSON text, because every step of a statement in another thread may wait for the
interpreter lock: 1,000 rows bound one by one fall from 26,000 to 1,000 a second beside a busy event loop.

PostgreSQL takes rows as one array a column, written as text: the driver spends 0.23 us on a cell of an array, and 0.03
us on one of a text, which costs the server 0.03 us more. And the server plans a statement for an array that it does not
know as for a few rows: it looks each up in the index, whatever it believes about the size of the table.

The rule it keeps: what arrives in the database equals what was given, or BadValue is raised. JSON would turn a
65-bit integer into a float and, before SQLite 3.45, end a text at its first NUL.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

import msgspec

from querybuilder.dialect import Dialect, Kind
from querybuilder.errors import BadValue

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1

Value = int | str | bytes | None

_Int64 = Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]
_CELLS: dict[Kind, Any] = {Kind.TEXT: str | None, Kind.INTEGER: _Int64 | None, Kind.BLOB: bytes | None}
_NUL = "text in a list or in rows cannot hold NUL"
_TEXT_ENCODER = msgspec.json.Encoder()


def constant_kind(value: object) -> Kind | None:
    """The kind of a constant, None for null. Raises BadValue for floats, booleans and integers past 64 bits."""
    if value is None:
        return None
    if isinstance(value, str):
        return Kind.TEXT
    if isinstance(value, bytes):
        return Kind.BLOB
    if isinstance(value, int) and not isinstance(value, bool):
        if INT64_MIN <= value <= INT64_MAX:
            return Kind.INTEGER
        raise BadValue("an integer has at most 64 bits")
    raise BadValue(f"a constant is an integer, text, bytes or None, not {type(value).__name__}")


@dataclass(frozen=True, slots=True)
class Encoder:
    """Turns one parameter into the arguments that carry it: a list, or rows of the given kinds."""

    kinds: tuple[Kind, ...] | None  # None: a plain list
    arrays: bool

    def encode(self, given: object) -> tuple[object, ...]:
        """The arguments: one JSON text, or on PostgreSQL the list, of rows an array a column.

        Raises BadValue for what cannot be carried exactly.
        """
        if not isinstance(given, Iterable) or isinstance(given, str | bytes):
            raise BadValue(f"a list or rows are an iterable, not {type(given).__name__}")
        try:
            if self.arrays and self.kinds is not None:
                return _arrays(list(given), self.kinds)
            items: list[Any] = msgspec.convert((list(given),), _shape(self.kinds)).items
        except msgspec.ValidationError as error:
            raise BadValue(f"a list or rows do not fit: {error}") from None
        return (items,) if self.arrays else (_json_text(items),)


def array_type(dialect: Dialect, kind: Kind) -> str:
    """What the argument of a column of rows is cast to: bytes have no text that is cheap to make."""
    array = f"{dialect.type_names[kind]}[]"
    return array if kind is Kind.BLOB else f"text::{array}"


@cache
def _shape(kinds: tuple[Kind, ...] | None) -> Any:
    """A type to convert to. A struct around the list, since msgspec keeps what it knows of a struct, but works out
    a bare list type on every call (3 us)."""
    cell: Any = str | _Int64 if kinds is None else tuple.__class_getitem__(tuple(_CELLS[kind] for kind in kinds))
    items = list.__class_getitem__(cell)
    return msgspec.defstruct("Items", [("items", items)], array_like=True)


def _arrays(rows: list[Any], kinds: tuple[Kind, ...]) -> tuple[object, ...]:
    """One argument a column. Raises ValidationError for rows that do not fit."""
    if not all(isinstance(row, tuple | list) for row in rows):
        raise msgspec.ValidationError("Expected rows to be tuples or lists")
    try:
        columns = tuple(zip(*rows, strict=True)) if rows else ((),) * len(kinds)
    except ValueError as error:
        raise msgspec.ValidationError(f"Expected rows of one length: {error}") from None
    fitting: tuple[list[Any], ...] = msgspec.convert((columns,), _columns_shape(kinds)).columns
    return tuple(
        column if kind is Kind.BLOB else _array_text(column) for kind, column in zip(kinds, fitting, strict=True)
    )


@cache
def _columns_shape(kinds: tuple[Kind, ...]) -> Any:
    columns = tuple(list.__class_getitem__(_CELLS[kind]) for kind in kinds)
    return msgspec.defstruct("Columns", [("columns", tuple.__class_getitem__(columns))], array_like=True)


def _array_text(cells: list[Any]) -> str:
    """An array as PostgreSQL reads it: as JSON, but for the brackets and for what a backslash says."""
    text = _encoded(cells)
    if "\\" in text:
        if "\\\\" not in text:
            text = text.replace("\\n", "\n")
        # Before a backslash or a quotation mark it says the same; before a letter it would be lost.
        if "\\" in text.replace("\\\\", "").replace('\\"', ""):
            return f"{{{','.join(map(_array_cell, cells))}}}"
    return f"{{{text[1:-1]}}}"


def _array_cell(cell: object) -> str:
    if not isinstance(cell, str):
        return "null" if cell is None else str(cell)
    if "\0" in cell:
        raise BadValue(_NUL)
    escaped = cell.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _encoded(items: list[Any]) -> str:
    try:
        return _TEXT_ENCODER.encode(items).decode()
    except UnicodeEncodeError as error:
        raise BadValue("text cannot hold lone surrogates") from error


def _json_text(items: list[Any]) -> str:
    text = _encoded(items)
    # The cheap test first; an innocent backslash before u0000 also matches it and is told apart only then.
    if "\\u0000" in text and any("\0" in cell for row in items for cell in _texts(row)):
        raise BadValue(_NUL)
    return text


def _texts(row: object) -> Iterable[str]:
    cells = row if isinstance(row, tuple) else (row,)
    return (cell for cell in cells if isinstance(cell, str))


def list_encoder(dialect: Dialect) -> Encoder:
    """How this dialect takes a list."""
    return Encoder(kinds=None, arrays=dialect.arrays)


def rows_encoder(dialect: Dialect, kinds: tuple[Kind, ...]) -> Encoder:
    """How this dialect takes rows of these kinds."""
    return Encoder(kinds=kinds, arrays=dialect.arrays)

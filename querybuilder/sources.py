"""The sources of rows in FROM: a table, a select or union, rows that `bind` gets, and the pieces of a text."""

from __future__ import annotations

from dataclasses import dataclass

from querybuilder.dialect import SqlType
from querybuilder.errors import IncompleteQueryError
from querybuilder.render import Node, Rendering
from querybuilder.terms import Param, RowSource, Term

SUBQUERY_ALIAS = "s"
PIECE = "value"  # the name that json_each gives the column of pieces


@dataclass(frozen=True, slots=True)
class Table(Node):
    name: str
    alias: str | None = None

    def render(self, out: Rendering) -> str:
        return out.name(self.name) + ("" if self.alias is None else f" AS {out.name(self.alias)}")


@dataclass(frozen=True, slots=True)
class Derived(Node):
    source: RowSource
    alias: str

    def render(self, out: Rendering) -> str:
        return f"({self.source.render(out)}) AS {out.name(self.alias)}"


@dataclass(frozen=True, slots=True)
class Rows(Node):
    alias: str
    parameter: Param
    columns: tuple[tuple[str, SqlType], ...]

    def render(self, out: Rendering) -> str:
        if not self.columns:
            raise IncompleteQueryError("rows need at least one column")
        kinds = tuple(kind for _, kind in self.columns)
        if out.dialect.arrays:
            arrays = ", ".join(out.rows_parameter(self.parameter.name, kinds))
            names = ", ".join(out.name(name) for name, _ in self.columns)
            return f"unnest({arrays}) AS {out.name(self.alias)}({names})"
        cells = ", ".join(
            f"json_extract(value, '$[{index}]') AS {out.name(name)}" for index, (name, _) in enumerate(self.columns)
        )
        (bound,) = out.rows_parameter(self.parameter.name, kinds)
        return f"(SELECT {cells} FROM json_each({bound})) AS {out.name(self.alias)}"


def rows(alias: str, parameter: Param, /, **kinds: SqlType) -> Rows:
    """Return a source of rows. `bind` takes them as tuples or lists, with one cell for each column named here."""
    return Rows(alias, parameter, tuple(kinds.items()))


@dataclass(frozen=True, slots=True)
class Pieces(Node):
    text: Term
    alias: str

    def render(self, out: Rendering) -> str:
        text, alias = self.text.render(out), out.name(self.alias)
        if out.dialect.arrays:
            return f"unnest(string_to_array({text}, ',')) AS {alias}({out.name(PIECE)})"
        return f"""json_each('["' || replace({text}, ',', '","') || '"]') AS {alias}"""


Source = Table | Derived | Rows


def source(given: str | RowSource | Rows, alias: str | None) -> Source:
    """Return the source for an argument of FROM: the name of a table, a select, a union or rows."""
    if isinstance(given, Rows):
        if alias is not None:
            raise IncompleteQueryError("rows have an alias of their own already")
        return given
    if isinstance(given, RowSource):
        return Derived(given, alias or SUBQUERY_ALIAS)
    return Table(given, alias)

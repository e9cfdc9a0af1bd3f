"""The sources of rows in FROM: a table, a select or union, rows that `bind` gets, and the pieces of a text."""

from __future__ import annotations

from dataclasses import dataclass

from querybuilder.dialect import SqlType
from querybuilder.errors import IncompleteQueryError
from querybuilder.render import Node, Rendering, Written
from querybuilder.terms import Param, RowSource, Term

SUBQUERY_ALIAS = "s"
PIECE = "value"  # the name that json_each gives the column of pieces


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


def derived(inner: RowSource, alias: str) -> Node:
    return Written(lambda out: f"({inner.render(out)}) AS {out.name(alias)}")


def pieces(text: Term, alias: str) -> Node:
    """Return a source of the pieces of a text: see `Select.each_piece`."""

    def write(out: Rendering) -> str:
        whole, name = text.render(out), out.name(alias)
        if out.dialect.arrays:
            return f"unnest(string_to_array({whole}, ',')) AS {name}({out.name(PIECE)})"
        return f"""json_each('["' || replace({whole}, ',', '","') || '"]') AS {name}"""

    return Written(write)


def source(given: str | RowSource | Rows, alias: str | None) -> Node:
    """Return the source for an argument of FROM: the name of a table, a select, a union or rows."""
    if isinstance(given, Rows):
        if alias is not None:
            raise IncompleteQueryError("rows have an alias of their own already")
        return given
    if isinstance(given, RowSource):
        return derived(given, alias or SUBQUERY_ALIAS)
    return Written(lambda out: out.name(given) + ("" if alias is None else f" AS {out.name(alias)}"))

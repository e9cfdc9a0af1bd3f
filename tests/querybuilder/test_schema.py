"""Test tables, columns and indexes on a real SQLite database."""

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from querybuilder import (
    INTEGER,
    SQLITE,
    TEXT,
    QueryError,
    col,
    create_index,
    create_table,
    insert,
    param,
    plus,
)

Run = Callable[..., list[Any]]


def test_a_column_refuses_values_of_another_kind(run: Run) -> None:
    run(create_table("t").column("n", INTEGER))
    with pytest.raises(sqlite3.IntegrityError):
        run(insert("t").values(n="ten"))


def test_a_clustered_table_has_no_row_ids(run: Run, database: sqlite3.Connection) -> None:
    run(create_table("t").column("a", TEXT).column("b", TEXT).primary_key("a", "b").clustered())
    with pytest.raises(sqlite3.OperationalError, match="no such column: rowid"):
        database.execute("SELECT rowid FROM t")


@pytest.mark.parametrize("query", [
    create_index("i", "t", col("a"), where=col("a").gt(5)),
    create_index("i", "t", col("a"), where=col("a").eq(param("x"))),
    create_index("i", "t", col("a"), where=col("a").in_(param("list"))),
    create_index("i", "t", col("a", "t")),
    create_index("i", "t", plus(col("a"), 1)),  # type: ignore[arg-type]
])  # fmt: skip
def test_an_index_over_anything_that_would_bind_values_is_refused(query: Any) -> None:
    with pytest.raises(QueryError):
        query.compile(SQLITE)


@pytest.mark.parametrize("query", [
    create_table("t"),
    create_table("t").column("a", TEXT).clustered(),
    create_index("i", "t"),
])  # fmt: skip
def test_an_incomplete_definition_is_refused(query: Any) -> None:
    with pytest.raises(QueryError):
        query.compile(SQLITE)

"""Test tables, columns and indexes on a real SQLite database."""

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from querybuilder import (
    INTEGER,
    SQLITE,
    TEXT,
    BadValueError,
    IncompleteQueryError,
    InexpressibleError,
    add_column,
    col,
    create_index,
    create_table,
    drop_index,
    drop_table,
    insert,
    param,
    plus,
    select,
)

Run = Callable[..., list[Any]]


def test_a_definition_can_be_repeated_and_taken_back(run: Run) -> None:
    table = create_table("t").column("a", INTEGER).primary_key("a").if_not_exists()
    for _ in range(2):
        run(table)
    run(create_index("i", "t", col("a")))
    run(drop_index("i", "t"))
    run(drop_table("t"))
    with pytest.raises(sqlite3.OperationalError):
        run(drop_table("t"))


def test_columns_refuse_null_unless_told_and_have_defaults(run: Run) -> None:
    table = create_table("t").column("a", TEXT).column("b", TEXT, null=True)
    run(table.column("c", INTEGER, default=-5).column("d", INTEGER, default=7))
    run(insert("t").values(a="x"))
    assert run(select(col("a"), col("b"), col("c"), col("d")).from_("t")) == [("x", None, -5, 7)]
    with pytest.raises(sqlite3.IntegrityError, match="NOT NULL"):
        run(insert("t").values(b="y"))


def test_a_column_refuses_values_of_another_kind(run: Run) -> None:
    run(create_table("t").column("n", INTEGER))
    with pytest.raises(sqlite3.IntegrityError):
        run(insert("t").values(n="ten"))


def test_a_clustered_table_has_no_row_ids(run: Run, database: sqlite3.Connection) -> None:
    run(create_table("t").column("a", TEXT).column("b", TEXT).primary_key("a", "b").clustered())
    with pytest.raises(sqlite3.OperationalError, match="no such column: rowid"):
        database.execute("SELECT rowid FROM t")


def test_a_column_added_to_a_live_table_fills_the_rows_that_are_there(run: Run) -> None:
    run(create_table("t").column("a", INTEGER))
    run(insert("t").values(a=1))
    run(add_column("t", "b", TEXT))
    assert run(select(col("b")).from_("t")) == [(None,)]


def test_a_unique_partial_index_binds_only_the_rows_it_covers(run: Run) -> None:
    run(create_table("t").column("a", INTEGER, null=True).column("gone", INTEGER, null=True))
    run(create_index("i", "t", col("a"), where=col("gone").is_null(), unique=True))
    for gone in (1, 1, None):
        run(insert("t").values(a=7, gone=gone))
    with pytest.raises(sqlite3.IntegrityError):
        run(insert("t").values(a=7))


@pytest.mark.parametrize("query", [
    create_index("i", "t", col("a"), where=col("a").gt(5)),
    create_index("i", "t", col("a"), where=col("a").eq(param("x"))),
    create_index("i", "t", col("a"), where=col("a").in_(param("list"))),
    create_index("i", "t", col("a", "t")),
    create_index("i", "t", plus(col("a"), 1)),  # type: ignore[arg-type]
])  # fmt: skip
def test_an_index_over_anything_that_would_bind_values_is_refused(query: Any) -> None:
    with pytest.raises(InexpressibleError):
        query.compile(SQLITE)


@pytest.mark.parametrize("query", [
    create_table("t"),
    create_table("t").column("a", TEXT).clustered(),
    create_index("i", "t"),
])  # fmt: skip
def test_an_incomplete_definition_is_refused(query: Any) -> None:
    with pytest.raises(IncompleteQueryError):
        query.compile(SQLITE)


@pytest.mark.parametrize(("kind", "default"), [(TEXT, 5), (INTEGER, "5"), (INTEGER, True), (INTEGER, 2**63)])
def test_a_default_of_another_kind_is_refused(kind: Any, default: Any) -> None:
    with pytest.raises(BadValueError):
        create_table("t").column("a", kind, default=default)

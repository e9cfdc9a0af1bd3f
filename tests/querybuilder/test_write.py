"""Test inserts, conditional upserts, updates and deletes on a real SQLite database."""

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from querybuilder import (
    BLOB,
    INTEGER,
    POSTGRES,
    SQLITE,
    TEXT,
    QueryError,
    all_of,
    chained,
    col,
    count,
    delete,
    insert,
    lit,
    param,
    plus,
    select,
    update,
)

Run = Callable[..., list[Any]]


def test_a_chain_of_changes_needs_a_dialect_that_has_it_and_returned_rows() -> None:
    changes = update("b").set(n=1).where(all_of())
    with pytest.raises(QueryError):
        chained("changed", changes.returning(col("n"))).compile(SQLITE)
    with pytest.raises(QueryError):
        chained("changed", changes).compile(POSTGRES)


def test_an_empty_batch_changes_nothing(run: Run, board: str) -> None:
    run(insert(board).rows(param("rows"), owner=TEXT, n=INTEGER), rows=[])
    assert run(select(count()).from_(board)) == [(5,)]


def test_a_batch_update_finds_its_rows_by_key(explain: Run, board: str) -> None:
    query = update(board).set(n=col("new", "v")).from_rows("v", param("rows"), owner=TEXT, new=INTEGER)
    plan = explain(query.where(col("owner", board).eq(col("owner", "v"))), rows=[("a", 1)])
    assert "SEARCH board USING PRIMARY KEY (owner=?)" in plan
    assert not any(step.startswith("SCAN board") for step in plan)


def test_a_sum_that_overflows_fails_instead_of_turning_into_a_float(run: Run, board: str) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="REAL value"):
        run(update(board).set(n=plus(col("n"), 2**63 - 1)).where(all_of()))


def test_sqlite_takes_bytes_alone_and_refuses_them_in_bulk(run: Run) -> None:
    with pytest.raises(QueryError):
        insert("t").rows(param("rows"), a=BLOB).compile(SQLITE)
    assert run(select(lit(b"\0\xff"))) == [(b"\0\xff",)]


@pytest.mark.parametrize("build", [
    lambda: insert("t"),
    lambda: update("t").where(col("a").eq(1)),
    lambda: update("t").set(a=1),
    lambda: delete("t"),
    lambda: insert("t").rows(param("rows")),
    lambda: insert("t").values(a=1).where(col("a").gt(0)),
    lambda: insert("t").values(a=1).on_conflict(),
    lambda: insert("t").values(a=1).on_conflict("a").do_update(),
])  # fmt: skip
def test_an_incomplete_or_contradictory_write_is_refused(build: Callable[[], Any]) -> None:
    with pytest.raises(QueryError):
        build().compile(SQLITE)


def test_overwriting_a_row_that_is_only_a_key_changes_nothing() -> None:
    only_key = insert("t").values(a=1).on_conflict("a")
    assert only_key.overwrite().compile(SQLITE).sql == only_key.do_nothing().compile(SQLITE).sql

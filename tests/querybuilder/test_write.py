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
    IncompleteQueryError,
    InexpressibleError,
    all_of,
    chained,
    col,
    count,
    delete,
    excluded,
    insert,
    lit,
    param,
    plus,
    select,
    update,
)
from querybuilder.write import BULK_ALIAS

Run = Callable[..., list[Any]]


def numbers(run: Run, board: str) -> dict[str, int]:
    return dict(run(select(col("owner"), col("n")).from_(board)))


def test_one_row_is_inserted_from_constants_parameters_and_terms(run: Run, board: str) -> None:
    query = insert(board).values(owner=param("owner"), c1=None, n=plus(param("n"), 1)).returning(col("owner"), col("n"))
    assert run(query, owner="f", n=6) == [("f", 7)]


def test_a_conflict_can_leave_the_row_as_it_is(run: Run, board: str) -> None:
    query = insert(board).rows(param("rows"), owner=TEXT, n=INTEGER).on_conflict("owner").do_nothing()
    assert run(query.returning(col("owner")), rows=[("a", 99), ("f", 60)]) == [("f",)]
    assert numbers(run, board) == {"a": 10, "b": 20, "c": 30, "d": 40, "e": 50, "f": 60}


def test_only_the_rows_that_meet_a_condition_are_inserted(run: Run, board: str) -> None:
    batch = insert(board).rows(param("rows"), owner=TEXT, n=INTEGER).where(col("n", BULK_ALIAS).gt(6))
    run(batch.on_conflict("owner").overwrite(), rows=[("a", 5), ("b", 7), ("f", 6), ("g", 8)])
    assert numbers(run, board) == {"a": 10, "b": 7, "c": 30, "d": 40, "e": 50, "g": 8}


def test_a_chain_of_changes_needs_a_dialect_that_has_it_and_returned_rows() -> None:
    changes = update("b").set(n=1).where(all_of())
    with pytest.raises(InexpressibleError):
        chained("changed", changes.returning(col("n"))).compile(SQLITE)
    with pytest.raises(IncompleteQueryError):
        chained("changed", changes).compile(POSTGRES)


def test_an_upsert_changes_only_rows_that_meet_its_condition(run: Run, board: str) -> None:
    batch = insert(board).rows(param("rows"), owner=TEXT, n=INTEGER).on_conflict("owner")
    keep_best = batch.do_update(where=col("n", board).lt(excluded("n")), n=excluded("n"), c1=param("c1"))
    run(keep_best, rows=[("a", 5), ("b", 25), ("f", 60)], c1="01")
    assert numbers(run, board) == {"a": 10, "b": 25, "c": 30, "d": 40, "e": 50, "f": 60}
    assert run(select(col("owner")).from_(board).where(col("c1").eq("01"))) == [("b",)]


def test_an_upsert_can_add_to_what_is_there(run: Run, board: str) -> None:
    batch = insert(board).rows(param("rows"), owner=TEXT, n=INTEGER).on_conflict("owner")
    run(batch.do_update(n=plus(col("n", board), excluded("n"))), rows=[("a", 5), ("a", 6), ("f", 1)])
    assert numbers(run, board) == {"a": 21, "b": 20, "c": 30, "d": 40, "e": 50, "f": 1}


def test_an_upsert_overwrites_only_the_given_columns_of_an_existing_row(run: Run, board: str) -> None:
    before = run(select(col("c1")).from_(board).where(col("owner").eq("a")))
    batch = insert(board).rows(param("rows"), owner=TEXT, n=INTEGER).on_conflict("owner").overwrite()
    run(batch, rows=[("a", 5), ("f", 60)])
    run(insert(board).values(owner="b", n=param("n")).on_conflict("owner").overwrite(), n=7)
    assert numbers(run, board) == {"a": 5, "b": 7, "c": 30, "d": 40, "e": 50, "f": 60}
    assert run(select(col("c1")).from_(board).where(col("owner").eq("a"))) == before


def test_an_empty_batch_changes_nothing(run: Run, board: str) -> None:
    run(insert(board).rows(param("rows"), owner=TEXT, n=INTEGER), rows=[])
    assert run(select(count()).from_(board)) == [(5,)]


def test_a_batch_updates_only_rows_with_the_expected_version(run: Run, board: str) -> None:
    query = update(board).set(n=col("new", "v"), c1=None)
    query = query.from_rows("v", param("rows"), owner=TEXT, expected=INTEGER, new=INTEGER)
    query = query.where(col("owner", board).eq(col("owner", "v")), col("n", board).eq(col("expected", "v")))
    changed = run(
        query.returning(col("owner", board), col("n", board)), rows=[("a", 10, 11), ("b", 99, 21), ("z", 1, 1)]
    )
    assert changed == [("a", 11)]
    assert numbers(run, board) == {"a": 11, "b": 20, "c": 30, "d": 40, "e": 50}


def test_a_batch_update_finds_its_rows_by_key(explain: Run, board: str) -> None:
    query = update(board).set(n=col("new", "v")).from_rows("v", param("rows"), owner=TEXT, new=INTEGER)
    plan = explain(query.where(col("owner", board).eq(col("owner", "v"))), rows=[("a", 1)])
    assert "SEARCH board USING PRIMARY KEY (owner=?)" in plan
    assert not any(step.startswith("SCAN board") for step in plan)


def test_an_update_without_rows_takes_terms(run: Run, board: str) -> None:
    run(update(board).set(n=plus(col("n"), 1)).where(col("n").lt(30)))
    run(update(board).set(c1=None).where(all_of()))
    assert numbers(run, board) == {"a": 11, "b": 21, "c": 30, "d": 40, "e": 50}
    assert run(select(count()).from_(board).where(col("c1").not_null())) == [(0,)]


def test_a_delete_returns_what_it_deleted(run: Run, board: str) -> None:
    assert sorted(run(delete(board).where(col("n").gt(30)).returning(col("owner")))) == [("d",), ("e",)]
    run(delete(board).where(all_of()))
    assert run(select(count()).from_(board)) == [(0,)]


def test_a_bounded_delete_takes_the_rows_of_a_select(run: Run, board: str) -> None:
    oldest = select(col("owner")).from_(board).order_by(col("n")).limit(param("rows"))
    run(delete(board).where(col("owner").in_(oldest)), rows=2)
    assert sorted(numbers(run, board)) == ["c", "d", "e"]


def test_a_sum_that_overflows_fails_instead_of_turning_into_a_float(run: Run, board: str) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="REAL value"):
        run(update(board).set(n=plus(col("n"), 2**63 - 1)).where(all_of()))


def test_sqlite_takes_bytes_alone_and_refuses_them_in_bulk(run: Run) -> None:
    with pytest.raises(InexpressibleError):
        insert("t").rows(param("rows"), a=BLOB).compile(SQLITE)
    assert run(select(lit(b"\0\xff"))) == [(b"\0\xff",)]


@pytest.mark.parametrize("build", [
    lambda: insert("t"),
    lambda: update("t").where(col("a").eq(1)),
    lambda: update("t").set(a=1),
    lambda: delete("t"),
    lambda: insert("t").rows(param("rows")),
    lambda: insert("t").values(a=1).on_conflict(),
    lambda: insert("t").values(a=1).on_conflict("a").do_update(),
    lambda: insert("t").values(a=1).on_conflict("a").overwrite(),
])  # fmt: skip
def test_an_incomplete_or_contradictory_write_is_refused(build: Callable[[], Any]) -> None:
    with pytest.raises(IncompleteQueryError):
        build().compile(SQLITE)

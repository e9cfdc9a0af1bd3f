"""Test tables, indexes, inserts, conditional upserts, updates and deletes on a real SQLite."""

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
    BadValueError,
    IncompleteQueryError,
    InexpressibleError,
    add_column,
    chained,
    col,
    count,
    create_index,
    create_table,
    delete,
    drop_index,
    drop_table,
    excluded,
    insert,
    lit,
    oldest_transaction,
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
    changes = update("b").set(n=1).everything()
    with pytest.raises(InexpressibleError):
        chained("changed", changes.returning(col("n"))).compile(SQLITE)
    with pytest.raises(IncompleteQueryError):
        chained("changed", changes).compile(POSTGRES)


def test_do_nothing_needs_no_key(run: Run, board: str) -> None:
    run(insert(board).values(owner="a", n=99).on_conflict().do_nothing())
    assert numbers(run, board)["a"] == 10


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


def test_a_batch_update_finds_its_rows_by_key(database: sqlite3.Connection, board: str) -> None:
    query = update(board).set(n=col("new", "v")).from_rows("v", param("rows"), owner=TEXT, new=INTEGER)
    built = query.where(col("owner", board).eq(col("owner", "v"))).bind(rows=[("a", 1)]).build(SQLITE)
    plan = [row[3] for row in database.execute("EXPLAIN QUERY PLAN " + built.sql, built.arguments)]
    assert "SEARCH board USING PRIMARY KEY (owner=?)" in plan
    assert not any(step.startswith("SCAN board") for step in plan)


def test_an_update_without_rows_takes_terms(run: Run, board: str) -> None:
    run(update(board).set(n=plus(col("n"), 1)).where(col("owner").in_(["a", "b"])))
    run(update(board).set(c1=None).everything())
    assert numbers(run, board) == {"a": 11, "b": 21, "c": 30, "d": 40, "e": 50}
    assert run(select(count()).from_(board).where(col("c1").not_null())) == [(0,)]


def test_a_delete_returns_what_it_deleted(run: Run, board: str) -> None:
    assert sorted(run(delete(board).where(col("n").gt(30)).returning(col("owner")))) == [("d",), ("e",)]
    run(delete(board).everything())
    assert run(select(count()).from_(board)) == [(0,)]


def test_a_bounded_delete_takes_the_rows_of_a_select(run: Run, board: str) -> None:
    oldest = select(col("owner")).from_(board).order_by(col("n")).limit(param("rows"))
    run(delete(board).where(col("owner").in_(oldest)), rows=2)
    assert sorted(numbers(run, board)) == ["c", "d", "e"]


def test_a_sum_that_overflows_fails_instead_of_turning_into_a_float(run: Run, board: str) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="REAL value"):
        run(update(board).set(n=plus(col("n"), 2**63 - 1)).everything())


def test_sqlite_takes_bytes_alone_and_refuses_them_in_bulk(run: Run) -> None:
    with pytest.raises(InexpressibleError):
        insert("t").rows(param("rows"), a=BLOB).compile(SQLITE)
    assert run(select(lit(b"\0\xff"))) == [(b"\0\xff",)]


@pytest.mark.parametrize("query", [
    insert("t"),
    update("t").where(col("a").eq(1)),
    update("t").set(a=1),
    update("t").set(a=1).where(col("a").eq(1)).everything(),
    delete("t"),
    delete("t").where(col("a").eq(1)).everything(),
    insert("t").rows(param("rows")),
])  # fmt: skip
def test_an_incomplete_or_contradictory_write_is_refused(query: Any) -> None:
    with pytest.raises(IncompleteQueryError):
        query.compile(SQLITE)


def test_do_update_needs_its_key_and_an_assignment() -> None:
    with pytest.raises(IncompleteQueryError):
        insert("t").values(a=1).on_conflict().do_update(a=2)
    with pytest.raises(IncompleteQueryError):
        insert("t").values(a=1).on_conflict("a").do_update()
    with pytest.raises(IncompleteQueryError):
        insert("t").values(a=1).on_conflict("a").overwrite()


def test_a_definition_can_be_repeated_and_taken_back(run: Run) -> None:
    table = create_table("t").column("a", INTEGER).primary_key("a").if_not_exists()
    index = create_index("i", "t", col("a")).if_not_exists()
    for _ in range(2):
        run(table)
        run(index)
    run(drop_index("i"))
    run(drop_index("i").if_exists())
    run(drop_table("t"))
    run(drop_table("t").if_exists())
    with pytest.raises(sqlite3.OperationalError):
        run(drop_table("t"))


def test_columns_refuse_null_unless_told_and_have_defaults(run: Run) -> None:
    table = create_table("t").column("a", TEXT).column("b", TEXT, null=True)
    run(table.column("c", INTEGER, default=-5).column("d", TEXT, default="at_12:00.5"))
    run(insert("t").values(a="x"))
    assert run(select(col("a"), col("b"), col("c"), col("d")).from_("t")) == [("x", None, -5, "at_12:00.5")]
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
    run(add_column("t", "c", INTEGER, null=False, default=0))
    assert run(select(col("b"), col("c")).from_("t")) == [(None, 0)]
    with pytest.raises(IncompleteQueryError):
        add_column("t", "d", INTEGER, null=False)


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
    create_index("i", "t", col("a"), where=col("a").in_([1])),
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


def test_rows_are_numbered_in_the_order_of_their_inserts(run: Run) -> None:
    run(create_table("t").numbered("n").column("a", TEXT).primary_key("n"))
    run(insert("t").rows(param("rows"), a=TEXT), rows=[("x",), ("y",), ("w",)])
    assert run(select(col("n"), col("a")).from_("t").order_by(col("n"))) == [(1, "x"), (2, "y"), (3, "w")]


def test_a_database_with_one_writer_has_no_transaction_numbers() -> None:
    with pytest.raises(InexpressibleError):
        create_table("t").in_transaction("position").compile(SQLITE)
    with pytest.raises(InexpressibleError):
        select(oldest_transaction()).compile(SQLITE)

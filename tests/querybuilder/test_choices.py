"""Queries with a part for each dialect: `bind` takes the same parameters, whichever part the dialect uses."""

from __future__ import annotations

from typing import Any

import pytest

from querybuilder import (
    INTEGER,
    POSTGRES,
    SQLITE,
    TEXT,
    UnboundParameterError,
    col,
    if_dialect,
    insert,
    oldest_transaction,
    param,
    query_if_dialect,
    select,
)


def test_a_dialect_gets_its_own_part_and_ignores_the_parameters_of_the_other() -> None:
    place = if_dialect("transaction", col("position"), col("seq"))
    past = if_dialect("transaction", place.in_(param("places")), place.gt(param("number")))
    query = select(place).from_("t").where(past).prepared()
    bound = query.bind(places=[3, 4], number=7)
    assert bound.build(SQLITE).sql == "SELECT `seq` FROM `t` WHERE `seq` > ?"
    assert bound.build(SQLITE).arguments == (7,)
    assert bound.build(POSTGRES).sql == 'SELECT "position" FROM "t" WHERE "position" = ANY($1)'
    assert bound.build(POSTGRES).arguments == ([3, 4],)
    for dialect in (SQLITE, POSTGRES):
        with pytest.raises(UnboundParameterError, match="number"):
            query.bind(places=[3, 4]).build(dialect)


def test_a_choice_accepts_a_part_that_one_dialect_cannot_express() -> None:
    horizon = select(if_dialect("transaction", oldest_transaction(), param("horizon"))).prepared()
    assert horizon.bind(horizon=5).build(SQLITE).arguments == (5,)
    assert horizon.bind(horizon=5).build(POSTGRES).arguments == ()
    whole = query_if_dialect("row_locks", select(oldest_transaction()), select(col("a")).from_("t")).bind()
    assert whole.build(SQLITE).sql == "SELECT `a` FROM `t`"
    assert whole.build(POSTGRES).sql == "SELECT txid_snapshot_xmin(txid_current_snapshot())"


def test_a_numbered_column_is_left_out_where_transactions_have_no_numbers(database: Any) -> None:
    rows = insert("t").rows(param("rows"), a=TEXT, place=INTEGER).only_numbered("place").prepared()
    one = insert("t").values(a=param("a"), place=param("place")).only_numbered("place").prepared()
    database.execute("CREATE TABLE t (a TEXT)")
    for built in (rows.bind(rows=[("x", 1), ("y", 2)]).build(SQLITE), one.bind(a="z", place=3).build(SQLITE)):
        database.execute(built.sql, built.arguments)
    assert database.execute("SELECT a FROM t").fetchall() == [("x",), ("y",), ("z",)]
    assert '"place"' in rows.bind(rows=[("x", 1)]).build(POSTGRES).sql
    assert one.bind(a="z", place=3).build(POSTGRES).arguments == ("z", 3)


def test_a_prepared_query_is_compiled_once_for_each_dialect() -> None:
    query = select(col("a")).from_("t").prepared()
    assert query.compile(SQLITE) is query.compile(SQLITE)
    assert query.compile(SQLITE) is not query.compile(POSTGRES)

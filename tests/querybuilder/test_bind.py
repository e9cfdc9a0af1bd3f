"""Test the binding of values: each one is checked, and `bind` takes the same parameters for every dialect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from querybuilder import (
    BLOB,
    INTEGER,
    POSTGRES,
    SQLITE,
    TEXT,
    Dialect,
    QueryError,
    col,
    insert,
    lit,
    param,
    rows,
    select,
)

Run = Callable[..., list[Any]]
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


def test_a_parameter_used_twice_is_given_once() -> None:
    query = select(col("a")).from_("t").where(col("a").ge(param("x")), col("b").le(param("x")))
    assert query.bind(x=5).build(SQLITE).arguments == (5, 5)
    assert query.bind(x=5).build(POSTGRES).arguments == (5,)


def test_a_parameter_may_have_the_name_of_a_method() -> None:
    assert select(param("self"), param("dialect")).bind(self=1, dialect=2).build(SQLITE).arguments == (1, 2)


@pytest.mark.parametrize("given_params", [{}, {"x": 1}, {"x": 1, "z": 2}, {"x": 1, "y": 2, "z": 3}])
@pytest.mark.parametrize("extra", [False, True])
def test_missing_and_unknown_parameters_are_errors(given_params: dict[str, int], *, extra: bool) -> None:
    query = select(col("a")).from_("t").where(col("a").eq(param("x")), col("b").eq(param("y")))
    params: dict[str, object] = dict(given_params)
    if extra:
        query = query.where(col("c").in_(param("list")))
        params["list"] = []
    with pytest.raises(QueryError, match="missing parameters"):
        query.bind(**params).build(SQLITE)


def test_one_parameter_cannot_be_a_scalar_and_a_list() -> None:
    scalar, listed = col("b").eq(param("x")), col("a").in_(param("x"))
    for conditions in ((scalar, listed), (listed, scalar)):
        with pytest.raises(QueryError):
            select(col("a")).from_("t").where(*conditions).compile(SQLITE)


@given(batch=st.lists(st.tuples(st.none() | TEXTS, st.none() | INT64)))
@example(batch=[("\\u0000", 5)])
@example(batch=[("", None), ("null", 0), ("NULL", -1), (",", 1), ('{"}', 2), ("\\n\n", 3), ("\\", 4), ('\\"', 5)])
def test_a_batch_reaches_the_database_unchanged(run_anew: Run, batch: list[tuple[str | None, int | None]]) -> None:
    query = select(col("a", "g"), col("b", "g")).from_(rows("g", param("given"), a=TEXT, b=INTEGER))
    assert run_anew(query, given=batch) == batch


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # no example changes the database
@given(wanted=st.lists(TEXTS) | st.lists(INT64))
def test_a_list_reaches_the_database_unchanged(database: Any, wanted: list[Any]) -> None:
    query = select(lit(1)).where(col("x").in_(param("list")))
    [_, listed] = query.bind(list=wanted).build(SQLITE).arguments
    assert database.execute("SELECT value FROM json_each(?)", (listed,)).fetchall() == [(one,) for one in wanted]
    assert query.bind(list=wanted).build(POSTGRES).arguments[1] == wanted


@pytest.mark.parametrize("row", [
    ("a",), ("a", 1, 2), ("a", "1"), (1, 1), ("a", 1.0), ("a", True), ("a", 2**63), ("a", -(2**63) - 1),
    (b"a", 1), ("a\0b", 1), ("\ud800", 1), "ab", None, {"a": 1, "b": 2},
])  # fmt: skip
@pytest.mark.parametrize("dialect", [SQLITE, POSTGRES])
def test_a_row_that_would_not_arrive_unchanged_is_refused(row: Any, dialect: Dialect) -> None:
    prepared = insert("t").rows(param("rows"), a=TEXT, b=INTEGER).prepared()
    with pytest.raises(QueryError):
        prepared.bind(rows=[("fine", 1), row]).build(dialect)


@pytest.mark.parametrize(
    "wanted", ["abc", b"abc", 5, None, [None], [1.5], [True], [b"x"], ["a\0"], ["\ud800"], [2**63]]
)
def test_a_list_that_would_not_arrive_unchanged_is_refused(wanted: Any) -> None:
    prepared = select(col("a")).from_("t").where(col("a").in_(param("list"))).prepared()
    with pytest.raises(QueryError):
        prepared.bind(list=wanted).build(SQLITE)


@pytest.mark.parametrize("value", [None, 1.5, True, 2**63, -(2**63) - 1, object(), [1]])
def test_a_constant_of_another_type_is_refused(value: Any) -> None:
    with pytest.raises(QueryError):
        col("a").eq(value)


def test_bytes_travel_in_bulk_on_postgresql() -> None:
    built = insert("t").rows(param("rows"), a=BLOB).bind(rows=[(b"\0",), (None,)]).build(POSTGRES)
    assert built.arguments == ([b"\0", None],)


def test_a_query_keeps_the_partition_that_it_was_given_first() -> None:
    bound = select(col("a")).from_("t").bind()
    assert bound.partition is None
    assert bound.at(2).at(3).partition == 2

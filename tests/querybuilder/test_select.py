"""Run queries on a real SQLite database, and check the rows that they return."""

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from querybuilder import (
    ASC,
    DESC,
    INTEGER,
    SQLITE,
    TEXT,
    Direction,
    QueryError,
    all_of,
    any_of,
    asc,
    col,
    contains_text,
    create_table,
    desc,
    insert,
    length,
    lit,
    max_,
    minus,
    param,
    part,
    plus,
    remainder,
    rows,
    seek,
    select,
    union_all,
)

Run = Callable[..., list[Any]]
Explain = Callable[..., list[str]]
BEST_FIRST = (desc(col("c1")), asc(col("owner")))


def owners(found: list[Any]) -> str:
    return "".join(row[0] for row in found)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (col("c1").eq("07"), "bc"),
        (col("c1").ne("07"), "ad"),
        (col("n").lt(30), "ab"),
        (col("n").le(30), "abc"),
        (col("n").gt(30), "de"),
        (col("n").ge(30), "cde"),
        (col("c1").is_null(), "e"),
        (col("c1").not_null(), "abcd"),
        (col("owner").in_(select(col("owner")).from_("board").where(col("n").gt(30))), "de"),
        (all_of(col("n").gt(10), col("n").lt(40)), "bc"),
        (any_of(col("n").eq(10), col("n").eq(50)), "ae"),
        (all_of(), "abcde"),
        (any_of(), ""),
        (all_of(any_of(col("n").eq(10), col("n").eq(20)), col("c1").eq("07")), "b"),
        (col("n").eq(select(max_(col("n"))).from_("board").scalar()), "e"),
        (plus(col("n"), 10).eq(minus(60, col("n"))), ""),
        (minus(60, plus(col("n"), 10)).eq(minus(minus(60, 10), col("n"))), "abcde"),
        (remainder(col("n"), 20).eq(10), "ace"),
    ],
)
def test_a_condition_keeps_the_rows_that_meet_it(run: Run, board: str, condition: Any, expected: str) -> None:
    assert owners(run(select(col("owner")).from_(board).where(condition).order_by(col("owner")))) == expected


def test_a_membership_list_is_looked_up_by_key(explain: Explain, board: str) -> None:
    query = select(col("n")).from_(board).where(col("owner").in_(param("wanted")))
    assert any("SEARCH board USING PRIMARY KEY (owner=?)" in step for step in explain(query, wanted=["a"]))


def test_limit_and_offset_take_numbers_and_parameters(run: Run, board: str) -> None:
    ordered = select(col("owner")).from_(board).order_by(col("owner"))
    assert owners(run(ordered.limit(2))) == "ab"
    assert owners(run(ordered.limit(2).offset(1))) == "bc"
    assert owners(run(ordered.limit(param("rows")).offset(param("skip")), rows=1, skip=4)) == "e"
    for refused in (-1, True, 2**63):
        with pytest.raises(QueryError):
            ordered.limit(refused)


def test_a_packed_result_is_one_row_in_the_same_order(run: Run, database: sqlite3.Connection, board: str) -> None:
    more = [(f"{i * 7919 % 1000:03}", f"{i % 10:02}", i) for i in range(1000)]
    run(insert(board).rows(param("rows"), owner=TEXT, c1=TEXT, n=INTEGER), rows=more)
    plain = select(col("owner"), col("c1"), plus(col("n"), 2**62), lit(0)).from_(board).order_by(*BEST_FIRST)
    for query in (plain, plain.limit(3), plain.limit(2).offset(1), plain.where(any_of())):
        assert run(query.packed()) == run(query)
        built = query.packed().bind().build(SQLITE)
        assert built.packed
        assert len(database.execute(built.sql, built.arguments).fetchall()) == 1


def test_packing_captures_no_name_of_the_query(run: Run, board: str) -> None:
    """Select an output column named `owner` that holds `c1`. The sort must still use the table's own column `owner`."""
    first = select(lit(0), col("owner")).from_(board).order_by(desc(col("owner"))).limit(1)
    second = select(lit(1), col("c1").as_("owner")).from_(board, "b").order_by(desc(col("owner", "b"))).limit(2)
    assert run(union_all(first, second).packed()) == [(0, "e"), (1, None), (1, "05")]


def test_packing_works_on_a_table_with_the_name_that_packing_uses(run: Run) -> None:
    run(create_table("p").column("p_", TEXT).primary_key("p_"))
    run(insert("p").values(p_="x"))
    assert run(select(col("p_")).from_("p").packed()) == [("x",)]


def test_bytes_cannot_be_packed(run: Run) -> None:
    run(create_table("t").column("a", TEXT))
    run(insert("t").values(a="x"))
    with pytest.raises(sqlite3.Error):
        run(select(col("a"), lit(b"")).from_("t").packed())


@pytest.mark.parametrize("build", [
    lambda: select().from_("t"),
    lambda: union_all(),
    lambda: union_all(select(col("a")).from_("t")).limit(1),
    lambda: union_all(select(col("a")).from_("t").limit(1)).order_by(col("a")),
    lambda: union_all(select(col("a")).from_("t"), select(col("a"), col("b")).from_("t")),
    lambda: select(col("a")).from_(rows("g", param("x"))),
    seek,
])  # fmt: skip
def test_an_incomplete_query_is_refused(build: Callable[[], Any]) -> None:
    with pytest.raises(QueryError):
        build().compile(SQLITE)


@given(
    entries=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), unique=True, max_size=30),
    directions=st.tuples(*[st.sampled_from([ASC, DESC])] * 3),
    after=st.tuples(*[st.integers(-1, 4)] * 3),
)
def test_seek_keeps_exactly_the_rows_after_a_place_in_the_order(
    run_anew: Run, entries: list[tuple[int, int, int]], directions: tuple[Direction, ...], after: tuple[int, int, int]
) -> None:
    keys = zip("abc", directions, after, strict=True)
    given_rows = rows("t", param("entries"), a=INTEGER, b=INTEGER, c=INTEGER)
    found = run_anew(select(col("a"), col("b"), col("c")).from_(given_rows).where(seek(*keys)), entries=entries)

    def place(entry: tuple[int, int, int]) -> tuple[int, ...]:
        return tuple(x if direction is ASC else -x for x, direction in zip(entry, directions, strict=True))

    assert sorted(found) == sorted(entry for entry in entries if place(entry) > place(after))


def test_seek_starts_from_the_index(run: Run, explain: Explain, board: str) -> None:
    after = seek(("c1", DESC, "07"), ("owner", ASC, "b"))
    query = select(col("owner"), col("c1")).from_(board).where(after).order_by(*BEST_FIRST).limit(5)
    assert explain(query) == ["SEARCH board USING COVERING INDEX board_c1 (c1<?)"]
    assert run(query) == [("c", "07"), ("d", "05")]


def test_a_lateral_select_is_refused_if_the_database_has_none() -> None:
    with pytest.raises(QueryError):
        select(lit(1)).from_("t").join_lateral(select(col("n")).from_("t"), "x").compile(SQLITE)


@pytest.mark.parametrize(
    ("piece", "expected"), [("cd", 1), ("abcde", 1), ("", 1), ("ac", 0), ("CD", 0), ("%", 0), ("c_e", 0), ("abcdef", 0)]
)
def test_a_text_holds_another_one_letter_by_letter(run: Run, piece: str, expected: int) -> None:
    found = select(length(col("t"))).from_(select(lit("abcde").as_("t")))
    assert run(found.where(contains_text(col("t"), param("piece", TEXT))), piece=piece) == [(5,)] * expected


@pytest.mark.parametrize(("start", "width"), [(0, 1), (1, 0), (-1, 1)])
def test_a_part_of_a_text_needs_a_positive_start_and_width(start: int, width: int) -> None:
    with pytest.raises(QueryError):
        part("abcde", start, width)

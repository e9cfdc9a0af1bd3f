"""Test that no argument of the query builder can change the structure of the SQL. The store relies on this.

The tests parse SQL with a tokeniser of their own, which shares no code with the query builder.
"""

import re
import sqlite3
from collections.abc import Sequence

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from querybuilder import (
    ASC,
    DESC,
    INTEGER,
    POSTGRES,
    SQLITE,
    TEXT,
    Dialect,
    Query,
    QueryError,
    add_column,
    all_of,
    any_of,
    asc,
    coalesce,
    col,
    count,
    count_if,
    create_index,
    create_table,
    delete,
    desc,
    drop_table,
    excluded,
    insert,
    lit,
    max_,
    min_,
    minus,
    param,
    plus,
    rows,
    seek,
    select,
    sum_,
    union_all,
    update,
)

HOSTILE = [
    "'; DROP TABLE t; --", '"; DROP TABLE t; --', "`; DROP TABLE t; --", "``", '""', "`", '"', "'", "]", "?", "?1",
    "$1", ":x", "%s", "{}", "\\", "\\u0000", "/*", "--", ";", "\n", " ", "SELECT", "value", "rowid", "xmin", "p",
    "p0", "v", "s", "a0", "TRUE", "null", "🏆", "é\u0301",
]  # fmt: skip
texts = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12),
    st.lists(st.sampled_from(HOSTILE), max_size=3).map("".join),
)
identifiers = texts.filter(lambda text: 0 < len(text.encode()) <= 63)
integers = st.integers(-(2**63), 2**63 - 1)
values = st.one_of(texts, integers, st.binary(max_size=8))

KINDS = {
    SQLITE: r"(?P<identifier>`(?:[^`]|``)*`)|(?P<placeholder>\?)|(?P<path>'\$\[\d+\]')",
    POSTGRES: r'(?P<identifier>"(?:[^"]|"")*")|(?P<placeholder>\$\d+)(?:::\w+(?:\[\])?)?',
}
TOKENS = {
    dialect: re.compile(rf"{kinds}|(?P<word>\w+)|(?P<sign>::|\[\]|[<>]=|<>|[(),.=<>*+-])")
    for dialect, kinds in KINDS.items()
}
OWN_NAMES = {"C", "v", "s", "a0", "a1", "p", "p_", "p__", *(f"p{index}" for index in range(9))}


def skeleton(dialect: Dialect, sql: str) -> list[str]:
    """Return the tokens of a statement, with `·` for each identifier and `?` for each placeholder.

    Fail on other text.
    """
    found, at = [], 0
    while at < len(sql):
        if sql[at] == " ":
            at += 1
            continue
        match = TOKENS[dialect].match(sql, at)
        assert match, f"not a token: {sql[at:]}"
        found.append("·" if match.lastgroup == "identifier" else "?" if match.lastgroup == "placeholder" else match[0])
        at = match.end()
    return found


def every_construct(names: Sequence[str], constants: Sequence[str | int | bytes]) -> list[Query]:
    """Build one query of each kind from five names and three constants."""
    table, a, b, c, other = names
    x, y, z = constants
    picked = select(col(a), col(b, table), coalesce(col(c), x), lit(y), count().as_(other)).from_(table)
    condition = any_of(col(a).eq(x), all_of(col(b).ne(y), col(c).not_null()), col(a).in_(param("list")))
    page = picked.where(condition, seek((a, DESC, x), (b, ASC, y), (c, DESC, z))).order_by(desc(col(a)), col(b))
    cells = {a: TEXT, b: INTEGER}
    bulk = insert(table).rows(param("rows"), **cells)
    return [
        page.group_by(col(a), col(c)).limit(10).offset(param("skip")),
        page.packed(),
        union_all(page.limit(1), select(x, y, lit(x), plus(col(a), 1), minus(col(b), x)).from_(table, other)).packed(),
        union_all(picked, picked.where(condition)).order_by(col(a)).limit(5),
        select(count_if(col(a).lt(x)), min_(col(a)), max_(col(b)), sum_(col(c))).from_(
            select(col(a)).from_(table), other
        ),
        select(col(a, other)).from_(rows(other, param("rows"), **cells)).join(table, col(a, table).ge(col(a, other))),
        select(select(count()).from_(table).where(col(a).gt(x)).scalar().as_(other)),
        bulk.on_conflict(a).do_update(where=col(b, table).le(excluded(b)), **{c: plus(col(c, table), x)}),
        insert(table).values(**{a: x, b: y}).on_conflict(a, b).do_nothing().returning(col(c), lit(z).as_(other)),
        update(table).set(**{a: x}).from_rows(other, param("rows"), **cells).where(col(b, table).eq(col(b, other))),
        update(table).set(**{a: plus(col(a), y)}).where(all_of()).returning(col(b, table)),
        delete(table).where(col(a).in_(select(col(b)).from_(table).limit(1))),
        create_table(table).column(a, TEXT).column(b, INTEGER).primary_key(a, b).clustered(),
        create_index(other, table, desc(col(a)), asc(col(b)), where=col(c).not_null(), unique=True),
        add_column(table, a, TEXT),
        drop_table(table),
    ]


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRES], ids=lambda dialect: str(dialect.name))
@given(
    names=st.lists(identifiers, min_size=5, max_size=5, unique_by=str.lower),
    constants=st.tuples(texts, integers, st.binary(max_size=8)),
)
@example(names=["`", "``", '"', "'; --", "?"], constants=("'; DROP TABLE t; --", -1, b"'"))
def test_names_and_values_never_change_the_structure_of_the_sql(
    dialect: Dialect, names: list[str], constants: tuple[str, int, bytes]
) -> None:
    plain = every_construct(["t", "a", "b", "c", "o"], ["x", 1, b"z"])
    for query, example_query in zip(every_construct(names, constants), plain, strict=True):
        sql = query.compile(dialect).sql
        assert skeleton(dialect, sql) == skeleton(dialect, example_query.compile(dialect).sql)
        assert set(_names(dialect, sql)) <= {*names, *OWN_NAMES}


def _names(dialect: Dialect, sql: str) -> list[str]:
    mark = dialect.quote_mark
    found = TOKENS[dialect].finditer(sql)
    quoted = [match["identifier"] for match in found if match["identifier"]]
    return [one[1:-1].replace(mark * 2, mark) for one in quoted]


@given(
    names=st.lists(identifiers, min_size=5, max_size=5, unique_by=str.lower), owner=texts, number=integers, other=texts
)
@example(names=["v", "value", "p", "p0", "s"], owner="'", number=-(2**63), other="\\u0000")
@example(names=["t`", 'a"', "b'", "c]", "--"], owner="", number=2**63 - 1, other="🏆")
def test_a_real_table_takes_hostile_names_and_values(names: list[str], owner: str, number: int, other: str) -> None:
    assume(names[0].lower() != "excluded")  # the query builder refuses this name; the next test checks that
    table, a, b, c, index = names
    connection = sqlite3.connect(":memory:", isolation_level=None)

    def run(query: Query, **params: object) -> list[tuple[object, ...]]:
        built = query.bind(**params).build(SQLITE)
        return connection.execute(built.sql, built.arguments).fetchall()

    run(create_table(table).column(a, TEXT).column(b, INTEGER).column(c, TEXT, null=True).primary_key(a).clustered())
    run(create_index(index, table, desc(col(c)), asc(col(a)), where=col(c).not_null()))
    run(insert(table).rows(param("rows"), **{a: TEXT, b: INTEGER, c: TEXT}), rows=[(owner, number, other)])
    everything = select(col(a), col(b), col(c)).from_(table)
    assert run(everything.where(col(a).eq(owner), col(c).in_(param("list"))), list=[other, "else"]) == [
        (owner, number, other)
    ]
    assert run(everything.where(col(a).eq(param("it")), col(b).eq(number)), it=owner) == [(owner, number, other)]
    again = insert(table).rows(param("rows"), **{a: TEXT, b: INTEGER, c: TEXT}).on_conflict(a)
    run(again.do_update(where=None, **{b: coalesce(excluded(b), col(b, table))}), rows=[(owner, 5, None)])
    changed = update(table).set(**{c: col("new", "given")}).where(col(a, table).eq(col("key", "given")))
    run(changed.from_rows("given", param("rows"), key=TEXT, new=TEXT), rows=[(owner, other + "!")])
    assert run(everything) == [(owner, 5, other + "!")]
    run(delete(table).where(col(c).eq(other + "!")))
    assert run(select(count()).from_(table)) == [(0,)]
    connection.close()


@pytest.mark.parametrize("name", ["excluded", "EXCLUDED"])
def test_an_upsert_into_a_table_that_hides_the_excluded_row_is_refused(name: str) -> None:
    changed = insert(name).values(a=1).on_conflict("a")
    changed.do_nothing()
    with pytest.raises(QueryError):
        changed.do_update(a=excluded("a"))


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "x" * 64, "é" * 32])
def test_a_name_that_quoting_cannot_carry_is_refused(name: str) -> None:
    for dialect in (SQLITE, POSTGRES):
        with pytest.raises(QueryError):
            select(col(name)).from_("t").compile(dialect)

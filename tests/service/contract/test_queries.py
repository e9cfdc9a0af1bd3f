"""Query strings are typed and bounded, and the service never guesses what they mean."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.contract.problems import ProblemError
from service.contract.queries import (
    AroundOwnerQuery,
    BoardsQuery,
    BucketsQuery,
    FamilyBoardsQuery,
    HistoryQuery,
    PageQuery,
    PositionsQuery,
    StreamQuery,
    ValuePositionsQuery,
    ValuesQuery,
    query_parser,
)
from tests.service.toy import ToySettings

KINDS: list[type[msgspec.Struct]] = [BoardsQuery, PositionsQuery, AroundOwnerQuery, PageQuery, ValuesQuery]


def parse(kind: type[msgspec.Struct], raw: str) -> Any:
    """Parse a query string into a struct of this kind."""
    return query_parser(kind, ToySettings())(raw)


def test_an_empty_query_has_every_default() -> None:
    assert parse(PositionsQuery, "") == PositionsQuery((), "auto")
    assert parse(PageQuery, "") == PageQuery(None, None, None)


def test_a_list_is_one_parameter_with_commas() -> None:
    assert parse(PositionsQuery, "columns=xp,kills&rank=exact") == PositionsQuery(("xp", "kills"), "exact")
    assert parse(ValuePositionsQuery, "values=600%2C-7.5").values == ("600", "-7.5")
    assert parse(ValuesQuery, "ranks=1,100&percentiles=50,99.9") == ValuesQuery((1, 100), (50.0, 99.9))


@pytest.mark.parametrize(
    ("raw", "boards"),
    [
        ("with=eu,us", ("eu", "us")),
        ("with=eu&with=us", ("eu", "us")),
        ("with=a,b&with=c", ("a,b", "c")),
        ("with=game:all:location=x,org=1", ("game:all:location=x,org=1",)),
        ("with=game:all:location=x%2Corg=1&with=game:all", ("game:all:location=x,org=1", "game:all")),
        ("with=game:all,eu", ("game:all", "eu")),
    ],
)
def test_leaderboards_are_one_list_with_commas_or_one_parameter_each(raw: str, boards: tuple[str, ...]) -> None:
    found = parse(ValuePositionsQuery, f"values=1&{raw}")
    assert (found.with_, found.values) == (boards, ("1",))


def test_the_word_null_is_plain_text_in_a_text_parameter() -> None:
    assert parse(PageQuery, "cursor=null").cursor == "null"
    assert parse(StreamQuery, "column=xp&owner=null").owner == "null"


@pytest.mark.parametrize(
    ("kind", "raw", "code", "pointer"),
    [
        (PageQuery, "limit=0", "bad_request", "limit"),
        (PageQuery, "limit=x", "bad_request", "limit"),
        (PageQuery, "limit=", "bad_request", "limit"),
        (PageQuery, "limit=1.5", "bad_request", "limit"),
        (PageQuery, "limit=1.0", "bad_request", "limit"),
        (PageQuery, "limit=1e1", "bad_request", "limit"),
        (PageQuery, "limit=null", "bad_request", "limit"),
        (PageQuery, "limit=NULL", "bad_request", "limit"),
        (PageQuery, "from_rank=null", "bad_request", "from_rank"),
        (PageQuery, "profiles=1", "bad_request", "profiles"),
        (PageQuery, "profiles=null", "bad_request", "profiles"),
        (PositionsQuery, "compare=null", "bad_request", "compare"),
        (StreamQuery, "column=xp&top=101", "too_many_entries", "top"),
        (HistoryQuery, "period=day&column=xp&limit=101", "too_many_entries", "limit"),
        (FamilyBoardsQuery, "period=day&at=null", "bad_request", "at"),
        (FamilyBoardsQuery, "period=day&at=1700000000", "bad_request", "at"),
        (PageQuery, "limit=" + "9" * 5000, "bad_request", "limit"),
        (PageQuery, "limit=1001", "too_many_entries", "limit"),
        (PageQuery, "from_rank=0", "bad_rank", "from_rank"),
        (PageQuery, "from_rank=-1", "bad_rank", "from_rank"),
        (PageQuery, "from_rank=9223372036854775808", "bad_rank", "from_rank"),
        (PageQuery, "from_rank=1&cursor=x", "bad_request", "from_rank"),
        (PageQuery, "zz=1", "unknown_field", "zz"),
        (PageQuery, "limit=1&limit=1", "duplicate_field", "limit"),
        (PageQuery, "limit", "bad_request", None),
        (PageQuery, "cursor=%FF", "bad_request", None),
        (PositionsQuery, "rank=maybe", "bad_request", "rank"),
        (PositionsQuery, "columns=Nope", "bad_request", "columns"),
        (PositionsQuery, "columns=", "bad_request", "columns"),
        (PositionsQuery, "columns=a,b,c,d,e,f", "too_many_values", "columns"),
        (AroundOwnerQuery, "", "bad_request", ""),
        (AroundOwnerQuery, "column=xp&better=-1", "bad_request", "better"),
        (AroundOwnerQuery, "column=xp&worse=501", "too_many_entries", "worse"),
        (ValuePositionsQuery, "", "bad_request", ""),
        (ValuesQuery, "", "bad_request", "ranks"),
        (ValuesQuery, "ranks=0", "bad_rank", "ranks"),
        (ValuesQuery, "ranks=x", "bad_request", "ranks"),
        (ValuesQuery, "percentiles=101", "bad_request", "percentiles"),
        (ValuesQuery, "percentiles=nan", "bad_request", "percentiles"),
        (ValuesQuery, "percentiles=-inf", "bad_request", "percentiles"),
        (BucketsQuery, "buckets=0", "bad_request", "buckets"),
        (BucketsQuery, "buckets=1001", "too_many_buckets", "buckets"),
    ],
)
def test_a_query_that_breaks_the_contract_is_refused(
    kind: type[msgspec.Struct], raw: str, code: str, pointer: str | None
) -> None:
    with pytest.raises(ProblemError) as caught:
        parse(kind, raw)
    assert caught.value.code == code
    assert [error.pointer for error in caught.value.errors] == ([] if pointer is None else [pointer])


@given(st.sampled_from(KINDS), st.text(st.sampled_from("limtrank=&%,0129-xé\x00+;\ud800"), max_size=30))
def test_no_query_string_raises_another_error_than_a_problem(kind: type[msgspec.Struct], raw: str) -> None:
    status = 400
    try:
        parse(kind, raw)
    except ProblemError as problem:
        status = problem.status
    assert 400 <= status < 500

"""Query strings are typed and bounded, and the service never guesses what they mean."""

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
from tests.service.toy import toy_settings

KINDS: list[type[msgspec.Struct]] = [BoardsQuery, PositionsQuery, AroundOwnerQuery, PageQuery, ValuesQuery]


def parse(kind: type[msgspec.Struct], raw: str) -> Any:
    return query_parser(kind, toy_settings())(raw)


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


Refused = tuple[type[msgspec.Struct], str, str | None]  # the query, the code of the problem and its pointer
REFUSED: dict[Refused, list[str]] = {
    (PageQuery, "bad_request", "limit"): [
        "limit=0", "limit=x", "limit=", "limit=1.5", "limit=1.0", "limit=1e1", "limit=null", "limit=NULL",
        "limit=" + "9" * 5000,
    ],
    (PageQuery, "too_many_entries", "limit"): ["limit=1001"],
    (PageQuery, "bad_request", "from_rank"): ["from_rank=null", "from_rank=1&cursor=x"],
    (PageQuery, "bad_rank", "from_rank"): ["from_rank=0", "from_rank=-1", "from_rank=9223372036854775808"],
    (PageQuery, "bad_request", "profiles"): ["profiles=1", "profiles=null"],
    (PageQuery, "unknown_field", "zz"): ["zz=1"],
    (PageQuery, "duplicate_field", "limit"): ["limit=1&limit=1"],
    (PageQuery, "bad_request", None): ["limit", "cursor=%FF"],
    (PositionsQuery, "bad_request", "compare"): ["compare=null"],
    (PositionsQuery, "bad_request", "rank"): ["rank=maybe"],
    (PositionsQuery, "bad_request", "columns"): ["columns=Nope", "columns="],
    (PositionsQuery, "too_many_values", "columns"): ["columns=a,b,c,d,e,f"],
    (StreamQuery, "too_many_entries", "top"): ["column=xp&top=101"],
    (HistoryQuery, "too_many_entries", "limit"): ["period=day&column=xp&limit=101"],
    (FamilyBoardsQuery, "bad_request", "at"): ["period=day&at=null", "period=day&at=1700000000"],
    (AroundOwnerQuery, "bad_request", ""): [""],
    (AroundOwnerQuery, "bad_request", "better"): ["column=xp&better=-1"],
    (AroundOwnerQuery, "too_many_entries", "worse"): ["column=xp&worse=501"],
    (ValuePositionsQuery, "bad_request", ""): [""],
    (ValuesQuery, "bad_request", "ranks"): ["", "ranks=x"],
    (ValuesQuery, "bad_rank", "ranks"): ["ranks=0"],
    (ValuesQuery, "bad_request", "percentiles"): ["percentiles=101", "percentiles=nan", "percentiles=-inf"],
    (BucketsQuery, "bad_request", "buckets"): ["buckets=0"],
    (BucketsQuery, "too_many_buckets", "buckets"): ["buckets=1001"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "code", "pointer", "raw"), [(*refused, raw) for refused, raws in REFUSED.items() for raw in raws]
)
def test_a_query_that_breaks_the_contract_is_refused(
    kind: type[msgspec.Struct], code: str, pointer: str | None, raw: str
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

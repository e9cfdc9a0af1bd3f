"""Decimals, times, names and query strings are read exactly or refused."""

import unicodedata
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal, localcontext
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.contract.lease_messages import ClientId, RegionName
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
    make_query_parsers,
)
from service.contract.requests import BoardId, ColumnName, FacetName
from service.contract.strict_json import decode_strictly
from service.contract.values import (
    INT64_MAX,
    INT64_MIN,
    format_us,
    parse_board_id,
    parse_decimal,
    parse_owner,
    parse_post_id,
    parse_text,
    to_micros,
    to_wire_number,
)
from service.http.endpoint import PATH_PARSERS
from service.views.api_keys import KeyName
from storage.records import format_decimal
from tests.service.toy import toy_settings


def _expected(text: str, scale: int) -> int | None:
    """Compute the scaled value with Python's decimals. Return None if `parse_decimal` must refuse the text."""
    with localcontext() as context:
        context.prec = 200
        scaled = Decimal(text) * 10**scale
        if scaled != scaled.to_integral_value() or not INT64_MIN <= scaled <= INT64_MAX:
            return None
        return int(scaled)


@given(
    whole=st.text("0123456789", min_size=1, max_size=25).map(lambda digits: digits.lstrip("0") or "0"),
    fraction=st.one_of(st.none(), st.text("0123456789", min_size=1, max_size=25)),
    exponent=st.one_of(st.none(), st.integers(-40, 40)),
    negative=st.booleans(),
    scale=st.integers(0, 9),
)
@example(whole="9223372036854775807", fraction=None, exponent=None, negative=False, scale=0)
@example(whole="9223372036854775808", fraction=None, exponent=None, negative=True, scale=0)
@example(whole="9223372036854775808", fraction=None, exponent=None, negative=False, scale=0)
@example(whole="999999999999999999", fraction=None, exponent=None, negative=False, scale=1)
def test_a_json_number_is_read_exactly_or_refused(
    whole: str, fraction: str | None, exponent: int | None, negative: bool, scale: int
) -> None:
    text = ("-" if negative else "") + whole
    text += "" if fraction is None else f".{fraction}"
    text += "" if exponent is None else f"e{exponent}"
    expected = _expected(text, scale)
    if expected is None:
        with pytest.raises(ProblemError):
            parse_decimal(msgspec.Raw(text.encode()), scale)
    else:
        assert parse_decimal(msgspec.Raw(text.encode()), scale) == expected
        assert parse_decimal(msgspec.Raw(f'"{text}"'.encode()), scale) == expected
        assert parse_decimal(text, scale) == expected


@pytest.mark.parametrize(
    "raw",
    [
        b"true", b"null", b"[1]", b'{"a":1}', b'""', b'"abc"', b'"NaN"', b'"Infinity"', b'"1e"', b'"e3"', b'"1e 3"',
        b'"1e1.5"', b'"1_0"', b'" 1"', b'"1 "', b'"+1"', b'"1."', b'".5"', b'"-"', b'"0x10"', '"٥"'.encode(),
        b'"\\u0665"', b'"1\\n"', b'"1\\u0000"',
        b'"\\ud800"', b"1.5", b"0.0000000001", b"1e-1",
    ],
)  # fmt: skip
def test_a_text_that_is_not_a_decimal_of_the_scale_is_a_bad_value(raw: bytes) -> None:
    with pytest.raises(ProblemError) as caught:
        parse_decimal(msgspec.Raw(raw), 0)
    assert (caught.value.code, caught.value.status) == ("bad_value", 422)


@pytest.mark.parametrize("raw", [b"1e999", b"9" * 5000, b"-1e99999999999999999999", b'"9223372036854775808"'])
def test_a_decimal_that_does_not_fit_64_bits_is_out_of_range(raw: bytes) -> None:
    with pytest.raises(ProblemError) as caught:
        parse_decimal(msgspec.Raw(raw), 0)
    assert caught.value.code == "value_out_of_range"


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"0e999999999999999", 0), (b"-0", 0), (b'"000.007"', 7), (b'"60.2500000"', 60250), (b'"\\u0036"', 6000),
        (b"1" + b"0" * 400 + b"e-400", 1000), (b'"2E-3"', 2), (b"2E-3", 2), (b'"25e+1"', 250_000),
    ],
)  # fmt: skip
def test_zeros_escapes_and_exponents_that_change_nothing_are_accepted(raw: bytes, value: int) -> None:
    assert parse_decimal(msgspec.Raw(raw), 3) == value


@given(st.binary(max_size=40), st.integers(0, 9))
def test_no_bytes_raise_another_error_than_a_bad_value(raw: bytes, scale: int) -> None:
    with suppress(ProblemError):
        assert INT64_MIN <= parse_decimal(raw, scale) <= INT64_MAX


@given(st.integers(INT64_MIN, INT64_MAX), st.integers(0, 9))
def test_a_written_decimal_reads_back_as_itself(value: int, scale: int) -> None:
    assert parse_decimal(format_decimal(value, scale), scale) == value
    assert parse_decimal(msgspec.json.encode(to_wire_number(value, scale)), scale) == value


def test_a_scaled_number_keeps_its_digits_on_the_wire() -> None:
    numbers = [to_wire_number(value, scale) for value, scale in ((-60250, 3), (5, 2), (7, 0))]
    assert msgspec.json.encode(numbers) == b"[-60.250,0.05,7]"


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(9999, 12, 31), timezones=st.just(UTC)))
def test_a_written_time_reads_back_as_itself(at: datetime) -> None:
    assert datetime.fromisoformat(format_us(to_micros(at))) == at


def test_a_time_before_1970_is_refused() -> None:
    with pytest.raises(ProblemError):
        to_micros(datetime(1969, 12, 31, tzinfo=UTC))


@given(st.text(max_size=140))
def test_an_owner_is_normalised_or_refused(text: str) -> None:
    normal = unicodedata.normalize("NFC", text)
    valid = 1 <= len(normal) <= 128 and not any(unicodedata.category(char) in ("Cc", "Cs") for char in normal)
    if valid:
        assert parse_owner(text) == normal
    else:
        with pytest.raises(ProblemError):
            parse_owner(text)


INVALID_OWNERS = ("", "\0", "a\nb", "\x7f", "\x85", "\ud800", "x" * 129, "é" * 129)
LONG_FACETS = f"a={'1' * 64},b={'2' * 64}"
LONG_ID, LONG_ALIAS = f"f:2018-W49:{LONG_FACETS}", f"f:this-week:{LONG_FACETS}"
VALID_OWNERS = ("x" * 128, "é" * 128, "o'; DROP TABLE x;--", "a/b", "{x}", "\u200b", "👩‍🚀", " ")


@pytest.mark.parametrize(
    ("parse", "valid", "invalid"),
    [
        (parse_owner, VALID_OWNERS, INVALID_OWNERS),
        (parse_board_id, ("f:2018-W49:org=1,x=a@b+c", "a" * 128), ("", "-a", "b'", "a/b", "a" * 129, "é", "a\n")),
        (parse_board_id, (LONG_ID, LONG_ALIAS), (LONG_ID.replace("W", ""), LONG_ALIAS.replace("this", "next"))),
        (PATH_PARSERS["column"], ("time_to_complete",), ("", "Xp", "1a", "_a", "a-b", "a" * 49, "xp\n")),
        (parse_post_id, ("x" * 200,), ("", "x" * 201, "a\0")),
    ],
    ids=["owner", "board", "long board", "column", "post id"],
)
def test_a_valid_name_is_kept_unchanged_and_an_invalid_one_is_refused(
    parse: Callable[[str], str], valid: tuple[str, ...], invalid: tuple[str, ...]
) -> None:
    assert tuple(map(parse, valid)) == valid
    for text in invalid:
        with pytest.raises(ProblemError):
            parse(text)


def test_a_text_value_is_a_string_of_bounded_length_without_nul() -> None:
    assert parse_text(b'"a\\u00e9"', bytes_max=9) == "aé"
    for raw in (b"7", b"null", b'"ten \xc3\xa9 long"', b'"\\u0000"', b'"\\ud800"', b'"\xff"'):
        with pytest.raises(ProblemError):
            parse_text(raw, bytes_max=9)


KINDS: list[type[msgspec.Struct]] = [BoardsQuery, PositionsQuery, AroundOwnerQuery, PageQuery, ValuesQuery]


def parse(kind: type[msgspec.Struct], raw: str) -> Any:
    return make_query_parsers(kind, toy_settings())[0](raw)


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
        ("with=game:today:location=x,org=1", ("game:today:location=x,org=1",)),
        ("with=game:this-week,game:last-week", ("game:this-week", "game:last-week")),
    ],
)
def test_leaderboards_are_one_list_with_commas_or_one_parameter_each(raw: str, boards: tuple[str, ...]) -> None:
    found = parse(ValuePositionsQuery, f"values=1&{raw}")
    assert (found.with_, found.values) == (boards, ("1",))


def test_the_word_null_is_plain_text_in_a_text_parameter() -> None:
    assert parse(PageQuery, "cursor=null").cursor == "null"
    assert parse(StreamQuery, "column=xp&owner=null").owner == "null"


NAMES = {
    ColumnName: ("xp", "1 to 48 lower-case letters"),
    FacetName: ("org", "1 to 16 lower-case letters"),
    RegionName: ("eu", "1 to 32 letters"),
    ClientId: ("acme", "1 to 128 letters"),
    BoardId: ("b", "1 to 128 letters"),
    KeyName: ("game", "a text without control characters"),
}


@pytest.mark.parametrize("kind", NAMES)
def test_a_name_in_a_body_has_no_line_end(kind: Any) -> None:
    name, words = NAMES[kind]
    decoder = msgspec.json.Decoder(dict[str, kind])
    assert decode_strictly(msgspec.json.encode({"a": name}), decoder) == {"a": name}
    with pytest.raises(ProblemError, match=f"Expected {words}") as caught:
        decode_strictly(msgspec.json.encode({"a": name + "\n"}), decoder)
    assert caught.value.code == "bad_request"


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
    (PositionsQuery, "bad_request", "rank"): ["rank=maybe", "rank="],
    (PositionsQuery, "bad_request", "columns"): ["columns=Nope", "columns="],
    (PositionsQuery, "too_many_values", "columns"): ["columns=a,b,c,d,e,f"],
    (StreamQuery, "too_many_entries", "top"): ["column=xp&top=101"],
    (HistoryQuery, "too_many_entries", "limit"): ["period=day&column=xp&limit=101"],
    (FamilyBoardsQuery, "bad_request", "at"): ["period=day&at=null", "period=day&at=1700000000"],
    (AroundOwnerQuery, "bad_request", "better"): ["column=xp&better=-1"],
    (AroundOwnerQuery, "bad_request", "worse"): ["column=xp&worse=-1"],
    (AroundOwnerQuery, "too_many_entries", "better"): ["column=xp&better=501"],
    (AroundOwnerQuery, "too_many_entries", "worse"): ["column=xp&worse=501"],
    (ValuePositionsQuery, "bad_request", ""): [""],
    (ValuesQuery, "bad_request", "ranks"): ["", "ranks=", "ranks=x"],
    (ValuesQuery, "bad_rank", "ranks"): ["ranks=0"],
    (ValuesQuery, "bad_request", "percentiles"): [
        f"percentiles={wrong}" for wrong in ("101", "nan", "-inf", "-1", "1e999")
    ],
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

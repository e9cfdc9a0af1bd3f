"""Test the ids of a family's boards. Callers name a board by its id, and each board has exactly one id."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.boards.family_ids import (
    FACETS_RESERVED,
    ID_CHARS_MAX,
    FamilyBoardId,
    board_id,
    find_aliased_family,
    has_alias,
    is_facet,
    is_family_id,
    names_family_board,
    parse_board_id,
    parse_facet_value,
)
from storage.periods import ALIASES, ALL_TIME, Period, PeriodKind, parse_period, period_of

LOWER, DIGITS = "abcxyz", "0189"
FAMILIES = st.text("ABZaz09_-", min_size=1, max_size=32).filter(is_family_id)
FACETS = st.text(LOWER + DIGITS + "_", min_size=1, max_size=16).filter(is_facet)
VALUES = st.text("ABZaz09._@+-'ôüЖ中文हिकी𠀀٣가", min_size=1, max_size=64).map(parse_facet_value).filter(bool)
PERIODS = st.builds(period_of, st.sampled_from(PeriodKind), st.dates(date(1970, 1, 1), date(2099, 12, 31)))


@given(FAMILIES, PERIODS, st.dictionaries(FACETS, VALUES, max_size=3))
def test_an_id_reads_back_as_the_values_that_wrote_it(family: str, period: Period, values: dict[str, str]) -> None:
    facets = tuple(sorted(values.items()))
    text = board_id(family, period.id, facets)
    assert len(text) <= ID_CHARS_MAX
    assert [parse_facet_value(each) for each in values.values()] == list(values.values())
    assert parse_board_id(text) == FamilyBoardId(family, period, facets)


@given(st.text(alphabet="abf0128-W:=,.@ ", max_size=24))
def test_text_that_reads_as_an_id_is_written_the_same(text: str) -> None:
    named = parse_board_id(text)
    if named is not None:
        assert board_id(named.family, named.period.id, named.facets) == text


@pytest.mark.parametrize(
    "text",
    ["", "f", "f:", ":all", "f:all:", "f:2018:org", "f:2018:org=", "f:2018:=1", "f:2018:org=1,", "f:2018:org=1,loc=2",
     "f:2018:org=1,org=2", "f:2018:org=1:x", "f:2018:at=1", "f:2018:a=1,b=1,c=1,d=1", "f:2018-02-30", "-f:all",
     "f.g:all", "f:2018:Org=1", f"{'f' * 33}:all", f"f:all:org={'1' * 65}"],
)  # fmt: skip
def test_an_id_that_no_family_can_have_names_no_board(text: str) -> None:
    assert parse_board_id(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Côte d'Ivoire", "Côte d'Ivoire"), ("Co\u0302te d'Ivoire", "Côte d'Ivoire"), ("Österreich", "Österreich"),
        ("日本", "日本"), ("हिन्दी", "हिन्दी"), ("ไทย", "ไทย"), ("القاهرة", "القاهرة"), ("٣", "٣"), ("a" * 64, "a" * 64),
        ("u\u0308" * 64, "ü" * 64), ("𠀀" * 64, "𠀀" * 64),
        *((bad, None) for bad in ("", " ", " a", "a ", "a  b", "a\u00a0b", "a\nb", "a\0", "a:b", "a=b", "a,b", "a/b",
          "€", "🦊", "\u0338a", "a\u200db", "\ud800", "a" * 65, "ü" * 65, "u\u0308" * 65, "x" * 10**6)),
    ],
)  # fmt: skip
def test_a_facet_value_has_letters_and_digits_of_any_script_in_nfc(text: str, value: str | None) -> None:
    assert parse_facet_value(text) == value
    if value is not None:
        assert len(board_id("f", "all", [("c", value)])) <= ID_CHARS_MAX
        assert parse_board_id(f"f:all:c={value}") == FamilyBoardId("f", ALL_TIME, (("c", value),))
    if value != text:
        assert parse_board_id(f"f:all:c={text}") is None, "a board has one id"


def test_parameters_of_requests_are_no_facets() -> None:
    assert not any(map(is_facet, FACETS_RESERVED))
    assert is_facet("org")


@given(FAMILIES, st.sampled_from(sorted(ALIASES)), st.dictionaries(FACETS, VALUES, max_size=3))
def test_a_text_with_an_alias_names_its_family(family: str, alias: str, values: dict[str, str]) -> None:
    facets = tuple(sorted(values.items()))
    text = board_id(family, alias, facets)
    assert len(text) <= ID_CHARS_MAX
    assert find_aliased_family(text) == family
    assert parse_board_id(text) is None
    assert names_family_board(text)


@given(FAMILIES, PERIODS, st.dictionaries(FACETS, VALUES, max_size=3))
def test_an_id_of_a_period_has_no_alias(family: str, period: Period, values: dict[str, str]) -> None:
    text = board_id(family, period.id, tuple(sorted(values.items())))
    assert not has_alias(text)
    assert names_family_board(text)


def test_no_alias_is_the_id_of_a_period() -> None:
    assert [alias for alias in ALIASES if parse_period(alias) is not None] == []


@pytest.mark.parametrize(
    "text",
    ["", "today", ":today", "f:Today", "f:this week", "f:tomorrow", "f:todays", "f:all:today", "f:today:",
     "f:today:org", "f:today:org=1,org=2", "f:today:b=1,a=2", "f:today:org=1:x", "f.g:today",
     f"{'f' * 33}:today", "f:today,g:today"],
)  # fmt: skip
def test_a_text_without_a_valid_alias_is_no_aliased_id(text: str) -> None:
    assert find_aliased_family(text) is None
    assert not names_family_board(text)

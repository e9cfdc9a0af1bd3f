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
    is_facet,
    is_facet_value,
    is_family_id,
    parse_board_id,
)
from storage.periods import Period, PeriodKind, period_of

LOWER, DIGITS = "abcxyz", "0189"
FAMILIES = st.text("ABZaz09_-", min_size=1, max_size=32).filter(is_family_id)
FACETS = st.text(LOWER + DIGITS + "_", min_size=1, max_size=16).filter(is_facet)
VALUES = st.text("ABZaz09._@+-", min_size=1, max_size=64)
PERIODS = st.builds(period_of, st.sampled_from(PeriodKind), st.dates(date(1970, 1, 1), date(2099, 12, 31)))


@given(FAMILIES, PERIODS, st.dictionaries(FACETS, VALUES, max_size=3))
def test_an_id_reads_back_as_the_values_that_wrote_it(family: str, period: Period, values: dict[str, str]) -> None:
    facets = tuple(sorted(values.items()))
    text = board_id(family, period.id, facets)
    assert len(text) <= ID_CHARS_MAX
    assert all(map(is_facet_value, values.values()))
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
     "f.g:all", "f:2018:Org=1", "f:2018:org=ü", f"{'f' * 33}:all", f"f:all:org={'1' * 65}"],
)  # fmt: skip
def test_an_id_that_no_family_can_have_names_no_board(text: str) -> None:
    assert parse_board_id(text) is None


def test_parameters_of_requests_are_no_facets() -> None:
    assert not any(map(is_facet, FACETS_RESERVED))
    assert is_facet("org")

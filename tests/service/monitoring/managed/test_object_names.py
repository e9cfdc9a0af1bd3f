"""Test names of managed objects. The order of their properties makes no difference, and a value may be any text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.monitoring.managed.object_names import (
    MalformedNameError,
    ObjectName,
    parse_name,
    quote_value,
    unquote_value,
)


def test_a_canonical_name_orders_its_keys_alphabetically() -> None:
    name = parse_name("rankcurve:type=Job,name=fold")
    assert name.canonical == "rankcurve:name=fold,type=Job"
    assert name.text(canonical=False) == "rankcurve:type=Job,name=fold"
    assert parse_name("rankcurve:name=fold,type=Job").canonical == name.canonical


@given(st.text(alphabet=st.characters(exclude_characters="\r", exclude_categories=["Cs"]), min_size=1, max_size=40))
def test_any_text_survives_quoting_as_a_value(text: str) -> None:
    assert unquote_value(quote_value(text)) == text
    name = ObjectName.of("rankcurve", type="Board", name=text)
    parsed = parse_name(name.canonical)
    assert parsed.values == {"type": "Board", "name": text}
    assert not parsed.is_pattern


@pytest.mark.parametrize(
    "text",
    ["", "rankcurve", "rankcurve:", "rankcurve:type", "a:b=c,", "a:b=c,b=d", "a:,b=c", "a:b=", 'a:b="c', "a:b=c,*,*"],
)
def test_a_malformed_name_is_refused(text: str) -> None:
    with pytest.raises(MalformedNameError):
        parse_name(text)


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("*:*", True), ("rank*:*", True), ("rankcurve:type=Job,*", True), ("rankcurve:*,type=Job", True),
        ("rankcurve:type=Job,name=fo?d", True), ("rankcurve:type=J*,name=*", True), ("rankcurve:type=Job", False),
        ("rankcurve:type=Job,name=fold,*", True), ("rankcurve:type=Jo?,*", True), ("rankcurv?:name=f*,*", True),
        ("java.lang:*", False), ("rankcurve:type=Job,name=fo?", False), ("rankcurve:other=*,*", False),
    ],
)  # fmt: skip
def test_a_pattern_matches_names_by_its_wildcards(pattern: str, matches: bool) -> None:
    parsed = parse_name(pattern)
    assert parsed.matches(parse_name("rankcurve:type=Job,name=fold")) is matches
    assert parsed.is_pattern is (pattern != "rankcurve:type=Job")


def test_within_quotes_an_escaped_wildcard_is_a_plain_character() -> None:
    board = ObjectName.of("rankcurve", type="Board", name="a*b,c")
    assert board.canonical == 'rankcurve:name="a\\*b,c",type=Board'
    assert parse_name('rankcurve:type=Board,name="a*"').matches(board)
    assert not parse_name('rankcurve:type=Board,name="b*"').matches(board)

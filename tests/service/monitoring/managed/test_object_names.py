"""Test names of managed objects and patterns of names. The order of their properties makes no difference."""

import pytest

from service.monitoring.managed.objects import RefusedError, parse_name


def test_a_canonical_name_orders_its_keys_alphabetically() -> None:
    name = parse_name("rankcurve:type=Job,name=fold")
    assert name.text == "rankcurve:name=fold,type=Job"
    assert parse_name("rankcurve:name=fold,type=Job").text == name.text


@pytest.mark.parametrize(
    "text",
    ["", "rankcurve", "rankcurve:", "rankcurve:type", "a:b=c,", "a:b=c,b=d", "a:,b=c", "a:b=", "a:b=c,*,*"],
)
def test_a_malformed_name_is_refused(text: str) -> None:
    with pytest.raises(RefusedError):
        parse_name(text)


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("*:*", True), ("rank*:*", True), ("rankcurve:type=Job,*", True), ("rankcurve:*,type=Job", True),
        ("rankcurve:type=Job,name=fo?d", True), ("rankcurve:type=J*,name=*", True), ("rankcurve:type=Job", False),
        ("rankcurve:type=Job,name=fold,*", True), ("rankcurve:type=Jo?,*", True), ("rankcurv?:name=f*,*", True),
        ("java.lang:*", False), ("rankcurve:type=Job,name=fo?", False), ("rankcurve:other=*,*", False),
        ("rankcurve:type=Job,name=[f]old*", False),
    ],
)  # fmt: skip
def test_a_pattern_matches_names_by_its_wildcards(pattern: str, matches: bool) -> None:
    parsed = parse_name(pattern)
    assert parsed.matches(parse_name("rankcurve:type=Job,name=fold")) is matches
    assert parsed.is_pattern is (pattern != "rankcurve:type=Job")

"""A path selects a part of a value, and any text can be escaped into it. Limits cut too deep or long values."""

from typing import Any
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.monitoring.jolokia.requests import (
    BadRequestError,
    Parameters,
    escape,
    join_path,
    parameters_of,
    parse_path,
    split_path,
)
from service.monitoring.jolokia.values import cut_to_limits, encode_answer, follow_path

VALUE = {"a": {"used": 1, "max": [5, {"x": 6}]}, "b": {"used": 2}, "c": 3}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ([], VALUE), (["a", "used"], 1), (["a", "max", "1", "x"], 6), (["*", "used"], {"a": 1, "b": 2}),
        (["*", "max", "*", "x"], {"a": [6]}), (["a", "max", "*"], [5, {"x": 6}]),
    ],
    ids=lambda each: str(each)[:20],
)  # fmt: skip
def test_a_path_finds_a_part_of_a_value(path: list[str], found: Any) -> None:
    assert follow_path(VALUE, path) == found


@pytest.mark.parametrize("path", [["d"], ["a", "max", "7"], ["c", "x"], ["*", "nothing"], ["a", "max", "-1"]])
def test_a_path_that_leads_nowhere_is_refused(path: list[str]) -> None:
    with pytest.raises(BadRequestError):
        follow_path(VALUE, path)


def test_limits_cut_depth_collections_and_objects() -> None:
    assert cut_to_limits(VALUE, Parameters(max_depth=1))["c"] == 3
    assert cut_to_limits(VALUE, Parameters(max_depth=1))["b"] == "[Depth limit {'used': 2}]"
    assert cut_to_limits(VALUE, Parameters(max_collection_size=1)) == {"a": {"used": 1}}
    cut = "[Object limit exceeded]"
    assert cut_to_limits([1, 2, 3], Parameters(max_objects=2)) == [1, cut, cut]
    assert cut_to_limits({"n": 2**60, "t": True}, Parameters(serialize_long="string")) == {"n": str(2**60), "t": True}
    assert encode_answer({"a": [float("nan"), float("-inf"), 1.5]}) == b'{"a":[null,null,1.5]}'
    assert encode_answer({"a": 1}) == b'{"a":1}'


def test_a_parameter_that_is_empty_or_negative_is_not_set() -> None:
    given = {"maxDepth": "-1", "maxObjects": "", "ignoreErrors": "TRUE", "maxCollectionSize": "7", "other": {}}
    assert parameters_of(given) == Parameters(ignore_errors=True, max_collection_size=7)


parts = st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=6)


@given(parts)
def test_every_escape_round_trips(given_parts: list[str]) -> None:
    assert split_path(join_path(given_parts)) == given_parts


@given(parts)
def test_a_request_that_jolokia_js_escapes_into_a_path_is_read_unchanged(given_parts: list[str]) -> None:
    """Escape as jolokia.js does: first by the protocol's own escapes, then percent-encode every part."""
    sent = "".join("/" + quote(escape(part), safe="") for part in ["exec", "a:b=c", "do", *given_parts])
    request = parse_path(unquote(sent), {})
    wanted = [None if part == "[null]" else "" if part == '""' else part for part in given_parts]
    assert list(request.arguments) == wanted


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a/b", ["a", "b"]), ("a!/b", ["a/b"]), ("a!!/b", ["a!", "b"]), ("a!!!/b", ["a!/b"]), ('a!"b', ['a"b']),
        ("a!xb/", ["axb"]), ("a//b", ["a", "", "b"]), ("a!", ["a"]), ("", []), ("a!//b", ["a/", "b"]),
    ],
)  # fmt: skip
def test_the_parser_reads_the_escapes_of_the_protocol(path: str, found: list[str]) -> None:
    assert split_path(path) == found

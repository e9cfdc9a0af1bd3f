"""A path selects a part of a value, and any text can be escaped into it."""

from typing import Any
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.monitoring.jolokia import (
    Parameters,
    follow_path,
    join_path,
    read_path,
    read_request,
    split_path,
)
from service.monitoring.managed.objects import RefusedError

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
    with pytest.raises(RefusedError):
        follow_path(VALUE, path)


def test_a_parameter_that_is_empty_is_not_set_and_others_are_ignored() -> None:
    given = {"includeRequest": "", "ignoreErrors": "TRUE", "maxCollectionSize": "7"}
    assert read_request({"type": "version"}, given)[1] == Parameters(ignore_errors=True)


parts = st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=6)


@given(parts)
def test_every_escape_round_trips(given_parts: list[str]) -> None:
    assert split_path(join_path(given_parts)) == given_parts


@given(parts)
def test_a_request_that_jolokia_js_escapes_into_a_path_is_read_unchanged(given_parts: list[str]) -> None:
    """Escape as jolokia.js does: first by the protocol's own escapes, then percent-encode every part."""
    sent = "".join("/" + quote(join_path([part]), safe="") for part in ["exec", "a:b=c", "do", *given_parts])
    request, _ = read_request(read_path(unquote(sent)), {})
    wanted = [None if part == "[null]" else "" if part == '""' else part for part in given_parts]
    assert request.arguments == wanted


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a/b", ["a", "b"]), ("a!/b", ["a/b"]), ("a!!/b", ["a!", "b"]), ("a!!!/b", ["a!/b"]), ('a!"b', ['a"b']),
        ("a!xb/", ["axb"]), ("a//b", ["a", "", "b"]), ("a!", ["a"]), ("", []), ("a!//b", ["a/", "b"]),
    ],
)  # fmt: skip
def test_the_parser_reads_the_escapes_of_the_protocol(path: str, found: list[str]) -> None:
    assert split_path(path) == found

"""Whatever stands in a part of a path comes back from it."""

from __future__ import annotations

from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.monitoring.jolokia.escapes import escape, join_path, split_path
from service.monitoring.jolokia.requests import parse_path

parts = st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=6)


@given(parts)
def test_every_escape_round_trips(given_parts: list[str]) -> None:
    assert split_path(join_path(given_parts)) == given_parts


@given(parts)
def test_a_request_in_a_path_is_what_was_escaped_into_it(given_parts: list[str]) -> None:
    """By jolokia.js' rules: escaped by the protocol's, then percent-encoded whole, then put after a slash each."""
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
def test_the_protocols_escapes_are_read(path: str, found: list[str]) -> None:
    assert split_path(path) == found

"""Any text can be escaped into a part of a path of the protocol, and reading the path returns the same text."""

from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.monitoring.jolokia.requests import escape, join_path, parse_path, split_path

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

"""Test peers in settings. If a mistyped peer were ignored, every key could have leases in both stores."""

import pytest

from config import load
from config.describe import describe
from config.peers import parse_peers


def test_peers_are_read_with_their_keys_and_shown_without_them() -> None:
    text = "us=https://:rk_1_2@us.example:8080/, asia=http://10.0.0.3:8080"
    assert parse_peers(text) == {"us": "https://:rk_1_2@us.example:8080", "asia": "http://10.0.0.3:8080"}
    assert parse_peers("") == {}
    [shown] = [row.value for row in describe(load({"lease_peers": text}, {})) if row.name == "lease_peers"]
    assert "rk_1_2" not in shown


@pytest.mark.parametrize(
    "text", ["us", "us=us.example", "us=ftp://x", "=http://x", "US=http://x", "us=http://x,us=http://y", "us=http://"]
)
def test_text_that_is_no_peer_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="should"):
        parse_peers(text)

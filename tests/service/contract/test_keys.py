"""Test API keys. A key decides what its caller may do. The store has only the hash of a key."""

import base64
from dataclasses import replace

import pytest

from service.contract.api_keys import (
    Identity,
    KeyRing,
    OpenToOthersError,
    Role,
    hash_key,
    is_loopback,
    make_api_key,
)
from service.contract.problems import ProblemError
from storage.boards.api_keys import StoredKey


def row(key: StoredKey, role: str, *, revoked_at_us: int | None = None) -> StoredKey:
    return replace(key, role=role, revoked_at_us=revoked_at_us)


def basic(credentials: bytes) -> str:
    return "Basic " + base64.b64encode(credentials).decode()


KEY, TEXT = make_api_key("", "reader", 0)


def test_a_key_names_its_public_part_and_hides_256_bits() -> None:
    prefix, key_id, secret = TEXT.split("_")
    assert (prefix, key_id) == ("rk", KEY.id)
    assert len(bytes.fromhex(secret)) == 32
    assert KEY.hash == hash_key(TEXT)
    assert secret not in KEY.hash
    assert make_api_key("", "reader", 0)[1] != TEXT


@pytest.mark.parametrize(
    "header",
    [
        f"Bearer {TEXT}",
        f"bearer  {TEXT} ",
        basic(f"anyone:{TEXT}".encode()),
        basic(f":{TEXT}".encode()),
    ],
    ids=range(4),  # the keys are random, so test names made from them would differ between processes
)
def test_a_caller_may_send_its_key_as_a_bearer_token_or_a_basic_password(header: str) -> None:
    assert KeyRing([row(KEY, "writer")]).identify_caller(header) == Identity(KEY.id, Role.WRITER)


@pytest.mark.parametrize(
    "header",
    [
        None, "", "Bearer", "Bearer rk_x_y", TEXT, f"Digest {TEXT}", "Basic !!!", basic(b"\xff\xfe"),
        basic(TEXT.encode()), "Bearer \udcff", "Bearer " + "x" * 5000, f"Bearer {KEY.hash}",
    ],
    ids=range(12),
)  # fmt: skip
def test_a_missing_or_unknown_key_is_answered_401_with_how_to_send_one(header: str | None) -> None:
    with pytest.raises(ProblemError) as caught:
        KeyRing([row(KEY, "reader")]).identify_caller(header)
    assert caught.value.status == 401
    assert caught.value.headers["WWW-Authenticate"].startswith("Bearer")


def test_a_revoked_key_is_unknown_and_revoking_all_keys_does_not_open_the_service() -> None:
    ring = KeyRing([row(KEY, "ops")])
    ring.replace_keys([row(KEY, "ops", revoked_at_us=1)])
    assert not ring.open
    with pytest.raises(ProblemError):
        ring.identify_caller(f"Bearer {TEXT}")


def test_a_revoked_key_ends_its_own_sessions_only() -> None:
    (other, text), ended = make_api_key("", "reader", 0), list[str]()
    ring = KeyRing([row(KEY, "reader"), row(other, "reader")])
    mine, theirs = (ring.identify_caller(f"Bearer {each}") for each in (TEXT, text))
    with (
        ring.end_when_revoked(mine, lambda: ended.append("mine")),
        ring.end_when_revoked(theirs, lambda: ended.append("theirs")),
    ):
        ring.replace_keys([row(KEY, "reader"), row(other, "reader")])
        assert ended == []
        ring.replace_keys([row(KEY, "reader", revoked_at_us=1), row(other, "reader")])
        assert ended == ["mine"]
    ring.replace_keys([row(KEY, "reader", revoked_at_us=1), row(other, "reader", revoked_at_us=2)])
    assert ended == ["mine"], "an ended session is not ended again"
    with pytest.raises(ProblemError), ring.end_when_revoked(mine, lambda: ended.append("again")):
        raise AssertionError("a revoked key begins no session")


def test_an_open_service_binds_to_loopback_only() -> None:
    for host in ("127.0.0.1", "127.9.9.9", "localhost", "::1", "[::1]"):
        assert is_loopback(host)
        KeyRing().check_binding(host)
    for host in ("0.0.0.0", "::", "192.168.1.1", "example.org", ""):
        assert not is_loopback(host)
        with pytest.raises(OpenToOthersError):
            KeyRing().check_binding(host)

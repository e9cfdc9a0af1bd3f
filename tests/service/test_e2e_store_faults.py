"""A store that is missing, damaged or out of room: what an operator and a caller are told, at the start and later."""

from __future__ import annotations

from pathlib import Path

from tests.service.real_service import command_line

SERVE = ("serve", "--port", "0", "--store", "sqlite:///data/rankcurve.db")
REFUSING = ("--set", "create_store=false")


def test_a_first_key_creates_the_store_and_says_so_beside_the_key(tmp_path: Path) -> None:
    made = command_line("keys", "create", "me", "--role", "ops", "--store", SERVE[-1], cwd=tmp_path)
    assert made.returncode == 0 and made.stdout.startswith("rk_") and made.stdout.count("\n") == 1
    assert "store_created" in made.stderr and str(tmp_path / "data" / "rankcurve.db") in made.stderr
    listed = command_line("keys", "list", "--store", SERVE[-1], cwd=tmp_path)
    assert listed.returncode == 0 and "store_created" not in listed.stderr


def test_a_service_that_may_not_create_a_store_ends_with_one_sentence(tmp_path: Path) -> None:
    refused = command_line(*SERVE, *REFUSING, cwd=tmp_path)
    assert refused.returncode == 1
    [line] = refused.stderr.splitlines()
    assert line.startswith(f"error: there is no store at {tmp_path}/data/rankcurve.db")
    assert list(tmp_path.iterdir()) == []

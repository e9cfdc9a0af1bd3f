"""`rankcurve client`, `pool` and `lease` against a real service."""

import json
from collections.abc import Callable
from pathlib import Path

from typer.testing import Result

Run = Callable[..., Result]


def test_an_operator_fills_leases_watches_and_empties_a_pool(run: Run, tmp_path: Path) -> None:
    assert json.loads(run("pool", "create", "acme", "numbers", "--partitions", "2").stdout)["partitions"] == 2
    listed = tmp_path / "numbers.txt"
    listed.write_text("".join(f"+49 {number}\n" for number in range(2_500)), encoding="utf-8")
    added = run("pool", "add", "acme", "numbers", "--region", "eu", "--file", str(listed))
    assert json.loads(added.stdout) == {"added": 2_500, "known": 0, "moved": 0}
    lease = json.loads(run("lease", "get", "acme", "numbers", "call 1", "--region", "eu", "--seconds", "90").stdout)
    assert lease["acquired"] is True
    assert json.loads(run("lease", "show", "acme", "numbers", "call 1").stdout)["resource"] == lease["resource"]
    rows = [line.split() for line in run("pool", "show", "acme", "numbers").stdout.splitlines()]
    assert rows == [["region", "total", "leased", "available", "headroom"], ["eu", "2500", "1", "2499"]]
    watched = run("pool", "watch", "acme", "numbers", "--looks", "2", "--every", "0.1").stdout
    assert "2499" in watched
    assert "░" in watched
    moved = run("pool", "add", "acme", "numbers", "--region", "us", "--move", "+49 1", "+49 2")
    assert json.loads(moved.stdout)["moved"] >= 1
    run("lease", "give-back", "acme", "numbers", "call 1")
    run("lease", "give-back", "acme", "numbers", "call 1", code=1)
    removed = run("pool", "remove", "acme", "numbers", "--file", str(listed))
    assert json.loads(removed.stdout) == {"removed": 2_500, "leased": 0, "unknown": 0}
    dry = run("lease", "get", "acme", "numbers", "call 2", "--region", "eu", code=1)
    assert "pool show" in dry.output
    lines = [json.loads(line) for line in run("lease", "journal", "--after", "0", "--limit", "2").stdout.splitlines()]
    assert [line["kind"] for line in lines] == ["added", "added"]


def test_clients_and_pools_are_listed_renamed_and_deleted(run: Run) -> None:
    run("client", "create", "bolt", "--name", "Bolt & Co")
    run("pool", "create", "bolt", "one")
    run("pool", "create", "bolt", "two")
    assert json.loads(run("client", "show", "bolt").stdout)["pools"] == 2
    assert "Bolt & Co" in run("client", "list").stdout
    assert {each["client_id"] for each in json.loads(run("client", "list", "--json").stdout)} >= {"bolt"}
    pools = json.loads(run("pool", "list", "--client", "bolt", "--json").stdout)
    assert [each["pool_id"] for each in pools] == ["one", "two"]
    assert "two" in run("pool", "list").stdout
    run("pool", "add", "bolt", "one", "--region", "eu", "x")
    assert [each["resource"] for each in json.loads(run("pool", "resources", "bolt", "one", "--json").stdout)] == ["x"]
    assert "x" in run("pool", "resources", "bolt", "one").stdout
    run("pool", "delete", "bolt", "one", code=1, typed="n\n")
    run("pool", "delete", "bolt", "one", "--yes")
    assert "pool list" in run("pool", "show", "bolt", "one", code=1).output
    run("client", "delete", "bolt", code=1, typed="n\n")
    run("client", "delete", "bolt", "--yes")
    assert "unknown_client" in run("client", "show", "bolt", code=1).output


def test_invalid_lease_commands_are_refused_before_any_request(run: Run, tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("\n")
    run("pool", "add", "acme", "numbers", "--region", "eu", code=2)
    run("pool", "add", "acme", "numbers", "x", "--region", "eu", "--file", str(empty), code=2)
    run("pool", "remove", "acme", "numbers", "--file", str(empty), code=2)
    run("pool", "add", "acme", "numbers", "x", code=2)

"""Test `rankcurve top`, `rank`, `refresh` and `export` over HTTP."""

import importlib.metadata
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from rankcurve import Position

from service.commands.reading.ranks import show_positions
from tests.service.cli_fake_service import FakeBoard, FakeService, run


@pytest.fixture(autouse=True)
def b(fake: FakeService) -> FakeBoard:
    """Make board b with the owners p0 to p24, whose xp are 0 to 24 and whose tag is `a,b`, and the owner `[red]x`."""
    tag = {"name": "tag", "sorted": False, "type": "text"}
    board = fake.add_board("b", {"name": "shots", "sorted": False}, {"name": "xp"}, tag)
    board.stats = {f"p{i}": {"xp": i, "tag": "a,b"} for i in range(25)} | {"[red]x": {"xp": 99, "shots": 3}}
    return board


def rows_of(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_top_marks_estimated_ranks_and_says_what_the_mark_means(fake: FakeService) -> None:
    assert run("top", "b", "-n", "3", fake=fake).stderr == ""
    fake.estimates = True
    result = run("top", "b", "-n", "3", fake=fake)
    assert [row[0] for row in rows_of(result.stdout)] == ["rank", "~1", "~2", "~3"]
    assert result.stderr == "~ marks an estimate from the curve; rankcurve rank b OWNER -c xp shows its bounds\n"


def test_top_can_start_at_any_rank_and_print_json(fake: FakeService) -> None:
    page = json.loads(run("top", "b", "-c", "xp", "--from-rank", "25", "--json", fake=fake).stdout)
    assert [(entry["rank"], entry["owner"]) for entry in page["entries"]] == [(25, "p1"), (26, "p0")]


@pytest.mark.parametrize("command", ["top", "export", "rank", "curve", "audit"])
def test_every_command_takes_a_column_in_the_same_way(fake: FakeService, b: FakeBoard, command: str) -> None:
    b.spec["columns"].append({"name": "wins", "sorted": True, "merge": "sum"})
    for stats in b.stats.values():
        stats["wins"] = 7
    owner = ["p1"] if command == "rank" else []
    run(command, "b", *owner, "-c", "wins", fake=fake)
    run(command, "b", *owner, "--column", "wins", fake=fake)
    asked = [path for _, path in fake.requests if "/rankings/wins" in path or "columns=wins" in path]
    assert asked
    assert asked[: len(asked) // 2] == asked[len(asked) // 2 :]
    assert "--column" in run(command, "--help").stdout


@pytest.mark.parametrize("owner", ["-5", "-1001234567890", "-5.25"])
def test_an_owner_after_two_dashes_is_not_taken_for_an_option(fake: FakeService, owner: str) -> None:
    run("rank", "b", "-c", "xp", "--", owner, fake=fake, code=0)
    assert any(f"/entries/{owner}/positions" in path for _, path in fake.requests)


def test_a_negative_number_can_be_the_value_of_an_option(fake: FakeService) -> None:
    [position] = json.loads(run("rank", "b", "--value", "-5", "--json", fake=fake).stdout)
    assert position["value"] == -5


@pytest.mark.parametrize("arguments", [["p1", "--nxt"], ["--nxt", "5"], ["-x"], ["-5"]])
def test_an_option_that_does_not_exist_is_refused(fake: FakeService, arguments: list[str]) -> None:
    run("rank", "b", *arguments, fake=fake, code=2)
    assert not fake.requests


@pytest.mark.parametrize(
    "arguments",
    [[], ["p1", "--value", "6"], ["p1", "-c", "xp,tag"], ["--value", "1", "-c", "a", "-c", "b"]],
)
def test_an_invalid_rank_command_exits_with_2(fake: FakeService, arguments: list[str]) -> None:
    run("rank", "b", *arguments, fake=fake, code=2)


def test_refresh_fits_every_ranked_column_unless_some_are_named(fake: FakeService) -> None:
    result = run("refresh", "b", fake=fake)
    assert [row[:4] for row in rows_of(result.stdout)[1:]] == [["xp", "skip", "26", "16"]]
    run("refresh", "b", "-c", "three", "-c", "four", fake=fake, code=0)
    asked = [path.split("/")[5] for method, path in fake.requests if method == "POST"]
    assert asked == ["xp", "three", "four"]


def test_refresh_without_a_job_process_says_what_to_start(fake: FakeService) -> None:
    fake.failures = [(503, {}, "no_job_process")]
    result = run("refresh", "b", "-c", "xp", fake=fake, code=1)
    assert "--jobs embedded" in result.stderr


def test_export_reports_an_unwritable_file_in_one_line(fake: FakeService, tmp_path: Path) -> None:
    result = run("export", "b", "-o", str(tmp_path / "none" / "out.csv"), fake=fake, code=1)
    assert result.stderr.startswith("error: cannot write")
    assert result.stderr.count("\n") == 1


def test_a_command_reports_a_board_without_a_ranked_column(fake: FakeService) -> None:
    fake.add_board("plain", {"name": "shots", "sorted": False})
    for command in ("top", "export", "refresh"):
        result = run(command, "plain", fake=fake, code=1)
        assert result.stderr.startswith("error: ")
        assert result.stderr.endswith("plain has no ranked column\n")


def test_a_command_names_the_ranked_columns_of_a_board_that_has_several(fake: FakeService) -> None:
    fake.add_board("both", {"name": "xp"}, {"name": "lap"})
    for command in (["top", "both"], ["export", "both"], ["curve", "both"], ["rank", "both", "--value", "5"]):
        result = run(*command, fake=fake, code=1)
        assert "both has several ranked columns: name one of" in result.stderr
        assert "xp" in result.stderr
        assert "lap" in result.stderr


def test_the_printed_version_is_the_installed_one() -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"rankcurve {importlib.metadata.version('rankcurve')}\n")


def test_rank_prints_tiers_only_if_there_are_any_and_marks_an_uncertain_one(capsys: pytest.CaptureFixture[str]) -> None:
    named: dict[str, Any] = {"column": "xp", "value": 5, "exact": False, "method": "curve", "total": 90}
    plain = Position(**named, rank=7, low=5, high=9, percentile=93.3, as_of=datetime(2026, 11, 20, tzinfo=UTC))
    show_positions([plain], [93.3])
    assert "tier" not in capsys.readouterr().out
    show_positions([plain, replace(plain, tier="gold"), replace(plain, tier="gold", tier_certain=False)], [93.3] * 3)
    heading, *rows = capsys.readouterr().out.splitlines()
    assert heading.split()[-1] == "tier"
    assert [row.split("Z", 1)[1].strip() for row in rows] == ["", "gold", "~gold"]

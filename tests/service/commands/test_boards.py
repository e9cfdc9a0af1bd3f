"""`rankcurve board …` and `rankcurve family …` turn their arguments into a spec, and print answers as tables."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from rankcurve.column_words import parse_column

from service.cli import app
from tests.service.cli_fake_service import FakeService, run


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("xp:sum", {"name": "xp", "merge": "sum"}),
        ("lap:min:low:scale=3", {"name": "lap", "merge": "min", "best": "low", "scale": 3}),
        ("lap:min:low.3", {"name": "lap", "merge": "min", "best": "low", "scale": 3}),
        ("lap:min.3:max=9.5", {"name": "lap", "merge": "min", "scale": 3, "max": "9.5"}),
        ("lap:min:min=0:max=86400.5", {"name": "lap", "merge": "min", "min": 0, "max": "86400.5"}),
        ("d:last:min=-5", {"name": "d", "merge": "last", "min": -5}),
        ("shots:sum:unsorted", {"name": "shots", "sorted": False, "merge": "sum"}),
        ("tag:last:text", {"name": "tag", "merge": "last", "type": "text"}),
        (
            "acc:quotient=hits/shots:from=100:scale=4",
            {"name": "acc", "merge": "quotient", "of": "hits", "per": "shots", "from": 100, "scale": 4},
        ),
        ("time:with=score:low.2", {"name": "time", "merge": "with", "of": "score", "best": "low", "scale": 2}),
    ],
)
def test_a_column_in_words_becomes_its_spec(text: str, spec: dict[str, object]) -> None:
    assert parse_column(text) == spec


@pytest.mark.parametrize(
    "text",
    ["xp", ":sum", "xp:best", "xp:sum:max", "xp:sum:high:low", "xp:sum:scale=x", "xp:sum:scale=-1", "xp:sum:max=1e5",
     "xp:sum:max=", "xp:sum:min=1.", "xp:sum.x", "xp:sum.10", "xp:sum.1:scale=2", "lap:min.1:low.1",
     "a:b:with=c:sum", "a:quotient=b/c:sum", "a:sum:from=x", "a:quotient=b/c:from=1.5",
     "a:text.1", "xp:sum:max=٣", "xp:sum:max=" + "9" * 5000],
)  # fmt: skip
def test_an_invalid_column_is_refused_before_any_request(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text[:20]) + "|accepts"):
        parse_column(text)


def test_a_board_is_created_from_a_file(fake: FakeService, tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text('{"columns": [{"name": "xp", "merge": "max"}]}')
    run("board", "create", "s", "--spec", str(spec), fake=fake, code=0)
    assert fake.boards["s"].spec == {"columns": [{"name": "xp", "merge": "max"}]}
    spec.write_text('{"columns": ["xp:max"]}')
    run("board", "create", "words", "--spec", str(spec), fake=fake, code=0)
    assert fake.boards["words"].spec == fake.boards["s"].spec
    spec.write_text('{"columns": 5}')
    run("board", "create", "odd", "--spec", str(spec), fake=fake, code=0)
    assert fake.boards["odd"].spec == {"columns": 5}, "the service says what is wrong"
    spec.write_text("[1]")
    run("board", "create", "s", "--spec", str(spec), fake=fake, code=2)


@pytest.mark.parametrize("arguments", [[], ["-c", "xp"], ["-c", "xp:sum:with=lap"]])
def test_an_invalid_command_line_exits_with_2(fake: FakeService, arguments: list[str]) -> None:
    run("board", "create", "s", *arguments, fake=fake, code=2)
    assert not fake.requests


def test_boards_are_listed_across_pages(fake: FakeService) -> None:
    for name in ("a1", "a2", "a3", "b1"):
        fake.add_board(name, {"name": "xp"}, {"name": "shots", "sorted": False})
    result = run("board", "list", "--prefix", "a", fake=fake)
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["board", "a1", "a2", "a3"]
    assert "xp, (shots)" in result.stdout
    listed = json.loads(run("board", "list", "--json", "--limit", "3", fake=fake).stdout)
    assert [each["id"] for each in listed] == ["a1", "a2", "a3"]


def test_deleting_a_board_asks_for_confirmation(fake: FakeService) -> None:
    fake.add_board("s", {"name": "xp"})
    run("board", "delete", "s", fake=fake, stdin="n\n", code=1)
    assert "s" in fake.boards
    run("board", "delete", "s", fake=fake, stdin="y\n", code=0)
    run("board", "delete", "s", "--yes", fake=fake, code=1)
    assert not fake.boards


def test_errors_of_the_service_are_one_line_with_code_and_hint(fake: FakeService) -> None:
    fake.failures = [(401, {}, "unauthorized")]
    result = run("board", "show", "s", fake=fake, code=1)
    assert result.stderr == "error: unauthorized: as asked — pass a key with --key or RANKCURVE_KEY\n"


def test_an_operator_creates_a_season_with_times_and_closes_it(fake: FakeService) -> None:
    times = ("--opens-at", "2026-01-01T00:00:00Z", "--closes-at", "2026-02-01T00:00:00Z", "--keep-seconds", "60")
    run("board", "create", "s", "-c", "xp:sum", *times, "--grace-seconds", "5", fake=fake, code=0)
    spec = fake.boards["s"].spec
    assert (spec["opens_at"], spec["closes_at"]) == ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z")
    assert (spec["grace_seconds"], spec["keep_seconds"]) == (5, 60)
    run("board", "close", "s", "--at", "2026-01-15T00:00:00Z", fake=fake, code=0)
    closed = [fake.boards["s"].spec[name] for name in ("opens_at", "closes_at", "grace_seconds")]
    assert closed == ["2026-01-01T00:00:00Z", "2026-01-15T00:00:00Z", 0]
    run("board", "close", "s", fake=fake, code=0)
    assert fake.boards["s"].spec["closes_at"] > "2026-01-15"


def test_an_operator_chooses_the_partition_of_a_board_and_of_a_family(fake: FakeService) -> None:
    run("board", "create", "s", "-c", "xp:sum", "--partition", "2", fake=fake, code=0)
    assert fake.boards["s"].spec["partition"] == 2
    run(*CREATE, "--partition", "3", fake=fake, code=0)
    assert fake.families["game"]["partition"] == 3


def test_the_list_shows_which_boards_are_closed_or_archived(fake: FakeService) -> None:
    for name, more in (("a", {}), ("b", {"closed": True}), ("c", {"closed": True, "archived": True})):
        fake.add_board(name, {"name": "xp"})
        fake.boards[name].spec |= more
    lines = run("board", "list", fake=fake).stdout.splitlines()
    assert [line.split()[2] for line in lines] == ["state", "open", "closed", "archived"]


CREATE = ("family", "create", "game", "-c", "xp:sum:high")
PERIOD = ("--period", "all")


def test_a_family_is_created_from_words(fake: FakeService) -> None:
    words = ("--period", "all", "--period", "week", "--facets", "org", "--facets", "org,location")
    more = ("--time-zone", "Europe/Berlin", "--grace-seconds", "60", "--keep", "week=12", "--ties", "earliest")
    run(*CREATE, *words, *more, fake=fake, code=0)
    assert fake.families["game"] == {
        "columns": [{"name": "xp", "merge": "sum", "best": "high"}], "periods": ["all", "week"],
        "facets": [[], ["org"], ["org", "location"]], "time_zone": "Europe/Berlin", "grace_seconds": 60,
        "keep": {"week": 12}, "ties": "earliest",
    }  # fmt: skip


def test_a_family_is_created_from_the_output_of_show_and_deleted(fake: FakeService, tmp_path: Path) -> None:
    run(*CREATE, fake=fake, code=0)
    made = dict(fake.families["game"])
    shown = run("family", "show", "game", fake=fake)
    assert json.loads(shown.stdout)["boards"] == 3
    (tmp_path / "game.json").write_text(shown.stdout)
    run("family", "create", "twin", "--spec", str(tmp_path / "game.json"), fake=fake, code=0)
    assert fake.families["twin"] == made
    run("family", "delete", "twin", fake=fake, stdin="n\n", code=1)
    run("family", "delete", "twin", "--yes", fake=fake, code=0)
    assert list(fake.families) == ["game"]


def test_the_board_of_a_time_prints_as_one_line(fake: FakeService) -> None:
    run(*CREATE, fake=fake)
    found = run("family", "board", "game", "org=7", "--period", "week", "--at", "2018-12-05T00:00:00Z", fake=fake)
    assert found.stdout == "game:week:org=7\n"
    assert "at=2018-12-05T00%3A00%3A00Z" in fake.requests[-1][1]


def list_commands(group: typer.core.TyperGroup, *words: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the words and the docstring of every command."""
    for name, command in group.commands.items():
        if isinstance(command, typer.core.TyperGroup):
            yield from list_commands(command, *words, name)
        else:
            yield (*words, name), command.help or ""


COMMANDS = dict(list_commands(typer.main.get_command(app)))  # type: ignore[arg-type]
EXAMPLES = [(words, help) for words, help in COMMANDS.items() if "For example:" in help]


@pytest.mark.parametrize(("words", "text"), EXAMPLES, ids=[" ".join(words) for words, _ in EXAMPLES])
def test_each_example_in_the_help_of_a_command_has_a_line(words: tuple[str, ...], text: str) -> None:
    shown = [line.strip() for line in run(*words, "--help", code=0).stdout.splitlines()]
    examples = [line.strip() for line in text.splitlines() if line.startswith("    rankcurve")]
    assert examples
    assert [line for line in shown if line in examples] == examples


@pytest.mark.parametrize(
    "words",
    [("create", "game"), ("create", "game", "-c", "xp:sum", "--keep", "week"), ("board", "game", "org", *PERIOD),
     ("board", "game", "org=1", "org=2", *PERIOD), ("create", "game", "-c", "xp:sum", "--keep", "week=x"),
     ("board", "game")],
)  # fmt: skip
def test_invalid_words_are_refused_before_any_request(fake: FakeService, words: tuple[str, ...]) -> None:
    run("family", *words, fake=fake, code=2)
    assert not fake.requests

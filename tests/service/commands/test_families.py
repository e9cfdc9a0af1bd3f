"""`rankcurve family …` turns its arguments into the specification of a family and prints answers as lines."""

import json
from pathlib import Path

import pytest

from tests.service.cli_fake_service import FakeService, run

CREATE = ("family", "create", "game", "-c", "xp:sum:high")


def test_a_family_is_created_from_words(fake: FakeService) -> None:
    words = ("--period", "all", "--period", "week", "--facets", "org", "--facets", "org,location")
    more = ("--time-zone", "Europe/Berlin", "--grace-seconds", "60", "--keep", "week=12", "--ties", "earliest")
    run(*CREATE, *words, *more, fake=fake, code=0)
    assert fake.families["game"] == {
        "columns": [{"name": "xp", "sorted": True, "merge": "sum", "best": "high"}], "periods": ["all", "week"],
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


def test_the_board_of_a_time_prints_as_one_line_and_facet_values_as_a_table(fake: FakeService) -> None:
    run(*CREATE, fake=fake)
    found = run("family", "board", "game", "org=7", "--period", "week", "--at", "2018-12-05T00:00:00Z", fake=fake)
    assert found.stdout == "game:week:org=7\n"
    assert "at=2018-12-05T00%3A00%3A00Z" in fake.requests[-1][1]
    values = run("family", "facets", "game", "org", "location=x", "--json", fake=fake)
    assert [each["entries"] for each in json.loads(values.stdout)] == [3, 4, 5], "every page is read"
    table = run("family", "facets", "game", "org", fake=fake)
    assert "game:all:org=2" in table.stdout


def test_a_history_prints_one_line_for_each_period_of_every_page(fake: FakeService) -> None:
    run(*CREATE, fake=fake)
    words = ("family", "history", "game", "ada", "xp", "org=7", "--period", "week")
    table = run(*words, fake=fake)
    assert [line.split()[0] for line in table.stdout.splitlines()[1:]] == [f"game:2026-03-0{day}" for day in (9, 8, 7)]
    assert "12301..12390" in table.stdout
    assert "no value" in table.stdout
    assert "period=week" in fake.requests[-1][1]
    assert "org=7" in fake.requests[-1][1]
    found = json.loads(run(*words, "--limit", "2", "--json", fake=fake).stdout)
    assert [each["position"] and each["position"]["value"] for each in found] == [0, None]


@pytest.mark.parametrize(
    "words",
    [("create", "game"), ("create", "game", "-c", "xp:sum", "--keep", "week"), ("board", "game", "org"),
     ("board", "game", "org=1", "org=2"), ("create", "game", "-c", "xp:sum", "--keep", "week=x")],
)  # fmt: skip
def test_invalid_words_are_refused_before_any_request(fake: FakeService, words: tuple[str, ...]) -> None:
    run("family", *words, fake=fake, code=2)
    assert not fake.requests


def test_the_command_reports_an_unknown_family(fake: FakeService) -> None:
    result = run("family", "show", "none", fake=fake, code=1)
    assert "no family none" in result.output

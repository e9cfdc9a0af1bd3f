"""Test `rankcurve apply` against a real service: its plan, what it changes, and what it refuses."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from typer.testing import Result

Run = Callable[..., Result]
FIRST = """
[boards.NAME-laps]
columns = ["lap:min:low:scale=3:min=0.5"]
ties = "earliest"
closes_at = 2030-05-31T22:00:00Z

[boards.NAME-runs]
columns = [
  { name = "points", sorted = true, merge = "max", tiers = [
    { name = "gold", to_percent = 5.5 }, { name = "silver", value = "1e2" },
  ] },
  "shots:sum:unsorted", "per_shot:quotient=points/shots:from=5:scale=2",
  { name = "time", sorted = false, merge = "with", of = "points", best = "low", scale = 2, max = 99.5 },
]
ties = ["time", "earliest"]
predictor = { samples = 500 }

[families.NAME-arena]
columns = ["xp:sum"]
periods = ["all", "week"]
facets = [[], ["clan"]]
keep = { week = 4 }
"""


class File:
    """A file that is applied. NAME in its texts is replaced by a name of the test."""

    def __init__(self, run: Run, path: Path, name: str) -> None:
        self._run, self._path, self.name = run, path, name

    def write(self, text: str) -> None:
        self._path.write_text(text.replace("NAME", self.name), encoding="utf-8")

    def apply(self, text: str, *options: str, code: int = 0) -> Result:
        self.write(text)
        return self._run("apply", str(self._path), *options, code=code)

    def show(self, board: str, kind: str = "board") -> Any:
        return json.loads(self._run(kind, "show", f"{self.name}-{board}").stdout)


@pytest.fixture
def file(run: Run, tmp_path: Path, request: pytest.FixtureRequest) -> File:
    return File(run, tmp_path / "boards.toml", f"t{abs(hash(request.node.name)) % 10**6}")


def test_a_file_is_made_once_and_a_second_time_there_is_nothing_to_do(file: File) -> None:
    plan = file.apply(FIRST, "--dry-run").stdout
    assert plan.splitlines() == [
        f"family {file.name}-arena: create",
        f"board {file.name}-laps: create",
        f"board {file.name}-runs: create",
    ]
    done = file.apply(FIRST).stdout
    assert done.count("done: ") == 3
    assert file.show("laps")["ties"] == "earliest"
    assert file.show("runs")["predictor"]["samples"] == 500
    assert file.show("runs")["columns"][2]["from"] == 5
    assert file.show("arena", "family")["keep"] == {"week": 4}
    assert file.apply(FIRST).stdout == "nothing to do: everything is as the file says\n"


def test_a_dry_run_changes_nothing(file: File, run: Run) -> None:
    file.apply(FIRST, "--dry-run")
    assert "unknown_board" in run("board", "show", f"{file.name}-laps", code=1).stderr


def test_what_the_file_changes_is_changed_and_what_it_does_not_name_stays(file: File) -> None:
    file.apply(FIRST)
    before = file.show("runs")
    changed = FIRST.replace("2030-05-31", "2031-05-31").replace("5.5", "7").replace('"xp:sum"', '"xp:sum", "wins:sum"')
    changed = changed.replace("predictor = { samples = 500 }", "predictor = { exact_top = 7 }").replace(
        "{ week = 4 }", "{ week = 5 }"
    )
    plan = file.apply(changed).stdout
    assert f"board {file.name}-laps: closes_at from 2030-05-31T22:00:00.000000Z to 2031-05-31T22:00:00+00:00" in plan
    assert "tiers of column points" in plan
    assert "add column wins" in plan
    after = file.show("runs")
    assert after["predictor"] == {**before["predictor"], "exact_top": 7}
    assert after["columns"][0]["tiers"][0]["to_percent"] == 7
    assert file.show("laps")["closes_at"].startswith("2031-05-31T22:00")
    assert file.show("arena", "family")["keep"] == {"week": 5}
    assert "nothing to do" in file.apply(changed).stdout


def test_periods_that_are_no_longer_kept_are_a_change(file: File) -> None:
    file.apply(FIRST)
    assert "keep from" in file.apply(FIRST.replace("keep = { week = 4 }", "keep = {}")).stdout
    assert file.show("arena", "family")["keep"] == {}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("lap:min:low", "lap:max:low", "merge of column lap from min to max"),
        ("scale=3", "scale=2", "scale of column lap from 3 to 2"),
        ("from=5:", "from=6:", "from of column per_shot from 5 to 6"),
        ('ties = "earliest"', 'ties = "shared"', "ties from earliest to shared"),
        ('"xp:sum"', '"wins:sum"', "column xp can't be removed"),
        ('"all", "week"', '"all", "day"', "periods from"),
    ],
)
def test_nothing_is_changed_if_a_part_would_reinterpret_values(file: File, old: str, new: str, said: str) -> None:
    file.apply(FIRST)
    changed = FIRST.replace(old, new).replace("5.5", "9")
    refused = file.apply(changed, code=1)
    assert f"refused: {'family' if 'wins' in new or 'day' in new else 'board'} {file.name}-" in refused.stdout
    assert said in refused.stdout
    assert "nothing was changed" in refused.stderr
    assert file.show("runs")["columns"][0]["tiers"][0]["to_percent"] == 5.5


def test_pruning_deletes_what_the_file_lacks_after_a_question(file: File, run: Run) -> None:
    file.apply(FIRST)
    shorter = FIRST.partition("[boards.NAME-runs]")[0]
    assert f"board {file.name}-runs: delete" in file.apply(shorter, "--prune", code=1).stdout  # nobody answered
    assert file.show("runs")
    assert "nothing to do" in file.apply(shorter).stdout
    assert "done: " in file.apply(shorter, "--prune", "--yes").stdout
    run("board", "show", f"{file.name}-runs", code=1)
    run("family", "show", f"{file.name}-arena", code=1)
    assert file.show("laps")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[boards.NAME-x]\ncolumns = [", "boards.toml"),
        ("[board.NAME-x]", "'board' is none of boards, families and leagues"),
        ('[boards.NAME-x]\ncolumns = ["lap:quickest"]', "board NAME-x: 'quickest' in 'lap:quickest'"),
        (
            '[boards.NAME-x]\ncolumns = ["xp:sum"]\ntie = "earliest"',
            "board NAME-x: Object contains unknown field `tie`",
        ),
        ('[families.NAME-x]\ncolumns = ["xp:sum"]', "family NAME-x: Object missing required field `periods`"),
        ('[boards]\nNAME-x = "xp"', "board NAME-x"),
        ("boards = 3", "boards.toml: boards: "),
        (f"deep = {'[' * 5_000}{']' * 5_000}", "boards.toml: the values are nested too deeply"),
        (
            f'[boards.NAME-x]\ncolumns = ["xp:sum"]\nties = {"[" * 900}{"]" * 900}',
            "boards.toml: the values are nested too deeply",
        ),
        (f'[boards.NAME-x]\ncolumns = ["xp:sum"]\ngrace_seconds = {10**30}', "board NAME-x: "),
    ],
)
def test_a_bad_file_is_refused_before_anything_is_asked(file: File, text: str, said: str) -> None:
    told = file.apply(text, code=2).stderr
    assert said.replace("NAME", file.name) in told
    assert told.count("\n") == 1


def test_the_schema_accepts_the_file_and_refuses_a_misspelled_member(file: File, run: Run) -> None:
    schema = json.loads(run("apply", "--schema").stdout)
    document = json.loads(json.dumps(tomllib.loads(FIRST), default=str))
    validator = jsonschema_rs.validator_for(schema)
    validator.validate(document)
    with pytest.raises(jsonschema_rs.ValidationError, match="tie"):
        validator.validate({"boards": {"x": {"columns": ["xp:sum"], "tie": "earliest"}}})


LEAGUE = """
[leagues.NAME-climb]
columns = ["xp:sum"]
column = "xp"
period = "week"
cohort = 3
divisions = [{ name = "bronze", promote = 1 }, { name = "silver", relegate = 1 }]
rewards = [{ name = "cup", to_rank = 1, data = { coins = 5 } }]
"""


def test_a_league_is_made_and_its_rules_change(file: File, run: Run) -> None:
    assert file.apply(LEAGUE).stdout.splitlines()[0] == f"league {file.name}-climb: create"
    assert "cohort from 3 to 5" in file.apply(LEAGUE.replace("cohort = 3", "cohort = 5")).stdout
    assert "refused" in file.apply(LEAGUE.replace('"week"', '"day"'), code=1).stdout
    assert file.show("climb", "league")["cohort"] == 5
    league = f"{file.name}-climb"
    assert run("league", "owner", league, "nobody", code=1).stderr
    assert "bronze" in run("league", "divisions", league).stdout
    assert league in run("league", "list").stdout
    assert run("league", "delete", league, "--yes").exit_code == 0

"""Test every command of `rankcurve` on a real service, and the demo as `make demo` starts it."""

import csv
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from rankcurve import Client
from typer.testing import Result

from tests.service.cli_fake_service import run_at
from tests.service.real_service import WAIT_S, Process, Spawn, environment, without

LINES = 40_000
DEMO = Path(__file__).parents[3] / "examples" / "season_demo.py"


def get(process: Process, path: str) -> Any:
    with urlopen(process.url + path, timeout=WAIT_S) as response:
        return json.load(response)


class Shell:
    def __init__(self, process: Process) -> None:
        self.process = process

    def __call__(self, *arguments: str, code: int = 0) -> Result:
        return run_at(self.process.url, *arguments, code=code)

    def rows(self, *arguments: str) -> list[list[str]]:
        return [line.split() for line in self(*arguments).stdout.splitlines()]


@pytest.fixture
def shell(serving: Process) -> Shell:
    return Shell(serving)


def write_csv(path: Path, lines: int) -> Path:
    """Write a CSV file with `lines` lines for 500 owners. Every 1,000th score is not a number; all others are 1."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(("id", "score", "lap"))
        for number in range(2, lines + 2):
            score = "one" if number % 1000 == 0 else "1"
            rows.writerow((f"o{number % 500}", score, f"{number % 97}.{number % 1000:03d}"))
    return path


def test_the_output_of_board_show_creates_the_same_board_elsewhere(shell: Shell, tmp_path: Path) -> None:
    words = ["xp:sum:high", "lap:min:low:scale=3:max=9223372036854775.807", "tag:last:text", "shots:sum:unsorted"]
    shell("board", "create", "here", *(word for each in words for word in ("-c", each)), "--ties", "earliest")
    path = tmp_path / "spec.json"
    path.write_text(shell("board", "show", "here").stdout, encoding="utf-8")
    shell("board", "create", "there", "--spec", str(path))
    # The board exists with this spec, so the command only confirms it.
    shell("board", "create", "here", "--spec", str(path))
    here, there = (json.loads(shell("board", "show", name).stdout, parse_float=str) for name in ("here", "there"))
    assert here["columns"][1]["max"] == "9223372036854775.807"
    for member in ("columns", "ties", "table", "predictor"):
        assert here[member] == there[member]


def test_a_killed_import_that_runs_again_counts_every_line_once(shell: Shell, tmp_path: Path) -> None:
    shell("board", "create", "killed", "-c", "xp:sum:high", "-c", "lap:min:low:scale=3")
    path = write_csv(tmp_path / "scores.csv", LINES)
    arguments = ["import", "killed", str(path), "--owner-column", "id", "-c", "xp=score", "-c", "lap"]
    command = [sys.executable, "-m", "service.cli", *arguments, "--url", shell.process.url]
    running = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(20_000):  # wait until the import has sent some batches
        if get(shell.process, "/v1/leaderboards/killed")["entries"]:
            break
    running.send_signal(signal.SIGKILL)
    assert running.wait(WAIT_S) == -signal.SIGKILL, "the import ended before it could be killed"
    total_before = points(shell.process)
    assert 0 < total_before < LINES
    result = shell(*arguments, code=1)  # the exit code is 1 because the service rejected lines
    assert f"{LINES:,} lines" in result.stdout
    assert points(shell.process) == LINES - LINES // 1000
    listed = [int(number) for number in re.findall(r"^line (\d+): ", result.stderr, re.MULTILINE)]
    assert listed == list(range(1000, LINES + 1, 1000))
    assert "0 applied, 0 unchanged" in shell(*arguments, code=1).stdout
    assert points(shell.process) == LINES - LINES // 1000


def points(process: Process) -> int:
    page = get(process, "/v1/leaderboards/killed/rankings/xp?limit=1000")
    return sum(row["value"] for row in page["entries"])


@pytest.fixture
def small(shell: Shell, tmp_path: Path) -> Shell:
    """Make a board `small` of 40 owners. Two owners share each value of xp, and no two owners share a value of lap."""
    shell("board", "create", "small", "-c", "xp:last:high", "-c", "lap:min:low:scale=3")
    path = tmp_path / "small.csv"
    lines = "".join(f"p{i:02d},{i // 2},{i}.500\n" for i in range(40))
    path.write_text(f"owner,xp,lap\n{lines}", encoding="utf-8")
    assert "40 lines" in shell("import", "small", str(path), "--owner-column", "owner").stdout
    return shell


def test_an_export_holds_the_whole_ranking_and_can_be_imported_again(small: Shell, tmp_path: Path) -> None:
    exported = small("export", "small", "--column", "lap", "--page", "7")
    text = exported.stdout
    assert "40 entries of small, ranked by lap" in exported.stderr
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0]) == ["rank", "owner", "xp", "lap", "updated_at"]
    found = [(row["rank"], row["owner"], row["lap"]) for row in rows]
    assert found == [(str(i + 1), f"p{i:02d}", f"{i}.500") for i in range(40)]
    lines = small("export", "small", "-c", "xp", "--format", "ndjson").stdout.splitlines()
    assert [json.loads(line)["owner"] for line in lines if line.startswith("{")][:4] == ["p38", "p39", "p36", "p37"]
    small("board", "create", "again", "-c", "xp:last:high", "-c", "lap:min:low:scale=3")
    (tmp_path / "export.csv").write_text(text, encoding="utf-8")
    result = small("import", "again", str(tmp_path / "export.csv"), "--owner-column", "owner")
    assert "0 rejected" in result.stdout


RUNS = """id,points,time_s,when
ada,100,50,2026-01-01T10:00:00Z
bob,100,41,2026-01-01T11:00:00.5+01:00
cleo,100,50,2026-01-01 09:00:00+00:00
dora,100,50,
eve,100,50,yesterday
"""


def test_a_ranking_that_is_exported_and_imported_elsewhere_keeps_the_order_of_equal_values(
    shell: Shell, tmp_path: Path
) -> None:
    columns = "-c", "points:max", "-c", "time_s:low:unsorted:with=points", "--ties", "time_s,earliest"
    here, there = tmp_path / "here.csv", tmp_path / "there.csv"
    here.write_text(RUNS, encoding="utf-8")
    shell("board", "create", "timed", *columns)
    owner_and_time = "--owner-column", "id", "--at-column", "when"
    refused = shell("import", "timed", str(here), *owner_and_time, code=1)
    assert "line 6: " in refused.stderr, "yesterday is no time"
    assert "4 applied" in refused.stdout
    exported = shell("export", "timed").stdout
    rows = list(csv.DictReader(io.StringIO(exported)))
    assert [row["owner"] for row in rows] == ["bob", "cleo", "ada", "dora"]
    assert rows[0]["reached_at"] == "2026-01-01 10:00:00.500000+00:00"
    there.write_text(exported, encoding="utf-8")
    shell("board", "create", "timed-again", *columns)
    backwards = [",".join(rows[0]), *(",".join(row.values()) for row in reversed(rows))]
    there.write_text("\n".join(backwards), encoding="utf-8")
    shell("import", "timed-again", str(there), "--owner-column", "owner", "--at-column", "reached_at")
    again = list(csv.DictReader(io.StringIO(shell("export", "timed-again").stdout)))
    assert [{**row, "updated_at": ""} for row in again] == [{**row, "updated_at": ""} for row in rows]
    assert (
        "no heading"
        in shell("import", "timed-again", str(there), "--owner-column", "owner", "--at-column", "w", code=1).stderr
    )


def test_top_shows_what_decides_between_equal_values(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(RUNS.splitlines()[:3]), encoding="utf-8")
    shell(
        "board",
        "create",
        "runs",
        "-c",
        "points:max",
        "-c",
        "time_s:low:unsorted:with=points",
        "--ties",
        "time_s,earliest",
    )
    shell("import", "runs", str(path), "--owner-column", "id", "--at-column", "when")
    rows = shell.rows("top", "runs")
    assert rows[0] == ["rank", "owner", "points", "time_s", "reached", "updated"]
    assert [row[:5] for row in rows[1:]] == [
        ["1", "bob", "100", "41", "2026-01-01T10:00:00.500000Z"],
        ["2", "ada", "100", "50", "2026-01-01T10:00:00.000000Z"],
    ]
    shell("board", "create", "untied", "-c", "points:max")
    assert shell.rows("top", "untied")[0] == ["rank", "owner", "points", "updated"]


def test_rows_in_json_keep_a_tier_that_is_null(shell: Shell, tmp_path: Path) -> None:
    spec = {"columns": [{"name": "xp", "merge": "max", "tiers": [{"name": "gold", "to_rank": 1}]}]}
    (tmp_path / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
    shell("board", "create", "tiered", "--spec", str(tmp_path / "spec.json"))
    shell("board", "create", "plain", "-c", "xp:max")
    with Client(shell.process.url) as client:
        for board in ("tiered", "plain"):
            client.post(board, [{"owner": owner, "stats": {"xp": xp}} for owner, xp in (("ada", 3), ("bob", 2))])
    for board in ("tiered", "plain"):
        sent = get(shell.process, f"/v1/leaderboards/{board}/rankings/xp")["entries"]
        lines = shell("export", board, "--format", "ndjson", "--page", "1").stdout.splitlines()
        assert [without(json.loads(line), "updated_at") for line in lines] == without(sent, "updated_at")
        assert without(json.loads(shell("top", board, "--json").stdout)["entries"], "updated_at") == without(
            sent, "updated_at"
        )


def test_an_export_to_redis_warns_of_values_that_a_binary_number_cannot_hold(shell: Shell) -> None:
    shell("board", "create", "wide", "-c", "xp:max:max=9223372036854775807", "-c", "lap:min.3")
    with Client(shell.process.url) as client:
        client.post("wide", [{"owner": "ada", "stats": {"xp": 9007199254740993, "lap": Decimal("0.1")}}])
        client.post("wide", [{"owner": "bob", "stats": {"xp": 9007199254740992, "lap": Decimal("58.123")}}])
    lossy = shell("export", "wide", "-c", "xp", "--format", "redis", code=1)
    assert "warning: xp: Redis rounds 1 values that a binary number can't hold" in lossy.stderr
    rounded = shell("export", "wide", "-c", "xp", "--format", "redis", "--round")
    assert "warning: xp: Redis rounds 1 values" in rounded.stderr
    assert "warning" not in shell("export", "wide", "-c", "lap", "--format", "redis").stderr
    shell("export", "wide", "-c", "xp", "--round", code=2)


def see_on_terminal(shell: Shell, *arguments: str) -> str:
    """Run a command whose output is a terminal, and return what the terminal gets."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "service.cli", *arguments, "--url", shell.process.url]
    with open(ours, "rb", buffering=0) as terminal:
        running = subprocess.Popen(command, env=environment(), stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        seen = b""
        with suppress(OSError):  # the end of a terminal
            while piece := terminal.read(65_536):
                seen += piece
        running.wait(WAIT_S)
    return seen.decode()


def test_rank_says_how_many_others_are_worse_and_counts_no_equal_ones(shell: Shell) -> None:
    shell("board", "create", "equals", "-c", "xp:max:min=7", "-c", "lap:min.3", "-c", "wins:sum")
    with Client(shell.process.url) as client:
        rows = [("x", 9, 59, 1), *((owner, 7, 60, 5) for owner in "abcd")]
        client.post(
            "equals", [{"owner": owner, "stats": {"xp": xp, "lap": lap, "wins": wins}} for owner, xp, lap, wins in rows]
        )
    for owner, shares in (("a", ["0.0", "0.0", "25.0"]), ("x", ["100.0", "100.0", "0.0"])):
        assert [row[5] for row in shell.rows("rank", "equals", owner)[1:]] == shares
    assert shell.rows("rank", "equals", "--value", "8", "-c", "xp")[1][5] == "100.0"


def test_rank_counts_no_entries_as_worse_that_tie_columns_leave_equal(shell: Shell) -> None:
    shell("board", "create", "ordered", "-c", "xp:max", "-c", "lap:min.3", "--ties", "lap")
    with Client(shell.process.url) as client:
        rows = [("x", 9, 59), ("a", 7, 60), ("b", 7, 60), ("c", 7, 60), ("d", 7, 61)]
        client.post("ordered", [{"owner": owner, "stats": {"xp": xp, "lap": lap}} for owner, xp, lap in rows])
    for owner, shares in (("x", ["100.0", "100.0"]), ("b", ["25.0", "25.0"]), ("d", ["0.0", "0.0"])):
        assert [row[5] for row in shell.rows("rank", "ordered", owner)[1:]] == shares, owner


@pytest.mark.parametrize("workers", [0, 1])
def test_a_service_on_a_terminal_speaks_in_words_and_says_last_where_the_dashboard_is(
    tmp_path: Path, workers: int
) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "service.cli", "serve", "--port", "0", "--workers", str(workers)]
    with open(ours, "rb", buffering=0) as terminal:
        running = subprocess.Popen(command, cwd=tmp_path, env=environment(), stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        seen = b""
        while b"dashboard" not in seen:
            seen += terminal.read(65_536)
        running.send_signal(signal.SIGTERM)
        with suppress(OSError):  # the end of a terminal
            while piece := terminal.read(65_536):
                seen += piece
        assert running.wait(WAIT_S) == 0
    lines = re.sub("\x1b\\[[0-9;]*m", "", seen.decode()).splitlines()
    serving = next(number for number, line in enumerate(lines) if "dashboard" in line)
    assert re.search(r"\[info +\] serving .*dashboard=http://127\.0\.0\.1:\d+/", lines[serving])
    assert "stopping" in lines[serving + 1], "the address is the last line until the service stops"
    assert any("store_created" in line for line in lines[:serving])
    assert not [line for line in lines if line.startswith("{")]


def test_control_characters_in_texts_of_players_do_not_reach_a_terminal(shell: Shell, tmp_path: Path) -> None:
    bad = "\x1b[2J\x9b31m\x7f\u202ex"
    shell("board", "create", "texts", "-c", "xp:max", "-c", "tag:last:text")
    with Client(shell.process.url) as client:
        client.post("texts", {"owner": "ada", "stats": {"xp": 1, "tag": bad}})
    file = tmp_path / "boards.toml"
    quoted = "".join(f"\\u{ord(letter):04x}" for letter in bad)
    file.write_text(f'[boards."{quoted}"]\ncolumns = ["xp:max"]\n', encoding="utf-8")
    commands = [["export", "texts"], ["export", "texts", "--format", "ndjson"], ["top", "texts", "--json"]]
    for arguments in [*commands, ["owner", "posts", "ada"], ["apply", str(file), "--dry-run"]]:
        seen = see_on_terminal(shell, *arguments)
        assert not set(seen.replace("\x1b[1m", "").replace("\x1b[0m", "")) & set("\x1b\x9b\x7f\u202e"), arguments
        assert "\\u001b[2J" in seen, arguments
    assert bad in shell("export", "texts").stdout, "a file gets the texts as they are"


def test_a_file_is_imported_into_the_boards_of_a_family(shell: Shell, tmp_path: Path) -> None:
    facets = ("--facets", "country", "--facets", "country,mode")
    shell("family", "create", "travels", "-c", "xp:sum:high", "-c", "mode:last:text", "--period", "all", *facets)
    path = tmp_path / "players.csv"
    lines = "ada,7,Côte d'Ivoire,solo\nbob,5,Côte d'Ivoire,\ncy,3,,\ndan,,France,\neve,1,a:b,solo\n"
    path.write_text(f"id,score,land,mode\n{lines}", encoding="utf-8")
    arguments = (
        "import",
        "travels",
        str(path),
        "--family",
        "--owner-column",
        "id",
        "-c",
        "xp=score",
        "-c",
        "country=land",
    )
    result = shell(*arguments, "-c", "mode", code=1)
    assert "5 lines: 3 applied, 0 unchanged, 0 duplicate, 2 rejected" in result.stdout
    assert "line 5: no value in any of the mapped columns" in result.stderr
    assert "line 6: bad_value" in result.stderr
    assert "3 duplicate" in shell(*arguments, "-c", "mode", code=1).stdout
    boards = {
        "": ["ada", "bob", "cy"],
        ":country=Côte d'Ivoire": ["ada", "bob"],
        ":country=Côte d'Ivoire,mode=solo": ["ada"],
    }
    for named, owners in boards.items():
        assert [row[1] for row in shell.rows("top", f"travels:all{named}", "-c", "xp")[1:]] == owners
    assert "solo" in shell("export", "travels:all", "-c", "xp").stdout, "mode is a column, too"
    wrong = shell("import", "travels", str(path), "--family", "--owner-column", "id", "-c", "team", code=1)
    assert "no column 'team'; it has xp, mode, country" in wrong.stderr


def test_top_and_rank_print_the_answers_of_the_service(small: Shell) -> None:
    rows = [row[:3] for row in small.rows("top", "small", "-c", "xp", "-n", "3")]
    assert rows == [["rank", "owner", "xp"], ["1", "p38", "19"], ["1", "p39", "19"], ["3", "p36", "18"]]
    assert [row[:2] for row in small.rows("top", "small", "-clap", "-n", "1", "--from-rank", "7")][1] == ["7", "p06"]
    xp, lap = small.rows("rank", "small", "p10")[1:]
    assert xp[:5] == ["xp", "5", "29", "exact", "40"]
    assert lap[:5] == ["lap", "10.500", "11", "exact", "40"]
    (value,) = small.rows("rank", "small", "--column", "lap", "--value", "0.001")[1:]
    assert value[:4] == ["lap", "0.001", "1", "exact"]
    assert "unknown_owner" in small("rank", "small", "nobody", code=1).stderr


def test_the_season_of_the_demo_answers_every_request_that_the_demo_prints(
    spawn: Spawn, tmp_path: Path, unused_tcp_port: int
) -> None:
    command = [sys.executable, str(DEMO), "--once", "--players", "1500", "--port", str(unused_tcp_port)]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    assert "1,500 players: 1,500 applied" in done.stdout
    assert "curve of wins: 1,500 entries" in done.stdout
    paths = re.findall(r"curl 'http://127\.0\.0\.1:\d+(/\S+)'", done.stdout)
    assert len(paths) == 4
    process = spawn("--store", f"sqlite:///{tmp_path}/data/demo.db").ready()
    for path in paths:
        answer = get(process, path)
        rows = answer.get("positions") or answer.get("entries") or answer["values"]
        assert rows
        assert all(row["rank"] >= 1 for row in rows if row["value"] is not None)


def test_queued_posts_are_applied_and_the_queue_can_be_shown(shell: Shell) -> None:
    shell("board", "create", "queued", "--column", "xp:sum:high")
    posts = [{"owner": f"p{n}", "stats": {"xp": n}} for n in range(1, 501)]
    with Client(shell.process.url) as client:
        client.post("queued", posts, queued=True)
    deadline_s = time.monotonic() + WAIT_S
    while (state := json.loads(shell("queue", "show").stdout))["posts"]:
        assert time.monotonic() < deadline_s
    assert sum(shard["applied"] for shard in state["shards"]) >= 500
    assert shell.rows("top", "queued", "-c", "xp")[1][1] == "p500"

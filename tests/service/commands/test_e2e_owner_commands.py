"""The commands for owners, the journal of posts and streams, and `rankcurve rebuild` as an operator runs it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from typer.testing import CliRunner, Result

from service.cli import app
from tests.service.real_service import WAIT_S, Process, Spawn, command_line, environment


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path).ready()
    call(process, "PUT", "/v1/leaderboards/b", {"columns": [{"name": "xp", "sorted": True, "merge": "sum"}]})
    post(process, ada=30, bob=20, cleo=10)
    yield process
    process.discard()


def call(process: Process, method: str, path: str, body: object = None) -> Any:
    """Send a request that must succeed; return the body of its answer."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(process.url + path, data=data, method=method, headers={"Content-Type": "application/json"})
    with urlopen(request, timeout=WAIT_S) as response:
        return json.loads(response.read() or "null")


def post(process: Process, **xp: int) -> None:
    posts = [{"owner": owner, "stats": {"xp": value}} for owner, value in xp.items()]
    call(process, "POST", "/v1/leaderboards/b/posts", {"posts": posts})


def top(process: Process) -> list[str]:
    return [entry["owner"] for entry in call(process, "GET", "/v1/leaderboards/b/rankings/xp")["entries"]]


def run(process: Process, *arguments: str, code: int = 0, answer: str | None = None) -> Result:
    result = CliRunner().invoke(app, [*arguments, "--url", process.url], input=answer)
    assert result.exit_code == code, result.output
    return result


def test_an_operator_hides_shows_and_erases_an_owner(serving: Process) -> None:
    run(serving, "owner", "hide", "bob")
    assert top(serving) == ["ada", "cleo"]
    run(serving, "owner", "show", "bob")
    assert top(serving) == ["ada", "bob", "cleo"]
    run(serving, "owner", "erase", "bob", code=1, answer="n\n")
    assert top(serving) == ["ada", "bob", "cleo"]
    run(serving, "owner", "erase", "bob", "--yes")
    assert top(serving) == ["ada", "cleo"]


def test_a_profile_is_stored_and_printed(serving: Process) -> None:
    run(serving, "owner", "profile", "ada", '{"name": "Ada"}')
    assert json.loads(run(serving, "owner", "profile", "ada").stdout) == {"name": "Ada"}
    run(serving, "owner", "profile", "ada", "{", code=1)


def test_the_journal_and_the_posts_of_an_owner_are_printed_line_by_line(serving: Process) -> None:
    post(serving, ada=5)
    lines = [json.loads(line) for line in run(serving, "journal").stdout.splitlines()]
    assert [line["owner"] for line in lines] == ["ada", "bob", "cleo", "ada"]
    rest = run(serving, "journal", "--after", str(lines[2]["seq"])).stdout.splitlines()
    assert [json.loads(line)["stats"] for line in rest] == [{"xp": 5}]
    assert '"xp": 5' in run(serving, "owner", "posts", "ada", "-n", "1").stdout


def test_each_event_of_a_stream_is_printed_at_once(serving: Process) -> None:
    words = [sys.executable, "-m", "service.cli", "stream", "b", "xp", "--top", "1", "--url", serving.url]
    unbuffered = {**environment(), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=unbuffered) as following:
        assert following.stdout is not None
        first = json.loads(following.stdout.readline())
        post(serving, bob=90)
        second = json.loads(following.stdout.readline())
        following.terminate()
    assert [event["data"]["entries"][0]["owner"] for event in (first, second)] == ["ada", "bob"]
    assert second["id"] > first["id"]


def test_a_board_can_be_rebuilt_only_while_no_service_runs(serving: Process) -> None:
    before = call(serving, "GET", "/v1/leaderboards/b/rankings/xp")["entries"]
    folder = serving.folder
    refused = command_line("rebuild", "b", "--store", serving.store, cwd=folder, code=1)
    assert "stop the service first" in refused.stderr
    assert serving.end() == 0
    done = command_line("rebuild", "b", "--store", serving.store, cwd=folder, code=0)
    assert "3 entries before, 3 now" in done.stdout
    command_line("rebuild", "no", "--store", serving.store, cwd=folder, code=1)
    again = Process(folder).ready()
    assert call(again, "GET", "/v1/leaderboards/b/rankings/xp")["entries"] == before
    again.discard()


def test_a_deleted_and_recreated_board_can_be_rebuilt_from_the_journal(
    either_store: dict[str, str], spawn: Spawn, tmp_path: Path
) -> None:
    store = either_store.get("store", f"sqlite:///{tmp_path}/rankcurve.db")
    serving = spawn("--store", store).ready()
    spec = {"columns": [{"name": "xp", "sorted": True, "merge": "sum"}], "ties": "earliest"}
    call(serving, "PUT", "/v1/leaderboards/other", spec)
    call(serving, "PUT", "/v1/leaderboards/b", spec)
    call(serving, "POST", "/v1/leaderboards/other/posts", {"owner": "ada", "stats": {"xp": 1}})
    post = {"stats": {"xp": 1}}
    wins = [
        {**post, "owner": f"o{(day * 7 + win) % 5}", "post_id": f"{day}/{win}", "at": f"2026-10-{day:02}T12:00:00Z"}
        for day in range(1, 31)
        for win in range(4)
    ]
    call(serving, "POST", "/v1/leaderboards/b/posts", {"posts": wins})
    before = call(serving, "GET", "/v1/leaderboards/b/rankings/xp")["entries"]
    lines = [json.loads(line) for line in run(serving, "journal").stdout.splitlines()]
    first = next(line["seq"] for line in lines if line["board"] == "b")
    call(serving, "DELETE", "/v1/leaderboards/b")
    call(serving, "PUT", "/v1/leaderboards/b", spec)
    assert serving.end() == 0
    nothing = command_line("rebuild", "b", "--store", store, cwd=tmp_path, code=1)
    assert f"--since {first}" in nothing.stderr
    done = command_line("rebuild", "b", "--since", str(first), "--store", store, cwd=tmp_path, code=0)
    assert "0 entries before, 5 now" in done.stdout
    again = spawn("--store", store).ready()
    assert call(again, "GET", "/v1/leaderboards/b/rankings/xp")["entries"] == before
    [result] = call(again, "POST", "/v1/leaderboards/b/posts", {"posts": wins[:1]})["results"]
    assert result["status"] == "duplicate"

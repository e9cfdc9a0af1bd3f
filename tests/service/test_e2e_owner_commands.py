"""The commands on owners, the journal and streams, and a rebuild as an operator does it."""

from __future__ import annotations

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
from tests.service.real_service import WAIT_S, Process, command_line, environment


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Process]:
    """A service with a board and three owners on it."""
    process = Process(tmp_path).ready()
    call(process, "PUT", "/v1/leaderboards/b", {"columns": [{"name": "xp", "sorted": True, "merge": "sum"}]})
    post(process, ada=30, bob=20, cleo=10)
    yield process
    process.discard()


def call(process: Process, method: str, path: str, body: object = None) -> Any:
    """The body of an answer that is a success."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(process.url + path, data=data, method=method, headers={"Content-Type": "application/json"})
    with urlopen(request, timeout=WAIT_S) as response:
        content = response.read()
        return json.loads(content) if content else None


def post(process: Process, **xp: int) -> None:
    posts = [{"owner": owner, "stats": {"xp": value}} for owner, value in xp.items()]
    call(process, "POST", "/v1/leaderboards/b/posts", {"posts": posts})


def top(process: Process) -> list[str]:
    return [entry["owner"] for entry in call(process, "GET", "/v1/leaderboards/b/rankings/xp")["entries"]]


def run(process: Process, *arguments: str, code: int = 0, answer: str | None = None) -> Result:
    result = CliRunner().invoke(app, [*arguments, "--url", process.url], input=answer)
    assert result.exit_code == code, result.output
    return result


def test_owners_are_hidden_shown_and_erased(serving: Process) -> None:
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


def test_the_journal_and_an_owners_posts_are_printed_by_line(serving: Process) -> None:
    post(serving, ada=5)
    lines = [json.loads(line) for line in run(serving, "journal").stdout.splitlines()]
    assert [line["owner"] for line in lines] == ["ada", "bob", "cleo", "ada"]
    rest = run(serving, "journal", "--after", str(lines[2]["seq"])).stdout.splitlines()
    assert [json.loads(line)["stats"] for line in rest] == [{"xp": 5}]
    assert '"xp": 5' in run(serving, "owner", "posts", "ada", "-n", "1").stdout


def test_a_stream_is_printed_as_it_comes(serving: Process) -> None:
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


def test_a_board_is_rebuilt_while_nobody_serves_it(serving: Process) -> None:
    before = call(serving, "GET", "/v1/leaderboards/b/rankings/xp")["entries"]
    folder = serving.folder
    refused = command_line("rebuild", "b", "--store", serving.store, cwd=folder)
    assert refused.returncode == 1
    assert "stop the service first" in refused.stderr
    assert serving.end() == 0
    done = command_line("rebuild", "b", "--store", serving.store, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "3 entries before, 3 now" in done.stdout
    unknown = command_line("rebuild", "no", "--store", serving.store, cwd=folder)
    assert unknown.returncode == 1
    again = Process(folder).ready()
    assert call(again, "GET", "/v1/leaderboards/b/rankings/xp")["entries"] == before
    again.discard()

"""The commands for owners, leases, the journal of posts and streams, and `rankcurve rebuild`, on a real service."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from typer.testing import Result

from tests.service.cli_fake_service import run as run_here
from tests.service.real_service import WAIT_S, Process, Spawn, environment

Run = Callable[..., Result]


SPEC = {"columns": [{"name": "xp", "sorted": True, "merge": "sum"}]}


@pytest.fixture
def board(serving: Process) -> Iterator[Process]:
    """Return the service with a new board `b`."""
    make_board(serving)
    yield serving
    call(serving, "DELETE", "/v1/leaderboards/b")


def make_board(process: Process) -> None:
    call(process, "PUT", "/v1/leaderboards/b", SPEC)
    post(process, ada=30, bob=20, cleo=10)


def call(process: Process, method: str, path: str, body: object = None) -> Any:
    """Send a request that must succeed. Return the body of the answer."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(process.url + path, data=data, method=method, headers={"Content-Type": "application/json"})
    with urlopen(request, timeout=WAIT_S) as response:
        return json.loads(response.read() or "null")


def post(process: Process, **xp: int) -> None:
    posts = [{"owner": owner, "stats": {"xp": value}} for owner, value in xp.items()]
    call(process, "POST", "/v1/leaderboards/b/posts", {"posts": posts})


def top(process: Process) -> list[str]:
    return [entry["owner"] for entry in call(process, "GET", "/v1/leaderboards/b/rankings/xp")["entries"]]


def test_an_operator_takes_back_a_post_and_resets_boards(board: Process, run: Run) -> None:
    spec = {"columns": [{"name": "xp", "sorted": True, "merge": "sum"}], "periods": ["all", "week"]}
    call(board, "PUT", "/v1/families/game", spec)
    run_of = {"owner": "zoe", "stats": {"xp": 999}, "post_id": "run/1"}
    for place in ("leaderboards/b", "families/game"):
        call(board, "POST", f"/v1/{place}/posts", run_of)
    assert top(board)[0] == "zoe"
    [voided] = json.loads(run("post", "void", "b", "run/1", "--owner", "zoe").stdout)
    assert (voided["board"], voided["status"]) == ("b", "recomputed")
    assert "zoe" not in top(board)
    assert len(json.loads(run("post", "void", "game", "run/1", "--owner", "zoe", "--family").stdout)) == 2
    assert "unknown_post" in run("post", "void", "b", "run/2", "--owner", "zoe", code=1).stderr
    run("board", "reset", "b", code=1, typed="n\n")
    assert top(board)
    run("board", "reset", "b", "--yes")
    assert top(board) == []
    answer = json.loads(run("family", "reset", "game", "--period", "week", "--yes").stdout)
    assert answer["boards"] == 1


def test_an_operator_hides_unhides_and_erases_an_owner(board: Process, run: Run) -> None:
    run("owner", "hide", "bob")
    assert top(board) == ["ada", "cleo"]
    run("owner", "unhide", "bob")
    assert top(board) == ["ada", "bob", "cleo"]
    run("owner", "erase", "bob", code=1, typed="n\n")
    assert top(board) == ["ada", "bob", "cleo"]
    run("owner", "erase", "bob", "--yes")
    assert top(board) == ["ada", "cleo"]


def test_an_operator_erases_many_entries_at_once(board: Process, run: Run) -> None:
    run("owner", "erase-entries", "b", "--owner", "bob", code=1, typed="n\n")
    assert "worse_than" in run("owner", "erase-entries", "b", "--yes", code=1).stderr
    assert (
        run("owner", "erase-entries", "b", "--owner", "bob", "--owner", "none", "--yes").stderr == "erased 1 entries\n"
    )
    assert top(board) == ["ada", "cleo"]
    run("owner", "erase-entries", "b", "--column", "xp", "--from-rank", "2", "--yes", "--reason", "keep the best")
    assert top(board) == ["ada"]


def test_acts_and_hidden_owners_are_listed_with_the_reasons_that_commands_gave(serving: Process, run: Run) -> None:
    run("board", "create", "acted", "-c", "xp:sum")
    run("owner", "hide", "ida", "--shadow", "--reason", "speed hack")
    rows = [line.split() for line in run("owner", "hidden").stdout.splitlines()]
    assert rows[0] == ["owner", "since", "key", "shadow", "reason"]
    assert [row[:1] + row[2:] for row in rows[1:]] == [["ida", "yes", "speed", "hack"]]
    kinds = [json.loads(line)["kind"] for line in run("owner", "export", "ida").stdout.splitlines()]
    assert kinds == ["export", "hidden_owners", "acts", "end"]
    run("owner", "unhide", "ida", "--reason", "wrong")
    assert len(run("owner", "hidden").stdout.splitlines()) == 1
    run("board", "reset", "acted", "--yes", "--reason", "new season")
    run_of = {"owner": "ida", "stats": {"xp": 9}, "post_id": "run"}
    call(serving, "POST", "/v1/leaderboards/acted/posts", run_of)
    run("post", "void", "acted", "run", "--owner", "ida", "--reason", "bug")
    assert run("board", "delete", "acted", "--yes", "--reason", "over").stderr == "done: delete acted\n"
    found = json.loads(run("acts", "--board", "acted", "--json").stdout)
    acts = [("board.deleted", "over"), ("post.voided", "bug"), ("board.reset", "new season"), ("board.created", None)]
    assert [(act["act"], act["reason"]) for act in found] == acts
    table = run("acts", "--owner", "ida", "--limit", "2").stdout.splitlines()
    assert [line.split()[1] for line in table] == ["act", "post.voided", "owner.shown"]
    assert run("acts", "--by", "none").stdout.split() == ["at", "act", "key", "owner", "board", "reason", "detail"]


def test_show_prints_the_entries_of_an_owner_and_leaves_a_hidden_one_hidden(board: Process, run: Run) -> None:
    rows = [line.split() for line in run("owner", "show", "bob").stdout.splitlines()]
    assert (rows[0], rows[1][:3]) == (["board", "values", "updated"], ["b", "xp", "20"])
    assert json.loads(run("owner", "show", "bob", "--json").stdout)[0]["stats"] == {"xp": 20}
    run("owner", "hide", "bob")
    run("owner", "show", "bob")
    assert top(board) == ["ada", "cleo"]
    run("owner", "unhide", "bob")


ID = "letters, digits and ._:=,@+- of ASCII, a letter or digit first"
LOWER = "lower-case letters, digits and _, a letter first"
TIME = "a time such as 2026-12-31T23:00:00Z"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("board create zz -c XP:sum", f"Expected 1 to 48 {LOWER} at /columns/0/name"),
        ("board create zz -c xp:sum --closes-at tomorrow", f"Expected {TIME} at /closes_at"),
        ("board create zz -c xp:sum --closes-at 2030-01-01T00:00:00", f"Expected {TIME} at /closes_at"),
        ("board create z/z -c xp:sum", f"'z/z' is not a leaderboard id: 1 to 128 {ID}"),
        ("family create g! -c xp:sum", "'g!' is not the id of a family: 1 to 32 letters, digits, _ and - of ASCII"),
        ("family create g -c xp:sum --facets Org", f"Expected 1 to 16 {LOWER} at /facets/1/0"),
        ("top b -c XP", f"'XP' is not a column name: 1 to 48 {LOWER}"),
        ("family board g --period week --at tomorrow", f"at 'tomorrow': Expected {TIME}"),
    ],
)
@pytest.mark.usefixtures("board")
def test_a_wrong_name_or_time_is_explained_once_and_in_words(run: Run, words: str, message: str) -> None:
    told = run(*words.split(), code=1).stderr
    assert message in told
    assert not re.search(r"regex|\^\[|RFC ?3339", told)
    assert told.count("letters") + told.count("a time") == 1, "the message is not repeated"


def test_the_fastest_lap_leads_a_board_that_was_created_as_min_and_is_closed_at_any_time(
    serving: Process, run: Run
) -> None:
    run("board", "create", "laps", "-c", "lap:min")
    call(serving, "POST", "/v1/leaderboards/laps/posts", [
        {"owner": owner, "stats": {"lap": lap}} for owner, lap in (("slow", 90), ("fast", 60))
    ])  # fmt: skip
    assert [line.split()[1] for line in run("top", "laps").stdout.splitlines()[1:]] == ["fast", "slow"]
    closing = json.loads(run("board", "close", "laps").stdout)
    assert (closing["grace_seconds"], closing["closes_at"] > closing["created_at"]) == (0, True)


@pytest.mark.parametrize("words", ["hide", "unhide", "erase --yes"])
def test_a_change_of_an_owner_without_entries_comes_with_a_warning(board: Process, run: Run, words: str) -> None:
    post(board, dan=5)
    for owner, warns in (("nobody-at-all", True), ("dan", words == "unhide"), ("dan", words != "hide")):
        told = run("owner", *words.split(), owner, code=0).stderr
        assert told.startswith("changed ")
        assert ("warning: there are no entries of this owner" in told) == warns, (words, owner)
    run("owner", "erase", "dan", "--yes")


def test_the_journal_and_the_posts_of_an_owner_are_printed_line_by_line(board: Process, run: Run) -> None:
    post(board, ada=5)
    lines = [json.loads(line) for line in run("journal").stdout.splitlines()][-4:]
    assert [line["owner"] for line in lines] == ["ada", "bob", "cleo", "ada"]
    rest = run("journal", "--after", str(lines[2]["seq"])).stdout.splitlines()
    assert [json.loads(line)["stats"] for line in rest] == [{"xp": 5}]
    [newest, first, *_] = [json.loads(line) for line in run("owner", "posts", "ada").stdout.splitlines()]
    assert [newest["stats"], first["stats"]] == [{"xp": 5}, {"xp": 30}]
    assert [json.loads(run("owner", "posts", "ada", "-n", "1").stdout)] == [newest]


def test_each_event_of_a_stream_is_printed_at_once(board: Process) -> None:
    words = [sys.executable, "-m", "service.cli", "stream", "b", "xp", "--top", "1", "--url", board.url]
    unbuffered = {**environment(), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=unbuffered) as following:
        assert following.stdout is not None
        first = json.loads(following.stdout.readline())
        post(board, bob=90)
        second = json.loads(following.stdout.readline())
        following.terminate()
    assert [event["data"]["entries"][0]["owner"] for event in (first, second)] == ["ada", "bob"]
    assert second["id"] > first["id"]


def test_a_board_can_be_rebuilt_only_while_no_service_runs(spawn: Spawn) -> None:
    serving = spawn().ready()
    make_board(serving)
    before = call(serving, "GET", "/v1/leaderboards/b/rankings/xp")["entries"]
    refused = run_here("rebuild", "b", "--store", serving.store, code=1)
    assert "stop the service first" in refused.stderr
    assert serving.end() == 0
    done = run_here("rebuild", "b", "--store", serving.store, "--reason", "tampered", code=0)
    assert "3 entries before, 3 now" in done.stdout
    run_here("rebuild", "no", "--store", serving.store, code=1)
    again = spawn().ready()
    assert call(again, "GET", "/v1/leaderboards/b/rankings/xp")["entries"] == before
    [act, *_] = call(again, "GET", "/v1/acts")["acts"]
    assert (act["act"], act["board"], act["reason"]) == ("board.rebuilt", "b", "tampered")


def test_a_rebuild_creates_no_store(tmp_path: Path) -> None:
    refused = run_here("rebuild", "b", "--store", f"sqlite:///{tmp_path}/typo/rankcurve.db", code=1)
    assert f"there is no store at {tmp_path}/typo/rankcurve.db" in refused.stderr
    assert not list(tmp_path.iterdir())


def test_an_operator_fills_leases_and_empties_a_pool(run: Run) -> None:
    assert json.loads(run("pool", "create", "acme", "numbers").stdout)["pool_id"] == "numbers"
    numbers = [f"+49 {number}" for number in range(1_000)]
    added = run("pool", "add", "acme", "numbers", "--region", "eu", *numbers)
    assert json.loads(added.stdout) == {"added": 1_000, "known": 0}
    lease = json.loads(run("lease", "get", "acme", "numbers", "call 1", "--region", "eu", "--seconds", "90").stdout)
    assert lease["acquired"] is True
    assert json.loads(run("lease", "show", "acme", "numbers", "call 1").stdout)["resource"] == lease["resource"]
    rows = [line.split() for line in run("pool", "show", "acme", "numbers").stdout.splitlines()]
    assert rows == [["region", "total", "leased", "available", "headroom"], ["eu", "1000", "1", "999"]]
    run("lease", "give-back", "acme", "numbers", "call 1")
    run("lease", "give-back", "acme", "numbers", "call 1", code=1)
    removed = run("pool", "remove", "acme", "numbers", *numbers)
    assert json.loads(removed.stdout) == {"removed": 1_000, "leased": 0, "unknown": 0}
    dry = run("lease", "get", "acme", "numbers", "call 2", "--region", "eu", code=1)
    assert "pool show" in dry.output
    lines = [json.loads(line) for line in run("lease", "journal", "--after", "0", "--limit", "2").stdout.splitlines()]
    assert [line["kind"] for line in lines] == ["added", "added"]


def test_pools_are_listed_and_deleted(run: Run) -> None:
    run("pool", "create", "bolt", "one")
    run("pool", "create", "bolt", "two")
    pools = json.loads(run("pool", "list", "--client", "bolt", "--json").stdout)
    assert [each["pool_id"] for each in pools] == ["one", "two"]
    assert "two" in run("pool", "list").stdout
    run("pool", "add", "bolt", "one", "--region", "eu", "x")
    assert [each["resource"] for each in json.loads(run("pool", "resources", "bolt", "one", "--json").stdout)] == ["x"]
    assert "x" in run("pool", "resources", "bolt", "one").stdout
    run("pool", "delete", "bolt", "one", code=1, typed="n\n")
    run("pool", "delete", "bolt", "one", "--yes")
    assert "pool list" in run("pool", "show", "bolt", "one", code=1).output


def test_invalid_lease_commands_are_refused_before_any_request(run: Run) -> None:
    run("pool", "add", "acme", "numbers", "--region", "eu", code=2)
    run("pool", "add", "acme", "numbers", "x", code=2)

"""Test the way from Redis and back with a real Redis: `import --redis` and `export --format redis`."""

import csv
import random
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import Redis
from typer.testing import Result

from service.commands.imports.sending import BATCH_POSTS
from tests.servers import RedisServer, program
from tests.service.real_service import ROOT

MEMBERS = 3_000  # far more than Redis returns in one batch

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis(redis_server: RedisServer) -> Iterator[Redis]:
    with Redis(port=redis_server.port) as connection:
        connection.flushall()
        yield connection


@pytest.fixture
def copy(run: Run, redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that copies the sorted set `arena` to a board, in a folder of the test."""
    monkeypatch.chdir(tmp_path)

    def copy_set(board: str, *more: str, key: str = "arena", code: int | None = 0) -> Result:
        return run("import", "--redis", f"redis://{redis_server.address}", key, board, *more, code=code)

    return copy_set


def make_board(run: Run, board: str, column: str = "xp:max:high:scale=3") -> str:
    run("board", "create", board, "-c", column)
    return board


def entries(run: Run, board: str) -> dict[str, tuple[int, float]]:
    """Return rank and value of every owner."""
    rows = csv.DictReader(run("export", board, code=0).stdout.splitlines())
    return {row["owner"]: (int(row["rank"]), float(row["xp"])) for row in rows}


def scores(redis: Redis, key: str = "arena") -> dict[str, float]:
    return {member.decode(): score for member, score in redis.zscan_iter(key)}


def fill(redis: Redis, members: int = MEMBERS) -> None:
    redis.zadd("arena", {f"p{number}": number // 3 / 8 for number in range(members)})


def test_every_member_has_its_score_and_the_rank_that_redis_counts(run: Run, copy: Run, redis: Redis) -> None:
    fill(redis)
    redis.zadd("arena", {"deep": -12.125, "zero": -0.0, "high": 4e14, "Zoë the 1st": 7})
    board = make_board(run, "all")
    assert f"{MEMBERS + 4:,} members: {MEMBERS + 4:,} applied" in copy(board).stdout
    copied = entries(run, board)
    assert {owner: score for owner, (_, score) in copied.items()} == scores(redis)
    for owner in ("p0", "p1500", "deep", "high"):
        assert copied[owner][0] == 1 + redis.zcount("arena", f"({copied[owner][1]}", "+inf")


def test_equal_scores_are_ordered_by_name_where_the_first_one_leads(run: Run, copy: Run, redis: Redis) -> None:
    assert f"up to {BATCH_POSTS:,} members" in (ROOT / "docs" / "migrating.md").read_text(encoding="utf-8")
    members = [f"m{number:04}" for number in range(MEMBERS)]
    redis.zadd("arena", dict.fromkeys(random.Random(4).sample(members, MEMBERS), 7.0))
    assert [member.decode() for member, _ in redis.zscan_iter("arena")] != members
    run("board", "create", "first", "-c", "xp:max", "--ties", "earliest")
    copy("first")
    assert {owner: rank for owner, (rank, _) in entries(run, "first").items()} == {
        member: rank for rank, member in enumerate(members, start=1)
    }


def test_scores_that_change_during_the_copy_are_right_after_a_second_copy(
    run: Run, copy: Run, redis: Redis, redis_server: RedisServer
) -> None:
    fill(redis)
    board, ended, changed = make_board(run, "live"), threading.Event(), 0

    def play() -> None:
        nonlocal changed
        chance = random.Random(7)
        with Redis(port=redis_server.port) as game:
            while not ended.is_set():
                # Scores rise and fall, players join, and so many of them that Redis enlarges its table meanwhile.
                game.zadd("arena", {f"p{chance.randrange(MEMBERS)}": chance.randrange(-9999, 9999) / 8})
                game.zadd("arena", {f"new{changed}": chance.randrange(9999)})
                changed += 1

    player = threading.Thread(target=play)
    player.start()
    try:
        copy(board)
    finally:
        ended.set()
        player.join()
    assert changed > 0
    copy(board)
    assert {owner: score for owner, (_, score) in entries(run, board).items()} == scores(redis)


def test_members_that_cannot_be_owners_are_listed_and_all_others_are_copied(run: Run, copy: Run, redis: Redis) -> None:
    fill(redis, 300)
    bad = {b"\xff\xfe": 1.0, b"": 2.0, b"x" * 129: 3.0, b"a\tb": 4.0, b"boundless": float("inf"), b"fine": 0.0625}
    redis.zadd("arena", bad)
    board = make_board(run, "some")
    result = copy(board, code=1)
    assert "306 members: 300 applied, 0 unchanged, 0 duplicate, 6 rejected" in result.stdout
    for reason in ("1 to 128 characters of UTF-8", "'boundless': bad_value", "'fine': bad_value", "'\\udcff\\udcfe': "):
        assert reason in result.stderr
    assert len(entries(run, board)) == 300
    rounded = copy(board, "--round", code=1)
    assert "1 applied, 300 unchanged, 0 duplicate, 5 rejected" in rounded.stdout
    assert entries(run, board)["fine"][1] == 0.063


def test_no_score_replaces_that_of_a_member_that_would_be_the_same_owner(run: Run, copy: Run, redis: Redis) -> None:
    fill(redis, 300)
    redis.zadd("arena", {"Zo\u00eb": 1, "Zoe\u0308": 2, "\u212b": 3, "A\u030a": 4, "Jose\u0301": 5, "\u00c9va": 6})
    board = make_board(run, "twins")
    for more in ([], ["--merge"]):
        result = copy(board, *more, code=1)
        assert "3 rejected" in result.stdout
        assert "member 'Zo\\xeb': the member 'Zoe\\u0308' is the same owner after normalisation (NFC)" in result.stderr
    assert {owner for owner in entries(run, board) if not owner.isascii()} == {"Jos\u00e9", "\u00c9va", "\u00c5"}
    redis.zrem("arena", "Zoe\u0308", "\u212b")
    assert "1 applied, 303 unchanged" in copy(board).stdout


@pytest.mark.parametrize("how", ["rename", "flushall", "replace"])
def test_a_set_that_vanishes_during_the_copy_is_no_success(
    run: Run, copy: Run, redis: Redis, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    fill(redis)
    board, scan = make_board(run, how), Redis.zscan_iter

    def scan_and_vanish(scanning: Redis, name: str, count: int) -> Iterator[tuple[str, float]]:
        for number, found in enumerate(scan(scanning, name, count=count)):
            yield found
            if number == 0:
                redis.rename("arena", "before") if how == "rename" else redis.flushall()
                if how == "replace":
                    redis.zadd("arena", {"new": 1.0})

    with monkeypatch.context() as patch:
        patch.setattr(Redis, "zscan_iter", scan_and_vanish)
        assert "emptied, renamed or replaced while it was copied" in copy(board, code=1).stderr


def test_a_merged_score_never_replaces_a_better_one_that_the_game_posted(run: Run, copy: Run, redis: Redis) -> None:
    redis.zadd("arena", {"ada": 10, "bob": 30})
    board = make_board(run, "both")
    copy(board)
    redis.zadd("arena", {"ada": 5, "bob": 40})
    copy(board, "--merge")
    assert {owner: score for owner, (_, score) in entries(run, board).items()} == {"ada": 10, "bob": 40}


@pytest.mark.parametrize(
    ("key", "more", "reason"),
    [
        ("none", [], "no such key"),
        ("names", [], "wrong kind of value"),
        ("arena", ["--merge"], "xp merges by sum"),
        ("arena", ["--column", "xp", "--column", "best"], "names one column"),
        ("arena", ["--column", "tag"], "no column of numbers takes the scores; the leaderboard has xp"),
        ("arena", ["--column", "lap"], "no column of numbers takes the scores"),
    ],
)
def test_a_copy_that_cannot_begin_says_why(
    run: Run, copy: Run, redis: Redis, key: str, more: list[str], reason: str
) -> None:
    redis.rpush("names", "ada")
    redis.zadd("arena", {"ada": 1})
    run("board", "create", "typed", "-c", "xp:sum:high", "-c", "tag:last:text")
    result = copy("typed", *more, key=key, code=1)
    assert reason in result.stderr
    assert entries(run, "typed") == {}


def test_a_redis_that_does_not_answer_is_named(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    board = make_board(run, "away")
    result = run("import", "--redis", "redis://:secret@127.0.0.1:1", "arena", board, code=1)
    assert "error: 127.0.0.1:1 arena: " in result.stderr
    assert "secret" not in result.stderr
    assert "scheme" in run("import", "--redis", "http://127.0.0.1", "arena", board, code=1).stderr


def answer_as_old_redis(
    members: bytes, cardinality: bytes = b":1\r\n"
) -> Callable[[socketserver.StreamRequestHandler], None]:
    """Return a handler that speaks RESP2, does not know HELLO, and answers ZSCAN with `members`."""

    def handle(connection: socketserver.StreamRequestHandler) -> None:
        answers = {b"ZCARD": cardinality, b"ZSCAN": members, b"ZSCORE": b"$-1\r\n"}
        while line := connection.rfile.readline():
            words = []
            for _ in range(int(line[1:])):
                size = int(connection.rfile.readline()[1:])
                words.append(connection.rfile.read(size + 2)[:-2])
            connection.wfile.write(answers.get(words[0], b"-ERR unknown command\r\n"))

    return handle


@contextmanager
def old_redis(members: bytes, cardinality: bytes = b":1\r\n") -> Iterator[str]:
    kind = type("Handler", (socketserver.StreamRequestHandler,), {"handle": answer_as_old_redis(members, cardinality)})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"redis://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_server_without_hello_is_copied(run: Run) -> None:
    board = make_board(run, "old")
    with old_redis(b"*2\r\n$1\r\n0\r\n*2\r\n$3\r\nada\r\n$3\r\n1.5\r\n") as url:
        assert "1 members: 1 applied" in run("import", "--redis", url, "arena", board).stdout
    assert entries(run, board) == {"ada": (1, 1.5)}


@pytest.mark.parametrize(
    ("members", "cardinality"),
    [
        (b":7\r\n", b":1\r\n"),
        (b"*1\r\n$1\r\n0\r\n", b":1\r\n"),
        (b"$-1\r\n", b":1\r\n"),
        (b"*2\r\n$1\r\n0\r\n:7\r\n", b":1\r\n"),
        (b"*2\r\n$1\r\nx\r\n*0\r\n", b":1\r\n"),
        (b"*2\r\n$1\r\n0\r\n*2\r\n$3\r\nada\r\n$-1\r\n", b":1\r\n"),
        (b"*2\r\n$1\r\n0\r\n*2\r\n:7\r\n$1\r\n1\r\n", b":1\r\n"),
        (b"*2\r\n$1\r\n0\r\n*2\r\n*1\r\n:7\r\n$1\r\n1\r\n", b":1\r\n"),
        (b"*1\r\n" * 50_000, b":1\r\n"),
        (b"HTTP/1.1 400 Bad Request\r\n", b":1\r\n"),
        (b"*2\r\n$1\r\n0\r\n*0\r\n", b"$3\r\none\r\n"),
        (b"*2\r\n$1\r\n0\r\n*0\r\n", b"*1\r\n:1\r\n"),
    ],
)
def test_odd_replies_end_a_copy_with_one_line(run: Run, members: bytes, cardinality: bytes) -> None:
    board = make_board(run, "odd")
    with old_redis(members, cardinality) as url:
        told = run("import", "--redis", url, "arena", board, code=1).stderr
    assert told.startswith("error: redis://127.0.0.1:")
    assert told.count("\n") == 1
    assert entries(run, board) == {}


@pytest.mark.parametrize(
    "words",
    [
        ["b"],
        ["b", __file__, "--redis", "redis://h", "k"],
        ["b", __file__],
        ["b", __file__, "--owner-column", "id", "--merge"],
    ],
)
def test_a_copy_has_one_source(run: Run, words: list[str]) -> None:
    assert "--redis URL KEY" in run("import", *words, code=2).stderr


def test_without_the_package_of_redis_the_command_says_how_to_install_it(
    run: Run, copy: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    assert "pip install 'rankcurve[redis]'" in copy(make_board(run, "any"), code=1).stderr


def test_an_exported_ranking_is_the_same_sorted_set_again(
    run: Run, copy: Run, redis: Redis, redis_server: RedisServer
) -> None:
    fill(redis)
    redis.zadd("arena", {"Zoë the 1st": -0.125})
    board = make_board(run, "back")
    copy(board)
    run("export", board, "--format", "redis", "--redis-key", "again", "--output", "commands", code=0)
    pipe = [str(program("redis-cli", "redis-tools")), "-p", str(redis_server.port), "--pipe"]
    piped = subprocess.run(pipe, input=Path("commands").read_bytes(), capture_output=True, check=True)
    assert b"errors: 0" in piped.stdout
    assert scores(redis, "again") == scores(redis)


def test_the_name_of_a_sorted_set_needs_the_format_of_redis(run: Run) -> None:
    assert "--redis-key goes with --format redis" in run("export", "any", "--redis-key", "k", code=2).stderr

"""Tests the parts of `benchmarks.against_nakama` that need no Nakama, and its complaints at a server that is none."""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import against_nakama
from benchmarks.against_nakama import Players, check_leaderboard, find_port, nakama_targets, rank_bounds, session_owner
from benchmarks.client import HOST, BadAnswerError
from benchmarks.load import Target

pytestmark = pytest.mark.unit


def make_token(**claims: object) -> str:
    part = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{part}.signature"


@pytest.mark.parametrize("owner", ["a", "ab", "abc", "1dac9ffd-a53f-49a7-bed7-c963253af917", "ÿÿ?>"])
def test_the_owner_of_a_session_is_read_from_its_token(owner: str) -> None:
    assert session_owner(make_token(exp=1, uid=owner)) == owner


def test_only_a_nakama_on_this_machine_is_measured() -> None:
    assert find_port("http://127.0.0.1:8000") == 8000
    assert find_port("http://localhost/") == 7350
    for url in ("https://127.0.0.1:7350", "http://example.com:7350", "127.0.0.1:7350", "http://localhost:1/v2"):
        with pytest.raises(ValueError, match="on this machine"):
            find_port(url)


@given(st.lists(st.integers(0, 9), min_size=1))
def test_the_bounds_of_a_tie_contain_the_rank_of_each_of_its_rows(values: list[int]) -> None:
    best_first = sorted(values, reverse=True)
    for value in set(values):
        ranks = [rank for rank, found in enumerate(best_first, start=1) if found == value]
        assert rank_bounds(sorted(values), value) == (ranks[0], ranks[-1])


def test_reads_are_for_all_owners_and_increments_for_those_with_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(against_nakama, "_SESSIONS", 2)
    players = Players(["x", "y", "z"], tmp_path)
    players.write()
    assert players.readers.read_text() == "x\ny\nz\n"
    assert players.posters.read_text() == "x\ny\n"
    targets = nakama_targets(7350, players)
    assert targets["own position"].arguments(4)[-4:] == ["3", "4", "0.0", str(players.readers)]
    assert targets["top 10"].arguments(4) == ["fixed"]
    posts = ["post", "/v2/leaderboard/season", '{"score":"%d"}', "2", "4", "0.0", str(players.sessions)]
    assert targets["increments"].arguments(4) == posts


def test_a_post_to_a_column_is_a_format_for_the_amount_and_the_owner() -> None:
    _, path, body, *rest = Target("http://127.0.0.1", "/posts", column="xp", rows=7).arguments(1)
    assert (path, rest) == ("/posts", ["7", "1", "0.0"])
    assert json.loads(body % (5, "me")) == {"owner": "me", "stats": {"xp": 5}}


class FakeNakama:
    """Answers as Nakama does for one record, and takes increments and ranks off a leaderboard on demand."""

    def __init__(self) -> None:
        self.status, self.score, self.adds, self.ranks = 200, 0, True, True

    async def authenticate(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Basic ZGVmYXVsdGtleTo="
        return web.json_response({"token": make_token(uid="me")})

    async def write(self, request: web.Request) -> web.Response:
        assert session_owner(request.headers["Authorization"].removeprefix("Bearer ")) == "me"
        record = await request.json()
        kept = self.score if self.adds and record.get("operator") != "SET" else 0
        self.score = kept + int(record["score"])
        ranked = {"rank": "1"} if self.ranks else {}
        return web.json_response({"score": str(self.score), **ranked}, status=self.status)


@pytest.fixture
async def nakama() -> AsyncIterator[tuple[FakeNakama, int]]:
    fake, app = FakeNakama(), web.Application()
    app.router.add_post("/v2/account/authenticate/custom", fake.authenticate)
    app.router.add_post("/v2/leaderboard/season", fake.write)
    async with TestServer(app, host=HOST) as server:
        port = urlsplit(str(server.make_url("/"))).port
        assert port is not None
        yield fake, port


async def test_the_leaderboard_of_the_module_is_accepted(nakama: tuple[FakeNakama, int]) -> None:
    await check_leaderboard(nakama[1])
    await check_leaderboard(nakama[1])


async def test_a_nakama_without_the_leaderboard_is_refused(nakama: tuple[FakeNakama, int]) -> None:
    nakama[0].status = 404
    with pytest.raises(BadAnswerError, match="has no leaderboard season: the docstring"):
        await check_leaderboard(nakama[1])


@pytest.mark.parametrize(
    "change", [{"status": 403}, {"adds": False}, {"ranks": False}], ids=["writers", "sum", "ranks"]
)
async def test_another_kind_of_leaderboard_is_refused(
    nakama: tuple[FakeNakama, int], change: dict[str, object]
) -> None:
    for name, value in change.items():
        setattr(nakama[0], name, value)
    with pytest.raises(BadAnswerError, match="not open to clients, with the operator incr and ranks"):
        await check_leaderboard(nakama[1])

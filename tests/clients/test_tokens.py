"""Test clients whose key is a function that returns player tokens: when they call it, and what they send again."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from rankcurve import AsyncClient, Client, RankcurveError
from rankcurve.answers import OwnerEvent
from rankcurve.errors import BadTokenError, PostsRejectedError, TokenExpiredError, TokenVoidedError, UnsentPostsError

from tests.clients.served import problem_answer, serving_handler
from tests.clients.test_retries import Asked, Pauses
from tests.service.real_service import Service

CALLERS = 20


async def test_a_players_program_posts_and_follows_with_tokens_that_it_asks_for(
    service: Service, tmp_path: Path
) -> None:
    await service.board("arena", {"name": "xp", "merge": "sum"})
    asked: list[str] = []
    async with AsyncClient(service.base) as game:

        async def ask() -> str:
            issued = await game.issue_token("ada", ["arena"], posts=2, expires_in_s=60, limits={"xp": "500"})
            asked.append(issued.token)
            return issued.token

        async with AsyncClient(service.base, ask) as player:
            assert asked == [], "no token before the first request"
            posted = [await player.post_one("arena", "ada", n=n, xp=5) for n in (0, 0, 1)]
            assert [each.status for each in posted] == ["applied", "duplicate", "applied"]
            with pytest.raises(PostsRejectedError, match="post_limit"):
                await player.post("arena", {"owner": "ada", "stats": {"xp": 501}, "n": 0})
            await game.void_tokens("ada", reason="a lost phone")
            async with aclosing(player.stream("arena", owner="ada")) as events:
                first = await anext(events)
            assert isinstance(first.data, OwnerEvent)
            assert (first.data.value, len(asked)) == (10, 2)
            posts = player.buffer("arena", spool=tmp_path / "spool")
            await posts.submit("ada", {"xp": 1})
            with pytest.raises(UnsentPostsError, match="forbidden"):  # a buffer gives posts ids, and is for keys
                await posts.close()
    kept = b"".join(path.read_bytes() for path in (tmp_path / "spool").iterdir())
    assert b'"ada"' in kept
    assert not any(token.encode() in kept for token in asked)
    await asyncio.to_thread(play_sync, service.base)


def play_sync(url: str) -> None:
    with Client(url) as game, Client(url, lambda: game.issue_token("bob", ["arena"]).token) as player:
        assert player.post_one("arena", "bob", n=0, xp=20).status == "applied"
        game.void_tokens("bob")
        assert player.rank("arena", "bob") == 1


class Refusing:
    """A service that refuses some tokens, and loses the answer to a post once for each token of `lossy`."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}  # the code of a problem, by token
        self.lossy: set[str] = set()
        self.sent: list[str] = []  # the token of each request
        self.asked = itertools.count(1)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        token = request.headers["Authorization"].removeprefix("Bearer ")
        self.sent.append(token)
        if token in self.lossy:
            self.lossy.remove(token)
            self.refused[token] = "token_expired"
            assert request.transport is not None
            request.transport.close()
        if token in self.refused:
            return problem_answer(self.refused[token])
        posted = (await request.json())["posts"] if request.method == "POST" else []
        assert all("post_id" not in post for post in posted)
        return web.json_response({"results": [{"owner": post["owner"], "status": "applied"} for post in posted]})

    def take_sent(self) -> list[str]:
        sent, self.sent = self.sent, []
        return sent


@pytest.fixture
async def refusing() -> AsyncIterator[tuple[Refusing, str]]:
    made = Refusing()
    async with serving_handler(made.answer) as url:
        yield made, url


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_token_that_is_over_is_replaced_once(kind: str, refusing: tuple[Refusing, str]) -> None:
    service, url = refusing
    async with Asked(kind, url, Pauses(), [], key=lambda: f"t{next(service.asked)}", attempts_max=3) as client:

        async def read() -> None:
            await client.request("GET", "/v1/thing", bytes)

        service.refused["t1"] = "token_expired"
        await read()
        await read()
        assert service.take_sent() == ["t1", "t2", "t2"]
        service.refused |= {"t2": "token_expired", "t3": "token_voided"}
        with pytest.raises(TokenVoidedError):
            await read()
        assert service.take_sent() == ["t2", "t3"], "no loop, however many attempts there are"
        await asyncio.gather(*(read() for _ in range(CALLERS)))
        assert set(service.take_sent()) <= {"t3", "t4"}, "callers whose token is refused together ask once"
        service.refused["t4"] = "bad_token"
        with pytest.raises(BadTokenError):
            await read()
        assert service.take_sent() == ["t4"]

        service.refused["t4"] = "token_expired"
        await client.post_one("b", "ada", n=0, xp=1)
        assert service.take_sent() == ["t4", "t5"], "what was refused was not applied"
        service.lossy.add("t5")
        with pytest.raises(TokenExpiredError):
            await client.post_one("b", "ada", n=1, xp=1)
        assert service.take_sent() == ["t5", "t5"], "with another token, the lost post would count again"
        await client.post_one("b", "ada", n=1, xp=1)
        assert Counter(service.take_sent()) == {"t5": 1, "t6": 1}


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_function_that_returns_no_token_ends_the_request(kind: str, refusing: tuple[Refusing, str]) -> None:
    service, url = refusing
    returned: list[Any] = ["t 1", None, KeyError("not logged in"), "t2"]

    def ask() -> str:
        token = returned.pop(0)
        if isinstance(token, Exception):
            raise token
        return token  # type: ignore[no-any-return]

    async with Asked(kind, url, Pauses(), [], key=ask, attempts_max=3) as client:
        for error, text in ((RankcurveError, "space"), (RankcurveError, "no key"), (KeyError, "not logged in")):
            with pytest.raises(error, match=text) as met:
                await client.post("b", {"owner": "ada", "stats": {"xp": 1}, "n": 0})
            assert "t 1" not in str(met.value)
        await client.post("b", {"owner": "ada", "stats": {"xp": 1}, "n": 0})
    assert service.take_sent() == ["t2"]

"""Test what a front answers when the owner that does the work of a request ends, hangs or is replaced."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from service.http.relay import Relay
from storage.errors import OutcomeUnknownError, StoreAwayError

ANSWER = b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"


def make_relay(path: Path, *, hangs: bool = False) -> Relay:
    owner: Any = SimpleNamespace(hangs=lambda: hangs)
    return Relay(path, owner, lambda: asyncio.sleep(0))


class Owner:
    """An owner that answers the first request of a connection, and dies when it has done the work of the second one."""

    def __init__(self, path: Path) -> None:
        self.path, self.heads = path, list[bytes]()
        self.asked = asyncio.Event()
        self.hangs = False

    @asynccontextmanager
    async def relay(self) -> AsyncIterator[Relay]:
        server = await asyncio.start_unix_server(self._serve, str(self.path))
        relay = make_relay(self.path)
        yield relay
        await relay.close()
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append(await reader.readuntil(b"\r\n\r\n"))
        self.asked.set()
        if self.hangs:
            await reader.read()
        writer.write(ANSWER)
        self.heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path / "requests.owner")


async def pass_on(relay: Relay, method: str, **headers: str) -> web.StreamResponse:
    target = {"rel_url": URL("/v1/leaderboards/b"), "path": "/v1/leaderboards/b"}
    request: Any = SimpleNamespace(method=method, headers=CIMultiDict(headers), **target)
    return await relay.pass_on(cast(web.BaseRequest, request), None, "r1")


@pytest.mark.parametrize("method", ["DELETE", "PUT", "POST"])
async def test_a_request_whose_owner_dies_after_the_work_is_not_sent_again(owner: Owner, method: str) -> None:
    async with owner.relay() as relay:
        assert (await pass_on(relay, method)).status == 204
        with pytest.raises(OutcomeUnknownError):
            await pass_on(relay, method)
    assert len(owner.heads) == 2, "the second owner would answer that it knows no such board"


async def test_without_an_owner_nothing_was_done(owner: Owner) -> None:
    relay = make_relay(owner.path)
    with pytest.raises(StoreAwayError):
        await pass_on(relay, "DELETE")
    await relay.close()


async def test_the_owner_sees_the_host_that_the_caller_named_or_the_loopback(owner: Owner) -> None:
    async with owner.relay() as relay:
        await pass_on(relay, "DELETE", Host="127.0.0.1:8000")
        with pytest.raises(OutcomeUnknownError):
            await pass_on(relay, "DELETE")
    named = [[line for line in head.split(b"\r\n") if line.lower().startswith(b"host")] for head in owner.heads]
    assert named == [[b"Host: 127.0.0.1:8000"], [b"Host: localhost"]]


async def test_requests_do_not_wait_for_an_owner_that_hangs(owner: Owner) -> None:
    owner.hangs = True
    async with owner.relay() as relay:
        waiting = asyncio.create_task(pass_on(relay, "DELETE"))
        await owner.asked.wait()
        relay.end_waiting()
        relay.end_waiting()
        with pytest.raises(OutcomeUnknownError):
            await waiting
    late = make_relay(owner.path, hangs=True)
    with pytest.raises(StoreAwayError):
        await pass_on(late, "DELETE")
    await late.close()

"""Test which journals of peers are read, and that the API key of a peer is in no error."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from jobs.leases.peer_journals import PeerUnavailableError
from service.lease_peers import open_peer_reader
from storage.leases.lease_journal import PublishedLeaseEvent
from tests.clients.served import serving_handler
from tests.servers import free_port

LINE = (
    b'{"seq":7,"at":"2026-11-21T10:00:00.000001Z","kind":"acquired","client_id":"acme","pool_id":"numbers",'
    b'"resource":"a","key":"k","region":"eu","version":3,"lease_expires":"2026-11-21T11:00:00.000000Z"}\n'
)


class FakePeer:
    """A peer whose answer a test chooses."""

    def __init__(self) -> None:
        self.answer, self.status = LINE, 200
        self.asked: list[web.Request] = []
        self.address = ""

    async def serve(self, request: web.Request) -> web.Response:
        self.asked.append(request)
        return web.Response(body=self.answer, status=self.status)


@pytest.fixture
async def peer() -> AsyncIterator[FakePeer]:
    made = FakePeer()
    async with serving_handler(made.serve) as url:
        made.address = url.removeprefix("http://")
        yield made


async def test_the_reader_sends_the_key_in_the_address_of_a_peer(peer: FakePeer) -> None:
    async with open_peer_reader({"us": f"http://:secret@{peer.address}"}) as read:
        events = await read("us", 5, 10)
    times_us = (1_795_255_200_000_001, 1_795_258_800_000_000)
    assert events == [PublishedLeaseEvent(7, "acme", "numbers", "acquired", "a", "k", "eu", 3, *times_us)]
    [request] = peer.asked
    assert request.path == "/v1/leases/journal"
    assert dict(request.query) == {"after": "5", "limit": "10"}
    assert request.headers["Authorization"] == "Bearer secret"


async def failure_of(address: str) -> str:
    """Read from a peer that must be unavailable; return the text of the error."""
    async with open_peer_reader({"us": f"http://:secret@{address}"}) as read:
        with pytest.raises(PeerUnavailableError) as away:
            await read("us", 0, 10)
    return str(away.value)


@pytest.mark.parametrize(
    ("status", "answer"), [(503, LINE), (302, b""), (200, b"<html>"), (200, LINE.replace(b'"seq":7', b'"seq":"x"'))]
)
async def test_a_peer_that_answers_no_journal_is_unavailable(peer: FakePeer, status: int, answer: bytes) -> None:
    peer.status, peer.answer = status, answer
    assert "secret" not in await failure_of(peer.address)


async def test_a_missing_peer_is_unavailable() -> None:
    assert "secret" not in await failure_of(f"127.0.0.1:{free_port()}")

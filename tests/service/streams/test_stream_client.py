"""Test that a client who reads nothing costs the process little memory, and that other clients get their events."""

import asyncio
from typing import cast

from aiohttp import HttpVersion11, web

from service.views.posts.stream import StreamClient

TEXT = b"id: 7\nevent: top\ndata: {}\n\n"


class Socket:
    """A fake network transport. The other end of the connection reads nothing."""

    def __init__(self) -> None:
        self.written = b""
        self.aborted = False

    def is_closing(self) -> bool:
        return self.aborted

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def write(self, text: bytes) -> None:
        self.written += text

    def abort(self) -> None:
        self.aborted = True


class Response:
    """A fake of the methods of aiohttp's response that the stream's client calls."""

    chunked = True

    def __init__(self) -> None:
        self.first = b""

    async def prepare(self, _request: object) -> None: ...

    async def write(self, text: bytes) -> None:
        self.first += text


class Request:
    """A fake of the parts of aiohttp's request that the stream's client uses."""

    version = HttpVersion11

    def __init__(self, socket: Socket) -> None:
        self.transport = socket


async def serving(client: StreamClient, socket: Socket, response: Response) -> asyncio.Task[None]:
    task = asyncio.create_task(
        client.serve(cast(web.Request, Request(socket)), cast(web.StreamResponse, response), 1_000)
    )
    await asyncio.sleep(0)
    return task


async def test_events_from_before_the_connection_was_ready_are_sent_first() -> None:
    client, socket, response = StreamClient(unread_bytes_max=1_000), Socket(), Response()
    assert client.write(TEXT)
    task = await serving(client, socket, response)
    assert response.first == b"retry: 1000\n\n" + TEXT
    assert client.write(TEXT)
    assert socket.written == b"%x\r\n%b\r\n" % (len(TEXT), TEXT)
    client.end_stream()
    await task


async def test_a_client_that_does_not_read_is_disconnected_at_the_bound() -> None:
    client, socket, response = StreamClient(unread_bytes_max=200), Socket(), Response()
    task = await serving(client, socket, response)
    taken = 0
    while client.write(TEXT):
        taken += 1
    assert 1 < taken < 200 / len(TEXT)
    assert socket.aborted
    assert len(socket.written) <= 200 + len(TEXT)
    assert not client.write(TEXT)
    client.end_stream()
    await task

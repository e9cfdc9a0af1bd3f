"""A proxy in front of a PostgreSQL server. It drops answers of the server when a test asks for that.

It drops the answer to a COMMIT after the server has sent it: the server has committed, but the client cannot know.
"""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

CHUNK_BYTES = 65_536


class LossyWay:
    """A proxy on a free port, in front of the server of `url`.

    `lose` is the number of COMMITs whose answers the proxy will still drop. If a test sets `marker`, it drops the
    answers to requests that contain the marker instead.
    """

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self.lose = 0
        self.marker = b"; COMMIT\0"
        self.lost = 0
        self._server: asyncio.Server
        self._ways: set[asyncio.StreamWriter] = set()
        self._all_gone = asyncio.Event()

    @property
    def url(self) -> str:
        """Return the connection string that leads through this proxy."""
        port = self._server.sockets[0].getsockname()[1]
        user, at, _ = self._parts.netloc.rpartition("@")
        return urlunsplit(self._parts._replace(netloc=f"{user}{at}127.0.0.1:{port}"))

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for way in self._ways:
            way.transport.abort()
        if self._ways:
            await self._all_gone.wait()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._ways.add(writer)
        back_reader, back_writer = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        swallow = asyncio.Event()

        async def forth() -> None:
            while data := await reader.read(CHUNK_BYTES):
                if self.lose and self.marker in data:
                    self.lose -= 1
                    swallow.set()
                back_writer.write(data)
                await back_writer.drain()

        async def back() -> None:
            while data := await back_reader.read(CHUNK_BYTES):
                if swallow.is_set():
                    self.lost += 1
                    return
                writer.write(data)
                await writer.drain()

        directions = [asyncio.create_task(forth()), asyncio.create_task(back())]
        with suppress(OSError):
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        for direction in directions:
            direction.cancel()
        await asyncio.gather(*directions, return_exceptions=True)
        writer.transport.abort()
        back_writer.transport.abort()
        self._ways.discard(writer)
        if not self._ways:
            self._all_gone.set()

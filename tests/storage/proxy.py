"""A proxy in front of a PostgreSQL server, with which tests lose answers of the server, or freeze it."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from storage.engines.partitions import Address
from storage.engines.postgres_connection import replace_host

CHUNK_BYTES = 65_536


class DatabaseProxy:
    """A proxy on a free port, in front of the server of `url`. It loses answers, or freezes: it then carries nothing.

    `lose` is the number of COMMITs whose answers the proxy will still drop. If a test sets `marker`, it drops the
    answers to requests that contain the marker instead.
    """

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self.lose = 0
        self.marker = b"; COMMIT\0"
        self.lost = 0
        self.connections = 0  # how many it has ever accepted
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._server: asyncio.Server
        self._ways: set[asyncio.StreamWriter] = set()
        self._all_gone = asyncio.Event()

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """Return the connection string that leads through this proxy."""
        return replace_host(self._parts.geturl(), *self.address)

    def freeze(self) -> None:
        self._thawed.clear()

    def thaw(self) -> None:
        self._thawed.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.thaw()
        for way in self._ways:
            way.transport.abort()
        if self._ways:
            await self._all_gone.wait()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._ways.add(writer)
        self._all_gone.clear()
        self.connections += 1
        await self._thawed.wait()
        back_reader, back_writer = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        swallow = asyncio.Event()

        async def forth() -> None:
            while data := await reader.read(CHUNK_BYTES):
                if self.lose and self.marker in data:
                    self.lose -= 1
                    swallow.set()
                await self._thawed.wait()
                back_writer.write(data)
                await back_writer.drain()

        async def back() -> None:
            while data := await back_reader.read(CHUNK_BYTES):
                if swallow.is_set():
                    self.lost += 1
                    return
                await self._thawed.wait()
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

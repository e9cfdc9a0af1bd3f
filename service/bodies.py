"""Request bodies while they arrive.

The rule: who sends may be slow, who stops sending is let go. A body has as long as its bytes keep coming, up to a bound
for all of it, and a service that stops waits for none: nothing of a body counts before all of it is there.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from aiohttp import hdrs, web
from aiohttp.client_exceptions import ClientError
from aiohttp.http_exceptions import HttpProcessingError
from multidict import MultiMapping

from .problems import Problem, shown

_CHUNKED = "chunked"


class BodyLimits(Protocol):
    """The bounds of a body; each is a setting of the same name."""

    @property
    def body_bytes_max(self) -> int:
        """Past it a body is 413."""

    @property
    def body_idle_s_max(self) -> float:
        """Past it a body of which nothing more comes is 408."""

    @property
    def body_wait_s_max(self) -> float:
        """Past it a body that is still arriving is 408."""


class Stream(Protocol):
    """What of aiohttp's StreamReader is needed."""

    def is_eof(self) -> bool:
        """Whether all of it has arrived."""

    def read_nowait(self) -> bytes:
        """What is there."""

    async def readany(self) -> bytes:
        """What is there, or the next bytes; none at the end."""


class Arriving(Protocol):
    """What of aiohttp's request is needed."""

    @property
    def content(self) -> Stream:
        """The body."""

    @property
    def content_length(self) -> int | None:
        """What the headers announce."""

    @property
    def headers(self) -> MultiMapping[str]:
        """The headers."""


class Bodies:
    """Reads the bodies of an application's requests."""

    def __init__(self, limits: BodyLimits) -> None:
        self._limits = limits
        self._arriving: set[asyncio.Timeout] = set()
        self._stopping = False

    async def read(self, request: Arriving) -> bytes:
        """The whole body.

        Raises:
            Problem: `body_too_large`, `body_timeout`, `bad_request`, or `store_busy` where the service stops first.
        """
        announced = request.content_length
        if announced is None:
            _check_coding(request.headers)
        elif announced > self._limits.body_bytes_max:
            raise self._too_large()
        try:
            if request.content.is_eof():  # nearly always: it came with its headers
                return self._checked(request.content.read_nowait())  # half the price of request.read()
            async with asyncio.timeout(None) as limit:
                self._arriving.add(limit)
                try:
                    return await self._arrived(request.content, limit)
                finally:
                    self._arriving.discard(limit)
        except TimeoutError as error:
            raise self._late() from error
        except (HttpProcessingError, ClientError, web.RequestPayloadError) as error:
            raise Problem("bad_request", "the body could not be read as its headers announce it") from error

    async def _arrived(self, stream: Stream, limit: asyncio.Timeout) -> bytes:
        now_s = asyncio.get_running_loop().time
        deadline_s = now_s() + self._limits.body_wait_s_max
        body = bytearray()
        while True:
            limit.reschedule(now_s() if self._stopping else min(deadline_s, now_s() + self._limits.body_idle_s_max))
            piece = await stream.readany()
            if not piece:
                return bytes(body)
            body += self._checked(piece, before=len(body))

    def stop(self) -> None:
        """Refuse what is still arriving, now and from now on: a connection that ends takes no more bytes."""
        self._stopping = True
        for limit in self._arriving:
            limit.reschedule(asyncio.get_running_loop().time())

    def _checked(self, piece: bytes, *, before: int = 0) -> bytes:
        if before + len(piece) > self._limits.body_bytes_max:
            raise self._too_large()
        return piece

    def _too_large(self) -> Problem:
        return Problem("body_too_large", f"a body has at most {self._limits.body_bytes_max} bytes")

    def _late(self) -> Problem:
        if self._stopping:
            return Problem("store_busy", "the service stops; nothing of the body was taken")
        idle_s, wait_s = self._limits.body_idle_s_max, self._limits.body_wait_s_max
        return Problem("body_timeout", f"nothing of the body came for {idle_s:g} s, or it took more than {wait_s:g} s")


def _check_coding(headers: MultiMapping[str]) -> None:
    """Refuse a body that is more than chunked: aiohttp would take away the chunks and leave the other codings."""
    codings = ",".join(headers.getall(hdrs.TRANSFER_ENCODING, ()))
    if codings and codings.strip().lower() != _CHUNKED:
        detail = f"the body's Transfer-Encoding is {shown(codings)!r}; the service takes {_CHUNKED} alone"
        raise Problem("bad_request", detail)

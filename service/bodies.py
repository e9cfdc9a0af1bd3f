"""Request bodies while they arrive.

The rule: who sends may be slow, who stops sending is let go. A body has as long as its bytes keep coming, up to a bound
for all of it, and a service that stops waits for none: nothing of a body counts before all of it is there. All bodies
that arrive share one account of bytes; a body that came with its headers is read at once and never enters it.
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
# A body grows by blocks: one large buffer for each of many bodies would be moved again and again, and leave holes.
_BLOCK_BYTES = 256 * 1024


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

    @property
    def arriving_bytes_max(self) -> int:
        """Past it, for all bodies that are arriving, another one is 503."""


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


class _Account:
    """The bytes that all arriving bodies hold together."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held = 0


class _Share:
    """What one body holds of the account: what its headers announce, or what has come if that is more."""

    def __init__(self, account: _Account, announced: int) -> None:
        self._account, self._held = account, 0
        self.cover(announced)

    def cover(self, size: int) -> None:
        """Hold as many bytes. Raises Problem `too_many_bodies` where they are not left."""
        more = size - self._held
        if more <= 0:
            return
        if self._account.held + more > self._account.bytes_max:
            detail = f"the bodies that are arriving have {self._account.bytes_max} bytes together; send this one again"
            raise Problem("too_many_bodies", detail)
        self._account.held += more
        self._held = size

    def give_back(self) -> None:
        """Hold nothing any more."""
        self._account.held -= self._held
        self._held = 0


class Bodies:
    """Reads the bodies of an application's requests."""

    def __init__(self, limits: BodyLimits) -> None:
        self._limits = limits
        self._account = _Account(limits.arriving_bytes_max)
        self._arriving: set[asyncio.Timeout] = set()
        self._stopping = False

    async def read(self, request: Arriving) -> bytes:
        """The whole body.

        Raises:
            Problem: `body_too_large`, `body_timeout`, `bad_request`, `too_many_bodies`, or `store_busy` where the
                service stops first.
        """
        announced = request.content_length
        if announced is None:
            _check_coding(request.headers)
        elif announced > self._limits.body_bytes_max:
            raise self._too_large()
        try:
            if request.content.is_eof():  # nearly always: it came with its headers
                return self._checked(request.content.read_nowait())  # half the price of request.read()
            share = _Share(self._account, announced or 0)
            try:
                return await self._arrived(request.content, share)
            finally:
                share.give_back()
        except TimeoutError as error:
            raise self._late() from error
        except (HttpProcessingError, ClientError, web.RequestPayloadError) as error:
            raise Problem("bad_request", "the body could not be read as its headers announce it") from error

    async def _arrived(self, stream: Stream, share: _Share) -> bytes:
        async with asyncio.timeout(None) as limit:
            self._arriving.add(limit)
            try:
                return await self._pieces(stream, limit, share)
            finally:
                self._arriving.discard(limit)

    async def _pieces(self, stream: Stream, limit: asyncio.Timeout, share: _Share) -> bytes:
        now_s = asyncio.get_running_loop().time
        deadline_s = now_s() + self._limits.body_wait_s_max
        blocks, size = [bytearray()], 0
        while True:
            limit.reschedule(now_s() if self._stopping else min(deadline_s, now_s() + self._limits.body_idle_s_max))
            piece = await stream.readany()
            if not piece:
                return b"".join(blocks)
            self._checked(piece, before=size)
            size += len(piece)
            share.cover(size)
            if len(blocks[-1]) + len(piece) > _BLOCK_BYTES:
                blocks.append(bytearray())
            blocks[-1] += piece

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

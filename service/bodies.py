"""Request bodies while they arrive.

The rule: who sends may be slow, who stops sending is let go. A body has as long as its bytes keep coming, up to a bound
for all of it, and a service that stops waits for none: nothing of a body counts before all of it is there. All bodies
share one account of bytes from their arrival to their answer. A body that came with its headers never enters it.
"""

from __future__ import annotations

import asyncio
import mmap
from typing import Protocol

from aiohttp import hdrs, web
from aiohttp.client_exceptions import ClientError
from aiohttp.http_exceptions import HttpProcessingError
from multidict import MultiMapping

from .problems import Problem, shown

_CHUNKED = "chunked"
_MAPPED_BYTES_MIN = 64 * 1024


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
        """Past it, for all bodies together, another one is 503."""


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


class _Gathered:
    """What has come of a body.

    The memory of a large one is mapped, so that it goes back to the system when the body is complete. Many that grow
    beside each other on the heap would leave it full of holes.
    """

    def __init__(self, capacity: int) -> None:
        self.size = 0
        self._capacity = capacity
        self._small = bytearray()
        self._mapped: mmap.mmap | None = None

    def add(self, piece: bytes) -> None:
        """Append a piece; no more than the capacity in all."""
        self.size += len(piece)
        if self._mapped is None:
            if self.size <= _MAPPED_BYTES_MIN:
                self._small += piece
                return
            self._mapped = mmap.mmap(-1, self._capacity, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._mapped.write(self._small)
        self._mapped.write(piece)

    def whole(self) -> bytes:
        """Return all of it."""
        return bytes(self._small) if self._mapped is None else self._mapped[: self.size]

    def close(self) -> None:
        """Give the memory back."""
        if self._mapped is not None:
            self._mapped.close()


class Bodies:
    """Reads the bodies of an application's requests."""

    def __init__(self, limits: BodyLimits) -> None:
        self._limits = limits
        self._held: dict[int, int] = {}  # bytes by the id of the request
        self._held_bytes = 0
        self._arriving: set[asyncio.Timeout] = set()
        self._stopping = False

    async def read(self, request: Arriving) -> bytes:
        """The whole body. Whoever reads it calls `let_go` once the request is answered, and however it ends.

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
            self._hold(request, announced or 0)
            return await self._arrived(request)
        except TimeoutError as error:
            raise self._late() from error
        except (HttpProcessingError, ClientError, web.RequestPayloadError) as error:
            raise Problem("bad_request", "the body could not be read as its headers announce it") from error

    def let_go(self, request: Arriving) -> None:
        """Give back to the account what a request's body holds, if anything."""
        if self._held:
            self._held_bytes -= self._held.pop(id(request), 0)

    def _hold(self, request: Arriving, size: int) -> None:
        """Have a body hold this many bytes: what its headers announce, or what has come of it if that is more."""
        held = self._held.get(id(request), 0)
        if size > held:
            if self._held_bytes + size - held > self._limits.arriving_bytes_max:
                detail = f"{self._held_bytes} bytes of other bodies are arriving or being answered; come back later"
                raise Problem("too_many_bodies", detail)
            self._held_bytes += size - held
            self._held[id(request)] = size

    async def _arrived(self, request: Arriving) -> bytes:
        gathered = _Gathered(request.content_length or self._limits.body_bytes_max)
        async with asyncio.timeout(None) as limit:
            self._arriving.add(limit)
            try:
                await self._gather(request, gathered, limit)
                return gathered.whole()
            finally:
                gathered.close()
                self._arriving.discard(limit)

    async def _gather(self, request: Arriving, gathered: _Gathered, limit: asyncio.Timeout) -> None:
        now_s = asyncio.get_running_loop().time
        deadline_s = now_s() + self._limits.body_wait_s_max
        while True:
            limit.reschedule(now_s() if self._stopping else min(deadline_s, now_s() + self._limits.body_idle_s_max))
            piece = await request.content.readany()
            if not piece:
                return
            self._checked(piece, before=gathered.size)
            self._hold(request, gathered.size + len(piece))
            gathered.add(piece)

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

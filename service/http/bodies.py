"""Reads the bodies of requests while they arrive, within bounds of size, time and memory.

A caller may send slowly, but a caller that stops sending is refused: there is a bound for each pause
(`body_idle_s_max`) and one for the whole body (`body_wait_s_max`). A service that stops waits for no body. Nothing of a
body is used before all of it has arrived.

All bodies together may hold `arriving_bytes_max` bytes, counted from their arrival to their answer. A body that arrived
together with its headers is not counted.
"""

from __future__ import annotations

import asyncio
import mmap
from typing import Protocol

from aiohttp import hdrs, web
from aiohttp.client_exceptions import ClientError
from aiohttp.http_exceptions import HttpProcessingError
from multidict import MultiMapping

from service.contract.problems import ProblemError, clip_text

_CHUNKED = "chunked"
_MAPPED_BYTES_MIN = 64 * 1024


class BodyLimits(Protocol):
    """The bounds of a body; each is a setting of the same name."""

    @property
    def body_bytes_max(self) -> int:
        """A larger body is refused with 413."""

    @property
    def body_idle_s_max(self) -> float:
        """A body of which nothing arrives for longer than this is refused with 408."""

    @property
    def body_wait_s_max(self) -> float:
        """A body that takes longer than this in all is refused with 408."""

    @property
    def arriving_bytes_max(self) -> int:
        """A body that would take all bodies together above this is refused with 503."""


class BodyStream(Protocol):
    """The part of aiohttp's StreamReader that this module needs."""

    def is_eof(self) -> bool:
        """Return whether all of it has arrived."""

    def read_nowait(self) -> bytes:
        """Return the bytes that have arrived."""

    async def readany(self) -> bytes:
        """Return the bytes that have arrived, or else wait for the next ones. At the end, return no bytes."""


class ArrivingRequest(Protocol):
    """The part of aiohttp's request that this module needs."""

    @property
    def content(self) -> BodyStream:
        """The body."""

    @property
    def content_length(self) -> int | None:
        """The number of bytes that the headers announce; None: they announce none."""

    @property
    def headers(self) -> MultiMapping[str]:
        """The headers."""


class _Gathered:
    """The bytes of a body that have arrived.

    The memory of a large body is mapped, so that it goes back to the system when the body is complete. Many large
    bodies that grow side by side would leave the heap fragmented.
    """

    def __init__(self, capacity: int) -> None:
        self.size = 0
        self._capacity = capacity
        self._small = bytearray()
        self._mapped: mmap.mmap | None = None

    def add(self, piece: bytes) -> None:
        """Append a piece. All pieces together hold at most `capacity` bytes."""
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


class BodyReader:
    """Reads the bodies of an application's requests."""

    def __init__(self, limits: BodyLimits) -> None:
        self._limits = limits
        self._held: dict[int, int] = {}  # bytes by the id of the request
        self._held_bytes = 0
        self._arriving: set[asyncio.Timeout] = set()
        self._stopping = False

    async def read_body(self, request: ArrivingRequest) -> bytes:
        """Return the whole body of a request.

        The caller must call `release_body` when the request has ended, also if reading raised.

        Raises:
            ProblemError: `body_too_large`, `body_timeout`, `bad_request`, `too_many_bodies`, or `store_busy` where the
                service stops first.
        """
        announced = request.content_length
        if announced is None:
            _check_coding(request.headers)
        elif announced > self._limits.body_bytes_max:
            raise self._too_large()
        try:
            if request.content.is_eof():  # nearly always: the body arrived with its headers
                return self._checked(request.content.read_nowait())  # cheaper than request.read()
            self._hold(request, announced or 0)
            return await self._arrived(request)
        except TimeoutError as error:
            raise self._late() from error
        except (HttpProcessingError, ClientError, web.RequestPayloadError) as error:
            raise ProblemError("bad_request", "the body is not what its headers announce") from error

    def release_body(self, request: ArrivingRequest) -> None:
        """Subtract the bytes of a request's body, if it was counted, from those that all bodies hold."""
        if self._held:
            self._held_bytes -= self._held.pop(id(request), 0)

    def _hold(self, request: ArrivingRequest, size: int) -> None:
        """Count this many bytes for a body: those that its headers announce, or those that arrived if they are more."""
        held = self._held.get(id(request), 0)
        if size > held:
            if self._held_bytes + size - held > self._limits.arriving_bytes_max:
                detail = f"{self._held_bytes} bytes of other bodies are arriving or being answered; try again later"
                raise ProblemError("too_many_bodies", detail)
            self._held_bytes += size - held
            self._held[id(request)] = size

    async def _arrived(self, request: ArrivingRequest) -> bytes:
        gathered = _Gathered(request.content_length or self._limits.body_bytes_max)
        async with asyncio.timeout(None) as limit:
            self._arriving.add(limit)
            try:
                await self._gather(request, gathered, limit)
                return gathered.whole()
            finally:
                gathered.close()
                self._arriving.discard(limit)

    async def _gather(self, request: ArrivingRequest, gathered: _Gathered, limit: asyncio.Timeout) -> None:
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

    def refuse_arriving(self) -> None:
        """Refuse every body that is still arriving, and every later one that is not complete on arrival.

        The service calls this when it stops: a connection that ends takes no more bytes.
        """
        self._stopping = True
        for limit in self._arriving:
            limit.reschedule(asyncio.get_running_loop().time())

    def _checked(self, piece: bytes, *, before: int = 0) -> bytes:
        if before + len(piece) > self._limits.body_bytes_max:
            raise self._too_large()
        return piece

    def _too_large(self) -> ProblemError:
        return ProblemError("body_too_large", f"a body has at most {self._limits.body_bytes_max} bytes")

    def _late(self) -> ProblemError:
        if self._stopping:
            return ProblemError("store_busy", "the service is stopping; nothing of the body was processed")
        idle_s, wait_s = self._limits.body_idle_s_max, self._limits.body_wait_s_max
        return ProblemError(
            "body_timeout",
            f"no part of the body arrived for {idle_s:g} s, or the whole body took more than {wait_s:g} s",
        )


def _check_coding(headers: MultiMapping[str]) -> None:
    """Refuse a body with a transfer coding besides `chunked`: aiohttp would decode the chunks and leave the rest."""
    codings = ",".join(headers.getall(hdrs.TRANSFER_ENCODING, ()))
    if codings and codings.strip().lower() != _CHUNKED:
        detail = f"the body's Transfer-Encoding is {clip_text(codings)!r}; the service takes only {_CHUNKED}"
        raise ProblemError("bad_request", detail)

"""Reads request bodies while they arrive, within limits on their size, their time and the memory that they take.

Without these limits, a few slow or large senders could take all of the process's memory. A caller may send slowly, but
one that stops sending is refused, and no part of a body is used before the whole body has arrived. While the service is
shutting down, it refuses all incomplete bodies.

All bodies together may have at most `arriving_bytes_max` bytes. A body counts from the start of its arrival until its
request is answered. A body that is complete when the service begins to read it does not count.

The objects that are made of a body take many times its memory. So a large body waits until there is room for it: the
large bodies whose requests are being answered may have at most `working_bytes_max` bytes together.
"""

import asyncio
import mmap
from functools import partial
from io import BytesIO

from aiohttp import hdrs, web
from aiohttp.client_exceptions import ClientError
from aiohttp.http_exceptions import HttpProcessingError
from multidict import MultiMapping

from config.settings import RequestSettings
from service.contract.problems import ProblemError, clip_text

_CHUNKED = "chunked"
_HEAP_BYTES_MAX = 64 * 1024  # a body that may be larger is collected in mapped memory, see `_arrived`
_map_memory = partial(mmap.mmap, -1, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


class BodyReader:
    def __init__(self, limits: RequestSettings) -> None:
        self._limits = limits
        self._held: dict[int, int] = {}  # `id()` of a request -> the bytes that are counted for its body
        self._held_bytes = 0
        self._working: dict[int, int] = {}  # the same for the large bodies whose requests are being answered
        self._has_room = asyncio.Event()
        self._arriving: set[asyncio.Timeout] = set()
        self._stopping = False

    async def read_body(self, request: web.BaseRequest) -> bytes:
        """Read the whole body of a request.

        The caller must call `release_body` when the request has ended, even if this method raised an error.

        Raises:
            ProblemError: `body_too_large`, `body_timeout`, `bad_request`, `too_many_bodies`, or `store_busy` if the
                service shuts down before the body has arrived.
        """
        announced = request.content_length
        if announced is None:
            _check_coding(request.headers)
        elif announced > self._limits.body_bytes_max:
            raise self._too_large()
        try:
            if request.content.is_eof():  # nearly every body arrives together with its headers
                return self._checked(request.content.read_nowait())  # `read_nowait` is cheaper than `request.read`
            self._hold(request, announced or 0)
            body = await self._arrived(request)
            if len(body) > _HEAP_BYTES_MAX:
                await self._wait_for_room(request, len(body))
            return body
        except TimeoutError as error:
            raise self._late() from error
        except (HttpProcessingError, ClientError, web.RequestPayloadError) as error:
            raise ProblemError("bad_request", "the body is not what its headers announce") from error

    def release_body(self, request: web.BaseRequest) -> None:
        if self._held:
            self._held_bytes -= self._held.pop(id(request), 0)
        if self._working and self._working.pop(id(request), 0):
            self._has_room.set()

    async def _wait_for_room(self, request: web.BaseRequest, size: int) -> None:
        try:
            async with asyncio.timeout(self._limits.body_wait_s_max):
                while self._working and sum(self._working.values()) + size > self._limits.working_bytes_max:
                    self._has_room.clear()
                    await self._has_room.wait()
        except TimeoutError:
            raise ProblemError("too_many_bodies", "large requests are being answered; try again later") from None
        self._working[id(request)] = size

    def _hold(self, request: web.BaseRequest, size: int) -> None:
        """Count a body as `size` bytes, unless it counts as more already. Raise `too_many_bodies` above the limit."""
        held = self._held.get(id(request), 0)
        if size > held:
            if self._held_bytes + size - held > self._limits.arriving_bytes_max:
                detail = f"{self._held_bytes} bytes of other bodies are arriving or being answered; try again later"
                raise ProblemError("too_many_bodies", detail)
            self._held_bytes += size - held
            self._held[id(request)] = size

    async def _arrived(self, request: web.BaseRequest) -> bytes:
        """Wait until a body has arrived, and return it.

        A large body is collected in mapped memory, which goes back to the system as soon as it is released. On the
        heap, many large bodies that grow at the same time would leave it fragmented.
        """
        capacity = request.content_length or self._limits.body_bytes_max
        with _map_memory(capacity) if capacity > _HEAP_BYTES_MAX else BytesIO() as gathered:
            async with asyncio.timeout(None) as limit:
                self._arriving.add(limit)
                try:
                    await self._gather(request, gathered, limit)
                finally:
                    self._arriving.discard(limit)
            size = gathered.tell()
            gathered.seek(0)
            return gathered.read(size)

    async def _gather(self, request: web.BaseRequest, gathered: BytesIO | mmap.mmap, limit: asyncio.Timeout) -> None:
        now_s = asyncio.get_running_loop().time
        deadline_s = now_s() + self._limits.body_wait_s_max
        while True:
            limit.reschedule(now_s() if self._stopping else min(deadline_s, now_s() + self._limits.body_idle_s_max))
            piece = await request.content.readany()
            if not piece:
                return
            self._checked(piece, before=gathered.tell())
            self._hold(request, gathered.tell() + len(piece))
            gathered.write(piece)

    def refuse_arriving(self) -> None:
        """Refuse all incomplete bodies from now on, because the service is shutting down."""
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
            f"no part of the body arrived for {idle_s:.15g} s, or the whole body took more than {wait_s:.15g} s",
        )


def _check_coding(headers: MultiMapping[str]) -> None:
    """Refuse a body with a transfer coding other than `chunked`, because aiohttp decodes only `chunked`."""
    codings = ",".join(headers.getall(hdrs.TRANSFER_ENCODING, ()))
    if codings and codings.strip().lower() != _CHUNKED:
        detail = f"the body's Transfer-Encoding is {clip_text(codings)!r}; send it as {_CHUNKED}"
        raise ProblemError("bad_request", detail)

"""Responses without aiohttp's `Server` header, which would show callers the versions of aiohttp and Python.

`FastJsonResponse` writes the most common answer in one piece: a 200 with JSON on a connection that stays open. It
builds no header dictionary, because that would take a noticeable part of the time of a small request. In any other case
(HEAD, HTTP/1.0, a connection that closes, a large body), aiohttp writes the answer through `PlainResponse`.
"""

from email.utils import formatdate
from functools import lru_cache
from time import time

from aiohttp import ClientConnectionResetError, HttpVersion11, hdrs, web
from aiohttp.abc import AbstractStreamWriter

BODY_BYTES_MAX = 64 * 1024  # a larger body needs aiohttp's flow control


class _WithoutServerHeader(web.StreamResponse):
    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()  # the only place where aiohttp adds the header
        self.headers.pop(hdrs.SERVER, None)


class PlainResponse(_WithoutServerHeader, web.Response):
    """An answer in one piece, without a `Server` header."""


class PlainStream(_WithoutServerHeader):
    """An answer that is written piece by piece, without a `Server` header."""


@lru_cache(maxsize=1)
def _format_date(second: int) -> bytes:
    """Return the text of the Date header for a time in seconds since 1970."""
    return formatdate(second, usegmt=True).encode()


class FastJsonResponse(web.Response):
    """A 200 with a JSON body; `request_id` is sent as X-Request-Id."""

    def __init__(self, body: bytes, request_id: str) -> None:
        # The constructor of the base class is not called, because it would make the header dictionary. If `prepare`
        # needs a dictionary, it makes a `PlainResponse`.
        self._json = body
        self._request_id = request_id
        self._full: web.Response | None = None

    @property
    def status(self) -> int:
        return 200

    @property
    def keep_alive(self) -> bool | None:
        return True if self._full is None else self._full.keep_alive

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        body = self._json
        if (
            not request.keep_alive
            or request.version != HttpVersion11
            or request.method == hdrs.METH_HEAD
            or len(body) > BODY_BYTES_MAX
        ):
            headers = {hdrs.CONTENT_TYPE: "application/json", "X-Request-Id": self._request_id}
            self._full = PlainResponse(body=body, headers=headers)
            return await self._full.prepare(request)
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ClientConnectionResetError("Cannot write to closing transport")
        transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
            b"X-Request-Id: %b\r\nDate: %b\r\nContent-Length: %d\r\n\r\n%b"
            % (self._request_id.encode(), _format_date(int(time())), len(body), body)
        )
        # A caller that reads no answers has to wait. Otherwise `write` would buffer the answers without a bound.
        if transport.get_write_buffer_size() > BODY_BYTES_MAX:
            await request.writer.drain()
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """End the answer. Do nothing if `prepare` has already written the whole answer."""
        if self._full is not None:
            await self._full.write_eof(data)

"""The common answer, a 200 with JSON on a connection that stays open, written in one piece.

aiohttp's own response spends a third of a small request on a header dictionary that is always the same. The rule:
anything out of the common (HEAD, HTTP/1.0, a connection that closes, a large body) is left to aiohttp.
"""

from __future__ import annotations

from email.utils import formatdate
from time import time

from aiohttp import ClientConnectionResetError, HttpVersion11, hdrs, web
from aiohttp.abc import AbstractStreamWriter

from .responses import PlainResponse

BODY_BYTES_MAX = 64 * 1024  # larger ones want aiohttp's flow control


class _Date:
    """The Date header's text, made once a second."""

    second = 0
    text = b""

    @classmethod
    def now(cls) -> bytes:
        second = int(time())
        if second != cls.second:
            cls.second, cls.text = second, formatdate(second, usegmt=True).encode()
        return cls.text


class QuickJson(web.Response):
    """A 200 with a JSON body; `request_id` goes out as X-Request-Id."""

    def __init__(self, body: bytes, request_id: str) -> None:
        # Not the base's: it would make the header dictionary. `prepare` does where it is needed.
        self._json = body
        self._request_id = request_id
        self._full: web.Response | None = None

    @property
    def status(self) -> int:
        """Always 200."""
        return 200

    @property
    def keep_alive(self) -> bool | None:
        """Whether the connection stays open."""
        return True if self._full is None else self._full.keep_alive

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Write the answer."""
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
            % (self._request_id.encode(), _Date.now(), len(body), body)
        )
        # Who sends requests and reads no answers waits here: a write alone has no bound.
        if transport.get_write_buffer_size() > BODY_BYTES_MAX:
            await request.writer.drain()
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is left to write, unless aiohttp writes."""
        if self._full is not None:
            await self._full.write_eof(data)

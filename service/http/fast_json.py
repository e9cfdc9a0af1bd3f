"""Writes responses: in one piece, compressed if they are long, and without a header that reveals the server's versions.

`FastJsonResponse` writes the most common answers in one piece: JSON on a connection that stays open, and answers with
status 304. It builds no header dictionary, because that would make small requests noticeably slower. In any other case
(HEAD, HTTP/1.0, a connection that closes, a large body), the endpoint makes a `PlainResponse`, which aiohttp writes.
Long answers are compressed for callers that accept gzip.
"""

import asyncio
import zlib
from collections.abc import Mapping
from email.utils import formatdate
from functools import lru_cache
from time import time

from aiohttp import ClientConnectionResetError, hdrs, web

BYTES_MIN = 4_096  # shorter answers are not compressed
THREAD_BYTES_MIN = 32_768  # longer answers are compressed in a thread, because this takes 0.25 ms or more
_LEVEL = 1  # the fastest; level 6 makes a page about a tenth smaller, but takes three times as long
_GZIP_BITS = 16 + zlib.MAX_WBITS
BODY_BYTES_MAX = 64 * 1024  # a larger body needs aiohttp's flow control, so aiohttp writes it


class _WithoutServerHeader(web.StreamResponse):
    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()  # the only place where aiohttp adds the header `Server`
        self.headers.pop(hdrs.SERVER, None)


class PlainResponse(_WithoutServerHeader, web.Response):
    def add_headers(self, headers: Mapping[str, str]) -> None:
        """Add headers before the answer is sent. A second `Vary` is joined to the first one."""
        for name, value in headers.items():
            known = self.headers.get(name) if name == hdrs.VARY else None
            self.headers[name] = f"{known}, {value}" if known else value


class PlainStream(_WithoutServerHeader):
    """An answer that is written piece by piece, without a `Server` header."""


@lru_cache(maxsize=1)
def _format_date(second: int) -> bytes:
    return formatdate(second, usegmt=True).encode()


class FastJsonResponse(web.Response):
    """An answer with status 200 and a JSON body, or 304 if the body is None. Sends `request_id` as X-Request-Id."""

    # These attributes replace properties of aiohttp, because each use of a property would be a call.
    status = 200
    body: bytes | None = None
    keep_alive = True

    def __init__(self, body: bytes | None, request_id: str, etag: str = "") -> None:
        # The constructor of the base class is not called, because it would make the header dictionary.
        self.body, self.status = body, 304 if body is None else 200
        self._request_id, self._etag = request_id, etag
        self._more: dict[str, str] | None = None

    def add_headers(self, headers: Mapping[str, str]) -> None:
        """Add headers before the answer is sent. If a name was added before, join both values with a comma."""
        more = self._more = self._more or {}
        for name, value in headers.items():
            more[name] = f"{more[name]}, {value}" if name in more else value

    async def prepare(self, request: web.BaseRequest) -> None:
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ClientConnectionResetError("Cannot write to closing transport")
        etag = b"ETag: %b\r\n" % self._etag.encode() if self._etag else b""
        ids = b"X-Request-Id: %b\r\nDate: %b\r\n%b" % (self._request_id.encode(), _format_date(int(time())), etag)
        if self._more is not None:
            ids += b"".join([b"%b: %b\r\n" % (name.encode(), value.encode()) for name, value in self._more.items()])
        if self.body is None:
            transport.write(b"HTTP/1.1 304 Not Modified\r\n%b\r\n" % ids)
        else:
            transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n%b"
                % (ids, len(self.body), self.body)
            )
        # If a caller does not read its answers, wait here. Otherwise `write` would buffer more and more of them.
        if transport.get_write_buffer_size() > BODY_BYTES_MAX:
            await request.writer.drain()

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: `prepare` has written the whole answer."""


IN_ONE_PIECE = (FastJsonResponse, PlainResponse)


@lru_cache(maxsize=64)
def accepts_gzip(header: str) -> bool:
    """Return whether an `Accept-Encoding` header gives gzip, by name or by `*`, a weight above 0 (RFC 9110, 12.5.3)."""
    weights = {}
    for item in header.lower().split(","):
        name, _, parameters = item.partition(";")
        weight = parameters.partition("q=")[2].strip()
        weights[name.strip()] = bool(weight.strip("0.")) if weight else True
    return weights.get("gzip", weights.get("x-gzip", weights.get("*", False)))


async def compress_answer(response: web.StreamResponse, request: web.BaseRequest) -> None:
    """Compress, with gzip, the body of a response that has not been sent, if the caller accepts that."""
    if not isinstance(response, IN_ONE_PIECE) or not isinstance(body := response.body, bytes):
        return
    if accepts_gzip(request.headers.get(hdrs.ACCEPT_ENCODING, "")):
        response.body = _compress(body) if len(body) < THREAD_BYTES_MIN else await asyncio.to_thread(_compress, body)
        response.add_headers({hdrs.CONTENT_ENCODING: "gzip", hdrs.VARY: hdrs.ACCEPT_ENCODING})


def _compress(body: bytes) -> bytes:
    packer = zlib.compressobj(_LEVEL, wbits=_GZIP_BITS)
    return packer.compress(body) + packer.flush()

"""Compresses long answers for callers that accept gzip."""

import asyncio
import zlib
from functools import lru_cache

from aiohttp import hdrs

from .fast_json import FastJsonResponse, PlainResponse

BYTES_MIN = 4_096  # shorter answers are not compressed
THREAD_BYTES_MIN = 32_768  # longer answers are compressed in a thread, because this takes 0.25 ms or more
_LEVEL = 1  # the fastest; level 6 makes a page about a tenth smaller, but takes three times as long
_GZIP_BITS = 16 + zlib.MAX_WBITS


@lru_cache(maxsize=64)
def accepts_gzip(header: str) -> bool:
    """Return whether an `Accept-Encoding` header gives gzip, by name or by `*`, a weight above 0 (RFC 9110, 12.5.3)."""
    weights = {}
    for item in header.lower().split(","):
        name, _, parameters = item.partition(";")
        weight = parameters.partition("q=")[2].strip()
        weights[name.strip()] = bool(weight.strip("0.")) if weight else True
    return weights.get("gzip", weights.get("x-gzip", weights.get("*", False)))


async def compress_answer(response: FastJsonResponse | PlainResponse, body: bytes) -> None:
    """Compress `body` with gzip and store it in a response that was not sent yet."""
    response.body = _compress(body) if len(body) < THREAD_BYTES_MIN else await asyncio.to_thread(_compress, body)
    response.add_headers({hdrs.CONTENT_ENCODING: "gzip", hdrs.VARY: hdrs.ACCEPT_ENCODING})


def _compress(body: bytes) -> bytes:
    packer = zlib.compressobj(_LEVEL, wbits=_GZIP_BITS)
    return packer.compress(body) + packer.flush()

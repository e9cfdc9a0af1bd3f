"""Streams over HTTP: server-sent events, each numbered as the journal is, so that a client resumes where it was.

The rule: a client costs what waits in its socket and no more. Events are written to the connection as they come; who
does not read them is let go once the bound of unread bytes is passed, and comes back with the last number it saw.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from contextlib import suppress
from time import perf_counter

from aiohttp import HttpVersion11, hdrs, web

from ..context import Context
from ..owner_views import find_column
from ..queries import StreamQuery
from ..responses import PlainStream
from ..routes import Call, Reply
from ..shell import X_REQUEST_ID
from ..values import INT64_MAX, parse_owner
from .events import Event, Topic
from .topics import OwnerTopic, TopTopic

SSE_TYPE = "text/event-stream"
LAST_EVENT_ID = "Last-Event-ID"
NEVER_SEEN = -1  # a number that no journal has
_BEAT = b": alive\n\n"
_HEADERS = {hdrs.CONTENT_TYPE: SSE_TYPE, hdrs.CACHE_CONTROL: "no-store", "X-Accel-Buffering": "no"}


class StreamClient:
    """One client's connection; a `feed.Client`."""

    def __init__(self, *, unread_bytes_max: int) -> None:
        self._unread_bytes_max = unread_bytes_max
        self._first: list[bytes] = []  # before the connection is ready for them
        self._transport: asyncio.Transport | None = None
        self._chunked = False
        self._ended = asyncio.Event()

    async def serve(self, request: web.Request, response: web.StreamResponse, retry_ms: int) -> None:
        """Send what waits and what comes, until the stream ends."""
        await response.prepare(request)
        await response.write(b"retry: %d\n\n" % retry_ms + b"".join(self._first))
        self._first = []
        self._chunked = bool(response.chunked) or request.version >= HttpVersion11
        transport = request.transport
        if transport is not None and not self._ended.is_set():
            self._transport = transport
            await self._ended.wait()

    def send(self, event: Event) -> bool:
        """See `feed.Client`."""
        return self._write(event.text())

    def beat(self) -> bool:
        """See `feed.Client`."""
        return self._write(_BEAT)

    def _write(self, text: bytes) -> bool:
        transport = self._transport
        if transport is None:
            self._first.append(text)
            return sum(map(len, self._first)) <= self._unread_bytes_max
        if transport.is_closing():
            return False
        if transport.get_write_buffer_size() + len(text) > self._unread_bytes_max:
            transport.abort()
            return False
        transport.write(b"%x\r\n%b\r\n" % (len(text), text) if self._chunked else text)
        return True

    def end(self) -> None:
        """See `feed.Client`."""
        self._ended.set()


async def stream(context: Context, call: Call) -> Reply | web.StreamResponse:
    """`GET …/stream`."""
    query: StreamQuery = call.query
    board, index = await find_column(context, call.path["board"], query.column)
    if call.request.method == hdrs.METH_HEAD:
        return Reply(b"", media_type=SSE_TYPE)
    settings = context.settings
    # A family's boards that no post has reached have the same key; one that was archived is read in another way.
    ranking: tuple[Hashable, ...] = (board.id, board.key, board.epoch, board.archived_us, index)
    key: Hashable
    make: Callable[[], Topic]
    if query.owner is None:
        top = query.top or min(settings.stream_top_default, settings.stream_top_max)
        key, make = (*ranking, top), lambda: TopTopic(context, board, index, top)
    else:
        owner = parse_owner(query.owner)
        key, make = (*ranking, owner), lambda: OwnerTopic(context, board, index, owner)
    client = StreamClient(unread_bytes_max=settings.stream_unread_bytes_max)
    try:
        await context.feed.join(key, make, client, last_seen=_last_seen(call.request))
        response = PlainStream(headers={**_HEADERS, X_REQUEST_ID: call.request_id})
        call.answered_s = perf_counter()  # what comes now is as long as the client wants it
        # A client that is gone is how streams end; one whose key is revoked is let go.
        with suppress(ConnectionError), context.keyring.session(call.identity, client.end):
            await client.serve(call.request, response, round(settings.stream_retry_s * 1000))
        response.force_close()
        return response
    finally:
        context.feed.leave(key, client)


def _last_seen(request: web.Request) -> int | None:
    text = request.headers.get(LAST_EVENT_ID, "").strip()
    if not text:
        return None
    known = text.isascii() and text.isdigit() and len(text) < 20
    return int(text) if known and int(text) <= INT64_MAX else NEVER_SEEN

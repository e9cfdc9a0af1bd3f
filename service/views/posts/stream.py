"""The handler of event streams. An event's id is a journal position, so a client can resume where it stopped.

Each event is written to the connection immediately. A client that reads too slowly would make the process hold its
events for ever, so the service closes the connection once more than `stream_unread_bytes_max` bytes wait. The client
can reconnect with the id of the last event that it received.
"""

import asyncio
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from time import perf_counter

from aiohttp import HttpVersion11, hdrs, web

from service.context import Context
from service.contract.queries import StreamQuery
from service.contract.routes import Call, Reply
from service.contract.values import parse_owner
from service.http.endpoint import X_REQUEST_ID
from service.http.fast_json import PlainStream
from service.streams.subscriptions import OwnerTopic, Topic, TopTopic, decode_event_id
from service.views.owners.owners import find_column
from storage.records import Board

SSE_TYPE = "text/event-stream"
LAST_EVENT_ID = "Last-Event-ID"
_HEADERS = {hdrs.CONTENT_TYPE: SSE_TYPE, hdrs.CACHE_CONTROL: "no-store", "X-Accel-Buffering": "no"}


class StreamClient:
    """The connection of a stream's client. It is a `Subscriber`: a feed (`service.streams.feed`) calls `write`."""

    def __init__(self, *, unread_bytes_max: int) -> None:
        self._unread_bytes_max = unread_bytes_max
        self._first: list[bytes] = []  # the events from before the connection was ready
        self._transport: asyncio.Transport | None = None
        self._chunked = False
        self._ended = asyncio.Event()

    async def serve(self, request: web.BaseRequest, response: web.StreamResponse, retry_ms: int) -> None:
        """Send the events from before the connection was ready, then let `write` send events until the stream ends."""
        await response.prepare(request)
        await response.write(b"retry: %d\n\n" % retry_ms + b"".join(self._first))
        self._first = []
        self._chunked = bool(response.chunked) or request.version >= HttpVersion11
        transport = request.transport
        if transport is not None and not self._ended.is_set():
            self._transport = transport
            await self._ended.wait()

    def write(self, text: bytes) -> bool:
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

    def end_stream(self) -> None:
        self._ended.set()


async def get_stream(context: Context, call: Call) -> Reply | web.StreamResponse:
    query: StreamQuery = call.query
    board, index = await find_column(context, call.path["board"], query.column)
    settings = context.settings
    if query.owner is None:
        top = query.top or min(settings.stream_top_default, settings.stream_top_max)
        return await follow_topic(
            context, call, board, (index, top), partial(TopTopic, context.ranks, board, index, top)
        )
    owner = parse_owner(query.owner)
    make = partial(OwnerTopic, context.ranks, board, index, owner)
    return await follow_topic(context, call, board, (index, owner), make)


async def follow_topic(
    context: Context, call: Call, board: Board, about: tuple[Hashable, ...], make: Callable[[], Topic]
) -> Reply | web.StreamResponse:
    """Send a client the events of a topic until it leaves. `about` identifies the topic among those about the board.

    Raises:
        StorageError: the topic's state can't be read, or too many streams are open.
    """
    if call.request.method == hdrs.METH_HEAD:
        return Reply(b"", media_type=SSE_TYPE)
    # Clients whose topics have equal keys share a topic. All boards of a family that no post has reached share a board
    # key, so the topic's key has the board's id, too.
    key = (board.id, board.key, board.edition, *about)
    feed, settings = context.feeds.find_feed(board), context.settings
    client = StreamClient(unread_bytes_max=settings.stream_unread_bytes_max)
    try:
        # If the board's id has an alias, it may have meant another board last time, so send the client the whole state.
        seen_id = "" if call.has_alias else call.request.headers.get(LAST_EVENT_ID, "").strip()
        last_seen = decode_event_id(seen_id, feed.partitions) if seen_id else None
        await feed.join_topic(key, make, client, last_seen=last_seen)
        response = PlainStream(headers={**_HEADERS, X_REQUEST_ID: call.request_id, **(call.answer_headers or {})})
        call.answered_s = perf_counter()  # do not measure how long the stream lasts, because the client decides that
        # A stream ends when its client leaves, or when the client's API key is revoked.
        with suppress(ConnectionError), context.keyring.end_when_revoked(call.identity, client.end_stream):
            await client.serve(call.request, response, round(settings.stream_retry_s * 1000))
        response.force_close()
        return response
    finally:
        feed.leave_topic(key, client)

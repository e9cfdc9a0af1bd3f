"""Reads the server-sent events of a service, for the command line.

The length of a line is bounded. The reader skips everything that is not an event, as the standard requires.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from urllib.parse import quote

import aiohttp
from yarl import URL

from service.client.client import ServiceClient, UnreachableError, board_path, refusal_of
from service.client.client_answers import one_line

LINE_BYTES_MAX = 1 << 20


async def read_events(
    client: ServiceClient, board: str, query: Mapping[str, str], *, last_event_id: int | None = None
) -> AsyncIterator[tuple[int, str, str]]:
    """Yield number, name and data of each event until the stream ends. Raises RefusedError, UnreachableError."""
    address = f"{client.url}{board_path(board)}/stream"
    address += "?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
    headers = {"Accept": "text/event-stream"}
    headers |= {} if last_event_id is None else {"Last-Event-ID": str(last_event_id)}
    timeout = aiohttp.ClientTimeout(total=None)
    fields: dict[str, str] = {}
    try:
        async with client.session.get(
            URL(address, encoded=True), headers=headers, timeout=timeout, read_bufsize=LINE_BYTES_MAX
        ) as response:
            if response.status != 200:
                raise refusal_of(response.status, await response.read())
            while line := await response.content.readline():
                text = line.decode().rstrip("\n")
                if not text and "data" in fields:
                    yield int(fields["id"]), fields["event"], fields["data"]
                    fields = {}
                name, _, value = text.partition(": ")
                if name:
                    fields[name] = value
    except (aiohttp.ClientError, TimeoutError, OSError) as cause:
        raise UnreachableError(
            f"no answer from {client.url}: {one_line(str(cause)) or type(cause).__name__}"
        ) from cause

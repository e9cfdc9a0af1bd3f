"""Read server-sent events in tests. A read waits until an event comes, never for a fixed time."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from aiohttp import ClientResponse, ClientSession, ClientTimeout

WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class StreamEvent:
    text_id: str
    name: str
    data: Any

    @property
    def id(self) -> int:
        """Return the number in the id. If the board is not in the first partition, its partition comes before."""
        return int(self.text_id.rpartition(".")[2])

    @property
    def rows(self) -> list[tuple[str, int]]:
        """Return the owner and the value of each entry in the data of a `top` event."""
        return [(entry["owner"], entry["value"]) for entry in self.data["entries"]]


class EventStream:
    """The server-sent events of one response."""

    def __init__(self, response: ClientResponse) -> None:
        self.response = response

    async def read_event(self) -> StreamEvent | None:
        """Return the next event, or None if the stream has ended."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(WAIT_S):
            while line := await self.response.content.readline():
                text = line.decode().rstrip("\n")
                if not text and "data" in fields:
                    data = json.loads(fields["data"], parse_float=Decimal)
                    return StreamEvent(fields["id"], fields["event"], data)
                name, _, value = text.partition(": ")
                if name:
                    fields[name] = value
        return None

    async def expect_event(self, name: str) -> StreamEvent:
        """Return the next event; fail if it has another name."""
        event = await self.read_event()
        assert event is not None
        assert event.name == name, event
        return event

    async def await_event(self, name: str, **data: object) -> StreamEvent:
        """Read events until an event has this name and has `data` among its data. Return that event."""
        while True:
            event = await self.read_event()
            assert event is not None
            if event.name == name and data.items() <= event.data.items():
                return event


@asynccontextmanager
async def events_of(
    base: str, path: str, *, last_id: int | str | None = None, headers: Mapping[str, str] | None = None
) -> AsyncIterator[EventStream]:
    """Open the event stream at a path. If `last_id` is given, send it as Last-Event-ID."""
    sent = {**(headers or {}), **({} if last_id is None else {"Last-Event-ID": str(last_id)})}
    async with (
        ClientSession(timeout=ClientTimeout(None)) as session,
        session.get(base + path, headers=sent) as response,
    ):
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        yield EventStream(response)

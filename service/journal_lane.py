"""The lane of long answers in lines: one of them is read and encoded at a time, a few lines a turn of the event loop.

A page of the journal costs a hundred times as much as an owner's positions. Its readers wait for each other here, so
that everybody else waits for some of its lines at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import islice

import msgspec

from storage.errors import StoreBusy

TURN_LINES = 40  # half a millisecond
# Between two of these turns. A turn of the loop alone would not do: the threads that read the store for others need the
# interpreter lock, and from a loop that never rests they get it a fifth of a millisecond late, each time.
_REST_S = 0.001
_encode = msgspec.json.Encoder().encode_lines


class JournalLane:
    """Lets one reader through at a time, in the order in which they came."""

    def __init__(self, *, reads_waiting_max: int) -> None:
        self._reads_waiting_max = reads_waiting_max
        self._waiting = 0
        self._free = asyncio.Semaphore(1)

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Hold the lane. Raises StoreBusy where too many wait for it."""
        if self._waiting >= self._reads_waiting_max:
            raise StoreBusy(f"{self._waiting} wait to read a journal")
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._free.release()


async def encode_in_turns(lines: Iterable[msgspec.Struct]) -> bytes:
    """Return the lines as NDJSON; others have their turns in between. `lines` is best lazy."""
    remaining, encoded = iter(lines), list[bytes]()
    while some := list(islice(remaining, TURN_LINES)):
        if encoded:
            await asyncio.sleep(_REST_S)
        encoded.append(_encode(some))
    return b"".join(encoded)

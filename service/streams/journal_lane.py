"""Lets only one long answer at a time be read and encoded, a few lines in each turn of the event loop.

A page of the journal takes far longer to encode than an owner's positions. Therefore readers of journals wait for each
other here, and every other request waits for at most one turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import islice

import msgspec

from storage.errors import StoreBusyError

TURN_LINES = 40  # lines that are encoded in one turn
# The pause between two turns. Yielding to the event loop is not enough. The threads that read the store for other
# requests need the interpreter lock, and a loop that never pauses releases the lock late each time.
_PAUSE_S = 0.001
_encode = msgspec.json.Encoder().encode_lines


class JournalLane:
    """Lets one reader through at a time, in the order of their arrival."""

    def __init__(self, *, reads_waiting_max: int) -> None:
        self._reads_waiting_max = reads_waiting_max
        self._waiting = 0
        self._free = asyncio.Semaphore(1)

    @asynccontextmanager
    async def hold_lane(self) -> AsyncIterator[None]:
        """Wait until all earlier readers have finished, and keep later readers waiting until the `with` block ends.

        Raises:
            StoreBusyError: `reads_waiting_max` readers are already waiting.
        """
        if self._waiting >= self._reads_waiting_max:
            raise StoreBusyError(f"{self._waiting} requests wait to read a journal already")
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
    """Return the lines as NDJSON, and let other tasks run in between.

    Pass a lazy iterable, so that the work of making the lines is also spread over the turns.
    """
    remaining, encoded = iter(lines), list[bytes]()
    while some := list(islice(remaining, TURN_LINES)):
        if encoded:
            await asyncio.sleep(_PAUSE_S)
        encoded.append(_encode(some))
    return b"".join(encoded)

"""Encodes long answers one at a time, and only a few lines in each turn of the event loop.

A page of a journal takes far longer to encode than an owner's positions, and nothing else can run in the meantime. So a
request for a journal waits here for earlier ones, and every other request waits for at most one turn.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import islice

import msgspec

from storage.errors import StoreBusyError

TURN_LINES = 40  # the number of lines that are encoded in one turn
# The pause between two turns. Without a pause, other tasks would run between two turns, but the threads that read the
# store for other requests would wait too long for the interpreter lock.
_PAUSE_S = 0.001
_encode = msgspec.json.Encoder().encode_lines


class LongAnswers:
    """Lets only one request at a time read and encode a journal, in the order in which the requests arrive."""

    def __init__(self, *, reads_waiting_max: int) -> None:
        self._reads_waiting_max = reads_waiting_max
        self._readers = 0  # how many requests are reading a journal or waiting for their turn
        self._free = asyncio.Semaphore(1)

    @asynccontextmanager
    async def hold_turn(self) -> AsyncIterator[None]:
        """Wait for earlier requests to finish, and keep later requests waiting until the `with` block ends.

        Raises:
            StoreBusyError: `reads_waiting_max` requests are already waiting.
        """
        if self._readers > self._reads_waiting_max:
            raise StoreBusyError(f"{self._readers - 1} requests wait to read a journal already")
        self._readers += 1
        try:
            async with self._free:
                yield
        finally:
            self._readers -= 1


async def encode_in_turns(lines: Iterable[msgspec.Struct]) -> bytes:
    """Encode lines as NDJSON, and let other tasks run after every TURN_LINES lines. `lines` may be a lazy iterator."""
    remaining, encoded = iter(lines), list[bytes]()
    while some := list(islice(remaining, TURN_LINES)):
        if encoded:
            await asyncio.sleep(_PAUSE_S)
        encoded.append(_encode(some))
    return b"".join(encoded)

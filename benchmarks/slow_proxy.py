"""A TCP proxy between the service and a database. The proxy multiplies the time of every answer by a factor.

python -m benchmarks.slow_proxy PORT TARGET

If the database answers after a time t, the proxy sends the answer to the service after t times the factor. At factor 1
nothing is delayed. Each line of standard input is a number: the new factor. The proxy ends when its standard input
ends.
"""

import asyncio
import contextlib
import sys
from time import perf_counter

import uvloop

from benchmarks.client import HOST

_CHUNK_BYTES = 256 * 1024


class Stretch:
    """The factor by which the proxy currently multiplies the time of each answer."""

    def __init__(self) -> None:
        self.factor = 1.0


class _Answers:
    """The times of the answers on one connection. The time of an answer begins when its question arrives."""

    def __init__(self, stretch: Stretch) -> None:
        self._stretch = stretch
        self._asked_at: float | None = None  # when the first question after the last answer arrived

    def note_question(self) -> None:
        if self._asked_at is None:
            self._asked_at = perf_counter()

    def hold_back_s(self, *, now: float) -> float:
        return 0.0 if self._asked_at is None else (now - self._asked_at) * (self._stretch.factor - 1)

    def note_answer(self) -> None:
        self._asked_at = None


async def _pass_questions(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: _Answers) -> None:
    while chunk := await reader.read(_CHUNK_BYTES):
        answers.note_question()
        writer.write(chunk)
        await writer.drain()


async def _pass_answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: _Answers) -> None:
    while chunk := await reader.read(_CHUNK_BYTES):
        # While this piece of an answer is held back, later bytes wait in `reader`. They are sent after this piece.
        await asyncio.sleep(answers.hold_back_s(now=perf_counter()))
        answers.note_answer()
        writer.write(chunk)
        await writer.drain()


async def start_proxy(port: int, target: int, stretch: Stretch) -> asyncio.Server:
    """Start to accept connections at `port`, and connect each of them to the database at port `target`."""

    async def connected(client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter) -> None:
        answers = _Answers(stretch)
        with contextlib.suppress(OSError):
            server_reader, server_writer = await asyncio.open_connection(HOST, target)
            ways = [
                asyncio.create_task(_pass_questions(client_reader, server_writer, answers)),
                asyncio.create_task(_pass_answers(server_reader, client_writer, answers)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            server_writer.close()
        client_writer.close()

    return await asyncio.start_server(connected, HOST, port)


async def _main(port: int, target: int) -> None:
    stretch = Stretch()
    server = await start_proxy(port, target, stretch)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async with server:
        while line := await lines.readline():
            stretch.factor = float(line)


if __name__ == "__main__":
    uvloop.run(_main(int(sys.argv[1]), int(sys.argv[2])))

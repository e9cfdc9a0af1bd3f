"""Measure the memory that slow request bodies cost: 200 connections that each send 8 MiB in small pieces.

python -m benchmarks.arriving_bodies [--seconds S]

All senders begin before any sender ends. There are two runs: in one run the requests declare the length of the body, in
the other run the bodies are sent chunked. The cost is the peak resident memory of the process minus its memory before
the run. Senders keep their pace even if the service falls behind. In that case aiohttp may buffer a quarter of a MiB
per connection, and the service does not count these bytes.

Bar: the cost is at most 320 MiB.
"""

import asyncio
import sys
from collections import Counter
from pathlib import Path

from benchmarks import report
from benchmarks.boards import BOARD, COLUMN, board_spec
from benchmarks.client import HOST, BadAnswerError, Connection
from benchmarks.options import Options, parse_options
from benchmarks.servers import serve_file

_SENDERS = 200
_BODY_BYTES = 8 * 1024 * 1024
_PIECES = 128
_GROWTH_MIB_MAX = 320
_POST = f'{{"owner": "slow", "stats": {{"{COLUMN}": 1}}}}'.encode()
_PATH = f"/v1/leaderboards/{BOARD}/posts"


async def _send(port: int, seconds: float, *, chunked: bool) -> tuple[int, int]:
    """Send one body over `seconds` seconds, until an answer comes. Return the status and the number of bytes sent."""
    reader, writer = await asyncio.open_connection(HOST, port)
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {_BODY_BYTES}"
    writer.write(
        f"POST {_PATH} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n{length}\r\n\r\n".encode()
    )
    answer, sent = asyncio.ensure_future(reader.readuntil(b"\r\n\r\n")), 0
    size = _BODY_BYTES // _PIECES
    try:
        while sent < _BODY_BYTES and not answer.done():
            piece = (_POST if sent == 0 else b"").ljust(size)  # spaces after the JSON do not change the post
            writer.write(b"%x\r\n%b\r\n" % (size, piece) if chunked else piece)
            await writer.drain()
            sent += size
            await asyncio.wait([answer], timeout=seconds / _PIECES)
        if chunked and not answer.done():
            writer.write(b"0\r\n\r\n")
        head = (await answer).decode("latin-1")
    finally:
        writer.close()
    status = int(head.split(" ", 2)[1])
    if status == 503 and "\r\nretry-after: " not in head.lower():
        raise BadAnswerError(f"a refusal without Retry-After: {head!r}")
    return status, sent


async def _send_all(port: int, seconds: float, *, chunked: bool) -> tuple[Counter[int], int]:
    """Send all bodies. Return the number of answers by status, and the most bytes that a refused sender had sent."""
    senders = [_send(port, seconds, chunked=chunked) for _ in range(_SENDERS)]
    answers = await asyncio.gather(*senders)
    statuses = Counter(status for status, _ in answers)
    if statuses.keys() - {200, 503} or not statuses[200]:
        raise BadAnswerError(f"answered {dict(statuses)}")
    return statuses, max((sent for status, sent in answers if status == 503), default=0)


async def _small_post(port: int) -> None:
    connection = Connection(port)
    await connection.call_ok("PUT", f"/v1/leaderboards/{BOARD}", board_spec([COLUMN]))
    for _ in range(100):  # these posts cause one-time allocations before memory is measured
        await connection.call_ok("POST", _PATH, {"owner": "first", "stats": {COLUMN: 1}})
    connection.close()


def measure(options: Options, folder: Path) -> list[report.Bar]:
    lines: list[list[str | float]] = []
    bars: list[report.Bar] = []
    for name, chunked in (("with a length", False), ("chunked", True)):
        home = folder / name.split()[-1]
        home.mkdir()
        with serve_file(home / "board.db", jobs="none") as server:
            asyncio.run(_small_post(server.port))
            before_mib = server.resident_mib()
            statuses, refused_bytes = asyncio.run(_send_all(server.port, options.seconds, chunked=chunked))
            growth_mib = server.most_resident_mib() - before_mib
        lines.append([name, statuses[200], statuses[503], refused_bytes / 2**20, before_mib, growth_mib])
        bars.append(report.Bar(f"memory for {_SENDERS} slow bodies {name}", growth_mib, _GROWTH_MIB_MAX, " MiB", True))
    columns = ("bodies", "taken", "refused", "most MiB sent by a refused one", "MiB before", "MiB more")
    report.print_table(columns, lines)
    return bars


def main() -> int:
    options = parse_options(__doc__, seconds=20.0)
    title = f"slow bodies: {_SENDERS} of {_BODY_BYTES >> 20} MiB in {_PIECES} pieces over {options.seconds:g} s each"
    return report.run_benchmark(options, title, measure)


if __name__ == "__main__":
    sys.exit(main())

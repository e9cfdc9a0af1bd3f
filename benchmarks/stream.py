"""A thousand clients follow ten boards on one process while posts come at half of the rate that it can take.

Rule kept: a probe's time begins when its post is answered; it is seen by a read of the row, a read of the top and by
every client of its board. Clients of a board have to have heard the same events.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import report
from benchmarks.boards import COLUMN, create, fill, owner, spec, values
from benchmarks.client import HOST, Connection
from benchmarks.options import Options, parse
from benchmarks.servers import Server, service

_BOARDS = 10
_CLIENTS = 1_000
_TOP = 10
_CONNECTIONS = 32
_PROBES_PER_S = 20
_SETTLE_S = 3.0
_FIRST = 10**12  # a probe's value: above all others
_LINE_BYTES_MAX = 1 << 20


def _board(number: int) -> str:
    return f"game-{number}"


@dataclass(slots=True)
class _Client:
    """What one client heard: (id, best value) and when."""

    board: int
    heard: list[tuple[int, int]] = field(default_factory=list)
    at_s: dict[int, float] = field(default_factory=dict)


async def _listen(port: int, client: _Client, begun: asyncio.Semaphore) -> None:
    reader, writer = await asyncio.open_connection(HOST, port, limit=_LINE_BYTES_MAX)
    path = f"/v1/leaderboards/{_board(client.board)}/stream?column={COLUMN}&top={_TOP}"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
    number = 0
    try:
        while line := await reader.readline():
            if line.startswith(b"id: "):
                number = int(line[4:])
            elif line.startswith(b"data: "):
                best = int(line.partition(b'"value":')[2].partition(b",")[0])
                client.heard.append((number, best))
                client.at_s[best] = time.perf_counter()
                begun.release()
    finally:
        writer.close()


async def _post_all(port: int, rows: int, seconds: float, *, per_s: float | None) -> float:
    """Single posts of random owners to the first board, as many as go or so many a second; answers posts a second."""
    ends = time.perf_counter() + seconds
    begun, done = time.perf_counter(), 0

    async def poster(number: int) -> None:
        nonlocal done
        rng, connection = random.Random(number), Connection(port)
        pause_s = None if per_s is None else _CONNECTIONS / per_s
        due = time.perf_counter() + (pause_s or 0) * number / _CONNECTIONS
        while time.perf_counter() < ends:
            body = json.dumps({"owner": owner(rng.randrange(rows)), "stats": {COLUMN: 1}}).encode()
            status, _ = await connection.call("POST", f"/v1/leaderboards/{_board(0)}/posts", body)
            done += status == 200
            if pause_s is not None:
                due += pause_s
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
        connection.close()

    async with asyncio.TaskGroup() as posters:
        for number in range(_CONNECTIONS):
            posters.create_task(poster(number))
    return done / (time.perf_counter() - begun)


async def _probe(port: int, seconds: float, seen: dict[str, list[float]]) -> dict[int, tuple[int, float]]:
    """Raise one owner above all others again and again; by value, the board and when its post was answered."""
    connection, probes = Connection(port), dict[int, tuple[int, float]]()
    begun = time.perf_counter()
    for number in range(round(seconds * _PROBES_PER_S)):
        await asyncio.sleep(max(0.0, begun + number / _PROBES_PER_S - time.perf_counter()))
        board, value = number % _BOARDS, _FIRST + number
        path = f"/v1/leaderboards/{_board(board)}"
        await connection.must("POST", path + "/posts", {"owner": "probe", "set": {COLUMN: value}})
        answered_s = time.perf_counter()
        probes[value] = board, answered_s
        row = await connection.must("GET", path + "/entries/probe")
        seen["row"].append(time.perf_counter() - answered_s if row["stats"][COLUMN] == value else 60.0)
        page = await connection.must("GET", f"{path}/rankings/{COLUMN}?limit={_TOP}")
        seen["top"].append(time.perf_counter() - answered_s if page["entries"][0]["value"] == value else 60.0)
    connection.close()
    return probes


async def _fill(port: int, rows: int) -> None:
    named = {COLUMN: values(rows)}
    await fill(port, _board(0), owners=[owner(index) for index in range(rows)], named=named, body=spec([COLUMN]))
    posts = [{"owner": owner(index), "stats": {COLUMN: index + 1}} for index in range(_TOP)]
    connection = Connection(port)
    for number in range(1, _BOARDS):
        await create(port, _board(number), spec([COLUMN]))
        await connection.must("POST", f"/v1/leaderboards/{_board(number)}/posts", {"posts": posts})
    connection.close()


async def _follow(port: int) -> tuple[list[_Client], list[asyncio.Task[None]]]:
    """All clients, each with its first event."""
    clients = [_Client(number % _BOARDS) for number in range(_CLIENTS)]
    begun = asyncio.Semaphore(0)
    listening = [asyncio.create_task(_listen(port, client, begun)) for client in clients]
    for _ in clients:
        await begun.acquire()
    return clients, listening


async def _memory(server: Server) -> float:
    """KiB of a process that has done nothing else, for each client."""
    await _fill(server.port, _TOP)
    before_mib = server.resident_mib()
    _, listening = await _follow(server.port)
    more_mib = server.resident_mib() - before_mib
    for task in listening:
        task.cancel()
    return more_mib * 1024 / _CLIENTS


async def _run(server: Server, options: Options) -> list[report.Bar]:
    port, rows, seconds = server.port, options.rows, options.seconds * options.rounds
    await _fill(port, rows)
    saturating = await _post_all(port, rows, options.seconds, per_s=None)
    clients, listening = await _follow(port)
    seen: dict[str, list[float]] = {"row": [], "top": []}
    posting = asyncio.create_task(_post_all(port, rows, seconds, per_s=saturating / 2))
    probes = await _probe(port, seconds, seen)
    rate = await posting
    await asyncio.sleep(_SETTLE_S)
    for task in listening:
        task.cancel()
    seen["stream"] = [
        client.at_s[value] - at_s
        for value, (board, at_s) in probes.items()
        for client in clients
        if client.board == board and value in client.at_s
    ]
    last = {board: value for value, (board, _) in probes.items()}
    heard = sum(len(client.heard) for client in clients)
    print(f"   saturating {saturating:,.0f} posts/s, then {rate:,.0f} beside the probes; {heard:,} events heard")
    report.table(
        ["accepted post visible in", "seen", "p50 ms", "p99 ms", "max ms"],
        [[name, len(took), *(_at(took, part) for part in (0.5, 0.99, 1))] for name, took in seen.items()],
    )
    different = sum(client.heard != clients[client.board].heard for client in clients)
    missed = sum(client.heard[-1][1] != last[client.board] for client in clients)
    return [
        *(report.Bar(f"p99 until in the {name}", _at(took, 0.99), 100, " ms", True) for name, took in seen.items()),
        report.Bar("clients that heard other events than their neighbours", different, 0, at_most=True),
        report.Bar("clients that do not know the last state", missed, 0, at_most=True),
    ]


def _at(took_s: list[float], part: float) -> float:
    """A quantile in milliseconds."""
    return 1000 * sorted(took_s)[round(part * (len(took_s) - 1))]


def measure(options: Options, folder: Path) -> list[report.Bar]:
    with service(folder / "idle.db") as server:
        memory_kib = asyncio.run(_memory(server))
    with service(folder / "board.db") as server:
        bars = asyncio.run(_run(server, options))
    return [*bars, report.Bar("memory of the process for a client", memory_kib, None, " KiB")]


def main() -> int:
    options = parse(__doc__, rows=100_000, seconds=5, rounds=4)
    title = f"streams: {_CLIENTS:,} clients of {_BOARDS} boards, {options.rows:,} rows on the one that is posted to"
    return report.run(options, title, measure)


if __name__ == "__main__":
    sys.exit(main())

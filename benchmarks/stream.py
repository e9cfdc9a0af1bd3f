"""Measure how soon an accepted post is visible, while 1,000 clients follow ten boards of one process.

python -m benchmarks.stream [--rows N] [--seconds S] [--rounds N]

Both stores are measured. Posts are sent at half of the highest rate that the process reaches. A probe is a post that
makes one owner the best. Three times are measured for each probe. All three begin when the probe is answered. They end
when a read of the row, a read of the top, and each client that follows the top of the board get the new value.

Bars: p99 of each of the three times is at most 100 ms. All clients that follow the same top get the same events. The
last event of a client that follows an owner has the owner's final rank. Memory per client is only reported.
"""

import asyncio
import json
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import report
from benchmarks.boards import COLUMN, board_spec, create_board, draw_values, fill_board, owner_at, refresh_columns
from benchmarks.client import HOST, Connection
from benchmarks.options import Options, parse_options
from benchmarks.servers import POSTGRES_SETTINGS, Server, serve_file, serve_store
from tests.servers import postgres

_BOARDS = 10
_CLIENTS = 1_000
_FOLLOW_OWNERS = 2  # on the board that gets the load, every second client follows an owner, not the top
_TOP = 10
_CONNECTIONS = 128  # enough to saturate the process; with 32 connections it would wait for the disk
_PROBES_PER_S = 20
_SETTLE_S = 3.0
_FIRST = 10**12  # the value of the first probe, above the values of all other owners
_LINE_BYTES_MAX = 1 << 20


def _board(number: int) -> str:
    return f"game-{number}"


@dataclass(slots=True)
class _Client:
    """A client that follows a top or an owner, and the events that this client got."""

    board: int
    owner: str | None = None  # the owner that the client follows; None if the client follows the top
    heard: list[tuple[int, int]] = field(default_factory=list)  # (event id, best value or rank) of each event
    at_s: dict[int, float] = field(default_factory=dict)  # when the client received each best value


async def _listen(port: int, client: _Client, begun: asyncio.Semaphore) -> None:
    reader, writer = await asyncio.open_connection(HOST, port, limit=_LINE_BYTES_MAX)
    what = f"top={_TOP}" if client.owner is None else f"owner={client.owner}"
    path = f"/v1/leaderboards/{_board(client.board)}/stream?column={COLUMN}&{what}"
    field_name = b'"value":' if client.owner is None else b'"rank":'
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
    number = 0
    try:
        while line := await reader.readline():
            if line.startswith(b"id: "):
                number = int(line[4:])
            elif line.startswith(b"data: "):
                told = int(line.partition(field_name)[2].partition(b",")[0])
                client.heard.append((number, told))
                if client.owner is None:
                    client.at_s[told] = time.perf_counter()
                begun.release()
    finally:
        writer.close()


async def _post_single(port: int, rows: int, seconds: float, *, per_s: float | None) -> float:
    """Send single posts of random owners to the first board.

    Send `per_s` posts per second. If `per_s` is None, send each post as soon as an earlier post is answered. Return the
    applied posts per second.
    """
    ends = time.perf_counter() + seconds
    begun, done = time.perf_counter(), 0

    async def poster(number: int) -> None:
        nonlocal done
        rng, connection = random.Random(number), Connection(port)
        pause_s = None if per_s is None else _CONNECTIONS / per_s
        due = time.perf_counter() + (pause_s or 0) * number / _CONNECTIONS
        while time.perf_counter() < ends:
            body = json.dumps({"owner": owner_at(rng.randrange(rows)), "stats": {COLUMN: 1}}).encode()
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
    """Send probes to all boards in turn, and time the reads that follow.

    Return (board, time of the answer) by the value of each probe.
    """
    connection, probes = Connection(port), dict[int, tuple[int, float]]()
    readers = Connection(port), Connection(port)

    async def row_seen(path: str, value: int, answered_s: float) -> None:
        row = await readers[0].call_ok("GET", path + "/entries/probe")
        seen["row"].append(time.perf_counter() - answered_s if row["stats"][COLUMN] == value else 60.0)

    async def top_seen(path: str, value: int, answered_s: float) -> None:
        page = await readers[1].call_ok("GET", f"{path}/rankings/{COLUMN}?limit={_TOP}")
        seen["top"].append(time.perf_counter() - answered_s if page["entries"][0]["value"] == value else 60.0)

    begun = time.perf_counter()
    for number in range(round(seconds * _PROBES_PER_S)):
        await asyncio.sleep(max(0.0, begun + number / _PROBES_PER_S - time.perf_counter()))
        board, value = number % _BOARDS, _FIRST + number
        path = f"/v1/leaderboards/{_board(board)}"
        await connection.call_ok("POST", path + "/posts", {"owner": "probe", "set": {COLUMN: value}})
        answered_s = time.perf_counter()
        probes[value] = board, answered_s
        await asyncio.gather(row_seen(path, value, answered_s), top_seen(path, value, answered_s))
    for reader in readers:
        reader.close()
    connection.close()
    return probes


async def _fill(port: int, rows: int) -> None:
    named = {COLUMN: draw_values(rows)}
    await fill_board(
        port, _board(0), owners=[owner_at(index) for index in range(rows)], named=named, body=board_spec([COLUMN])
    )
    posts = [{"owner": owner_at(index), "stats": {COLUMN: index + 1}} for index in range(_TOP)]
    connection = Connection(port)
    for number in range(1, _BOARDS):
        await create_board(port, _board(number), board_spec([COLUMN]))
        await connection.call_ok("POST", f"/v1/leaderboards/{_board(number)}/posts", {"posts": posts})
    connection.close()


async def _follow(port: int, rows: int) -> tuple[list[_Client], list[asyncio.Task[None]]]:
    """Start all clients, and return the clients and their tasks once each client has its first event."""
    clients = [_Client(number % _BOARDS) for number in range(_CLIENTS)]
    of_owners = clients[:: _BOARDS * _FOLLOW_OWNERS]
    for index, client in enumerate(of_owners):
        client.owner = owner_at(index * rows // len(of_owners))
    begun = asyncio.Semaphore(0)
    listening = [asyncio.create_task(_listen(port, client, begun)) for client in clients]
    for _ in clients:
        await begun.acquire()
    return clients, listening


async def _measure_memory(server: Server) -> float:
    """Return how many KiB of memory each client costs a process that has no other load."""
    await _fill(server.port, _TOP)
    before_mib = server.resident_mib()
    _, listening = await _follow(server.port, _TOP)
    more_mib = server.resident_mib() - before_mib
    for task in listening:
        task.cancel()
    return more_mib * 1024 / _CLIENTS


async def _measure_store(server: Server, options: Options, store: str) -> list[report.Bar]:
    port, rows, seconds = server.port, options.rows, options.seconds * options.rounds
    await _fill(port, rows)
    await refresh_columns(port, _board(0), [COLUMN])
    saturating = await _post_single(port, rows, options.seconds, per_s=None)
    clients, listening = await _follow(port, rows)
    seen: dict[str, list[float]] = {"row": [], "top": []}
    begun_s, before_s = time.perf_counter(), (server.cpu_s(), time.process_time())
    posting = asyncio.create_task(_post_single(port, rows, seconds, per_s=saturating / 2))
    probes = await _probe(port, seconds, seen)
    rate = await posting
    took_s, after_s = time.perf_counter() - begun_s, (server.cpu_s(), time.process_time())
    await asyncio.sleep(_SETTLE_S)
    wrong = await _count_wrong_ranks(port, clients)
    for task in listening:
        task.cancel()
    seen["stream"] = [
        client.at_s[value] - at_s
        for value, (board, at_s) in probes.items()
        for client in clients
        if client.board == board and value in client.at_s
    ]
    heard = sum(len(client.heard) for client in clients)
    print(
        f"   {store}: saturating {saturating:,.0f} posts/s, then {rate:,.0f} beside the probes; {heard:,} events heard"
    )
    shares = [f"{(after - before) / took_s:.0%}" for before, after in zip(before_s, after_s, strict=True)]
    print(f"   of a core: the service {shares[0]}, clients and probes {shares[1]}")
    report.print_table(
        [f"{store}: accepted post visible in", "seen", "p50 ms", "p99 ms", "max ms"],
        [[name, len(took), *(_quantile_ms(took, part) for part in (0.5, 0.99, 1))] for name, took in seen.items()],
    )
    return [
        *(
            report.Bar(f"{store}: p99 until in the {name}", _quantile_ms(took, 0.99), 100, " ms", True)
            for name, took in seen.items()
        ),
        *_top_bars(store, clients, {board: value for value, (board, _) in probes.items()}),
        report.Bar(f"{store}: clients that know another rank of their owner than reads tell", wrong, 0, at_most=True),
    ]


def _top_bars(store: str, clients: list[_Client], last: dict[int, int]) -> list[report.Bar]:
    """Return two bars for the clients that follow a top: all got the same events, and all got the last best value.

    `last` maps a board to its best value at the end.
    """
    tops = [client for client in clients if client.owner is None]
    first = {client.board: client for client in reversed(tops)}
    # The first event of each client is left out, because its id depends on when the client connected.
    different = sum(client.heard[1:] != first[client.board].heard[1:] for client in tops)
    missed = sum(client.heard[-1][1] != last[client.board] for client in tops)
    return [
        report.Bar(f"{store}: clients that heard other events than their neighbours", different, 0, at_most=True),
        report.Bar(f"{store}: clients that do not know the last state", missed, 0, at_most=True),
    ]


async def _count_wrong_ranks(port: int, clients: list[_Client]) -> int:
    """Count the clients whose last event has a wrong rank of the owner that they follow. Call this after all posts."""
    connection, wrong = Connection(port), 0
    for client in (client for client in clients if client.owner is not None):
        path = f"/v1/leaderboards/{_board(client.board)}/entries/{client.owner}/positions?columns={COLUMN}&rank=exact"
        [position] = (await connection.call_ok("GET", path))["positions"]
        wrong += client.heard[-1][1] != position["rank"]
    connection.close()
    return wrong


def _quantile_ms(took_s: list[float], part: float) -> float:
    return 1000 * sorted(took_s)[round(part * (len(took_s) - 1))]


def measure(options: Options, folder: Path) -> list[report.Bar]:
    with serve_file(folder / "idle.db") as server:
        memory_kib = asyncio.run(_measure_memory(server))
    with serve_file(folder / "board.db") as server:
        bars = asyncio.run(_measure_store(server, options, "SQLite"))
    with postgres(POSTGRES_SETTINGS) as cluster, serve_store(cluster.create_database("streams"), folder) as server:
        bars += asyncio.run(_measure_store(server, options, "PostgreSQL"))
    return [*bars, report.Bar("memory of the process for a client", memory_kib, None, " KiB")]


def main() -> int:
    options = parse_options(__doc__, rows=100_000, seconds=5, rounds=4)
    title = f"streams: {_CLIENTS:,} clients of {_BOARDS} boards, {options.rows:,} rows on the one that is posted to"
    return report.run_benchmark(options, title, measure)


if __name__ == "__main__":
    sys.exit(main())

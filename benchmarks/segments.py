"""Measure a board of several segments, the same board of one segment, and the same board on plain PostgreSQL.

    python -m benchmarks.segments [--rows N] [--seconds S] [--rounds N] [--store URL] [--segments N] [--fronts N]
                                  [--ways NAME ...]

`--store` names an empty database, or a store with partitions, which may be on Citus: the boards of one and of several
segments are there. Without it, they are in four partitions on a PostgreSQL server that this benchmark starts. The plain
board is in a store without partitions, on a server with the same settings for how fast it commits.

Each contestant has `--fronts` front ends, and wrk loads all of them at once. `--ways` names some of the ways to read
and post, by the first words of their names. Boards that exist from an earlier run are not filled again.

With more than `_COMPARED_ROWS_MAX` rows, only a board of eight segments is filled, refreshed and read, and the memory
of a front end without jobs is measured.

Bars: see `_BARS`; with 32 segments or more, batches with post ids at least 0.85 of one segment's. Memory of a front end
at most 250 MiB.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import load, report
from benchmarks.batch_posts import through_http
from benchmarks.boards import BATCH, COLUMN, board_spec, create_board
from benchmarks.bulk import load_rows
from benchmarks.client import call_once, call_service
from benchmarks.journal_partitions import prepare_store
from benchmarks.options import Options
from benchmarks.partitions_disturbed import rotate_hosts
from benchmarks.positions import FEW, MANY
from benchmarks.servers import POSTGRES_SETTINGS, Server, run_sql, serve_store
from tests.servers import postgres

_COMPARED_ROWS_MAX = 5_000_000
_SEGMENTS_OF_LARGE = 8
_MEMORY_MIB_MAX = 250.0
_CLIENTS = 64  # that post single posts
_READER_PAUSE_MS = 20.0  # of the readers beside whom others post: at most 1,600 reads a second
_PLAIN, _ONE, _SEVERAL = "plain", "one segment", "several"
_CLOSING = "-closing"  # ends the ids of boards that close
_CLOSES_AT = "2100-01-01T00:00:00Z"
_COMMIT_SETTINGS = ("fsync", "full_page_writes", "synchronous_commit", "wal_level", "shared_buffers")
_READS = {  # by name: the path before and after the owner, or the whole path of a request without an owner
    "positions, estimate": ("/entries/", "/positions?rank=estimate"),
    "positions, exact": ("/entries/", "/positions?rank=exact"),
    "around an owner": ("/entries/", f"/around?column={COLUMN}&better=5&worse=5"),
    "top 100": (f"/rankings/{COLUMN}?limit=100", None),
}
# By way: the least rate of one segment / plain PostgreSQL, and of several segments / one segment. None: no bar.
_BARS: dict[str, tuple[float | None, float | None]] = {
    f"positions, estimate, {FEW} connections": (0.9, 0.9),
    f"positions, estimate, {MANY} connections": (None, 0.9),
    "positions, exact": (0.8, 0.9),
    "around an owner": (0.85, 0.5),
    "top 100": (None, 0.6),
    f"single posts, {_CLIENTS} clients": (0.9, 0.8),
    "single posts to a board that closes": (None, 0.8),
    "single posts beside reads": (None, None),
    f"batches of {BATCH:,}": (None, 0.8),
    f"batches of {BATCH:,} with post ids": (0.85, 0.95),
}
_MANY_SEGMENTS, _MANY_BAR = 32, 0.85

Contestant = Callable[[int], load.Figure]


@dataclass(frozen=True, slots=True)
class _Side:
    """A contestant, which is a board and the front ends that serve it."""

    board: str
    fronts: Sequence[Server]

    def run_at_all(self, make: Callable[[Server, str], Contestant], *, board: str | None = None) -> Contestant:
        """Return a contestant that runs the result of `make(front, board)` at all front ends at once."""
        each = [make(front, board or self.board) for front in self.fronts]

        def contestant(number: int) -> load.Figure:
            with ThreadPoolExecutor(len(each)) as pool:
                found: list[load.Figure] = list(pool.map(lambda one: one(number), each))
            slowest = max(found, key=lambda figure: figure.p99_ms)
            return load.Figure(sum(figure.per_s for figure in found), slowest.p50_ms, slowest.p99_ms)

        return contestant


def _prepare_board(url: str, folder: Path, board: str, segments: int, rows: int) -> None:
    """Create a board and fill it through the store, unless it already exists.

    Also create an empty board that closes.
    """
    with serve_store(url, folder, jobs="none") as server:
        status, _ = call_once(server.port, "GET", f"/v1/leaderboards/{board}")
        if status == 200:
            return
        spec = {**board_spec([COLUMN]), "segments": segments}
        asyncio.run(create_board(server.port, board + _CLOSING, {**spec, "closes_at": _CLOSES_AT}))
        asyncio.run(create_board(server.port, board, spec))
    begun = time.perf_counter()
    asyncio.run(load_rows(url, rows, board_id=board))
    print(f"   {board}: {rows:,} rows in {time.perf_counter() - begun:.0f} s", flush=True)


async def _refresh(port: int, board: str) -> float:
    """Refresh the board's curve. Return the seconds until the answer."""
    begun = time.perf_counter()
    answer = await call_service(port, "POST", f"/v1/leaderboards/{board}/rankings/{COLUMN}/refresh")
    took_s = time.perf_counter() - begun
    print(f"   {board}: refreshed in {took_s:.1f} s, certificate {answer['certificate']}", flush=True)
    return took_s


def _reader(
    read: str, rows: int, seconds: float, connections: int, front: Server, board: str, *, pause_ms: float = 0.0
) -> Contestant:
    path, after = _READS[read]
    path = f"/v1/leaderboards/{board}{path}"
    target = load.Target(front.url, path)
    if after is not None:
        target = load.Target(front.url, path, after, rows=rows, pause_ms=pause_ms)
    return load.wrk_contestant(target, connections=connections, seconds=seconds)


def _poster(rows: int, seconds: float, connections: int, front: Server, board: str) -> Contestant:
    target = load.Target(front.url, f"/v1/leaderboards/{board}/posts", column=COLUMN, rows=rows)
    return load.wrk_contestant(target, connections=connections, seconds=seconds)


def _beside(measured: Contestant, other: Contestant) -> Contestant:
    """Return a contestant that runs two others at once and returns the first one's figure."""

    def contestant(number: int) -> load.Figure:
        with ThreadPoolExecutor(1) as pool:
            beside = pool.submit(other, number)
            figure = measured(number)
            beside.result()
        return figure

    return contestant


def _contestant(way: str, side: _Side, options: Options) -> Contestant:
    """Return a contestant that reads or posts in one of the ways in `_BARS`. The front ends share the connections."""
    rows, seconds, fronts = options.rows, options.seconds, len(side.fronts)
    few, many, clients = (max(1, connections // fronts) for connections in (FEW, MANY, _CLIENTS))
    post = partial(_poster, rows, seconds, clients)
    if way == "single posts beside reads":
        reads = partial(_reader, "positions, estimate", rows, seconds, few, pause_ms=_READER_PAUSE_MS)
        return _beside(side.run_at_all(post), side.run_at_all(reads))
    if way == "single posts to a board that closes":
        return side.run_at_all(post, board=side.board + _CLOSING)
    if way.startswith("single"):
        return side.run_at_all(post)
    if way.startswith("batches"):
        count = max(4, round(seconds * 8 / fronts))
        with_ids, name = "ids" in way, f"{time.time_ns():x}"  # post ids differ from those of earlier runs
        return side.run_at_all(
            lambda front, board: through_http(
                front.port, rows, count, board=board, with_ids=with_ids, name=f"{name}-{front.port}"
            )
        )
    read = next(read for read in _READS if way.startswith(read))
    return side.run_at_all(partial(_reader, read, rows, seconds, many if str(MANY) in way else few))


def _compare(way: str, sides: dict[str, _Side], options: Options) -> Iterator[report.Bar]:
    print(f"   {way}, {options.fronts} front ends:")
    contestants = {name: _contestant(way, side, options) for name, side in sides.items()}
    figures = load.compare(contestants, rounds=options.rounds)
    to_plain, to_one = _BARS[way]
    if options.segments >= _MANY_SEGMENTS:
        to_one = _MANY_BAR if "ids" in way else None
    name = f"{way}: rate of one segment / plain PostgreSQL"
    yield report.Bar(name, load.median_ratio(figures[_ONE], figures[_PLAIN]), to_plain)
    name = f"{way}: rate of {options.segments} segments / one"
    yield report.Bar(name, load.median_ratio(figures[_SEVERAL], figures[_ONE]), to_one)


def _find_settings(url: str) -> dict[str, str]:
    """Return the settings for the plain server, namely those that decide how fast the other server commits."""
    shown = ", ".join(f"current_setting('{name}')" for name in _COMMIT_SETTINGS)
    [found] = run_sql(url, f"SELECT {shown}")
    return {**POSTGRES_SETTINGS, **dict(zip(_COMMIT_SETTINGS, found, strict=True))}


@contextmanager
def _serve_sides(url: str, folder: Path, options: Options) -> Iterator[dict[str, _Side]]:
    """Fill the boards, serve them, and yield the three contestants."""
    boards = {_ONE: f"one-{options.rows}", _SEVERAL: f"{options.segments}-segments-{options.rows}"}
    with ExitStack() as stack:
        plain = stack.enter_context(postgres(_find_settings(url))).create_database("plain")
        _prepare_board(plain, folder, _PLAIN, 1, options.rows)
        for name, board in boards.items():
            _prepare_board(url, folder, board, 1 if name == _ONE else options.segments, options.rows)

        def serve(at: str) -> list[Server]:
            """Start the front ends. The first one runs the jobs, and each one connects to a different node first."""
            jobs = ["embedded", *["none"] * (options.fronts - 1)]
            return [
                stack.enter_context(serve_store(rotate_hosts(at, number), folder, jobs=each))
                for number, each in enumerate(jobs)
            ]

        fronts = serve(url)
        sides = {_PLAIN: _Side(_PLAIN, serve(plain)), **{name: _Side(each, fronts) for name, each in boards.items()}}
        for side in sides.values():
            asyncio.run(_refresh(side.fronts[0].port, side.board))
        yield sides


def _fill_large(url: str, folder: Path, options: Options) -> list[report.Bar]:
    begun = time.perf_counter()
    _prepare_board(url, folder, "large", _SEGMENTS_OF_LARGE, options.rows)
    filled_s = time.perf_counter() - begun
    with serve_store(url, folder) as server:
        refreshed_s = asyncio.run(_refresh(server.port, "large"))
    bars = [
        report.Bar("rows filled per second", options.rows / filled_s, None),
        report.Bar("refresh of all segments", refreshed_s, None, " s"),
    ]
    with serve_store(url, folder, jobs="none") as front:
        for read in _READS:
            reader = _reader(read, options.rows, options.seconds, FEW, front, "large")
            figures = load.compare({read: reader}, rounds=options.rounds)
            bars.append(report.Bar(f"{read}, per second", load.median_per_s(figures[read]), None))
        for rank in (1_000_000, options.rows // 2):
            page = partial(load.run_wrk, connections=1, seconds=options.seconds, seed=1)
            target = load.Target(front.url, f"/v1/leaderboards/large/rankings/{COLUMN}?from_rank={rank}&limit=50")
            bars.append(report.Bar(f"page from rank {rank:,}", page(target).p50_ms, None, " ms"))
        bars.append(
            report.Bar("memory of a front end", front.most_resident_mib(), _MEMORY_MIB_MAX, " MiB", at_most=True)
        )
    return bars


def measure(options: Options, folder: Path) -> list[report.Bar]:
    ways = [way for way in _BARS if any(map(way.startswith, options.ways or [""]))]
    with ExitStack() as stack:
        url = options.store or stack.enter_context(postgres(POSTGRES_SETTINGS)).create_database("segments")
        asyncio.run(prepare_store(url))
        if options.rows > _COMPARED_ROWS_MAX:
            return _fill_large(url, folder, options)
        with _serve_sides(url, folder, options) as sides:
            return [bar for way in ways for bar in _compare(way, sides, options)]


if __name__ == "__main__":
    report.run_program(measure, __doc__, "segments: {rows:,} rows, {rounds} rounds, {segments} segments")

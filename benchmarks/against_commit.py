"""Compare this source tree with another commit: the rates of reads, of posts in five ways, and of refreshes.

python -m benchmarks.against_commit [--commit HEAD~1] [--rows N] [--seconds S] [--rounds N]

A service of this tree and a service of the other commit run at the same time, first on SQLite and then on PostgreSQL.
Each service fills a store of its own. The two services get rounds of load in turn. Afterwards, four processes of each
take posts on PostgreSQL, without and with a synchronous standby.

Bars: every rate is at least 0.97 times the rate of the other commit; with four processes, 0.95 times for batches and
0.9 times for single posts.
"""

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks import load, report
from benchmarks.batch_posts import through_http
from benchmarks.boards import (
    BATCH,
    BOARD,
    COLUMN,
    batch_body,
    board_spec,
    draw_batches,
    fill_board,
    refresh_columns,
    send_batches,
)
from benchmarks.client import Connection, call_service, for_each
from benchmarks.options import Options
from benchmarks.positions import FEW
from benchmarks.servers import POSTGRES_SETTINGS, PROJECT, Server, serve_store
from benchmarks.single_posts import CLIENTS
from benchmarks.standby_promoted import set_synchronous_standbys
from tests.servers import PostgresServer, postgres

_LEAST_RATIO = 0.97
_PROCESSES = 4
_BATCHES = f"batches of {BATCH:,}"
_LEAST_OF_PROCESSES = {"single posts": 0.9, _BATCHES: 0.95}  # and no other paths
_POSTS_PER_S = 15_000  # an assumed rate, from which the number of batches for a round is computed
_OURS = "this tree"
_FAMILY_BATCH = 80
_QUEUEING = 8  # connections that queue batches
_QUEUE_LOOK_S = 0.004
_REFRESHES = 8  # in each round
_PERIODS = ["all", "year", "month", "week", "day"]
_FAMILY = {**board_spec([COLUMN]), "periods": _PERIODS, "facets": [[], ["org"]]}


def unpack_commit(commit: str, folder: Path) -> Path:
    """Write all files of a commit to a new folder below `folder`, and return the path of the new folder.

    Raises CalledProcessError if git has no such commit.
    """
    tree = folder / "tree"
    tree.mkdir()
    archive = subprocess.run(["git", "archive", commit], cwd=PROJECT, stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "-x"], cwd=tree, input=archive.stdout, check=True)
    return tree


def contestants(port: int, options: Options) -> dict[str, Callable[[int], load.Figure]]:
    """Return the load that saturates each path of the service at a port, keyed by the path's name."""
    url, board = f"http://127.0.0.1:{port}", f"/v1/leaderboards/{BOARD}"
    positions = load.Target(url, f"{board}/entries/", "/positions", rows=options.rows)
    around = load.Target(url, f"{board}/entries/", f"/around?column={COLUMN}&better=5&worse=5", rows=options.rows)
    top = load.Target(url, f"{board}/rankings/{COLUMN}?limit=10")
    posts = load.Target(url, f"{board}/posts", column=COLUMN, rows=options.rows)
    batches = max(1, round(options.seconds * _POSTS_PER_S / BATCH))
    return {
        "positions": load.wrk_contestant(positions, connections=FEW, seconds=options.seconds),
        "around": load.wrk_contestant(around, connections=FEW, seconds=options.seconds),
        "top 10": load.wrk_contestant(top, connections=FEW, seconds=options.seconds),
        "single posts": load.wrk_contestant(posts, connections=CLIENTS, seconds=options.seconds),
        _BATCHES: through_http(port, options.rows, batches),
        "posts to a family": partial(_post_to_family, port, options.rows, max(1, batches // 20)),
        "queued posts": partial(_queue_posts, port, options.rows, batches),
        "refreshes": partial(_refresh, port),
    }


def _post_to_family(port: int, rows: int, count: int, number: int) -> load.Figure:
    """Send `count` batches of posts with ids, each to 10 boards. Return the figure in posts per second."""
    asyncio.run(call_service(port, "PUT", f"/v1/families/{BOARD}", _FAMILY))
    bodies = [
        batch_body(batch, post_id_prefix=f"{number}/{index}", faceted=True)
        for index, batch in enumerate(draw_batches(rows, seed=number, count=count, size=_FAMILY_BATCH))
    ]
    begun = time.perf_counter()
    asyncio.run(send_batches(port, BOARD, bodies, size=_FAMILY_BATCH, kind="families"))
    return load.Figure(count * _FAMILY_BATCH / (time.perf_counter() - begun))


def _queue_posts(port: int, rows: int, count: int, number: int) -> load.Figure:
    """Queue `count` batches, and wait until they are applied. Return the figure in posts per second."""
    bodies = [batch_body(batch) for batch in draw_batches(rows, seed=number, count=count)]

    async def queue(connection: Connection, body: bytes) -> None:
        status, answer = await connection.call("POST", f"/v1/leaderboards/{BOARD}/posts?mode=queued", body)
        assert status == 202, answer

    async def queue_all() -> None:
        await for_each(port, bodies, queue, connections=_QUEUEING)
        while (await call_service(port, "GET", "/v1/queue"))["posts"]:  # noqa: ASYNC110 - no event tells its end
            await asyncio.sleep(_QUEUE_LOOK_S)

    begun = time.perf_counter()
    asyncio.run(queue_all())
    return load.Figure(count * BATCH / (time.perf_counter() - begun))


def _refresh(port: int, _number: int) -> load.Figure:
    """Refresh the board's curve several times. Return the figure in refreshes per second."""
    begun = time.perf_counter()
    asyncio.run(refresh_columns(port, BOARD, [COLUMN] * _REFRESHES))
    return load.Figure(_REFRESHES / (time.perf_counter() - begun))


def _compare(
    store: str, servers: Mapping[str, Server], options: Options, bars: Mapping[str, float] | None = None
) -> list[report.Bar]:
    """Measure the paths named in `bars`, which maps them to the least ratios allowed, or all paths without `bars`."""
    for server in servers.values():
        # With method auto, one side could sample while the other scans, because the machine is busier then.
        asyncio.run(fill_board(server.port, rows=options.rows, fields={"predictor": {"method": "scan"}}))
    sides = {side: contestants(server.port, options) for side, server in servers.items()}
    rows, found_bars = [], []
    # Paths are measured one after the other. If they took turns, the folding after a round of posts would disturb the
    # next round of another path.
    for path in bars or sides[_OURS]:
        figures = load.run_alternately({side: paths[path] for side, paths in sides.items()}, rounds=options.rounds)
        rows += [load.table_row(f"{store}, {path}, {side}", found) for side, found in figures.items()]
        ratio = load.median_ratio(figures[_OURS], figures[options.commit])
        least = bars[path] if bars else _LEAST_RATIO
        found_bars.append(report.Bar(f"{store}: {path}, this tree / {options.commit}", ratio, least))
    report.print_table(load.COLUMNS, rows)
    return found_bars


def measure(options: Options, folder: Path) -> list[report.Bar]:
    trees = {_OURS: PROJECT, options.commit: unpack_commit(options.commit, folder)}

    def start(urls: Mapping[str, str], stack: ExitStack, *, processes: int = 1) -> dict[str, Server]:
        several = {} if processes == 1 else {"RANKCURVE_WORKERS": str(processes)}
        return {
            side: stack.enter_context(
                serve_store(
                    urls[side], folder, environment={"PYTHONPATH": f"{tree}:{tree / 'clients/python'}", **several}
                )
            )
            for side, tree in trees.items()
        }

    with ExitStack() as stack:
        files = {side: f"sqlite:///{folder}/board-{number}.db" for number, side in enumerate(trees)}
        bars = _compare("SQLite", start(files, stack), options)
    with ExitStack() as stack:
        cluster = stack.enter_context(postgres(POSTGRES_SETTINGS))
        databases = {side: cluster.create_database(f"board{number}") for number, side in enumerate(trees)}
        bars += _compare("PostgreSQL", start(databases, stack), options)
    for standby in (False, True):
        with ExitStack() as stack:
            cluster = stack.enter_context(postgres(POSTGRES_SETTINGS))
            if standby:
                stack.enter_context(_synchronous_standby(cluster))
            databases = {side: cluster.create_database(f"board{number}") for number, side in enumerate(trees)}
            store = f"PostgreSQL{' with a synchronous standby' if standby else ''}, {_PROCESSES} processes"
            servers = start(databases, stack, processes=_PROCESSES)
            bars += _compare(store, servers, options, _LEAST_OF_PROCESSES)
    return bars


@contextmanager
def _synchronous_standby(cluster: PostgresServer) -> Iterator[None]:
    standby = PostgresServer(POSTGRES_SETTINGS, standby_of=cluster)
    try:
        standby.start()
        set_synchronous_standbys(cluster, "*")
        yield
    finally:
        set_synchronous_standbys(cluster, "")
        standby.remove()


if __name__ == "__main__":
    report.run_program(
        measure,
        __doc__,
        "against {commit}: {rows:,} rows, {rounds} rounds of {seconds:g} s",
        rows=300_000,
        seconds=3.0,
        rounds=7,
    )

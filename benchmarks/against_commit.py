"""Compare this source tree with another commit: the rates of `positions`, `around`, single posts and batches.

python -m benchmarks.against_commit [--commit HEAD~1] [--rows N] [--seconds S] [--rounds N]

A service of this tree and a service of the other commit run at the same time, first on SQLite and then on PostgreSQL.
Each service fills a store of its own. The two services get rounds of load in turn. Afterwards, four processes of each
take posts on PostgreSQL, without and with a synchronous standby.

Bars: every rate is at least 0.97 times the rate of the other commit; with four processes, 0.95 times for batches and
0.9 times for single posts.
"""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks import load, report
from benchmarks.batch_posts import through_http
from benchmarks.boards import BATCH, BOARD, COLUMN, board_spec, draw_values, fill_board, owner_at, refresh_columns
from benchmarks.options import Options, parse_options
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
    """Return what saturates each path of the service on a port, by the path's name."""
    url, board = f"http://127.0.0.1:{port}", f"/v1/leaderboards/{BOARD}"
    positions = load.Target(url, f"{board}/entries/", "/positions", rows=options.rows)
    around = load.Target(url, f"{board}/entries/", f"/around?column={COLUMN}&better=5&worse=5", rows=options.rows)
    posts = load.Target(url, f"{board}/posts", column=COLUMN, rows=options.rows)
    batches = max(1, round(options.seconds * _POSTS_PER_S / BATCH))
    return {
        "positions": load.wrk_contestant(positions, connections=FEW, seconds=options.seconds),
        "around": load.wrk_contestant(around, connections=FEW, seconds=options.seconds),
        "single posts": load.wrk_contestant(posts, connections=CLIENTS, seconds=options.seconds),
        _BATCHES: through_http(port, options.rows, batches),
    }


async def fill(port: int, rows: int) -> None:
    """Create the board that `contestants` use, with its rows and its curve."""
    owners = [owner_at(index) for index in range(rows)]
    await fill_board(port, BOARD, owners=owners, named={COLUMN: draw_values(rows)}, body=board_spec([COLUMN]))
    await refresh_columns(port, BOARD, [COLUMN])


def _compare(
    store: str, servers: Mapping[str, Server], options: Options, bars: Mapping[str, float] | None = None
) -> list[report.Bar]:
    """Measure the paths in `bars`, whose values are the least ratios; without `bars`, all paths."""
    for server in servers.values():
        asyncio.run(fill(server.port, options.rows))
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
            side: stack.enter_context(serve_store(urls[side], folder, environment={"PYTHONPATH": str(tree), **several}))
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


def main() -> int:
    options = parse_options(__doc__, rows=300_000, seconds=3.0, rounds=7)
    title = f"against {options.commit}: {options.rows:,} rows, {options.rounds} rounds of {options.seconds:g} s"
    return report.run_benchmark(options, title, measure)


if __name__ == "__main__":
    sys.exit(main())

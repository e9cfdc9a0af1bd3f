"""Follow docs/citus.md on clusters of Citus: set up, back up, restore, replace a node. Check what the page promises.

    PATH=/usr/lib/postgresql/15/bin:$PATH python -m benchmarks.citus_page --store URL --into URL

The two URLs are connection strings of superusers. Each names all nodes of a running cluster, the coordinator first,
such as `postgresql://postgres@db0:5432,db1:5432,db2:5432/postgres`. The clusters have no database `rankcurve` and no
such role. The first gets a store in the way that the page describes. While posts arrive, a partition moves and moves
back at once, the log and a base backup of every node are kept, and a restore point is created. Then the store is dumped
and restored into the second cluster.

Finally, the base backups become a third cluster at new addresses, which this program starts and which is as of the
restore point. One of its workers gets a standby, and dies. For this, the PostgreSQL programs on PATH must have Citus.

Bars: after each restore every partition is on one worker, the rows are equal, each earlier post is a duplicate, and the
next posts are applied. After the restore point, posts that came later are unknown.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks import report
from benchmarks.boards import board_spec, create_board, refresh_columns
from benchmarks.client import call_service
from benchmarks.options import Options
from benchmarks.servers import PROJECT, Server, rankcurve_command, run_sql, serve_store
from tests.servers import free_port

_PAGE = PROJECT / "docs" / "citus.md"
_DATABASE = "rankcurve"
_BOARDS: dict[str, dict[str, object]] = {  # how each board is created
    "own": {},
    "elsewhere": {"partition": 1},
    "spread": {"segments": 4},
    "shared": {"table": "shared"},
    "closing": {"closes_at": "2100-01-01T00:00:00Z"},
}
_POSTS = 500  # posts of a request
_BACK_S_MAX = 60.0
POSTGRES_USER = "postgres" if os.getuid() == 0 else None  # PostgreSQL refuses to run as root
# Every table of the store, with the number of its rows and a sum over them.
_TABLES = "SELECT schemaname || '.' || tablename FROM pg_tables WHERE schemaname LIKE 'rankcurve\\_%'"
_ROWS = "SELECT count(*), coalesce(sum(hashtextextended(t::text, 0)::numeric), 0)::text FROM {} AS t"
_NODES = "SELECT nodeid, nodename, nodeport FROM pg_dist_node"
_PLACES = """SELECT d.schemaid::regnamespace::text, count(DISTINCT p.logicalrelid), count(DISTINCT l.groupid)
FROM pg_dist_schema AS d JOIN pg_dist_partition AS p USING (colocationid) JOIN pg_dist_shard AS s USING (logicalrelid)
JOIN pg_dist_placement AS l USING (shardid) WHERE l.shardstate = 1 GROUP BY 1 ORDER BY 1"""


def _blocks(section: str, kind: str) -> list[str]:
    """Return the code blocks of one kind (`sql`, `sh` or `text`) in a section of the page."""
    page = _PAGE.read_text(encoding="utf-8")
    [text] = re.findall(rf"^##+ {re.escape(section)}\n(.*?)(?=^##)", page, re.MULTILINE | re.DOTALL)
    found = re.findall(rf"^ *```{kind}\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    return [re.sub("^ +", "", block, flags=re.MULTILINE) for block in found]


@dataclass(frozen=True)
class Cluster:
    """The nodes of a cluster, the coordinator first, as (host, port)."""

    user: str
    nodes: Sequence[tuple[str, int]]

    @classmethod
    def of(cls, url: str) -> "Cluster":
        user, _, hosts = urlsplit(url).netloc.rpartition("@")
        named = [host.rpartition(":") for host in hosts.split(",")]
        return cls(user, [(host, int(port)) for host, _, port in named])

    def url(self, node: int, database: str = _DATABASE) -> str:
        host, port = self.nodes[node]
        return f"postgresql://{self.user}@{host}:{port}/{database}"

    def put_addresses(self, text: str) -> str:
        """Return lines of the page with this cluster's addresses filled in."""
        for number, (host, port) in enumerate(self.nodes):
            text = text.replace(f"'db{number}', 5432", f"'{host}', {port}")
            text = re.sub(rf"(?<=[@,])db{number}\b", f"{host}:{port}", text)
        return text.replace("rankcurve@", "rankcurve:SECRET@")

    def follow_sql(self, block: str) -> None:
        """Run a block's statements where its comments say: on every node, or otherwise on the coordinator."""
        for line in self.put_addresses(block).splitlines():
            statement, _, where = line.partition("--")
            database = "postgres" if statement.startswith("CREATE DATABASE") else _DATABASE
            for node in range(len(self.nodes)) if "every node" in where else (0,):
                run_sql(self.url(node, database), statement)

    def set_up(self) -> None:
        for block in _blocks("Set it up", "sql"):
            self.follow_sql(block)

    def follow_shell(self, lines: str, folder: Path) -> None:
        """Run lines of the page in a shell.

        `rankcurve` as the first word is replaced by the command from this source tree.
        """
        lines = re.sub(
            "^rankcurve ", " ".join(rankcurve_command()) + " ", self.put_addresses(lines), flags=re.MULTILINE
        )
        environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
        subprocess.run(["bash", "-euc", lines], cwd=folder, env=environment, check=True)

    def create_store(self, folder: Path) -> None:
        """Set up the cluster, and create a store."""
        self.set_up()
        [block] = _blocks("Set it up", "sh")
        self.follow_shell(block.splitlines()[0], folder)

    def service_url(self) -> str:
        [block] = _blocks("Set it up", "sh")
        [url] = re.findall(r"^rankcurve serve --store '(.*)'$", self.put_addresses(block), re.MULTILINE)
        return str(url)

    def serve(self, folder: Path) -> Server:
        return serve_store(self.service_url(), folder)

    def find_places(self) -> list[tuple[Any, ...]]:
        """Return each partition's schema, its number of tables, and the number of nodes that hold them."""
        return run_sql(self.url(0), _PLACES)

    def sum_rows(self) -> dict[str, tuple[Any, ...]]:
        names = [name for (name,) in run_sql(self.url(0), _TABLES)]
        return {name: run_sql(self.url(0), _ROWS.format(name))[0] for name in names}


def _post(port: int, name: str) -> Counter[str]:
    """Post to all boards whose ids begin with `name`. Return the number of posts with each status."""
    found: Counter[str] = Counter()
    for board in _BOARDS:
        posts = [{"owner": f"o{n}", "post_id": f"{name}-{n}", "stats": {"xp": n + 1}} for n in range(_POSTS)]
        answer = asyncio.run(call_service(port, "POST", f"/v1/leaderboards/{board}/posts", {"posts": posts}))
        found.update(each["status"] for each in answer["results"])
    return found


def _rank(port: int, board: str) -> int:
    path = f"/v1/leaderboards/{board}/entries/o{_POSTS // 2}/positions?rank=exact"
    return int(asyncio.run(call_service(port, "GET", path))["positions"][0]["rank"])


def _check(cluster: Cluster, folder: Path, title: str, known: Sequence[str], unknown: str) -> Iterator[report.Bar]:
    """Serve a restored store, and check where its partitions are and which posts it knows."""
    scattered = [schema for schema, _, nodes in cluster.find_places() if nodes != 1]
    yield report.Bar(f"{title}: partitions on several nodes", len(scattered), 0, at_most=True)
    expected = len(_BOARDS) * _POSTS
    with cluster.serve(folder) as server:
        for name in known:
            forgotten = expected - _post(server.port, name)["duplicate"]
            yield report.Bar(f"{title}: forgotten posts of {name!r}", forgotten, 0, at_most=True)
        ranks = {_rank(server.port, board) for board in _BOARDS}
        yield report.Bar(f"{title}: boards with a wrong rank", len(ranks - {_POSTS // 2}), 0, at_most=True)
        refused = expected - _post(server.port, unknown)["applied"]
        yield report.Bar(f"{title}: refused next posts", refused, 0, at_most=True)
        asyncio.run(create_board(server.port, "new", board_spec(["xp"])))
        asyncio.run(refresh_columns(server.port, "spread", ["xp"]))


def move_partition(cluster: Cluster, partition: int) -> None:
    """Move a partition to another worker."""
    table = f"rankcurve_p{partition}.log_counter"
    find = f"SELECT nodename, nodeport FROM citus_shards WHERE table_name = '{table}'::regclass"
    [here] = run_sql(cluster.url(0), find)
    host, port = next(node for node in cluster.nodes[1:] if node != here)
    run_sql(cluster.url(0), f"SELECT citus_schema_move('rankcurve_p{partition}', '{host}', {port})")


class _Logs:
    """Keeps the log of every node in a cluster, and takes a base backup of each node, as the page says."""

    def __init__(self, cluster: Cluster, folder: Path, stack: ExitStack) -> None:
        self._cluster, self.folder = cluster, folder
        [block] = _blocks("A restore point", "sh")
        keep, receive, self._backup = (line.partition("  #")[0].split() for line in block.splitlines())
        for node in range(len(cluster.nodes)):
            _make_folder(folder / f"wal{node}")
            subprocess.run(self._words(keep, node), user=POSTGRES_USER, check=True)
            stack.callback(_end, subprocess.Popen(self._words(receive, node), user=POSTGRES_USER))

    def _words(self, command: Sequence[str], node: int) -> list[str]:
        named = {"WAL_OF_NODE": f"{self.folder}/wal{node}", "BACKUP_OF_NODE": f"{self.folder}/data{node}"}
        named["postgresql://postgres@NODE"] = self._cluster.url(node, "postgres")
        words = []
        for word in command:
            for name, text in named.items():
                word = word.replace(name, text)
            words.append(word)
        return words

    def back_up(self) -> None:
        for node in range(len(self._cluster.nodes)):
            _make_folder(self.folder / f"data{node}")
            subprocess.run(self._words(self._backup, node), user=POSTGRES_USER, check=True)

    def _point_at(self, settings: str, node: int) -> str:
        return settings.replace("WAL_OF_NODE", f"{self.folder}/wal{node}")

    def restore(self, stack: ExitStack) -> Cluster:
        """Start the base backups as a cluster at new addresses, recovered to the restore point. Return the cluster."""
        restored = replace(self._cluster, nodes=[("127.0.0.1", free_port()) for _ in self._cluster.nodes])
        [settings] = _blocks("A restore point", "text")
        for node, (_, port) in enumerate(restored.nodes):
            data = self.folder / f"data{node}"
            (data / "recovery.signal").touch()
            with (data / "postgresql.auto.conf").open("a") as conf:
                conf.write(self._point_at(settings, node))
            stack.callback(_end, _start(data, port))
        for node in range(len(restored.nodes)):
            _await_writable(restored.url(node), self.folder / f"data{node}.log")
        update, is_known, recover = _blocks("A restore point", "sql")[1].splitlines()
        for number, name, port in run_sql(restored.url(0), _NODES):
            node = list(self._cluster.nodes).index((name, port))
            host, new_port = restored.nodes[node]
            update = re.sub(rf"\d, 'db{node}', 5432", f"{number}, '{host}', {new_port}", update)
        restored.follow_sql(update)
        while run_sql(restored.url(0), is_known.partition(";")[0]) != [(True,)]:
            time.sleep(0.1)
        restored.follow_sql(recover)
        for node in range(len(restored.nodes)):
            own = self.folder / f"data{node}" / "postgresql.auto.conf"
            own.write_text(own.read_text().removesuffix(self._point_at(settings, node)))
            run_sql(restored.url(node), "SELECT pg_reload_conf()")
        return restored


def _replace_worker(cluster: Cluster, folder: Path, stack: ExitStack) -> Iterator[report.Bar]:
    """Let a worker die while a service runs, and let its standby take over at another address."""
    data, port = folder / "standby", free_port()
    _make_folder(data)
    copy = [
        "pg_basebackup",
        f"--pgdata={data}",
        "--write-recovery-conf",
        "--checkpoint=fast",
        f"--dbname={cluster.url(1, 'postgres')}",
    ]
    subprocess.run(copy, user=POSTGRES_USER, check=True)
    standby = _start(data, port)
    stack.callback(_end, standby)
    [block] = _blocks("A standby for a node", "sql")
    with cluster.serve(folder) as server:
        _post(server.port, "before")
        lagging = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_lsn()"
        while run_sql(cluster.url(1), lagging) == [(0,)]:
            time.sleep(0.1)
        died = int((folder / "data1" / "postmaster.pid").read_text().split()[0])
        os.kill(died, signal.SIGQUIT)
        begun = time.monotonic()
        subprocess.run(
            ["pg_ctl", "promote", "-D", str(data)], user=POSTGRES_USER, check=True, stdout=subprocess.DEVNULL
        )
        [(number,)] = run_sql(cluster.url(0), f"SELECT nodeid FROM pg_dist_node WHERE nodeport = {cluster.nodes[1][1]}")
        cluster.follow_sql(block.replace("2, 'db1-standby', 5432", f"{number}, '127.0.0.1', {port}"))
        found: Counter[str] = Counter()
        while found["applied"] + found["duplicate"] < len(_BOARDS) * _POSTS and time.monotonic() - begun < _BACK_S_MAX:
            with contextlib.suppress(Exception):  # refused until the service has found the node
                found = _post(server.port, "after")
        yield report.Bar(
            "standby: s from a worker's death to posts to all boards", time.monotonic() - begun, 30, " s", at_most=True
        )
        lost = len(_BOARDS) * _POSTS - _post(server.port, "before")["duplicate"]
        yield report.Bar("standby: lost posts", lost, 0, at_most=True)


def _make_folder(path: Path) -> None:
    path.mkdir(mode=0o700)
    if POSTGRES_USER is not None:
        shutil.chown(path, POSTGRES_USER)


def _start(data: Path, port: int) -> subprocess.Popen[bytes]:
    program = Path(shutil.which("pg_basebackup") or "").with_name("postgres")
    with (data.parent / f"{data.name}.log").open("wb") as log:
        return subprocess.Popen(
            [str(program), "-D", str(data), "-p", str(port)], user=POSTGRES_USER, cwd=data, stdout=log, stderr=log
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _await_writable(url: str, log: Path) -> None:
    until = time.monotonic() + _BACK_S_MAX
    while time.monotonic() < until:
        with contextlib.suppress(Exception):  # the server starts, or still recovers
            if run_sql(url, "SELECT pg_is_in_recovery()") == [(False,)]:
                return
        time.sleep(0.1)
    raise TimeoutError(f"{url} takes no writes: {log.read_text(errors='replace')[-1000:]}")


def _make_store(first: Cluster, folder: Path, stack: ExitStack) -> _Logs:
    """Set up the first cluster and a store, and post. Meanwhile, move a partition and create a restore point."""
    first.create_store(folder)
    logs = _Logs(first, folder, stack)
    with first.serve(folder) as server:
        for board, fields in _BOARDS.items():
            asyncio.run(create_board(server.port, board, {**board_spec(["xp"]), **fields}))
        _post(server.port, "first")
        logs.back_up()
        for _ in range(2):  # there and straight back
            move_partition(first, 0)
        _post(server.port, "second")
        first.follow_sql(_blocks("A restore point", "sql")[0])
        _post(server.port, "late")
    return logs


def measure(options: Options, folder: Path) -> list[report.Bar]:
    if options.store is None or options.into is None:
        print("   nothing is measured without the addresses of two clusters: --store and --into")
        return []
    folder.chmod(0o711)
    first, second = Cluster.of(options.store), Cluster.of(options.into)
    with ExitStack() as stack:
        logs = _make_store(first, folder, stack)
        before, places = first.sum_rows(), first.find_places()
        [dump], [restore] = (_blocks("Dump and restore", "sh")[index : index + 1] for index in (0, 1))
        first.follow_shell(dump, folder)
        second.set_up()
        second.follow_shell(restore, folder)
        other = [name for name, found in second.sum_rows().items() if before.get(name) != found]
        bars = [
            report.Bar("dump: tables with other rows", len(other), 0, at_most=True),
            report.Bar(
                "dump: partitions distributed in another way",
                len(set(places) ^ set(second.find_places())),
                0,
                at_most=True,
            ),
            *_check(second, folder, "dump", ["first", "second", "late"], "next"),
        ]
        restored = logs.restore(stack)
        bars += _check(restored, folder, "restore point", ["first", "second"], "late")
        return [*bars, *_replace_worker(restored, folder, stack)]


if __name__ == "__main__":
    report.run_program(measure, __doc__, "the page about Citus, on {store} and {into}")

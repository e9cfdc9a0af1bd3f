"""Test what only the SQLite store has: its lock, its readers, its plans, and the files that it refuses to open."""

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest

from querybuilder import SQLITE
from storage.engines import sqlite_checkpoints
from storage.engines.sqlite import PAGE_BYTES, SqliteStore
from storage.engines.sqlite_backup import restore_store
from storage.errors import NotOwnerError, StoreBusyError, StoreLockedError, StoreUnsupportedError
from storage.records import Best, Merge, TableSharing, Ties
from storage.schema.creation import create_schema, find_salt
from storage.store import Program
from tests.storage.backends import SQLITE_LIMITS
from tests.storage.deployment import Deployment, counter, part, ranked

XP = ranked("xp")
ROOT = Path(__file__).parents[3]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "folder #1?" / "boards.db"


@pytest.fixture
async def opened(path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(path, SQLITE_LIMITS)
    yield store
    await store.close()


OWN = """\
import asyncio, pathlib, sys
from storage.engines.sqlite import SqliteStore
from tests.storage.backends import SQLITE_LIMITS

async def own(path):
    store = await SqliteStore.open(path, SQLITE_LIMITS)
    print("mine", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await store.close()

asyncio.run(own(pathlib.Path(sys.argv[1])))
"""


async def start_owner(path: Path) -> asyncio.subprocess.Process:
    """Start a process that owns a store until it is killed."""
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWN, str(path), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    assert owner.stdout is not None
    while line := await owner.stdout.readline():  # earlier lines are the log
        if line == b"mine\n":
            return owner
    raise AssertionError("the owner ended")


async def test_a_file_that_another_process_owns_by_another_path_is_refused(path: Path, tmp_path: Path) -> None:
    """As with a mount of the file, the other path has a lock file and a write-ahead log of its own."""
    owner = await start_owner(path)
    other = await asyncio.to_thread(path.rename, tmp_path / "elsewhere.db")
    for _ in range(2):  # a refused start takes no lock from the owner
        with pytest.raises(StoreLockedError, match="by another path"):
            await SqliteStore.open(other, SQLITE_LIMITS)
    with pytest.raises(StoreLockedError, match="by another path"):
        restore_store(other, other, replace=True)
    owner.kill()
    await owner.wait()
    await (await SqliteStore.open(other, SQLITE_LIMITS)).close()


async def test_another_process_is_refused_until_the_owner_has_ended(path: Path) -> None:
    owner = await start_owner(path)
    with pytest.raises(StoreLockedError, match=f"process {owner.pid} owns"):
        await SqliteStore.open(path, SQLITE_LIMITS)
    owner.kill()
    await owner.wait()
    store = await SqliteStore.open(path, SQLITE_LIMITS)
    await store.close()


async def test_the_lock_holds_under_another_name_of_the_file(opened: SqliteStore, tmp_path: Path, path: Path) -> None:
    (tmp_path / "alias.db").symlink_to(path)
    with pytest.raises(StoreLockedError):
        await SqliteStore.open(tmp_path / "alias.db", SQLITE_LIMITS)


def _below_a_file(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_text("no folder")


OBSTACLES: dict[str, Callable[[Path], object]] = {
    "no database": lambda path: path.write_text(
        "this is text, and long enough to have been a header of a database file"
    ),
    "a folder": lambda path: path.mkdir(),
    "a lock that is a folder": lambda path: path.with_name(path.name + ".lock").mkdir(),
    "below a file": _below_a_file,
}


@pytest.mark.parametrize("obstruct", OBSTACLES.values(), ids=list(OBSTACLES))
async def test_a_blocked_path_is_refused_and_nothing_stays_open(path: Path, obstruct: Callable[[Path], object]) -> None:
    path.parent.mkdir(parents=True)
    obstruct(path)
    for _ in range(2):
        with pytest.raises(StoreUnsupportedError, match=r"boards\.db"):
            await SqliteStore.open(path, SQLITE_LIMITS)


async def test_a_failed_connection_leaves_no_thread_that_would_call_a_closed_loop(path: Path) -> None:
    path.parent.mkdir(parents=True)
    OBSTACLES["a folder"](path)
    before = threading.enumerate()
    with pytest.raises(StoreUnsupportedError):
        await SqliteStore.open(path, SQLITE_LIMITS)
    left = [thread.name for thread in threading.enumerate() if thread not in before]
    assert not [name for name in left if "_connection_worker_thread" in name]


async def test_every_connection_has_the_pragmas_that_make_commits_durable(opened: SqliteStore) -> None:
    def pragmas(connection: sqlite3.Connection) -> list[Any]:
        return [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]

    assert await opened._writer.run(pragmas) == ["wal", 2]
    for reader in opened._connections[1:]:
        assert await reader.run(lambda raw: raw.execute("PRAGMA wal_autocheckpoint").fetchone()) == (0,)
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            await reader.run(lambda raw: raw.execute("PRAGMA user_version=5"))


async def test_a_store_beside_its_owner_reads_every_write_and_writes_nothing(opened: SqliteStore, path: Path) -> None:
    await opened.write(create_schema)
    beside = await SqliteStore.open_beside_owner(path, SQLITE_LIMITS)
    for version in range(3):
        await opened._writer.run(methodcaller("execute", f"PRAGMA user_version={version}"))
        for reader in beside._connections:
            assert await reader.run(lambda raw: raw.execute("PRAGMA user_version").fetchone()) == (version,)
    with pytest.raises(NotOwnerError):
        await beside.write(create_schema)
    assert await beside.read(find_salt) == await opened.read(find_salt)
    await beside.close()
    with pytest.raises(StoreLockedError):  # the owner still has its lock
        await SqliteStore.open(path, SQLITE_LIMITS)


async def test_a_new_file_has_small_pages(opened: SqliteStore) -> None:
    assert await opened._writer.run(lambda raw: raw.execute("PRAGMA page_size").fetchone()) == (PAGE_BYTES,)


async def test_heavy_reads_do_not_delay_point_reads_and_their_queue_is_bounded(path: Path) -> None:
    store = await SqliteStore.open(
        path, SQLITE_LIMITS.model_copy(update={"heavy_reader_connections": 1, "reads_waiting_max": 2})
    )
    deployment = await Deployment.on(store)
    board = await deployment.create("b", XP)
    await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
    loop, free = asyncio.get_running_loop(), asyncio.Event()

    def held() -> Program[str]:
        yield from deployment.entries(board).find_entries(["ada"])
        asyncio.run_coroutine_threadsafe(free.wait(), loop).result(60)
        return "done"

    heavy = [asyncio.create_task(store.read(held, heavy=True)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(StoreBusyError, match="2 reads are waiting"):
        await store.read(held, heavy=True)
    assert await deployment.stats(board, "ada") == {"xp": 1}
    free.set()
    assert await asyncio.gather(*heavy) == ["done"] * 3
    await store.close()


async def test_a_cancelled_read_returns_its_connection_once_the_connection_is_idle(path: Path) -> None:
    store = await SqliteStore.open(path, SQLITE_LIMITS)
    deployment = await Deployment.on(store)
    board = await deployment.create("b", XP)
    loop, started, free = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def held() -> Program[None]:
        yield from deployment.entries(board).find_entries(["ada"])
        loop.call_soon_threadsafe(started.set)
        asyncio.run_coroutine_threadsafe(free.wait(), loop).result(60)

    abandoned = asyncio.create_task(store.read(held, heavy=True))
    await started.wait()
    abandoned.cancel()
    await asyncio.wait([abandoned])
    next_read = asyncio.create_task(store.read(lambda: deployment.entries(board).find_entries(["ada"]), heavy=True))
    assert await deployment.stats(board, "ada") is None
    assert not next_read.done(), "the only connection for heavy reads still runs the abandoned one"
    free.set()
    assert await next_read == {}
    await store.close()


async def test_a_checkpoint_that_comes_due_during_closing_raises_nothing(path: Path) -> None:
    troubles: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))
    store = await SqliteStore.open(path, SQLITE_LIMITS.model_copy(update={"checkpoint_after_s": 0}))
    writing = asyncio.create_task(store.write(create_schema))
    await asyncio.sleep(0)
    await store.close()
    await writing
    for _ in range(5):
        await asyncio.sleep(0)
    assert troubles == []
    assert not path.with_name("boards.db-wal").exists(), "the last connection to close leaves one file"


def size_of(path: Path) -> int:
    return path.stat().st_size


async def test_the_store_checkpoints_its_log_after_a_write(path: Path) -> None:
    store = await SqliteStore.open(path, SQLITE_LIMITS.model_copy(update={"checkpoint_after_s": 0.001}))
    size_before = size_of(path)
    await Deployment.on(store)
    async with asyncio.timeout(60):
        while size_of(path) == size_before:  # noqa: ASYNC110 - the store says nothing when a checkpoint is done
            await asyncio.sleep(0)
    await store.close()


async def test_a_checkpoint_copies_the_log_while_a_transaction_is_open(opened: SqliteStore, path: Path) -> None:
    loop, begun, ends = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def held() -> Program[None]:
        loop.call_soon_threadsafe(begun.set)
        assert ends.wait(60)
        yield from ()

    await opened.write(create_schema)
    size_before = size_of(path)
    writing = asyncio.create_task(opened.write(held))
    await begun.wait()
    assert opened._checkpoints is not None
    opened._checkpoints._start()
    async with asyncio.timeout(60):
        while size_of(path) == size_before:  # noqa: ASYNC110 - the store says nothing when a checkpoint is done
            await asyncio.sleep(0)
    ends.set()
    await writing


def test_the_log_does_not_begin_anew_during_a_copy_beside_the_writer(tmp_path: Path) -> None:
    """The writer commits just before and after each copy. The second copy begins when the whole log is copied."""
    path = tmp_path / "boards.db"

    def connect(kind: type[sqlite3.Connection] = sqlite3.Connection) -> sqlite3.Connection:
        return sqlite3.connect(path, isolation_level=None, factory=kind)

    class Copier(sqlite3.Connection):
        def execute(self, *arguments: Any) -> sqlite3.Cursor:
            writer.execute("PRAGMA user_version=1")
            copied.append(super().execute(*arguments).fetchone()[1:])
            writer.execute("PRAGMA user_version=1")
            return super().execute("SELECT 1")

    copied: list[tuple[int, int]] = []  # pages in the log, and pages that were copied
    path.touch()
    with closing(connect()) as writer, closing(connect(Copier)) as copier, path.open() as file:
        writer.execute("PRAGMA journal_mode=WAL")
        for _ in range(3):
            writer.execute("PRAGMA user_version=1")
        sqlite_checkpoints.copy_log_beside_writer(copier, connect, file.fileno())
        assert copied == [(4, 3)]
        assert writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone() == (0, 5, 5)
        sqlite_checkpoints.copy_log_beside_writer(copier, connect, file.fileno())
        assert copied == [(4, 3), (1, 0)], "the log began anew, and the copy wrote nothing"
        assert writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone() == (0, 2, 2)


async def test_checkpoints_beside_many_writes_keep_the_file_whole(path: Path) -> None:
    store = await SqliteStore.open(path, SQLITE_LIMITS.model_copy(update={"checkpoint_after_s": 0}))
    deployment = await Deployment.on(store)
    board = await deployment.create("b", XP)
    for _ in range(100):
        await deployment.apply(*(deployment.post(f"o{index}", part(board, {"xp": 1})) for index in range(50)))
    assert [await deployment.stats(board, f"o{index}") for index in range(50)] == [{"xp": 100}] * 50
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("best", list(Best))
@pytest.mark.parametrize("ties", list(Ties))
async def test_ranking_statements_seek_and_never_sort(
    opened: SqliteStore, path: Path, best: Best, ties: Ties, table: TableSharing
) -> None:
    deployment = await Deployment.on(opened, table)
    board = await deployment.create(
        "b", counter("shots"), ranked("xp", best=best), ranked("lap", merge=Merge.MIN), ties=ties
    )
    await deployment.apply(
        *(deployment.post(f"o{index}", part(board, {"xp": index % 7, "lap": index})) for index in range(50))
    )
    ranking = deployment.open_rows(board).rankings[1]
    cell = ranking.padding.pad(3, deployment.clock())
    programs: list[Program[Any]] = [
        ranking.count_better(cell),
        ranking.count_from_top(cell, 5, 0),
        ranking.count_range(least=cell, past=ranking.padding.text_start(5)),
        ranking.count_tied(cell, "o5"),
        ranking.find_row_after_skip(3),
        ranking.find_row_after_skip(3, cell),
        ranking.find_worst_cell(),
        ranking.read_first_rows(5),
        ranking.read_rows_after(cell, "o5", 5),
        ranking.read_rows_before(cell, "o5", 5),
        ranking.read_rows_around(cell, "o5", better_rows=5, worse_rows=5),
        ranking.read_around_owners(["o5"], better_rows=5, worse_rows=5),
        ranking.find_next_better(cell, "o5"),
        deployment.entries(board).find_entries(["o1", "o2"]),
    ]
    with sqlite3.connect(path) as connection:
        for program in programs:
            query = next(program).build(SQLITE)
            plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query.sql}", query.arguments)]
            touching = [step for step in plan if "entries_" in step]
            assert touching, (query.sql, plan)
            assert all("USING" in step and "c3" not in step for step in touching), (query.sql, plan)
            assert not [step for step in plan if "B-TREE" in step], (query.sql, plan)
            program.close()

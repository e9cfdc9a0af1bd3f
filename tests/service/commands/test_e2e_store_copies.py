"""Test `rankcurve store copy`: a store with rows in every table, copied to PostgreSQL and back, whole and in parts."""

import asyncio
import json
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import pytest

from benchmarks import store_copy as benchmark
from config import Settings
from querybuilder import BLOB, TEXT, col, update
from service.commands.operating.stores import copy_store
from service.stores import open_store
from storage import store_copy
from storage.boards.board_removal import delete_board, reset_board
from storage.engines.postgres import PostgresStore
from storage.engines.sqlite import SqliteStore
from storage.engines.sqlite_file import FileLock
from storage.errors import StorageError, StoreBusyError, StoreCopyError, StoreLockedError
from storage.leaves import leaf_copy
from storage.schema import ingest_tables, tables
from storage.schema.placement import TABLES, list_tables
from storage.store import CONTROL, Program
from storage.store_copy import begin_copy, reopen_store
from tests.schemas import fresh_schema
from tests.service.cli_fake_service import run
from tests.service.real_service import Caller, Service, Spawn, command_line, without

Rows = dict[str, list[tuple[Any, ...]]]  # the sorted rows of each table
OWNERS = [f"owner{number}" for number in range(40)]
# No request fills these tables, or a job empties them soon: these rows are made up.
MADE_UP = {
    tables.ARCHIVE_BLOCKS, tables.DROPPED_ROWS, tables.FOLLOWERS, tables.JOURNAL_BLOCKS, tables.OWNER_CHANGES,
    tables.BOARD_TOPS, tables.ENTRANTS, tables.GRANT_REWARDS, tables.GRANT_WALKS, tables.GRANTS, tables.TOKEN_VOIDS,
    tables.SEATS, tables.STANDINGS, tables.OPEN_COHORTS,
    ingest_tables.INGEST_BLOCKS, ingest_tables.SEMAPHORES, "lease_elsewhere", "lease_loads", "lease_peers",
}  # fmt: skip
BOARDS = ("own", "shared", "other", "wider", "segments", "deals")
READS = [
    "/v1/leaderboards", "/v1/families", "/v1/keys", "/v1/owners/owner1/profile", "/v1/owners/owner1/boards",
    "/v1/acts", "/v1/owners?hidden=true",
    "/v1/pools/game/servers", "/v1/leaderboards/own", "/v1/leaderboards/segments", "/v1/leaderboards/deals/posts/once",
    *(f"/v1/leaderboards/{board}/rankings/xp?limit=50" for board in (*BOARDS, "cup:all", "bowl:all")),
    *(f"/v1/leaderboards/{board}/entries/owner3" for board in BOARDS),
]  # fmt: skip


async def fill(service: Service) -> None:
    """Make rows in as many tables as requests can fill."""
    await service.create_first_key()
    column = {"name": "xp", "merge": "sum"}
    await service.board("own", column, {"name": "laps", "best": "low", "merge": "min"})
    await service.board("shared", column, {"name": "title", "sorted": False}, table="shared")
    await service.board("other", column, {"name": "title", "sorted": False}, table="shared")
    await service.board("wider", column, table="shared")
    await service.board("segments", column, segments=3, entry={"posts_max": 9})
    await service.board("deals", {**column, "gain_per_hour_max": 999})
    family = {"columns": [{"name": "xp", "sorted": True, "merge": "sum"}], "periods": ["all", "day"], "facets": [[]]}
    await service.must("PUT", "/v1/families/cup", family)
    await service.must("PUT", "/v1/families/bowl", {**family, "table": "shared"})
    for board in BOARDS:
        posts = [{"owner": each, "stats": {"xp": n}, "post_id": "once"} for n, each in enumerate(OWNERS)]
        await service.post(board, *posts)
    for name in ("cup", "bowl"):
        await service.must(
            "POST", f"/v1/families/{name}/posts", {"owner": "owner1", "stats": {"xp": 7}, "post_id": "f"}
        )
    await service.post("deals", {"owner": "owner3", "stats": {"xp": 1}, "post_id": "odd", "hold": True})
    await service.refresh("own", "xp", "laps")
    await service.refresh("shared", "xp")
    await service.must("PUT", "/v1/owners/owner2/hidden")
    await service.must("DELETE", "/v1/owners/owner4")
    await service.must("POST", "/v1/owners/owner5/merge", {"into": "owner6"})
    await service.must("PUT", "/v1/owners/owner1/profile", {"name": "Ada ❤"})
    await service.must("PUT", "/v1/webhooks/shop", {"url": "https://game.example/events"})
    await service.must("PUT", "/v1/pools/game/servers", {})
    resources = {"region": "eu", "resources": ["one", "two"]}
    await service.must("POST", "/v1/pools/game/servers/resources", resources)
    lease = {"client_id": "game", "pool_id": "servers", "key": "k", "region": "eu", "lease_seconds": 3_600}
    await service.must("POST", "/v1/leases", lease)
    queued = [{"owner": "queued", "stats": {"xp": 1}, "post_id": f"q{n}"} for n in range(3)]
    refused = {"owner": "owner1", "stats": {"xp": 10**15}, "post_id": "refused"}
    await service.must("POST", "/v1/leaderboards/own/posts?mode=queued", {"posts": [*queued, refused, refused]})
    await service.wait_applied()
    await service.wait_folded("own", "xp")
    while not await service.get("/v1/events"):
        pass


def make_up(path: Path, names: Iterable[str]) -> None:
    """Insert a made-up row into each of these tables of a SQLite store."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for name in names:
            values = [
                b"\0\xff" if kind is BLOB else "x❤" if kind is TEXT else 7 for kind in TABLES[name].kinds.values()
            ]
            marks = ", ".join("?" * len(values))
            connection.execute(f"INSERT INTO {name} VALUES ({marks})", values)


def read_file(path: Path) -> Rows:
    with closing(sqlite3.connect(path)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: sorted(connection.execute(f"SELECT * FROM {name}"), key=repr) for name in names}


def list_definitions(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        return {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master")}


async def read_schema(url: str) -> Rows:
    connection = await asyncpg.connect(url)
    try:
        listed = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
        return {
            name: sorted((tuple(row) for row in await connection.fetch(f'SELECT * FROM "{name}"')), key=repr)
            for (name,) in listed
        }
    finally:
        await connection.close()


class Filled(NamedTuple):
    """A stopped store, and the headers with the key of its operator."""

    file: Path
    headers: dict[str, str]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    """Return a store that requests have filled."""
    service = Service(tmp_path_factory.mktemp("filled"))

    async def make() -> None:
        async with service.running():
            await fill(service)

    asyncio.run(make())
    return Filled(service.folder / "rankcurve.db", service.headers)


@pytest.fixture
def source(filled: Filled, tmp_path: Path) -> Filled:
    """Return a store of the test's own with the same rows."""
    return filled._replace(file=Path(shutil.copy(filled.file, tmp_path)))


def url_of(file: Path) -> str:
    return f"sqlite:///{file}"


@pytest.fixture
async def schema(postgres_url: str) -> AsyncIterator[str]:
    async with fresh_schema(postgres_url) as url:
        yield url


async def test_every_row_is_copied_to_postgres_and_back(source: Filled, schema: str, tmp_path: Path) -> None:
    rows = read_file(source.file)
    empty = {name for name in TABLES if not rows[name]}
    assert empty <= MADE_UP, "requests fill the other tables"
    make_up(source.file, empty)
    before = read_file(source.file)
    await copy_store(Settings(), url_of(source.file), schema)
    assert await read_schema(schema) == before
    back = tmp_path / "back.db"
    await copy_store(Settings(), schema, url_of(back))
    assert read_file(back) == before
    assert list_definitions(back) == list_definitions(source.file)


async def read_answers(caller: Caller) -> dict[str, Any]:
    """Return what the service answers to reads, without what depends on the partition and on background jobs."""
    answers = {path: await caller.get(path) for path in READS}
    journal: list[dict[str, Any]] = []
    while page := await caller.get(f"/v1/journal?after={journal[-1]['seq'] if journal else 0}"):
        journal += page
    assert [line["accepted_at"] for line in journal] == sorted(line["accepted_at"] for line in journal)
    lines = [without(line, "seq") for line in journal]
    answers["journal"] = sorted(lines, key=lambda line: json.dumps(line, sort_keys=True, default=str))
    answers["posts"] = sorted(
        without((await caller.get("/v1/owners/owner3/posts"))["posts"], "seq"), key=lambda post: post["board"]
    )
    shown: dict[str, Any] = without(answers, "partition", "segments", "curves", "next", "method", "bracket")
    return shown


@pytest.fixture
async def apart_url(postgres_url: str) -> AsyncIterator[str]:
    """Return the address of an empty store with four partitions besides the control partition."""
    async with fresh_schema(postgres_url) as url:
        store = await PostgresStore.open(url, Settings())
        await store.create_apart(4)
        await store.close()
        yield url


@pytest.mark.parametrize("layout", ["beside", "apart"])
async def test_boards_are_spread_over_partitions_and_brought_back(
    source: Filled, layout: str, partitions_url: str, apart_url: str, tmp_path: Path
) -> None:
    four_partitions = apart_url if layout == "apart" else partitions_url
    answers = []
    stores = [url_of(source.file), four_partitions, url_of(tmp_path / "back.db")]
    for before, store in zip([None, *stores], stores, strict=False):
        if before is not None:
            await copy_store(Settings(), before, store)
        service = Service(tmp_path, store=store)
        service.headers = source.headers
        async with service.running():
            answers.append(await read_answers(service))
            for board in BOARDS:
                [sent_again] = await service.post(board, {"owner": "owner3", "stats": {"xp": 3}, "post_id": "once"})
                assert sent_again["status"] == "duplicate"
    assert answers[0] == answers[1] == answers[2]


def test_the_rows_of_every_table_beside_the_catalog_name_their_board_first() -> None:
    """`Spread` finds the partition of such a row by this key."""
    spread = {name for place, name in list_tables(1, apart=True) if place != CONTROL}
    spread -= {*store_copy._UNFINISHED, *store_copy._LEFT_OUT, *store_copy._IN_NEW_STORES, tables.CHANGE_LOG}
    spread -= {tables.HIDDEN_OWNERS, tables.FOLLOWERS}  # every partition gets all of their rows
    assert {TABLES[name].keys[0] for name in spread} == {"leaf_key", "family_key"}


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, rows in (("PAGE_ROWS", 9), ("PAGE_DOCUMENTS", 1), ("PAGE_PARTS", 20)):
        monkeypatch.setattr(leaf_copy, name, rows)
    monkeypatch.setattr(store_copy, "PAGE_PARTS", 20)


@pytest.fixture
def failing_writes(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that lets all stores together write that many times, and then fail."""
    left, commits = [0], [False]  # how many writes are left, and whether the last one is committed

    def fail_after(writes: int) -> None:
        left[0], commits[0] = writes, not commits[0]

    for engine in (SqliteStore, PostgresStore):

        async def write(
            self: Any, program: Callable[[], Program[Any]], write: Callable[..., Any] = engine.write
        ) -> object:
            left[0] -= 1
            if left[0] < 0 or (left[0] == 0 and not commits[0]):
                raise StoreBusyError("interrupted")
            result = await write(self, program)
            if left[0] == 0:
                raise StoreBusyError("interrupted after the commit")
            return result

        monkeypatch.setattr(engine, "write", write)
    return fail_after


async def copy_in_parts(fail_after: Callable[[int], None], before: str, after: str) -> int:
    """Copy a store by runs that end before or after the next page is stored. Return how many runs were interrupted."""
    fail_after(1_000)
    source, target = [await open_store(Settings().model_copy(update={"store": url})) for url in (before, after)]
    try:
        for interrupted in range(2_000):
            copy = store_copy.StoreCopy(source, target, (before, after), lambda line: None)
            fail_after(4)
            try:
                if await copy.prepare(await source.write(lambda: begin_copy(after))):
                    await copy.run()
            except StoreBusyError:
                continue
            return interrupted
        raise AssertionError("the copy does not end")
    finally:
        await target.close()
        await source.close()


@pytest.mark.usefixtures("small_pages")
async def test_a_copy_that_is_interrupted_at_any_page_goes_on(
    source: Filled, schema: str, tmp_path: Path, failing_writes: Callable[[int], None]
) -> None:
    before = read_file(source.file)
    assert await copy_in_parts(failing_writes, url_of(source.file), schema) > 30
    assert await read_schema(schema) == before
    assert await copy_in_parts(failing_writes, schema, url_of(tmp_path / "back.db")) > 30
    assert read_file(tmp_path / "back.db") == before


@pytest.mark.usefixtures("small_pages")
async def test_logs_that_are_merged_in_parts_are_those_that_are_merged_at_once(
    source: Filled, apart_url: str, tmp_path: Path, failing_writes: Callable[[int], None]
) -> None:
    parts, whole = tmp_path / "parts.db", tmp_path / "whole.db"
    assert await copy_in_parts(failing_writes, url_of(source.file), apart_url) > 30
    assert await copy_in_parts(failing_writes, apart_url, url_of(parts)) > 30
    failing_writes(1_000)
    await write_to(apart_url, reopen_store)
    await copy_store(Settings(), apart_url, url_of(whole))
    assert read_file(parts) == read_file(whole)


async def write_to(url: str, program: Callable[[], Program[Any]]) -> None:
    store = await open_store(Settings().model_copy(update={"store": url}))
    await store.write(program)
    await store.close()


def mark_source() -> Program[None]:
    yield from begin_copy("postgresql://elsewhere")


def change_profile() -> Program[None]:
    yield update(tables.PROFILES).set(profile="{}").where(col("owner").eq("owner1")).bind()


async def test_a_copied_store_is_not_served_until_it_is_reopened(source: Filled, schema: str) -> None:
    await copy_store(Settings(), url_of(source.file), schema)
    for settings in ({}, {"read_only": True}):
        with pytest.raises(StoreCopyError, match="another store took the place of this one"):
            await Service(source.file.parent, **settings).start()
    await copy_store(Settings(), url_of(source.file), schema)  # says that it is done
    await write_to(url_of(source.file), reopen_store)
    async with Service(source.file.parent).running() as service:
        service.headers = source.headers
        assert (await service.get("/v1/leaderboards/own/entries/owner3"))["stats"]["xp"] == 3
    with pytest.raises(StoreCopyError, match="the source itself, or an earlier copy"):
        await copy_store(Settings(), url_of(source.file), schema)
    async with Service(source.file.parent).running():
        pass  # the refused copy has not closed it


@pytest.mark.parametrize("kind", ["file", "postgres"])
async def test_while_a_store_is_copied_a_service_answers_reads_only(
    source: Filled, schema: str, kind: str, tmp_path: Path
) -> None:
    if kind == "postgres":
        await copy_store(Settings(), url_of(source.file), schema)
    url = schema if kind == "postgres" else url_of(source.file)
    await write_to(url, mark_source)
    with pytest.raises(StoreCopyError, match="serve it with --read-only"):
        await Service(tmp_path, store=url).start()
    copying = await open_store(Settings().model_copy(update={"store": url}))  # owns a file, as the command does
    service = Service(tmp_path, store=url, read_only=True)
    service.headers = source.headers
    async with service.running():
        assert (await service.get("/v1/leaderboards/own/rankings/xp?limit=1"))["entries"]
        refused = 503, "store_read_only"
        post = {"posts": [{"owner": "new", "stats": {"xp": 1}}]}
        assert await service.refused("POST", "/v1/leaderboards/own/posts", post) == refused
        assert await service.refused("POST", "/v1/leaderboards/own/posts?mode=queued", post) == refused
        assert await service.refused("PUT", "/v1/owners/new/profile", {"name": "Ada"}) == refused
        lease = {"client_id": "game", "pool_id": "servers", "key": "other", "region": "eu", "lease_seconds": 60}
        assert await service.refused("POST", "/v1/leases", lease) == refused
        if isinstance(copying, PostgresStore):
            assert await copying.count_other_writers() == 0
    await copying.close()


async def test_a_postgres_store_that_others_may_write_to_is_refused(schema: str, tmp_path: Path) -> None:
    async with Service(tmp_path, store=schema).running():
        with pytest.raises(StoreCopyError, match="services may write to the source"):
            await copy_store(Settings(), schema, url_of(tmp_path / "new.db"))
    async with Service(tmp_path, store=schema).running():
        pass  # the refused copy has not closed it


async def test_a_target_that_is_not_empty_is_refused(source: Filled, schema: str, tmp_path: Path) -> None:
    async with Service(tmp_path, store=schema).running() as service:
        await service.board("mine", {"name": "xp"})
    before = await read_schema(schema)
    with pytest.raises(StoreCopyError, match="the target is not empty: there are rows in boards"):
        await copy_store(Settings(), url_of(source.file), schema)
    assert await read_schema(schema) == before
    with pytest.raises(StoreLockedError):
        await copy_store(Settings(), url_of(source.file), url_of(source.file))
    with pytest.raises(StorageError):
        await copy_store(Settings(), schema.replace("test_", "missing_"), url_of(tmp_path / "new.db"))
    async with Service(source.file.parent).running():
        pass  # no refused copy has closed it


@pytest.mark.usefixtures("small_pages")
async def test_a_source_that_changed_meanwhile_fails_the_copy(
    source: Filled, schema: str, failing_writes: Callable[[int], None]
) -> None:
    failing_writes(60)
    with pytest.raises(StoreBusyError):
        await copy_store(Settings(), url_of(source.file), schema)
    failing_writes(1_000)
    with pytest.raises(StoreCopyError, match="a copy that is not complete"):
        await Service(source.file.parent, store=schema).start()
    await write_to(url_of(source.file), change_profile)
    with pytest.raises(StoreCopyError, match="the rows of profiles in partition 0 differ"):
        await copy_store(Settings(), url_of(source.file), schema)


def delete_boards() -> Program[None]:
    """Delete and empty boards as requests do, before a job has removed their rows."""
    for name in ("shared", "deals"):
        yield from delete_board(board_id=name)
    yield from reset_board(board_id="other", now_us=1)


async def test_boards_that_were_just_deleted_or_emptied_do_not_stop_a_copy_to_other_partitions(
    source: Filled, partitions_url: str, tmp_path: Path
) -> None:
    await write_to(url_of(source.file), delete_boards)
    assert read_file(source.file)["dropped_rows"]
    await copy_store(Settings(), url_of(source.file), partitions_url)
    service = Service(tmp_path, store=partitions_url)
    service.headers = source.headers
    async with service.running():
        assert (await service.get("/v1/leaderboards/other"))["entries"] == 0
        assert (await service.get("/v1/leaderboards/wider"))["entries"] == len(
            OWNERS
        ) - 3  # one is hidden, one erased, one merged


async def test_unfinished_work_keeps_a_store_from_other_partitions(source: Filled, partitions_url: str) -> None:
    make_up(source.file, ["owner_changes"])
    with pytest.raises(StoreCopyError, match="owner_changes has to be empty"):
        await copy_store(Settings(), url_of(source.file), partitions_url)
    async with Service(source.file.parent).running():
        pass


def test_the_commands_copy_a_store_and_reopen_it(tmp_path: Path) -> None:
    old, new = url_of(tmp_path / "old.db"), url_of(tmp_path / "new.db")
    run("store", "init", "--store", old, code=0)
    assert "has taken the place of" in run("store", "copy", old, new, code=0).output
    # In this process, `serve` would change the log, the garbage collection and the signals of later tests.
    assert "serve that" in command_line("serve", "--store", old, cwd=tmp_path, code=1).stderr
    assert "serve that" in run("keys", "create", "me", "--role", "ops", "--store", old, code=1).output
    assert "may be served again" in run("store", "reopen", "--store", old, code=0).output
    run("keys", "create", "me", "--role", "ops", "--store", old, code=0)


def test_a_copy_beside_a_service_says_how_to_stop_it(tmp_path: Path) -> None:
    run("store", "init", "--store", url_of(tmp_path / "old.db"), code=0)
    lock = FileLock(tmp_path / "old.db")
    lock.acquire()
    try:
        refused = run("store", "copy", url_of(tmp_path / "old.db"), url_of(tmp_path / "new.db"), code=1).stderr
    finally:
        lock.release()
    assert all(
        part in refused for part in ("stop the service first", "systemctl stop rankcurve", "--read-only", "owns")
    )


async def test_a_short_run_of_the_benchmark_kills_the_command_and_finds_equal_rows(
    spawn: Spawn, schema: str, tmp_path: Path
) -> None:
    old, back, rows = tmp_path / "rankcurve.db", tmp_path / "back.db", 2_000
    service = spawn().ready()
    await benchmark.fill(service.port, rows)
    assert service.end() == 0
    there = benchmark.copy_killed(url_of(old), schema, rows=rows, kills=2)
    equal, different = await benchmark.count_differences(old, schema)
    assert equal > 4 * rows
    assert different == 0
    again = benchmark.copy_killed(schema, url_of(back), rows=rows, kills=2)
    assert benchmark.count_file_differences(old, back) == 0
    assert 0 < max(there.memory_mib, again.memory_mib) <= benchmark.MEMORY_MIB_MAX


async def test_merged_logs_begin_where_the_last_pruned_one_begins(
    source: Filled, apart_url: str, tmp_path: Path
) -> None:
    await copy_store(Settings(), url_of(source.file), apart_url)
    connection = await asyncpg.connect(apart_url)
    name = await connection.fetchval("SELECT current_schema()")
    times = [row[0] for row in await connection.fetch(f"SELECT updated_at FROM {name}_p2.changes ORDER BY position")]
    assert len(times) > 2
    await connection.execute(f"DELETE FROM {name}_p2.changes WHERE position < 3")
    await connection.execute(f"UPDATE {name}_p2.log_counter SET pruned_before = 3")
    await connection.close()
    await copy_store(Settings(), apart_url, url_of(tmp_path / "back.db"))
    rows = read_file(tmp_path / "back.db")
    positions, logged = [row[0] for row in rows["changes"]], [row[2] for row in rows["changes"]]
    assert sorted(positions) == [*range(3, 3 + len(positions))]
    assert min(logged) == times[2]
    assert [row[:4] for row in rows["log_counter"]] == [(0, 3 + len(positions), 0, 3)]

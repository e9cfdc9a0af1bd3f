"""Test the file of the SQLite store: how the store creates it, refuses it, and logs its faults."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import monotonic

import pytest
from structlog.testing import capture_logs

from querybuilder import col, select
from storage.boards.boards import find_board
from storage.engines import sqlite
from storage.engines.sqlite import SqliteStore
from storage.engines.sqlite_backup import back_up_store
from storage.errors import BackupFailedError, StoreDamagedError, StoreFullError, StoreUnsupportedError
from storage.records import Board
from tests.storage.backends import SQLITE_LIMITS
from tests.storage.damage import grow_by, replace_bytes, spoil_table
from tests.storage.deployment import Deployment, part, ranked

ROOT = Path(__file__).parents[3]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "boards.db"


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Set a umask that makes new files readable for every user, unless a program sets their mode."""
    before = os.umask(0)
    yield
    os.umask(before)


async def create_store(path: Path) -> None:
    store = await SqliteStore.open(path, SQLITE_LIMITS)
    await Deployment.on(store)
    await store.close()


def list_modes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}


@pytest.mark.usefixtures("open_umask")
async def test_nobody_else_can_read_the_files_of_a_store(path: Path) -> None:
    store = await SqliteStore.open(path, SQLITE_LIMITS)
    await Deployment.on(store)
    back_up_store(path, path.with_name("copy.db"))
    names = ("boards.db", "boards.db-wal", "boards.db-shm", "boards.db.lock", "copy.db")
    assert list_modes(path.parent) == dict.fromkeys(names, 0o600)
    await store.close()


async def test_a_file_with_a_second_name_is_refused_under_either_name(path: Path) -> None:
    await create_store(path)
    other = path.with_name("other.db")
    os.link(path, other)
    for name in (path, other):
        with pytest.raises(StoreUnsupportedError, match=rf"{name.name} .*2 names \(hard links\)"):
            await SqliteStore.open(name, SQLITE_LIMITS)
    other.unlink()
    await create_store(path)


async def test_a_new_store_is_logged_with_its_path(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with capture_logs() as lines:
        await create_store(path.relative_to(tmp_path))
        await create_store(path.relative_to(tmp_path))
    told = [line for line in lines if line["event"] == "store_created"]
    assert told == [{"event": "store_created", "log_level": "warning", "path": str(path)}]


@pytest.mark.parametrize("prepare", [lambda path: path.parent.rmdir(), Path.touch], ids=["nothing", "an empty file"])
async def test_a_missing_store_is_not_created_if_settings_forbid(path: Path, prepare: Callable[[Path], None]) -> None:
    path.parent.mkdir()
    prepare(path)
    before = sorted(path.parent.parent.rglob("*"))
    limits = SQLITE_LIMITS.model_copy(update={"create_store": False})
    with pytest.raises(StoreUnsupportedError, match=f"no store at {path}: .*create_store"):
        await SqliteStore.open(path, limits)
    assert sorted(path.parent.parent.rglob("*")) == before
    await create_store(path)
    await (await SqliteStore.open(path, limits)).close()


@pytest.mark.parametrize("lose", [lambda path: os.truncate(path, 0), Path.unlink], ids=["emptied", "removed"])
async def test_a_log_whose_database_file_was_lost_is_kept_and_named(path: Path, lose: Callable[[Path], None]) -> None:
    store = await SqliteStore.open(path, SQLITE_LIMITS)
    await Deployment.on(store)
    log = path.with_name("boards.db-wal")
    content = log.read_bytes()
    await store.close()
    log.write_bytes(content)
    lose(path)
    for _ in range(2):
        with pytest.raises(StoreDamagedError, match=r"boards\.db-wal holds \d+ bytes of posts.*restore"):
            await SqliteStore.open(path, SQLITE_LIMITS)
    assert log.read_bytes() == content


async def create_filled_store(path: Path) -> None:
    deployment = await Deployment.on(await SqliteStore.open(path, SQLITE_LIMITS))
    for name in ("a", "b"):
        board = await deployment.create(name, ranked("xp"))
        posts = [deployment.post(f"owner-{number:04}", part(board, {"xp": number})) for number in range(500)]
        await deployment.apply(*posts)
    await deployment.store.close()


async def open_damaged(path: Path) -> Deployment:
    """Open a store in which the pages of the board `a` are garbage."""
    await create_filled_store(path)
    spoil_table(path, "entries_1")
    return await Deployment.on(await SqliteStore.open(path, SQLITE_LIMITS))


async def read_board(deployment: Deployment, board_id: str) -> Board:
    return await deployment.store.read(lambda: find_board(board_id))


async def test_damage_is_logged_once_and_nothing_is_written_afterwards(path: Path) -> None:
    deployment = await open_damaged(path)
    broken, whole = [await read_board(deployment, name) for name in ("a", "b")]
    store = deployment.store
    before = await deployment.stats(whole, "owner-0007")
    assert not store.damaged.is_set()
    with capture_logs() as lines:
        for _ in range(3):
            with pytest.raises(StoreDamagedError):
                await deployment.stats(broken, "owner-0007")
        with pytest.raises(StoreDamagedError):
            await deployment.apply(deployment.post("owner-0007", part(whole, {"xp": 1})))
    assert store.damaged.is_set()
    [told] = lines
    assert (told["event"], told["log_level"], told["path"]) == ("store_damaged", "error", str(path))
    assert "malformed" in told["cause"]
    assert await deployment.stats(whole, "owner-0007") == before, "the sound board can be read"
    await store.close()


async def test_text_that_is_not_utf_8_counts_as_damage_and_is_not_quoted(path: Path) -> None:
    await create_filled_store(path)
    replace_bytes(path, b"owner-0007", b"\xff\xfe\xfd\xfc\xfb-0007")
    deployment = await Deployment.on(await SqliteStore.open(path, SQLITE_LIMITS))
    query = select(col("owner")).from_("entries_1").bind()
    with capture_logs() as lines, pytest.raises(StoreDamagedError):
        await deployment.store.read_query(query)
    assert lines[0]["cause"] == "a text is not UTF-8"
    await deployment.store.close()


async def test_damaged_text_that_the_error_would_quote_ends_the_start_with_one_sentence(path: Path) -> None:
    await create_filled_store(path)
    replace_bytes(path, b"CREATE TABLE", b"CREATE TABL\xff")
    with pytest.raises(StoreDamagedError, match=r"boards\.db is damaged: a text is not UTF-8: restore a backup"):
        await SqliteStore.open(path, SQLITE_LIMITS)
    with pytest.raises(BackupFailedError, match=r"boards\.db"):
        back_up_store(path, path.with_name("copy.db"))


async def test_text_that_is_damaged_while_the_store_is_open_counts_as_damage_too(path: Path) -> None:
    await create_filled_store(path)
    deployment = await Deployment.on(await SqliteStore.open(path, SQLITE_LIMITS))
    whole = await read_board(deployment, "b")

    def spoil(raw: sqlite3.Connection) -> None:
        raw.executescript(
            "PRAGMA writable_schema = 1; "
            "UPDATE sqlite_schema SET sql = sql || CAST(x'20ff' AS TEXT) WHERE name = 'entries_1'; "
            "PRAGMA schema_version = 999999"
        )

    assert isinstance(deployment.store, SqliteStore)
    await deployment.store._writer.run(spoil)
    with capture_logs() as lines:
        for _ in range(2):
            with pytest.raises(StoreDamagedError):
                await deployment.store.read(partial(find_board, "b"))
            with pytest.raises(StoreDamagedError):
                await deployment.store.read(partial(find_board, "b"), heavy=True)
        with pytest.raises(StoreDamagedError):
            await deployment.apply(deployment.post("owner-0007", part(whole, {"xp": 1})))
    assert [(line["event"], line["cause"]) for line in lines] == [("store_damaged", "a text is not UTF-8")]
    await deployment.store.close()


async def test_a_full_disk_refuses_writes_until_there_is_room_and_reads_go_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await SqliteStore.open(path, SQLITE_LIMITS)
    deployment = await Deployment.on(store)
    board = await deployment.create("a", ranked("xp"))
    await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
    posts = [deployment.post(f"owner-{number:04}", part(board, {"xp": number})) for number in range(500)]
    await grow_by(store, pages=0)
    with capture_logs() as lines:
        for _ in range(2):
            with pytest.raises(StoreFullError):
                await deployment.apply(*posts)
        assert await deployment.stats(board, "ada") == {"xp": 1}
        assert await deployment.stats(board, "owner-0007") is None
        for _ in range(3):  # the file has room for a small write, but not for a large write
            await grow_by(store, pages=1)
            await deployment.apply(deployment.post("bob", part(board, {"xp": 1})))
            with pytest.raises(StoreFullError):
                await deployment.apply(*posts)
        await grow_by(store, pages=1_000)
        await deployment.apply(*posts)
        assert [line["event"] for line in lines] == ["store_full"], "a write that succeeds may only be small"
        monkeypatch.setattr(sqlite, "monotonic", lambda: monotonic() + sqlite.FULL_OVER_S)
        for _ in range(2):
            await deployment.apply(*posts)
    assert [line["event"] for line in lines] == ["store_full", "store_has_room"]
    assert await deployment.stats(board, "owner-0007") == {"xp": 7 * 3}
    await store.close()


def test_a_start_on_a_full_disk_names_the_cause(tmp_path: Path) -> None:
    code = (
        "import asyncio, pathlib, resource, sys\n"
        "from storage.errors import StoreFullError\n"
        "from storage.engines.sqlite import SqliteStore\n"
        "from tests.storage.backends import SQLITE_LIMITS\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)\n"
        "try:\n"
        "    asyncio.run(SqliteStore.open(pathlib.Path(sys.argv[1]), SQLITE_LIMITS))\n"
        "except StoreFullError as error:\n"
        "    print(error.detail)\n"
    )
    # Too little room for the lock, for the file, or for the index of the write-ahead log.
    for room_bytes in (0, 2_048, 16_384):
        path = tmp_path / f"{room_bytes}.db"
        done = subprocess.run(
            [sys.executable, "-c", code, path, str(room_bytes)], cwd=ROOT, capture_output=True, text=True
        )
        assert f"{path}: the disk is full" in done.stdout, done.stderr

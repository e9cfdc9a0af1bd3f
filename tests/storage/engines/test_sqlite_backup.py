"""Test backups of the SQLite store. A backup is complete or absent, holds one snapshot, and leaves no other files."""

import asyncio
import resource
import sqlite3
from pathlib import Path

import pytest

from querybuilder import col, update
from storage.boards.boards import find_board
from storage.engines import sqlite_backup
from storage.engines.sqlite import SqliteStore
from storage.engines.sqlite_backup import back_up_store, restore_store
from storage.errors import BackupFailedError, StoreLockedError
from storage.schema.tables import META
from storage.store import Program
from tests.storage.backends import SQLITE_LIMITS
from tests.storage.deployment import Deployment, counter, part


async def open_migrated(path: Path) -> Deployment:
    """Open a migrated store at a path. The caller closes the store."""
    return await Deployment.on(await SqliteStore.open(path, SQLITE_LIMITS))


async def create_with_number(path: Path, value: int = 1) -> None:
    deployment = await open_migrated(path)
    board = await deployment.create("b", counter("n"))
    await deployment.apply_one(deployment.post("ada", part(board, {"n": value})))
    await deployment.store.close()


async def read_number(path: Path) -> object:
    deployment = await open_migrated(path)
    board = await deployment.store.read(lambda: find_board("b"))
    stats = await deployment.stats(board, "ada")
    await deployment.store.close()
    return None if stats is None else stats["n"]


def list_files(folder: Path) -> list[str]:
    """Return the names of the files in a folder, without lock files and SQLite's write-ahead log."""
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith((".lock", ".db-shm", ".db-wal")))


async def test_a_backup_beside_a_busy_writer_holds_one_moment(tmp_path: Path) -> None:
    deployment = await open_migrated(tmp_path / "a.db")
    board = await deployment.create("b", counter("n"))
    both = [deployment.post(owner, part(board, {"n": 1})) for owner in ("ada", "bob")]
    await deployment.apply(*both)
    stop = False

    async def post() -> None:
        while not stop:
            await deployment.apply(*both)

    posting = asyncio.create_task(post())
    try:
        for number in range(5):
            before = await deployment.stats(board, "ada")
            await asyncio.to_thread(back_up_store, tmp_path / "a.db", tmp_path / f"{number}.db")
            copy = await open_migrated(tmp_path / f"{number}.db")
            ada, bob = await copy.stats(board, "ada"), await copy.stats(board, "bob")
            await copy.store.close()
            assert ada == bob
            assert ada is not None
            assert before is not None
            assert int(str(ada["n"])) >= int(str(before["n"]))
    finally:
        stop = True
        await posting
        await deployment.store.close()


async def test_a_backup_is_one_file_that_other_users_cannot_read(tmp_path: Path) -> None:
    await create_with_number(tmp_path / "a.db")
    (tmp_path / "to").mkdir()
    size_bytes = back_up_store(tmp_path / "a.db", tmp_path / "to" / "b.db")
    assert list_files(tmp_path / "to") == ["b.db"]
    assert (tmp_path / "to" / "b.db").stat().st_size == size_bytes
    assert (tmp_path / "to" / "b.db").stat().st_mode & 0o777 == 0o600


async def test_a_restore_puts_the_backup_in_place_and_keeps_what_was_there(tmp_path: Path) -> None:
    await create_with_number(tmp_path / "a.db", value=1)
    back_up_store(tmp_path / "a.db", tmp_path / "b.db")
    (tmp_path / "a.db").unlink()
    await create_with_number(tmp_path / "a.db", value=2)
    (tmp_path / "a.db-wal").write_bytes(b"the log of another file")
    with pytest.raises(BackupFailedError, match="already"):
        restore_store(tmp_path / "b.db", tmp_path / "a.db", replace=False)
    aside = restore_store(tmp_path / "b.db", tmp_path / "a.db", replace=True)
    assert [path.name for path in aside] == ["a.db.replaced", "a.db-wal.replaced"]
    assert not (tmp_path / "a.db-wal").exists()
    assert await read_number(tmp_path / "a.db") == 1
    assert await read_number(tmp_path / "a.db.replaced") == 2
    with pytest.raises(BackupFailedError, match="earlier restore"):
        restore_store(tmp_path / "b.db", tmp_path / "a.db", replace=True)


async def test_a_restore_does_not_replace_a_store_that_a_service_owns(tmp_path: Path) -> None:
    await create_with_number(tmp_path / "b.db")
    deployment = await open_migrated(tmp_path / "a.db")
    with pytest.raises(StoreLockedError):
        restore_store(tmp_path / "b.db", tmp_path / "a.db", replace=True)
    await deployment.store.close()


async def test_a_file_that_is_no_sound_store_is_neither_saved_nor_restored(tmp_path: Path) -> None:
    await create_with_number(tmp_path / "sound.db")
    content = (tmp_path / "sound.db").read_bytes()
    (tmp_path / "torn.db").write_bytes(content[: len(content) // 2])
    (tmp_path / "text.db").write_text("no database at all, however long it may be " * 100)
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE other (a)")

    def newer() -> Program[None]:
        yield update(META).set(content="999").where(col("name").eq("schema_version")).bind()

    later = await open_migrated(tmp_path / "newer.db")
    await later.store.write(newer)
    await later.store.close()
    for name in ("torn.db", "text.db", "other.db", "newer.db", "missing.db"):
        with pytest.raises(BackupFailedError):
            back_up_store(tmp_path / name, tmp_path / "copy.db")
        with pytest.raises(BackupFailedError):
            restore_store(tmp_path / name, tmp_path / "sound.db", replace=True)
    assert not (tmp_path / "copy.db").exists()
    assert (tmp_path / "sound.db").read_bytes() == content


async def test_a_failed_backup_leaves_no_file_to_stop_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await create_with_number(tmp_path / "a.db")

    def fail(_path: Path) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(sqlite_backup, "_sync", fail)
        with pytest.raises(BackupFailedError, match="no space"):
            back_up_store(tmp_path / "a.db", tmp_path / "b.db")
    assert list_files(tmp_path) == ["a.db"]
    back_up_store(tmp_path / "a.db", tmp_path / "b.db")
    assert list_files(tmp_path) == ["a.db", "b.db"]
    assert await read_number(tmp_path / "b.db") == 1
    with pytest.raises(BackupFailedError, match="exists"):
        back_up_store(tmp_path / "a.db", tmp_path / "b.db")


async def test_a_copy_that_finds_no_room_gives_back_what_it_took(tmp_path: Path) -> None:
    await create_with_number(tmp_path / "a.db")
    back_up_store(tmp_path / "a.db", tmp_path / "b.db")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "b.db").stat().st_size // 2, hard))
    try:
        with pytest.raises(BackupFailedError):
            back_up_store(tmp_path / "a.db", tmp_path / "c.db")
        with pytest.raises(BackupFailedError):
            restore_store(tmp_path / "b.db", tmp_path / "a.db", replace=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list_files(tmp_path) == ["a.db", "b.db"]

"""The file of the embedded store: how it is created, when it is refused, and what is said of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from storage.errors import StoreDamaged, StoreUnsupported
from storage.sqlite import SqliteStore
from storage.sqlite_backup import back_up
from tests.storage.backends import SQLITE_LIMITS
from tests.storage.deployment import Deployment, ranked


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a store may be created."""
    return tmp_path / "folder" / "boards.db"


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Let every user read what is created without a mode."""
    before = os.umask(0)
    yield
    os.umask(before)


async def created(path: Path) -> None:
    """Create a store and close it."""
    store = await SqliteStore.open(path, SQLITE_LIMITS)
    await Deployment.on(store)
    await store.close()


def modes(folder: Path) -> dict[str, int]:
    """The permissions of each file of a folder."""
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}


@pytest.mark.usefixtures("open_umask")
async def test_nobody_else_can_read_the_files_of_a_store(path: Path) -> None:
    store = await SqliteStore.open(path, SQLITE_LIMITS)
    await Deployment.on(store)
    back_up(path, path.with_name("copy.db"))
    names = ("boards.db", "boards.db-wal", "boards.db-shm", "boards.db.lock", "copy.db")
    assert modes(path.parent) == dict.fromkeys(names, 0o600)
    await store.close()


async def test_a_file_with_a_second_name_is_refused_under_either_name(path: Path) -> None:
    await created(path)
    other = path.with_name("other.db")
    os.link(path, other)
    for name in (path, other):
        with pytest.raises(StoreUnsupported, match=rf"{name.name} .*2 names \(hard links\)"):
            await SqliteStore.open(name, SQLITE_LIMITS)
    other.unlink()
    await created(path)


async def test_a_hard_link_is_no_way_around_the_lock_of_a_running_owner(path: Path) -> None:
    owner = await SqliteStore.open(path, SQLITE_LIMITS)
    deployment = await Deployment.on(owner)
    os.link(path, path.with_name("other.db"))
    with pytest.raises(StoreUnsupported, match="hard links"):
        await SqliteStore.open(path.with_name("other.db"), SQLITE_LIMITS)
    await deployment.create("b", ranked("xp"))
    await owner.close()


async def test_a_store_that_is_created_is_told_with_its_full_path(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with capture_logs() as lines:
        await created(path.relative_to(tmp_path))
        await created(path.relative_to(tmp_path))
    told = [line for line in lines if line["event"] == "store_created"]
    assert told == [{"event": "store_created", "log_level": "warning", "path": str(path)}]


def _nothing(path: Path) -> None:
    path.parent.rmdir()


def _an_empty_file(path: Path) -> None:
    path.touch()


@pytest.mark.parametrize("prepare", [_nothing, _an_empty_file])
async def test_a_store_that_is_not_there_is_not_created_where_that_is_forbidden(
    path: Path, prepare: Callable[[Path], None]
) -> None:
    path.parent.mkdir()
    prepare(path)
    before = sorted(path.parent.parent.rglob("*"))
    limits = replace(SQLITE_LIMITS, create_store=False)
    with pytest.raises(StoreUnsupported, match=f"no store at {path}: .*create_store"):
        await SqliteStore.open(path, limits)
    assert sorted(path.parent.parent.rglob("*")) == before
    await created(path)
    await (await SqliteStore.open(path, limits)).close()


def _emptied(path: Path) -> None:
    os.truncate(path, 0)


def _removed(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("lose", [_emptied, _removed])
async def test_a_log_whose_file_was_lost_is_kept_and_named(path: Path, lose: Callable[[Path], None]) -> None:
    store = await SqliteStore.open(path, SQLITE_LIMITS)
    await Deployment.on(store)
    log = path.with_name("boards.db-wal")
    content = log.read_bytes()
    await store.close()
    log.write_bytes(content)
    lose(path)
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=r"boards\.db-wal holds \d+ bytes of posts.*restore"):
            await SqliteStore.open(path, SQLITE_LIMITS)
    assert log.read_bytes() == content

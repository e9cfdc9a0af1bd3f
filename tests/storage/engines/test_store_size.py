"""Test the reported size of a store, and the reported free space on its disk."""

from pathlib import Path

from storage.engines.sqlite import SqliteStore
from storage.store import Store
from tests.storage.backends import SQLITE_LIMITS
from tests.storage.deployment import Deployment, part, ranked


async def test_a_store_grows_with_what_is_posted(store: Store) -> None:
    deployment = await Deployment.on(store)
    board = await deployment.create("b", ranked("xp"))
    before = await store.size()
    await deployment.apply(*(deployment.post(f"owner-{number}", part(board, {"xp": number})) for number in range(500)))
    assert (await store.size()).store_bytes > before.store_bytes > 0


async def test_a_sqlite_store_reports_the_size_of_its_files_and_the_room_on_its_disk(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "boards.db", SQLITE_LIMITS)
    await Deployment.on(store)
    size = await store.size()
    assert size.store_bytes == sum((tmp_path / f"boards.db{end}").stat().st_size for end in ("", "-wal"))
    assert size.disk_free_bytes is not None
    assert size.disk_free_bytes > 0
    await store.close()

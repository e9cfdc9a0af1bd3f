"""Damage a SQLite file as a faulty or full disk does: overwrite pages, or leave no room for the file to grow."""

import sqlite3
from contextlib import closing
from pathlib import Path

from storage.engines.sqlite import SqliteStore


def spoil_table(path: Path, table: str) -> None:
    """Overwrite the first pages of a table and of its indexes with garbage. No process may have the file open."""
    with closing(sqlite3.connect(path)) as connection:
        [size_bytes] = connection.execute("PRAGMA page_size").fetchone()
        query = "SELECT rootpage FROM sqlite_schema WHERE tbl_name = ? AND rootpage > 0"
        pages = [page for (page,) in connection.execute(query, (table,))]
    assert pages
    with path.open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * size_bytes)
            file.write(b"\xa5" * size_bytes)


def replace_bytes(path: Path, these: bytes, those: bytes) -> None:
    """Replace `these` by `those` everywhere in the file. No process may have the file open."""
    assert len(these) == len(those)
    path.write_bytes(path.read_bytes().replace(these, those))


async def grow_by(store: SqliteStore, *, pages: int) -> None:
    """Let the database file grow by at most `pages` pages, as on a full disk."""

    def limit(connection: sqlite3.Connection) -> None:
        [used] = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count={used + pages}")

    await store._writer.run(limit)

"""A database in memory that runs every construct, so that no test trusts SQL text that SQLite would refuse.

The database executes what a builder returns as it is, never patched.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from querybuilder import INTEGER, SQLITE, TEXT, Query, asc, col, create_index, create_table, desc, insert, param

Run = Callable[..., list[Any]]


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    """Open an empty database in memory."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    yield connection
    connection.close()


@pytest.fixture
def run(database: sqlite3.Connection) -> Run:
    """Return a function that executes a query on SQLite and returns its rows, unpacked if they were packed."""

    def execute(query: Query, **params: object) -> list[Any]:
        built = query.build(SQLITE, **params)
        found = database.execute(built.sql, built.arguments).fetchall()
        return [tuple(row) for row in json.loads(found[0][0])] if built.packed else found

    return execute


@pytest.fixture
def board(run: Run) -> str:
    """Table `board` with (owner, c1, n): a 9/10, b 7/20, c 7/30, d 5/40, e null/50, as padded text and integer."""
    definition = create_table("board").column("owner", TEXT).column("c1", TEXT, null=True).column("n", INTEGER)
    run(definition.primary_key("owner").clustered())
    run(create_index("board_c1", "board", desc(col("c1")), asc(col("owner"))))
    entries = [("a", "09", 10), ("b", "07", 20), ("c", "07", 30), ("d", "05", 40), ("e", None, 50)]
    run(insert("board").rows(param("rows"), owner=TEXT, c1=TEXT, n=INTEGER), rows=entries)
    return "board"

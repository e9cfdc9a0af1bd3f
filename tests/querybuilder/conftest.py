"""Provide an in-memory SQLite database that runs the queries, so that no test accepts SQL text that SQLite refuses."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from querybuilder import INTEGER, SQLITE, TEXT, Query, asc, col, create_index, create_table, desc, insert, param

Run = Callable[..., list[Any]]


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    yield connection
    connection.close()


@pytest.fixture
def run(database: sqlite3.Connection) -> Run:
    """Return a function that executes a query on SQLite, unpacks packed rows, and returns the rows."""

    def execute(query: Query, **params: object) -> list[Any]:
        built = query.bind(**params).build(SQLITE)
        found = database.execute(built.sql, built.arguments).fetchall()
        return [tuple(row) for row in json.loads(found[0][0])] if built.packed else found

    return execute


@pytest.fixture
def board(run: Run) -> str:
    """Create the table `board` with five rows, and return its name.

    The columns are `owner`, a padded text `c1` and an integer `n`. The rows are (a, 09, 10), (b, 07, 20), (c, 07, 30),
    (d, 05, 40) and (e, null, 50).
    """
    definition = create_table("board").column("owner", TEXT).column("c1", TEXT, null=True).column("n", INTEGER)
    run(definition.primary_key("owner").clustered())
    run(create_index("board_c1", "board", desc(col("c1")), asc(col("owner"))))
    entries = [("a", "09", 10), ("b", "07", 20), ("c", "07", 30), ("d", "05", 40), ("e", None, 50)]
    run(insert("board").rows(param("rows"), owner=TEXT, c1=TEXT, n=INTEGER), rows=entries)
    return "board"

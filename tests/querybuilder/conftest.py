"""Provide an in-memory SQLite database that runs the queries, so that no test accepts SQL text that SQLite refuses."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from querybuilder import INTEGER, SQLITE, TEXT, Query, asc, col, create_index, create_table, desc, insert, param

Run = Callable[..., list[Any]]


def execute(database: sqlite3.Connection, query: Query, **params: object) -> list[Any]:
    built = query.bind(**params).build(SQLITE)
    found = database.execute(built.sql, built.arguments).fetchall()
    return [tuple(row) for row in json.loads(found[0][0])] if built.packed else found


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    yield connection
    connection.close()


@pytest.fixture
def run(database: sqlite3.Connection) -> Run:
    """Return a function that executes a query on SQLite, unpacks packed rows, and returns the rows."""
    return partial(execute, database)


@pytest.fixture(scope="session")
def run_anew() -> Run:
    """Return a function that does what `run` does, in a new database for each query."""

    def execute_anew(query: Query, **params: object) -> list[Any]:
        with closing(sqlite3.connect(":memory:")) as database:
            return execute(database, query, **params)

    return execute_anew


@pytest.fixture
def explain(database: sqlite3.Connection) -> Callable[..., list[str]]:
    """Return a function that returns the steps of the plan that SQLite makes for a query."""

    def execute_plan(query: Query, **params: object) -> list[str]:
        built = query.bind(**params).build(SQLITE)
        return [row[3] for row in database.execute("EXPLAIN QUERY PLAN " + built.sql, built.arguments)]

    return execute_plan


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

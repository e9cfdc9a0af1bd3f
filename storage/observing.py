"""What a store tells of itself to whoever watches it.

The rule: it is told on the way, so it costs a microsecond at most; kinds and pools are names of the code and settings.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

from querybuilder import Built

from .store import Rows

STATEMENT_KINDS = ("select", "insert", "update", "delete", "with", "other")


class StoreObserver(Protocol):
    """Someone who watches a store."""

    def connection_waited(self, pool: str, kind: str, seconds: float) -> None:
        """A connection was lent, after so long a wait."""

    def connections_lent(self, pool: str, kind: str, lent: int, *, waiting: int, limit: int) -> None:
        """How many connections are lent, how many wait for one, and how many there may be, after a change."""

    def statement_ran(self, kind: str, rows: int) -> None:
        """A statement of one of STATEMENT_KINDS answered or changed rows; called on any thread."""

    def tried_again(self) -> None:
        """Something was run again, after a lost race or connection."""


class Unwatched:
    """A `StoreObserver` for stores that nobody watches."""

    def connection_waited(self, pool: str, kind: str, seconds: float) -> None:
        """Nothing."""

    def connections_lent(self, pool: str, kind: str, lent: int, *, waiting: int, limit: int) -> None:
        """Nothing."""

    def statement_ran(self, kind: str, rows: int) -> None:
        """Nothing."""

    def tried_again(self) -> None:
        """Nothing."""


@lru_cache(maxsize=4096)
def statement_kind(sql: str) -> str:
    """Which of STATEMENT_KINDS a built text is."""
    word = sql.split(None, 1)[0].lower() if sql.strip() else ""
    return word if word in STATEMENT_KINDS else "other"


def telling(observer: StoreObserver) -> Callable[[Built, Rows], None]:
    """A function that tells of a statement and what it answered."""

    def ran(query: Built, rows: Rows) -> None:
        observer.statement_ran(statement_kind(query.sql), rows_of(query, rows))

    return ran


def rows_of(query: Built, rows: Rows) -> int:
    """How many rows a statement answered, or changed where it answers none."""
    if len(rows) == 1 and len(rows[0]) == 1 and not query.sql.startswith(("SELECT", "WITH")):
        count = rows[0][0]
        if isinstance(count, int) and " RETURNING " not in query.sql:
            return max(0, count)
    return len(rows)

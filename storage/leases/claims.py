"""The one mechanism behind every lease: a versioned row, claimed and kept by conditional writes.

    free ── claim: version + 1 ──> held ── kept: later expiry ──> held …
      ^                              |
      └──────────────────────────────┘ given back, or expired and the margin over

A row says who holds it and until when. This module calls such a row a document.

The rule: a writer names the version and the expiry that it found, and nothing is written if the row has changed since.
By the store's clock, two holders of one document therefore never overlap. The later one has the greater version, which
fences the earlier one off. Clocks of holders are never asked.

The store's time is read before the write that uses it, so it is slightly old. A lease therefore ends slightly early for
its holder and becomes free slightly late for the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from querybuilder import (
    INTEGER,
    TEXT,
    Built,
    Condition,
    Dialect,
    SqlType,
    clock_us,
    col,
    excluded,
    insert,
    param,
    plus,
    select,
    update,
)
from storage.store import Program

GIVEN_BACK = 0  # the expires_at of a document that nobody holds
_DOCUMENT = ("holder", "version", "expires_at")

StoreClock = Callable[[], Program[int]]  # a program that returns microseconds since 1970


def store_clock(dialect: Dialect) -> StoreClock:
    """Return the database's clock, which all processes of a store share."""
    query = select(clock_us()).build(dialect)

    def now_us() -> Program[int]:
        rows = yield query
        return int(rows[0][0])

    return now_us


class Claims:
    """The statements on the documents of one table with the columns `holder`, `version` and `expires_at`.

    `keys` are the columns that identify a document. `more` are further columns that `write_changes` writes. `writing`
    is the query behind `write_changes`, for statements that are chained to it; it takes its rows from the parameter
    `rows`.
    """

    def __init__(
        self, dialect: Dialect, table: str, keys: dict[str, SqlType], more: dict[str, SqlType] | None = None
    ) -> None:
        one = tuple(col(name).eq(param(name)) for name in keys)
        held = (*one, col("version").eq(param("version")), col("expires_at").ne(GIVEN_BACK))
        self._find = select(*map(col, _DOCUMENT)).from_(table).where(*one).compile(dialect)
        claimed = {name: param(name) for name in (*keys, "holder", "expires_at")}
        self._claim = (
            insert(table)
            .values(**claimed, version=1)
            .on_conflict(*keys)
            .do_update(
                holder=excluded("holder"),
                version=plus(col("version", table), 1),
                expires_at=excluded("expires_at"),
                where=col("expires_at", table).le(param("expired_before")),
            )
            .returning(col("version"))
            .compile(dialect)
        )
        self._expire_at = update(table).set(expires_at=param("expires_at")).where(*held).compile(dialect)
        written = {"holder": TEXT, "version": INTEGER, "expires_at": INTEGER, **(more or {})}
        self.writing = (
            update(table)
            .set(**{name: col(name, "v") for name in written})
            .from_rows("v", param("rows"), **keys, was_version=INTEGER, was_expires_at=INTEGER, **written)
            .where(*(col(name, table).eq(col(name, "v")) for name in keys), *_as_found(table))
            .returning(*(col(name, table) for name in keys))
        )
        self._write = self.writing.compile(dialect)

    def find_document(self, **keys: object) -> Built:
        """Return the query for holder, version and expiry of a document, even if it expired."""
        return self._find.bind(**keys)

    def claim(self, *, holder: str, expires_at_us: int, expired_before_us: int, **keys: object) -> Built:
        """Return the query that takes a document if it expired by `expired_before_us`, or inserts a missing one.

        Its result is the new version, or no row if the document is held.
        """
        return self._claim.bind(holder=holder, expires_at=expires_at_us, expired_before=expired_before_us, **keys)

    def expire_at(self, expires_at_us: int, *, version: int, **keys: object) -> Built:
        """Return the query that sets the expiry of a document that is held under `version`; `GIVEN_BACK` frees it.

        Its result is the number of changed rows: 0 if it is held under another version or not at all.
        """
        return self._expire_at.bind(expires_at=expires_at_us, version=version, **keys)

    def write_changes(self, rows: Iterable[tuple[object, ...]]) -> Built:
        """Return the query that changes those of many documents that are as they were found; its rows are their keys.

        A row of `rows` holds the keys, the version and the expiry that were found, then the new holder, version and
        expiry, then the `more` columns. A pair of version and expiry never recurs: keeping a lease makes it expire
        later, and each new holder gets a new version.
        """
        return self._write.bind(rows=rows)


def _as_found(table: str) -> tuple[Condition, ...]:
    return tuple(col(name, table).eq(col(f"was_{name}", "v")) for name in ("version", "expires_at"))

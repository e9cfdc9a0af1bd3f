"""The one mechanism behind every lease: a versioned row, claimed and kept by conditional writes.

    free ── claim: version + 1 ──> held ── kept: later expiry ──> held …
      ^                              |
      └──────────────────────────────┘ given back, or expired and the margin over

A row says who holds the lease and until when. This module calls such a row a document.

A writer names the version and the expiry that it found. If the row has changed since then, nothing is written. So, by
the store's clock, a document never has two holders at the same time. The later holder has the greater version, and the
resource that the lease protects refuses smaller versions. The clocks of holders are never used.

The store's time is read before the write that uses it. So a new lease ends slightly early for its holder, and an
expired lease becomes free slightly late for the next holder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from querybuilder import (
    INTEGER,
    TEXT,
    Condition,
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
from storage.store import Program, Rows

GIVEN_BACK = 0  # the `expires_at` of a document that nobody holds
_CLOCK = select(clock_us()).prepared()
_DOCUMENT = ("holder", "version", "expires_at")

StoreClock = Callable[[], Program[int]]  # a program that returns microseconds since 1970


def store_clock() -> Program[int]:
    """Return the time of the database. All processes of a store share its clock."""
    rows = yield _CLOCK.bind()
    return int(rows[0][0])


class Claims:
    """Programs on the documents of one table with the database columns `holder`, `version` and `expires_at`.

    `keys` are the database columns that identify a document. `more` are further columns that `write_changes` writes.
    `writing` is the statement that `write_changes` runs, for callers that chain further statements to it. It takes its
    rows from the parameter `rows`.
    """

    def __init__(self, table: str, keys: dict[str, SqlType], more: dict[str, SqlType] | None = None) -> None:
        one = tuple(col(name).eq(param(name)) for name in keys)
        held = (*one, col("version").eq(param("version")), col("expires_at").ne(GIVEN_BACK))
        self._find = select(*map(col, _DOCUMENT)).from_(table).where(*one).prepared()
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
            .prepared()
        )
        self._expire_at = update(table).set(expires_at=param("expires_at")).where(*held).prepared()
        written = {"holder": TEXT, "version": INTEGER, "expires_at": INTEGER, **(more or {})}
        self.writing = (
            update(table)
            .set(**{name: col(name, "v") for name in written})
            .from_rows("v", param("rows"), **keys, was_version=INTEGER, was_expires_at=INTEGER, **written)
            .where(*(col(name, table).eq(col(name, "v")) for name in keys), *_as_found(table))
            .returning(*(col(name, table) for name in keys))
        )
        self._write = self.writing.prepared()

    def find_document(self, **keys: object) -> Program[tuple[str, int, int] | None]:
        """Return holder, version and expiry of a document, even an expired one, or None."""
        rows = yield self._find.bind(**keys)
        if not rows:
            return None
        holder, version, expires_at_us = rows[0]
        return holder, version, expires_at_us

    def claim_document(
        self, *, holder: str, expires_at_us: int, expired_before_us: int, **keys: object
    ) -> Program[int | None]:
        """Take a document that expired by `expired_before_us`, or make a missing one. Return its version, or None."""
        rows = yield self._claim.bind(holder=holder, expires_at=expires_at_us, expired_before=expired_before_us, **keys)
        return int(rows[0][0]) if rows else None

    def expire_document(self, expires_at_us: int, *, version: int, **keys: object) -> Program[bool]:
        """Set the expiry of a document that is held under `version`, and return True; otherwise return False.

        The expiry `GIVEN_BACK` frees the document.
        """
        rows = yield self._expire_at.bind(expires_at=expires_at_us, version=version, **keys)
        return bool(rows[0][0])

    def write_changes(self, rows: Iterable[tuple[object, ...]]) -> Program[Rows]:
        """Change the documents that are still as they were found; return their keys.

        A row of `rows` holds the keys, the version and the expiry that were found, then the new holder, version and
        expiry, then the `more` columns. A document never has the same pair of version and expiry again: keeping a lease
        makes it expire later, and each new holder gets a new version.
        """
        return (yield self._write.bind(rows=rows))


def _as_found(table: str) -> tuple[Condition, ...]:
    return tuple(col(name, table).eq(col(f"was_{name}", "v")) for name in ("version", "expires_at"))

"""The one mechanism behind every lease: a versioned document in a row, claimed and kept by conditional writes.

    free ── claim: version + 1 ──> held ── kept ──> held …      a row says who holds it, and until when
      ^                              |
      └── given back, or expired and the margin over

The rule: whoever writes says what it found, and writes nothing where that is no longer so. Two holdings of one document
never overlap by the store's clock, and the later one has the greater version: that number fences. Clocks of holders are
never asked.

The time is read before the write that it is bound to, so it is a little old: a holding ends a little early for its
holder and is free a little late for the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from querybuilder import (
    INTEGER,
    TEXT,
    Built,
    Condition,
    Dialect,
    Kind,
    clock_us,
    col,
    excluded,
    insert,
    param,
    plus,
    select,
    update,
)

from .store import Program

GIVEN_BACK = 0  # as expires_at
_DOCUMENT = ("holder", "version", "expires_at")

StoreClock = Callable[[], Program[int]]  # a program that answers microseconds since 1970


def store_clock(dialect: Dialect) -> StoreClock:
    """The clock that every process of a store sees alike."""
    query = select(clock_us()).build(dialect)

    def now_us() -> Program[int]:
        rows = yield query
        return int(rows[0][0])

    return now_us


class Claims:
    """The statements on the documents of one table: `holder`, `version`, `expires_at` and what else stands with them.

    `keys` name a document; `more` are columns that `write` writes with it. `writing` is the query behind `write`, for
    statements that go on from it; its rows are the parameter `rows`.
    """

    def __init__(
        self, dialect: Dialect, table: str, keys: dict[str, Kind], more: dict[str, Kind] | None = None
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

    def find(self, **keys: object) -> Built:
        """Holder, version and expiry of a document, over or not."""
        return self._find.bind(**keys)

    def claim(self, *, holder: str, expires_at_us: int, expired_before_us: int, **keys: object) -> Built:
        """Take a document, made where there is none, if it expired before a time: its new version, or no row."""
        return self._claim.bind(holder=holder, expires_at=expires_at_us, expired_before=expired_before_us, **keys)

    def expire_at(self, expires_at_us: int, *, version: int, **keys: object) -> Built:
        """Keep a document until then, or give it back, where it is held under this number: how many rows."""
        return self._expire_at.bind(expires_at=expires_at_us, version=version, **keys)

    def write(self, rows: Iterable[tuple[object, ...]]) -> Built:
        """Change many documents, each where it is as it was found: the keys of those that were.

        A row: the keys, the version and the expiry that were found, then holder, version, expiry and the further
        columns that it is to have. A version and an expiry never come again together: what is held and kept expires
        later, and each new holding has a new version.
        """
        return self._write.bind(rows=rows)


def _as_found(table: str) -> tuple[Condition, ...]:
    return tuple(col(name, table).eq(col(f"was_{name}", "v")) for name in ("version", "expires_at"))

"""What has moved since the fit of each stored curve, folded from the change log, and the mark that all of it is as of.

The rule: documents and mark are written in one transaction, so whoever reads them in one snapshot has every counted
curve as of that mark: the ones without a newer document too, because nothing of theirs has changed.

A curve is counted from the transaction that folds it for the first time; before, and where its changes are no longer
known, it goes without (`document` empty), until it is fitted anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from querybuilder import INTEGER, TEXT, Dialect, asc, coalesce, col, insert, param, select, sum_

from .bundles import Bundle
from .change_log import Mark, change_log
from .migrate import CHANGE_LOG, CURVES, LIVE_COUNTS, LIVE_MARK
from .store import Program, Row

_ONLY = 0  # the mark's only row


@dataclass(frozen=True, slots=True)
class Folded:
    """How far the store's live counts are."""

    mark: Mark
    as_of_us: int  # no change acknowledged before is missing
    version: int  # of the newest document


@dataclass(frozen=True, slots=True)
class StoredCounts:
    """The live counts of one curve."""

    board_key: int
    column_index: int
    epoch: int
    curve_version: int  # of the curve that they belong to
    version: int  # grows with every document of the store
    document: bytes  # empty: the curve goes without


@dataclass(frozen=True, slots=True)
class Fit:
    """A stored curve without its contents, and what its snapshot saw."""

    board_key: int
    column_index: int
    epoch: int
    version: int
    mark: Mark | None  # None: not known


def mark_text(mark: Mark) -> str:
    """The transactions that a mark has seen past its position, as one text."""
    return " ".join(map(str, mark.seen))


def mark_of(position: int | None, seen: str | None) -> Mark | None:
    """The mark from its two columns; None where there is none."""
    return None if position is None else Mark(position, tuple(map(int, (seen or "").split())))


class _Statements:
    def __init__(self, dialect: Dialect) -> None:
        log = change_log(dialect)
        mark = ("position", "seen", "as_of", "version")
        self.mark = select(*map(col, mark)).from_(LIVE_MARK).compile(dialect)
        self.set_mark = (
            insert(LIVE_MARK)
            .values(
                mark_key=_ONLY,
                position=param("position", INTEGER),
                seen=param("seen", TEXT),
                as_of=param("as_of", INTEGER),
                version=param("version", INTEGER),
            )
            .on_conflict("mark_key")
            .overwrite()
            .compile(dialect)
        )
        slot = ("board_key", "column_index", "epoch", "curve_version", "version")
        self.put = (
            insert(LIVE_COUNTS)
            .values(**{name: param(name) for name in (*slot, "document")}, counted=param("counted"))
            .on_conflict("board_key", "column_index")
            .overwrite()
            .compile(dialect)
        )
        counts = select(*map(col, (*slot, "document"))).from_(LIVE_COUNTS)
        self.after = counts.where(col("version").gt(param("version"))).order_by(asc(col("version"))).compile(dialect)
        self.of_boards = counts.where(col("board_key").in_(param("keys"))).compile(dialect)
        listed = select(*map(col, (*slot[:2], "curve_version"))).from_(LIVE_COUNTS)
        self.counted = listed.where(col("counted").eq(1)).packed().compile(dialect)
        fit = ("board_key", "column_index", "epoch", "version", "mark_position", "mark_seen")
        newer = select(*map(col, fit)).from_(CURVES).where(col("version").gt(param("version")))
        self.fits = newer.order_by(asc(col("version"))).packed().compile(dialect)
        past = (col("board_key").eq(param("key")), log.after())
        self.changes = select(coalesce(sum_(col("changes")), 0)).from_(CHANGE_LOG).where(*past).compile(dialect)
        self.of_board = select(*log.bundle()).from_(CHANGE_LOG).where(*past).packed().compile(dialect)


@lru_cache
def _statements(dialect: Dialect) -> _Statements:
    return _Statements(dialect)


def folded(dialect: Dialect) -> Program[Folded | None]:
    """How far the live counts are; None before the first."""
    rows = yield _statements(dialect).mark.bind()
    if not rows:
        return None
    position, seen, as_of_us, version = rows[0]
    mark = mark_of(position, seen)
    assert mark is not None
    return Folded(mark, as_of_us, version)


def unread_from(dialect: Dialect) -> Program[int | None]:
    """The position in the change log from which changes are yet to be folded; None before the first fold."""
    now = yield from folded(dialect)
    return None if now is None else now.mark.position


def store_folded(dialect: Dialect, now: Folded, counts: Iterable[StoredCounts]) -> Program[None]:
    """Write documents and the mark that they are as of."""
    statements = _statements(dialect)
    for one in counts:
        yield statements.put.bind(
            board_key=one.board_key,
            column_index=one.column_index,
            epoch=one.epoch,
            curve_version=one.curve_version,
            version=one.version,
            document=one.document,
            counted=int(bool(one.document)),
        )
    yield statements.set_mark.bind(
        position=now.mark.position, seen=mark_text(now.mark), as_of=now.as_of_us, version=now.version
    )


def counts_after(dialect: Dialect, version: int) -> Program[tuple[Folded | None, list[StoredCounts]]]:
    """The mark, and the documents newer than a version, oldest first.

    Where the store was set back to a backup its versions are lower than those known: then all of them.
    """
    now = yield from folded(dialect)
    if now is None or now.version == version:
        return now, []
    rows = yield _statements(dialect).after.bind(version=version if version < now.version else 0)
    return now, [StoredCounts(*row) for row in rows]


def counts_of(dialect: Dialect, board_keys: Sequence[int]) -> Program[list[StoredCounts]]:
    """The documents of some boards."""
    rows = yield _statements(dialect).of_boards.bind(keys=board_keys)
    return [StoredCounts(*row) for row in rows]


def counted_fits(dialect: Dialect) -> Program[dict[tuple[int, int], int]]:
    """The versions of the curves that have live counts, by board key and column index."""
    rows = yield _statements(dialect).counted.bind()
    return {(row[0], row[1]): row[2] for row in rows}


def fits_after(dialect: Dialect, version: int) -> Program[list[Fit]]:
    """Curves stored after a version, oldest first."""
    rows = yield _statements(dialect).fits.bind(version=version)
    return [_fit(row) for row in rows]


def _fit(row: Row) -> Fit:
    board_key, column_index, epoch, version, position, seen = row
    return Fit(board_key, column_index, epoch, version, mark_of(position, seen))


def changes_of_board(
    dialect: Dialect, board_key: int, done: Mark, *, changes_max: int
) -> Program[tuple[int, list[Bundle]]]:
    """How many of a board's changes a mark does not count, as this snapshot sees them; and in any order, if not more
    than `changes_max`, which they are."""
    bound = {"key": board_key, **change_log(dialect).mark_parameters(done)}
    [[changes]] = yield _statements(dialect).changes.bind(**bound)
    if changes > changes_max:
        return changes, []
    return changes, [Bundle(*row) for row in (yield _statements(dialect).of_board.bind(**bound))]

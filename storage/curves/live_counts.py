"""The live counts of each stored curve: the changes since its fit, folded from the change log.

The live counts of a curve are stored as one document. One transaction writes all changed documents and one mark for all
documents. So in one snapshot, all live counts include all changes up to the mark. An unchanged document includes them
too, because its curve had no changes to count.

A curve gets live counts when changes are first folded for it. An empty `document` means that the curve's changes are
not known. The curve then has no live counts until it is fitted anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from querybuilder import INTEGER, TEXT, asc, coalesce, col, insert, param, select, sum_
from storage.log.bundles import Bundle
from storage.log.change_log import AFTER_MARK, BUNDLE_COLUMNS, LogMark, mark_parameters
from storage.schema.tables import CHANGE_LOG, CURVES, LIVE_COUNTS, LIVE_MARK
from storage.store import Program, Row

_ONLY = 0  # the key of the only row in the mark's table


@dataclass(frozen=True, slots=True)
class FoldState:
    """The state of folding the change log into the live counts."""

    mark: LogMark
    as_of_us: int  # every change that was acknowledged before this time is folded
    version: int  # the version of the newest document


@dataclass(frozen=True, slots=True)
class StoredCounts:
    board_key: int
    column_index: int
    epoch: int
    curve_version: int  # the version of the curve that the counts belong to
    version: int  # the version of the document; a document that is written later has a greater one
    document: bytes  # the encoded live counts; empty: the curve has none


@dataclass(frozen=True, slots=True)
class StoredFit:
    """A stored curve without its contents, and the mark of the changes that the snapshot of its fit saw."""

    board_key: int
    column_index: int
    epoch: int
    version: int
    mark: LogMark | None  # None: unknown


def format_mark(mark: LogMark) -> str:
    """Return `mark.seen` as one text: the positions above `mark.position` whose changes the mark also covers."""
    return " ".join(map(str, mark.seen))


def parse_mark(position: int | None, seen: str | None) -> LogMark | None:
    return None if position is None else LogMark(position, tuple(map(int, (seen or "").split())))


class _Statements:
    def __init__(self) -> None:
        mark = ("position", "seen", "as_of", "version")
        self.mark = select(*map(col, mark)).from_(LIVE_MARK).prepared()
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
            .prepared()
        )
        slot = ("board_key", "column_index", "epoch", "curve_version", "version")
        self.put = (
            insert(LIVE_COUNTS)
            .values(**{name: param(name) for name in (*slot, "document")}, counted=param("counted"))
            .on_conflict("board_key", "column_index")
            .overwrite()
            .prepared()
        )
        counts = select(*map(col, (*slot, "document"))).from_(LIVE_COUNTS)
        self.after = counts.where(col("version").gt(param("version"))).order_by(asc(col("version"))).prepared()
        self.of_boards = counts.where(col("board_key").in_(param("keys"))).prepared()
        listed = select(*map(col, (*slot[:2], "curve_version"))).from_(LIVE_COUNTS)
        self.counted = listed.where(col("counted").eq(1)).packed().prepared()
        fit = ("board_key", "column_index", "epoch", "version", "mark_position", "mark_seen")
        newer = select(*map(col, fit)).from_(CURVES).where(col("version").gt(param("version")))
        self.fits = newer.order_by(asc(col("version"))).packed().prepared()
        past = (col("board_key").eq(param("key")), AFTER_MARK)
        self.changes = select(coalesce(sum_(col("changes")), 0)).from_(CHANGE_LOG).where(*past).prepared()
        self.of_board = select(*BUNDLE_COLUMNS).from_(CHANGE_LOG).where(*past).packed().prepared()


_STATEMENTS = _Statements()


def find_fold_state() -> Program[FoldState | None]:
    rows = yield _STATEMENTS.mark.bind()
    if not rows:
        return None
    position, seen, as_of_us, version = rows[0]
    mark = parse_mark(position, seen)
    assert mark is not None
    return FoldState(mark, as_of_us, version)


def find_fold_position() -> Program[int | None]:
    """Return the log position from which changes are not yet folded; None before the first fold."""
    now = yield from find_fold_state()
    return None if now is None else now.mark.position


def store_folded(now: FoldState, counts: Iterable[StoredCounts]) -> Program[None]:
    statements = _STATEMENTS
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
        position=now.mark.position, seen=format_mark(now.mark), as_of=now.as_of_us, version=now.version
    )


def counts_after(version: int) -> Program[tuple[FoldState | None, list[StoredCounts]]]:
    """Return the mark and the documents newer than a version, oldest first.

    If the store was restored from a backup, its documents may have lower versions. Then return all documents.
    """
    now = yield from find_fold_state()
    if now is None or now.version == version:
        return now, []
    rows = yield _STATEMENTS.after.bind(version=version if version < now.version else 0)
    return now, [StoredCounts(*row) for row in rows]


def counts_of(board_keys: Sequence[int]) -> Program[list[StoredCounts]]:
    rows = yield _STATEMENTS.of_boards.bind(keys=board_keys)
    return [StoredCounts(*row) for row in rows]


def counted_fits() -> Program[dict[tuple[int, int], int]]:
    rows = yield _STATEMENTS.counted.bind()
    return {(row[0], row[1]): row[2] for row in rows}


def fits_after(version: int) -> Program[list[StoredFit]]:
    """Return the curves stored after a version, oldest first, without their contents."""
    rows = yield _STATEMENTS.fits.bind(version=version)
    return [_fit(row) for row in rows]


def _fit(row: Row) -> StoredFit:
    board_key, column_index, epoch, version, position, seen = row
    return StoredFit(board_key, column_index, epoch, version, parse_mark(position, seen))


def changes_of_board(board_key: int, done: LogMark, *, changes_max: int) -> Program[tuple[int, list[Bundle]]]:
    """Return how many of a board's changes the mark `done` does not cover, and these changes in any order.

    If there are more than `changes_max`, the list is empty.
    """
    bound = {"key": board_key, **mark_parameters(done)}
    [[changes]] = yield _STATEMENTS.changes.bind(**bound)
    if changes > changes_max:
        return changes, []
    return changes, [Bundle(*row) for row in (yield _STATEMENTS.of_board.bind(**bound))]

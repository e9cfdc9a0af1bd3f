"""Stores each curve's live counts: the changes since its fit, which a job counts (folds) from the change log.

A curve's live counts are stored as one document. One transaction writes all changed documents, and a single mark for
all documents. So in any snapshot, all live counts include all changes up to the mark. This also holds for an unchanged
document, because its curve had no changes to count.

A curve gets live counts in the first fold after it was stored. An empty `document` means that the curve's changes are
unknown, so that the curve has no live counts until the next fit.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from querybuilder import asc, col, param, select
from storage.log.bundles import Bundle
from storage.log.change_log import OF_ENTRIES, LogPages, last_number_before
from storage.schema.placement import prepare_put
from storage.schema.tables import LIVE_COUNTS, LIVE_MARK
from storage.store import Program

Slot = tuple[int, int]  # leaf key, column index
_ONLY = 0  # the key of the only row in the mark's table


@dataclass(frozen=True, slots=True)
class FoldState:
    """The position up to which the live counts include the change log, with its time, and the newest version."""

    mark: int  # the first position of the change log that is not folded
    as_of_us: int  # a time at which all folded changes had been made, and no others; see `change_log.date_snapshot`
    version: int  # the version of the newest document


@dataclass(frozen=True, slots=True)
class StoredCounts:
    leaf_key: int
    column_index: int
    epoch: int
    curve_version: int  # the version of the curve that the counts belong to
    version: int  # the version of the document; a document that is written later has a greater one
    document: bytes  # the encoded live counts; empty: the curve has no live counts
    changes: int  # the board's count of changes at the last fold that changed this document

    @property
    def slot(self) -> Slot:
        return self.leaf_key, self.column_index


_STATE = select(*map(col, ("position", "as_of", "version"))).from_(LIVE_MARK).prepared()
_SET_STATE = prepare_put(LIVE_MARK)
_COLUMNS = ("leaf_key", "column_index", "epoch", "curve_version", "version", "document", "changes")
_PUT = prepare_put(LIVE_COUNTS)
_COUNTS = select(*map(col, _COLUMNS)).from_(LIVE_COUNTS)
_COUNTS_AFTER = _COUNTS.where(col("version").gt(param("version"))).order_by(asc(col("version"))).prepared()
_COUNTS_OF_BOARDS = _COUNTS.where(col("leaf_key").in_(param("keys"))).prepared()
_COUNTED = select(col("leaf_key"), col("column_index"), col("curve_version")).from_(LIVE_COUNTS)
_COUNTED_FITS = _COUNTED.where(col("counted").eq(1)).packed().prepared()
BUNDLE_PAGES = LogPages(*Bundle._fields[:-1], "changes", where=OF_ENTRIES)


def find_fold_state() -> Program[FoldState | None]:
    rows = yield _STATE.bind()
    if not rows:
        return None
    return FoldState(*rows[0])


def store_folded(now: FoldState, counts: Iterable[StoredCounts]) -> Program[None]:
    for one in counts:
        yield _PUT.bind(**asdict(one), counted=int(bool(one.document)))
    yield _SET_STATE.bind(mark_key=_ONLY, position=now.mark, as_of=now.as_of_us, version=now.version)


def counts_after(version: int, now: FoldState) -> Program[list[StoredCounts]]:
    """Read the live counts newer than `version`, oldest first. `now` is the `FoldState` of this snapshot.

    After a restore from a backup, all live counts may have versions below `version`, in which case all are returned.
    """
    if now.version == version:
        return []
    rows = yield _COUNTS_AFTER.bind(version=version if version < now.version else 0)
    return [StoredCounts(*row) for row in rows]


def counts_of(leaf_keys: Sequence[int]) -> Program[list[StoredCounts]]:
    rows = yield _COUNTS_OF_BOARDS.bind(keys=leaf_keys)
    return [StoredCounts(*row) for row in rows]


def counted_fits() -> Program[dict[tuple[int, int], int]]:
    rows = yield _COUNTED_FITS.bind()
    return {(row[0], row[1]): row[2] for row in rows}


def list_bundles_after(done: int, *, changes_max: int, boards: Sequence[int] | None = None) -> Program[list[Bundle]]:
    """List a page of the bundles that the mark `done` does not cover. `LogPages.read_page` explains the bounds."""
    pages = BUNDLE_PAGES.read_page(last_number_before(done), changes_max=changes_max, boards=boards)
    return [Bundle(*row) for row in (yield from pages)]

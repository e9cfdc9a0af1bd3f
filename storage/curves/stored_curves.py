"""Stores curves in a table of the leaf's partition, each under a new version, and reads them.

Versions only grow, so a polling process asks for the curves above the last version that it has seen.
"""

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import NamedTuple

from predictor import Curve, encode_curve
from querybuilder import Lock, asc, col, max_, param, select
from storage.errors import UnknownBoardError
from storage.leaves.totals import hold_epoch
from storage.records import Leaf
from storage.schema.placement import prepare_put
from storage.schema.sequences import take_number
from storage.schema.tables import CURVES, LIVE_MARK
from storage.store import Program

from .live_counts import FoldState, Slot, StoredCounts, counts_after


@dataclass(frozen=True, slots=True)
class ListedCurve:
    """A row of the table of curves, without the curve's contents."""

    leaf_key: int
    column_index: int
    epoch: int
    version: int
    as_of_us: int
    mark: int | None = None  # the snapshot of the fit saw the changes up to this mark; None: unknown
    changes: int | None = None  # the board's count of changes in the snapshot of the fit; None: unknown
    rules: str | None = None  # the result of `describe_rules` at the time of the fit; None: unknown

    @property
    def slot(self) -> Slot:
        return self.leaf_key, self.column_index


class NewCurves(NamedTuple):
    curves: list[ListedCurve]  # oldest first
    folded: FoldState | None  # None before the first fold
    counts: list[StoredCounts]


def read_news(version: int, live_version: int, limit: int) -> Program[NewCurves]:
    """Read up to `limit` curves newer than `version`. If that exhausts them, also read the newer live counts."""
    [[newest, *state]] = yield _NEWEST.bind()
    listed = (yield from curves_after(version, limit)) if newest is not None and newest > version else []
    folded = None if state[0] is None else FoldState(*state)
    counts = (yield from counts_after(live_version, folded)) if folded is not None and len(listed) < limit else []
    return NewCurves(listed, folded, counts)


def store_curve(
    leaf: Leaf,
    column_index: int,
    curve: Curve,
    *,
    changes: int | None = None,
    mark: int | None = None,
    owned: Callable[[], Program[None]] | None = None,
) -> Program[int]:
    """Store a curve, unless the leaf was deleted, emptied or moved since the fit. Return the curve's new version.

    Run this program in the leaf's partition. In the snapshot of the fit, `changes` was the leaf's count of changes, and
    the log was visible up to `mark`. `owned` runs in the same transaction, and nothing is stored if it raises an error.

    Raises:
        UnknownBoardError: the leaf was deleted, emptied or moved to another partition since the fit.
        LeaseLostError: `owned` found that another process has taken over the refresh.
    """
    if (yield from hold_epoch(leaf.key, lock=Lock.SHARE)) != leaf.epoch:
        raise UnknownBoardError(f"leaderboard {leaf.id!r} was deleted, emptied or moved meanwhile")
    if owned is not None:
        yield from owned()
    version = yield from take_number("curve_version")
    listed = ListedCurve(
        leaf.key, column_index, leaf.epoch, version, curve.as_of_us, mark, changes, describe_rules(leaf)
    )
    yield _STORE.bind(**dict(zip(_LISTED, astuple(listed), strict=True)), document=encode_curve(curve))
    return version


# In the order of the fields of `ListedCurve`:
_LISTED = ("leaf_key", "column_index", "epoch", "version", "as_of", "mark", "changes", "rules")
_STORE = prepare_put(CURVES)
_CURVES = select(*map(col, _LISTED)).from_(CURVES)
_CURVES_AFTER = (
    _CURVES.where(col("version").gt(param("version")))
    .order_by(asc(col("version")))
    .limit(param("limit"))
    .packed()
    .prepared()
)
_FOLDED = (select(col(name)).from_(LIVE_MARK).scalar() for name in ("position", "as_of", "version"))
_NEWEST = select(max_(col("version")), *_FOLDED).from_(CURVES).prepared()
_CURVES_OF_BOARDS = _CURVES.where(col("leaf_key").in_(param("keys"))).packed().prepared()


def curves_after(version: int, limit: int) -> Program[list[ListedCurve]]:
    """List up to `limit` stored curves newer than a version, oldest first, without their contents."""
    return [ListedCurve(*row) for row in (yield _CURVES_AFTER.bind(version=version, limit=limit))]


def find_listed_curves(leaf_keys: Sequence[int]) -> Program[dict[Slot, ListedCurve]]:
    rows = yield _CURVES_OF_BOARDS.bind(keys=leaf_keys)
    return {(row[0], row[1]): ListedCurve(*row) for row in rows}


def read_documents(versions: Sequence[int]) -> Program[dict[int, bytes]]:
    """Read the encoded curves with these versions, by version. Leave out curves that newer ones have replaced."""
    rows = yield (
        select(col("version"), col("document"))
        .from_(CURVES)
        .where(col("version").in_(param("versions")))
        .bind(versions=list(versions))
    )
    return {row[0]: row[1] for row in rows}


def describe_rules(leaf: Leaf) -> str:
    """Describe, as text, the settings by which a leaf's curves are made.

    When this text changes, a new curve is needed.
    """
    return f"{leaf.spec.predictor.method.value}/{leaf.spec.predictor.samples}"

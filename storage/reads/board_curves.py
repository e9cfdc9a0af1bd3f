"""The curves of a board as they are: in use, in an archive, or exact for a closed board with few entries."""

from collections.abc import Sequence

from predictor import Curve, RankCurve
from storage.archive.archive_reader import ArchivedEntries
from storage.archive.archive_writer import build_exact_curve
from storage.curves.stored_curves import CurveBook
from storage.records import Board, Leaf
from storage.store import Store

from .open_boards import OpenBoards


async def find_curves(
    store: Store, boards: OpenBoards, book: CurveBook, board: Board, index: int
) -> Sequence[RankCurve]:
    """Return the curve of each leaf of a board, or no curve if a leaf has none. Archived curves are in the archive."""
    entries = boards.open_board(board)
    if isinstance(entries, ArchivedEntries):
        return await store.at(board.partition).read(lambda: entries.read_curves(index))
    curves = []
    for leaf in board.leaves:
        found = book.find_leaf_curve(leaf, index) or await _build_final_curve(store, leaf, index)
        if found is None:
            return []
        curves.append(found)
    return curves


async def _build_final_curve(store: Store, leaf: Leaf, index: int) -> Curve | None:
    """Return a curve with a knot for each value, if the leaf is closed and has few entries, or None."""
    if leaf.closed_us is None:
        return None
    found = await store.at(leaf.partition).read(lambda: build_exact_curve(leaf, index))
    return found if found.total <= leaf.spec.predictor.exact_top else None

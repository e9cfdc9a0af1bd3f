"""Reads leaves' totals, which say how many entries have a value in each column, and checks copies of leaves.

A leaf's totals are in its partition. They are exact, because each transaction that changes entries updates them. Reads
that need the totals also read the leaf's edition, which shows whether their copy of the leaf is outdated.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from querybuilder import INTEGER, TEXT, Lock, Select, Term, col, null, param, select, union_all
from storage.errors import BoardChangedError, UnknownBoardError
from storage.records import Board, Leaf, by_partition
from storage.schema.placement import prepare_put_rows
from storage.schema.tables import GATES, TOTALS
from storage.store import Program, in_partition

# In the table of totals, these values of `column_index` mark numbers that belong to no column.
ALL_ENTRIES = -1  # the number of rows
# The number of rows ever written or erased, hidden ones included. While it is the same, the leaf is unchanged.
CHANGES = -2

Totals = dict[int, int]  # by column index, or `ALL_ENTRIES` or `CHANGES`


def check_copy(leaf: Leaf, edition: str | None) -> None:
    """Check that `leaf`, read earlier, has the edition that is stored now. Accept every unreached leaf.

    Raises:
        UnknownBoardError: the leaf was deleted, so it has no edition.
        BoardChangedError: the remembered leaf is outdated.
    """
    if leaf.is_unreached:
        return
    if edition is None:
        raise UnknownBoardError(f"no leaderboard {leaf.id!r}")
    if edition != leaf.edition:
        raise BoardChangedError


def hold_epoch(leaf_key: int, *, lock: Lock) -> Program[int | None]:
    """Lock a leaf's gate and return the leaf's epoch, or None if this partition does not hold the leaf.

    A transaction that stores a curve takes this lock in share mode. To keep out new curves, a transaction that removes
    the leaf's curves first locks the gate exclusively, or writes or deletes it.
    """
    rows = yield _HOLD_EPOCH[lock].bind(key=leaf_key)
    return int(rows[0][0]) if rows else None


_find_epoch = select(col("epoch")).from_(GATES).where(col("leaf_key").eq(param("key")))
_HOLD_EPOCH = {lock: _find_epoch.locked(lock).prepared() for lock in (Lock.SHARE, Lock.UPDATE)}


def store_gates(leaves: Iterable[Leaf]) -> Program[None]:
    """Copy what the catalog now says about each leaf to the leaf's gate, in its partition.

    Posts read the gate (see `gates`). Its edition shows readers whether their copy of the leaf is outdated.
    """
    for partition, theirs in by_partition(leaves):
        gates = [(leaf.key, leaf.table_key, leaf.rows_key, *leaf.gate, leaf.edition) for leaf in theirs]
        yield _STORE_GATES.bind(rows=gates).at(partition)


_STORE_GATES = prepare_put_rows(GATES)


def find_demands(leaf_keys: Iterable[int]) -> Program[dict[int, str]]:
    """Find the current `demands` of each of these leaves of this partition, by key, from its edition."""
    rows = yield _EDITIONS.bind(keys=list(leaf_keys))
    return {key: "".join(edition.split(".")[4:]) for key, edition in rows}


_EDITIONS = (
    select(col("leaf_key"), col("edition")).from_(GATES).where(col("leaf_key").in_(param("keys"))).packed().prepared()
)


def find_totals(leaf_keys: list[int]) -> Program[dict[int, Totals]]:
    """Find the totals of leaves, by leaf key and then by column index.

    A column's total is the number of entries with a value in that column. The indexes `ALL_ENTRIES` and `CHANGES` hold
    other numbers. Run this program in the leaves' partition, or use `find_totals_of`.
    """
    totals: dict[int, Totals] = {key: {} for key in leaf_keys}
    for leaf_key, index, entries in (yield _TOTALS.bind(keys=leaf_keys)):
        totals[leaf_key][index] = entries
    return totals


def read_totals(leaves: Sequence[Leaf]) -> Program[dict[int, Totals]]:
    """Read the totals of leaves, and check that `leaves` are not outdated. Run this in the leaves' partition.

    Raises:
        UnknownBoardError: a leaf was deleted.
        BoardChangedError: a leaf has changed since the caller read it.
    """
    totals: dict[int, Totals] = {leaf.key: {} for leaf in leaves}
    editions: dict[int, str] = {}
    for key, index, entries, edition in (yield _TOTALS_AND_EDITIONS.bind(keys=list(totals))):
        if edition is None:
            totals[key][index] = entries
        else:
            editions[key] = edition
    for leaf in leaves:
        check_copy(leaf, editions.get(leaf.key))
    return totals


_AMONG = col("leaf_key").in_(param("keys"))
_totals = col("leaf_key"), col("column_index"), col("entries")
_TOTALS = select(*_totals).from_(TOTALS).where(_AMONG).packed().prepared()
_TOTALS_AND_EDITIONS = (
    union_all(
        select(*_totals, null(TEXT)).from_(TOTALS).where(_AMONG),
        select(col("leaf_key"), null(INTEGER), null(INTEGER), col("edition")).from_(GATES).where(_AMONG),
    )
    .packed()
    .prepared()
)


def totals_and_edition(*others: Term) -> Select:
    """Build a query for (edition, column index, total, *others) of the leaf `totals_key`. A deleted leaf has no rows.

    A leaf without totals has one row, whose index and total are null.
    """
    of_leaf = col("leaf_key", "g")
    outputs = col("edition", "g"), col("column_index", "t"), col("entries", "t"), *others
    joined = select(*outputs).from_(GATES, "g").left_join(TOTALS, col("leaf_key", "t").eq(of_leaf), alias="t")
    return joined.where(of_leaf.eq(param("totals_key", INTEGER)))


def find_totals_of(boards: Collection[Board]) -> Program[dict[int, Totals]]:
    """Find the totals of boards and of their leaves, as `find_totals` does. A board's totals sum up its leaves'."""
    return (yield from _add_up_boards(boards, lambda leaves: find_totals(list({leaf.key for leaf in leaves}))))


def read_totals_of(boards: Collection[Board]) -> Program[dict[int, Totals]]:
    """Read the totals of boards and of their leaves in any partitions, checking all leaves as `read_totals` does."""
    return (yield from _add_up_boards(boards, read_totals))


def _add_up_boards(
    boards: Collection[Board], read: Callable[[list[Leaf]], Program[dict[int, Totals]]]
) -> Program[dict[int, Totals]]:
    totals: dict[int, Totals] = {}
    for partition, leaves in by_partition(leaf for board in boards for leaf in board.leaves):
        totals |= yield from in_partition(partition, read(leaves))
    for board in boards:
        if board.is_spread:
            totals[board.key] = add_up_totals(totals[leaf.key] for leaf in board.leaves)
    return totals


def read_board_totals(board: Board) -> Program[Totals]:
    """Read one board's totals by column index, as explained in `find_totals`.

    Raises:
        UnknownBoardError: the board was deleted.
        BoardChangedError: the board has changed since this process read it.
    """
    if not board.is_spread:  # nearly every board: it has one leaf, so there is nothing to add up
        return (yield from read_totals(board.leaves))[board.key]
    return (yield from read_totals_of([board]))[board.key]


def add_up_totals(parts: Iterable[Mapping[int, int]]) -> Totals:
    found: Totals = {}
    for part in parts:
        for index, number in part.items():
            found[index] = found.get(index, 0) + number
    return found

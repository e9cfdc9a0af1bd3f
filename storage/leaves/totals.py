"""Totals of leaves: how many entries have a value in each column, and a number for the state of the leaf.

The totals of a leaf are in its partition. Each transaction that changes entries updates them, so they are exact. The
state shows a process whether its copy of the leaf, which it read from the catalog, is outdated.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from querybuilder import Lock, col, param, select
from storage.errors import BoardChangedError, UnknownBoardError
from storage.records import Board, Leaf, by_partition
from storage.schema.placement import prepare_put_rows
from storage.schema.tables import GATES, TOTALS
from storage.store import Program, in_partition

# In the table of totals, these values of `column_index` stand for numbers that belong to no column.
ALL_ENTRIES = -1  # the number of rows
# The total with this index is the result of `state_of`. A process compares it with the state of its copy of the leaf,
# to see whether the copy is outdated.
STATE = -3
CHANGES = -2  # the number of rows ever written or erased; while this number is the same, the leaf is unchanged

# The digits of a state, from the last: columns, changes of tiers, whether the leaf is archived, and its epoch.
COLUMNS_LIMIT = 1 << 12  # more columns than a table can have
VERSIONS_LIMIT = 1 << 19  # the count of changes of tiers starts again at 0 after this many
ARCHIVED = COLUMNS_LIMIT * VERSIONS_LIMIT
EPOCH = 2 * ARCHIVED


def state_of(leaf: Leaf) -> int:
    """Return a number that changes whenever the leaf is reset, gets a new column or other tiers, or is archived."""
    spec, archived = leaf.spec, leaf.archived_us is not None
    versions = spec.tiers_version % VERSIONS_LIMIT
    return leaf.epoch * EPOCH + ARCHIVED * archived + versions * COLUMNS_LIMIT + len(spec.columns)


def check_copy(leaf: Leaf, totals: dict[int, int]) -> None:
    """Check with new totals that `leaf`, which was read earlier, is not outdated. Accept every unreached leaf.

    Raises:
        UnknownBoardError: the leaf was deleted.
        BoardChangedError: the remembered leaf is outdated.
    """
    if leaf.is_unreached:
        return
    if STATE not in totals:
        raise UnknownBoardError(f"no leaderboard {leaf.id!r}")
    if totals[STATE] != state_of(leaf):
        raise BoardChangedError


def hold_epoch(board_key: int, *, lock: Lock) -> Program[int | None]:
    """Lock a leaf's state and return the leaf's epoch, or None if this partition does not hold the leaf.

    A transaction that stores a curve takes this lock in share mode. To keep out new curves, a transaction that removes
    the leaf's curves first locks the state exclusively, or deletes the state.
    """
    rows = yield _HOLD_STATE[lock].bind(key=board_key)
    return int(rows[0][0]) // EPOCH if rows else None


_find_state = (
    select(col("entries")).from_(TOTALS).where(col("board_key").eq(param("key")), col("column_index").eq(STATE))
)
_HOLD_STATE = {lock: _find_state.locked(lock).prepared() for lock in (Lock.SHARE, Lock.UPDATE)}


def store_states(leaves: Iterable[Leaf]) -> Program[None]:
    """Store in the partition of each leaf what the catalog now says of it: its gate, and the result of `state_of`.

    Posts read the gate (see `gates`). Other processes read the totals anyway. They notice that their copy of the leaf
    is outdated if its state differs from the stored state.
    """
    for partition, theirs in by_partition(leaves):
        states = [(leaf.key, STATE, state_of(leaf)) for leaf in theirs]
        yield _STORE_STATES.bind(rows=states).at(partition)
        gates = [(leaf.key, leaf.table_key, leaf.rows_key, *leaf.gate) for leaf in theirs]
        yield _STORE_GATES.bind(rows=gates).at(partition)


_STORE_STATES, _STORE_GATES = prepare_put_rows(TOTALS), prepare_put_rows(GATES)


def find_totals(board_keys: list[int]) -> Program[dict[int, dict[int, int]]]:
    """Return the totals of leaves, by leaf key and then by column index.

    The total of a column is the number of entries with a value in that column. The indexes `ALL_ENTRIES`, `STATE` and
    `CHANGES` stand for other numbers. Run this program for the partition of the leaves, or use `find_totals_of`.
    """
    rows = yield _COUNT_ENTRIES.bind(keys=board_keys)
    totals: dict[int, dict[int, int]] = {key: {} for key in board_keys}
    for board_key, index, entries in rows:
        totals[board_key][index] = entries
    return totals


_COUNT_ENTRIES = (
    select(col("board_key"), col("column_index"), col("entries"))
    .from_(TOTALS)
    .where(col("board_key").in_(param("keys")))
    .packed()
    .prepared()
)


def find_totals_of(boards: Collection[Board]) -> Program[dict[int, dict[int, int]]]:
    """Return the totals of boards and of their leaves, as `find_totals` does. A board has the sums of its leaves."""
    totals: dict[int, dict[int, int]] = {}
    for partition, theirs in by_partition(leaf for board in boards for leaf in board.leaves):
        totals |= yield from in_partition(partition, find_totals(list({leaf.key for leaf in theirs})))
    for board in boards:
        if board.is_spread:
            totals[board.key] = add_up_totals(totals[leaf.key] for leaf in board.leaves)
    return totals


def read_totals(leaves: Sequence[Leaf]) -> Program[dict[int, dict[int, int]]]:
    """Return the totals of leaves, and check that `leaves` are not outdated. Run this for the partition of the leaves.

    Raises:
        UnknownBoardError: a leaf was deleted.
        BoardChangedError: a leaf has changed since the caller read it.
    """
    totals = yield from find_totals(list({leaf.key for leaf in leaves}))
    for leaf in leaves:
        check_copy(leaf, totals[leaf.key])
    return totals


def read_totals_of(boards: Sequence[Board]) -> Program[dict[int, dict[int, int]]]:
    """Return the totals of boards and of their leaves in any partitions. Check all leaves as `read_totals` does."""
    totals = yield from find_totals_of(boards)
    for board in boards:
        for leaf in board.leaves:
            check_copy(leaf, totals[leaf.key])
    return totals


def read_board_totals(board: Board) -> Program[dict[int, int]]:
    """Return the totals of one board by column index, as `find_totals` explains them.

    Raises:
        UnknownBoardError: the board was deleted.
        BoardChangedError: the board has changed since this process read it.
    """
    if not board.is_spread:  # nearly every board: it has one leaf, so there is nothing to add up
        return (yield from read_totals(board.leaves))[board.key]
    return (yield from read_totals_of([board]))[board.key]


def add_up_totals(parts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Return the sums over a board's segments. States only grow, so the sum `STATE` changes if one of them grows."""
    found: dict[int, int] = {}
    for part in parts:
        for index, number in part.items():
            found[index] = found.get(index, 0) + number
    return found

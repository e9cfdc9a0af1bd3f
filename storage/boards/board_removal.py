"""Empties and deletes boards, whose earlier post ids then no longer identify duplicates.

    reset_board    begins a new epoch, and removes rows, totals and curves ──> the same board, empty
    delete_board   removes these too, of all segments that it ever had, and its row in the catalog ──> deleted

Grants that were already made stay. Those that a closed board has yet to make are never made.

Rows in a shared table stay until `sweep_rows` deletes them, but reads and posts no longer find them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from querybuilder import Lock, col, delete, drop_table, hold_table, param, truncate
from storage.errors import PeriodClosedError
from storage.leaves.catalog_rows import RowKind, store_columns
from storage.leaves.entrants import forget_entrants
from storage.leaves.row_tables import ROWS_KEY, layout_of
from storage.leaves.totals import hold_epoch, store_gates
from storage.log.bundles import ChangeKind
from storage.records import Board, Leaf, Place
from storage.schema.sequences import count_fact, take_keys
from storage.schema.tables import (
    ARCHIVE_BLOCKS,
    BOARD_TOPS,
    BOARDS,
    CURVES,
    GATES,
    GRANT_WALKS,
    LIVE_COUNTS,
    OF_OWNERS,
    OPEN_COHORTS,
    POST_IDS,
    REFRESH_REQUESTS,
    SEATS,
    TOTALS,
    WORK_LEASES,
)
from storage.store import Program, in_partition

from .boards import REFRESH_WORK, find_other_segments, lock_standalone_board, refresh_resource
from .journal import log_event
from .shared_tables import note_dropped_rows

_OF_ROWS = (TOTALS, CURVES, LIVE_COUNTS, *OF_OWNERS)  # the tables that an emptied board has nothing in


def delete_board(*, board_id: str) -> Program[Board]:
    """Delete a board with its rows, totals, curves and archive, and return it with all segments that it ever had.

    The board's post ids are no longer valid, because no later board gets the same key.

    Raises:
        UnknownBoardError, FamilyBoardError: see `lock_standalone_board`.
    """
    board = yield from lock_standalone_board(board_id, lock=Lock.UPDATE, queued=True)
    if board.spec.entry is not None:
        yield from forget_entrants([(board.home, board.key)])
    for leaf in board.leaves:
        yield from in_partition(leaf.partition, clear_partition(leaf))
    others = yield from find_other_segments(board)
    for row in others:
        if row.kind is RowKind.PENDING:
            yield drop_table(layout_of(row.leaf).table, if_exists=True).bind().at(row.leaf.partition)
        else:
            yield from in_partition(row.leaf.partition, clear_partition(row.leaf))
    keys = [board.key, *(leaf.key for leaf in board.leaves), *(row.leaf.key for row in others)]
    if board.is_spread:  # the archive of all segments has the board's own key; a part may be stored already
        yield from in_partition(board.home, delete_of_leaves([ARCHIVE_BLOCKS], [board.key]))
    yield from delete_of_leaves([REFRESH_REQUESTS, GRANT_WALKS, BOARD_TOPS], keys)
    yield delete(BOARDS).where(col("board_key").in_(param("keys"))).bind(keys=keys)
    earlier = [replace(row.leaf, segment=1) for row in others if row.kind is not RowKind.PENDING]
    if board.is_spread:  # before a split, the board itself may have had rows
        earlier.append(replace(board.leaves[0], key=board.key, place=Place(board.home), segment=1))
    return replace(board, leaves=(*board.leaves, *earlier))


def clear_partition(leaf: Leaf) -> Program[None]:
    """Permanently remove all data of a leaf except its change log. Run this program in the leaf's partition."""
    if leaf.archived_us is None:
        yield from drop_rows(leaf)
    yield from delete_of_leaves((TOTALS, GATES, ARCHIVE_BLOCKS), [leaf.key])
    yield from note_dropped_rows(POST_IDS, leaf.key)


def drop_rows(leaf: Leaf) -> Program[None]:
    """Permanently remove a leaf's rows, curves, live counts, hidden entries and refresh leases.

    Run this program in the leaf's partition. Rows in a shared table are only marked as unused; `sweep_rows` deletes
    them later.
    """
    yield from hold_epoch(leaf.key, lock=Lock.UPDATE)
    if leaf.table_key is not None:
        yield from note_dropped_rows(layout_of(leaf).table, leaf.rows_key)
    else:
        yield drop_table(layout_of(leaf).table).bind()
    yield from delete_of_leaves((CURVES, LIVE_COUNTS, *OF_OWNERS), [leaf.key])
    yield from drop_seats([leaf])
    yield from delete_refresh_leases([leaf])


def drop_seats(leaves: Iterable[Leaf]) -> Program[None]:
    """Remove the cohorts of those leaves that belong to leagues. Run this program in the leaves' partition."""
    keys = [leaf.key for leaf in leaves if leaf.spec.league is not None]
    for key in keys:
        yield from note_dropped_rows(SEATS, key)
    if keys:
        yield from delete_of_leaves([OPEN_COHORTS], keys)


def delete_of_leaves(tables: Iterable[str], keys: Sequence[int]) -> Program[None]:
    for table in tables:
        yield delete(table).where(col("leaf_key").in_(param("keys"))).bind(keys=list(keys))


def delete_refresh_leases(leaves: Iterable[Leaf]) -> Program[None]:
    leased = [refresh_resource(leaf.key, index) for leaf in leaves for index in leaf.sorted_indexes]
    of_refresh = delete(WORK_LEASES).where(col("kind").eq(REFRESH_WORK), col("resource").in_(param("leased")))
    yield of_refresh.bind(leased=leased)


def reset_board(*, board_id: str, now_us: int) -> Program[Board]:
    """Empty a board, keep its spec, and log the reset in the journal.

    This invalidates earlier post ids, and any curves that are being fitted at the moment. From now on, the board
    refuses posts whose own time is before `now_us`.

    Raises:
        UnknownBoardError, FamilyBoardError: see `lock_standalone_board`.
        PeriodClosedError: the board is closed, so its content is final.
    """
    board = yield from lock_standalone_board(board_id, lock=Lock.UPDATE, queued=True)
    if board.gate.closed_us is not None:
        raise PeriodClosedError(f"the leaderboard {board_id!r} is closed, so its result stays")
    if board.spec.entry is not None:
        yield from forget_entrants([(board.home, board.key)])
    board = yield from begin_epoch((yield from remove_rows(board)), reset_us=now_us)
    yield from store_gates(board.leaves)
    yield from log_event(board.leaves, ChangeKind.RESET, now_us)
    yield from count_epochs(board)
    return board


def begin_epoch(board: Board, *, reset_us: int | None = None) -> Program[Board]:
    """Increase a board's epoch number by 1, which invalidates post ids and curves from earlier epochs.

    If `reset_us` is set, the board from now on refuses posts whose own time is before it.

    Afterwards, the caller has to call `store_gates` and `count_epochs`.
    """
    gate = board.gate._replace(epoch=board.gate.epoch + 1, reset_us=reset_us or board.gate.reset_us)
    for key in sorted({board.key, *(leaf.key for leaf in board.leaves)}):
        yield from store_columns(key, epoch=gate.epoch, reset_at=gate.reset_us)
    return replace(board, leaves=tuple(replace(leaf, gate=gate) for leaf in board.leaves))


def count_epochs(board: Board) -> Program[None]:
    """After `begin_epoch`, let `count_fact` make processes forget the old epoch. Call this last in the transaction."""
    for partition in sorted({leaf.partition for leaf in board.leaves}):
        yield from in_partition(partition, count_fact())


def remove_rows(board: Board) -> Program[Board]:
    """Remove a board's rows, totals and curves. The caller then has to pass the returned leaves to `store_gates`."""
    emptied = []
    for leaf in board.leaves:
        emptied.append((yield from in_partition(leaf.partition, _remove_rows(leaf))))
    return replace(board, leaves=tuple(emptied))


def _remove_rows(leaf: Leaf) -> Program[Leaf]:
    if leaf.table_key is None or leaf.family_key is not None:
        yield from delete_rows([leaf])
        return leaf
    yield from note_dropped_rows(layout_of(leaf).table, leaf.rows_key)
    emptied = replace(leaf, place=leaf.place._replace(rows_key=(yield from take_keys())))
    yield from store_columns(leaf.key, rows_key=emptied.rows_key)
    yield from delete_of_leaves(_OF_ROWS, [leaf.key])
    return emptied


def delete_rows(leaves: Sequence[Leaf]) -> Program[None]:
    """Delete the rows, totals and curves of leaves that have tables of their own, or share the table of their family.

    Run this program in the leaves' partition. Each leaf keeps its `rows_key`, because posts to a family do not look up
    that key.
    """
    if leaves[0].table_key is None:
        for leaf in leaves:
            yield truncate(layout_of(leaf).table).bind()
    else:
        table = layout_of(leaves[0]).table
        yield hold_table(table).bind()  # a post that has locked no row yet could add one
        yield delete(table).where(col(ROWS_KEY).in_(param("keys"))).bind(keys=[leaf.rows_key for leaf in leaves])
    yield from delete_of_leaves(_OF_ROWS, [leaf.key for leaf in leaves])

"""Empties and deletes boards. Post ids of an emptied or deleted board become void.

    reset_board    another epoch, no rows, totals or curves ──> the same board, empty
    delete_board   the same for all segments that the board has ever had, and no row in the catalog ──> deleted

Rows in a shared table stay until `sweep_rows` deletes them. Nothing refers to them any longer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from querybuilder import Lock, col, delete, drop_table, hold_table, param, truncate
from storage.errors import PeriodClosedError
from storage.records import Board, by_partition
from storage.schema.sequences import take_keys
from storage.schema.tables import (
    ARCHIVE_BLOCKS,
    BOARDS,
    CURVES,
    HIDDEN_ENTRIES,
    LIVE_COUNTS,
    REFRESH_REQUESTS,
    TOTALS,
    WORK_LEASES,
)
from storage.store import Program, in_partition

from .boards import (
    PENDING,
    REFRESH_WORK,
    RETIRED,
    find_other_segments,
    lock_standalone_board,
    refresh_resource,
    store_columns,
)
from .row_tables import layout_of, scope_of
from .shared_tables import POST_IDS_KEY, note_dropped_rows
from .totals import hold_epoch, store_states


def delete_board(*, board_id: str) -> Program[Board]:
    """Delete a board with its rows, totals, curves and archive. Return it with all segments that it has ever had.

    The post ids of the board become void, because no later board gets the same key.

    Raises:
        UnknownBoardError, FamilyBoardError: see `lock_standalone_board`.
    """
    board = yield from lock_standalone_board(board_id, lock=Lock.UPDATE, queued=True)
    for partition, parts in by_partition(board.parts):
        for part in parts:
            yield from in_partition(partition, clear_partition(part))
    others = yield from find_other_segments(board)
    for each in others:
        if each.segment <= PENDING:
            yield drop_table(layout_of(each).table, if_exists=True).bind().at(each.partition)
        else:
            yield from in_partition(each.partition, clear_partition(each))
    if board.segments:  # an archive may have been begun
        yield from in_partition(board.partition, delete_of_boards([ARCHIVE_BLOCKS], [board]))
    yield from delete_of_boards((BOARDS, REFRESH_REQUESTS), [board, *board.segments, *others])
    if not board.segments and not others:
        return board
    retired = [each for each in others if each.segment > PENDING]
    undivided = replace(board, segments=(), segment_of=board.key, segment=RETIRED)  # as it was before its first split
    return replace(board, segments=(*board.segments, *retired, undivided))


def clear_partition(board: Board) -> Program[None]:
    """Permanently remove everything of a board except its log. Run this program for the partition to clear."""
    if board.archived_us is None:
        yield from drop_rows(board)
    yield from delete_of_boards((TOTALS, ARCHIVE_BLOCKS), [board])
    yield from note_dropped_rows(POST_IDS_KEY, board.key)


def drop_rows(board: Board) -> Program[None]:
    """Permanently remove a board's rows, curves, live counts, hidden entries and refresh leases.

    Run this program for the board's partition.
    If the rows are in a shared table, only note that they are dropped. `sweep_rows` deletes them later.
    """
    yield from hold_epoch(board.key, lock=Lock.UPDATE)
    if board.table_key is not None:
        yield from note_dropped_rows(board.table_key, board.rows_key)
    else:
        yield drop_table(layout_of(board).table).bind()
    yield from delete_of_boards((CURVES, LIVE_COUNTS, HIDDEN_ENTRIES), [board])
    yield from delete_refresh_leases([board])


def delete_of_boards(tables: Iterable[str], boards: Sequence[Board]) -> Program[None]:
    """Delete the rows of these boards in tables that name a board by its key."""
    for table in tables:
        theirs = col("board_key").in_(param("keys"))
        yield delete(table).where(theirs).bind(keys=[board.key for board in boards])


def delete_refresh_leases(boards: Iterable[Board]) -> Program[None]:
    leased = [refresh_resource(board.key, index) for board in boards for index in board.sorted_indexes]
    of_refresh = delete(WORK_LEASES).where(col("kind").eq(REFRESH_WORK), col("resource").in_(param("leased")))
    yield of_refresh.bind(leased=leased)


def reset_board(*, board_id: str) -> Program[Board]:
    """Empty a board and keep its spec. Earlier post ids, and curves that are being fitted now, become void.

    Raises:
        UnknownBoardError, FamilyBoardError: see `lock_standalone_board`.
        PeriodClosedError: the board is closed, so its content is final.
    """
    board = yield from lock_standalone_board(board_id, lock=Lock.UPDATE, queued=True)
    if board.closed_us is not None:
        raise PeriodClosedError(f"the leaderboard {board_id!r} is closed")
    board = yield from begin_epoch((yield from remove_rows(board)))
    yield from store_states(board.parts)
    return board


def begin_epoch(board: Board) -> Program[Board]:
    """Begin a new epoch, which makes earlier post ids and fits void. The caller then has to call `store_states`."""
    segments = []
    for segment in board.segments:
        segments.append((yield from begin_epoch(segment)))
    emptied = replace(board, epoch=board.epoch + 1, segments=tuple(segments))
    yield from store_columns(emptied, epoch=emptied.epoch)
    return emptied


def remove_rows(board: Board) -> Program[Board]:
    """Remove a board's rows, totals and curves. The caller then has to call `store_states` with the returned parts."""
    if not board.segments:
        return (yield from in_partition(board.partition, _remove_rows(board)))
    segments = []
    for segment in board.segments:
        segments.append((yield from in_partition(segment.partition, _remove_rows(segment))))
    return replace(board, segments=tuple(segments))


def _remove_rows(board: Board) -> Program[Board]:
    emptied, layout = board, layout_of(board)
    if board.table_key is None:
        yield truncate(layout.table).bind()
    elif board.family_key is None:
        yield from note_dropped_rows(board.table_key, board.rows_key)
        emptied = replace(board, rows_key=(yield from take_keys()))
        yield from store_columns(board, rows_key=emptied.rows_key)
    else:  # posts rely on the `rows_key` of a family's board, so it has to stay the same
        yield hold_table(layout.table).bind()
        yield delete(layout.table).where(*layout.scope()).bind(**scope_of(board))
    yield from delete_of_boards((TOTALS, CURVES, LIVE_COUNTS, HIDDEN_ENTRIES), [board])
    return emptied

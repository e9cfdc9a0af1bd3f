"""The state of boards that lists of boards show: entries, whether a board is closed, and when it was changed last."""

from collections.abc import Sequence
from typing import NamedTuple

from storage.boards.boards import find_other_segments
from storage.leaves.catalog_rows import find_families_by_key
from storage.leaves.totals import ALL_ENTRIES, find_totals_of
from storage.log.change_log import change_log
from storage.records import Board
from storage.store import Program, in_partition


class BoardState(NamedTuple):
    entries: int
    closed: bool  # whether the board takes no more posts


def read_states(boards: Sequence[Board], now_us: int) -> Program[list[BoardState]]:
    """Return the states of boards, as the store has them, in the order of `boards`."""
    totals = yield from find_totals_of(boards)
    keys = {board.family_key for board in boards if board.family_key is not None}
    families = (yield from find_families_by_key(keys)) if keys else {}
    found = []
    for board in boards:
        family, closed = families.get(board.family_key or 0), board.gate.closed_us is not None
        if family is not None and board.gate.ends_us is not None:  # the boards of a period close together
            closed = board.gate.ends_us <= family.shut_through_us(now_us)
        found.append(BoardState(totals[board.key].get(ALL_ENTRIES, 0), closed))
    return found


def find_last_changes(boards: Sequence[Board]) -> Program[dict[int, int]]:
    """Return, by board key, when boards were changed last, or else created, in microseconds since 1970."""
    logged: list[tuple[int, int, int]] = []  # partition, key in the log, board key
    for board in boards:
        logged += [(leaf.partition, leaf.key, board.key) for leaf in board.leaves]
        if board.is_spread:  # a split leaves the changes in the logs of the board and of its earlier segments
            earlier = yield from find_other_segments(board)
            logged += [(row.leaf.partition, row.leaf.key, board.key) for row in earlier]
            logged.append((board.home, board.key, board.key))
    found = {board.key: 0 for board in boards}
    for partition in sorted({partition for partition, _, _ in logged}):
        board_of = {key: board_key for place, key, board_key in logged if place == partition}
        for key, at_us in (yield from in_partition(partition, change_log.find_last_changes([*board_of]))).items():
            found[board_of[key]] = max(at_us, found[board_of[key]])
    return {board.key: found[board.key] or board.created_at_us for board in boards}

"""One owner on many boards, in few statements: one for each table that boards share, one for all totals.

The rule: every board is looked at as it is now, in one snapshot; one that is not what the caller knew is not answered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from querybuilder import Dialect

from .entries import Entries, EntryStatements
from .entry_reads import EntryRead
from .errors import BoardChanged, UnknownBoard
from .leaderboards import boards_by_key, check_copy, count_entries
from .records import Board, Entry
from .store import Program


def owner_on_boards(dialect: Dialect, boards: Sequence[Entries], owner: str) -> Program[list[EntryRead]]:
    """The owner's entry on each of these boards, with the board's totals, in their order.

    Raises:
        UnknownBoard: one is gone.
        BoardChanged: one is another one than the caller knew.
    """
    totals = yield from totals_of_boards(dialect, [entries.board for entries in boards])
    found: dict[int, Entry] = {}
    own: dict[int, Entries] = {}
    shared: dict[EntryStatements, dict[int, int]] = defaultdict(dict)  # board keys by rows key, by table
    for entries in boards:
        board = entries.board
        if board.table_key is not None and board.archived_us is None:
            shared[entries.pattern.sql][board.rows_key] = board.key
        elif totals[board.key]:
            own[board.key] = entries
    for key, entries in own.items():
        if (entry := (yield from entries.by_owners([owner])).get(owner)) is not None:
            found[key] = entry
    for statements, by_rows_key in shared.items():
        rows = yield from statements.of_owner(owner, list(by_rows_key))
        found |= {by_rows_key[rows_key]: entry for rows_key, entry in rows.items()}
    return [EntryRead(found.get(entries.board.key), totals[entries.board.key]) for entries in boards]


def totals_of_boards(dialect: Dialect, boards: Sequence[Board]) -> Program[dict[int, dict[int, int]]]:
    """Entries of boards by column index, by board key.

    Raises:
        UnknownBoard: one is gone.
        BoardChanged: one is another one than the caller knew.
    """
    totals = yield from count_entries(dialect, list({board.key for board in boards}))
    silent = []
    for board in boards:
        check_copy(board, totals[board.key])
        if not totals[board.key] and not board.is_unreached:
            silent.append(board)
    if silent:
        now = yield from boards_by_key(dialect, [board.key for board in silent])
        for board in silent:
            if board.key not in now:
                raise UnknownBoard(f"no leaderboard {board.id!r}")
            if now[board.key].rows_key != board.rows_key:
                raise BoardChanged
    return totals

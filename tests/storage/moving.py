"""Move a small board to another partition by hand, in one transaction, and tell no process about it."""

from dataclasses import replace

from msgspec import structs

from querybuilder import INTEGER, TEXT, col, delete, drop_table, insert, param, select, update
from storage.boards.row_tables import columns_of, create_row_table, layout_of, scope_of
from storage.boards.shared_tables import find_or_create_table, note_dropped_rows
from storage.entries.entries import Entries
from storage.entries.rankings import decode_entry
from storage.records import Board, Entry
from storage.schema.sequences import take_keys
from storage.schema.tables import BOARDS, HIDDEN_ENTRIES, POST_IDS, TOTALS
from storage.store import Program, in_partition

_TABLES = {
    TOTALS: {"board_key": INTEGER, "column_index": INTEGER, "entries": INTEGER},
    POST_IDS: {
        "board_key": INTEGER, "post_hash": TEXT, "fingerprint": TEXT, "outcome": TEXT, "remembered_at": INTEGER,
    },
    HIDDEN_ENTRIES: {"board_key": INTEGER, "owner": TEXT, "updated_at": INTEGER, "cells": TEXT},
}  # fmt: skip


def move_board(board: Board, partition: int) -> Program[Board]:
    """Move the rows, totals, post ids and hidden entries of a board, and return the moved board."""
    moved = replace(board, partition=partition)
    if board.table_key is None:
        yield from in_partition(partition, create_row_table(layout_of(board)))
    else:
        table_key = yield from find_or_create_table(columns_of(board.spec.columns, shared=True), partition)
        # The rows that it once left there may not have been swept yet, so it gets another key.
        moved = replace(moved, table_key=table_key, rows_key=(yield from take_keys()))
    entries = yield from in_partition(board.partition, _take_rows(board))
    yield from in_partition(partition, Entries(moved).table.insert_rows([(moved.rows_key, each) for each in entries]))
    theirs = col("board_key").eq(param("key"))
    for table, kinds in _TABLES.items():
        found = select(*map(col, kinds)).from_(table).where(theirs).bind(key=board.key)
        rows = yield structs.replace(found, partition=board.partition)
        yield structs.replace(delete(table).where(theirs).bind(key=board.key), partition=board.partition)
        written = insert(table).rows(param("rows"), **kinds).bind(rows=list(map(tuple, rows)))
        yield structs.replace(written, partition=partition)
    placed = {"partition": partition, "table_key": moved.table_key, "rows_key": moved.rows_key}
    yield update(BOARDS).set(**placed).where(theirs).bind(key=board.key)
    return moved


def _take_rows(board: Board) -> Program[list[Entry]]:
    layout = layout_of(board)
    found = yield select(*layout.row_columns()).from_(layout.table).where(*layout.scope()).bind(**scope_of(board))
    if board.table_key is None:
        yield drop_table(layout.table).bind()
    else:
        yield from note_dropped_rows(board.table_key, board.rows_key)
    return [decode_entry(row) for row in found]

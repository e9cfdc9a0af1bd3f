"""The programs of the catalog: which boards there are, what their columns mean, and how many entries they have.

The rule: a board is made, changed, emptied and deleted here, in one short transaction each; `layouts` says where its
rows lie.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import msgspec

from querybuilder import (
    Dialect,
    Lock,
    Statement,
    asc,
    col,
    delete,
    drop_table,
    empty,
    hold_table,
    insert,
    lit,
    param,
    plus,
    select,
    update,
)

from .board_limits import check_room
from .errors import BoardChanged, FamilyBoard, PeriodClosed, SpecConflict, StoreDamaged, UnknownBoard
from .layouts import columns_of, create_rows, layout_of, scope_of, widen_rows
from .migrate import ARCHIVE_BLOCKS, BOARDS, CURVES, DEMANDS, FAMILIES, HIDDEN, LEASES, LIVE_COUNTS, TOTALS, next_in
from .records import Board, BoardSpec, ColumnSpec, Table
from .season_times import check_times, store_times, times_of
from .shared_tables import leave_post_ids, leave_rows, table_for, widen_table
from .store import Program, Row
from .total_shares import summed

ALL_ENTRIES = -1  # the column_index under which the number of rows is counted
STATE = -3  # … and, once a board was emptied or widened, `state_of` it: what a process compares its copy with
CHANGES = -2  # … and the number of rows ever written or erased: an equal count means an unchanged board
REFRESH_POOL = "refresh"  # the leases on refreshing a column

SPECS_KEPT_MAX = 4_096  # texts whose spec is remembered: boards that were described alike share one
COLUMNS_LIMIT = 1 << 20  # far more than a table can have
ARCHIVED = COLUMNS_LIMIT >> 1  # in `state_of`


def refresh_resource(board_key: int, column_index: int) -> str:
    """The name under which refreshing a column is leased."""
    return f"{board_key}/{column_index}"


def spec_text(spec: BoardSpec) -> str:
    """A spec as the catalog holds it."""
    return msgspec.json.encode(spec).decode()


@lru_cache(maxsize=SPECS_KEPT_MAX)
def _spec(text: str) -> BoardSpec:
    return msgspec.json.decode(text, type=BoardSpec)


def board_of(row: Row) -> Board:
    """A board from `COLUMNS` of it."""
    key, board_id, spec, created_at, epoch, table_key, rows_key, *times = row
    try:
        described = _spec(spec)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"the catalog's row of the leaderboard {board_id!r} is damaged: restore a backup") from error
    return Board(key, board_id, described, created_at, epoch, table_key, rows_key or 0, *times)


COLUMNS = tuple(
    col(name)
    for name in (
        *("board_key", "id", "spec", "created_at", "epoch", "table_key", "rows_key"),
        *("family_key", "closes_at", "closed_at", "archived_at"),
    )
)


def create_board(
    dialect: Dialect,
    *,
    board_id: str,
    spec: BoardSpec,
    now_us: int,
    boards_max: int,
    own_tables_max: int | None = None,
) -> Program[Board]:
    """Add a board, its table and its indexes in one transaction; one that exists is answered as it is.

    Raises:
        TooManyBoards, TooManyOwnTables: see `check_room`.
    """
    rows = yield select(*COLUMNS).from_(BOARDS).where(col("id").eq(param("id"))).build(dialect, id=board_id)
    if rows:
        board = board_of(rows[0])
        if board.family_key is not None:
            raise FamilyBoard(f"{board_id!r} is a family's: it changes with the family only")
        return board
    family_id, colon, _ = board_id.partition(":")
    if colon:
        named = select(lit(1)).from_(FAMILIES).where(col("id").eq(param("family_id")))
        if (yield named.build(dialect, family_id=family_id)):
            raise FamilyBoard(f"{board_id!r} would be of the family {family_id!r}, whose boards come with its posts")
    shared = spec.table is Table.SHARED
    yield from check_room(dialect, new=1, own=not shared, boards_max=boards_max, own_tables_max=own_tables_max)
    table_key = (yield from table_for(dialect, columns_of(spec.columns, shared=True))) if shared else None
    board_key = yield from next_in(dialect, "board_key")
    board = Board(board_key, board_id, spec, now_us, epoch=1, table_key=table_key, rows_key=board_key if shared else 0)
    season = times_of(spec.season)
    board = replace(board, closes_us=season["closes_at"])
    yield (
        insert(BOARDS)
        .values(
            board_key=board_key,
            id=board_id,
            spec=spec_text(spec),
            created_at=now_us,
            epoch=1,
            table_key=table_key,
            rows_key=board.rows_key,
            due_at=param("due_at"),
            **{name: param(name) for name in season},
        )
        .build(dialect, due_at=board.closes_us, **season)
    )
    if not shared:
        for query in create_rows(layout_of(board)):
            yield query.build(dialect)
    return board


def change_board(dialect: Dialect, *, board_id: str, wanted: BoardSpec, now_us: int = 0) -> Program[Board]:
    """Add the wanted columns that are new and take over the predictor and the times; the rest must be as stored.

    Raises:
        UnknownBoard: deleted meanwhile.
        SpecConflict: the change would reinterpret or drop stored values.
    """
    board = yield from standing_alone(dialect, board_id, lock=Lock.UPDATE)
    added = added_columns(board.spec, wanted)
    check_times(board, wanted.season, now_us=now_us)
    columns = board.spec.columns + added
    spec = replace(board.spec, columns=columns, predictor=wanted.predictor, season=wanted.season)
    if spec == board.spec:
        return board
    if added and board.closed_us is not None:
        raise SpecConflict("the leaderboard is closed, and gets no more columns", pointer="/columns")
    changed = replace(board, spec=spec, closes_us=times_of(spec.season)["closes_at"])
    yield from store_times(dialect, changed)
    layout = layout_of(changed)
    new = layout.columns[len(board.spec.columns) :]
    if board.table_key is not None:
        yield from widen_table(dialect, board.table_key, new)
    else:
        for query in widen_rows(layout, new):
            yield query.build(dialect)
    yield (
        update(BOARDS).set(spec=spec_text(spec)).where(col("board_key").eq(param("key"))).build(dialect, key=board.key)
    )
    return (yield from with_state(dialect, changed))


def added_columns(stored: BoardSpec, wanted: BoardSpec) -> tuple[ColumnSpec, ...]:
    """The wanted columns that are new.

    Raises:
        SpecConflict: the change would reinterpret or drop stored values.
    """
    if wanted.table is not stored.table:
        raise SpecConflict(f"table is {stored.table.value!r} and can't be changed", pointer="/table")
    if wanted.ties is not stored.ties:
        raise SpecConflict(
            f"ties is {stored.ties.value!r} and can't be changed: it is part of every stored value", pointer="/ties"
        )
    by_name = {column.name: (index, column) for index, column in enumerate(wanted.columns)}
    for column in stored.columns:
        if column.name not in by_name:
            raise SpecConflict(f"column {column.name!r} exists and can't be removed", pointer="/columns")
        index, found = by_name[column.name]
        if found != column:
            raise SpecConflict(
                f"column {column.name!r} exists with other attributes, and its stored values can't be reinterpreted",
                pointer=f"/columns/{index}",
            )
    names = {column.name for column in stored.columns}
    return tuple(column for column in wanted.columns if column.name not in names)


def delete_board(dialect: Dialect, *, board_id: str) -> Program[Board]:
    """Drop a board with its rows, totals and curves. Its post ids are void, for its key is never given again.

    Raises:
        UnknownBoard: there is none.
    """
    board = yield from standing_alone(dialect, board_id, lock=Lock.UPDATE)
    if board.archived_us is None:
        yield from leave_table(dialect, board)
    for table in (BOARDS, TOTALS, ARCHIVE_BLOCKS):
        yield delete(table).where(col("board_key").eq(param("key"))).build(dialect, key=board.key)
    yield from leave_post_ids(dialect, board.key)
    return board


def leave_table(dialect: Dialect, board: Board) -> Program[None]:
    """Take away a board's rows, and what was fitted to them."""
    if board.table_key is not None:
        yield from leave_rows(dialect, board.table_key, board.rows_key)
    else:
        yield drop_table(layout_of(board).table).build(dialect)
    for table in (CURVES, LIVE_COUNTS, DEMANDS, HIDDEN):
        yield delete(table).where(col("board_key").eq(param("key"))).build(dialect, key=board.key)
    leased = [refresh_resource(board.key, index) for index in board.sorted_indexes]
    yield (
        delete(LEASES)
        .where(col("pool").eq(REFRESH_POOL), col("resource").in_(param("leased")))
        .build(dialect, leased=leased)
    )


def reset_board(dialect: Dialect, *, board_id: str) -> Program[Board]:
    """Empty a board and keep its spec: rows, totals and curves go; post ids and fits of before are of another epoch.

    Raises:
        UnknownBoard: there is none.
        PeriodClosed: it is closed: what it held is final.
    """
    board = yield from standing_alone(dialect, board_id, lock=Lock.UPDATE)
    if board.closed_us is not None:
        raise PeriodClosed(f"the leaderboard {board_id!r} is closed")
    emptied = yield from begin_epoch(dialect, (yield from remove_rows(dialect, board)))
    return (yield from with_state(dialect, emptied))


def begin_epoch(dialect: Dialect, board: Board) -> Program[Board]:
    """Void a board's post ids and fits of before; `with_state` has to follow."""
    yield (
        update(BOARDS)
        .set(epoch=plus(col("epoch"), 1))
        .where(col("board_key").eq(param("key")))
        .build(dialect, key=board.key)
    )
    return replace(board, epoch=board.epoch + 1)


def remove_rows(dialect: Dialect, board: Board) -> Program[Board]:
    """Take a board's rows away, with what was counted and fitted; `with_state` has to follow, of what is answered."""
    emptied, layout = board, layout_of(board)
    if board.is_guest and board.table_key is not None:
        yield from leave_rows(dialect, board.table_key, board.rows_key)
        emptied = replace(board, rows_key=(yield from next_in(dialect, "board_key")))
        moved = update(BOARDS).set(rows_key=emptied.rows_key).where(col("board_key").eq(param("key")))
        yield moved.build(dialect, key=board.key)
    elif board.table_key is not None:  # a family's: posts take its rows to be where they are
        if dialect.row_locks:
            yield hold_table(layout.table).build(dialect)
        yield delete(layout.table).where(*layout.scope()).build(dialect, **scope_of(board))
    else:
        yield empty(layout.table).build(dialect)
    for table in (TOTALS, CURVES, LIVE_COUNTS, HIDDEN):
        yield delete(table).where(col("board_key").eq(param("key"))).build(dialect, key=board.key)
    return emptied


def state_of(board: Board) -> int:
    """A number that is another one after every reset, every column that was added, and once the rows are archived."""
    return board.epoch * COLUMNS_LIMIT + len(board.spec.columns) + ARCHIVED * (board.archived_us is not None)


def with_state(dialect: Dialect, board: Board) -> Program[Board]:
    """Have other processes see, in the totals that they read anyway, that their copy of the board is an old one."""
    yield (
        insert(TOTALS)
        .values(board_key=board.key, column_index=STATE, entries=state_of(board))
        .on_conflict("board_key", "column_index")
        .overwrite()
        .build(dialect)
    )
    return board


def check_copy(board: Board, totals: dict[int, int]) -> None:
    """Whether the board is what it was when the catalog read it, by totals that were read later.

    Raises:
        BoardChanged: it is not.
    """
    if STATE in totals and totals[STATE] != state_of(board):
        raise BoardChanged


def check_there(dialect: Dialect, board: Board) -> Program[None]:
    """Whether a board that has no totals is still the one that the catalog read.

    Raises:
        UnknownBoard: it was deleted.
        BoardChanged: it was emptied.
    """
    now = (yield from boards_by_key(dialect, [board.key])).get(board.key)
    if now is None:
        raise UnknownBoard(f"no leaderboard {board.id!r}")
    if now.rows_key != board.rows_key:
        raise BoardChanged


def standing_alone(dialect: Dialect, board_id: str, *, lock: Lock) -> Program[Board]:
    """A board that may be changed by itself, its row locked.

    Raises:
        UnknownBoard: there is none.
        FamilyBoard: it goes with its family.
    """
    board = yield from existing(dialect, board_id, lock=lock)
    if board.family_key is not None:
        raise FamilyBoard(f"{board_id!r} is a family's: it changes with the family only")
    return board


def existing(dialect: Dialect, board_id: str, *, lock: Lock | None = None) -> Program[Board]:
    """The board of that id, its row locked where `lock` says so.

    Raises:
        UnknownBoard: there is none.
    """
    found = select(*COLUMNS).from_(BOARDS).where(col("id").eq(param("id")))
    rows = yield (found if lock is None else found.locked(lock)).build(dialect, id=board_id)
    if not rows:
        raise UnknownBoard(f"no leaderboard {board_id!r}")
    return board_of(rows[0])


def list_boards(
    dialect: Dialect, *, prefix: str, after: str, limit: int, archived: bool = True
) -> Program[list[Board]]:
    """Boards whose id starts with `prefix`, past `after`, by id; without the archived ones where it says so."""
    conditions = [col("id").ge(prefix), col("id").gt(after)]
    if not archived:
        conditions.append(col("archived_at").is_null())
    if prefix:
        conditions.append(col("id").lt(prefix + "\x7f"))  # ids are printable ASCII
    rows = yield select(*COLUMNS).from_(BOARDS).where(*conditions).order_by(asc(col("id"))).limit(limit).build(dialect)
    return [board_of(row) for row in rows]


def boards_by_id(dialect: Dialect, board_ids: list[str]) -> Program[list[Board]]:
    """Those of these boards that exist, as they are now."""
    rows = yield _boards_by_id(dialect).bind(ids=board_ids)
    return [board_of(row) for row in rows]


@lru_cache
def _boards_by_id(dialect: Dialect) -> Statement:
    return select(*COLUMNS).from_(BOARDS).where(col("id").in_(param("ids"))).packed().compile(dialect)


def boards_by_key(dialect: Dialect, board_keys: list[int]) -> Program[dict[int, Board]]:
    """Those of these boards that exist, as they are now."""
    rows = yield _boards_by_key(dialect).bind(keys=board_keys)
    return {row[0]: board_of(row) for row in rows}


@lru_cache
def _boards_by_key(dialect: Dialect) -> Statement:
    return select(*COLUMNS).from_(BOARDS).where(col("board_key").in_(param("keys"))).packed().compile(dialect)


def boards_after(dialect: Dialect, board_key: int, limit: int) -> Program[list[Board]]:
    """Boards that are younger than the one of this key, oldest first."""
    rows = yield _boards_after(dialect).bind(board_key=board_key, limit=limit)
    return [board_of(row) for row in rows]


@lru_cache
def _boards_after(dialect: Dialect) -> Statement:
    younger = select(*COLUMNS).from_(BOARDS).where(col("board_key").gt(param("board_key")))
    return younger.order_by(asc(col("board_key"))).limit(param("limit")).packed().compile(dialect)


def count_entries(dialect: Dialect, board_keys: list[int]) -> Program[dict[int, dict[int, int]]]:
    """Entries of boards by column index (`ALL_ENTRIES`: rows), by board key."""
    rows = yield _count_entries(dialect).bind(keys=board_keys)
    stored: dict[int, list[tuple[int, int]]] = {key: [] for key in board_keys}
    for board_key, index, entries in rows:
        stored[board_key].append((index, entries))
    return {key: summed(shares) for key, shares in stored.items()}


@lru_cache
def _count_entries(dialect: Dialect) -> Statement:
    counted = select(col("board_key"), col("column_index"), col("entries")).from_(TOTALS)
    return counted.where(col("board_key").in_(param("keys"))).packed().compile(dialect)

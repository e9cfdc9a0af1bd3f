"""The programs of the catalog: which boards there are, what their columns mean, and how many entries they have.

The rule: a board's tables, columns and indexes are named here, from its key and never from a request.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import msgspec

from querybuilder import (
    INTEGER,
    TEXT,
    Dialect,
    Lock,
    Query,
    Statement,
    add_column,
    asc,
    col,
    count,
    create_index,
    create_table,
    delete,
    desc,
    drop_table,
    empty,
    excluded,
    insert,
    param,
    plus,
    select,
    update,
)
from querybuilder import Kind as SqlKind

from .errors import BoardChanged, SpecConflict, TooManyBoards, UnknownBoard
from .migrate import BOARDS, CURVES, DEMANDS, HIDDEN, LEASES, LIVE_COUNTS, TOTALS, next_in
from .records import Best, Board, BoardSpec, ColumnSpec, Kind
from .store import Program, Row
from .total_shares import summed

ALL_ENTRIES = -1  # the column_index under which the number of rows is counted
STATE = -3  # … and, once a board was emptied or widened, `state_of` it: what a process compares its copy with
CHANGES = -2  # … and the number of rows ever written or erased: an equal count means an unchanged board
REFRESH_POOL = "refresh"  # the leases on refreshing a column

COLUMNS_LIMIT = 1 << 20  # far more than a table can have


def entries_table(board_key: int) -> str:
    """The table that holds a board's rows."""
    return f"entries_{board_key}"


def physical(index: int) -> str:
    """The physical name of a spec's column."""
    return f"c{index + 1}"


def refresh_resource(board_key: int, column_index: int) -> str:
    """The name under which refreshing a column is leased."""
    return f"{board_key}/{column_index}"


def _spec_text(spec: BoardSpec) -> str:
    return msgspec.json.encode(spec).decode()


def _board(row: Row) -> Board:
    key, board_id, spec, created_at, epoch = row
    return Board(
        key=key, id=board_id, spec=msgspec.json.decode(spec, type=BoardSpec), created_at_us=created_at, epoch=epoch
    )


_COLUMNS = tuple(col(name) for name in ("board_key", "id", "spec", "created_at", "epoch"))


def _sql_type(column: ColumnSpec) -> tuple[SqlKind, bool]:
    if column.sorted:
        return TEXT, True
    return (TEXT if column.kind is Kind.TEXT else INTEGER), False


def _column_index(board_key: int, index: int, column: ColumnSpec) -> Query:
    """The ranking index of a column: best first, owners ascending within a tie both ways, no row without a value."""
    cell = col(physical(index))
    order = desc(cell) if column.best is Best.HIGH else asc(cell)
    return create_index(
        f"{entries_table(board_key)}_{physical(index)}",
        entries_table(board_key),
        order,
        asc(col("owner")),
        where=cell.not_null(),
    )


def _create_entries(board_key: int, spec: BoardSpec) -> list[Query]:
    table = create_table(entries_table(board_key)).column("owner", TEXT, sortable=True).column("updated_at", INTEGER)
    for index, column in enumerate(spec.columns):
        sql_type, sortable = _sql_type(column)
        table = table.column(physical(index), sql_type, null=True, sortable=sortable)
    queries: list[Query] = [table.primary_key("owner").clustered()]
    queries += [_column_index(board_key, index, column) for index, column in enumerate(spec.columns) if column.sorted]
    return queries


def create_board(dialect: Dialect, *, board_id: str, spec: BoardSpec, now_us: int, boards_max: int) -> Program[Board]:
    """Add a board, its table and its indexes in one transaction; one that exists is answered as it is.

    Raises:
        TooManyBoards: the store holds `boards_max` already.
    """
    rows = yield select(*_COLUMNS).from_(BOARDS).where(col("id").eq(param("id"))).build(dialect, id=board_id)
    if rows:
        return _board(rows[0])
    [[boards]] = yield select(count()).from_(BOARDS).build(dialect)
    if boards >= boards_max:
        raise TooManyBoards(f"this store holds {boards_max} leaderboards, as many as catalog_boards_max allows")
    board_key = yield from next_in(dialect, "board_key")
    yield (
        insert(BOARDS)
        .values(board_key=board_key, id=board_id, spec=_spec_text(spec), created_at=now_us, epoch=1)
        .build(dialect)
    )
    for query in _create_entries(board_key, spec):
        yield query.build(dialect)
    return Board(key=board_key, id=board_id, spec=spec, created_at_us=now_us, epoch=1)


def change_board(dialect: Dialect, *, board_id: str, wanted: BoardSpec) -> Program[Board]:
    """Add the wanted columns that are new and take over the predictor; the stored columns must be as wanted.

    Raises:
        UnknownBoard: deleted meanwhile.
        SpecConflict: the change would reinterpret or drop stored values.
    """
    board = yield from existing(dialect, board_id, lock=Lock.UPDATE)
    added = _added_columns(board.spec, wanted)
    spec = replace(board.spec, columns=board.spec.columns + added, predictor=wanted.predictor)
    if spec == board.spec:
        return board
    for index, column in enumerate(added, start=len(board.spec.columns)):
        sql_type, sortable = _sql_type(column)
        yield add_column(entries_table(board.key), physical(index), sql_type, null=True, sortable=sortable).build(
            dialect
        )
        if column.sorted:
            yield _column_index(board.key, index, column).build(dialect)
    yield (
        update(BOARDS).set(spec=_spec_text(spec)).where(col("board_key").eq(param("key"))).build(dialect, key=board.key)
    )
    return (yield from with_state(dialect, replace(board, spec=spec)))


def _added_columns(stored: BoardSpec, wanted: BoardSpec) -> tuple[ColumnSpec, ...]:
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
    board = yield from existing(dialect, board_id, lock=Lock.UPDATE)
    yield drop_table(entries_table(board.key)).build(dialect)
    for table in (BOARDS, TOTALS, CURVES, LIVE_COUNTS, DEMANDS, HIDDEN):
        yield delete(table).where(col("board_key").eq(param("key"))).build(dialect, key=board.key)
    leased = [refresh_resource(board.key, index) for index in board.sorted_indexes]
    yield (
        delete(LEASES)
        .where(col("pool").eq(REFRESH_POOL), col("resource").in_(param("leased")))
        .build(dialect, leased=leased)
    )
    return board


def reset_board(dialect: Dialect, *, board_id: str) -> Program[Board]:
    """Empty a board and keep its spec: rows, totals and curves go; post ids and fits of before are of another epoch.

    Raises:
        UnknownBoard: there is none.
    """
    board = yield from existing(dialect, board_id, lock=Lock.UPDATE)
    yield from remove_rows(dialect, board)
    yield (
        update(BOARDS)
        .set(epoch=plus(col("epoch"), 1))
        .where(col("board_key").eq(param("key")))
        .build(dialect, key=board.key)
    )
    return (yield from with_state(dialect, replace(board, epoch=board.epoch + 1)))


def remove_rows(dialect: Dialect, board: Board) -> Program[None]:
    """Empty a board's table, and drop what was counted and fitted; `with_state` has to follow."""
    yield empty(entries_table(board.key)).build(dialect)
    for table in (TOTALS, CURVES, LIVE_COUNTS, HIDDEN):
        yield delete(table).where(col("board_key").eq(param("key"))).build(dialect, key=board.key)


def state_of(board: Board) -> int:
    """A number that is another one after every reset and every column that was added."""
    return board.epoch * COLUMNS_LIMIT + len(board.spec.columns)


def with_state(dialect: Dialect, board: Board) -> Program[Board]:
    """Have other processes see, in the totals that they read anyway, that their copy of the board is an old one."""
    yield (
        insert(TOTALS)
        .values(board_key=board.key, column_index=STATE, entries=state_of(board))
        .on_conflict("board_key", "column_index")
        .do_update(entries=excluded("entries"))
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


def existing(dialect: Dialect, board_id: str, *, lock: Lock | None = None) -> Program[Board]:
    """The board of that id, its row locked where `lock` says so.

    Raises:
        UnknownBoard: there is none.
    """
    found = select(*_COLUMNS).from_(BOARDS).where(col("id").eq(param("id")))
    rows = yield (found if lock is None else found.locked(lock)).build(dialect, id=board_id)
    if not rows:
        raise UnknownBoard(f"no leaderboard {board_id!r}")
    return _board(rows[0])


def list_boards(dialect: Dialect, *, prefix: str, after: str, limit: int) -> Program[list[Board]]:
    """Boards whose id starts with `prefix`, past `after`, by id."""
    conditions = [col("id").ge(prefix), col("id").gt(after)]
    if prefix:
        conditions.append(col("id").lt(prefix + "\x7f"))  # ids are printable ASCII
    rows = yield select(*_COLUMNS).from_(BOARDS).where(*conditions).order_by(asc(col("id"))).limit(limit).build(dialect)
    return [_board(row) for row in rows]


def boards_by_key(dialect: Dialect, board_keys: list[int]) -> Program[dict[int, Board]]:
    """Those of these boards that exist, as they are now."""
    rows = yield _boards_by_key(dialect).bind(keys=board_keys)
    return {row[0]: _board(row) for row in rows}


@lru_cache
def _boards_by_key(dialect: Dialect) -> Statement:
    return select(*_COLUMNS).from_(BOARDS).where(col("board_key").in_(param("keys"))).packed().compile(dialect)


def boards_after(dialect: Dialect, board_key: int, limit: int) -> Program[list[Board]]:
    """Boards that are younger than the one of this key, oldest first."""
    rows = yield _boards_after(dialect).bind(board_key=board_key, limit=limit)
    return [_board(row) for row in rows]


@lru_cache
def _boards_after(dialect: Dialect) -> Statement:
    younger = select(*_COLUMNS).from_(BOARDS).where(col("board_key").gt(param("board_key")))
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

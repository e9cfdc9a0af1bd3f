"""The programs of the catalog of boards: create, change, empty, delete, find and list boards, and read their totals.

Each change is one short transaction.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

import msgspec
from msgspec.json import Decoder

from querybuilder import (
    Bound,
    Lock,
    advisory_lock,
    asc,
    col,
    contains_text,
    count,
    delete,
    drop_table,
    hold_table,
    insert,
    lit,
    lower_case,
    param,
    plus,
    remainder,
    rename_table,
    select,
    times,
    truncate,
    update,
)
from storage.errors import (
    FamilyBoardError,
    PeriodClosedError,
    SpecConflictError,
    SpecInvalidError,
    StoreDamagedError,
    TooManyBoardsError,
    TooManyOwnTablesError,
    UnknownBoardError,
)
from storage.records import Board, BoardSpec, ColumnSpec, FamilySpec, Season, TableSharing, by_partition
from storage.schema.creation import count_partitions
from storage.schema.sequences import take_keys
from storage.schema.tables import (
    ARCHIVE_BLOCKS,
    BOARDS,
    CURVES,
    FAMILIES,
    HIDDEN_ENTRIES,
    LIVE_COUNTS,
    REFRESH_REQUESTS,
    TOTALS,
    WORK_LEASES,
)
from storage.store import Program, Row, in_partition

from .row_tables import add_columns, columns_of, create_row_table, layout_of, scope_of
from .shared_tables import POST_IDS_KEY, find_or_create_table, note_dropped_rows, widen_table
from .totals import hold_epoch, store_states

# In the catalog, the id of a segment is the id of its board, this sign and the segment's key. No caller can name it.
SEGMENT_SIGN = "#"
# The column `segment` of the catalog: the 0-based number of a segment, and 0 for a board without segments.
WHOLE = -1  # a board that has segments
RETIRED = -1  # minus the number: a segment whose entries other segments have now. Its changes are still in the journal
PENDING = -1_000  # minus the number: a segment that a split is filling
REFRESH_WORK = "refresh"  # the kind of the work leases for refreshing a column
SPECS_KEPT_MAX = 4_096  # decoded specs in the cache; boards whose specs have the same text share one object

# The number of advisory locks that boards in shared tables have together. It bounds what a post to many boards takes of
# the locks for which PostgreSQL has room: 64 for each connection.
BOARD_LOCKS = 64
_SHARED_KEY = plus(col("board_key"), times(0, col("table_key")))  # null for a board in a table of its own
BOARD_LOCK = remainder(_SHARED_KEY, BOARD_LOCKS)  # the number of a board's advisory lock; null: it has none

Spec = TypeVar("Spec", BoardSpec, FamilySpec)
BOARD_SPECS, FAMILY_SPECS = Decoder(BoardSpec), Decoder(FamilySpec)


def refresh_resource(board_key: int, column_index: int) -> str:
    """Return the name of the resource that is leased while a column is refreshed."""
    return f"{board_key}/{column_index}"


def encode_spec(spec: BoardSpec | FamilySpec) -> str:
    return msgspec.json.encode(spec).decode()


@lru_cache(maxsize=SPECS_KEPT_MAX)
def _decode_spec(text: str, decoder: Decoder[Spec]) -> Spec:
    return decoder.decode(text)


def decode_spec(text: str, decoder: Decoder[Spec], described: str) -> Spec:
    """Return a spec of the catalog. Raise `StoreDamagedError` if it is damaged: the spec of what is `described`."""
    try:
        spec: Spec = _decode_spec(text, decoder)
    except msgspec.MsgspecError as error:
        raise StoreDamagedError(f"the catalog's row of {described} is damaged: restore a backup") from error
    return spec


def decode_board(row: Row) -> Board:
    """Make a board from a row with the columns `COLUMNS`. Raise `StoreDamagedError` if the row's spec is damaged."""
    key, board_id, text, created_at, epoch, table_key, rows_key, *times = row
    spec = decode_spec(text, BOARD_SPECS, f"the leaderboard {board_id!r}")
    return Board(key, board_id.partition(SEGMENT_SIGN)[0], spec, created_at, epoch, table_key, rows_key or 0, *times)


COLUMNS = tuple(
    col(name)
    for name in (
        *("board_key", "id", "spec", "created_at", "epoch", "table_key", "rows_key"),
        *("family_key", "closes_at", "closed_at", "archived_at", "partition", "segment_of", "segment"),
    )
)


def create_board(
    *,
    board_id: str,
    spec: BoardSpec,
    now_us: int,
    boards_max: int,
    own_tables_max: int | None = None,
    partition: int | None = None,
) -> Program[Board]:
    """Create a board, its table and its indexes in one transaction. If the board exists, return it unchanged.

    `partition`: where the board is created; None: `choose_partitions` decides. Each segment has a table of its own.

    Raises:
        SpecInvalidError: the store does not have this partition, or a board with segments can't be in one partition or
            in a shared table.
        SpecConflictError: the board exists in another partition.
        FamilyBoardError: the id belongs to a family, and only posts create the boards of a family.
        TooManyBoardsError, TooManyOwnTablesError: see `check_board_limits`.
    """
    if found := (yield from find_boards_by_id([board_id])):
        _check_existing(found[0], partition)
        return found[0]
    family_id, colon, _ = board_id.partition(":")
    if colon:
        named = select(lit(1)).from_(FAMILIES).where(col("id").eq(param("family_id")))
        if (yield named.bind(family_id=family_id)):
            raise FamilyBoardError(
                f"{board_id!r} would belong to the family {family_id!r}, whose boards are created by its posts"
            )
    shared = spec.table is TableSharing.SHARED
    if spec.segments > 1:
        check_segments(shared=shared, partition=partition)
    new = 1 if spec.segments == 1 else 1 + spec.segments
    yield from check_board_limits(new=new, own=not shared, boards_max=boards_max, own_tables_max=own_tables_max)
    places = yield from choose_partitions(partition, spec.segments)
    table_key = (yield from find_or_create_table(columns_of(spec.columns, shared=True), places[0])) if shared else None
    board_key = yield from take_keys()
    board = Board(
        board_key,
        board_id,
        spec,
        now_us,
        1,
        table_key=table_key,
        rows_key=board_key if shared else 0,
        closes_us=times_of(spec.season)["closes_at"],
        partition=places[0],
    )
    if spec.segments > 1:
        return (yield from create_segments(board, places))
    yield from _insert_board(board, due_us=board.closes_us)
    if not shared:
        yield from in_partition(board.partition, create_row_table(layout_of(board)))
    yield from store_states([board])
    return board


def check_segments(*, shared: bool, partition: int | None) -> None:
    """Raise `SpecInvalidError` if a board can't have segments."""
    if shared:
        raise SpecInvalidError("a leaderboard in a shared table has one segment", pointer="/segments")
    if partition is not None:
        raise SpecInvalidError("segments are spread over all partitions", pointer="/partition")


def create_segments(board: Board, places: Sequence[int]) -> Program[Board]:
    """Store a board, and create its segments in these partitions. Return the board with its segments."""
    board = replace(board, segment=WHOLE)
    yield from _insert_board(board, due_us=None)  # the jobs close and archive each segment
    segments = []
    for number, place in enumerate(places):
        segments.append((yield from insert_segment(board, number, place, due_us=board.closes_us)))
    yield from store_states(segments)
    return replace(board, segments=tuple(segments))


def insert_segment(board: Board, number: int, partition: int, *, due_us: int | None) -> Program[Board]:
    """Store a segment of a board in the catalog, create its table, and return it. The caller stores its state."""
    key, spec = (yield from take_keys()), replace(board.spec, segments=1)
    segment = replace(
        board, key=key, spec=spec, partition=partition, segment_of=board.key, segment=number, segments=(), rows_key=0
    )
    yield from _insert_board(segment, due_us=due_us)
    yield from in_partition(partition, create_row_table(layout_of(segment)))
    return segment


def _insert_board(board: Board, *, due_us: int | None) -> Program[None]:
    yield (
        insert(BOARDS)
        .values(
            board_key=board.key,
            id=board.id if board.segment_of is None else f"{board.id}{SEGMENT_SIGN}{board.key}",
            spec=encode_spec(board.spec),
            created_at=board.created_at_us,
            epoch=board.epoch,
            table_key=board.table_key,
            rows_key=board.rows_key,
            due_at=due_us,
            partition=board.partition,
            segment_of=board.segment_of,
            segment=board.segment,
            **times_of(board.spec.season),
        )
        .bind()
    )


def _check_existing(board: Board, partition: int | None) -> None:
    if board.family_key is not None:
        raise FamilyBoardError(f"{board.id!r} belongs to a family: it changes only with the family")
    if partition not in (None, board.partition):
        detail = f"the leaderboard is in partition {board.partition}; `rankcurve partition move` moves leaderboards"
        raise SpecConflictError(detail, pointer="/partition")


def choose_partitions(wanted: int | None, segments: int = 1) -> Program[list[int]]:
    """Return the partitions of a new board's segments, or of a board or family without: `wanted` is the only one.

    Otherwise the segments are spread evenly, beginning with the partition that has the fewest boards and families.

    Raises:
        SpecInvalidError: the store does not have the wanted partition.
    """
    partitions = yield from count_partitions()
    if wanted is not None:
        if not 0 <= wanted < partitions:
            raise SpecInvalidError(f"the store has the partitions 0 to {partitions - 1}", pointer="/partition")
        return [wanted]
    if partitions == 1:
        return [0] * segments
    used = dict.fromkeys(range(partitions), 0)
    for counted in (_BOARDS_BY_PARTITION, _FAMILIES_BY_PARTITION):
        for partition, number in (yield counted.bind()):
            used[partition] += number
    fewest_first = sorted(used, key=lambda partition: used[partition])
    return [fewest_first[number % partitions] for number in range(segments)]


_alone = select(col("partition"), count()).from_(BOARDS).where(col("family_key").is_null())
_BOARDS_BY_PARTITION = _alone.group_by(col("partition")).packed().prepared()
_FAMILIES_BY_PARTITION = (
    select(col("partition"), count()).from_(FAMILIES).group_by(col("partition")).packed().prepared()
)


def check_board_limits(*, new: int, own: bool, boards_max: int, own_tables_max: int | None) -> Program[None]:
    """Check that the store may hold `new` more boards. Archived boards have no rows and are not counted.

    `own` says whether each new board gets a table of its own. On SQLite each new table makes every other connection
    parse the whole schema again at its next statement. The more tables there are, the longer all readers have to wait:
    7 ms with 1,000 tables, 95 ms with 6,000, 235 ms with 10,000. A board in a shared table needs no new table if there
    is already a shared table for its columns. `own_tables_max` is None for stores whose connections do not do that.

    Raises:
        TooManyBoardsError: the store would hold more than `boards_max` boards.
        TooManyOwnTablesError: more than `own_tables_max` boards would have a table of their own.
    """
    [[boards]] = yield _COUNT_BOARDS.bind()
    if boards + new > boards_max:
        raise TooManyBoardsError(f"this store holds {boards} leaderboards; catalog_boards_max is {boards_max}")
    if not own or own_tables_max is None:
        return
    [[own_tables]] = yield _COUNT_OWN_TABLES.bind()
    if own_tables + new > own_tables_max:
        raise TooManyOwnTablesError(
            f"this store holds {own_tables} leaderboards with tables of their own, and each new one is slower; "
            f'own_tables_max is {own_tables_max}. Use "table": "shared"',
            pointer="/table",
        )


_counted = select(count()).from_(BOARDS).where(col("archived_at").is_null())
_COUNT_BOARDS = _counted.prepared()
_COUNT_OWN_TABLES = _counted.where(col("table_key").is_null()).prepared()


def change_board(*, board_id: str, wanted: BoardSpec, now_us: int = 0) -> Program[Board]:
    """Add the new columns of `wanted` to a board, and give the board the predictor and the season of `wanted`.

    Everything else in `wanted` must be the same as in the stored spec.

    Raises:
        UnknownBoardError, FamilyBoardError: see `lock_standalone_board`.
        SpecConflictError: the change would reinterpret or drop stored values; or `check_times` refuses the season; or
            the board is closed, and `wanted` has new columns.
    """
    board = yield from lock_standalone_board(board_id, lock=Lock.UPDATE)
    added = find_added_columns(board.spec, wanted)
    check_times(board, wanted.season, now_us=now_us)
    columns = board.spec.columns + added
    spec = replace(board.spec, columns=columns, predictor=wanted.predictor, season=wanted.season)
    if spec == board.spec:
        return board
    if added and board.has_closed_part:
        raise SpecConflictError("the leaderboard is closed, so no column can be added", pointer="/columns")
    closes_us = times_of(spec.season)["closes_at"]
    changed = replace(board, spec=spec, closes_us=closes_us)
    if board.segments:
        of_segment = replace(spec, segments=1)
        segments = [replace(each, spec=of_segment, closes_us=closes_us) for each in board.segments]
        changed = replace(changed, segments=tuple(segments))
        yield from store_columns(board, spec=encode_spec(spec), **times_of(spec.season))
    parts = []
    for part in changed.parts:
        yield from _change_part(part, len(board.spec.columns))
        begins = board.spec.season is None and spec.season is not None and part.table_key is None
        parts.append((yield from _rename_own_table(part)) if begins else part)
    changed = replace(changed, segments=tuple(parts)) if changed.segments else parts[0]
    yield from store_states(changed.parts)
    return changed


def _rename_own_table(board: Board) -> Program[Board]:
    """Rename the table of a board, so that every process reads the board from the catalog before its next post."""
    renamed = replace(board, rows_key=board.rows_key + 1)
    yield rename_table(layout_of(board).table, layout_of(renamed).table).bind().at(board.partition)
    yield from store_columns(board, rows_key=renamed.rows_key)
    return renamed


def _change_part(changed: Board, columns_before: int) -> Program[None]:
    yield from store_times(changed)
    layout = layout_of(changed)
    new = layout.columns[columns_before:]
    widened = add_columns(layout, new) if changed.table_key is None else widen_table(changed.table_key, new)
    yield from in_partition(changed.partition, widened)
    yield from store_columns(changed, spec=encode_spec(changed.spec))


def store_columns(board: Board, **values: int | str | None) -> Program[None]:
    """Store values in columns of the catalog's row of a board."""
    changed = update(BOARDS).set(**{name: param(name) for name in values})
    yield changed.where(col("board_key").eq(param("key"))).bind(key=board.key, **values)


def times_of(season: Season | None) -> dict[str, int | None]:
    """Return the times of a season, by the names of their columns in the catalog."""
    if season is None:
        return {"opens_at": None, "ends_at": None, "closes_at": None}
    return {"opens_at": season.opens_us, "ends_at": season.ends_us, "closes_at": season.closes_us}


def check_times(board: Board, wanted: Season | None, *, now_us: int) -> None:
    """Raise `SpecConflictError` if the times of a board outside a family may not become those of `wanted`.

    A time may change only if every earlier decision to take or refuse a post stays right. Once a board has opened, its
    opening time stays. A closed board stays closed. An open board gets an end, or another one, only in the future.
    """
    stored = board.spec.season
    if wanted == stored:
        return
    if wanted is None:
        raise SpecConflictError("a leaderboard's times can't be removed", pointer="/closes_at")
    if stored is None:
        stored = Season(None, None, wanted.grace_seconds, None)
    if wanted.opens_us != stored.opens_us:
        for opens_us in (stored.opens_us, wanted.opens_us):
            if opens_us is None or opens_us <= now_us:
                detail = "opens_at can change only before the leaderboard opens, and only to a later time than now"
                raise SpecConflictError(detail, pointer="/opens_at")
    if (wanted.ends_us, wanted.grace_seconds) == (stored.ends_us, stored.grace_seconds):
        return
    if board.has_closed_part or _is_over(stored.closes_us, now_us):
        raise SpecConflictError("the leaderboard is closed", pointer="/closes_at")
    if wanted.ends_us != stored.ends_us and _is_over(wanted.ends_us, now_us):
        raise SpecConflictError(
            "the new end has passed: posts after it may already have been counted", pointer="/closes_at"
        )
    if _is_over(wanted.closes_us, now_us):
        detail = "the new time of grace has passed: posts after it may already have been counted"
        raise SpecConflictError(detail, pointer="/grace_seconds")


def _is_over(time_us: int | None, now_us: int) -> bool:
    return time_us is not None and time_us < now_us


def store_times(board: Board) -> Program[None]:
    """Store a board's times in the catalog, and the time at which the closing job next has to check the board.

    For an open board this is its closing time, or None if it never closes. For a closed board it is 0, which means now.
    """
    times = times_of(board.spec.season)
    yield (
        update(BOARDS)
        .set(due_at=param("due_at"), **{name: param(name) for name in times})
        .where(col("board_key").eq(param("key")), col("archived_at").is_null())
        .bind(key=board.key, due_at=board.closes_us if board.closed_us is None else 0, **times)
    )


def note_archived_segment(segment: Board, now_us: int) -> Program[None]:
    """After a segment was archived, mark its board as archived too if no segment has rows any more."""
    if segment.segment_of is None:
        return
    its_board, rows_left = col("board_key").eq(param("key")), col("archived_at").is_null()
    # Segments that are archived at the same time wait for each other here.
    yield select(col("board_key")).from_(BOARDS).where(its_board).locked(Lock.UPDATE).bind(key=segment.segment_of)
    among = col("segment_of").eq(param("key")), col("segment").ge(0), rows_left
    [[left]] = yield select(count()).from_(BOARDS).where(*among).bind(key=segment.segment_of)
    if not left:
        yield (
            update(BOARDS).set(archived_at=param("now_us")).where(its_board).bind(key=segment.segment_of, now_us=now_us)
        )


def find_added_columns(stored: BoardSpec, wanted: BoardSpec) -> tuple[ColumnSpec, ...]:
    """Return the new columns of `wanted`. Raise `SpecConflictError` if it would reinterpret or drop stored values."""
    if wanted.segments != stored.segments:
        detail = f"segments is {stored.segments}; `rankcurve board split` changes it"
        raise SpecConflictError(detail, pointer="/segments")
    if wanted.table is not stored.table:
        raise SpecConflictError(f"table is {stored.table.value!r} and can't be changed", pointer="/table")
    if wanted.ties is not stored.ties:
        raise SpecConflictError(
            f"ties is {stored.ties.value!r} and can't be changed: it is part of every stored value", pointer="/ties"
        )
    by_name = {column.name: (index, column) for index, column in enumerate(wanted.columns)}
    for column in stored.columns:
        if column.name not in by_name:
            raise SpecConflictError(f"column {column.name!r} exists and can't be removed", pointer="/columns")
        index, found = by_name[column.name]
        if found != column:
            raise SpecConflictError(
                f"column {column.name!r} exists with other attributes, and its stored values can't be reinterpreted",
                pointer=f"/columns/{index}",
            )
    names = {column.name for column in stored.columns}
    return tuple(column for column in wanted.columns if column.name not in names)


def delete_board(*, board_id: str) -> Program[Board]:
    """Delete a board with its rows, totals, curves and archive. Return it with all segments that it has ever had.

    The post ids of the board become void, because no later board gets the same key.

    Raises:
        UnknownBoardError, FamilyBoardError: see `lock_standalone_board`.
    """
    board = yield from lock_standalone_board(board_id, lock=Lock.UPDATE, queued=True)
    for partition, parts in by_partition(board.parts):
        for part in parts:
            yield from in_partition(partition, _delete_board(part))
    gone = yield from find_gone_segments(board)
    for each in gone:
        yield drop_table(layout_of(each).table, if_exists=True).bind().at(each.partition)
        yield _delete_of_board(BOARDS, each)
    if not board.segments:
        return board
    yield _delete_of_board(BOARDS, board)
    retired = [each for each in gone if each.segment > PENDING]
    undivided = replace(board, segments=(), segment_of=board.key, segment=RETIRED)  # as it was before its first split
    return replace(board, segments=(*board.segments, *retired, undivided))


def find_gone_segments(board: Board) -> Program[list[Board]]:
    """Return the segments of a board that were retired, or that a split has begun to fill."""
    among = col("segment_of").eq(board.key), col("segment").lt(0)
    return [decode_board(row) for row in (yield select(*COLUMNS).from_(BOARDS).where(*among).bind())]


def _delete_board(board: Board) -> Program[None]:
    yield from clear_partition(board)
    for table in (BOARDS, REFRESH_REQUESTS):
        yield _delete_of_board(table, board)


def clear_partition(board: Board) -> Program[None]:
    """Permanently remove everything of a board except its log. Run this program for the partition to clear."""
    if board.archived_us is None:
        yield from _drop_rows(board)
    for table in (TOTALS, ARCHIVE_BLOCKS):
        yield _delete_of_board(table, board)
    yield from note_dropped_rows(POST_IDS_KEY, board.key)


def _delete_of_board(table: str, board: Board) -> Bound:
    return delete(table).where(col("board_key").eq(param("key"))).bind(key=board.key)


def drop_rows(board: Board) -> Program[None]:
    """Permanently remove a board's rows, curves, live counts, hidden entries, refresh requests and refresh leases.

    Run this program for the board's partition.
    If the rows are in a shared table, only note that they are dropped. `sweep_rows` deletes them later.
    """
    yield from _drop_rows(board)
    yield _delete_of_board(REFRESH_REQUESTS, board)


def _drop_rows(board: Board) -> Program[None]:
    yield from hold_epoch(board.key, lock=Lock.UPDATE)
    if board.table_key is not None:
        yield from note_dropped_rows(board.table_key, board.rows_key)
    else:
        yield drop_table(layout_of(board).table).bind()
    for table in (CURVES, LIVE_COUNTS, HIDDEN_ENTRIES):
        yield _delete_of_board(table, board)
    yield from delete_refresh_leases([board])


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
    if board.has_closed_part:
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
    if board.has_movable_rows and board.table_key is not None:
        yield from note_dropped_rows(board.table_key, board.rows_key)
        emptied = replace(board, rows_key=(yield from take_keys()))
        yield from store_columns(board, rows_key=emptied.rows_key)
    elif board.table_key is not None:  # a family's board: posts rely on `rows_key`, so the key has to stay the same
        yield hold_table(layout.table).bind()
        yield delete(layout.table).where(*layout.scope()).bind(**scope_of(board))
    else:
        yield truncate(layout.table).bind()
    for table in (TOTALS, CURVES, LIVE_COUNTS, HIDDEN_ENTRIES):
        yield _delete_of_board(table, board)
    return emptied


def lock_standalone_board(board_id: str, *, lock: Lock, queued: bool = False) -> Program[Board]:
    """Lock the catalog's row of a board outside a family, and return the board. `queued`: see `find_board`.

    Raises:
        UnknownBoardError: no board has that id.
        FamilyBoardError: the board belongs to a family, and changes only with the family.
    """
    board = yield from find_board(board_id, lock=lock, queued=queued)
    if board.family_key is not None:
        raise FamilyBoardError(f"{board_id!r} belongs to a family: it changes only with the family")
    return board


def find_board(board_id: str, *, lock: Lock | None = None, queued: bool = False) -> Program[Board]:
    """Return the board with that id, or raise `UnknownBoardError`. With `lock`, lock the catalog's row of the board.

    `queued`: let later posts to a board in a shared table wait. Otherwise posts that overlap could share the row for
    ever. Only short transactions may do that, because boards have advisory locks in common.
    """
    outputs = (*COLUMNS, advisory_lock(BOARD_LOCK, shared=False)) if queued else COLUMNS
    found = select(*outputs).from_(BOARDS).where(col("id").eq(param("id")), col("segment_of").is_null())
    rows = yield found.locked(lock).bind(id=board_id)
    if not rows:
        raise UnknownBoardError(f"no leaderboard {board_id!r}")
    [board] = yield from _with_segments([decode_board(rows[0][: len(COLUMNS)])], lock)
    return board


def find_same_board(board: Board, *, lock: Lock, queued: bool = False) -> Program[Board]:
    """Lock and return a board, or a segment, as the catalog has it now. `queued`: see `find_board`.

    Raises:
        UnknownBoardError: the board was deleted.
    """
    if board.segment_of is None:
        return (yield from find_board(board.id, lock=lock, queued=queued))
    rows = yield select(*COLUMNS).from_(BOARDS).where(col("board_key").eq(board.key)).locked(lock).bind()
    if not rows:
        raise UnknownBoardError(f"no leaderboard {board.id!r}")
    return decode_board(rows[0])


def _with_segments(boards: list[Board], lock: Lock | None = None) -> Program[list[Board]]:
    """Return boards together with their segments. A board is closed, or archived, once all its segments are."""
    keys = [board.key for board in boards if board.segment == WHOLE and board.segment_of is None]
    if not keys:
        return boards
    segments: dict[int, list[Board]] = {key: [] for key in keys}
    found = select(*COLUMNS).from_(BOARDS).where(col("segment_of").in_(param("keys")), col("segment").ge(0))
    query = found.order_by(asc(col("segment")))
    for row in (yield query.locked(lock).bind(keys=keys)):
        segment = decode_board(row)
        segments[segment.segment_of or 0].append(segment)
    return [join_segments(board, segments[board.key]) if board.key in segments else board for board in boards]


def find_keys_ever(board: Board) -> Program[list[int]]:
    """Return the keys under which the journal may have changes of a board: of its segments now, and of earlier ones."""
    rows = yield select(col("board_key")).from_(BOARDS).where(col("segment_of").eq(board.key)).bind()
    return [board.key, *(key for (key,) in rows)]


def join_segments(board: Board, segments: Sequence[Board]) -> Board:
    """Return a board with these segments."""
    closed = [segment.closed_us for segment in segments]
    archived = [segment.archived_us for segment in segments]
    return replace(
        board,
        segments=tuple(segments),
        closed_us=None if None in closed else max(closed, default=None),  # type: ignore[type-var]
        archived_us=None if None in archived else max(archived, default=None),  # type: ignore[type-var]
    )


def list_boards(
    *, prefix: str, after: str, limit: int, archived: bool = True, contains: str = "", families: bool = True
) -> Program[list[Board]]:
    """Return boards whose id starts with `prefix` and is greater than `after`, ordered by id.

    `archived` says whether the result includes archived boards, and `families` whether it includes boards of families.
    With `contains`, each id contains this text, in upper or lower case. Then the database reads every id.
    """
    conditions = [col("id").ge(prefix), col("id").gt(after), col("segment_of").is_null()]
    if contains:
        conditions.append(contains_text(lower_case(col("id")), contains.lower()))
    if not families:
        conditions.append(col("family_key").is_null())
    if not archived:
        conditions.append(col("archived_at").is_null())
    if prefix:
        conditions.append(col("id").lt(prefix + "\x7f"))  # ids are printable ASCII, which ends below \x7f
    rows = yield select(*COLUMNS).from_(BOARDS).where(*conditions).order_by(asc(col("id"))).limit(limit).bind()
    return (yield from _with_segments([decode_board(row) for row in rows]))


def find_boards_by_id(board_ids: list[str]) -> Program[list[Board]]:
    """Return the boards with these ids, as they are stored now. Leave out ids that no board has."""
    rows = yield _BOARDS_BY_ID.bind(ids=board_ids)
    return (yield from _with_segments([decode_board(row) for row in rows]))


_BOARDS_BY_ID = (
    select(*COLUMNS).from_(BOARDS).where(col("id").in_(param("ids")), col("segment_of").is_null()).packed().prepared()
)


def find_boards_by_key(board_keys: list[int], *, held: bool = False) -> Program[dict[int, Board]]:
    """Return the boards with these keys, by key, as they are stored now. Leave out keys that no board has.

    A key may be that of a segment. Boards are returned without their segments.

    `held`: until the transaction ends, nobody changes or moves these boards.
    """
    rows = yield (_HELD_BY_KEY if held else _BOARDS_BY_KEY).bind(keys=board_keys)
    return {row[0]: decode_board(row) for row in rows}


def find_present_boards(board_keys: list[int]) -> Program[dict[int, Board]]:
    """Return, by key, the boards that take the posts to boards or segments with these keys.

    For a segment that was retired, and for a board that was split, this is the board with its present segments.
    """
    found = yield from find_boards_by_key(board_keys)
    split = {key: board.segment_of or key for key, board in found.items() if board.segment < 0}
    if split:
        boards = yield from find_boards_by_key(sorted(set(split.values())))
        whole = {board.key: board for board in (yield from _with_segments([*boards.values()]))}
        found |= {key: whole[split[key]] for key in split}
    return found


_by_key = select(*COLUMNS).from_(BOARDS).where(col("board_key").in_(param("keys"))).packed()
_BOARDS_BY_KEY = _by_key.prepared()
_HELD_BY_KEY = _by_key.locked(Lock.SHARE, asc(col("board_key"))).prepared()


def list_boards_after(board_key: int, limit: int) -> Program[list[Board]]:
    """Return boards that were created after the board with this key, oldest first."""
    rows = yield _BOARDS_AFTER.bind(board_key=board_key, limit=limit)
    return (yield from _with_segments([decode_board(row) for row in rows]))


_BOARDS_AFTER = (
    select(*COLUMNS)
    .from_(BOARDS)
    .where(col("board_key").gt(param("board_key")), col("segment_of").is_null())
    .order_by(asc(col("board_key")))
    .limit(param("limit"))
    .packed()
    .prepared()
)

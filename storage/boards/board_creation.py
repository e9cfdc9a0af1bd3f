"""Creates boards and their segments, within the limits of the store.

create_board ──┬── a row in the catalog, a table or a key in a shared table ──> board
               └── a row in the catalog, and for each segment the same as for a board ──> board with segments
"""

from collections.abc import Sequence
from dataclasses import replace

from querybuilder import col, count, insert, lit, param, select
from storage.errors import (
    FamilyBoardError,
    SpecConflictError,
    SpecInvalidError,
    TooManyBoardsError,
    TooManyOwnTablesError,
)
from storage.records import Board, BoardSpec, TableSharing
from storage.schema.creation import count_partitions
from storage.schema.sequences import take_keys
from storage.schema.tables import BOARDS, FAMILIES
from storage.store import Program, in_partition

from .boards import SEGMENT_SIGN, WHOLE, encode_spec, find_boards_by_id, times_of
from .row_tables import columns_of, create_row_table, layout_of
from .shared_tables import find_or_create_table
from .totals import store_states


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
        ends_us=times_of(spec.season)["ends_at"],
        partition=places[0],
    )
    if spec.segments > 1:
        return (yield from _create_segments(board, places))
    yield from _insert_board(board)
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


def _create_segments(board: Board, places: Sequence[int]) -> Program[Board]:
    """Store a board, and create its segments in these partitions. Return the board with its segments."""
    board = replace(board, segment=WHOLE)
    yield from _insert_board(board)
    segments = []
    for number, place in enumerate(places):
        segments.append((yield from insert_segment(board, number, place)))
    yield from store_states(segments)
    return replace(board, segments=tuple(segments))


def insert_segment(board: Board, number: int, partition: int) -> Program[Board]:
    """Store a segment of a board in the catalog, create its table, and return it. The caller stores its state."""
    key, spec = (yield from take_keys()), replace(board.spec, segments=1)
    segment = replace(
        board, key=key, spec=spec, partition=partition, segment_of=board.key, segment=number, segments=(), rows_key=0
    )
    yield from _insert_board(segment)
    yield from in_partition(partition, create_row_table(layout_of(segment)))
    return segment


def _insert_board(board: Board) -> Program[None]:
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
            due_at=board.gate.closes_us if board.segment_of is None else None,  # segments close with their board
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

"""Creates boards and their segments within the store's limits, and chooses partitions for them.

create_board ──┬── a row in the catalog, and a table or a key in a shared table ──> board
               └── a row in the catalog, and for each segment another row and a table ──> board with segments
"""

from collections.abc import Collection
from dataclasses import replace

from querybuilder import col, count, insert, lit, param, select
from storage.errors import (
    CatalogFullError,
    FamilyBoardError,
    OwnTablesFullError,
    SpecConflictError,
    SpecInvalidError,
)
from storage.leaves.catalog_rows import RowKind, encode_spec, replace_times, times_of
from storage.leaves.row_tables import columns_of, create_row_table, layout_of
from storage.leaves.totals import store_gates
from storage.log.bundles import ChangeKind
from storage.log.change_log import BoardEvent, log_board_events
from storage.records import SEGMENT_SIGN, Board, BoardSpec, Gate, Leaf, Place, TableSharing
from storage.schema.creation import count_partitions
from storage.schema.sequences import take_keys
from storage.schema.tables import BOARDS, FAMILIES
from storage.store import Program, in_partition

from .boards import find_boards_by_id
from .shared_tables import find_or_create_table, find_table


def create_board(
    *,
    board_id: str,
    spec: BoardSpec,
    now_us: int,
    boards_max: int,
    own_tables_max: int | None = None,
    partition: int | None = None,
    away: Collection[int] = (),
    spare: bool = False,
) -> Program[Board]:
    """Create a board, its table and its indexes in one transaction. If the board exists, return it unchanged.

    `partition` is the partition for the board. If it is None, `choose_partitions` chooses one, or one for each segment.

    Citus creates no tables while a node is unreachable. If partitions are `away`, a board of one segment therefore goes
    into a shared table, if there is one with its columns. With `spare`, such a shared table is created along with a
    board's own table.

    Raises:
        SpecInvalidError: the store does not have this partition; or the board has segments, but `partition` is set or
            the spec asks for a shared table.
        SpecConflictError: the board exists in another partition.
        FamilyBoardError: the id belongs to a family, and only posts create the boards of a family.
        CatalogFullError, OwnTablesFullError: see `check_board_limits`.
    """
    if found := (yield from find_boards_by_id([board_id])):
        _check_existing(found[0], partition)
        return found[0]
    yield from _check_id(board_id)
    shared = spec.table is TableSharing.SHARED
    if spec.segments > 1:
        check_segments(shared=shared, partition=partition)
    new = 1 if spec.segments == 1 else 1 + spec.segments
    yield from check_board_limits(new=new, own=not shared, boards_max=boards_max, own_tables_max=own_tables_max)
    places = yield from choose_partitions(partition, spec.segments, away)
    table_key = yield from _choose_table(spec, places[0], none_made=bool(away), spare=spare)
    board_key = yield from take_keys()
    gate = replace_times(Gate(), spec.season)
    place = Place(places[0], table_key, 0 if table_key is None else board_key)
    leaf = Leaf(board_key, board_id, spec, place, gate)
    board = Board(board_key, board_id, spec, now_us, (leaf,), home=places[0])
    if spec.segments > 1:
        yield from _insert_row(board, leaf, RowKind.SPREAD)
        leaves = []
        for number, its_partition in enumerate(places):
            leaves.append((yield from insert_segment(board, number, its_partition, RowKind.SEGMENT)))
        board = replace(board, leaves=tuple(leaves))
    else:
        yield from _insert_row(board, leaf, RowKind.BOARD)
        if table_key is None:
            yield from in_partition(leaf.partition, create_row_table(layout_of(leaf)))
    yield from store_gates(board.leaves)
    yield from log_board_events([BoardEvent(ChangeKind.CREATED, board_id, board_key, board.home)], now_us=now_us)
    return board


def _check_id(board_id: str) -> Program[None]:
    family_id, colon, _ = board_id.partition(":")
    named = select(lit(1)).from_(FAMILIES).where(col("id").eq(param("family_id")))
    if colon and (yield named.bind(family_id=family_id)):
        detail = f"{board_id!r} would belong to the family {family_id!r}, whose boards are created by its posts"
        raise FamilyBoardError(detail)


def _choose_table(spec: BoardSpec, partition: int, *, none_made: bool, spare: bool) -> Program[int | None]:
    """Choose the key of a new board's shared table, or return None if the board gets tables of its own.

    `none_made` means that no table can be created now. With `spare`, also create a shared table for later boards with
    the same columns.
    """
    if spec.segments > 1:
        return None
    columns = columns_of(spec.columns, shared=True)
    if spec.table is TableSharing.SHARED:
        return (yield from find_or_create_table(columns, partition))
    if none_made:
        return (yield from find_table(columns, partition))
    if spare:
        yield from find_or_create_table(columns, partition)
    return None


def check_segments(*, shared: bool, partition: int | None) -> None:
    """Raise `SpecInvalidError` if a board with segments is meant for a shared table or for a particular partition."""
    if shared:
        raise SpecInvalidError("a leaderboard in a shared table has one segment", pointer="/segments")
    if partition is not None:
        raise SpecInvalidError("segments are spread over all partitions", pointer="/partition")


def insert_segment(board: Board, number: int, partition: int, kind: RowKind) -> Program[Leaf]:
    """Create a board's segment with its catalog row and its table. The caller has to call `store_gates` afterwards."""
    spec = replace(board.spec, segments=1)
    whole = None if spec.entry is None else (board.home, board.key)
    leaf = Leaf((yield from take_keys()), board.id, spec, Place(partition), board.gate, segment=number, whole=whole)
    yield from _insert_row(board, leaf, kind)
    yield from in_partition(partition, create_row_table(layout_of(leaf)))
    return leaf


def _insert_row(board: Board, leaf: Leaf, kind: RowKind) -> Program[None]:
    is_segment = leaf.key != board.key
    yield (
        insert(BOARDS)
        .values(
            board_key=leaf.key,
            id=f"{board.id}{SEGMENT_SIGN}{leaf.key}" if is_segment else board.id,
            spec=encode_spec(leaf.spec),
            created_at=board.created_at_us,
            epoch=leaf.epoch,
            table_key=leaf.table_key,
            rows_key=leaf.rows_key,
            due_at=None if is_segment else leaf.gate.closes_us,  # segments close with their board
            stage=0,
            partition=leaf.partition,
            segment_of=board.key if is_segment else None,
            segment=leaf.segment,
            kind=kind,
            reset_at=leaf.gate.reset_us,
            **times_of(leaf.spec.season),
        )
        .bind()
    )


def _check_existing(board: Board, partition: int | None) -> None:
    if board.family_key is not None:
        raise FamilyBoardError(f"{board.id!r} belongs to a family: it changes only with the family")
    if partition not in (None, board.home):
        detail = f"the leaderboard is in partition {board.home}; `rankcurve partition move` moves leaderboards"
        raise SpecConflictError(detail, pointer="/partition")


def choose_partitions(wanted: int | None, segments: int = 1, away: Collection[int] = ()) -> Program[list[int]]:
    """Choose a partition for each segment of a new board, or one partition for a family or a board without segments.

    If `wanted` is a partition, return only that one. Otherwise spread the segments evenly over all partitions, starting
    with the one that has the fewest boards and families. A single segment goes to one in `away` only if all are.

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
    fewest_first = sorted(used, key=lambda partition: (segments == 1 and partition in away, used[partition]))
    return [fewest_first[number % partitions] for number in range(segments)]


_alone = select(col("partition"), count()).from_(BOARDS).where(col("family_key").is_null())
_BOARDS_BY_PARTITION = _alone.group_by(col("partition")).packed().prepared()
_FAMILIES_BY_PARTITION = (
    select(col("partition"), count()).from_(FAMILIES).group_by(col("partition")).packed().prepared()
)


def check_board_limits(*, new: int, own: bool, boards_max: int, own_tables_max: int | None) -> Program[None]:
    """Check that the store may hold `new` more boards. Archived boards have no rows and are not counted.

    `own` says whether each new board gets a table of its own. On SQLite, each new table makes every other connection
    parse the whole schema again at its next statement. The more tables there are, the longer all readers have to wait:
    7 ms with 1,000 tables, 95 ms with 6,000, 235 ms with 10,000. A board in a shared table needs no new table if there
    is already a shared table with its columns. On PostgreSQL, `own_tables_max` is None, which means no limit.

    Raises:
        CatalogFullError: the store would hold more than `boards_max` boards.
        OwnTablesFullError: more than `own_tables_max` boards would have a table of their own.
    """
    [[boards]] = yield _COUNT_BOARDS.bind()
    if boards + new > boards_max:
        raise CatalogFullError(f"this store holds {boards} leaderboards; catalog_boards_max is {boards_max}")
    if not own or own_tables_max is None:
        return
    [[own_tables]] = yield _COUNT_OWN_TABLES.bind()
    if own_tables + new > own_tables_max:
        raise OwnTablesFullError(
            f"this store holds {own_tables} leaderboards with tables of their own, and each new one is slower; "
            f'own_tables_max is {own_tables_max}. Use "table": "shared"',
            pointer="/table",
        )


_counted = select(count()).from_(BOARDS).where(col("archived_at").is_null())
_COUNT_BOARDS = _counted.prepared()
_COUNT_OWN_TABLES = _counted.where(col("table_key").is_null()).prepared()

"""Finds, locks and lists boards in the catalog, and reads the state that a list of boards shows for each of them."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from querybuilder import Bound, Lock, asc, col, contains_text, lower_case, param
from storage.errors import FamilyBoardError, UnknownBoardError
from storage.leaves.catalog_rows import (
    CATALOG_ROWS,
    CatalogRow,
    RowKind,
    find_families_by_key,
    find_rows_by_key,
    read_rows,
)
from storage.leaves.entrants import count_owners
from storage.leaves.gates import shut_out_posts
from storage.leaves.totals import ALL_ENTRIES, CHANGES, find_totals_of
from storage.log.change_log import change_log
from storage.records import Board, Leaf
from storage.store import Program, in_partition

REFRESH_WORK = "refresh"  # the kind of the work leases for refreshing a column


def refresh_resource(leaf_key: int, column_index: int) -> str:
    return f"{leaf_key}/{column_index}"


_WHOLE_BOARDS = CATALOG_ROWS.where(col("segment_of").is_null())


def read_boards(query: Bound, lock: Lock | None = None) -> Program[list[Board]]:
    """Read the boards whose catalog rows a query finds. With `lock`, also lock the rows of their segments."""
    return (yield from make_boards((yield from read_rows(query)), lock))


def lock_standalone_board(board_id: str, *, lock: Lock, queued: bool = False) -> Program[Board]:
    """Lock the catalog row of a board outside a family, and return the board. `find_board` explains `queued`.

    Raises:
        UnknownBoardError: no board has that id.
        FamilyBoardError: the board belongs to a family, and changes only with the family.
    """
    board = yield from find_board(board_id, lock=lock, queued=queued)
    if board.family_key is not None:
        raise FamilyBoardError(f"{board_id!r} belongs to a family: it changes only with the family")
    return board


def find_board(board_id: str, *, lock: Lock | None = None, queued: bool = False) -> Program[Board]:
    """Find the board with that id, or raise `UnknownBoardError`. With `lock`, lock the board's row in the catalog.

    With `Lock.UPDATE`, also wait for running posts to the board and keep later ones waiting, see `shut_out_posts`. Use
    `queued` only in short transactions, because posts to some other boards wait for the same advisory lock.
    """
    found = yield from read_boards(_WHOLE_BOARDS.where(col("id").eq(param("id"))).locked(lock).bind(id=board_id), lock)
    if not found:
        raise UnknownBoardError(f"no leaderboard {board_id!r}")
    if lock is Lock.UPDATE:
        yield from shut_out_posts(found[0], queued=queued)
    return found[0]


def find_same_board(board: Board, *, lock: Lock) -> Program[Board]:
    """Lock a board's row in the catalog, as `find_board` does, and return the board as it is stored now.

    Raises:
        UnknownBoardError: the board was deleted.
    """
    query = CATALOG_ROWS.where(col("board_key").eq(param("key"))).locked(lock).bind(key=board.key)
    found = yield from read_boards(query, lock)
    if not found:
        raise UnknownBoardError(f"no leaderboard {board.id!r}")
    if lock is Lock.UPDATE:
        yield from shut_out_posts(found[0], queued=False)
    return found[0]


def make_boards(rows: Sequence[CatalogRow], lock: Lock | None = None) -> Program[list[Board]]:
    """Build a board from each catalog row, in the order of `rows`, and read its segments unless it is archived."""
    segments: dict[int | None, list[Leaf]] = {row.leaf.key: [] for row in rows if row.kind is RowKind.SPREAD}
    if segments:
        query = CATALOG_ROWS.where(col("segment_of").in_(param("keys")), col("kind").eq(RowKind.SEGMENT))
        query = query.order_by(asc(col("segment")))
        for row in (yield from read_rows(query.locked(lock).bind(keys=[*segments]))):
            segments[row.segment_of].append(row.leaf)
    return [row.make_board(tuple(segments.get(row.leaf.key, ()))) for row in rows]


def find_other_segments(board: Board) -> Program[list[CatalogRow]]:
    """Find segments without the board's entries: retired, archived, or created by a split that has not ended."""
    every = yield from read_rows(CATALOG_ROWS.where(col("segment_of").eq(board.key)).bind())
    present = {leaf.key for leaf in board.leaves}
    return [row for row in every if row.leaf.key not in present]


def list_boards(
    *, prefix: str, after: str, limit: int, archived: bool = True, contains: str = "", families: bool = True
) -> Program[list[Board]]:
    """List boards whose id starts with `prefix` and is greater than `after`, ordered by id.

    `archived` says whether the result includes archived boards, and `families` whether it includes boards of families.
    With `contains`, return only boards whose ids contain this text, ignoring case. The database then reads every id.
    """
    conditions = [col("id").ge(prefix), col("id").gt(after)]
    if contains:
        conditions.append(contains_text(lower_case(col("id")), contains.lower()))
    if not families:
        conditions.append(col("family_key").is_null())
    if not archived:
        conditions.append(col("archived_at").is_null())
    if prefix:
        conditions.append(col("id").lt(prefix + "\x7f"))  # ids are printable ASCII, which ends below \x7f
    listed = _WHOLE_BOARDS.where(*conditions).order_by(asc(col("id"))).limit(limit)
    return (yield from read_boards(listed.bind()))


def find_boards_by_id(board_ids: list[str]) -> Program[list[Board]]:
    """Find the boards with these ids, as they are stored now. Leave out ids that no board has."""
    return (yield from read_boards(_BOARDS_BY_ID.bind(ids=board_ids)))


_BOARDS_BY_ID = _WHOLE_BOARDS.where(col("id").in_(param("ids"))).packed().prepared()


def find_present_boards(keys: list[int]) -> Program[dict[int, Board]]:
    """Map the key of a board or segment for which posts were queued to the board that now takes them.

    For a retired segment, or a board that was split, this is the board with its present segments.
    """
    rows = yield from find_rows_by_key(keys)
    split = {key: row.segment_of or key for key, row in rows.items() if not row.is_leaf}
    if split:
        wholes = yield from find_rows_by_key(sorted({*split.values()}))
        rows |= {key: wholes[whole] for key, whole in split.items()}
    boards = yield from make_boards([*rows.values()])
    return dict(zip(rows, boards, strict=True))


def list_boards_after(board_key: int, limit: int) -> Program[list[Board]]:
    return (yield from read_boards(_BOARDS_AFTER.bind(board_key=board_key, limit=limit)))


_BOARDS_AFTER = (
    _WHOLE_BOARDS.where(col("board_key").gt(param("board_key")))
    .order_by(asc(col("board_key")))
    .limit(param("limit"))
    .packed()
    .prepared()
)


class BoardState(NamedTuple):
    entries: int
    closed: bool  # whether the board rejects all posts
    changes: int  # how often a row was written or erased
    owners: int | None = None  # how many owners take part; None: the board has no entry rules


def read_states(boards: Sequence[Board], now_us: int) -> Program[list[BoardState]]:
    """Read each board's state, in the order of `boards`, with totals and families read from the store."""
    totals = yield from find_totals_of(boards)
    owners = yield from count_owners(leaf for board in boards for leaf in board.leaves)
    keys = {board.family_key for board in boards if board.family_key is not None}
    families = (yield from find_families_by_key(keys)) if keys else {}
    found = []
    for board in boards:
        family, closed = families.get(board.family_key or 0), board.gate.closed_us is not None
        if family is not None and board.gate.ends_us is not None:  # all boards of a period close together
            closed = board.gate.ends_us <= family.shut_through_us(now_us)
        counted, place = totals[board.key], board.leaves[0].entrants_place
        taking_part = None if board.spec.entry is None else owners.get(place, 0)
        found.append(BoardState(counted.get(ALL_ENTRIES, 0), closed, counted.get(CHANGES, 0), taking_part))
    return found


def find_last_changes(boards: Sequence[Board], away: Collection[int]) -> Program[dict[int, int]]:
    """Find when each board's last change was logged, or else when it was created, in microseconds since 1970.

    The logs in the partitions `away` are not searched.
    """
    logged: list[tuple[int, int, int]] = []  # partition, key in the log, board key
    for board in boards:
        logged += [(leaf.partition, leaf.key, board.key) for leaf in board.leaves]
        if board.is_spread:  # earlier changes are logged under the keys of the board and of its retired segments
            earlier = yield from find_other_segments(board)
            logged += [(row.leaf.partition, row.leaf.key, board.key) for row in earlier]
            logged.append((board.home, board.key, board.key))
    found = {board.key: 0 for board in boards}
    for partition in sorted({partition for partition, _, _ in logged} - {*away}):
        board_of = {key: board_key for place, key, board_key in logged if place == partition}
        for key, at_us in (yield from in_partition(partition, change_log.find_last_changes([*board_of]))).items():
            found[board_of[key]] = max(at_us, found[board_of[key]])
    return {board.key: found[board.key] or board.created_at_us for board in boards}

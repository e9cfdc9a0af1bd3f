"""The rows of the catalog: how boards and their segments are stored, found, locked and listed."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.json import Decoder

from querybuilder import (
    Bound,
    Lock,
    advisory_lock,
    asc,
    col,
    contains_text,
    lower_case,
    param,
    plus,
    remainder,
    select,
    times,
    update,
)
from storage.errors import FamilyBoardError, StoreDamagedError, UnknownBoardError
from storage.records import Board, BoardSpec, FamilySpec, Gate, Leaf, Place, Season
from storage.schema.tables import BOARDS
from storage.store import Program, Row

# In the catalog, the id of a segment is the id of its board, this sign and the segment's key. No caller can name it.
SEGMENT_SIGN = "#"
# The column `segment` of the catalog: the 0-based number of a segment, and 0 for a board that has no segments now.
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


class CatalogRow(NamedTuple):
    """A row of the catalog: of a board, or of a leaf that is, was or will be one of the segments of a board."""

    leaf: Leaf  # of a board with segments, the leaf that would hold all entries
    created_at_us: int
    segment_of: int | None  # the key of the board whose segment this is; None: it is no segment
    segment: int

    def make_board(self, leaves: tuple[Leaf, ...] = ()) -> Board:
        """Return the board with these leaves, or else with the leaf of the row."""
        leaf = self.leaf
        leaves = leaves or (leaf,)
        return Board(leaf.key, leaf.id, leaf.spec, self.created_at_us, leaves, leaf.family_key, leaf.partition)


def decode_row(row: Row) -> CatalogRow:
    """Make an object of a row with the columns `COLUMNS`. Raise `StoreDamagedError` if the row's spec is damaged."""
    key, board_id, text, created_at_us, family_key, segment_of, segment, partition, table_key, rows_key, *gate = row
    spec = decode_spec(text, BOARD_SPECS, f"the leaderboard {board_id!r}")
    place = Place(partition, table_key, rows_key)
    number = segment if segment >= 0 else RETIRED - segment
    leaf = Leaf(key, board_id.partition(SEGMENT_SIGN)[0], spec, place, Gate(*gate), family_key, number)
    return CatalogRow(leaf, created_at_us, segment_of, segment)


PLACE = "partition", "table_key", "rows_key"  # in the order of the fields of `Place`
GATE = "epoch", "opens_at", "ends_at", "closes_at", "closed_at", "archived_at"  # in the order of the fields of `Gate`
_NAMES = "board_key", "id", "spec", "created_at", "family_key", "segment_of", "segment", *PLACE, *GATE
COLUMNS = tuple(map(col, _NAMES))
CATALOG_ROWS = select(*COLUMNS).from_(BOARDS)  # of boards and of segments
_WHOLE_BOARDS = CATALOG_ROWS.where(col("segment_of").is_null())


def read_rows(query: Bound) -> Program[list[CatalogRow]]:
    return [decode_row(row) for row in (yield query)]


def read_boards(query: Bound, lock: Lock | None = None) -> Program[list[Board]]:
    """Return the boards of the rows that a query finds. The rows are no segments. `lock`: lock the segments."""
    return (yield from make_boards((yield from read_rows(query)), lock))


def store_columns(key: int, **values: int | str | None) -> Program[None]:
    """Store values in columns of the catalog's row with this key."""
    changed = update(BOARDS).set(**{name: param(name) for name in values})
    yield changed.where(col("board_key").eq(param("key"))).bind(key=key, **values)


def times_of(season: Season | None) -> dict[str, int | None]:
    """Return the times of a season, by the names of their columns in the catalog."""
    if season is None:
        return {"opens_at": None, "ends_at": None, "closes_at": None}
    return {"opens_at": season.opens_us, "ends_at": season.ends_us, "closes_at": season.closes_us}


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
    return (yield from make_boards([decode_row(rows[0][: len(COLUMNS)])], lock))[0]


def find_same_board(board: Board, *, lock: Lock) -> Program[Board]:
    """Lock and return a board as the catalog has it now.

    Raises:
        UnknownBoardError: the board was deleted.
    """
    query = CATALOG_ROWS.where(col("board_key").eq(param("key"))).locked(lock).bind(key=board.key)
    found = yield from read_boards(query, lock)
    if not found:
        raise UnknownBoardError(f"no leaderboard {board.id!r}")
    return found[0]


def make_boards(rows: Sequence[CatalogRow], lock: Lock | None = None) -> Program[list[Board]]:
    """Return boards with their leaves, in the order of the rows. An archived board has no segments any more."""
    keys = [row.leaf.key for row in rows if row.segment == WHOLE and row.segment_of is None]
    segments: dict[int | None, list[Leaf]] = {key: [] for key in keys}
    if keys:
        query = CATALOG_ROWS.where(col("segment_of").in_(param("keys")), col("segment").ge(0))
        query = query.order_by(asc(col("segment")))
        for row in (yield from read_rows(query.locked(lock).bind(keys=keys))):
            segments[row.segment_of].append(row.leaf)
    return [row.make_board(tuple(segments.get(row.leaf.key, ()))) for row in rows]


def find_other_segments(board: Board) -> Program[list[CatalogRow]]:
    """Return segments without the board's entries: retired ones, those that a split fills, and those of an archive."""
    every = yield from read_rows(CATALOG_ROWS.where(col("segment_of").eq(board.key)).bind())
    present = {leaf.key for leaf in board.leaves}
    return [row for row in every if row.leaf.key not in present]


def find_posted_leaves(board: Board | Leaf) -> Program[list[Leaf]]:
    """Return the leaves that remember the posts to a board: its leaves, or those that it had when archived."""
    leaves = board.leaves if isinstance(board, Board) else (board,)
    if leaves[0].archived_us is None or board.family_key is not None:
        return [*leaves]
    rows = yield from read_rows(CATALOG_ROWS.where(col("segment_of").eq(board.key)).bind())
    return [*leaves, *(row.leaf for row in rows if row.segment >= 0)]


def find_keys_ever(board: Board) -> Program[list[int]]:
    """Return the keys under which the journal may have changes of a board: of its segments now, and of earlier ones."""
    rows = yield select(col("board_key")).from_(BOARDS).where(col("segment_of").eq(board.key)).bind()
    return [board.key, *(key for (key,) in rows)]


def list_boards(
    *, prefix: str, after: str, limit: int, archived: bool = True, contains: str = "", families: bool = True
) -> Program[list[Board]]:
    """Return boards whose id starts with `prefix` and is greater than `after`, ordered by id.

    `archived` says whether the result includes archived boards, and `families` whether it includes boards of families.
    With `contains`, each id contains this text, in upper or lower case. Then the database reads every id.
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
    """Return the boards with these ids, as they are stored now. Leave out ids that no board has."""
    return (yield from read_boards(_BOARDS_BY_ID.bind(ids=board_ids)))


_BOARDS_BY_ID = _WHOLE_BOARDS.where(col("id").in_(param("ids"))).packed().prepared()


def find_rows_by_key(keys: list[int], *, held: bool = False) -> Program[dict[int, CatalogRow]]:
    """Return the catalog's rows of boards and segments with these keys, by key. Leave out keys that have no row.

    `held`: until the transaction ends, nobody changes or moves what these rows describe.
    """
    found = yield from read_rows((_HELD_BY_KEY if held else _BY_KEY).bind(keys=keys))
    return {row.leaf.key: row for row in found}


def find_leaves(keys: list[int]) -> Program[dict[int, Leaf]]:
    """Return the leaves with these keys, by key, as they are stored now. Leave out keys that no leaf has."""
    return {key: row.leaf for key, row in (yield from find_rows_by_key(keys)).items()}


def find_present_boards(keys: list[int]) -> Program[dict[int, Board]]:
    """Return, by key, the boards that take the posts to boards or segments with these keys.

    For a segment that was retired, and for a board that was split, this is the board with its present segments.
    """
    rows = yield from find_rows_by_key(keys)
    split = {key: row.segment_of or key for key, row in rows.items() if row.segment < 0}
    others = [row for key, row in rows.items() if key not in split]
    others += (yield from find_rows_by_key(sorted({*split.values()}))).values() if split else ()
    boards = {board.key: board for board in (yield from make_boards(others))}
    return {key: boards[split.get(key, key)] for key in rows if split.get(key, key) in boards}


_by_key = CATALOG_ROWS.where(col("board_key").in_(param("keys"))).packed()
_BY_KEY = _by_key.prepared()
_HELD_BY_KEY = _by_key.locked(Lock.SHARE, asc(col("board_key"))).prepared()


def list_boards_after(board_key: int, limit: int) -> Program[list[Board]]:
    """Return boards that were created after the board with this key, oldest first."""
    return (yield from read_boards(_BOARDS_AFTER.bind(board_key=board_key, limit=limit)))


_BOARDS_AFTER = (
    _WHOLE_BOARDS.where(col("board_key").gt(param("board_key")))
    .order_by(asc(col("board_key")))
    .limit(param("limit"))
    .packed()
    .prepared()
)

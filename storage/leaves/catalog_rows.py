"""Reads and decodes the catalog's rows, one for each board, each segment and each family.

If a row is damaged, the error names its board or family, so that an operator can find the row in the database.
"""

from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, TypeVar

import msgspec
import structlog
from msgspec.json import Decoder

from querybuilder import Bound, Lock, asc, col, param, plus, remainder, select, times, update
from storage.errors import StoreDamagedError
from storage.records import SEGMENT_SIGN, Board, BoardSpec, Family, FamilySpec, Gate, Leaf, Place, Season
from storage.schema.tables import BOARDS, FAMILIES
from storage.store import Program, Row

log = structlog.get_logger(__name__)


class RowKind(StrEnum):
    BOARD = "board"  # a board without segments, and its leaf
    SPREAD = "spread"  # a board that has segments
    SEGMENT = "segment"
    RETIRED = "retired"  # a former segment: later segments have its entries; the journal still has its changes
    PENDING = "pending"  # a segment into which a split is still copying entries


SPECS_KEPT_MAX = 4_096  # the most decoded specs in the cache; boards whose specs have the same text share one object

# All boards in shared tables use this many advisory locks together, so a post to many boards takes at most this many.
BOARD_LOCKS = 64  # PostgreSQL has room for 64 locks for each connection
_SHARED_KEY = plus(col("leaf_key"), times(0, col("table_key")))  # own table: `table_key` is null, so this is too
BOARD_LOCK = remainder(_SHARED_KEY, BOARD_LOCKS)  # the number of a board's advisory lock; null: no lock

Spec = TypeVar("Spec", BoardSpec, FamilySpec)
BOARD_SPECS, FAMILY_SPECS = Decoder(BoardSpec), Decoder(FamilySpec)


def encode_spec(spec: BoardSpec | FamilySpec) -> str:
    return msgspec.json.encode(spec).decode()


@lru_cache(maxsize=SPECS_KEPT_MAX)
def _decode_spec(text: str, decoder: Decoder[Spec]) -> Spec:
    return decoder.decode(text)


def decode_spec(text: str, decoder: Decoder[Spec], described: str) -> Spec:
    """Decode a spec. Raise `StoreDamagedError` if it is damaged, with a message that names `described` as its owner."""
    try:
        spec: Spec = _decode_spec(text, decoder)
    except msgspec.MsgspecError as error:
        raise StoreDamagedError(_tell_damage(described)) from error
    return spec


@lru_cache(maxsize=SPECS_KEPT_MAX)
def _tell_damage(described: str) -> str:
    """Log a damaged row, but only the first time, because each read of the row finds the damage again."""
    detail = f"the catalog's row of {described} is damaged: restore a backup"
    log.error("row_damaged", detail=detail)
    return detail


class CatalogRow(NamedTuple):
    """A row of the catalog, which describes a board, or a current, retired or pending segment of one."""

    leaf: Leaf  # for a board with segments: the leaf that would hold all entries if there were no segments
    created_at_us: int
    segment_of: int | None  # the key of the board that the segment belongs to; None: the row describes a board
    kind: RowKind

    @property
    def is_leaf(self) -> bool:
        """Return True if the leaf currently stores entries: all those of its board, or the share of a segment."""
        return self.kind in (RowKind.BOARD, RowKind.SEGMENT)

    def make_board(self, leaves: tuple[Leaf, ...] = ()) -> Board:
        """Build the board with these leaves, or with this row's own leaf if `leaves` is empty."""
        leaf = self.leaf
        if leaves and leaf.spec.entry is not None:
            leaves = tuple([replace(each, whole=(leaf.partition, leaf.key)) for each in leaves])
        leaves = leaves or (leaf,)
        return Board(leaf.key, leaf.id, leaf.spec, self.created_at_us, leaves, leaf.family_key, leaf.partition)


def decode_row(row: Row) -> CatalogRow:
    """Decode a row with the columns `COLUMNS`. Raise `StoreDamagedError` if its spec is damaged."""
    key, board_id, text, created_at_us, family_key, segment_of, segment, kind, partition, table_key, rows_key, *gate = (
        row
    )
    spec = decode_spec(text, BOARD_SPECS, f"the leaderboard {board_id!r}")
    place = Place(partition, table_key, rows_key)
    leaf = Leaf(key, board_id.partition(SEGMENT_SIGN)[0], spec, place, Gate(*gate), family_key, segment)
    return CatalogRow(leaf, created_at_us, segment_of, RowKind(kind))


PLACE = "partition", "table_key", "rows_key"  # in the order of the fields of `Place`
# In the order of the fields of `Gate`.
GATE = "epoch", "opens_at", "ends_at", "closes_at", "closed_at", "archived_at", "reset_at"
_NAMES = "board_key", "id", "spec", "created_at", "family_key", "segment_of", "segment", "kind", *PLACE, *GATE
COLUMNS = tuple(map(col, _NAMES))
CATALOG_ROWS = select(*COLUMNS).from_(BOARDS)  # all boards and segments, until a caller adds a condition


def read_rows(query: Bound) -> Program[list[CatalogRow]]:
    return [decode_row(row) for row in (yield query)]


def store_columns(key: int, **values: int | str | None) -> Program[None]:
    changed = update(BOARDS).set(**{name: param(name) for name in values})
    yield changed.where(col("board_key").eq(param("key"))).bind(key=key, **values)


def times_of(season: Season | None) -> dict[str, int | None]:
    """Map the times of a season to their column names in the catalog. None means that a time is not set."""
    if season is None:
        return {"opens_at": None, "ends_at": None, "closes_at": None}
    return {"opens_at": season.opens_us, "ends_at": season.ends_us, "closes_at": season.closes_us}


def replace_times(gate: Gate, season: Season | None) -> Gate:
    times = times_of(season)
    return gate._replace(opens_us=times["opens_at"], ends_us=times["ends_at"], closes_us=times["closes_at"])


def find_posted_leaves(board: Board | Leaf) -> Program[list[Leaf]]:
    """Find the leaves that hold a board's post ids. If the board is archived, these include its former segments."""
    leaves = board.leaves if isinstance(board, Board) else (board,)
    if leaves[0].archived_us is None or board.family_key is not None:
        return [*leaves]
    rows = yield from read_rows(CATALOG_ROWS.where(col("segment_of").eq(board.key)).bind())
    return [*leaves, *(row.leaf for row in rows if row.kind is RowKind.SEGMENT)]


def find_keys_ever(board: Board) -> Program[list[int]]:
    """Find the keys of a board and of all its segments, even retired ones, because the journal may name each."""
    rows = yield select(col("board_key")).from_(BOARDS).where(col("segment_of").eq(board.key)).bind()
    return [board.key, *(key for (key,) in rows)]


def find_rows_by_key(keys: list[int], *, held: bool = False) -> Program[dict[int, CatalogRow]]:
    """Find the catalog's rows for boards and segments with these keys, by key. Leave out keys without a row.

    `held`: also lock the rows, so that these boards and segments are not changed or moved until the transaction ends.
    """
    found = yield from read_rows((_HELD_BY_KEY if held else _BY_KEY).bind(keys=keys))
    return {row.leaf.key: row for row in found}


def find_leaves(keys: list[int]) -> Program[dict[int, Leaf]]:
    """Find the leaves with these keys, by key, as currently stored. Leave out keys without a leaf."""
    return {key: row.leaf for key, row in (yield from find_rows_by_key(keys)).items()}


_by_key = CATALOG_ROWS.where(col("board_key").in_(param("keys"))).packed()
_BY_KEY = _by_key.prepared()
_HELD_BY_KEY = _by_key.locked(Lock.SHARE, asc(col("board_key"))).prepared()


FAMILY_COLUMNS = tuple(col(name) for name in ("family_key", "id", "spec", "created_at", "closed_through", "partition"))


def decode_family(row: Row) -> Family:
    key, family_id, text, created_at, closed_through, partition = row
    spec = decode_spec(text, FAMILY_SPECS, f"the family {family_id!r}")
    return Family(key, family_id, spec, created_at, closed_through, partition)


def read_families(query: Bound) -> Program[list[Family]]:
    return [decode_family(row) for row in (yield query)]


def find_families_by_key(family_keys: Iterable[int], *, held: bool = False) -> Program[dict[int, Family]]:
    """Find the families with these keys, by key, as currently stored. Leave out keys without a family.

    `held`: also lock the rows, so that these families are not changed, nor their boards closed, until the transaction
    ends.
    """
    found = yield from read_families((_HELD_FAMILIES if held else _FAMILIES).bind(keys=list(family_keys)))
    return {family.key: family for family in found}


FAMILY_ROWS = select(*FAMILY_COLUMNS).from_(FAMILIES)
_families_by_key = FAMILY_ROWS.where(col("family_key").in_(param("keys"))).packed()
_FAMILIES = _families_by_key.prepared()
_HELD_FAMILIES = _families_by_key.locked(Lock.SHARE, asc(col("family_key"))).prepared()

"""Creates, changes, empties and deletes families and their boards, and keeps a process's copy of the families.

    put_family ──> family, an empty table ── a first post reaches a board: make_boards ──> board ──> delete_family

A family's board is created when the first post reaches it, and is deleted only with its family. If the boards share a
table, it belongs to the family alone and is dropped with it.

Until a post reaches it, a family's board is empty and has no row in the catalog. `FamilyCatalog` builds an object for
such a board at each read and does not keep it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from querybuilder import (
    Condition,
    Lock,
    all_of,
    asc,
    col,
    contains_text,
    count,
    delete,
    drop_table,
    insert,
    length,
    param,
    part,
    plus,
    select,
    update,
)
from storage.errors import CatalogFullError, SpecConflictError, UnknownBoardError, UnknownFamilyError
from storage.leaves.catalog_rows import (
    CATALOG_ROWS,
    COLUMNS,
    FAMILY_ROWS,
    RowKind,
    encode_spec,
    read_families,
    read_rows,
)
from storage.leaves.entrants import forget_entrants
from storage.leaves.gates import store_family_gate
from storage.leaves.row_tables import add_columns, create_row_table, layout_of
from storage.leaves.totals import store_gates
from storage.log.bundles import ChangeKind
from storage.log.change_log import BoardEvent, log_board_events
from storage.periods import Period, PeriodSpec
from storage.records import Board, BoardSpec, Family, FamilySpec, Leaf, LeagueSpec
from storage.schema.placement import TABLES
from storage.schema.sequences import count_fact, take_keys
from storage.schema.tables import (
    ARCHIVE_BLOCKS,
    BOARDS,
    CURVES,
    DROPPED_ROWS,
    FAMILIES,
    FAMILY_GATES,
    GATES,
    GRANT_WALKS,
    LIVE_COUNTS,
    OF_OWNERS,
    POST_IDS,
    REFRESH_REQUESTS,
    STANDINGS,
    TOTALS,
)
from storage.store import Program, Store, in_partition

from .board_changes import change_spec, find_added_columns
from .board_creation import check_board_limits, choose_partitions
from .board_removal import delete_of_leaves, delete_refresh_leases, delete_rows, drop_seats
from .boards import find_boards_by_id, list_boards, read_boards
from .family_ids import is_listed, parse_board_id, shelf
from .journal import log_event
from .shared_tables import note_dropped_rows


def put_family(
    *, family_id: str, spec: FamilySpec, now_us: int, families_max: int, partition: int | None = None
) -> Program[tuple[Family, bool]]:
    """Create a family, or change the existing one to this spec, and return the family and whether it is new.

    `partition` is the partition for all boards of a new family. If it is None, `choose_partitions` chooses one.

    Raises:
        SpecInvalidError: the store does not have this partition.
        CatalogFullError: the store already holds `families_max` families.
        SpecConflictError: the family exists in another partition; or the change would reinterpret or drop stored
            values; or an existing board outside the new family has an id that looks like one of the family's ids.
    """
    found = yield from read_families(_by_id.locked(Lock.UPDATE).bind(id=family_id))
    if found:
        [stored] = found
        if partition not in (None, stored.partition):
            detail = f"the family is in partition {stored.partition}, and the leaderboards of a family can't be moved"
            raise SpecConflictError(detail, pointer="/partition")
        return (yield from _change(stored, spec)), False
    [[families]] = yield select(count()).from_(FAMILIES).bind()
    if families >= families_max:
        raise CatalogFullError(f"the store holds {families_max} families, the limit set by catalog_families_max")
    taken = yield from list_boards(prefix=f"{family_id}:", after="", limit=1)
    if taken:
        raise SpecConflictError(f"the leaderboard {taken[0].id!r} exists, and its id looks like an id of this family")
    place = (yield from choose_partitions(partition))[0]
    family = Family((yield from take_keys()), family_id, spec, now_us, partition=place)
    text = encode_spec(spec)
    yield (
        insert(FAMILIES)
        .values(family_key=family.key, id=family_id, spec=text, created_at=now_us, closed_through=0, partition=place)
        .bind()
    )
    yield from store_family_gate(family)
    yield from in_partition(place, create_row_table(layout_of(family.template_board.leaf)))
    return family, True


def _change(family: Family, wanted: FamilySpec) -> Program[Family]:
    stored = family.spec
    if wanted.time_zone != stored.time_zone:
        detail = (
            f"time_zone is {stored.time_zone!r} and can't be changed: it decided which period each post was counted in"
        )
        raise SpecConflictError(detail, pointer="/time_zone")
    if wanted.grace_seconds > stored.grace_seconds:
        detail = f"grace_seconds is {stored.grace_seconds} and can only be shortened: closed periods stay closed"
        raise SpecConflictError(detail, pointer="/grace_seconds")
    for name in ("periods", "facets"):
        if set(getattr(wanted, name)) != set(getattr(stored, name)):
            detail = f"{name} can't be changed: earlier posts would be missing on the new boards"
            raise SpecConflictError(detail, pointer=f"/{name}")
    declared = _append_bounds(stored.declared, wanted.declared)
    _check_league(stored.board.league, wanted.board.league)
    added = find_added_columns(stored.board, wanted.board)
    board = change_spec(stored.board, wanted.board, added)
    spec = replace(stored, board=board, keep=wanted.keep, declared=declared, rewards=wanted.rewards)
    if wanted.grace_seconds < stored.grace_seconds:
        spec = replace(
            spec, grace_seconds=wanted.grace_seconds, first_grace_seconds=stored.longest_grace_us // 1_000_000
        )
        yield from _close_earlier(family, stored.grace_seconds - wanted.grace_seconds)
    if spec == stored:
        return family
    changed = replace(family, spec=spec)
    yield from store_family_gate(changed)
    if board != stored.board:
        yield from _change_boards(family, board)
    if board.entry is None and stored.board.entry is not None:
        yield from forget_entrants([leaf.entrants_place for leaf in (yield from _leaves(family))])
    if replace(spec, board=board) != replace(stored, board=board):
        # Closed boards may now be archived at other times, so the closing job has to check all of them again.
        closed = col("closed_at").not_null(), col("archived_at").is_null()
        looked_at = update(BOARDS).set(due_at=0).where(col("family_key").eq(param("key")), *closed)
        yield looked_at.bind(key=family.key)
    yield (update(FAMILIES).set(spec=encode_spec(spec)).where(col("family_key").eq(param("key"))).bind(key=family.key))
    if changed.template_board.leaf.demands != family.template_board.leaf.demands:
        yield from in_partition(family.partition, count_fact())  # as in `change_board`
    return changed


def _check_league(stored: LeagueSpec | None, wanted: LeagueSpec | None) -> None:
    if stored is None or wanted is None:
        if stored is not wanted:
            raise SpecConflictError("a family of this name exists, and only one of the two is a league")
        return
    if wanted.column != stored.column:
        raise SpecConflictError(f"column is {stored.column!r} and can't be changed", pointer="/column")
    names = [[each.name for each in league.divisions] for league in (stored, wanted)]
    if names[1][: len(names[0])] != names[0]:
        detail = f"the divisions {', '.join(names[0])} stay, in this order. Better ones can be appended"
        raise SpecConflictError(detail, pointer="/divisions")


def _append_bounds(stored: tuple[PeriodSpec, ...], wanted: tuple[PeriodSpec, ...]) -> tuple[PeriodSpec, ...]:
    later = {each.name: each for each in wanted}
    for each in stored:
        new = later[each.name]
        if replace(new, bounds=()) != replace(each, bounds=()) or new.bounds[: len(each.bounds)] != each.bounds:
            detail = f"the periods {each.name!r} can't be changed: posts were counted in them. Only append bounds"
            raise SpecConflictError(detail, pointer="/periods")
    return tuple(later[each.name] for each in stored)


def _close_earlier(family: Family, seconds: int) -> Program[None]:
    """Make a family's open boards close `seconds` earlier. The closing job closes boards whose new time has passed."""
    still_open = col("closes_at").not_null(), col("closed_at").is_null()
    sooner = plus(col("closes_at"), -seconds * 1_000_000)
    closing = update(BOARDS).set(closes_at=sooner, due_at=sooner)
    yield closing.where(col("family_key").eq(param("key")), *still_open).bind(key=family.key)


def _change_boards(family: Family, spec: BoardSpec) -> Program[None]:
    """Apply this spec to every board of a family, and store the new states so that other processes notice them."""
    changed = [replace(leaf, spec=spec) for leaf in (yield from _leaves(family))]
    width = len(family.spec.board.columns)
    layouts = [layout_of(replace(family.template_board.leaf, spec=spec))]
    if not family.shares_table:
        layouts += [layout_of(leaf) for leaf in changed if leaf.archived_us is None]
    for layout in layouts:
        yield from in_partition(family.partition, add_columns(layout, layout.columns[width:]))
    yield (update(BOARDS).set(spec=encode_spec(spec)).where(col("family_key").eq(param("key"))).bind(key=family.key))
    yield from store_gates(changed)


def _forget_entrants(leaves: Sequence[Leaf]) -> Program[None]:
    if any(leaf.spec.entry is not None for leaf in leaves):
        yield from forget_entrants([leaf.entrants_place for leaf in leaves])


def delete_family(*, family_id: str) -> Program[list[Leaf]]:
    """Delete a family with all its boards, and return their leaves, or raise `UnknownFamilyError`.

    The family's post ids are no longer valid, because no later family gets the key under which they are stored.
    """
    family = yield from find_family(family_id, lock=Lock.UPDATE)
    leaves = yield from _leaves(family)
    yield from in_partition(family.partition, _delete_family(family, leaves))
    return leaves


def _delete_family(family: Family, leaves: Sequence[Leaf]) -> Program[None]:
    yield from _forget_entrants(leaves)
    own = [] if family.shares_table else [layout_of(leaf) for leaf in leaves if leaf.archived_us is None]
    of_family = layout_of(family.template_board.leaf)
    for layout in [of_family, *own]:
        yield drop_table(layout.table).bind()
    yield delete(DROPPED_ROWS).where(col("table_name").eq(param("table"))).bind(table=of_family.table)
    yield from note_dropped_rows(POST_IDS, family.key)
    yield from drop_seats(leaves)
    if family.spec.board.league is not None:
        yield from note_dropped_rows(STANDINGS, family.key)
    tables = (TOTALS, GATES, CURVES, LIVE_COUNTS, REFRESH_REQUESTS, ARCHIVE_BLOCKS, *OF_OWNERS, GRANT_WALKS)
    yield from delete_of_leaves(tables, [leaf.key for leaf in leaves])
    yield from delete_refresh_leases(leaves)  # after the gates, because `store_curve` locks gates first
    for table in (BOARDS, FAMILIES, FAMILY_GATES):
        yield delete(table).where(col("family_key").eq(param("key"))).bind(key=family.key)


def find_family(family_id: str, *, lock: Lock | None = None) -> Program[Family]:
    """Find the family with that id, or raise `UnknownFamilyError`. With `lock`, lock the family's row."""
    found = yield from read_families(_by_id.locked(lock).bind(id=family_id))
    if not found:
        raise UnknownFamilyError(f"no family {family_id!r}")
    return found[0]


_by_id = FAMILY_ROWS.where(col("id").eq(param("id")))


def list_families(*, after: str, limit: int) -> Program[list[Family]]:
    listed = FAMILY_ROWS.where(col("id").gt(after)).order_by(asc(col("id"))).limit(limit)
    return (yield from read_families(listed.bind()))


def count_boards(family: Family) -> Program[int]:
    """Count a family's stored boards, which are those that at least one post has reached."""
    counted = select(count()).from_(BOARDS).where(col("family_key").eq(param("key")))
    [[boards]] = yield counted.bind(key=family.key)
    return int(boards)


def make_boards(
    known: Family, board_ids: Iterable[str], *, now_us: int, boards_max: int, own_tables_max: int | None = None
) -> Program[list[Board]]:
    """Return a family's boards with these ids, creating those that are missing.

    If two processes create the same boards at the same time, both get the same boards.

    Raises:
        UnknownFamilyError: the family was deleted, and perhaps created again, with other periods or facets.
        CatalogFullError, OwnTablesFullError: see `check_board_limits`.
    """
    family = yield from find_family(known.id, lock=Lock.SHARE)
    if family.key != known.key:
        raise UnknownFamilyError(f"the family {known.id!r} was deleted and created again")
    ids = sorted(set(board_ids))  # all transactions create boards in this order, so they never deadlock
    there = {board.id for board in (yield from find_boards_by_id(ids))}
    missing = [each for each in ids if each not in there]
    if missing:
        own = not family.shares_table
        yield from check_board_limits(new=len(missing), own=own, boards_max=boards_max, own_tables_max=own_tables_max)
        yield from _make(family, missing, now_us)
    return (yield from find_boards_by_id(ids))


BOARDS_A_STATEMENT = 1_000  # the most boards that one statement of `reset_period` empties
_NEW_ROW = ["board_key", "created_at", "epoch", "table_key", "rows_key", "family_key", "partition", "stage", "segment"]
_NEW_ROW += ["kind", "id", "spec", "shelf", "ends_at", "closes_at", "due_at", "reset_at"]


def _make(family: Family, missing: Sequence[str], now_us: int) -> Program[None]:
    last = yield from take_keys(len(missing))
    text, shared = encode_spec(family.spec.board), family.shares_table
    table_key = family.key if shared else None
    resets = dict((yield from read_resets(family)).values())
    rows = []
    for index, board_id in enumerate(missing):
        named = parse_board_id(board_id)
        assert named is not None
        shelf_id = shelf(named.period.id, [name for name, _ in named.facets])
        ends_us = family.spec.ends_us(named.period)
        closes_us = None if ends_us is None else ends_us + family.spec.grace_us
        key = last - index
        numbers = key, now_us, 1, table_key, key if shared else 0, family.key, family.partition, 0, 0
        reset_us = resets.get(named.period.id)
        rows.append((*numbers, RowKind.BOARD, board_id, text, shelf_id, ends_us, closes_us, closes_us, reset_us))
    making = insert(BOARDS).rows(param("rows"), **{name: TABLES[BOARDS].kinds[name] for name in _NEW_ROW})
    making = making.on_conflict("id").do_nothing()
    leaves = [row.leaf for row in (yield from read_rows(making.returning(*COLUMNS).bind(rows=rows)))]
    yield from store_gates(leaves)
    if not shared:
        for leaf in leaves:
            yield from in_partition(leaf.partition, create_row_table(layout_of(leaf)))
    created = [BoardEvent(ChangeKind.CREATED, leaf.id, leaf.key, leaf.partition) for leaf in leaves]
    yield from log_board_events(created, now_us=now_us)


def reset_period(*, family_id: str, kind: str, now_us: int) -> Program[tuple[Family, Period, list[Leaf]]]:
    """Empty a family's boards for the current period of this kind, and return the family, the period and their leaves.

    The current period is the one that contains `now_us`. From now on, its boards refuse posts whose own time is before
    `now_us`. The caller checks that the family has boards for this kind of period.

    All boards are emptied in one transaction, which first locks the family's row, so that no post creates a board for
    the period in between. The family's row keeps the time, so that a board created later refuses earlier posts, too.
    The family's post ids stay valid, because other boards still have the posts.

    Raises:
        UnknownFamilyError: there is no such family.
        UnknownBoardError: the family has no period of this kind now.
    """
    family = yield from find_family(family_id, lock=Lock.UPDATE)
    period = family.spec.calendar.period_at(kind, now_us)
    if period is None:
        raise UnknownBoardError(f"the family {family_id!r} has no {kind} now")
    resets = (yield from read_resets(family)) | {str(kind): (period.id, now_us)}
    yield _STORE_RESETS.bind(key=family.key, resets=msgspec.json.encode(resets).decode())
    shelves = [shelf(period.id, names) for names in family.spec.facets]
    rows = yield from read_rows(_ON_SHELVES.bind(key=family.key, shelves=shelves))
    leaves = [row.leaf for row in rows if row.leaf.closed_us is None]
    emptied: list[Leaf] = []
    for start in range(0, len(leaves), BOARDS_A_STATEMENT):
        some = leaves[start : start + BOARDS_A_STATEMENT]
        yield _BEGIN_EPOCH.bind(keys=[leaf.key for leaf in some], now_us=now_us)
        emptied += [replace(leaf, gate=leaf.gate._replace(epoch=leaf.epoch + 1, reset_us=now_us)) for leaf in some]
        yield from store_gates(emptied[start:])  # keeps out new curves, so call it before `delete_rows`
        yield from _forget_entrants(some)
        yield from in_partition(family.partition, delete_rows(some))
    yield from log_event(emptied, ChangeKind.RESET, now_us)
    yield from in_partition(family.partition, count_fact(now_us))
    return family, period, emptied


_STORE_RESETS = update(FAMILIES).set(resets=param("resets")).where(col("family_key").eq(param("key"))).prepared()
_ON_SHELVES = CATALOG_ROWS.where(col("family_key").eq(param("key")), col("shelf").in_(param("shelves"))).prepared()
_BEGIN_EPOCH = (
    update(BOARDS)
    .set(epoch=plus(col("epoch"), 1), reset_at=param("now_us"))
    .where(col("board_key").in_(param("keys")))
    .prepared()
)


def read_resets(family: Family) -> Program[dict[str, tuple[str, int]]]:
    """Read, for each kind of period, which period's boards were last emptied, and when."""
    [[text]] = yield _RESETS.bind(key=family.key)
    return {} if text is None else msgspec.json.decode(text, type=dict[str, tuple[str, int]])


_RESETS = select(col("resets")).from_(FAMILIES).where(col("family_key").eq(param("key"))).prepared()


def list_boards_on_shelf(
    family: Family, shelf_id: str, *, names: Sequence[str], values: Mapping[str, str], after: str, limit: int
) -> Program[list[Board]]:
    """List up to `limit` stored boards from one shelf, ordered by id.

    A shelf holds the boards for one period and one list of facets. Only boards whose id is greater than `after` are
    listed. `names` is the sorted list of facet names, and `values` maps some or all of these names to wanted values.
    """
    found = CATALOG_ROWS.where(col("family_key").eq(param("key")), col("shelf").eq(param("shelf")))
    found = found.where(col("id").gt(param("after")), *_facets_in_id(names, values)).order_by(asc(col("id")))
    return (yield from read_boards(found.limit(limit).bind(key=family.key, shelf=shelf_id, after=after)))


def _facets_in_id(names: Sequence[str], values: Mapping[str, str]) -> Iterator[Condition]:
    """Yield an SQL condition on the id for each facet in `values`. `names` are all facet names in the id, in order.

    Such an id is `family:period:name=value,name=value`. Neither names nor values contain a delimiter.
    """
    for index, name in enumerate(names):
        if name not in values:
            continue
        pair = f"{',' if index else ':'}{name}={values[name]}"
        if index < len(names) - 1:
            yield contains_text(col("id"), f"{pair},")
        else:
            end = part(col("id"), plus(length(col("id")), 1 - len(pair)), len(pair))
            yield all_of(length(col("id")).ge(len(pair)), end.eq(pair))


def _leaves(family: Family) -> Program[list[Leaf]]:
    found = yield from read_rows(CATALOG_ROWS.where(col("family_key").eq(param("key"))).bind(key=family.key))
    return [row.leaf for row in found]


class FamilyCatalog:
    """A process's copy of the families, which saves it from reading the store to look one up."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_id: dict[str, Family] = {}

    async def load(self, *, families_max: int) -> None:
        found = await self._store.read(lambda: list_families(after="", limit=families_max))
        self._by_id = {family.id: family for family in found}

    async def find_family(self, family_id: str) -> Family:
        return self._by_id.get(family_id) or await self.reread_family(family_id)

    async def reread_family(self, family_id: str) -> Family:
        """Read the family from the store, keep it in the copy and return it, or raise `UnknownFamilyError`."""
        known = self._by_id.get(family_id)
        try:
            return self.keep_family(await self._store.read(lambda: find_family(family_id)))
        except UnknownFamilyError:
            if self._by_id.get(family_id) is known:  # no later read has found it
                self.forget_family(family_id)
            raise

    def keep_family(self, family: Family) -> Family:
        """Replace the copy of a family that was read or written, unless the copy is newer. Return the copy."""
        known = self._by_id.get(family.id)
        if known is None or known.version <= family.version:
            known = self._by_id[family.id] = family
        return known

    def forget_family(self, family_id: str) -> None:
        self._by_id.pop(family_id, None)

    async def find_unreached_board(self, board_id: str) -> Board | None:
        """Build an empty board for an id that no post has reached.

        Return None if no stored family has boards with such a period and facets. Call this only for a board that is not
        stored.
        """
        named = parse_board_id(board_id)
        if named is None:
            return None
        try:
            family = await self.reread_family(named.family)
        except UnknownFamilyError:
            return None
        if not is_listed(family.spec, named):
            return None
        return family.unreached_board(board_id, family.spec.ends_us(named.period))

"""The programs of families: which there are, what their boards have in common, and how boards are made for posts.

The rule: a board of a family is made here, when the first post reaches it, and goes only with its family. Rows in a
shared table are the family's own: it has a table for itself, and drops it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import msgspec

from querybuilder import (
    INTEGER,
    TEXT,
    Condition,
    Dialect,
    Lock,
    Select,
    Statement,
    all_of,
    asc,
    col,
    count,
    delete,
    drop_table,
    holds,
    insert,
    length,
    param,
    part,
    plus,
    select,
    update,
)

from .board_limits import check_room
from .errors import SpecConflict, StoreDamaged, TooManyFamilies, UnknownFamily
from .family_ids import parse_board_id
from .layouts import Layout, columns_of, create_rows, entries_table, layout_of, shared_table, widen_rows
from .leaderboards import (
    COLUMNS,
    REFRESH_POOL,
    STATE,
    added_columns,
    board_of,
    boards_by_id,
    list_boards,
    refresh_resource,
    spec_text,
    state_of,
)
from .migrate import (
    ARCHIVE_BLOCKS,
    BOARDS,
    CURVES,
    DEMANDS,
    DROPPED_ROWS,
    FAMILIES,
    HIDDEN,
    LEASES,
    LIVE_COUNTS,
    TOTALS,
    next_in,
    next_many,
)
from .records import Board, BoardSpec, Family, FamilySpec
from .shared_tables import leave_post_ids
from .store import Program, Row

_COLUMNS = tuple(col(name) for name in ("family_key", "id", "spec", "created_at", "closed_through"))


class NewBoard(NamedTuple):
    """A board that a post needs."""

    id: str
    shelf: str  # see `family_ids.shelf`


@lru_cache(maxsize=1_024)
def family_spec(text: str) -> FamilySpec:
    """A specification as the catalog holds it."""
    return msgspec.json.decode(text, type=FamilySpec)


def _family(row: Row) -> Family:
    key, family_id, spec, created_at, closed_through = row
    try:
        described = family_spec(spec)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"the catalog's row of the family {family_id!r} is damaged: restore a backup") from error
    return Family(key, family_id, described, created_at, closed_through)


def _spec_text(spec: FamilySpec) -> str:
    return msgspec.json.encode(spec).decode()


def family_table(family: Family) -> Layout:
    """The table that a family's boards share; where each has its own, an empty one for those that nobody reached."""
    shared = family.shares_table
    table = shared_table(family.key) if shared else entries_table(family.key)
    return Layout(table, shared, columns_of(family.spec.board.columns, shared=shared))


def put_family(
    dialect: Dialect, *, family_id: str, spec: FamilySpec, now_us: int, families_max: int
) -> Program[tuple[Family, bool]]:
    """Make a family, or change the one that there is to this; whether it is new.

    Raises:
        TooManyFamilies: the store holds `families_max` already.
        SpecConflict: the change would reinterpret or drop stored values, or a board's id begins as the family's do.
    """
    rows = yield _by_id(Lock.UPDATE).build(dialect, id=family_id)
    if rows:
        return (yield from _change(dialect, _family(rows[0]), spec)), False
    [[families]] = yield select(count()).from_(FAMILIES).build(dialect)
    if families >= families_max:
        raise TooManyFamilies(f"this store holds {families_max} families, as many as catalog_families_max allows")
    taken = yield from list_boards(dialect, prefix=f"{family_id}:", after="", limit=1)
    if taken:
        raise SpecConflict(f"there is a leaderboard {taken[0].id!r}, which would be taken for one of the family")
    family = Family((yield from next_in(dialect, "board_key")), family_id, spec, now_us)
    yield (
        insert(FAMILIES)
        .values(family_key=family.key, id=family_id, spec=_spec_text(spec), created_at=now_us)
        .build(dialect)
    )
    for query in create_rows(family_table(family)):
        yield query.build(dialect)
    return family, True


def _change(dialect: Dialect, family: Family, wanted: FamilySpec) -> Program[Family]:
    stored = family.spec
    if wanted.time_zone != stored.time_zone:
        detail = f"time_zone is {stored.time_zone!r} and can't be changed: it says which period posts were counted in"
        raise SpecConflict(detail, pointer="/time_zone")
    if wanted.grace_seconds > stored.grace_seconds:
        detail = f"grace_seconds is {stored.grace_seconds} and can only be shortened: closed periods stay closed"
        raise SpecConflict(detail, pointer="/grace_seconds")
    for name in ("periods", "facets"):
        if set(getattr(wanted, name)) != set(getattr(stored, name)):
            detail = f"{name} can't be changed: the posts that came before would be missing on a new board"
            raise SpecConflict(detail, pointer=f"/{name}")
    added = added_columns(stored.board, wanted.board)
    board = replace(stored.board, columns=stored.board.columns + added, predictor=wanted.board.predictor)
    spec = replace(stored, board=board, keep=wanted.keep)
    if wanted.grace_seconds < stored.grace_seconds:
        spec = replace(
            spec, grace_seconds=wanted.grace_seconds, first_grace_seconds=stored.longest_grace_us // 1_000_000
        )
        yield from _close_earlier(dialect, family, stored.grace_seconds - wanted.grace_seconds)
    if spec == stored:
        return family
    changed = replace(family, spec=spec)
    if board != stored.board:
        yield from _change_boards(dialect, family, board)
    if (spec.keep, spec.grace_seconds) != (
        stored.keep,
        stored.grace_seconds,
    ):  # closed boards are looked at again, whatever was found before
        closed = col("closed_at").not_null(), col("archived_at").is_null()
        looked_at = update(BOARDS).set(due_at=0).where(col("family_key").eq(param("key")), *closed)
        yield looked_at.build(dialect, key=family.key)
    yield (
        update(FAMILIES)
        .set(spec=_spec_text(spec))
        .where(col("family_key").eq(param("key")))
        .build(dialect, key=family.key)
    )
    return changed


def _close_earlier(dialect: Dialect, family: Family, seconds: int) -> Program[None]:
    """Have the open boards of a family close earlier; those whose time is over then are due at once."""
    still_open = col("closes_at").not_null(), col("closed_at").is_null()
    sooner = -seconds * 1_000_000
    yield (
        update(BOARDS)
        .set(closes_at=plus(col("closes_at"), sooner), due_at=plus(col("closes_at"), sooner))
        .where(col("family_key").eq(param("key")), *still_open)
        .build(dialect, key=family.key)
    )


def _change_boards(dialect: Dialect, family: Family, spec: BoardSpec) -> Program[None]:
    """Give every board of a family this spec, and have other processes see that their copies are old ones."""
    changed = [replace(board, spec=spec) for board in (yield from _boards(dialect, family))]
    width = len(family.spec.board.columns)
    layouts = [family_table(replace(family, spec=replace(family.spec, board=spec)))]
    if not family.shares_table:
        layouts += [layout_of(board) for board in changed if board.archived_us is None]
    for layout in layouts:
        for query in widen_rows(layout, layout.columns[width:]):
            yield query.build(dialect)
    yield (
        update(BOARDS)
        .set(spec=spec_text(spec))
        .where(col("family_key").eq(param("key")))
        .build(dialect, key=family.key)
    )
    states = [(board.key, STATE, state_of(board)) for board in changed]
    yield (
        insert(TOTALS)
        .rows(param("rows"), board_key=INTEGER, column_index=INTEGER, entries=INTEGER)
        .on_conflict("board_key", "column_index")
        .overwrite()
        .build(dialect, rows=states)
    )


def delete_family(dialect: Dialect, *, family_id: str) -> Program[list[Board]]:
    """Drop a family with all its boards, which are answered. Its post ids are void: its key is never given again.

    Raises:
        UnknownFamily: there is none.
    """
    family = yield from existing_family(dialect, family_id, lock=Lock.UPDATE)
    boards = yield from _boards(dialect, family)
    own = [] if family.shares_table else [layout_of(board) for board in boards if board.archived_us is None]
    for layout in [family_table(family), *own]:
        yield drop_table(layout.table).build(dialect)
    yield delete(DROPPED_ROWS).where(col("table_key").eq(param("key"))).build(dialect, key=family.key)
    yield from leave_post_ids(dialect, family.key)
    leased = [refresh_resource(board.key, index) for board in boards for index in board.sorted_indexes]
    yield (
        delete(LEASES)
        .where(col("pool").eq(REFRESH_POOL), col("resource").in_(param("leased")))
        .build(dialect, leased=leased)
    )
    theirs = select(col("board_key")).from_(BOARDS).where(col("family_key").eq(param("key")))
    for table in (TOTALS, CURVES, LIVE_COUNTS, DEMANDS, ARCHIVE_BLOCKS, HIDDEN):
        yield delete(table).where(col("board_key").in_(theirs)).build(dialect, key=family.key)
    for table in (BOARDS, FAMILIES):
        yield delete(table).where(col("family_key").eq(param("key"))).build(dialect, key=family.key)
    return boards


def existing_family(dialect: Dialect, family_id: str, *, lock: Lock | None = None) -> Program[Family]:
    """The family of that id, its row locked where `lock` says so.

    Raises:
        UnknownFamily: there is none.
    """
    rows = yield _by_id(lock).build(dialect, id=family_id)
    if not rows:
        raise UnknownFamily(f"no family {family_id!r}")
    return _family(rows[0])


def families_by_key(dialect: Dialect, family_keys: Iterable[int]) -> Program[dict[int, Family]]:
    """Those of these families that exist, as they are now."""
    rows = yield _families_by_key(dialect).bind(keys=list(family_keys))
    return {row[0]: _family(row) for row in rows}


@lru_cache
def _families_by_key(dialect: Dialect) -> Statement:
    return select(*_COLUMNS).from_(FAMILIES).where(col("family_key").in_(param("keys"))).packed().compile(dialect)


def family_by_key(dialect: Dialect, family_key: int, *, lock: Lock) -> Program[Family | None]:
    """The family of that key, held; None where it was deleted."""
    found = select(*_COLUMNS).from_(FAMILIES).where(col("family_key").eq(param("key"))).locked(lock)
    rows = yield found.build(dialect, key=family_key)
    return _family(rows[0]) if rows else None


def list_families(dialect: Dialect, *, after: str, limit: int) -> Program[list[Family]]:
    """Families past `after`, by id."""
    found = select(*_COLUMNS).from_(FAMILIES).where(col("id").gt(after)).order_by(asc(col("id"))).limit(limit)
    rows = yield found.build(dialect)
    return [_family(row) for row in rows]


def count_boards(dialect: Dialect, family: Family) -> Program[int]:
    """How many boards posts have reached."""
    counted = select(count()).from_(BOARDS).where(col("family_key").eq(param("key")))
    [[boards]] = yield counted.build(dialect, key=family.key)
    return int(boards)


def make_boards(
    dialect: Dialect,
    family_id: str,
    wanted: Iterable[NewBoard],
    *,
    now_us: int,
    boards_max: int,
    own_tables_max: int | None = None,
) -> Program[list[Board]]:
    """The boards of these ids, made where they are missing; two processes that make the same ones get the same ones.

    Raises:
        UnknownFamily: it was deleted.
        TooManyBoards, TooManyOwnTables: see `check_room`.
    """
    family = yield from existing_family(dialect, family_id, lock=Lock.SHARE)
    asked = sorted(set(wanted))  # one order for all who make boards: no deadlock
    there = {board.id for board in (yield from _boards_named(dialect, asked))}
    missing = [new for new in asked if new.id not in there]
    if missing:
        own = not family.shares_table
        yield from check_room(dialect, new=len(missing), own=own, boards_max=boards_max, own_tables_max=own_tables_max)
        yield from _make(dialect, family, missing, now_us)
    return (yield from _boards_named(dialect, asked))


def _make(dialect: Dialect, family: Family, missing: Sequence[NewBoard], now_us: int) -> Program[None]:
    last = yield from next_many(dialect, "board_key", len(missing))
    text, shared = spec_text(family.spec.board), family.shares_table
    table_key = family.key if shared else None
    rows = []
    for index, new in enumerate(missing):
        named = parse_board_id(new.id)
        closes_us = None if named is None else family.spec.closes_us(named.period)
        key = last - index
        row = key, new.id, text, now_us, 1, table_key, key if shared else 0, family.key, new.shelf
        rows.append((*row, closes_us, closes_us))
    made = yield (
        insert(BOARDS)
        .rows(
            param("rows"),
            board_key=INTEGER,
            id=TEXT,
            spec=TEXT,
            created_at=INTEGER,
            epoch=INTEGER,
            table_key=INTEGER,
            rows_key=INTEGER,
            family_key=INTEGER,
            shelf=TEXT,
            closes_at=INTEGER,
            due_at=INTEGER,
        )
        .on_conflict("id")
        .do_nothing()
        .returning(*COLUMNS)
        .build(dialect, rows=rows)
    )
    if not shared:
        for board in map(board_of, made):
            for query in create_rows(layout_of(board)):
                yield query.build(dialect)


def boards_on_shelf(
    dialect: Dialect,
    family: Family,
    shelf: str,
    *,
    names: Sequence[str],
    values: Mapping[str, str],
    after: str,
    limit: int,
) -> Program[list[Board]]:
    """The boards of one period and one list of facets that posts reached, past an id, by id.

    `names`: the facets of the list, sorted; `values`: only boards of these values.
    """
    found = select(*COLUMNS).from_(BOARDS).where(col("family_key").eq(param("key")), col("shelf").eq(param("shelf")))
    rows = yield (
        found.where(col("id").gt(param("after")), *_facets_in_id(names, values))
        .order_by(asc(col("id")))
        .limit(limit)
        .build(dialect, key=family.key, shelf=shelf, after=after)
    )
    return [board_of(row) for row in rows]


def _facets_in_id(names: Sequence[str], values: Mapping[str, str]) -> Iterator[Condition]:
    """Whether an id, `family:period:name=value,name=value`, has these values; neither holds a delimiter."""
    for index, name in enumerate(names):
        if name not in values:
            continue
        pair = f"{',' if index else ':'}{name}={values[name]}"
        if index < len(names) - 1:
            yield holds(col("id"), f"{pair},")
        else:
            end = part(col("id"), plus(length(col("id")), 1 - len(pair)), len(pair))
            yield all_of(length(col("id")).ge(len(pair)), end.eq(pair))


def _by_id(lock: Lock | None) -> Select:
    found = select(*_COLUMNS).from_(FAMILIES).where(col("id").eq(param("id")))
    return found if lock is None else found.locked(lock)


def _boards(dialect: Dialect, family: Family) -> Program[list[Board]]:
    rows = yield select(*COLUMNS).from_(BOARDS).where(col("family_key").eq(param("key"))).build(dialect, key=family.key)
    return [board_of(row) for row in rows]


def _boards_named(dialect: Dialect, wanted: Sequence[NewBoard]) -> Program[list[Board]]:
    return (yield from boards_by_id(dialect, [new.id for new in wanted]))

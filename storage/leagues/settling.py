"""Settles a shut board's cohorts in bounded steps: final ranks, new divisions, and seats for owners who have waited.

The closing job runs one transaction for each step. The seats themselves show which of them have a result (`moved` is
not null). So after a crash, any process can run the next step, which continues with the first seat without a result.
"""

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

from querybuilder import INTEGER, TEXT, asc, col, param, select, update
from storage.leaves.entries import Entries
from storage.records import INT64_MAX, Leaf, LeagueSpec
from storage.schema.tables import SEATS
from storage.store import Program

from .cohorts import COHORT_MAX, WAITING, Seat, Zone, make_cohort, rank_cohort, split_cohort, take_whole
from .seats import OpenCohort, hold_cohort, store_cohorts
from .standings import NEVER, find_division, hold_standings, store_results

_MOVES = {Zone.PROMOTION: 1, Zone.SAFE: 0, Zone.RELEGATION: -1}


def settle_cohorts(entries: Entries, *, after: int, rows_max: int) -> Program[int | None]:
    """Settle the next cohorts of a shut board, with about `rows_max` seats in all. Run this in its partition.

    `after`: the last cohort of the previous step. Return the last cohort of this step, or None if no cohorts are left.
    """
    leaf, limit = entries.leaf, rows_max + COHORT_MAX
    rows = yield _UNSETTLED.bind(key=leaf.key, after=after, limit=limit)
    seats, last = take_whole([Seat(*row) for row in rows], limit)
    if seats:
        yield from _settle(entries, seats)
    return last


def has_unsettled(leaf: Leaf) -> Program[tuple[bool, bool]]:
    """Return whether any result of a period is missing, and whether owners wait for results of an earlier period."""
    first = yield _UNSETTLED.bind(key=leaf.key, after=WAITING - 1, limit=1)
    return bool(first), bool(first) and first[0][1] == WAITING


def _settle(entries: Entries, seats: Sequence[Seat]) -> Program[None]:
    leaf, league = entries.leaf, entries.leaf.spec.league
    assert league is not None
    assert leaf.family_key is not None
    owners, top = [each.owner for each in seats], len(league.divisions) - 1
    rows = yield from entries.find_entries(owners)
    index = next(index for index in leaf.sorted_indexes if leaf.spec.columns[index].name == league.column)
    ranking, results = entries.rankings[index], dict.fromkeys(owners, (0, 0))
    divisions: dict[str, int] = {}
    for cohort, theirs in groupby(seats, attrgetter("cohort")):
        names = [each.owner for each in theirs]
        there = [row for name in names if (row := rows.get(name)) is not None]
        for entry, rank, zone in rank_cohort(league, cohort, ranking, there):
            results[entry.owner] = rank or 0, _MOVES[zone]
        begun = split_cohort(cohort)[0]
        divisions |= {name: min(max(0, begun + results[name][1]), top) for name in names}
    # This locks the standings. Only then look for waiting owners: a post that makes its owner wait holds the standing.
    yield from store_results(leaf.family_key, divisions, leaf.gate.ends_us or NEVER)
    yield _SETTLE.bind(rows=[(leaf.key, each.cohort, each.owner, *results[each.owner]) for each in seats])
    yield from _seat_waiting(leaf.family_key, league, owners)


def _seat_waiting(family_key: int, league: LeagueSpec, owners: Sequence[str]) -> Program[None]:
    first: dict[str, tuple[int, int, int]] = {}
    for owner, *place in (yield _OPEN_SEATS.bind(key=family_key, owners=owners)):
        first[owner] = min(first.get(owner, (INT64_MAX, 0, 0)), (place[0], place[1], place[2]))
    waiting: dict[int, list[tuple[int, str]]] = {}  # by leaf: pairs of a division and an owner
    theirs = {owner: place for owner, place in first.items() if place[2] == WAITING}
    standings = (yield from hold_standings(family_key, theirs)) if theirs else {}
    for owner, (ends_us, leaf_key, _) in theirs.items():
        division = find_division(league, standings.get(owner), ends_us)
        waiting.setdefault(leaf_key, []).append((division, owner))
    for leaf_key, pairs in sorted(waiting.items()):
        cohorts: dict[int, OpenCohort] = {}
        taken = []
        for division, owner in sorted(pairs):
            if division not in cohorts:
                cohorts[division] = yield from hold_cohort(leaf_key, division, owner)
            number = cohorts[division].take_seat(league.cohort_size)
            taken.append((leaf_key, owner, make_cohort(division, number)))
        yield _SEAT.bind(rows=taken)
        yield from store_cohorts(leaf_key, cohorts)


_ALIAS = "v"
_key, _unsettled = col("leaf_key").eq(param("key")), col("moved").is_null()
_seats = select(*map(col, Seat._fields)).from_(SEATS).where(_key, col("cohort").gt(param("after")), _unsettled)
_UNSETTLED = _seats.order_by(asc(col("cohort")), asc(col("owner"))).limit(param("limit")).packed().prepared()
_same_seat = [col(name, SEATS).eq(col(name, _ALIAS)) for name in ("leaf_key", "cohort", "owner")]
_settled = update(SEATS).set(rank=col("place", _ALIAS), moved=col("step", _ALIAS))
_row = {"leaf_key": INTEGER, "cohort": INTEGER, "owner": TEXT, "place": INTEGER, "step": INTEGER}
_SETTLE = _settled.from_rows(_ALIAS, param("rows"), **_row).where(*_same_seat).prepared()
_theirs = col("owner").in_(param("owners", TEXT)), col("family_key").eq(param("key")), _unsettled
_open = select(*map(col, ("owner", "ends_at", "leaf_key", "cohort"))).from_(SEATS).where(*_theirs)
_OPEN_SEATS = _open.packed().prepared()
_seated = update(SEATS).set(cohort=col("taken", _ALIAS))
_seated = _seated.from_rows(_ALIAS, param("rows"), leaf_key=INTEGER, owner=TEXT, taken=INTEGER)
_SEAT = _seated.where(*_same_seat[::2], col("cohort", SEATS).eq(WAITING)).prepared()

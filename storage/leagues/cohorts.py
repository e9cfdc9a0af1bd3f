"""Reads cohorts and ranks them, exactly and in memory, because a cohort has at most a few hundred owners.

A hidden owner keeps its seat but has no row on the board, so it neither appears in the cohort nor lowers anyone's rank.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from operator import attrgetter, itemgetter
from typing import NamedTuple

from querybuilder import asc, col, count, desc, lit, param, remainder, select, sum_
from storage.leaves.rankings import Ranking
from storage.records import Entry, Leaf, LeagueSpec
from storage.schema.tables import SEATS
from storage.store import Program

DIVISIONS_MAX = 32
COHORT_MAX = 200  # the most seats of a cohort
WAITING = 0  # in place of a cohort: the owner waits for the result of an earlier period
SMALL = 3  # a cohort with less than this part of its seats taken moves owners in proportion


class Zone(StrEnum):
    """The zones of a cohort: whose owners rise, stay or fall when the period ends."""

    PROMOTION = "promotion"
    SAFE = "safe"
    RELEGATION = "relegation"


def make_cohort(division: int, number: int) -> int:
    """Combine a division and a cohort's `number` within it, counted from 1, into the cohort number that seats store."""
    return number * DIVISIONS_MAX + division


def split_cohort(cohort: int) -> tuple[int, int]:
    """Split a cohort number into its division and the cohort's number within the division."""
    return cohort % DIVISIONS_MAX, cohort // DIVISIONS_MAX


class Seat(NamedTuple):
    owner: str
    cohort: int
    rank: int | None  # the final one; 0: none; None: the result is not in yet
    moved: int | None  # by how many divisions; None: the result is not in yet


class Placed(NamedTuple):
    entry: Entry
    rank: int | None  # None: the entry has no value in the column of the league
    zone: Zone


def rank_cohort(league: LeagueSpec, cohort: int, ranking: Ranking, entries: Iterable[Entry]) -> list[Placed]:
    """Rank the visible owners of a cohort, best first. Those without a value come last, and are never promoted."""
    index = ranking.index
    there = sorted(entries, key=attrgetter("owner"))
    unranked = [entry for entry in there if entry.cells[index] is None]
    ordered = [(str(cell), entry) for entry in there if (cell := entry.cells[index]) is not None]
    ordered.sort(key=itemgetter(0), reverse=ranking.padding.high)  # owners of equal cells stay in their order
    promoted, safe = _find_limits(league, split_cohort(cohort)[0], len(ordered), len(unranked))
    placed: list[Placed] = []
    rank, last = 0, None
    for number, (cell, entry) in enumerate(ordered, 1):
        if ranking.timed or cell != last:
            rank, last = number, cell
        placed.append(Placed(entry, rank, _find_zone(rank, promoted, safe)))
    for number, entry in enumerate(unranked, len(ordered) + 1):
        placed.append(Placed(entry, None, _find_zone(number, promoted, safe)))
    return placed


def _find_zone(rank: int, promoted: int, safe: int) -> Zone:
    return Zone.PROMOTION if rank <= promoted else Zone.SAFE if rank <= safe else Zone.RELEGATION


def _find_limits(league: LeagueSpec, division: int, ranked: int, unranked: int) -> tuple[int, int]:
    rules, owners = league.divisions[division], ranked + unranked
    promoted, relegated = rules.promote, rules.relegate
    if owners * SMALL < league.cohort_size:
        promoted, relegated = (owners * each // league.cohort_size for each in (promoted, relegated))
    promoted = min(promoted, ranked)
    return promoted, max(promoted, owners - relegated)


def read_seats_beside(leaf: Leaf, owner: str) -> Program[list[Seat]]:
    """Read all seats in an owner's cohort in the period of a leaf, or nothing if the owner has no seat in a cohort."""
    return [Seat(*row) for row in (yield _BESIDE.bind(key=leaf.key, owner=owner))]


def read_cohort(leaf: Leaf, cohort: int) -> Program[list[Seat]]:
    return [Seat(*row) for row in (yield _COHORT.bind(key=leaf.key, cohort=cohort))]


def is_waiting(leaf: Leaf, owner: str) -> Program[bool]:
    """Return whether an owner is waiting for the result of an earlier period before it gets a seat."""
    return bool((yield _WAITS.bind(key=leaf.key, owner=owner)))


def take_whole(seats: list[Seat], limit: int) -> tuple[list[Seat], int | None]:
    """Keep only the seats of whole cohorts, from seats ordered by cohort. Also return the last whole cohort.

    It is None if all seats were read. `limit`: how many seats were read at most, more than `COHORT_MAX`.
    """
    if len(seats) < limit:
        return seats, None
    whole = [each for each in seats if each.cohort != seats[-1].cohort]
    return whole, whole[-1].cohort


def list_winners(leaf: Leaf, to_rank: int, *, after: int, rows_max: int) -> Program[tuple[list[Seat], int | None]]:
    """List about `rows_max` seats with final ranks up to `to_rank`, in the cohorts that follow `after`.

    `after`: the last cohort of the previous call. Also return the last cohort of this call, or None if none are left.
    """
    limit = rows_max + COHORT_MAX
    rows = yield _WINNERS.bind(key=leaf.key, after=after, to_rank=to_rank, limit=limit)
    return take_whole([Seat(*row) for row in rows], limit)


class PastSeat(NamedTuple):
    ends_us: int  # when the period ends
    cohort: int
    rank: int  # 0: none
    moved: int
    seats: int  # of the cohort


def list_past_seats(family_key: int, owner: str, *, before_us: int, limit: int) -> Program[list[PastSeat]]:
    """List up to `limit` results of an owner in a league, newest first, from periods that ended before `before_us`."""
    rows = yield _PAST.bind(family_key=family_key, owner=owner, before_us=before_us, limit=limit)
    return [PastSeat(*row) for row in rows]


def list_open_leaves(family_key: int, owner: str) -> Program[list[int]]:
    """List the keys of the leaves in which an owner has a seat, or waits for one, but has no result yet."""
    return [key for (key,) in (yield _OPEN.bind(family_key=family_key, owner=owner))]


class DivisionCount(NamedTuple):
    division: int
    cohorts: int
    owners: int


def count_divisions(leaf: Leaf) -> Program[Sequence[DivisionCount]]:
    """Count the seats and cohorts of each division in a leaf's period. This reads all seats."""
    return [DivisionCount(*row) for row in (yield _COUNTED.bind(key=leaf.key))]


_cohort, _of_leaf, _is_owner = col("cohort"), col("leaf_key").eq(param("key")), col("owner").eq(param("owner"))
_seats = select(*map(col, Seat._fields)).from_(SEATS).where(_of_leaf)
_COHORT = _seats.where(_cohort.eq(param("cohort"))).order_by(asc(col("owner"))).packed().prepared()
_winners = _seats.where(_cohort.gt(param("after")), col("rank").ge(1), col("rank").le(param("to_rank")))
_in_order = asc(_cohort), asc(col("rank")), asc(col("owner"))
_WINNERS = _winners.order_by(*_in_order).limit(param("limit")).packed().prepared()
# A second condition on the outer query's cohort would make SQLite read all seats of the leaf.
_own = select(_cohort).from_(SEATS).where(_of_leaf, _is_owner, _cohort.gt(WAITING)).scalar()
_BESIDE = _seats.where(_cohort.eq(_own)).order_by(asc(col("owner"))).packed().prepared()
_WAITS = select(lit(1)).from_(SEATS).where(_of_leaf, _is_owner, _cohort.eq(WAITING)).prepared()
_in_league = _is_owner, col("family_key").eq(param("family_key"))
_OPEN = select(col("leaf_key")).from_(SEATS).where(*_in_league, col("moved").is_null()).packed().prepared()
_beside = [col(name, "b").eq(col(name, "s")) for name in ("leaf_key", "cohort")]
_size = select(count()).from_(SEATS, "b").where(*_beside).scalar()
_past = select(*(col(name, "s") for name in ("ends_at", "cohort", "rank", "moved")), _size).from_(SEATS, "s")
_past = _past.where(*_in_league, col("moved").not_null(), col("ends_at").lt(param("before_us")))
_PAST = _past.order_by(desc(col("ends_at"))).limit(param("limit")).packed().prepared()
_sizes = select(remainder(_cohort, DIVISIONS_MAX).as_("division"), count().as_("owners")).from_(SEATS)
_sizes = _sizes.where(_of_leaf, _cohort.gt(WAITING)).group_by(_cohort)
_division = col("division")
_counted = select(_division, count(), sum_(col("owners"))).from_(_sizes).group_by(_division)
_COUNTED = _counted.order_by(asc(_division)).prepared()

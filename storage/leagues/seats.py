"""Assigns seats in cohorts: `hold_seats` reads what is needed, `SeatChanges` decides, and `store_seats` writes.

A division's cohorts fill one after the other. Each open cohort is a row that counts its seats, and a transaction that
assigns a seat locks this row. If other transactions hold all of a division's rows, another cohort is opened, up to
`SLOTS` of them. So posts do not wait for each other, and only as many cohorts are partly filled as were needed at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from querybuilder import TEXT, Lock, asc, col, count, delete, excluded, insert, param, select, update
from storage.errors import LostRaceError
from storage.records import Leaf, LeagueSpec, segment_of
from storage.schema.placement import TABLES
from storage.schema.tables import FAMILY_GATES, OPEN_COHORTS, SEATS, STANDINGS
from storage.store import Program

from .cohorts import WAITING, make_cohort
from .standings import NEVER, Standing, add_newcomers, find_division, hold_standings

SLOTS = 8
SLOT_NUMBERS = 10_000_000  # the cohorts of a slot have numbers from its own range
NewSeat = tuple[int, int, str, int, int]  # a row of the table: leaf, cohort, owner, league, end of the period


class OpenCohort(msgspec.Struct):
    """A division's cohort that is being filled. The transaction has locked its row."""

    slot: int
    number: int
    seats: int

    def take_seat(self, size: int) -> int:
        if self.number == 0 or self.seats >= size:
            self.number, self.seats = max(self.number, self.slot * SLOT_NUMBERS) + 1, 0
        self.seats += 1
        return self.number


class AskedSeats(NamedTuple):
    leaf: Leaf
    owners: set[str]
    wanted: Mapping[str, int]  # the divisions in which newcomers are to begin, by owner; the others begin in the first


class Seats(msgspec.Struct):
    """The owners who may need seats in one leaf's period for a group of posts, and what is known of them."""

    leaf: Leaf
    league: LeagueSpec
    wanted: Mapping[str, int]  # as in `AskedSeats`
    seated: set[str] = set()  # who has a seat already, or waits for one
    unsettled: set[str] = set()  # whose result of an earlier period is not in yet
    standings: dict[str, Standing] = {}
    open: dict[int, OpenCohort] = {}  # by division

    @property
    def family_key(self) -> int:
        assert self.leaf.family_key is not None
        return self.leaf.family_key

    @property
    def ends_us(self) -> int:
        return self.leaf.gate.ends_us or NEVER

    def find_division(self, owner: str) -> int:
        return find_division(self.league, self.standings.get(owner), self.ends_us, wanted=self.wanted.get(owner, 0))


def hold_seats(asked: Iterable[AskedSeats]) -> Program[dict[int, Seats]]:
    """Lock the standings of owners without an entry, and an open cohort of each division in which they may need a seat.

    Return what is known of them, by leaf key. Run this in the partition of the leaves.
    """
    asked = sorted(asked, key=lambda each: (each.leaf.family_key or 0, each.leaf.key))
    found = yield from _read_owners(asked)
    for seats, (leaf, owners, _) in zip(found, asked, strict=True):
        free = owners - seats.seated - seats.unsettled
        for division in sorted({seats.find_division(owner) for owner in free}):
            seats.open[division] = yield from hold_cohort(leaf.key, division, min(free))
    return {each.leaf.key: each for each in found}


def _read_owners(asked: Sequence[AskedSeats]) -> Program[list[Seats]]:
    standings: dict[int, dict[str, Standing]] = {}
    for family_key in sorted({each.leaf.family_key or 0 for each in asked}):
        theirs = set[str]().union(*(each.owners for each in asked if each.leaf.family_key == family_key))
        standings[family_key] = yield from hold_standings(family_key, theirs)
    found = []
    for leaf, owners, wanted in asked:
        assert leaf.spec.league is not None
        seats = Seats(leaf, leaf.spec.league, wanted, standings=standings[leaf.family_key or 0])
        for owner, leaf_key, ends_us, moved in (yield _OF_OWNERS.bind(key=leaf.family_key, owners=sorted(owners))):
            if leaf_key == leaf.key:
                seats.seated.add(owner)
            elif moved is None and ends_us < seats.ends_us:
                seats.unsettled.add(owner)
        found.append(seats)
    return found


def hold_cohort(leaf_key: int, division: int, owner: str) -> Program[OpenCohort]:
    """Lock the row of an open cohort. If other transactions hold all rows, `owner` decides which one to wait for."""
    place, slots = {"key": leaf_key, "division": division}, 0
    while slots < SLOTS:
        if rows := (yield _NEXT.bind(**place)):
            return OpenCohort(*rows[0])
        [[slots]] = yield _COUNT_SLOTS.bind(**place)
        if slots < SLOTS:
            yield _OPEN.bind(**place, slot=slots)
    [row] = yield _HOLD_SLOT.bind(**place, slot=segment_of(owner, SLOTS))
    return OpenCohort(*row)


def store_cohorts(leaf_key: int, cohorts: Mapping[int, OpenCohort]) -> Program[None]:
    rows = [(leaf_key, division, *msgspec.structs.astuple(each)) for division, each in sorted(cohorts.items())]
    yield _STORE_COHORTS.bind(rows=rows)


class SeatChanges:
    """Collects the seats that a group of posts takes in the period of one leaf."""

    def __init__(self, facts: Seats, others: Sequence["SeatChanges"]) -> None:
        """Start without changes. `others`: the changes that the same group makes in other periods and leagues."""
        self._facts, self._others, self.leaf = facts, others, facts.leaf
        self._cohorts = {division: msgspec.structs.replace(each) for division, each in facts.open.items()}
        self.taken: dict[str, int] = {}  # by owner: the cohort
        self.newcomers: dict[str, int] = {}  # by owner: the division
        self.used: dict[int, OpenCohort] = {}  # by division

    def take_seat(self, owner: str) -> None:
        facts = self._facts
        if owner in facts.seated or owner in self.taken:
            return
        related = [each for each in self._others if each._facts.family_key == facts.family_key]
        division = next((each.newcomers[owner] for each in related if owner in each.newcomers), None)
        earlier = any(owner in each.taken and each._facts.ends_us < facts.ends_us for each in related)
        if owner in facts.unsettled or earlier:
            self.taken[owner] = WAITING
            return
        if division is None:
            division = facts.find_division(owner)
            if owner not in facts.standings:
                self.newcomers[owner] = division
        self.used[division] = cohort = self._cohorts[division]
        self.taken[owner] = make_cohort(division, cohort.take_seat(facts.league.cohort_size))

    def list_seats(self) -> list[NewSeat]:
        facts = self._facts
        return [(self.leaf.key, cohort, owner, facts.family_key, facts.ends_us) for owner, cohort in self.taken.items()]


def store_seats(changes: Sequence[SeatChanges]) -> Program[None]:
    """Store the seats that a group takes. Run this in the partition of the leaves.

    Raises:
        LostRaceError: another transaction has assigned an owner a seat first.
    """
    for each in changes:
        if each.used:
            yield from store_cohorts(each.leaf.key, each.used)
    newcomers = [
        (each.leaf.family_key or 0, owner, division) for each in changes for owner, division in each.newcomers.items()
    ]
    added = (yield from add_newcomers(newcomers)) if newcomers else 0
    seats = sorted(seat for each in changes for seat in each.list_seats())
    if seats:
        [[stored]] = yield _TAKE.bind(rows=seats)
        if (added, stored) != (len(newcomers), len(seats)):
            raise LostRaceError("another transaction has given an owner a seat")


def forget_seats(leaf: Leaf, owners: Iterable[str]) -> Program[None]:
    """Remove erased owners' seats in the period of a leaf. The other owners of their cohorts keep their seats."""
    yield _FORGET_HERE.bind(key=leaf.key, owners=sorted(owners))


def leave_leagues(owners: Iterable[str]) -> Program[None]:
    names = sorted(owners)
    yield _FORGET_STANDINGS.bind(owners=names)
    yield _FORGET.bind(owners=names)


def forget_standing(family_key: int, owner: str) -> Program[bool]:
    """Remove an owner's standing in a league, which it later rejoins as a newcomer. Return whether there was one."""
    [[gone]] = yield _FORGET_STANDING.bind(key=family_key, owner=owner)
    return bool(gone)


def move_owner(owner: str, into: str) -> Program[None]:
    """Transfer a merged owner's seats and standings to `into`, who keeps its own for the same periods."""
    theirs = yield _LEAGUES_OF.bind(owner=into)
    yield _LEAVE_AMONG.bind(owner=owner, keys=[key for (key,) in theirs])
    yield _MOVE_STANDINGS.bind(owner=owner, into=into)
    theirs = yield _LEAVES_OF.bind(owner=into)
    yield _FORGET_AMONG.bind(owner=owner, keys=[key for (key,) in theirs])
    yield _MOVE.bind(owner=owner, into=into)


_leaf_key, _owner, _slot = map(col, ("leaf_key", "owner", "slot"))
_of_division = _leaf_key.eq(param("key")), col("division").eq(param("division"))
_cohorts = select(*map(col, ("slot", "number", "seats"))).from_(OPEN_COHORTS).where(*_of_division)
_NEXT = _cohorts.order_by(asc(_slot)).limit(1).locked(Lock.NEXT).prepared()
_HOLD_SLOT = _cohorts.where(_slot.eq(param("slot"))).locked(Lock.NO_KEY_UPDATE).prepared()
_COUNT_SLOTS = select(count()).from_(OPEN_COHORTS).where(*_of_division).prepared()
_first = insert(OPEN_COHORTS).values(
    leaf_key=param("key"), division=param("division"), slot=param("slot"), number=0, seats=0
)
_OPEN = _first.on_conflict("leaf_key", "division", "slot").do_nothing().prepared()
_put_cohorts = insert(OPEN_COHORTS).rows(param("rows"), **TABLES[OPEN_COHORTS].kinds)
_stored = _put_cohorts.on_conflict("leaf_key", "division", "slot")
_STORE_COHORTS = _stored.do_update(number=excluded("number"), seats=excluded("seats")).prepared()

_seat = {name: kind for name, kind in TABLES[SEATS].kinds.items() if name not in ("rank", "moved")}
_TAKE = insert(SEATS).rows(param("rows"), **_seat).on_conflict("owner", "leaf_key").do_nothing().prepared()
_among, _named = _owner.in_(param("owners", TEXT)), _owner.eq(param("owner"))
_OF_OWNERS = (
    select(_owner, _leaf_key, col("ends_at"), col("moved"))
    .from_(SEATS)
    .where(_among, col("family_key").eq(param("key")))
    .packed()
    .prepared()
)
_FORGET_HERE = delete(SEATS).where(_leaf_key.eq(param("key")), _among).prepared()
_FORGET = delete(SEATS).where(_among).prepared()
# No index starts with the owner. The key starts with the league, so name all leagues, of which a partition has few.
_leagues = col("family_key").in_(select(col("family_key")).from_(FAMILY_GATES))
_FORGET_STANDINGS = delete(STANDINGS).where(_leagues, _among).prepared()
_FORGET_STANDING = delete(STANDINGS).where(col("family_key").eq(param("key")), _named).prepared()
_LEAVES_OF = select(_leaf_key).from_(SEATS).where(_named).packed().prepared()
_FORGET_AMONG = delete(SEATS).where(_named, _leaf_key.in_(param("keys"))).prepared()
_MOVE = update(SEATS).set(owner=param("into")).where(_named).prepared()
_LEAGUES_OF = select(col("family_key")).from_(STANDINGS).where(_leagues, _named).packed().prepared()
_LEAVE_AMONG = delete(STANDINGS).where(_named, col("family_key").in_(param("keys"))).prepared()
_MOVE_STANDINGS = update(STANDINGS).set(owner=param("into")).where(_leagues, _named).prepared()

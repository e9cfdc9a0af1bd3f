"""Test leagues against a plain model: seasons with joins, absences, ties, late posts, hidden owners and deaths."""

import asyncio
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from querybuilder import SQLITE, Prepared, asc, col, count, select
from storage.archive.board_closing import shut_boards
from storage.boards.families import delete_family
from storage.boards.shared_tables import sweep_rows
from storage.errors import LostRaceError, OutdatedFactsError, SpecConflictError
from storage.leagues import cohorts
from storage.leagues.cohorts import WAITING, split_cohort
from storage.leagues.seats import SLOTS
from storage.leagues.settling import has_unsettled, settle_cohorts
from storage.periods import PeriodSpec
from storage.records import Absent, Board, DivisionSpec, Family, FamilySpec, LeagueSpec, Post, PostStatus, Ties
from storage.schema.placement import BOARD_TABLES
from storage.schema.tables import OPEN_COHORTS, SEATS, STANDINGS
from storage.store import Program
from tests.storage.backends import OpenStore
from tests.storage.boards.test_families import make_family_post
from tests.storage.deployment import NOW_US, Deployment, Session, ranked, run_machine, spec

S = 1_000_000
HOUR_US, GRACE_S = 3_600 * S, 600
DAY_US = 24 * HOUR_US
START_US = NOW_US - NOW_US % DAY_US
XP = ranked("xp", min_scaled=0, max_scaled=1_000)
OWNERS = ("ada", "bob", "eve", "joe", "sue", "tom", "ÿ", "漢", "😀")
HOURS = (PeriodSpec("round", starts_at="2023-11-14T00:00:00", every="PT1H"),)
DIVISIONS = (DivisionSpec("bronze", 1), DivisionSpec("silver", 2, 1), DivisionSpec("gold", 0, 2))


def make_spec(absent: Absent = Absent.STAY, size: int = 3, divisions: Sequence[DivisionSpec] = DIVISIONS) -> FamilySpec:
    league = LeagueSpec("xp", size, tuple(divisions), absent, "round", "UTC", HOURS)
    board = replace(spec(XP, ties=Ties.EARLIEST), league=league)
    return FamilySpec(board, ("round",), "UTC", ((),), GRACE_S, (), declared=HOURS)


async def create_league(deployment: Deployment, league_id: str, wanted: FamilySpec) -> Family:
    board = replace(deployment.laid_out(wanted.board), segments=1)
    return await deployment.put_family(replace(wanted, board=board), league_id)


class Place(NamedTuple):
    """A seat as the store has it. The division is None while the owner waits."""

    division: int | None
    cohort: int
    rank: int | None
    moved: int | None


async def read_seats(deployment: Deployment, boards: Sequence[Board]) -> dict[int, dict[str, Place]]:
    """Return the seats of these boards, by leaf key and owner."""
    found: dict[int, dict[str, Place]] = {board.key: {} for board in boards}
    columns = map(col, ("leaf_key", "owner", "cohort", "rank", "moved"))
    query = select(*columns).from_(SEATS).order_by(asc(col("leaf_key")))
    for key, owner, cohort, rank, moved in await deployment.store.at(deployment.partition).read_query(query.bind()):
        if key in found:
            division = None if cohort == WAITING else split_cohort(cohort)[0]
            found[key][owner] = Place(division, cohort, rank, moved)
    return found


async def read_standings(deployment: Deployment, family: Family) -> dict[str, tuple[int, int]]:
    query = select(*map(col, ("owner", "division", "through_at"))).from_(STANDINGS)
    query = query.where(col("family_key").eq(family.key))
    rows = await deployment.store.at(deployment.partition).read_query(query.bind())
    return {owner: (division, through) for owner, division, through in rows}


def make_post(
    deployment: Deployment, family: Family, board: Board, owner: str, xp: int, *, at_us: int | None = None, **more: int
) -> Post:
    made = make_family_post(deployment, family, owner, xp, board)
    return msgspec.structs.replace(made, at_us=at_us, division=more.get("division"))


async def settle(deployment: Deployment, board: Board, *, rows_max: int = 1, dies: bool = False) -> None:
    """Settle some cohorts of a board, or die at the end of the transaction."""

    def program() -> Program[None]:
        yield from settle_cohorts(deployment.open_rows(board), after=WAITING, rows_max=rows_max)
        if dies:
            raise LostRaceError

    try:
        await deployment.store.at(board.home).write(program)
    except LostRaceError:
        assert dies


@dataclass
class Seated:
    division: int | None
    moved: int | None = None
    rank: int | None = None


@dataclass
class Plain:
    """The expected state of one league."""

    absent: Absent
    size: int
    seats: dict[int, dict[str, Seated]] = field(default_factory=lambda: defaultdict(dict))  # by period
    values: dict[int, dict[str, tuple[int, int]]] = field(default_factory=lambda: defaultdict(dict))  # and the time
    standings: dict[str, tuple[int, int]] = field(default_factory=dict)  # the division, and the last settled period
    hidden: set[str] = field(default_factory=set)

    def find_division(self, owner: str, period: int, wanted: int) -> int:
        if owner not in self.standings:
            return wanted
        division, through = self.standings[owner]
        missed = period - 1 - through if through else 0
        if missed > 0 and self.absent is Absent.LEAVE:
            return wanted
        return max(0, division - max(0, missed)) if self.absent is Absent.RELEGATE else division

    def post(self, owner: str, period: int, xp: int, at_us: int, wanted: int) -> None:
        if owner not in self.values[period] and owner not in self.seats[period]:
            waits = any(
                theirs[owner].moved is None for at, theirs in self.seats.items() if at < period and owner in theirs
            )
            division = None if waits else self.find_division(owner, period, wanted)
            self.seats[period][owner] = Seated(division)
            if division is not None:
                self.standings.setdefault(owner, (division, 0))
        value, reached_us = self.values[period].get(owner, (0, 0))
        self.values[period][owner] = value + xp, max(reached_us, at_us)

    def settle(self, period: int, owners: Sequence[str]) -> None:
        """Settle one cohort."""
        values, seats = self.values[period], self.seats[period]
        seen = [each for each in owners if each in values and each not in self.hidden]
        seen.sort(key=lambda each: (-values[each][0], values[each][1], each))
        rules = DIVISIONS[seats[owners[0]].division or 0]
        up, down = rules.promote, rules.relegate
        if 3 * len(seen) < self.size:
            up, down = len(seen) * up // self.size, len(seen) * down // self.size
        for owner in owners:
            rank = seen.index(owner) + 1 if owner in seen else 0
            moved = 0 if rank == 0 else 1 if rank <= up else -1 if rank > max(len(seen) - down, up) else 0
            seats[owner] = replace(seats[owner], rank=rank, moved=moved)
            division = min(max(0, (seats[owner].division or 0) + moved), len(DIVISIONS) - 1)
            if self.standings[owner][1] < period:
                self.standings[owner] = division, period
        for owner in owners:
            later = sorted(at for at, theirs in self.seats.items() if owner in theirs and theirs[owner].moved is None)
            if later and self.seats[later[0]][owner].division is None:
                self.seats[later[0]][owner].division = self.find_division(owner, later[0], 0)

    def erase(self, owner: str) -> None:
        for seats in self.seats.values():
            seats.pop(owner, None)
        for values in self.values.values():
            values.pop(owner, None)
        self.standings.pop(owner, None)
        self.hidden.discard(owner)


class LeagueMachine(RuleBasedStateMachine):
    """Compare a league with a plain model. Hypothesis chooses the order of the rules."""

    session: Session  # set by the test
    leagues = 0
    hidden: set[str]  # in all leagues

    @initialize(absent=st.sampled_from(Absent), size=st.sampled_from([2, 3, 9]))
    def begin(self, absent: Absent, size: int) -> None:
        type(self).leagues += 1
        self.deployment = self.session.deployment
        # Each league begins at the same hour of a later day, so that what Hypothesis draws depends on nothing earlier.
        self.deployment.clock.now_us = max(self.deployment.clock.now_us // DAY_US * DAY_US + DAY_US, START_US)
        if type(self).leagues == 1:
            type(self).hidden = set()
        self.plain = Plain(absent, size, hidden=self.hidden)
        self.boards, self.shut = dict[int, Board](), set[int]()
        making = create_league(self.deployment, f"league-{self.leagues}", make_spec(absent, size))
        self.family = self.session.run(making)
        self.erased = False

    def period(self, at_us: int) -> int:
        found = self.family.spec.calendar.period_at("round", at_us)
        assert found is not None
        assert found.number is not None
        return found.number

    def board(self, period: int) -> Board:
        if period not in self.boards:
            named = self.deployment.make_boards(f"round-{period}", family_id=self.family.id)
            [self.boards[period]] = self.session.run(named)
        return self.boards[period]

    @rule(
        posts=st.lists(
            st.tuples(
                st.sampled_from(OWNERS), st.integers(1, 3), st.sampled_from([0, 0, 0, 1]), st.none() | st.integers(0, 2)
            ),
            min_size=1,
            max_size=6,
        )
    )
    def post(self, posts: list[tuple[str, int, int, int | None]]) -> None:
        """Post in one group, some of the posts with times in the period before."""
        self.deployment.clock.now_us += S
        now_us, made = self.deployment.clock.now_us, []
        wanted = {owner: division for owner, _, _, division in reversed(posts) if division is not None}
        for owner, xp, late, division in posts:
            at_us = now_us
            if late and self.period(now_us - GRACE_S * S // 2) < self.period(now_us):
                at_us = now_us - GRACE_S * S // 2
            period = self.period(at_us)
            if period in self.shut:
                continue
            self.plain.post(owner, period, xp, at_us, wanted.get(owner, 0))
            more = {} if division is None else {"division": division}
            made.append(make_post(self.deployment, self.family, self.board(period), owner, xp, at_us=at_us, **more))
        if made:
            outcomes = self.session.run(self.deployment.apply(*made))
            assert {outcome.status for [outcome] in outcomes} == {PostStatus.APPLIED}

    @rule(minutes=st.sampled_from([5, 20, 55, 60, 200]))
    def pass_time(self, minutes: int) -> None:
        self.deployment.clock.now_us += minutes * 60 * S

    @rule()
    def shut_due(self) -> None:
        now_us = self.deployment.clock.now_us
        due = [
            at
            for at, board in self.boards.items()
            if at not in self.shut and (board.gate.ends_us or 0) + GRACE_S * S <= now_us
        ]
        if due:
            self.session.run(self.deployment.write(shut_boards, [self.boards[at] for at in due], now_us=now_us))
            self.shut.update(due)

    @precondition(lambda self: self.shut)
    @rule(data=st.data(), dies=st.sampled_from([False, False, True]), rows_max=st.sampled_from([1, 500]))
    def settle(self, data: st.DataObject, *, dies: bool, rows_max: int) -> None:
        period = data.draw(st.sampled_from(sorted(self.shut)))
        board = self.boards[period]
        _, waits = self.session.run(self.deployment.store.at(board.home).read(partial(has_unsettled, board.leaf)))
        assert waits == any(each.division is None for each in self.plain.seats[period].values())
        if waits:
            return
        before = self.session.run(read_seats(self.deployment, [board]))[board.key]
        self.session.run(settle(self.deployment, board, rows_max=rows_max, dies=dies))
        after = self.session.run(read_seats(self.deployment, [board]))[board.key]
        settled = [owner for owner in after if before[owner].moved is None and after[owner].moved is not None]
        assert not (dies and settled)
        assert bool(settled) is (not dies and any(each.moved is None for each in before.values()))
        for cohort in sorted({before[owner].cohort for owner in settled}):
            owners = [owner for owner in before if before[owner].cohort == cohort]
            assert {*owners} <= {*settled}, "a cohort is settled as a whole"
            self.plain.settle(period, owners)

    @rule(owner=st.sampled_from(OWNERS), hide=st.booleans())
    def hide(self, owner: str, *, hide: bool) -> None:
        self.session.run(self.deployment.change_owner(owner).set_hidden(hide=hide))
        (self.plain.hidden.add if hide else self.plain.hidden.discard)(owner)

    @rule(owner=st.sampled_from(OWNERS))
    def erase(self, owner: str) -> None:
        self.session.run(self.deployment.change_owner(owner).erase())
        self.plain.erase(owner)
        self.erased = True

    @invariant()
    def agrees(self) -> None:
        found = self.session.run(read_seats(self.deployment, [*self.boards.values()]))
        for period, board in self.boards.items():
            theirs = found[board.key]
            expected = {owner: (s.division, s.rank, s.moved) for owner, s in self.plain.seats[period].items()}
            assert {owner: (p.division, p.rank, p.moved) for owner, p in theirs.items()} == expected
            sizes = Counter(place.cohort for place in theirs.values() if place.cohort != WAITING)
            assert all(size <= self.plain.size for size in sizes.values())
            if not self.erased:
                partly = Counter(split_cohort(each)[0] for each, size in sizes.items() if size < self.plain.size)
                assert all(cohorts == 1 for cohorts in partly.values()), "cohorts fill one after the other"
        ends = {0: 0} | {at: board.gate.ends_us or 0 for at, board in self.boards.items()}
        standings = self.session.run(read_standings(self.deployment, self.family))
        assert standings == {owner: (each[0], ends[each[1]]) for owner, each in self.plain.standings.items()}


def test_a_league_agrees_with_a_plain_model(session: Session) -> None:
    run_machine(LeagueMachine, session, examples=12, steps=40)


async def test_no_cohort_is_over_its_size_and_no_owner_in_two_however_many_write_at_once(
    open_store: OpenStore,
) -> None:
    first = await Deployment.on(await open_store())
    first.clock.now_us = START_US
    family = await create_league(first, "l", make_spec(size=4))
    [board] = await first.make_boards("round-1", family_id="l")
    others = [first]
    if not first.store.sole_writer:
        others += [await Deployment.on(await open_store()) for _ in range(3)]
    names = [f"o{number}" for number in range(60)]

    async def post_all(deployment: Deployment, begin: int) -> None:
        deployment.clock.now_us = START_US
        rotated = names[begin:] + names[:begin]
        for start in range(0, len(rotated), 6):
            posts = [make_post(deployment, family, board, owner, 1) for owner in rotated[start : start + 6]]
            while True:
                try:
                    await deployment.apply(*posts)
                    break
                except (LostRaceError, OutdatedFactsError):
                    continue

    await asyncio.gather(*(post_all(each, 17 * at) for at, each in enumerate(others)))
    seats = (await read_seats(first, [board]))[board.key]
    assert seats.keys() == {*names}
    sizes = Counter(place.cohort for place in seats.values())
    assert max(sizes.values()) <= 4
    assert sum(size < 4 for size in sizes.values()) <= SLOTS
    assert (await first.stats(board, "o1")) == {"xp": len(others)}


async def test_a_league_that_is_deleted_leaves_nothing(deployment: Deployment) -> None:
    deployment.clock.now_us = START_US
    family = await create_league(deployment, "l", make_spec())
    [board] = await deployment.make_boards("round-1", family_id="l")
    await deployment.apply(*[make_post(deployment, family, board, f"o{at}", 1) for at in range(7)])
    await deployment.write(delete_family, family_id="l")
    store = deployment.store.at(family.partition)
    while await store.write(partial(sweep_rows, rows_max=2)):
        pass
    for table in (SEATS, STANDINGS, OPEN_COHORTS):
        assert await store.read_query(select(count()).from_(table).bind()) == [(0,)]


@pytest.mark.parametrize(
    "wanted",
    [
        make_spec(divisions=DIVISIONS[:2]),
        make_spec(divisions=(*DIVISIONS[1:], DIVISIONS[0])),
        replace(make_spec(), board=replace(make_spec().board, league=None)),
    ],
)
async def test_divisions_stay_and_may_be_appended(deployment: Deployment, wanted: FamilySpec) -> None:
    deployment.clock.now_us = START_US
    await create_league(deployment, "l", make_spec())
    with pytest.raises(SpecConflictError):
        await create_league(deployment, "l", wanted)
    more = make_spec(divisions=(*DIVISIONS, DivisionSpec("diamond", 0, 1)), size=5)
    changed = await create_league(deployment, "l", more)
    assert changed.spec.board.league is not None
    assert (changed.spec.board.league.cohort_size, len(changed.spec.board.league.divisions)) == (5, 4)
    assert changed.spec.board.settings_version == 1


async def test_a_merged_owner_brings_its_seat_and_its_division(deployment: Deployment) -> None:
    deployment.clock.now_us = START_US
    family = await create_league(deployment, "l", make_spec())
    [board] = await deployment.make_boards("round-1", family_id="l")
    await deployment.apply(make_post(deployment, family, board, "guest", 5, division=1))
    await deployment.apply(make_post(deployment, family, board, "bob", 5))
    before = (await read_seats(deployment, [board]))[board.key]
    await deployment.merge("guest", "ada")
    await deployment.merge("guest", "ada")
    assert (await read_seats(deployment, [board]))[board.key] == {"ada": before["guest"], "bob": before["bob"]}
    await deployment.merge("bob", "ada")
    assert (await read_seats(deployment, [board]))[board.key] == {"ada": before["guest"]}
    assert await read_standings(deployment, family) == {"ada": (1, 0)}


@pytest.mark.parametrize(("query", "asked"), [(cohorts._COHORT, {"cohort": 33}), (cohorts._BESIDE, {"owner": "ada"})])
def test_a_cohort_is_read_by_its_key_however_many_there_are(query: Prepared, asked: dict[str, object]) -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        for each in BOARD_TABLES:
            database.execute(each.compile(SQLITE).sql)
        built = query.bind(key=1, **asked).build(SQLITE)
        plan = [row[3] for row in database.execute("EXPLAIN QUERY PLAN " + built.sql, built.arguments)]
    assert "SEARCH seats USING PRIMARY KEY (leaf_key=? AND cohort=?)" in plan

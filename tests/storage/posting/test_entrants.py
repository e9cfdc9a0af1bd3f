"""Test who takes part in boards with entry rules: against a plain model, and with many processes at once."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from querybuilder import col, select
from storage.archive.board_closing import shut_boards
from storage.boards.boards import read_states
from storage.errors import (
    BoardFullError,
    LostRaceError,
    NoEntryRulesError,
    NoPostsLeftError,
    NotJoinedError,
    NotOpenError,
    OwnerMergedError,
    PeriodClosedError,
    UnknownBoardError,
)
from storage.leaves.entrants import COUNT
from storage.periods import PeriodKind
from storage.posting.joining import join_leaf
from storage.records import Board, EntryRules, PartOutcome, PostStatus, Season
from storage.schema.tables import ENTRANTS
from tests.storage.backends import OpenStore
from tests.storage.boards.test_families import make_family_post
from tests.storage.deployment import NOW_US, Deployment, Session, part, ranked, run_machine
from tests.storage.queueing import QueueDesk

XP = ranked("xp", min_scaled=0, max_scaled=12)
OWNERS = ("ada", "bob", "ÿ", "漢", "😀")
Rows = dict[str, tuple[int, bool]]  # by owner: how many posts were accepted, and whether the owner has joined


async def join(deployment: Deployment, board: Board, owner: str, *, opens_us: int | None = None) -> bool:
    """Let an owner join. Return whether the owner is new."""
    leaf = board.leaf_of(owner)
    joining = partial(join_leaf, leaf, owner, now_us=deployment.clock(), opens_us=opens_us)
    return (await deployment.store.at(leaf.partition).write(joining))[1]


async def read_rows(deployment: Deployment, board: Board) -> tuple[Rows, int | None]:
    """Return the stored rows of a board, and the stored number of its owners."""
    rows = select(col("owner"), col("posts"), col("joined_at")).from_(ENTRANTS).where(col("leaf_key").eq(board.key))
    found = await deployment.store.at(board.home).read_query(rows.bind())
    stored = {owner: (posts, joined is not None) for owner, posts, joined in found}
    count = stored.pop(COUNT, (None, False))[0]
    return stored, count


async def count_owners(deployment: Deployment, board: Board) -> int | None:
    [state] = await deployment.read(read_states, [board], NOW_US)
    return state.owners


def error_of(outcome: PartOutcome) -> type[Exception] | None:
    return None if outcome.error is None else type(outcome.error)


@dataclass
class Plain:
    """The expected state of one board."""

    rules: EntryRules | None = None
    rows: Rows = field(default_factory=dict)
    values: dict[str, list[tuple[str | None, int]]] = field(default_factory=dict)  # by owner: the posts of the entry
    used: dict[tuple[str, str], int] = field(default_factory=dict)  # values of posts with ids
    voided: set[tuple[str, str]] = field(default_factory=set)

    @property
    def owners(self) -> set[str]:
        return {*self.rows, *self.values}

    def post(self, owner: str, post_id: str | None, value: int) -> str:
        """Post, and return what is expected: a status, or the name of an error."""
        if post_id is not None and (known := self.used.get((owner, post_id))) is not None:
            if (owner, post_id) in self.voided:
                return "PostVoidedError"
            return "duplicate" if known == value else "PostIdConflictError"
        if (error := self._find_error(owner)) is not None:
            return error
        if sum(held for _, held in self.values.get(owner, ())) + value > XP.max_scaled:
            return "ValueOutOfRangeError"
        if self.rules is not None:
            posts, joined = self.rows.get(owner, (0, False))
            self.rows[owner] = posts + 1, joined
        is_unchanged = value == 0 and owner in self.values
        self.values.setdefault(owner, []).append((post_id, value))
        if post_id is not None:
            self.used[owner, post_id] = value
        return "unchanged" if is_unchanged else "applied"

    def _find_error(self, owner: str) -> str | None:
        if (rules := self.rules) is None:
            return None
        if rules.join and owner not in self.owners:
            return "NotJoinedError"
        if owner not in self.owners and self.is_full:
            return "BoardFullError"
        spent = rules.posts_max is not None and self.rows.get(owner, (0, False))[0] >= rules.posts_max
        return "NoPostsLeftError" if spent else None

    @property
    def is_full(self) -> bool:
        return (
            self.rules is not None and self.rules.owners_max is not None and len(self.owners) >= self.rules.owners_max
        )

    def void(self, owner: str, post_id: str) -> None:
        self.values[owner] = [each for each in self.values[owner] if each[0] != post_id]
        self.voided.add((owner, post_id))
        posts, joined = self.rows.get(owner, (0, False))
        if owner in self.rows:
            self.rows[owner] = max(0, posts - 1), joined
        if not self.values[owner]:
            del self.values[owner]
            if not joined:
                self.rows.pop(owner, None)

    def erase(self, owner: str) -> None:
        self.rows.pop(owner, None)
        self.values.pop(owner, None)


RULES = st.none() | st.builds(EntryRules, st.booleans(), st.none() | st.integers(1, 3), st.none() | st.integers(1, 4))
POSTS = st.tuples(st.sampled_from(OWNERS), st.none() | st.sampled_from("pqr"), st.integers(0, 4))


class EntrantsMachine(RuleBasedStateMachine):
    """Compare a board with a plain model. Hypothesis chooses the order of the rules."""

    session: Session  # set by the test
    boards = 0

    @initialize(rules=RULES)
    def begin(self, rules: EntryRules | None) -> None:
        type(self).boards += 1
        deployment = self.session.deployment
        self.board = self.session.run(deployment.create(f"board-{self.boards}", XP, entry=rules))
        self.plain = Plain(rules)

    @rule(rules=RULES)
    def change_rules(self, rules: EntryRules | None) -> None:
        wanted = replace(self.board.spec, entry=rules)
        self.board = self.session.run(self.session.deployment.change(self.board.id, wanted))
        self.plain.rules = rules
        if rules is None:
            self.plain.rows.clear()

    @rule(posts=st.lists(POSTS, min_size=1, max_size=4))
    def post(self, posts: list[tuple[str, str | None, int]]) -> None:
        deployment = self.session.deployment
        deployment.clock.now_us += 1  # the logs of several partitions are merged by time
        made = [deployment.post(owner, part(self.board, {"xp": xp}), post_id=at) for owner, at, xp in posts]
        expected = [self.plain.post(*each) for each in posts]
        outcomes = [outcome for [outcome] in self.session.run(deployment.apply(*made))]
        found = [each.status.value if each.error is None else type(each.error).__name__ for each in outcomes]
        assert found == expected

    @rule(owner=st.sampled_from(OWNERS))
    def join(self, owner: str) -> None:
        is_new = owner not in self.plain.owners
        try:
            assert self.session.run(join(self.session.deployment, self.board, owner)) == is_new
        except NoEntryRulesError:
            assert self.plain.rules is None
        except BoardFullError:
            assert is_new
            assert self.plain.is_full
        else:
            assert not is_new or not self.plain.is_full
            if is_new:
                self.plain.rows[owner] = 0, True

    @rule(owner=st.sampled_from(OWNERS), everywhere=st.booleans())
    def erase(self, owner: str, *, everywhere: bool) -> None:
        change = self.session.deployment.change_owner(owner)
        if everywhere:
            self.session.run(change.erase())
        else:
            assert self.session.run(change.erase_entry(self.board)) == (owner in self.plain.owners)
        self.plain.erase(owner)

    @rule(owner=st.sampled_from(OWNERS), hide=st.booleans())
    def hide(self, owner: str, *, hide: bool) -> None:
        self.session.run(self.session.deployment.change_owner(owner).set_hidden(hide=hide))

    @rule(data=st.data())
    def void(self, data: st.DataObject) -> None:
        ids = [(owner, at) for owner, posts in self.plain.values.items() for at, _ in posts if at is not None]
        if ids:
            owner, post_id = data.draw(st.sampled_from(sorted(ids)))
            self.session.run(self.session.deployment.void(self.board, owner, post_id))
            self.plain.void(owner, post_id)

    @rule()
    def reset(self) -> None:
        self.session.deployment.clock.now_us += 1
        self.board = self.session.run(self.session.deployment.reset(self.board.id))
        self.plain = Plain(self.plain.rules)

    @rule()
    def rebuild(self) -> None:
        self.session.deployment.clock.now_us += 1
        if self.plain.values:
            self.session.run(self.session.deployment.rebuild(self.board.id))
            self.board = self.session.run(self.session.deployment.find(self.board.id))

    @invariant()
    def agrees(self) -> None:
        rows, count = self.session.run(read_rows(self.session.deployment, self.board))
        assert rows == self.plain.rows
        assert count in (None, len(self.plain.owners))
        expected = None if self.plain.rules is None else len(self.plain.owners)
        assert self.session.run(count_owners(self.session.deployment, self.board)) == expected


def test_a_board_with_entry_rules_is_as_a_plain_model(session: Session) -> None:
    run_machine(EntrantsMachine, session, examples=8, steps=20)


LIMITED = EntryRules(join=False, posts_max=2, owners_max=5)


@pytest.mark.parametrize("rules", [LIMITED, EntryRules(join=True, posts_max=2, owners_max=5)])
async def test_processes_that_race_for_places_get_exactly_those_there_are(
    open_store: OpenStore, deployment: Deployment, rules: EntryRules
) -> None:
    processes = [deployment]
    if not deployment.store.sole_writer:
        processes += [Deployment(await open_store(), "0a") for _ in range(2)]
    board = await deployment.create("b", XP, entry=rules)
    taken: list[Awaitable[object]] = []

    async def take(process: Deployment, owner: str) -> None:
        try:
            if rules.join:
                await repeat(lambda: join(process, board, owner))
            await repeat(lambda: process.apply_one(process.post(owner, part(board, {"xp": 1}))))
        except BoardFullError:
            pass

    for number in range(8):
        taken += [take(process, f"o{number}") for process in processes for _ in range(4)]
    await asyncio.gather(*taken)
    rows, count = await read_rows(deployment, board)
    assert count == len(rows) == 5
    assert [posts for posts, _ in rows.values()] == [2] * 5
    assert sorted(await deployment.rows(board, list(rows))) == sorted(rows)
    assert len(await deployment.list_rows(board)) == 5


async def repeat(attempt: Callable[[], Awaitable[object]]) -> None:
    while True:
        try:
            await attempt()
        except LostRaceError:
            continue
        return


async def test_a_process_with_an_old_copy_keeps_to_rules_that_were_set_meanwhile(deployment: Deployment) -> None:
    board = await deployment.create("b", XP)
    posts = [deployment.post(owner, part(board, {"xp": 1})) for owner in ("ada", "bob")]
    assert (await deployment.apply_one(posts[0])).status is PostStatus.APPLIED
    await deployment.change("b", replace(board.spec, entry=EntryRules(False, None, 1)))
    assert error_of(await deployment.apply_one(posts[1])) is UnknownBoardError  # the caller reads the board again
    board = await deployment.find()
    outcomes = await deployment.apply(*(deployment.post(owner, part(board, {"xp": 1})) for owner in ("bob", "ada")))
    assert [error_of(outcome) for [outcome] in outcomes] == [BoardFullError, None]
    await deployment.change("b", replace(board.spec, entry=EntryRules(False, None, 2)))
    stale = deployment.post("bob", part(board, {"xp": 1}))
    assert error_of(await deployment.apply_one(stale)) is UnknownBoardError, "a refusal is confirmed, too"


async def test_a_merge_moves_what_the_owner_has(deployment: Deployment) -> None:
    board = await deployment.create("b", XP, entry=EntryRules(True, 9, 9))
    for owner in ("ada", "bob", "eve", "dan"):
        await join(deployment, board, owner)
    for owner in ("ada", "bob", "ada"):
        await deployment.apply(deployment.post(owner, part(board, {"xp": 1})))
    await deployment.merge("ada", "bob")  # both have entries
    await deployment.merge("dan", "eve")  # both have only joined
    await deployment.merge("eve", "new")  # the other one does not take part
    assert await read_rows(deployment, board) == ({"bob": (3, True), "new": (0, True)}, 2)
    with pytest.raises(OwnerMergedError):
        await join(deployment, board, "ada")


async def test_a_join_is_refused_before_a_board_opens_and_after_it_has_closed(deployment: Deployment) -> None:
    season = Season(NOW_US + 10, NOW_US + 20, 0, None)
    board = await deployment.create("b", XP, entry=EntryRules(True, None, None), season=season)
    for now_us, error in ((NOW_US, NotOpenError), (NOW_US + 10, None), (NOW_US + 20, PeriodClosedError)):
        deployment.clock.now_us = now_us
        if error is None:
            assert await join(deployment, board, "ada")
            continue
        with pytest.raises(error):
            await join(deployment, board, "bob")
    assert not await join(deployment, board, "ada"), "a repeated join has the same answer after the end"
    await deployment.write(shut_boards, [board], now_us=NOW_US + 30)
    with pytest.raises(PeriodClosedError, match="ended at 2023-11-14T22:13:20Z"):
        await join(deployment, await deployment.find(), "bob")


async def test_a_family_counts_each_of_its_boards(deployment: Deployment) -> None:
    family = await deployment.create_family(XP, periods=(PeriodKind.ALL, PeriodKind.YEAR))
    wanted = replace(family.spec, board=replace(family.spec.board, entry=EntryRules(True, 1, 2)))
    family = await deployment.put_family(wanted)
    everything, year = await deployment.make_boards("all", "2023")
    await join(deployment, everything, "ada")
    post = make_family_post(deployment, family, "ada", 1, everything, year)
    [outcomes] = await deployment.apply(post)
    assert list(map(error_of, outcomes)) == [None, NotJoinedError], "only the board that the owner has joined takes it"
    await join(deployment, year, "ada", opens_us=NOW_US - 1)
    [outcomes] = await deployment.apply(post)
    assert list(map(error_of, outcomes)) == [NoPostsLeftError, None]
    with pytest.raises(NotOpenError):
        await join(deployment, year, "bob", opens_us=NOW_US + 1)
    family = await deployment.put_family(replace(wanted, board=replace(wanted.board, entry=None)))
    for board in await deployment.make_boards("all", "2023"):
        assert await read_rows(deployment, board) == ({}, None)


async def test_queued_posts_keep_to_the_rules(deployment: Deployment) -> None:
    if deployment.segments > 1:
        return
    desk = await QueueDesk.on(deployment)
    board = await deployment.create("b", XP, entry=LIMITED)
    posts = [deployment.post(f"o{number % 6}", part(board, {"xp": 1}), post_id=f"p{number}") for number in range(18)]
    await desk.enqueue(*posts, posts[0])
    await desk.drain_queue()
    rows, count = await read_rows(deployment, board)
    assert count == 5
    assert [posts for posts, _ in rows.values()] == [2] * 5


async def test_an_owner_who_is_erased_everywhere_is_counted_out_once_whichever_segment_has_the_entry(
    deployment: Deployment,
) -> None:
    for number, owner in enumerate(OWNERS):
        board = await deployment.create(f"board-{number}", XP, entry=EntryRules(False, 5, None))
        await deployment.apply(*(deployment.post(each, part(board, {"xp": 1})) for each in OWNERS))
        await deployment.change_owner(owner).erase()
        rows, count = await read_rows(deployment, board)
        assert ({*rows}, count) == ({*OWNERS} - {owner}, len(OWNERS) - 1)

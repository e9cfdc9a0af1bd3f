"""Test that the accounts of one person become one, and that each post counts once, on every engine and table layout."""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from querybuilder import col, select
from storage.boards.postponed_changes import OwnerChange
from storage.errors import (
    JournalIncompleteError,
    MergeConflictError,
    OwnerMergedError,
    StoreBusyError,
    UnknownOwnerError,
    UnknownPostError,
    ValueOutOfRangeError,
)
from storage.histories import merged_owners
from storage.histories.owner_merges import OwnerMerge
from storage.leaves.hidden_owners import read_states
from storage.leaves.totals import ALL_ENTRIES, CHANGES
from storage.log.bundles import ChangeKind
from storage.records import Best, Board, BoardSpec, ColumnChange, Merge, PostStatus, StatValue, Ties
from storage.schema.creation import in_each_partition
from storage.schema.tables import CHANGE_LOG
from tests.storage.boards.test_families import make_family_post
from tests.storage.deployment import (
    Deployment,
    Session,
    choose_examples,
    counter,
    label,
    part,
    quotient,
    ranked,
    read_changes,
)
from tests.storage.plain import Reached, merge_row, tie_key
from tests.storage.posting.test_rebuild import read_everything
from tests.storage.posting.test_voiding import make_family

COLUMNS = (
    ranked("xp", min_scaled=-(10**6), max_scaled=10**6),
    counter("shots"),
    ranked("lap", merge=Merge.MIN, best=Best.LOW, scale=2, min_scaled=-50, max_scaled=10**5),
    ranked("last", merge=Merge.LAST, min_scaled=0, max_scaled=10**5),
    counter("most", merge=Merge.MAX),
    label("clan"),
    ranked("score", merge=Merge.MAX, min_scaled=0),
    counter("time", best=Best.LOW, of="score"),
    label("replay", of="score"),
    label("note", of="xp"),
)
TIE_COLUMNS = ("time", "last")
Row = list[Reached | None]


@dataclass(order=True)
class Event:
    """Something that made an entry what it is: a post, the time of a write, or another entry that was combined."""

    number: int
    at_us: int = field(compare=False)  # the version of the entry afterwards
    owner: str = field(default="", compare=False)  # of a post
    post_id: str = field(default="", compare=False)
    changes: Sequence[ColumnChange] = field(default=(), compare=False)
    reached_us: int = field(default=0, compare=False)
    combined: "list[Event] | None" = field(default=None, compare=False)


@dataclass
class Plain:
    """Two or more owners on a board, in plain lists: the events that made each entry."""

    spec: BoardSpec
    events: dict[str, list[Event]] = field(default_factory=dict)
    voided: set[tuple[str, str]] = field(default_factory=set)
    number: int = 0

    def add(self, entry_of: str, **more: Any) -> None:
        self.number += 1
        self.events.setdefault(entry_of, []).append(Event(self.number, **more))

    def row(self, owner: str) -> Row | None:
        return self._evaluate(self.events.get(owner, []))[0]

    def _evaluate(self, events: Sequence[Event]) -> tuple[Row | None, int]:
        row: Row | None = None
        version = 0
        for event in sorted(events):
            if event.combined is not None:
                theirs, theirs_us = self._evaluate(event.combined)
                if theirs is not None:
                    row = theirs if row is None else combine(self.spec, (version, row), (theirs_us, theirs))
            elif event.changes:
                is_voided = (event.owner, event.post_id) in self.voided
                before = row or [None] * len(COLUMNS)
                after = row if is_voided else merge_row(self.spec, before, event.changes, event.reached_us)
                if after != row:
                    row, version = after, max(version, event.at_us)
                continue
            version = 0 if row is None else max(version, event.at_us)
        return row, version

    def merge(self, owner: str, into: str, *, by_posts: bool, at_us: int) -> None:
        theirs = self.events.pop(owner)
        if by_posts or not self.events.get(into):
            self.events[into] = self.events.get(into, []) + theirs
            self.add(into, at_us=at_us)
        else:
            self.add(into, at_us=at_us, combined=theirs)


def combine(spec: BoardSpec, one: tuple[int, Row], other: tuple[int, Row]) -> Row:
    """Return the row of two owners: sums add, the better or the later value wins, and followers go with the winner."""
    (_, earlier), (_, later) = sorted((one, other), key=lambda each: each[0])
    row: Row = [*earlier]
    for index, column in enumerate(spec.columns):
        old, new = earlier[index], later[index]
        if column.of is not None or new is None:
            continue
        followers = [number for number, each in enumerate(spec.columns) if each.of == column.name]
        wins = old is None or later_wins(spec, index, followers, earlier, later)
        if old is None or (wins and column.merge is not Merge.SUM):
            row[index] = new
        elif wins:
            assert isinstance(old[0], int)
            assert isinstance(new[0], int)
            row[index] = old[0] + new[0], max(old[1], new[1])
        if wins:
            for follower in followers:
                row[follower] = later[follower]
    return row


def later_wins(spec: BoardSpec, index: int, followers: Sequence[int], earlier: Row, later: Row) -> bool:
    column, old, new = spec.columns[index], earlier[index], later[index]
    assert old is not None
    assert new is not None
    if column.merge is Merge.SUM:
        return new[0] != 0
    if column.merge is Merge.LAST or new[0] == old[0]:
        if column.merge is Merge.LAST:
            return new[0] != old[0]
        names = [name for name in spec.tie_columns if name in {spec.columns[each].name for each in followers}]
        at = [[each.name for each in spec.columns].index(name) for name in names]
        keys = [
            tie_key(spec, names, [None if (held := row[n]) is None else held[0] for n in at])
            for row in (later, earlier)
        ]
        timed = spec.ties is Ties.EARLIEST and column.sorted
        return (keys[0], new[1]) < (keys[1], old[1]) if timed else keys[0] < keys[1]
    assert isinstance(old[0], int)
    assert isinstance(new[0], int)
    return new[0] > old[0] if column.merge is Merge.MAX else new[0] < old[0]


@dataclass
class Accounts:
    """A board with a few owners, in a store and in plain lists."""

    deployment: Deployment
    board: Board
    plain: Plain
    names: list[str]  # owners who were not merged yet
    hidden: set[str] = field(default_factory=set)
    into: dict[str, str] = field(default_factory=dict)

    async def post(self, owner: str, rng: random.Random) -> None:
        names = rng.sample([column.name for column in COLUMNS], rng.randrange(1, 5))
        texts = ("clan", "replay", "note")
        values: dict[str, StatValue] = {
            name: f"{name} {rng.randrange(3)}" if name in texts else rng.randrange(4) for name in names
        }
        overwrite = {"xp": rng.randrange(20)} if "xp" not in values and rng.random() < 0.2 else {}
        at_us = self.deployment.clock() - rng.randrange(50) if rng.random() < 0.5 else None
        said, post_id = part(self.board, values, overwrite), f"p{self.plain.number}"
        outcome = await self.deployment.apply_one(self.deployment.post(owner, said, post_id=post_id, at_us=at_us))
        if owner in self.into:
            assert isinstance(outcome.error, OwnerMergedError)
            return
        version = outcome.updated_at_us if outcome.status is PostStatus.APPLIED else self.deployment.clock()
        assert version is not None
        self.plain.add(
            owner, at_us=version, owner=owner, post_id=post_id, changes=said.changes,
            reached_us=self.deployment.clock() if at_us is None else at_us,
        )  # fmt: skip

    async def void(self, rng: random.Random) -> None:
        """Take back a post of an owner, or of one of the owner's earlier ids."""
        found = [
            (owner, each) for owner, events in self.plain.events.items() for each in all_posts(events)
        ]  # fmt: skip
        if not found:
            return
        owner, event = rng.choice(found)
        first = (event.owner, event.post_id) not in self.plain.voided
        self.plain.voided.add((event.owner, event.post_id))
        [voided] = await self.deployment.void(self.board, owner, event.post_id, posted_by=event.owner)
        if first:
            row = self.plain.row(owner)
            assert voided.stats == (None if row is None else plain_values(row))
            if row is None:  # the entry is gone; later posts make another one
                del self.plain.events[owner]
            else:
                self.plain.add(owner, at_us=await self.version(owner))

    async def version(self, owner: str) -> int:
        rows, unseen, _ = await read_everything(self.deployment, self.board)
        [found] = [row[1] for row in (*rows, *unseen) if row[0] == owner]
        return int(found)

    async def hide(self, owner: str) -> None:
        await self.deployment.change_owner(owner).set_hidden(hide=owner not in self.hidden)
        self.hidden ^= {owner}

    async def merge(self, owner: str, into: str, *, by_posts: bool) -> None:
        parts = await self.deployment.merge(owner, into, by_posts=by_posts)
        if owner in self.plain.events:
            [merged] = parts
            self.plain.merge(owner, into, by_posts=by_posts, at_us=await self.version(into))
            row = self.plain.row(into)
            assert row is not None
            assert (merged.board_id, merged.stats, merged.error) == (self.board.id, plain_values(row), None)
        else:
            assert parts == []
        assert await self.deployment.merge(owner, into, by_posts=by_posts) == parts, "again: the same answer"
        self.names.remove(owner)
        self.into[owner] = into
        if owner in self.hidden:
            self.hidden |= {into}

    async def check(self) -> None:
        """Compare rows, times and totals with the plain lists."""
        rows, unseen, totals = await read_everything(self.deployment, self.board)
        expected = {owner: row for owner in self.plain.events if (row := self.plain.row(owner)) is not None}
        merger, width = self.deployment.merger(self.board), len(COLUMNS)
        stored = {owner: merger.decode_stats(cells) for owner, _, *cells in rows}
        stored |= {owner: merger.decode_stats([*cells, *[None] * (width - len(cells))]) for owner, _, cells in unseen}
        assert stored == {owner: plain_values(row) for owner, row in expected.items()}
        assert {owner for owner, *_ in unseen} == expected.keys() & self.hidden
        shown = [row for owner, row in expected.items() if owner not in self.hidden]
        assert totals.get(ALL_ENTRIES, 0) == len(shown)
        for index in self.board.sorted_indexes:
            assert totals.get(index, 0) == sum(row[index] is not None for row in shown)
            if self.board.spec.ties is Ties.EARLIEST:
                padding = self.deployment.boards.open_rows(self.board.leaves[0]).rankings[index].padding
                times = {owner: padding.reached_us(cells[index]) for owner, _, *cells in rows if cells[index]}
                assert times == {
                    owner: held[1]
                    for owner, row in expected.items()
                    if owner not in self.hidden and (held := row[index]) is not None
                }


def all_posts(events: Sequence[Event]) -> list[Event]:
    found = [each for each in events if each.changes]
    return found + [post for each in events if each.combined is not None for post in all_posts(each.combined)]


def plain_values(row: Row) -> list[StatValue | None]:
    return [None if held is None else held[0] for held in row]


ACTS = ("post", "post", "post", "post", "void", "hide", "merge", "combine", "erase")


def test_merged_owners_have_what_their_posts_make(session: Session) -> None:
    numbers = iter(range(10**6))
    histories = st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 10**6)), min_size=4, max_size=25)

    @settings(max_examples=choose_examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(histories, st.sampled_from(Ties), st.sampled_from([(), TIE_COLUMNS]))
    def run(acts: list[tuple[str, int]], ties: Ties, tie_columns: tuple[str, ...]) -> None:
        session.run(play(session.deployment, next(numbers), acts, ties, tie_columns))

    run()


async def play(
    deployment: Deployment, number: int, acts: list[tuple[str, int]], ties: Ties, tie_columns: tuple[str, ...]
) -> None:
    board = await deployment.create(f"b{number}", *COLUMNS, ties=ties, tie_columns=tie_columns)
    names = [f"{name} {number}" for name in ("ada", "bob", "cy", "ÿ")]
    accounts = Accounts(deployment, board, Plain(board.spec), names)
    for act, seed in acts:
        rng = random.Random(seed)
        deployment.clock.now_us += rng.randrange(1, 4)
        if act == "void":
            await accounts.void(rng)
        elif act == "hide":
            await accounts.hide(rng.choice(accounts.names))
        elif act in ("merge", "combine") and len(accounts.names) > 1:
            owner, into = rng.sample(accounts.names, 2)
            await accounts.merge(owner, into, by_posts=act == "merge")
        elif act == "erase" and rng.random() < 0.3:
            owner = rng.choice(accounts.names)
            await deployment.change_owner(owner).erase_entry(board)
            accounts.plain.events.pop(owner, None)
        else:
            await accounts.post(rng.choice([*accounts.names, *accounts.into]), rng)
        await accounts.check()
    before = await read_everything(deployment, board)
    if before[0] or before[1]:
        await deployment.rebuild(board.id)
    assert await read_everything(deployment, board) == before, "a rebuild makes the same entries"
    await deployment.delete(board.id)


async def post_xp(deployment: Deployment, board: Board, **xp: int) -> None:
    for owner, value in xp.items():
        deployment.clock.now_us += 1
        await deployment.apply_one(deployment.post(owner, part(board, {"xp": value}), post_id=f"{owner} {value}"))


async def states(deployment: Deployment) -> list[dict[str, str]]:
    """Return the states of owners in each partition."""
    found = await deployment.read(in_each_partition, read_states)
    return [theirs for _, theirs in found.values()]


async def test_every_partition_refuses_posts_of_a_merged_owner_but_knows_a_retry(deployment: Deployment) -> None:
    board = await deployment.create("b", ranked("xp"))
    await post_xp(deployment, board, ada=1, bob=2)
    await deployment.merge("ada", "bob")
    assert await states(deployment) == [{"ada": "merged"}] * deployment.store.partitions
    other = Deployment(deployment.store, "00", deployment.table)  # another process, which has no facts yet
    other.post_ids = deployment.post_ids
    for process in (deployment, other):
        refused = await process.apply_one(process.post("ada", part(board, {"xp": 5}), post_id="new"))
        assert isinstance(refused.error, OwnerMergedError)
        retried = await process.apply_one(process.post("ada", part(board, {"xp": 1}), post_id="ada 1"))
        assert (retried.status, retried.stats) == (PostStatus.DUPLICATE, [1])
    assert await deployment.value(board, "bob") == 3
    assert await deployment.value(board, "ada") is None


async def test_a_post_that_began_before_the_merge_is_refused_on_a_board_that_keeps_the_entry(
    deployment: Deployment,
) -> None:
    board = await deployment.create("b", ranked("xp", max_scaled=10))
    await post_xp(deployment, board, ada=6, bob=6)
    await deployment.apply(deployment.post("cy", part(board, {"xp": 1})))  # the process now remembers all states
    [refused] = await deployment.merge("ada", "bob")
    assert isinstance(refused.error, ValueOutOfRangeError)
    assert await deployment.value(board, "ada") == 6, "all or nothing"
    outcome = await deployment.apply_one(deployment.post("ada", part(board, {"xp": 1})))
    assert isinstance(outcome.error, OwnerMergedError)


async def test_an_erased_owner_takes_the_earlier_ids_along(deployment: Deployment) -> None:
    board, kept = await deployment.create("b", ranked("xp", max_scaled=10)), await deployment.create("c", ranked("xp"))
    await post_xp(deployment, board, ada=6, bob=6)
    await post_xp(deployment, kept, ada=1, bob=2, cy=3)
    await deployment.merge("cy", "ada")
    await deployment.merge("ada", "bob")
    assert await deployment.read(merged_owners.list_names, "bob") == ["bob", "ada", "cy"]
    assert await deployment.value(kept, "bob") == 6
    await deployment.change_owner("bob").erase()
    for each in (board, kept):
        rows, unseen, totals = await read_everything(deployment, each)
        assert (rows, unseen, totals) == ([], [], {})
    assert await states(deployment) == [{}] * deployment.store.partitions
    assert await deployment.read(merged_owners.list_names, "ada") == ["ada"]
    assert await deployment.read(merged_owners.list_entries, "ada") == []
    for partition in range(deployment.store.partitions):
        log = await deployment.store.at(partition).read_query(
            select(col("owners"), col("posts")).from_(CHANGE_LOG).bind()
        )
        # Whole words, because the random word that replaces a name has hexadecimal digits: some contain "ada".
        assert not any(re.search(r"\b(ada|bob|cy)\b", text) for row in log for text in row)
    await post_xp(deployment, kept, ada=4)
    await deployment.rebuild("c")
    assert await deployment.value(await deployment.find("c"), "ada") == 4


async def test_an_erased_entry_leaves_no_post_under_an_earlier_id(deployment: Deployment) -> None:
    board, other = await deployment.create("b", ranked("xp")), await deployment.create("c", ranked("xp"))
    for each in (board, other):
        await post_xp(deployment, each, ada=1, bob=2, cy=3)
    await deployment.merge("ada", "bob")
    assert await deployment.change_owner("bob").erase_entry(board)
    await deployment.rebuild("b")
    await deployment.rebuild("c")
    found = [await deployment.find(each) for each in ("b", "c")]
    assert [[row[0] for row in (await read_everything(deployment, each))[0]] for each in found] == [
        ["cy"],
        ["bob", "cy"],
    ]
    assert [part.board_id for part in await deployment.merge("ada", "bob")] == ["c"]


async def test_a_merged_owner_is_told_that_it_is_hidden_if_one_of_the_two_was_told(deployment: Deployment) -> None:
    board = await deployment.create("b", ranked("xp"))
    cases: list[tuple[OwnerChange | None, OwnerChange | None, str, str | None]] = [
        (None, "shadow", "merged", "shadowed"),
        ("shadow", None, "merged, shadowed", "shadowed"),
        ("shadow", "shadow", "merged, shadowed", "shadowed"),
        ("shadow", "hide", "merged, shadowed", "hidden"),
        ("hide", "shadow", "merged, hidden", "hidden"),
    ]
    for number, (change, into_change, state, into_state) in enumerate(cases):
        owner, into = f"owner {number}", f"into {number}"
        await post_xp(deployment, board, **{owner: 1, into: 2})
        for name, each in ((owner, change), (into, into_change)):
            if each is not None:
                await deployment.change_owner(name).make_change(each)
        await deployment.merge(owner, into)
        assert await deployment.value(board, into) is None
        [found] = {(each.get(owner), each.get(into)) for each in await states(deployment)}
        assert found == (state, into_state)


async def test_owners_in_chains_and_circles_are_refused(deployment: Deployment) -> None:
    board = await deployment.create("b", ranked("xp"))
    await post_xp(deployment, board, ada=1, bob=2, cy=3)
    await deployment.merge("ada", "bob")
    for owner, into in (("ada", "cy"), ("cy", "ada"), ("bob", "ada")):
        with pytest.raises(MergeConflictError):
            await deployment.merge(owner, into)
    await deployment.merge("bob", "cy")
    assert await deployment.read(merged_owners.find_into, "ada") == "cy"
    assert await deployment.value(board, "cy") == 6
    with pytest.raises(OwnerMergedError):
        await deployment.change_owner("ada").set_hidden(hide=True)
    with pytest.raises(UnknownOwnerError):
        await deployment.void(board, "ada", "ada 1")
    [voided] = await deployment.void(board, "cy", "ada 1", posted_by="ada")
    assert voided.stats == [5]


async def test_an_owner_has_a_bounded_number_of_earlier_ids(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.histories.merged_owners.EARLIER_IDS_MAX", 2)
    for owner in ("a", "b"):
        assert await deployment.merge(owner, "bob") == []
    with pytest.raises(MergeConflictError):
        await deployment.merge("c", "bob")
    assert await states(deployment) == [{"a": "merged", "b": "merged"}] * deployment.store.partitions


async def test_a_pruned_journal_refuses_only_boards_where_both_have_entries(deployment: Deployment) -> None:
    board, renamed = await deployment.create("b", ranked("xp")), await deployment.create("c", ranked("xp"))
    await post_xp(deployment, board, ada=1, bob=2)
    await post_xp(deployment, renamed, ada=7)
    await post_xp(deployment, board, **{f"owner {number}": 1 for number in range(20)})  # the last bundles are kept
    for partition in range(deployment.store.partitions):
        await deployment.prune_log(store=deployment.store.at(partition))
    await post_xp(deployment, board, ada=4)
    pruned, merged = await deployment.merge("ada", "bob")
    assert isinstance(pruned.error, JournalIncompleteError)
    assert (merged.board_id, merged.stats) == ("c", [7])
    combined, again = await deployment.merge("ada", "bob", by_posts=False)
    assert (combined.board_id, combined.stats, combined.error, again) == ("b", [7], None, merged)
    with pytest.raises(JournalIncompleteError):
        await deployment.void(board, "bob", "ada 4", posted_by="ada")


async def test_the_boards_of_a_family_are_merged_and_a_post_is_voided_on_all_of_them(deployment: Deployment) -> None:
    family = await make_family(deployment)
    boards = await deployment.make_boards("all", "all:org=1", "all:org=2")
    for owner, xp, reached in (("ada", 1, boards[:2]), ("bob", 2, boards[:1]), ("ada", 4, [boards[0], boards[2]])):
        deployment.clock.now_us += 1
        await deployment.apply(make_family_post(deployment, family, owner, xp, *reached, post_id=f"p{xp}"))
    merged = await deployment.merge("ada", "bob")
    assert [(each.board_id, each.stats) for each in merged] == [
        ("f:all", [7]), ("f:all:org=1", [1]), ("f:all:org=2", [4]),
    ]  # fmt: skip
    voided = await deployment.void(family, "bob", "p4", posted_by="ada")
    assert [(each.leaf.id, each.stats) for each in voided] == [("f:all", [3]), ("f:all:org=2", None)]
    assert await deployment.void(family, "bob", "p4", posted_by="ada") == voided
    with pytest.raises(UnknownPostError):
        await deployment.void(family, "bob", "p1")
    [outcome, *_] = (await deployment.apply(make_family_post(deployment, family, "ada", 9, *boards[:2])))[0]
    assert isinstance(outcome.error, OwnerMergedError)


async def test_a_merge_goes_on_where_it_was_interrupted(deployment: Deployment) -> None:
    boards = [await deployment.create(f"b{number}", ranked("xp")) for number in range(3)]
    for board in boards:
        await post_xp(deployment, board, ada=1, bob=2)
    merge = OwnerMerge(owner="ada", into="bob", by_posts=True, now_us=deployment.clock())
    await deployment.write(merge.begin)
    await deployment.write(merge.merge_board, "b1")
    await deployment.write(merge.merge_board, "b1")
    assert [await deployment.value(board, "bob") for board in boards] == [2, 3, 2]
    assert [each.stats for each in await deployment.merge("ada", "bob")] == [[3], [3], [3]]
    late = OwnerMerge(owner="ada", into="cy", by_posts=True, now_us=deployment.clock())
    with pytest.raises(MergeConflictError):
        await deployment.write(late.merge_board, "b1")


async def test_a_change_that_waits_for_a_partition_comes_before_the_merge(deployment: Deployment) -> None:
    away = replace(deployment.change_owner("ada"), away=(0,))
    if deployment.store.partitions > 1:
        await away.set_hidden(hide=True)
        with pytest.raises(StoreBusyError):
            await deployment.merge("ada", "bob")
        assert "merged" not in str(await states(deployment))


async def test_the_log_has_what_moved_and_the_totals_stay_true(deployment: Deployment) -> None:
    board = await deployment.create("b", ranked("xp"))
    await post_xp(deployment, board, ada=1, bob=2)
    before = (await deployment.totals(board))[CHANGES]
    await deployment.merge("ada", "bob")
    totals = await deployment.totals(board)
    assert totals == {ALL_ENTRIES: 1, 0: 1, CHANGES: before + 2}
    kinds = []
    for partition in {leaf.partition for leaf in board.leaves}:
        rows = await read_changes(deployment.store.at(partition))
        kinds += [(row.owner, row.kind, row.record.owner) for row in rows[-2:] if row.record is not None]
    assert ("ada", ChangeKind.LEFT, "bob") in kinds
    assert ("bob", ChangeKind.JOINED, "ada") in kinds


async def test_a_quotient_of_combined_entries_is_that_of_the_sums(deployment: Deployment) -> None:
    columns = counter("hits"), ranked("shots"), quotient("rate", "hits", "shots", scale=2, max_scaled=100)
    board = await deployment.create("b", *columns)
    for owner, hits, shots in (("ada", 3, 4), ("bob", 9, 10)):
        deployment.clock.now_us += 1
        await deployment.apply(deployment.post(owner, part(board, {"hits": hits, "shots": shots})))
    [merged] = await deployment.merge("ada", "bob", by_posts=False)
    assert merged.stats == [12, 14, 86], "no rate on the way leaves the range"
    before = await read_everything(deployment, board)
    await deployment.rebuild()
    assert await read_everything(deployment, board) == before

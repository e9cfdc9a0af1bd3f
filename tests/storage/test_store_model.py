"""Compare a store with plain dicts, after posts, erasures, resets and new columns in any order.

If the store has several partitions, each board is in another one, and posts reach boards of several partitions.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from storage.boards.boards import list_boards
from storage.leaves.totals import ALL_ENTRIES, CHANGES, find_totals_of
from storage.records import (
    Best,
    Board,
    BoardPost,
    ColumnSpec,
    Entry,
    Merge,
    PartOutcome,
    Post,
    PostStatus,
    StatValue,
    Ties,
)
from storage.store import Program, in_partition
from tests.storage.deployment import (
    Part,
    Session,
    counter,
    keep_times,
    label,
    part,
    quotient,
    ranked,
    run_machine,
    spec,
)
from tests.storage.plain import OutOfRangeError, Reached, merge_row, rank_rows

NAMES, OWNERS, POST_IDS = ("a", "b", "c"), ("ada", "bob", "ÿ", "漢", "😀"), ("p", "q", "r")
SHAPES: dict[str, tuple[ColumnSpec, ...]] = {
    "sum": (ranked("xp", min_scaled=-5, max_scaled=20),),
    "laps": (ranked("lap", merge=Merge.MIN, best=Best.LOW, scale=3, min_scaled=0), ranked("best", merge=Merge.MAX)),
    "mixed": (counter("shots"), ranked("last", merge=Merge.LAST, best=Best.LOW), label("clan")),
    "runs": (
        ranked("score", merge=Merge.MAX, min_scaled=0),
        counter("time", best=Best.LOW, of="score"),
        ranked("level", merge=Merge.LAST),
        label("replay", of="score"),
    ),
    "ratios": (
        counter("hits"),
        counter("shots"),
        quotient("accuracy", "hits", "shots", least=3, min_scaled=-400, max_scaled=400),
        quotient("pace", "shots", "hits", sorted_=False, scale=1),
    ),
}
TIE_COLUMNS = {"runs": ("time", "level"), "ratios": ("hits",)}
MORE = (ranked("more"), counter("more_shots"), label("more_text"), ranked("less", merge=Merge.MIN, best=Best.LOW))
MOST_COLUMNS = 8
PAGE_ROWS = 2


@dataclass
class PlainBoard:
    """The expected contents of a board."""

    board: Board
    rows: dict[str, list[Reached | None]] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    # The fingerprint of each post with an id and the values after it, by owner and id.
    remembered: dict[tuple[str, str], tuple[str, list[StatValue | None]]] = field(default_factory=dict)
    changes: int = 0
    reset_us: int = 0  # when the board was last emptied

    def refuses_alone(self, post: Post) -> bool:
        """Return whether the board refuses its part of a post, because the post is from before the last reset."""
        is_known = post.post_id is not None and (post.owner, post.post_id) in self.remembered
        return not is_known and post.at_us is not None and post.at_us < self.reset_us

    def stats(self, owner: str) -> list[StatValue | None]:
        return [held[0] if held is not None else None for held in self.rows[owner]]


@dataclass(frozen=True)
class PartPlan:
    """The part of a post for one board, drawn at random before it is known which boards exist."""

    handle: int
    # For each posted value: number of its column, value, whether it overwrites.
    values: tuple[tuple[int, int, bool], ...]


@dataclass(frozen=True)
class PostPlan:
    """A post, drawn at random before it is known which boards exist."""

    owner: str
    parts: tuple[PartPlan, ...]
    post_id: str | None
    at_us: int | None


VALUES = st.tuples(st.integers(0, 7), st.integers(-6, 12), st.booleans())
PARTS = st.builds(PartPlan, st.integers(0, 99), st.lists(VALUES, max_size=3).map(tuple))
PLANS = st.builds(
    PostPlan,
    st.sampled_from(OWNERS),
    st.lists(PARTS, min_size=1, max_size=3).map(tuple),
    st.none() | st.sampled_from(POST_IDS),
    st.none() | st.integers(1, 9),
)


class BoardsMachine(RuleBasedStateMachine):
    """Compare a store and its writer with plain dicts."""

    session: Session  # set by the test

    def __init__(self) -> None:
        super().__init__()
        self.plain: dict[str, PlainBoard] = {}
        # All copies of boards that were ever made. Some of the boards are deleted, and some copies lack newer columns.
        self.handles: list[Board] = []
        self.keys: set[int] = set()

    def teardown(self) -> None:
        """Delete all boards, because the next example begins without any."""
        for name in self.plain:
            self.session.run(self.session.deployment.delete(name))

    # Hypothesis chooses the order of the rules.

    @initialize(shape=st.sampled_from(sorted(SHAPES)), ties=st.sampled_from(Ties))
    def begin(self, shape: str, ties: Ties) -> None:
        self.create(NAMES[0], shape, ties)

    @rule(name=st.sampled_from(NAMES), shape=st.sampled_from(sorted(SHAPES)), ties=st.sampled_from(Ties))
    def create(self, name: str, shape: str, ties: Ties) -> None:
        deployment = self.session.deployment
        partition = NAMES.index(name) % deployment.store.partitions
        columns = keep_times(spec(*SHAPES[shape], ties=ties)).columns
        board = self.session.run(
            deployment.create(name, *columns, ties=ties, partition=partition, tie_columns=TIE_COLUMNS.get(shape, ()))
        )
        if name in self.plain:
            assert board == self.plain[name].board
            return
        keys = {board.key, *(part.key for part in board.leaves)}
        assert not keys & self.keys, "a key is never used again"
        self.keys |= keys
        self.plain[name] = PlainBoard(board)
        self.handles.append(board)

    @precondition(lambda self: self.plain)
    @rule(number=st.integers(0, 9), column=st.sampled_from(MORE))
    def add_column(self, number: int, column: ColumnSpec) -> None:
        plain = self.choose_board(number)
        columns = plain.board.spec.columns
        if column in columns:
            return
        wanted = replace(plain.board.spec, columns=(*columns, column))
        plain.board = self.session.run(self.session.deployment.change(plain.board.id, wanted))
        self.handles.append(plain.board)
        for row in plain.rows.values():
            row.append(None)

    @precondition(lambda self: self.plain)
    @rule(number=st.integers(0, 9))
    def add_quotient(self, number: int) -> None:
        """Add a quotient of two columns. Posts by older copies of the board would be refused, so forget these."""
        plain = self.choose_board(number)
        numbers = [each.name for each in plain.board.spec.columns if each.kind.value == "number" and not each.per]
        if len(numbers) < 2 or len(plain.board.spec.columns) > MOST_COLUMNS:
            return
        ranks = plain.board.spec.ties is Ties.SHARED  # added later, it does not know the times of its columns
        name = f"q{len(plain.board.spec.columns)}"
        self.add_column(number, quotient(name, numbers[0], numbers[-1], sorted_=ranks, scale=1))
        self.handles = [each for each in self.handles if each.key != plain.board.key] + [plain.board]

    @precondition(lambda self: self.plain)
    @rule(number=st.integers(0, 9))
    def reset(self, number: int) -> None:
        plain = self.choose_board(number)
        board = self.session.run(self.session.deployment.reset(plain.board.id))
        assert board.gate.epoch == plain.board.gate.epoch + 1
        self.plain[board.id] = PlainBoard(board, reset_us=self.session.deployment.clock.now_us)
        self.handles.append(board)

    @precondition(lambda self: len(self.plain) > 1)
    @rule(number=st.integers(0, 9))
    def delete(self, number: int) -> None:
        plain = self.choose_board(number)
        self.session.run(self.session.deployment.delete(plain.board.id))
        del self.plain[plain.board.id]

    @precondition(lambda self: self.plain)
    @rule(number=st.integers(0, 9), owner=st.sampled_from(OWNERS))
    def erase(self, number: int, owner: str) -> None:
        plain = self.choose_board(number)
        existed = self.session.run(self.session.deployment.erase(plain.board, owner))
        assert existed == (plain.rows.pop(owner, None) is not None)
        plain.versions.pop(owner, None)
        plain.changes += existed

    @rule(step_us=st.integers(-3, 3))
    def let_time_pass(self, step_us: int) -> None:
        self.session.deployment.clock.now_us += step_us

    @rule()
    def reopen(self) -> None:
        self.session.reopen()

    @rule(plan=PLANS)
    def post_one(self, plan: PostPlan) -> None:
        self.post_requests([[plan]])

    @rule(requests=st.lists(st.lists(PLANS, min_size=1, max_size=4), min_size=1, max_size=3))
    def post_requests(self, requests: list[list[PostPlan]]) -> None:
        posts = [[self.make_post(plan) for plan in plans] for plans in requests]
        answers = self.session.run(self.submit_all(posts))
        versions = {name: dict(plain.versions) for name, plain in self.plain.items()}
        rows = {name: dict(plain.rows) for name, plain in self.plain.items()}
        for request, outcomes in zip(posts, answers, strict=True):
            for post, parts in zip(request, outcomes, strict=True):
                self.expect(post, parts)
        for name, plain in self.plain.items():
            for owner, before_us in versions[name].items():
                # One transaction may apply all requests, so a row may end with the values that it had before.
                grew = plain.versions[owner] > before_us
                assert grew or plain.rows[owner] == rows[name][owner], "every change is a new version"

    # Each helper runs a step and computes the expected result.

    def choose_board(self, number: int) -> PlainBoard:
        return list(self.plain.values())[number % len(self.plain)]

    def make_post(self, plan: PostPlan) -> Post:
        """Return the post of a plan, with at most one part for each board. Some boards may be deleted already."""
        parts: dict[int, Part] = {}
        for planned in plan.parts:
            # Handle 0 is the newest copy of a board, so most posts use a current copy.
            board = self.handles[-1 - planned.handle % len(self.handles)]
            columns = board.spec.columns
            stats: dict[str, StatValue] = {}
            overwrite: dict[str, StatValue | None] = {}
            for index, value, overwrites in planned.values:
                column = columns[index % len(columns)]
                if column.merge is Merge.QUOTIENT:
                    continue
                text = column.kind.value == "text"
                if overwrites:
                    overwrite[column.name] = None if value < -3 else f"t{value}" if text else value
                else:
                    stats[column.name] = f"t{value}" if text else value
            parts[board.leaf_of(plan.owner).key] = part(board, stats, overwrite)
        return self.session.deployment.post(plan.owner, *parts.values(), post_id=plan.post_id, at_us=plan.at_us)

    async def submit_all(self, requests: list[list[Post]]) -> list[list[list[PartOutcome]]]:
        if self.session.deployment.segments > 1:  # requests that come together may be applied in any order
            async with self.session.deployment.open_writers() as writers:
                return [await writers.submit(posts) for posts in requests]
        async with self.session.deployment.open_writer() as writer:
            return await asyncio.gather(*(writer.submit(posts) for posts in requests))

    def expect(self, post: Post, outcomes: Sequence[PartOutcome]) -> None:
        now_us = self.session.deployment.clock()
        at_us = now_us if post.at_us is None else post.at_us
        live = {each.key: plain for plain in self.plain.values() for each in plain.board.leaves}
        known: list[list[StatValue | None] | None] = []
        rows: list[list[Reached | None] | None] = []
        for one in post.parts:
            first, row = self.plan_row(live.get(one.leaf.key), post, one, at_us)
            known.append(first)
            rows.append(row)
        refused = any(
            first is None and row is None and not (one.leaf.key in live and live[one.leaf.key].refuses_alone(post))
            for one, first, row in zip(post.parts, known, rows, strict=True)
        )
        for one, first, row, outcome in zip(post.parts, known, rows, outcomes, strict=True):
            if first is not None:
                assert outcome.status is PostStatus.DUPLICATE
                assert outcome.stats == first
            elif refused or row is None:
                assert outcome.status is PostStatus.REJECTED
                assert outcome.error is not None
            else:
                self.take(live[one.leaf.key], post, one, row, outcome)

    def plan_row(
        self, plain: PlainBoard | None, post: Post, one: BoardPost, at_us: int
    ) -> tuple[list[StatValue | None] | None, list[Reached | None] | None]:
        """Return what a post must do: (first stats, None) if it is a duplicate, (None, new row) if it is applied.

        Return (None, None) if the post must be rejected.
        """
        if plain is None:
            return None, None
        if post.post_id is not None and (post.owner, post.post_id) in plain.remembered:
            fingerprint, stats = plain.remembered[post.owner, post.post_id]
            return (stats, None) if fingerprint == post.fingerprint else (None, None)
        if plain.refuses_alone(post):
            return None, None
        spec = plain.board.spec
        try:
            return None, merge_row(spec, plain.rows.get(post.owner, [None] * len(spec.columns)), one.changes, at_us)
        except OutOfRangeError:
            return None, None

    def take(
        self, plain: PlainBoard, post: Post, one: BoardPost, row: list[Reached | None], outcome: PartOutcome
    ) -> None:
        before = plain.rows.get(post.owner)
        changed = before != row
        assert outcome.status is (PostStatus.APPLIED if changed else PostStatus.UNCHANGED)
        assert outcome.updated_at_us is not None
        assert outcome.stats is not None
        plain.rows[post.owner] = row
        # A row that changes twice in one transaction gets only one new version.
        assert outcome.updated_at_us >= plain.versions.get(post.owner, 0)
        plain.versions[post.owner] = outcome.updated_at_us
        plain.changes += changed
        stats = plain.stats(post.owner)
        assert len(one.leaf.spec.columns) <= len(outcome.stats)
        assert outcome.stats == stats[: len(outcome.stats)]
        if post.post_id is not None:
            plain.remembered[post.owner, post.post_id] = (post.fingerprint, outcome.stats)

    # Hypothesis checks the invariants after every step.

    @invariant()
    def the_store_tells_what_the_dicts_do(self) -> None:
        self.session.run(self.session.deployment.store.read(self.compare))

    def compare(self) -> Program[None]:
        boards = yield from list_boards(prefix="", after="", limit=10)
        assert boards == [self.plain[name].board for name in sorted(self.plain)]
        for plain in self.plain.values():
            yield from self.compare_board(plain)

    def compare_board(self, plain: PlainBoard) -> Program[None]:
        totals = (yield from find_totals_of([plain.board]))[plain.board.key]
        assert totals.get(ALL_ENTRIES, 0) == len(plain.rows)
        assert 0 <= totals.get(CHANGES, 0) <= plain.changes
        for index in plain.board.sorted_indexes:
            assert totals.get(index, 0) == sum(row[index] is not None for row in plain.rows.values())
            yield from in_partition(plain.board.reading_partition, self.compare_ranking(plain, index))
        finding = self.session.deployment.entries(plain.board).find_entries(OWNERS)
        entries = yield from in_partition(plain.board.reading_partition, finding)
        assert {owner: entry.updated_at_us for owner, entry in entries.items()} == plain.versions
        merger = self.session.deployment.merger(plain.board)
        for owner, entry in entries.items():
            assert merger.decode_stats(entry.cells) == plain.stats(owner)

    def compare_ranking(self, plain: PlainBoard, index: int) -> Program[None]:
        stored = self.session.deployment.entries(plain.board).rankings[index]
        page = yield from stored.read_first_rows(PAGE_ROWS)
        walked: list[Entry] = []
        while page:
            walked += page
            page = yield from stored.read_rows_after(str(page[-1].cells[index]), page[-1].owner, PAGE_ROWS)
        order = rank_rows(plain.board.spec, index, plain.rows)
        assert [entry.owner for entry in walked] == [place.owner for place in order]
        for entry, place in zip(walked, order, strict=True):
            better = yield from stored.count_better(str(entry.cells[index]))
            assert better == sum(other.key < place.key for other in order)


def test_boards_behave_as_dicts_do_whatever_happens(session: Session) -> None:
    run_machine(BoardsMachine, session, examples=8)

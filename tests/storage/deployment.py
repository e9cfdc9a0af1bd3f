"""A migrated store, with the objects that a process builds on a store."""

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, ParamSpec, Self, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from config.settings import PostingSettings
from predictor import Curve
from querybuilder import asc, col, select
from storage.archive.archive_reader import ArchivedEntries
from storage.boards import journal
from storage.boards.board_changes import change_board
from storage.boards.board_creation import create_board
from storage.boards.board_removal import delete_board, reset_board
from storage.boards.boards import find_board
from storage.boards.catalog import Catalog
from storage.boards.families import find_family, make_boards, put_family
from storage.boards.journal import Numbers
from storage.curves.live_counts import list_bundles_after
from storage.curves.sampling import sample_curve
from storage.errors import OutdatedFactsError
from storage.histories.owner_merges import MergedPart
from storage.leaves import hidden_owners
from storage.leaves.entries import Entries, log_ranking_changes
from storage.leaves.rankings import OpenBoard
from storage.leaves.row_tables import layout_of, scope_of
from storage.leaves.totals import find_totals_of
from storage.log.bundles import Bundle, ChangeKind
from storage.log.change_log import change_log
from storage.log.merging import Merger
from storage.log.partition_journal import JOURNAL_PAGES, JournalRow, changes_of
from storage.meter import NO_METER, Meter
from storage.owners import OwnerChanges
from storage.periods import PeriodKind
from storage.posting.group_facts import KnownFacts
from storage.posting.post_ids import PostIds, hash_post
from storage.posting.rebuild import RebuildCounts, rebuild_board
from storage.posting.transaction import TransactionResult, apply_posts, open_boards_of
from storage.posting.voiding import VoidedPart, Voiding
from storage.posting.writer import Writer, Writers
from storage.reads.open_boards import OpenBoards
from storage.records import (
    INT64_MAX,
    Best,
    Board,
    BoardPost,
    BoardSpec,
    ColumnChange,
    ColumnKind,
    ColumnSpec,
    Entry,
    Family,
    FamilySpec,
    Leaf,
    Merge,
    PartOutcome,
    Post,
    PredictorSpec,
    RefreshMethod,
    StatValue,
    TableSharing,
    Ties,
)
from storage.schema.creation import prepare_store
from storage.store import Program, Store
from tests.storage.backends import HOME, Backend

P = ParamSpec("P")
T = TypeVar("T")

# Where the boards of a test keep their rows: in tables of their own, in a shared one, or in four segments each.
BoardTable = TableSharing | Literal["segments"]
SEGMENTS: Literal["segments"] = "segments"
NOW_US = 1_700_000_000_000_000
BOARDS_MAX = 10_000  # enough for property tests, which create a board for each example
PREDICTOR = PredictorSpec(samples=100, exact_top=10, refresh_seconds=60, method=RefreshMethod.AUTO)
LIMITS = PostingSettings(queue_posts_max=1_000, post_wait_s_max=10).model_copy(
    update={
        "group_posts_max": 100, "write_attempts_max": 4, "write_backoff_base_s": 0.0001, "write_backoff_s_max": 0.001,
        "writes_in_flight": 1,
    }
)  # fmt: skip


def ranked(
    name: str,
    *,
    merge: Merge = Merge.SUM,
    best: Best = Best.HIGH,
    scale: int = 0,
    min_scaled: int = -(10**15),
    max_scaled: int = 10**15,
) -> ColumnSpec:
    """Return the spec of a ranked column."""
    return ColumnSpec(name, True, merge, best, ColumnKind.NUMBER, scale, min_scaled, max_scaled)


def counter(name: str, *, merge: Merge = Merge.SUM, best: Best = Best.HIGH, of: str | None = None) -> ColumnSpec:
    """Return the spec of an unranked column of 64-bit integers. With `of`, it follows the column with this name."""
    merge = merge if of is None else Merge.WITH
    return ColumnSpec(name, False, merge, best, ColumnKind.NUMBER, 0, -INT64_MAX - 1, INT64_MAX, of)


def quotient(
    name: str,
    of: str,
    per: str,
    *,
    least: int = 1,
    sorted_: bool = True,
    best: Best = Best.HIGH,
    scale: int = 2,
    min_scaled: int = -(10**15),
    max_scaled: int = 10**15,
) -> ColumnSpec:
    """Return the spec of a column that is computed: `of` divided by `per`, if `per` is `least` or more."""
    merge, kind = Merge.QUOTIENT, ColumnKind.NUMBER
    return ColumnSpec(name, sorted_, merge, best, kind, scale, min_scaled, max_scaled, of, per=per, per_least=least)


def label(name: str, *, of: str | None = None) -> ColumnSpec:
    """Return the spec of an unranked column of text. With `of`, it follows the column with this name."""
    merge = Merge.LAST if of is None else Merge.WITH
    return ColumnSpec(name, False, merge, Best.HIGH, ColumnKind.TEXT, 0, 0, 0, of)


def spec(
    *columns: ColumnSpec,
    ties: Ties = Ties.SHARED,
    predictor: PredictorSpec = PREDICTOR,
    tie_columns: tuple[str, ...] = (),
) -> BoardSpec:
    return BoardSpec(columns, ties, predictor, tie_columns=tie_columns)


def keep_times(board: BoardSpec) -> BoardSpec:
    """Return the board with those unranked columns keeping their times on which the times of quotients depend."""
    if board.ties is Ties.SHARED:
        return board
    of = {column.name: column.of for column in board.columns if column.merge is Merge.WITH}
    divided = [column for column in board.columns if column.merge is Merge.QUOTIENT and column.sorted]
    timers = {of.get(name) or name for column in divided for name in (str(column.of), str(column.per))}
    columns = [replace(each, keeps_time=each.name in timers and not each.sorted) for each in board.columns]
    return replace(board, columns=tuple(columns))


class Part(NamedTuple):
    """The changes of a post to one board, whichever of the board's leaves holds the owner."""

    board: Board
    changes: list[ColumnChange]


def part(board: Board, stats: Mapping[str, StatValue], overwrite: Mapping[str, StatValue | None] | None = None) -> Part:
    changes = [ColumnChange(board.column_index[name], value, False) for name, value in stats.items()]
    changes += [ColumnChange(board.column_index[name], value, True) for name, value in (overwrite or {}).items()]
    return Part(board, changes)


@dataclass
class Clock:
    now_us: int = NOW_US

    def __call__(self) -> int:
        return self.now_us

    def read(self) -> Program[int]:
        """Return the time as the clock of a store does."""
        yield from ()
        return self.now_us


async def read_changes(store: Store, after: int = 0, limit: int = 10_000) -> list[JournalRow]:
    """Return the changes with greater numbers than `after` in the log of the partition of this store."""
    bundles = await store.read(lambda: JOURNAL_PAGES.read_rows(after, limit=limit))
    return [change for bundle in bundles for change in changes_of(bundle) if change.number > after][:limit]


def erase_entry(entries: OpenBoard, owner: str, *, now_us: int) -> Program[bool]:
    """Remove an owner's row and log it, or erase the owner from an archive; return False if there was no row."""
    if isinstance(entries, ArchivedEntries):
        return (yield from entries.erase_entry(owner))
    assert isinstance(entries, Entries)
    move = yield from entries.remove_entry(owner, ChangeKind.ERASED)
    yield from log_ranking_changes([] if move is None else [move], now_us=now_us)
    return move is not None


class Deployment:
    """The store as one process sees it, with the objects that the process builds on it."""

    def __init__(self, store: Store, salt: str, table: BoardTable = TableSharing.OWN) -> None:
        self.store, self.dialect = store, store.dialect
        self.segments = 4 if table == SEGMENTS else 1
        self.table = TableSharing.OWN if table == SEGMENTS else table
        self.partition = HOME if store.partitions > 1 else 0  # of the boards that tests create
        self.post_ids = PostIds(salt)
        self.boards = OpenBoards(open_boards_max=BOARDS_MAX)
        self.catalog = Catalog(store)
        self.known_facts = KnownFacts()
        self.clock = Clock()

    @classmethod
    async def on(cls, store: Store, table: BoardTable = TableSharing.OWN) -> Self:
        """Migrate the store and return a deployment. `table` decides where its boards keep their rows."""
        return cls(store, await prepare_store(store), table)

    async def read(self, program: Callable[P, Program[T]], *args: P.args, **named: P.kwargs) -> T:
        """Run a program with these arguments in one snapshot."""
        return await self.store.read(lambda: program(*args, **named))

    async def write(self, program: Callable[P, Program[T]], *args: P.args, **named: P.kwargs) -> T:
        """Run a program with these arguments in one transaction."""
        return await self.store.write(lambda: program(*args, **named))

    def laid_out(self, wanted: BoardSpec) -> BoardSpec:
        return replace(wanted, table=self.table, segments=self.segments)

    async def create(
        self,
        board_id: str,
        *columns: ColumnSpec,
        ties: Ties = Ties.SHARED,
        partition: int | None = None,
        away: Sequence[int] = (),
        spare: bool = False,
        **more: Any,
    ) -> Board:
        wanted = self.laid_out(replace(spec(*columns, ties=ties), **more))
        asked: dict[str, Any] = {
            "board_id": board_id,
            "spec": wanted,
            "now_us": self.clock(),
            "away": away,
            "spare": spare,
        }
        if self.segments == 1:
            asked["partition"] = self.partition if partition is None else partition
        return await self.store.write(lambda: create_board(**asked, boards_max=BOARDS_MAX))

    async def change(self, board_id: str, wanted: BoardSpec) -> Board:
        return await self.write(change_board, board_id=board_id, wanted=wanted, now_us=self.clock())

    async def reset(self, board_id: str = "b") -> Board:
        return await self.write(reset_board, board_id=board_id, now_us=self.clock())

    async def delete(self, board_id: str = "b") -> Board:
        return await self.write(delete_board, board_id=board_id)

    async def log_deletion(self, *board_ids: str) -> None:
        """Delete boards, and log it in the journal."""

        def program() -> Program[None]:
            gone: list[Leaf] = []
            for board_id in board_ids:
                gone += (yield from delete_board(board_id=board_id)).leaves
            yield from journal.log_deleted(gone, self.clock())

        await self.store.write(program)

    async def rebuild(self, board_id: str = "b", since: Numbers | None = None) -> RebuildCounts:
        return await self.write(rebuild_board, self.post_ids, board_id=board_id, since=since)

    async def void(
        self, place: Board | Family, owner: str, post_id: str, *, posted_by: str | None = None
    ) -> list[VoidedPart]:
        """Take back a post to a board or to a family. `posted_by`: an earlier id of the owner, whose post it is."""
        named = {"owner": owner, "posted_by": posted_by or owner, "post_id": post_id}
        named["post_hash"] = self.post_ids.hash_post_id(post_id, posted_by or owner)
        return await self.write(Voiding(place=place, now_us=self.clock(), **named).void_post)

    async def read_log(self, store: Store | None = None) -> list[Bundle]:
        """Return the change log of the partition for which the store runs programs."""
        return await (store or self.store).read(partial(list_bundles_after, 0, changes_max=1_000))

    async def read_journal(self) -> list[JournalRow]:
        return await read_changes(self.store)

    async def prune_log(self, *, rows_max: int = 1_000, store: Store | None = None) -> int:
        """Delete the oldest bundles of the change log. The last one stays."""
        later_us = self.clock() + 1
        pruning = partial(change_log.prune, before_us=later_us, rows_max=rows_max)
        return await (store or self.store).write(pruning)

    async def fit(self, board: Board, index: int, *, gap_rows_max: int = 10_000) -> tuple[Curve, int]:
        """Sample a curve of a column. Return it with the mark of the log that it counts up to."""
        entries = self.open_rows(board)

        def program() -> Program[tuple[Curve, int]]:
            mark = yield from change_log.take_mark()
            sampled = sample_curve(self.dialect, entries, index, gap_rows_max=gap_rows_max, now_us=NOW_US)
            return (yield from sampled), mark

        return await self.store.read(program, heavy=True)

    async def create_everywhere(self, *columns: ColumnSpec) -> list[Board]:
        """Create a board in each partition of the store: b0, b1 and so on."""
        return [await self.create(f"b{at}", *columns, partition=at) for at in range(self.store.partitions)]

    async def find(self, board_id: str = "b") -> Board:
        return await self.read(find_board, board_id)

    async def put_family(self, wanted: FamilySpec, family_id: str = "f") -> Family:
        asked = {"now_us": self.clock(), "families_max": BOARDS_MAX, "partition": self.partition}
        family, _ = await self.write(put_family, family_id=family_id, spec=wanted, **asked)
        return family

    async def create_family(
        self,
        *columns: ColumnSpec,
        periods: tuple[PeriodKind, ...] = (PeriodKind.ALL,),
        facets: tuple[tuple[str, ...], ...] = ((),),
        grace_s: int = 0,
        keep: tuple[tuple[PeriodKind, int], ...] = (),
        time_zone: str = "UTC",
        family_id: str = "f",
    ) -> Family:
        board = self.laid_out(spec(*columns))
        return await self.put_family(FamilySpec(board, periods, time_zone, facets, grace_s, keep), family_id)

    async def make_boards(self, *names: str, family_id: str = "f") -> list[Board]:
        """Return the boards of a family whose ids end in these names, in this order. Create missing boards."""
        wanted = [f"{family_id}:{name}" for name in names]
        family = await self.read(find_family, family_id)
        made = await self.write(make_boards, family, wanted, now_us=self.clock(), boards_max=BOARDS_MAX)
        by_id = {board.id: board for board in made}
        return [by_id[each] for each in wanted]

    def change_owner(self, owner: str) -> OwnerChanges:
        """Return the object that erases, hides, shows or merges an owner on every board."""
        return OwnerChanges(
            owner=owner, store=self.store, open_boards=self.boards, now_us=self.clock, boards_max=BOARDS_MAX,
            rows_max=1_000, token=secrets.token_hex(8),
        )  # fmt: skip

    async def merge(self, owner: str, into: str, *, by_posts: bool = True) -> list[MergedPart]:
        return await self.change_owner(owner).merge_into(into, by_posts=by_posts)

    async def flip_hidden(self, owner: str, *, hide: bool) -> None:
        """Mark an owner as hidden or as being shown. Do not move the owner's rows."""
        await self.write(hidden_owners.store_state, owner, now_us=1, hide=hide)

    async def hide(self, owner: str, *boards: Board) -> None:
        """Hide an owner, and move the owner's rows out of the rankings of these boards."""
        await self.flip_hidden(owner, hide=True)
        theirs = [self.boards.open_rows(board.leaf_of(owner)) for board in boards]
        await self.write(hidden_owners.hide_owner, theirs, owner, now_us=self.clock())

    async def show(self, owner: str, *boards: Board) -> None:
        await self.flip_hidden(owner, hide=False)
        theirs = [self.boards.open_rows(board.leaf_of(owner)) for board in boards]
        await self.write(hidden_owners.show_owner, theirs, owner, now_us=self.clock())
        await self.write(hidden_owners.forget_state, owner, now_us=1)

    def entries(self, board: Board) -> OpenBoard:
        """Return the object that builds the statements on the entries of a board."""
        return self.boards.open_board(board)

    def open_rows(self, board: Board) -> Entries:
        return self.boards.open_rows(board.leaf)

    def merger(self, board: Board) -> Merger:
        return self.boards.open_rows(board.leaves[0]).merger

    def post(self, owner: str, *parts: Part, post_id: str | None = None, at_us: int | None = None) -> Post:
        """Return a post in the form in which the service passes posts to the writer."""
        reached = [BoardPost(one.board.leaf_of(owner), one.changes) for one in parts]
        if post_id is None:
            return Post(owner, reached, None, at_us, fingerprint="")
        fingerprint = "".join(hash_post(owner, one.board.spec, one.changes, at_us) for one in parts)
        post_hash = self.post_ids.hash_post_id(post_id, owner)
        return Post(owner, reached, post_hash, at_us, fingerprint, post_id=post_id)

    async def apply(self, *posts: Post) -> list[list[PartOutcome]]:
        """Apply all posts as one group, in one transaction."""

        def group() -> Program[TransactionResult]:
            opened = open_boards_of(posts, self.boards)
            return apply_posts(self.store, opened, posts, self.known_facts, self.clock(), check_boards=True)

        while True:
            try:
                done = await self.store.write(group)
            except OutdatedFactsError as error:
                self.known_facts.keep(error.learned)
            else:
                self.known_facts.keep(done.learned)
                return done.outcomes

    async def apply_one(self, post: Post) -> PartOutcome:
        """Apply a post to one board, in a transaction of its own."""
        [[outcome]] = await self.apply(post)
        return outcome

    async def erase(self, board: Board, owner: str) -> bool:
        """Erase an owner from a board. Return whether the owner had an entry."""
        its = board.leaf_of(owner)
        return await self.store.at(its.partition).write(
            lambda: erase_entry(self.boards.open_leaf(its), owner, now_us=self.clock())
        )

    async def rows(self, board: Board, owners: Sequence[str]) -> dict[str, Entry]:
        return await self.store.at(board.reading_partition).read(lambda: self.entries(board).find_entries(owners))

    async def list_rows(self, board: Board) -> list[tuple[Any, ...]]:
        found = []
        for each in board.leaves:
            layout = layout_of(each)
            rows = select(*layout.row_columns()).from_(layout.table).where(*layout.scope()).order_by(asc(col("owner")))
            found += await self.store.at(each.partition).read_query(rows.bind(**scope_of(each)))
        return sorted(map(tuple, found))

    async def stats(self, board: Board, owner: str) -> dict[str, StatValue | None] | None:
        """Return an owner's values by column name, or None if the owner has no entry."""
        found = await self.rows(board, [owner])
        if owner not in found:
            return None
        values = self.merger(board).decode_stats(found[owner].cells)
        return dict(zip((column.name for column in board.spec.columns), values, strict=True))

    async def value(self, board: Board, owner: str, column: str = "xp") -> StatValue | None:
        """Return an owner's value, or None if the owner has no entry or no value."""
        return (await self.stats(board, owner) or {}).get(column)

    async def totals(self, board: Board) -> dict[int, int]:
        """Return the totals of a board that are not 0. The keys are column indexes, ALL_ENTRIES and CHANGES."""
        counted = await self.store.read(lambda: find_totals_of([board]))
        return {index: count for index, count in counted[board.key].items() if count}

    def writer(
        self,
        meter: Meter = NO_METER,
        *,
        store: Store | None = None,
        limits: PostingSettings = LIMITS,
        rng: random.Random | None = None,
        monotonic: Callable[[], float] | None = None,
        siblings: list[Writer] | None = None,
    ) -> Writer:
        parts = store or self.store, self.boards, limits, meter
        monotonic, rng = monotonic or asyncio.get_running_loop().time, rng or random.Random(7)
        return Writer(*parts, now_us=self.clock, monotonic=monotonic, rng=rng, siblings=siblings)

    @asynccontextmanager
    async def open_writers(self) -> AsyncIterator[Writers]:
        """Provide the writers of a process that knows all boards. At the end, close them."""
        await self.catalog.load(boards_max=BOARDS_MAX)
        writers = Writers(self.store, lambda by, siblings: self.writer(store=by, siblings=siblings))
        try:
            yield writers
        finally:
            await writers.close()

    @asynccontextmanager
    async def open_writer(
        self, meter: Meter = NO_METER, *, attempts_max: int = LIMITS.write_attempts_max
    ) -> AsyncIterator[Writer]:
        """Provide a running writer. At the end, close it."""
        writer = self.writer(meter, limits=LIMITS.model_copy(update={"write_attempts_max": attempts_max}))
        writer.start()
        try:
            yield writer
        finally:
            await writer.close()


class Session:
    """A deployment with an event loop of its own, because Hypothesis cannot run coroutines."""

    def __init__(self, backend: Backend, directory: Path, table: BoardTable = TableSharing.OWN) -> None:
        self._table = table
        self._runner = asyncio.Runner()
        self._opened = AsyncExitStack()
        self._open_store = self._runner.run(self._opened.enter_async_context(backend(directory)))
        self.deployment = self._runner.run(self._deploy())
        self._boards = 0

    async def _deploy(self) -> Deployment:
        return await Deployment.on(await self._open_store(), self._table)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(coroutine)

    def create(self, *columns: ColumnSpec, ties: Ties = Ties.SHARED) -> Board:
        self._boards += 1
        return self.run(self.deployment.create(f"board-{self._boards}", *columns, ties=ties))

    def reopen(self) -> None:
        """Close the store and open it again, as a new process would. The clock continues at the same time."""
        clock = self.deployment.clock
        self.run(self.deployment.store.close())
        self.deployment = self.run(self._deploy())
        self.deployment.clock = clock

    def close(self) -> None:
        self._runner.run(self._opened.aclose())
        self._runner.close()


def choose_examples(few: int) -> int:
    """Return how many histories a model is compared with: `few`, or many with `--hypothesis-profile histories`."""
    return settings().max_examples if settings.get_current_profile_name() == "histories" else few


def run_machine(kind: type[RuleBasedStateMachine], session: Session, *, examples: int = 10, steps: int = 30) -> None:
    machine = type(f"{kind.__name__}Here", (kind,), {"session": session})
    allowed = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    chosen = settings(
        max_examples=choose_examples(examples), stateful_step_count=steps, deadline=None, suppress_health_check=allowed
    )
    run_state_machine_as_test(machine, settings=chosen)

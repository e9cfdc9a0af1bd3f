"""Test that a board that moves to another partition keeps every post, whatever happens to it meanwhile."""

import asyncio
import contextlib
import copy
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from config.settings import JobSettings
from jobs.boards.move import MoveCounts
from predictor import Curve, Knot
from querybuilder import Bound, col, select
from storage.archive.archive_reader import ArchivedEntries
from storage.archive.archive_writer import ArchiveWriter
from storage.curves.stored_curves import find_listed_curves, store_curve
from storage.errors import (
    BoardChangedError,
    BoardFullError,
    FamilyBoardError,
    LeaseTakenError,
    NoPostsLeftError,
    SpecConflictError,
    SpecInvalidError,
    StoreBusyError,
    UnknownBoardError,
)
from storage.leaves import erasure, hidden_owners
from storage.leaves.entrants import count_owners
from storage.leaves.entries import log_ranking_changes
from storage.leaves.gates import hold_gates
from storage.leaves.totals import CHANGES, find_totals, read_totals
from storage.log.bundles import ChangeKind
from storage.queue.outcomes import find_post_fate
from storage.reads.point_reads import PointReads
from storage.records import Board, EntryRules, PartOutcome, PostStatus, TableSharing, Ties
from storage.schema.creation import count_partitions
from storage.schema.tables import HIDDEN_ENTRIES, POST_IDS, TOTALS
from storage.store import CONTROL, Program, Store
from tests.jobs.moving import STORE_LEASES, copy_few_rows_at_once, make_move, open_refresh_requests
from tests.schemas import PARTITIONS
from tests.storage.backends import BACKENDS, HOME, OpenStore
from tests.storage.deployment import Clock, Deployment, counter, label, part, ranked
from tests.storage.meddling import interpose
from tests.storage.passing import PassingStore
from tests.storage.queueing import QueueDesk

T = TypeVar("T")
COLUMNS = (ranked("xp"), counter("shots"), label("clan"))
ELSEWHERE = 0
OWNERS = [f"o{number:02}" for number in range(14)]


@pytest.fixture
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenStore]:
    async with BACKENDS["partitions"](request)(tmp_path) as opened:
        yield opened


@pytest.fixture(params=list(TableSharing))
async def deployment(open_store: OpenStore, request: pytest.FixtureRequest) -> Deployment:
    return await Deployment.on(await open_store(), request.param)


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    copy_few_rows_at_once(monkeypatch)


async def move(deployment: Deployment, target: int, board_id: str = "b") -> MoveCounts:
    return await make_move(deployment.store, target=target, board_id=board_id).run()


def seen_from(deployment: Deployment, partition: int) -> Deployment:
    """Return the same deployment, whose programs run for another partition."""
    other = copy.copy(deployment)
    other.store = deployment.store.at(partition)
    return other


async def rows_for(store: Store, table: str, board: Board, *names: str) -> list[tuple[Any, ...]]:
    asked = select(*map(col, names)).from_(table).where(col("leaf_key").eq(board.key)).bind()
    return sorted(tuple(row) for row in await store.read_query(asked))


async def read_everything(deployment: Deployment, board_id: str = "b") -> dict[str, Any]:
    """Return everything that readers may see of a board, whichever partition it is in."""
    board = await deployment.find(board_id)
    there = seen_from(deployment, board.partition)
    totals = (await there.store.read(lambda: find_totals([board.key])))[board.key]
    hidden = await rows_for(there.store, HIDDEN_ENTRIES, board, "owner", "updated_at", "cells")
    return {
        "rows": await there.list_rows(board),
        "hidden": [(owner, at_us, json.loads(cells)) for owner, at_us, cells in hidden],
        "totals": {index: count for index, count in totals.items() if count and index != CHANGES},
        "ids": len(await rows_for(there.store, POST_IDS, board, "post_hash")),
    }


async def on_board(deployment: Deployment, board_id: str, program: Callable[[Board], Program[T]]) -> T:
    """Run a program for a board's partition. If the board has moved meanwhile, run it again."""
    while True:
        board = await deployment.find(board_id)
        try:
            return await deployment.store.at(board.partition).write(lambda board=board: program(board))  # type: ignore[misc]
        except (BoardChangedError, UnknownBoardError):
            continue


async def set_hidden(deployment: Deployment, owner: str, *, hide: bool, board_ids: tuple[str, ...] = ("b",)) -> None:
    await deployment.flip_hidden(owner, hide=hide)
    work = hidden_owners.hide_owner if hide else hidden_owners.show_owner
    for board_id in board_ids:
        await on_board(
            deployment, board_id, lambda board: work([deployment.open_rows(board)], owner, now_us=deployment.clock())
        )
    if not hide:
        await deployment.write(hidden_owners.forget_state, owner, now_us=1)


async def erase(deployment: Deployment, owner: str, board_id: str = "b") -> None:
    """Erase an owner's entry, and the name in the log of the board's partition."""

    def program(board: Board) -> Program[None]:
        entries, log = deployment.open_rows(board), erasure
        shown = yield from entries.remove_entry(owner, ChangeKind.ERASED)
        found = shown or (yield from hidden_owners.erase_hidden_entry(entries, owner))
        logged = yield from log_ranking_changes([] if found is None else [found], now_us=deployment.clock())
        [stretch], _ = yield from log.find_stretches(owner, past=0)
        until = {board.key: logged.next - 1}
        yield from log.rename_owner(owner, stretch, token="t", until=until, otherwise=0, rows_max=10**6)

    await on_board(deployment, board_id, program)


def points(deployment: Deployment, board: Board, owner: str, post_id: str | None = None, xp: int = 1) -> Any:
    return deployment.post(owner, part(board, {"xp": xp, "shots": 1}), post_id=post_id)


async def fill(deployment: Deployment, *board_ids: str) -> Board:
    """Create boards and give them entries, hidden entries, post ids, and an owner who was erased. Return the first."""
    board_ids = board_ids or ("b",)
    boards = [await deployment.create(board_id, *COLUMNS, ties=Ties.EARLIEST) for board_id in board_ids]
    numbered = list(enumerate(OWNERS))
    for group in (numbered[:5], numbered[5:]):
        some = [points(deployment, each, owner, f"id {owner}", xp=at % 7) for each in boards for at, owner in group]
        await deployment.apply(*some)
        deployment.clock.now_us += 1
    await deployment.apply(*(deployment.post("o01", part(board, {"clan": "red"})) for board in boards))
    for owner in OWNERS[:3]:
        await set_hidden(deployment, owner, hide=True, board_ids=board_ids)
    for board_id in board_ids:
        await erase(deployment, OWNERS[3], board_id)
    return boards[0]


async def store_a_curve(store: Store, board: Board) -> int:
    curve = Curve([Knot(1, 0, 2), Knot(9, 5, 1)], total=6, as_of_us=1, method="scan", certificate=0.0, errors=(0,))
    return await store.at(board.partition).write(lambda: store_curve(board.leaf, 0, curve, changes=3, mark=1))


async def test_a_move_keeps_everything_and_leaves_nothing_behind(deployment: Deployment) -> None:
    store = deployment.store
    await fill(deployment)
    before = await read_everything(deployment)
    assert len(before["hidden"]) == 3
    assert before["ids"] == len(OWNERS)
    version = await store_a_curve(store, await deployment.find())
    for target in (0, 3, 0, HOME):
        source = await deployment.find()
        counts = await move(deployment, target)
        assert counts.rows == len(OWNERS) - 4
        board = await deployment.find()
        assert board.partition == target
        assert await read_everything(deployment) == before
        assert await rows_for(store.at(source.partition), TOTALS, board, "entries") == []
        listed = await store.at(target).read(lambda board=board: find_listed_curves([board.key]))  # type: ignore[misc]
        [curve] = listed.values()
        assert curve.version > version, "each process takes it for a newer curve"
        assert (curve.mark, curve.changes) == (None, 3)
        assert await open_refresh_requests(store) == [(board.key, 0)], "the copied curve stands still until a refresh"
        version = curve.version
        assert await store.at(source.partition).read(lambda board=board: find_listed_curves([board.key])) == {}  # type: ignore[misc]
        [[again]] = await deployment.apply(points(deployment, board, "o09", "id o09", xp=2))
        assert again.status is PostStatus.DUPLICATE
    await deployment.apply(points(deployment, board, "o00"))
    await set_hidden(deployment, "o00", hide=False)
    assert await deployment.stats(await deployment.find(), "o00") == {"xp": 1, "shots": 2, "clan": None}


async def test_posts_that_were_queued_before_a_move_are_known(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    desk = await QueueDesk.on(deployment, everywhere=True)
    await desk.enqueue(points(deployment, board, "ada", "good"), points(deployment, board, "ada", "bad", xp=10**16))
    await move(deployment, ELSEWHERE)
    board = await deployment.find()
    for post_id in ("good", "bad"):
        assert await find_post_fate(deployment.store, deployment.post_ids, board, post_id, "ada") is None
    await desk.drain_queue()
    fates = [await desk.find_fate(board, post_id, "ada") for post_id in ("good", "bad")]
    assert [fate.status for fate in fates] == [PostStatus.APPLIED, PostStatus.REJECTED]


async def test_an_outdated_copy_of_the_board_writes_nothing(deployment: Deployment) -> None:
    old, staying = await fill(deployment), await deployment.create("staying", *COLUMNS)
    await move(deployment, ELSEWHERE)
    before = await read_everything(deployment)
    async with deployment.open_writer() as writer:
        posts = [points(deployment, board, owner) for board, owner in ((old, "o05"), (staying, "o05"), (old, "new"))]
        outcomes = [outcome for [outcome] in await writer.submit(posts)]
        errors = [type(outcome.error) for outcome in outcomes]
        assert errors == [UnknownBoardError, type(None), UnknownBoardError], "the caller reads the board again"
        reads = PointReads(
            deployment.store, deployment.boards, point_reads_per_batch_max=9, reads_waiting_max=9, tasks_max=1
        )
        with pytest.raises(UnknownBoardError):
            await reads.read_entry(old, "o05")
        for owner in ("o00", "o05"):
            with pytest.raises((BoardChangedError, UnknownBoardError)):
                await deployment.store.write(
                    lambda owner=owner: deployment.open_rows(old).remove_entry(owner, ChangeKind.HIDDEN)  # type: ignore[misc]
                )
        await move(deployment, HOME)
        assert await read_everything(deployment) == before
        [[outcome]] = await writer.submit([points(deployment, await deployment.find(), "o05")])
        assert outcome.stats == [6, 2, None]


async def test_a_board_with_an_archive_moves(deployment: Deployment) -> None:
    await fill(deployment)
    board = await deployment.find()
    limits = JobSettings()

    def archive() -> Program[Any]:
        writer = ArchiveWriter(board, deployment.open_rows(board), limits)
        step = yield from writer.read_step()
        assert (step.is_first, step.is_last) == (True, True)
        return (yield from writer.store_step(step, writer.encode_blocks(step.drafts), now_us=5))

    await deployment.store.write(archive)
    archived = await deployment.find()
    before = await deployment.store.read(lambda: ArchivedEntries(archived.leaf).find_entries(OWNERS))
    assert len(before) == len(OWNERS) - 4
    await move(deployment, ELSEWHERE)
    moved = await deployment.find()
    there = deployment.store.at(ELSEWHERE)
    assert await there.read(lambda: ArchivedEntries(moved.leaf).find_entries(OWNERS)) == before
    await move(deployment, HOME)
    again = await deployment.find()
    assert await deployment.store.read(lambda: ArchivedEntries(again.leaf).find_entries(OWNERS)) == before
    with pytest.raises(UnknownBoardError):
        await there.read(lambda: read_totals([moved.leaf]))


async def test_a_move_that_cannot_be_is_refused(deployment: Deployment) -> None:
    await fill(deployment)
    await deployment.create_family(*COLUMNS)
    await deployment.make_boards("all")
    before = await read_everything(deployment)
    refused = (
        ("b", HOME, SpecConflictError),
        ("b", PARTITIONS, SpecInvalidError),
        ("b", CONTROL, SpecInvalidError),
        ("unknown", ELSEWHERE, UnknownBoardError),
        ("f:all", ELSEWHERE, FamilyBoardError),
    )
    for board_id, target, error in refused:
        with pytest.raises(error):
            await move(deployment, target, board_id)
    board = await deployment.find()
    claimed = STORE_LEASES.claim("move", str(board.key), holder="other", lease_us=10**9)
    await deployment.store.at(CONTROL).write(lambda: claimed)
    with pytest.raises(LeaseTakenError, match=r"'b' is being moved .*try again in \d+ s"):
        await move(deployment, ELSEWHERE)
    with pytest.raises(LeaseTakenError, match=r"'b' is being moved .*try again in \d+ s"):
        await deployment.rebuild()
    assert await read_everything(deployment) == before


async def test_a_moved_board_is_rebuilt_from_its_history_in_both_partitions(deployment: Deployment) -> None:
    await fill(deployment)
    await move(deployment, ELSEWHERE)
    deployment.clock.now_us += 1
    board = await deployment.find()
    await deployment.apply(points(deployment, board, "o05"))
    before = await deployment.list_rows(board)
    assert len(before) > 1
    await deployment.rebuild()
    assert await deployment.list_rows(await deployment.find()) == before


async def test_a_move_copies_rows_while_a_post_holds_the_board(open_store: OpenStore, deployment: Deployment) -> None:
    board = await fill(deployment)
    held, copied = asyncio.Event(), asyncio.Event()

    def hold() -> Program[None]:
        yield from hold_gates([board.leaf], now_us=0, check_all=False)
        held.set()
        while not copied.is_set():
            yield from count_partitions()

    async with asyncio.TaskGroup() as group:
        holder = await open_store()
        group.create_task(holder.at(CONTROL).write(hold))
        await held.wait()
        try:
            await make_move(deployment.store, target=ELSEWHERE, report=lambda _: copied.set()).run()
        finally:
            copied.set()
    assert (await deployment.find()).partition == ELSEWHERE


class KilledError(Exception):
    """The process was killed."""


class StepStore(PassingStore):
    """A store that can run something before each call, and can kill the process before any statement."""

    def __init__(self, store: Store, shared: "StepStore | None" = None) -> None:
        super().__init__(store)
        self._steps = self if shared is None else shared
        self.before_call: Callable[[int], Awaitable[None]] | None = None
        self.statements_left: int | None = None  # None: the process is never killed
        self.calls = 0

    def at(self, partition: int) -> Store:
        return StepStore(self._store.at(partition), self._steps)

    async def read(self, program: Callable[[], Program[T]], *, heavy: bool = False) -> T:
        await self._steps._begin_call()
        return await self._store.read(lambda: interpose(program(), self._steps._count), heavy=heavy)

    async def write(self, program: Callable[[], Program[T]]) -> T:
        await self._steps._begin_call()
        return await self._store.write(lambda: interpose(program(), self._steps._count))

    async def _begin_call(self) -> None:
        self.calls += 1
        if self.before_call is not None:
            await self.before_call(self.calls)

    def _count(self, _query: Bound) -> None:
        if self.statements_left is not None:
            self.statements_left -= 1
            if self.statements_left < 0:
                raise KilledError


async def test_a_killed_move_changes_nothing_and_can_be_run_again(deployment: Deployment) -> None:
    await fill(deployment)
    await store_a_curve(deployment.store, await deployment.find())
    before = await read_everything(deployment)
    clock = Clock()
    for statements in itertools.count():
        clock.now_us += 10**9  # the lease of the killed process is over
        home = (await deployment.find()).partition
        target = (home + 1) % PARTITIONS
        dying = StepStore(deployment.store)
        dying.statements_left = statements
        try:
            await make_move(dying, target=target, clock=clock.read).run()
            break
        except KilledError:
            assert (await deployment.find()).partition == home
            assert await read_everything(deployment) == before
        if statements % 5 == 0:
            clock.now_us += 10**9
            await make_move(deployment.store, target=target, clock=clock.read).run()
            assert await read_everything(deployment) == before
    assert statements > 40
    assert await read_everything(deployment) == before


Change = Callable[[Deployment, str], Awaitable[object]]


async def post_some(deployment: Deployment, board_id: str) -> None:
    board = await deployment.find(board_id)
    await deployment.apply(
        *[points(deployment, board, owner, f"late {owner}") for owner in ("o00", "o05", "o13", "new")],
        points(deployment, board, "o08", "id o08", xp=1),
    )


async def erase_some(deployment: Deployment, board_id: str) -> None:
    for owner in ("o02", "o11", "nobody"):
        await erase(deployment, owner, board_id)


async def hide_some(deployment: Deployment, board_id: str) -> None:
    await set_hidden(deployment, "o10", hide=True, board_ids=("b", "twin") if board_id == "b" else ())


async def show_some(deployment: Deployment, board_id: str) -> None:
    await set_hidden(deployment, "o00", hide=False, board_ids=("b", "twin") if board_id == "b" else ())


async def reset(deployment: Deployment, board_id: str) -> None:
    await deployment.reset(board_id)
    await post_some(deployment, board_id)


async def widen(deployment: Deployment, board_id: str) -> None:
    board = await deployment.find(board_id)
    wider = await deployment.change(board_id, replace(board.spec, columns=(*COLUMNS, ranked("late"))))
    await deployment.apply(deployment.post("o12", part(wider, {"late": 5})))


async def change_much(deployment: Deployment, board_id: str) -> None:
    for change in (post_some, erase_some, hide_some, show_some):
        await change(deployment, board_id)


@pytest.mark.parametrize(
    ("deployment", "change"),
    [
        *((TableSharing.OWN, change) for change in (show_some, reset, widen)),
        (TableSharing.SHARED, change_much),
    ],
    indirect=["deployment"],
)
async def test_a_change_at_any_step_of_a_move_is_kept(deployment: Deployment, change: Change) -> None:
    """Change a board at one step of its move, and its twin in the same way. The twin does not move."""
    last = 0
    for at in itertools.count(2):
        deployment.clock.now_us = 10**15 + at * 10**9
        await fill(deployment, "b", "twin")
        stepping = StepStore(deployment.store)

        async def run_change(step: int, at: int = at) -> None:
            if step == at:
                for board_id in ("b", "twin"):
                    deployment.clock.now_us = 2 * 10**15
                    await change(deployment, board_id)

        stepping.before_call = run_change
        try:
            await make_move(stepping, target=ELSEWHERE).run()
        except BoardChangedError:
            assert change in (reset, widen)
            await make_move(stepping, target=ELSEWHERE).run()
        if stepping.calls < at:
            break
        last = at
        assert (await deployment.find()).partition == ELSEWHERE
        assert await read_everything(deployment, "b") == await read_everything(deployment, "twin"), at
        for owner in ("o00", "o10"):
            await deployment.flip_hidden(owner, hide=False)
        for board_id in ("b", "twin"):
            await deployment.delete(board_id)
    assert last >= 7


async def test_nothing_is_lost_or_applied_twice_while_a_board_moves(
    open_store: OpenStore, deployment: Deployment
) -> None:
    await fill(deployment)
    done = asyncio.Event()
    sums: dict[str, int] = {}
    ids: list[tuple[str, str]] = []

    async def post(name: str, theirs: Deployment) -> None:
        board = await theirs.find()
        async with theirs.open_writer(attempts_max=100) as writer:
            for number in itertools.count():
                if done.is_set():
                    return
                owner, post_id = f"{name} {number % 7}", f"{name}/{number}"
                while True:
                    with contextlib.suppress(StoreBusyError):
                        [[outcome]] = await writer.submit([points(theirs, board, owner, post_id)])
                        if outcome.error is None:
                            break
                        assert isinstance(outcome.error, UnknownBoardError)
                        board = await theirs.find()
                if outcome.status is PostStatus.APPLIED:
                    sums[owner] = sums.get(owner, 0) + 1
                    ids.append((owner, post_id))

    async def disturb() -> None:
        for turn in itertools.count():
            if done.is_set():
                return
            await set_hidden(deployment, "first 3", hide=True)
            if turn % 10 == 0:  # each erasure makes the move compare all rows
                await erase(deployment, "second hand")
            await set_hidden(deployment, "first 3", hide=False)
            await deployment.apply(points(deployment, await deployment.find(), "second hand"))

    async with asyncio.TaskGroup() as group:
        for name in ("first", "second", "third"):
            group.create_task(post(name, Deployment(await open_store(), "00" * 16, deployment.table)))
        disturbing = group.create_task(disturb())
        for target in (0, 3, 1, HOME):
            await move(Deployment(await open_store(), "00" * 16), target)
        done.set()
        await disturbing
    board = await deployment.find()
    assert board.partition == HOME
    assert sum(sums.values()) > 30
    found = {owner: await deployment.stats(board, owner) for owner in sums}
    assert {owner: stats and stats["xp"] for owner, stats in found.items()} == sums
    retried = Deployment(deployment.store, "00" * 16)
    for owner, post_id in ids:
        assert (await retried.apply_one(points(retried, board, owner, post_id))).status is PostStatus.DUPLICATE


async def test_a_post_is_voided_although_its_board_has_moved_since(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS)
    for xp, target in ((1, ELSEWHERE), (2, HOME), (4, ELSEWHERE)):
        deployment.clock.now_us += 1
        await deployment.apply(deployment.post("ada", part(board, {"xp": xp, "shots": 1}), post_id=f"p{xp}"))
        await move(deployment, target)
        board = await deployment.find()
    for post_id, left in (("p1", [6, 2, None]), ("p4", [2, 1, None]), ("p2", None)):
        [voided] = await deployment.void(board, "ada", post_id)
        assert voided.stats == left
        await move(deployment, HOME if board.partition == ELSEWHERE else ELSEWHERE)
        board = await deployment.find()
        again = await deployment.apply_one(deployment.post("ada", part(board, {"xp": 1}), post_id=post_id))
        assert again.status is PostStatus.REJECTED
    assert (await read_everything(deployment))["rows"] == []


async def test_owners_keep_places_and_attempts_where_their_board_goes(deployment: Deployment) -> None:
    board = await deployment.create("b", *COLUMNS, entry=EntryRules(join=False, posts_max=1, owners_max=2))
    await post_xp(deployment, board, "ada", "bob")
    before = await deployment.read(count_owners, board.leaves)
    await move(deployment, ELSEWHERE)
    board = await deployment.find()
    outcomes = await post_xp(seen_from(deployment, ELSEWHERE), board, "ada", "eve")
    assert [type(each.error) for each in outcomes] == [NoPostsLeftError, BoardFullError]
    assert [*(await deployment.read(count_owners, board.leaves)).values()] == [*before.values()] == [2]
    if deployment.table is TableSharing.SHARED:
        return
    for segments in (3, 2):
        await make_move(deployment.store, segments=segments).run()
        board = await deployment.find()
        outcomes = await post_xp(deployment, board, "bob", "eve")
        assert [type(each.error) for each in outcomes] == [NoPostsLeftError, BoardFullError]
    await deployment.change_owner("bob").erase_entry(board)
    assert [each.error for each in await post_xp(deployment, board, "eve")] == [None]


async def post_xp(deployment: Deployment, board: Board, *owners: str) -> list[PartOutcome]:
    posts = [deployment.post(owner, part(board, {"xp": 1})) for owner in owners]
    return [outcome for [outcome] in await deployment.apply(*posts)]

"""Test point reads that share statements: which data each caller gets, and as of which time."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from predictor import Curve, SummedCurve
from querybuilder import Bound
from storage.errors import BoardChangedError, StoreBusyError, UnknownBoardError
from storage.leaves.exact_ranks import CountStart
from storage.leaves.row_rankings import AroundOwner
from storage.leaves.totals import ALL_ENTRIES, CHANGES
from storage.log.change_log import change_log
from storage.reads.point_reads import EntryRead, PointReads, read_owner_on_leaves
from storage.records import Board, TableSharing, TierSpec
from storage.store import Program, Rows, Store
from tests.storage.deployment import NOW_US, Deployment, counter, part, ranked, spec
from tests.storage.meddling import MeddlingStore

T = TypeVar("T")
XP, LAP, SHOTS = ranked("xp"), ranked("lap"), counter("shots")


class CountedReads(MeddlingStore):
    """A store that counts its statements. It blocks each statement until the test releases it."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.statements = 0
        self.go = asyncio.Event()
        self.go.set()
        self.entered = asyncio.Event()

    async def read_query(self, query: Bound) -> Rows:
        self.statements += 1
        self.entered.set()
        await self.go.wait()
        return await super().read_query(query)


def make_reads(deployment: Deployment, store: Store, *, waiting_max: int = 100, tasks_max: int = 1) -> PointReads:
    return PointReads(
        store, deployment.boards, point_reads_per_batch_max=10, reads_waiting_max=waiting_max, tasks_max=tasks_max
    )


async def test_an_entry_comes_with_the_totals_of_the_same_snapshot(deployment: Deployment) -> None:
    board = await deployment.create("b", XP, ranked("lap"))
    reads = make_reads(deployment, deployment.store)
    nobody = await reads.read_entry(board, "ada")
    assert (nobody.entry, nobody.totals) == (None, {})
    await deployment.apply(
        deployment.post("ada", part(board, {"xp": 5})), deployment.post("bob", part(board, {"lap": 5}))
    )
    found = await reads.read_entry(board, "ada")
    assert found.totals == {ALL_ENTRIES: 2, CHANGES: 2, 0: 1, 1: 1}
    assert found.entry == (await deployment.rows(board, ["ada"]))["ada"]
    assert (await reads.read_entry(board, "cyd")).entry is None


async def test_reads_that_wait_share_the_next_statements(deployment: Deployment, board: Board) -> None:
    await deployment.apply(*(deployment.post(f"o{index}", part(board, {"xp": index})) for index in range(25)))
    store = CountedReads(deployment.store)
    reads = make_reads(deployment, store)
    answers = await asyncio.gather(*(reads.read_entry(board, f"o{index}") for index in range(25)))
    assert [deployment.merger(board).decode_stats(answer.entry.cells) for answer in answers if answer.entry] == [
        [index] for index in range(25)
    ]
    assert store.statements == 3


async def test_a_read_never_joins_one_that_began_before_it(deployment: Deployment, board: Board) -> None:
    store = CountedReads(deployment.store)
    reads = make_reads(deployment, store)
    store.go.clear()
    first = reads.read_entry(board, "ada")
    await asyncio.sleep(0)
    await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
    second = reads.read_entry(board, "ada")
    store.go.set()
    await first
    entry = (await second).entry
    assert entry is not None
    assert deployment.merger(board).decode_stats(entry.cells) == [1]
    assert store.statements == 2


async def test_waiting_reads_are_bounded_and_cancelled_ones_harm_no_other(deployment: Deployment, board: Board) -> None:
    store = CountedReads(deployment.store)
    reads = make_reads(deployment, store, waiting_max=2)
    store.go.clear()
    running = reads.read_entry(board, "ada")
    await store.entered.wait()
    waiting = [reads.read_entry(board, "ada") for _ in range(2)]
    with pytest.raises(StoreBusyError, match="2 reads are waiting"):
        reads.read_entry(board, "ada")
    running.cancel()
    waiting[0].cancel()
    store.go.set()
    assert (await waiting[1]).entry is None
    assert (await reads.read_entry(board, "ada")).entry is None


async def test_a_deleted_board_fails_only_its_own_reads(deployment: Deployment) -> None:
    board, gone = await deployment.create("b", XP), await deployment.create("gone", XP)
    await deployment.delete("gone")
    reads = make_reads(deployment, deployment.store)
    asked = [reads.read_entry(each, "ada") for each in (gone, board, gone)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(answer).__name__ for answer in answers] == ["UnknownBoardError", "EntryRead", "UnknownBoardError"]
    with pytest.raises(UnknownBoardError):
        await reads.read_entry(gone, "ada")


async def test_a_read_with_an_old_copy_of_a_board_fails_alone(deployment: Deployment) -> None:
    narrow = await deployment.create("b", XP)
    wide = await deployment.change("b", deployment.laid_out(spec(XP, ranked("lap"))))
    await deployment.apply(deployment.post("ada", part(wide, {"xp": 1, "lap": 2})))
    reads = make_reads(deployment, deployment.store)
    # `narrow` is the board before a column was added, and `wide` is the board afterwards.
    asked = [reads.read_entry(board, "ada") for board in (narrow, wide, narrow)]
    before, answer, again = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(before, BoardChangedError)
    assert isinstance(again, BoardChangedError)
    assert isinstance(answer, EntryRead)
    assert answer.entry is not None
    assert deployment.merger(wide).decode_stats(answer.entry.cells) == [1, 2]
    emptied = await deployment.reset()
    with pytest.raises(BoardChangedError):
        await reads.read_entry(wide, "ada")
    assert (await reads.read_entry(emptied, "ada")).entry is None


async def read_together(
    deployment: Deployment, boards: list[Board], owner: str
) -> list[tuple[list[object] | None, int]]:
    leaves = [deployment.boards.open_leaf(board.leaf) for board in boards]
    found = await deployment.store.read(lambda: read_owner_on_leaves(leaves, owner))
    return [(None if entry is None else list(entry.cells), totals.get(-1, 0)) for entry, totals, *_ in found]


async def read_alone(deployment: Deployment, boards: list[Board], owner: str) -> list[tuple[list[object] | None, int]]:
    found: list[tuple[list[object] | None, int]] = []
    for board in boards:
        entry = (await deployment.rows(board, [owner])).get(owner)
        found.append((None if entry is None else list(entry.cells), (await deployment.totals(board)).get(-1, 0)))
    return found


async def test_a_read_with_an_old_copy_of_tiers_fails_alone(deployment: Deployment) -> None:
    old = await deployment.create("b", XP)
    tiers = (TierSpec("gold", to_rank=1),)
    new = await deployment.change("b", replace(old.spec, columns=(replace(old.spec.columns[0], tiers=tiers),)))
    await deployment.apply(deployment.post("ada", part(new, {"xp": 1})))
    reads = make_reads(deployment, deployment.store)
    asked = [reads.read_entry(board, "ada") for board in (new, old, new)]
    answer, before, again = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(before, BoardChangedError)
    assert isinstance(answer, EntryRead)
    assert isinstance(again, EntryRead)


async def test_entries_on_boards_of_every_table_come_in_the_order_asked_for(deployment: Deployment) -> None:
    boards = [
        await deployment.create("a", XP, SHOTS),
        await deployment.create("b", XP, SHOTS),
        await deployment.create("c", XP, LAP),  # if boards share tables, this board is in another table
        await deployment.create("empty", XP),
    ]
    deployment.table = TableSharing.SHARED if deployment.table is TableSharing.OWN else TableSharing.OWN
    boards.append(await deployment.create("elsewhere", XP, SHOTS))
    for number, board in enumerate(boards):
        if board.id != "empty":
            owners = ["ada", "bob"] if number % 2 else ["bob", "cleo"]
            await deployment.apply(*(deployment.post(owner, part(board, {"xp": number})) for owner in owners))
    mixed = [boards[2], boards[0], boards[4], boards[3], boards[1], boards[0]]
    for owner in ("ada", "bob", "cleo", "nobody"):
        assert await read_together(deployment, mixed, owner) == await read_alone(deployment, mixed, owner)
    assert await read_together(deployment, [], "ada") == []


async def test_a_read_of_many_boards_refuses_an_old_copy_of_a_board(deployment: Deployment) -> None:
    first, other = await deployment.create("a", XP), await deployment.create("b", XP)
    await deployment.apply(deployment.post("ada", part(first, {"xp": 1}), part(other, {"xp": 1})))
    await deployment.reset("a")
    with pytest.raises(BoardChangedError):
        await read_together(deployment, [other, first], "ada")
    wider = replace(other.spec, columns=(*other.spec.columns, LAP))
    await deployment.change("b", wider)
    with pytest.raises(BoardChangedError):
        await read_together(deployment, [other], "ada")
    for board in (first, other):
        await deployment.delete(board.id)
        with pytest.raises(UnknownBoardError):
            await read_together(deployment, [board], "ada")


async def test_boards_are_looked_up_by_id_in_one_read_and_kept(deployment: Deployment) -> None:
    catalog = deployment.catalog
    boards = {board_id: await deployment.create(board_id, XP) for board_id in ("a", "b", "c")}
    catalog.keep_board(boards["b"])
    assert await catalog.find_stored_boards(["c", "none", "b", "c"]) == {"b": boards["b"], "c": boards["c"]}
    assert catalog.find_known("c") == boards["c"]
    assert catalog.find_known("a") is None
    assert await catalog.find_stored_boards([]) == {}


@pytest.mark.parametrize(("in_first_segment", "statements"), [(0, 4), (40, 8)], ids=["evenly", "all in one segment"])
async def test_the_top_of_a_board_is_complete_however_its_segments_share_it(
    deployment: Deployment, in_first_segment: int, statements: int
) -> None:
    deployment.table, deployment.segments = TableSharing.OWN, 4
    board = await deployment.create("b", XP)
    names = [f"o{number:03}" for number in range(400)]
    favoured = [name for name in names if board.leaf_of(name) is board.leaves[0]][:in_first_segment]
    values = {name: number % 90 + 1_000 * (name in favoured) for number, name in enumerate(names)}
    await deployment.apply(*(deployment.post(name, part(board, {"xp": value})) for name, value in values.items()))
    store = CountedReads(deployment.store)
    top = await make_reads(deployment, store).read_best_rows(board, 0, 30)
    best = sorted(names, key=lambda name: (-values[name], name))[:30]
    assert [entry.owner for entry in top.near.after] == best
    assert (top.totals[0], top.totals[CHANGES], store.statements) == (400, 400, statements)


class PostedBetween(CountedReads):
    """Lets another writer post after the statement with the number `after`, counted from 1."""

    def __init__(self, store: Store, post: Callable[[], Awaitable[object]], after: int) -> None:
        super().__init__(store)
        self._post, self._after, self.snapshots = post, after, 0

    async def read_query(self, query: Bound) -> Rows:
        rows = await super().read_query(query)
        if self.statements == self._after:
            self._after = 0
            await self._post()
        return rows

    async def read(self, program: Callable[[], Program[T]], *, heavy: bool = False) -> T:
        self.snapshots += 1
        return await super().read(program, heavy=heavy)


@pytest.mark.parametrize(("after", "snapshots"), [(0, 0), (3, 1)], ids=["unchanged", "changed"])
async def test_rows_around_an_owner_and_the_count_are_of_one_moment(
    deployment: Deployment, after: int, snapshots: int
) -> None:
    deployment.table, deployment.segments = TableSharing.OWN, 2
    board = await deployment.create("b", XP)
    marks = [await deployment.store.at(leaf.partition).read(change_log.take_mark) for leaf in board.leaves]
    await deployment.apply(*(deployment.post(f"o{number}", part(board, {"xp": number})) for number in range(20)))
    empty = Curve((), total=0, as_of_us=1)
    parts = tuple(CountStart(empty, mark, 1_000, NOW_US) for mark in marks)
    start = CountStart(SummedCurve([empty, empty]), 0, 1_000, NOW_US, parts)
    store = PostedBetween(
        deployment.store, lambda: deployment.apply(deployment.post("new", part(board, {"xp": 16}))), after
    )
    found = await make_reads(deployment, store).read_around_owner(AroundOwner(board, 0, "o15", 9, 1, start))
    assert found is not None
    assert found.counted is not None
    better = ["o19", "o18", "o17", *(["new"] if after else []), "o16"]
    assert ([entry.owner for entry in found.near.before], found.counted.better_count) == (better, len(better))
    assert store.snapshots == snapshots

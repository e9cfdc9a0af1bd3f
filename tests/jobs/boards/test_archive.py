"""Test that an archive gives the same answers as the rows, even if processes die while they write the archive."""

import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from querybuilder import count, select
from storage.archive.archive_reader import ArchivedEntries
from storage.archive.archive_writer import ArchiveWriter
from storage.boards.shared_tables import sweep_rows
from storage.errors import ArchivedError, BoardChangedError
from storage.leaves.rankings import OpenBoard
from storage.leaves.row_tables import layout_of, scope_of
from storage.log.bundles import ChangeKind
from storage.log.following import Follower
from storage.queue.outcomes import find_post_fate
from storage.records import Best, Board, Entry, PostStatus, Season, TableSharing, Ties
from storage.schema.tables import ARCHIVE_BLOCKS, BOARDS, TOTALS
from storage.store import Program
from tests.jobs.closing import close_all, make_close_job, run_step
from tests.jobs.world import LIMITS, PREDICTOR, World
from tests.storage.backends import BACKENDS
from tests.storage.deployment import SEGMENTS, Deployment, counter, label, part, ranked
from tests.storage.passing import PassingStore

T = TypeVar("T")
S = 1_000_000
TOP = LIMITS.archive_top_rows


PLACES = [f"sqlite-{TableSharing.OWN.value}", f"postgres-{TableSharing.SHARED.value}"]
SPREAD = [f"{backend}-{SEGMENTS}" for backend in ("sqlite", "partitions")]
TIE_COLUMNS = ("time", "shots")
SIZES = [(0, ()), (1, ()), (7, ()), (60, ()), (60, TIE_COLUMNS)]  # numbers of entries, each with the columns for ties


@pytest.fixture(params=PLACES)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    backend, _, table = request.param.partition("-")
    async with BACKENDS[backend](request)(tmp_path) as open_store:
        yield World(await Deployment.on(await open_store(), SEGMENTS if table == SEGMENTS else TableSharing(table)))


class KilledError(BaseException):
    """Simulates the death of a process at a call of the store."""


class MortalStore(PassingStore):
    """A store that raises KilledError at its write number `calls`: before or, if `after` is set, after the write."""

    def __init__(self, world: World, *, calls: int, after: bool) -> None:
        super().__init__(world.store)
        self.sole_writer, self.writes_at_once = False, 1
        self._left, self._after = calls, after

    async def write(self, program: Callable[[], Program[T]]) -> T:
        self._left -= 1
        if self._left == 0 and not self._after:
            raise KilledError
        found = await self._store.write(program)
        if self._left == 0:
            raise KilledError
        return found


async def make_season(
    world: World,
    *,
    entries: int,
    ties: Ties = Ties.SHARED,
    tie_columns: tuple[str, ...] = (),
    samples: int = 20,
    board_id: str = "b",
) -> Board:
    """Create a season that closes soon. It has `entries` owners, and many of their values are tied."""
    now_us = world.deployment.clock.now_us
    season = Season(None, now_us + 10 * S, 0, 5)
    columns = (
        ranked("xp", min_scaled=-500),
        ranked("time", best=Best.LOW, scale=3, min_scaled=0, max_scaled=9_999),
        counter("shots"),
        label("clan"),
    )
    predictor = replace(PREDICTOR, samples=samples)
    chosen: dict[str, Any] = {"ties": ties, "tie_columns": tie_columns, "predictor": predictor, "season": season}
    board = await world.deployment.create(board_id, *columns, **chosen)
    world.catalog.keep_board(board)
    rng = random.Random(5)
    posts = []
    for number in range(entries):
        stats: dict[str, Any] = {"xp": rng.randrange(-20, 20), "shots": number, "clan": f"c{number}"}
        if number % 3:
            stats["time"] = rng.randrange(30)
        posts.append(
            world.deployment.post(f"ö{rng.randrange(10**6)}", part(board, stats), at_us=now_us - rng.randrange(3))
        )
    if posts:
        await world.deployment.apply(*posts)
    return board


async def read_rows(world: World, board: Board) -> list[Entry]:
    return [Entry(row[0], row[1], list(row[2:])) for row in await world.deployment.list_rows(board)]


async def count_rows_left(world: World, board: Board) -> int:
    layout = layout_of(board.leaf)
    counted = select(count()).from_(layout.table).where(*layout.scope())
    found: int = (await world.store.read_query(counted.bind(**scope_of(board.leaf))))[0][0]
    return found


async def archive_board(world: World, board: Board) -> Board:
    """Let the season end. Close and archive the board, and return the archived one."""
    world.advance(16)
    await close_all(world)
    return await world.deployment.find(board.id)


async def answers_of(world: World, board: Board, owners: Sequence[Entry] = ()) -> dict[Any, Any]:
    reading = world.store.at(board.reading_partition)
    return await reading.read(lambda: read_answers(world.deployment.entries(board), owners))


LATE_US = 2**60  # after all posts


def read_answers(entries: OpenBoard, owners: Sequence[Entry]) -> Program[dict[Any, Any]]:
    """Read every answer that a board gives. The archive of the board must later give the same answers."""
    found: dict[Any, Any] = {}
    for entry in owners:
        found["entry", entry.owner] = (yield from entries.find_entries([entry.owner])).get(entry.owner)
    found["entries"] = yield from entries.find_entries([*(entry.owner for entry in owners[::2]), "nobody", ""])
    for index, ranking in entries.rankings.items():
        cells = sorted({str(entry.cells[index]) for entry in owners if entry.cells[index] is not None})
        values = {ranking.padding.min_scaled, *(range(40) if index else range(-25, 40))}
        arrivals = [ranking.padding.pad_arrival(value) for value in values]
        for cell in {*cells, *arrivals}:
            found[index, "better", cell] = yield from ranking.count_better(cell)
            found[index, "some", cell] = (yield from ranking.count_from_top(cell, 7, LATE_US)).better_count
            found[index, "tied", cell] = (yield from ranking.count_tied(cell))[0]
        for place in {0, 1, TOP - 1, TOP, len(owners) // 2, max(0, len(owners) - 1), len(owners)}:
            found[index, "at", place] = yield from ranking.find_cell(None, place + 1)
            if place < TOP:
                found[index, "shown at", place] = yield from ranking.find_row(None, place + 1)
        found[index, "worst"] = yield from ranking.find_worst_cell()
        for start in range(-25, 25, 7):
            found[index, "range", start] = yield from ranking.count_range(
                least=ranking.padding.text_start(max(start, ranking.padding.min_scaled)),
                past=ranking.padding.text_start(max(start + 9, ranking.padding.min_scaled)),
            )
        for entry in owners:
            own = entry.cells[index]
            if isinstance(own, str) and ranking.timed:
                found[index, "place", entry.owner] = yield from ranking.count_tied(own, entry.owner)
                better = yield from ranking.find_next_better(own, entry.owner)
                found[index, "next", entry.owner] = None if better is None else better[0]
            elif isinstance(own, str):
                better = yield from ranking.find_next_better(own, entry.owner)
                found[index, "next", own] = None if better is None else better[0]
        found[index, "top"] = top = yield from ranking.read_first_rows(TOP)
        for number, row in enumerate(top[:-1]):
            at = str(row.cells[index]), row.owner
            found[index, "before", number] = yield from ranking.read_rows_before(*at, 4)
            found[index, "after", number] = (yield from ranking.read_rows_after(*at, 4))[: TOP - number - 1]
            near = yield from ranking.read_rows_around(*at, better_rows=3, worse_rows=2)
            found[index, "around", number] = (near.before, near.after, near.ties_before, near.edge_ties)
    return found


@pytest.mark.parametrize(
    ("world", "entries", "tie_columns"),
    [*((place, *size) for place in PLACES for size in SIZES), *((place, 60, TIE_COLUMNS) for place in SPREAD)],
    indirect=["world"],
)
@pytest.mark.parametrize("ties", list(Ties))
async def test_an_archive_answers_as_the_rows_did(
    world: World, ties: Ties, entries: int, tie_columns: tuple[str, ...]
) -> None:
    board = await make_season(world, entries=entries, ties=ties, tie_columns=tie_columns)
    owners = await read_rows(world, board)
    before = await answers_of(world, board, owners)
    totals = await world.deployment.totals(board)
    archived = await archive_board(world, board)
    assert archived.gate.archived_us == world.deployment.clock.now_us
    after = await answers_of(world, archived, owners)
    different = {key: answer for key, answer in after.items() if answer != before[key]}
    assert different == {}
    assert before.keys() == after.keys()
    assert await world.deployment.totals(archived) == totals
    for index in board.sorted_indexes:
        opened = world.deployment.entries(archived)
        assert isinstance(opened, ArchivedEntries)
        store = world.store.at(archived.partition)
        curves = await store.read(lambda: opened.read_curves(index))  # noqa: B023 - run at once
        assert len(curves) == len(board.leaves)
        assert all(curve.certificate is not None for curve in curves)
        assert sum(curve.total for curve in curves) == totals.get(index, 0)
    assert world.meter.counts["rankcurve_archive_owners"] == len(owners)
    assert world.catalog.find_known("b") == archived
    assert world.catalog.list_leaves() == []


async def test_an_archive_refuses_to_list_rows_beyond_its_top(world: World) -> None:
    board = await make_season(world, entries=60)
    ranking = world.deployment.entries(await archive_board(world, board)).rankings[0]
    last = (await world.store.read(lambda: ranking.read_first_rows(1_000)))[-1]
    place = str(last.cells[0]), last.owner
    deep = await world.store.read(lambda: ranking.find_cell(None, 40))
    assert deep is not None
    for asked in (
        lambda: ranking.read_rows_after(*place, 3),
        lambda: ranking.read_rows_around(deep, "~", better_rows=2, worse_rows=2),
        lambda: ranking.find_row(None, 40),
    ):
        with pytest.raises(ArchivedError):
            await world.store.read(asked)


async def test_the_rows_of_an_archived_board_are_deleted_and_old_copies_of_it_refused(world: World) -> None:
    board = await make_season(world, entries=20)
    await archive_board(world, board)
    if board.leaf.table_key is None:
        with pytest.raises(Exception, match="deleted"):
            await count_rows_left(world, board)
    else:
        while await world.store.write(lambda: sweep_rows(rows_max=7)):
            pass
        assert await count_rows_left(world, board) == 0
        with pytest.raises(BoardChangedError):
            await world.deployment.erase(board, "ö1")
    await world.deployment.delete()
    left = select(count()).from_(ARCHIVE_BLOCKS)
    assert (await world.store.read_query(left.bind()))[0][0] == 0


@pytest.mark.parametrize("world", [*PLACES, *SPREAD], indirect=True)
async def test_an_erased_owner_leaves_the_ranks_of_the_archive_as_they_were(world: World) -> None:
    board = await make_season(world, entries=40)
    owners = await read_rows(world, board)
    archived = await archive_board(world, board)
    entries, store = world.deployment.entries(archived), world.store.at(archived.partition)
    top = await store.read(lambda: entries.rankings[0].read_first_rows(TOP))
    gone = top[3]
    assert await world.deployment.erase(archived, gone.owner)
    assert not await world.deployment.erase(archived, gone.owner)
    assert not await world.deployment.erase(archived, "nobody")
    assert await world.deployment.rows(archived, [gone.owner]) == {}
    assert len(await world.deployment.rows(archived, [entry.owner for entry in owners])) == len(owners) - 1
    now = await store.read(lambda: entries.rankings[0].read_first_rows(TOP))
    assert now[: TOP - 1] == top[:3] + top[4:]
    after = str(top[4].cells[0])
    assert await store.read(lambda: entries.rankings[0].count_better(after)) == 4, "the record keeps the place"
    assert await store.read(lambda: entries.rankings[0].find_cell(None, 4)) == gone.cells[0]
    near = await store.read(
        lambda: entries.rankings[0].read_rows_around(after, top[4].owner, better_rows=2, worse_rows=2)
    )
    assert (near.before, near.after, near.shown_before) == (top[1:3], top[4:6], 3)
    assert await store.read(lambda: entries.rankings[0].find_row(None, 4)) == (after, top[4].owner)


@pytest.mark.parametrize("world", SPREAD, indirect=True)
async def test_an_archived_board_of_segments_still_knows_its_posts(world: World) -> None:
    board = await make_season(world, entries=8)
    first = [world.deployment.post(f"o{number}", part(board, {"xp": 1}), post_id=f"p{number}") for number in range(8)]
    await world.deployment.apply(*first)
    archived = await archive_board(world, board)
    assert (archived.is_spread, archived.spec.segments) == (False, 4)
    for copy in (board, archived):
        again = [world.deployment.post(f"o{at}", part(copy, {"xp": 1}), post_id=f"p{at}") for at in range(8)]
        outcomes = await world.deployment.apply(*again, world.deployment.post("o9", part(copy, {"xp": 1})))
        assert [one.status for [one] in outcomes] == [PostStatus.DUPLICATE] * 8 + [PostStatus.REJECTED]
    ids = world.deployment.post_ids
    for number in range(8):
        fate = await find_post_fate(world.store, ids, archived, f"p{number}", f"o{number}")
        assert fate is not None
        assert fate.status is PostStatus.APPLIED
    await world.deployment.delete()
    for table in (BOARDS, TOTALS, ARCHIVE_BLOCKS):
        for partition in range(world.store.partitions):
            left = select(count()).from_(table)
            assert (await world.store.at(partition).read_query(left.bind()))[0][0] == 0, table


@pytest.mark.parametrize("world", [*PLACES, SPREAD[1]], indirect=True)
@pytest.mark.parametrize("after", [False, True])
async def test_another_process_continues_an_archive_wherever_the_first_one_died(world: World, after: bool) -> None:
    board = await make_season(world, entries=60, ties=Ties.EARLIEST)
    owners = await read_rows(world, board)
    before = await answers_of(world, board, owners)
    world.advance(16)
    calls, deaths, alive = 0, 0, False
    while not alive:
        assert deaths < 200, "the archive makes no progress"
        # The first process dies at its first write, the second at its second write, and so on up to the ninth write.
        # Then the count starts again at the first write. So processes die at every step.
        calls = calls % 9 + 1
        process = world.beside()
        mortal = MortalStore(process, calls=calls, after=after)
        process.store = mortal  # type: ignore[assignment]
        try:
            await close_all(process)
            alive = True
        except KilledError:
            deaths += 1
            world.advance(2_000)  # the lease of the dead process expires
    assert deaths > 4
    archived = await world.deployment.find(board.id)
    found = await answers_of(world, archived, owners)
    assert {key: answer for key, answer in found.items() if answer != before[key]} == {}


async def test_an_owner_erased_while_the_archive_is_written_is_not_in_it(world: World) -> None:
    board = await make_season(world, entries=60)
    owners = [entry.owner for entry in await read_rows(world, board)]
    world.advance(16)
    job, steps = make_close_job(world), 0
    while await run_step(world, job):
        steps += 1
        if steps in (4, 6):
            assert await world.deployment.erase(board, owners.pop())
    archived = await world.deployment.find(board.id)
    assert archived.gate.archived_us is not None
    assert sorted(await world.deployment.rows(archived, owners)) == owners
    totals = await world.deployment.totals(archived)
    assert totals[0] == len(owners)
    ranking = world.deployment.entries(archived).rankings[0]
    worst = await world.store.read(ranking.find_worst_cell)
    assert worst is not None
    counted = await world.store.read(lambda: ranking.count_better(worst))
    tied, _ = await world.store.read(lambda: ranking.count_tied(worst))
    assert counted + tied == len(owners)


async def test_small_boards_are_archived_although_one_of_them_is_deleted(world: World) -> None:
    boards = [await make_season(world, entries=3, board_id=f"b{number}") for number in range(6)]
    before = [await answers_of(world, board) for board in boards]
    world.advance(16)
    job = make_close_job(world)
    while not world.meter.counts["rankcurve_archive_owners"]:
        assert await run_step(world, job)
    assert world.meter.counts["rankcurve_archive_owners"] == 3, "one step archives a small board"
    left = [
        number
        for number, board in enumerate(boards)
        if (await world.deployment.find(board.id)).gate.archived_us is None
    ]
    gone = boards.pop(left[0])
    before.pop(left[0])
    await world.deployment.delete(gone.id)
    await close_all(world, job)
    for board, then in zip(boards, before, strict=True):
        archived = await world.deployment.find(board.id)
        assert archived.gate.archived_us is not None
        assert await answers_of(world, archived) == then
    assert world.meter.counts["rankcurve_archive_owners"] == 15


@pytest.mark.parametrize("world", [*PLACES, *SPREAD], indirect=True)
async def test_boards_that_are_too_large_for_a_step_with_all_columns_are_archived_in_steps(world: World) -> None:
    boards = [await make_season(world, entries=6 * TOP // 10, board_id=f"b{number}") for number in range(4)]
    world.advance(16)
    job = make_close_job(world)
    for _ in range(300):
        if not await run_step(world, job):
            break
    assert all([(await world.deployment.find(board.id)).gate.archived_us is not None for board in boards])


async def test_a_board_that_cannot_be_archived_is_tried_again_and_delays_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = await make_season(world, entries=60, board_id="bad")
    good = await make_season(world, entries=60, board_id="good")
    encoded = ArchiveWriter.encode_blocks

    def fails(archiving: ArchiveWriter, found: Any) -> Any:
        if archiving.board.id == "bad":
            raise ValueError("no block can be made of this")
        return encoded(archiving, found)

    world.advance(16)
    job = make_close_job(world)
    with monkeypatch.context() as patched:
        patched.setattr(ArchiveWriter, "encode_blocks", fails)
        await close_all(world, job)
    assert world.meter.counts["rankcurve_closing_failures"] == 1
    assert [(await world.deployment.find(board.id)).gate.archived_us is None for board in (bad, good)] == [True, False]
    world.advance(31)
    await close_all(world, job)
    assert (await world.deployment.find(bad.id)).gate.archived_us is not None


async def test_each_step_in_the_life_of_a_board_is_logged_once(world: World) -> None:
    board = await make_season(world, entries=30)
    world.advance(100)
    for _ in range(2):
        await close_all(world)
    follower = Follower("test", board.home, lambda _: none(), from_oldest=True, events_only=True)
    changes = (await world.store.at(board.home).read(follower.read_page)).changes
    assert {each.record.board_id for each in changes if each.record} == {"b"}
    served = [ChangeKind.SERVED] * len(board.sorted_indexes)
    stages = [ChangeKind.CREATED, ChangeKind.CLOSED, *served, ChangeKind.FROZEN, ChangeKind.ARCHIVED]
    assert [each.kind for each in changes] == stages


def none() -> Program[None]:
    yield from ()

"""Reads single entries with the totals of their boards, and the rows around an owner, for many callers together.

Entries and totals come from the same snapshot, which belongs to the caller's version of the board. Otherwise a rank
could exceed the number of entries.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from storage.archive.archive_reader import ArchivedEntries
from storage.coalesce import Crowd, StoreCoalescers
from storage.leaves.count_policy import SHORT_GAP_ROWS, CountPolicy, limit_gap_rows
from storage.leaves.entrants import find_joined
from storage.leaves.entries import Entries, find_on_leaves
from storage.leaves.exact_ranks import CountStart, GapCount
from storage.leaves.hidden_owners import find_shadow, find_unseen
from storage.leaves.rankings import OpenLeaf
from storage.leaves.row_rankings import AroundOwner, OwnersNeighbours, RowRanking
from storage.leaves.totals import ALL_ENTRIES, read_totals
from storage.log.cells import CellOf
from storage.reads.open_boards import OpenBoards
from storage.records import Board, Entry, Leaf, ShadowEntry
from storage.segments.segmented_entries import read_at_once
from storage.store import Program, Store, read_single, read_steps

T = TypeVar("T")

SEGMENT_GATHER_TURNS = 20  # turns of the event loop that a batch for segments waits for more requests
NO_STARTS: Mapping[int, CountStart] = MappingProxyType({})
NO_CELLS: Mapping[int, str] = MappingProxyType({})


_AskedEntry = tuple[Store, Leaf, str, Mapping[int, CountStart], Mapping[int, str]]  # see `PointReads.read_entry`


class EntryRead(NamedTuple):
    entry: Entry | None
    totals: dict[int, int]  # number of entries by column index
    # By column index, how many entries are better than the owner's cell, in this or a later snapshot. None: unknown,
    # because the change log cannot bring the curve's counts up to date.
    counts: Mapping[int, GapCount | None]
    earlier: Mapping[int, GapCount | None] = MappingProxyType({})  # the same for the cells that the owner had before
    told: Entry | None = None  # the entry of a hidden owner, of which answers tell no more than that it is hidden


class PointReads:
    """Answers many concurrent point reads with few statements.

    Every method raises `StoreBusyError` if too many reads are waiting.
    """

    def __init__(
        self,
        store: Store,
        boards: OpenBoards,
        *,
        point_reads_per_batch_max: int,
        reads_waiting_max: int,
        tasks_max: int,
        crowd: Crowd | None = None,
        gap_rows_max: int = 0,
    ) -> None:
        self._store, self._boards, self._gap_rows_max = store, boards, gap_rows_max
        self._crowd = crowd = crowd or Crowd(reads_waiting_max)
        limits = {
            "batch_max": point_reads_per_batch_max,
            "waiting_max": reads_waiting_max,
            "tasks_max": tasks_max,
        }
        # A batch takes a few statements for each segment, so it first waits for more requests. If a batch reads all
        # segments, one large batch at a time is faster than several.
        gathering = limits | {"gather_turns": SEGMENT_GATHER_TURNS}
        few_batches = gathering | {"tasks_max": 1}
        self._around_in_segments = StoreCoalescers(self._read_owners_in_segments, **few_batches, crowd=crowd)
        self._entries_in_segments = StoreCoalescers(self._read_entries, **gathering, crowd=crowd)
        self._counts = StoreCoalescers(self._count_in_segments, **few_batches, crowd=crowd)
        self._entries = StoreCoalescers(self._read_entries, **limits, crowd=crowd)
        self._totals = StoreCoalescers(self._read_totals, crowd=None, **limits)
        self._around_owners = StoreCoalescers(self._read_owners, **limits, crowd=crowd)

    def read_totals(self, board: Board | Leaf) -> asyncio.Future[dict[int, int]]:
        """Return a future for the number of entries in each column of a board or leaf (see `totals.find_totals`)."""
        leaf = board.leaves[0] if isinstance(board, Board) else board
        return self._totals[self._store.at(leaf.partition)].ask((board.key, leaf.shape), board)

    def read_entry(
        self,
        board: Board,
        owner: str,
        starts: Mapping[int, CountStart] = NO_STARTS,
        before: Mapping[int, str] = NO_CELLS,
    ) -> asyncio.Future[EntryRead]:
        """Return a future for an owner's entry, or None if it has none, and the totals of the leaf that stores it.

        In each column of `starts`, also count the entries better than the owner's cell if `count_policy` says so.
        Likewise count those better than the cell in `before`, which the owner had earlier.
        """
        if board.is_spread:
            leaf, coalescers = board.leaf_of(owner), self._entries_in_segments
        else:
            leaf, coalescers = board.leaf, self._entries
        store = self._store.at(leaf.partition)
        return coalescers[store].ask((*leaf.shape, *starts), (store, leaf, owner, starts, before))

    async def read_on_boards(self, boards: Iterable[Board], owner: str) -> dict[int, EntryRead]:
        """Read an owner's entries by board key, with the leaves' totals. Each partition is read in one snapshot.

        Raises UnknownBoardError or BoardChangedError if a board was deleted, or has changed since the caller read it.
        """
        by_store: dict[Store, dict[int, OpenLeaf]] = defaultdict(dict)
        for board in boards:
            leaf = board.leaf_of(owner)
            by_store[self._store.at(leaf.partition)][board.key] = self._boards.open_leaf(leaf)
        found: dict[int, EntryRead] = {}
        for store, opened in by_store.items():
            read = await store.read(partial(read_owner_on_leaves, list(opened.values()), owner))
            found |= zip(opened, read, strict=True)
        return found

    async def find_hidden(self, board: Board, owners: Sequence[str]) -> dict[str, Entry]:
        """Find the entries of `owners` that no ranking shows, by owner, with shadowed owners' entries as `ShadowEntry`.

        Call this for owners without another entry.
        """
        found: dict[str, Entry] = {}
        for leaf in board.leaves:
            if theirs := [owner for owner in owners if board.leaf_of(owner) is leaf]:
                reading = partial(_find_hidden, self._boards.open_leaf(leaf), theirs)
                found |= await self._store.at(leaf.partition).read(reading)
        return found

    async def find_shadow(self, board: Board, owner: str) -> ShadowEntry | None:
        """Find the entry of a shadowed owner, or None. Call this if `read_entry` has found none."""
        leaf = board.leaf_of(owner)
        return await self._store.at(leaf.partition).read(partial(find_shadow, leaf, owner))

    async def find_joined(self, board: Board, owners: Sequence[str]) -> dict[str, Entry]:
        """Build empty entries, by owner, for those of `owners` who have joined, dated to when they joined.

        Call this for owners without an entry.
        """
        if board.spec.entry is None:
            return {}
        leaf = board.leaves[0]
        joined = await self._store.at(leaf.entrants_place[0]).read(partial(find_joined, leaf, owners))
        return {owner: Entry(owner, at_us, [None] * len(board.spec.columns)) for owner, at_us in joined.items()}

    def read_around_owner(self, asked: AroundOwner) -> asyncio.Future[OwnersNeighbours | None]:
        """Return a future for the rows on both sides of an owner's row.

        If `asked.start` is set, also count the entries better than the owner's cell, as `read_entry` does. The result
        is None if the owner has no value in the column, or if the board is archived.
        """
        board, index, _, *rows, start = asked
        coalescers = self._around_in_segments if board.is_spread else self._around_owners
        kind = (board.key, board.leaves[0].shape, index, *rows, start is None)
        return coalescers[self._store.at(board.reading_partition)].ask(kind, asked)

    def count_in_segments(
        self, board: Board, column_index: int, cell: CellOf, start: CountStart
    ) -> asyncio.Future[GapCount | None]:
        """Return a future for the number of entries better than a cell. Each segment is read in its own snapshot.

        The result is None if a segment's change log cannot bring the count from its curve up to date.
        """
        kind = board.key, board.leaves[0].shape, column_index
        return self._counts[self._store.at(board.reading_partition)].ask(kind, (board, column_index, cell, start))

    async def _count_in_segments(self, asked: list[tuple[Board, int, CellOf, CountStart]]) -> list[GapCount | None]:
        # Any `CountStart` gives correct counts, because the log adds the later changes. Count as of the latest one, so
        # that the count includes the posts that were answered before any of these requests.
        board, column_index, _, start = max(asked, key=lambda each: each[3].asked_us)
        cells = list({cell for _, _, cell, _ in asked})
        entries = self._boards.open_segments(board)
        counting = entries.rankings[column_index].count_cells(start, cells)
        found = await read_at_once(self._store, entries.parts, counting)
        return [found[cell] for _, _, cell, _ in asked]

    async def _read_entries(self, asked: list[_AskedEntry]) -> list[EntryRead]:
        # Any `CountStart` gives correct counts, because the log adds the later changes. So use the first.
        store, leaf, _, starts, _ = asked[0]
        owners = list(map(itemgetter(2), asked))
        entries = self._boards.open_leaf(leaf)
        if not isinstance(entries, Entries):
            found, totals = await store.read(lambda: _read_archive(entries, owners))
        elif starts:
            rows_max = limit_gap_rows(self._gap_rows_max, ranks=len(starts), crowded=self._crowd.is_crowded())
            before = list(map(itemgetter(4), asked))
            counting = partial(_read_and_count, entries, owners, starts, before, rows_max)
            # On SQLite, a program changes threads at most once. On PostgreSQL, single queries save BEGIN and COMMIT.
            return await (store.read(counting) if store.sole_writer else read_steps(store, counting))
        else:
            found, totals = await read_single(store, lambda: entries.find_entries_with_totals(list({*owners})))
        return [EntryRead(found.get(owner), totals, {}) for owner in owners]

    async def _read_totals(self, asked: list[Board | Leaf]) -> list[dict[int, int]]:
        board = asked[0]
        if isinstance(board, Board) and board.is_spread:
            entries = self._boards.open_segments(board)
            return [await read_at_once(self._store, entries.parts, entries.read_totals())] * len(asked)
        leaf = board.leaf if isinstance(board, Board) else board
        found = await read_single(self._store.at(leaf.partition), lambda: read_totals([leaf]))
        return [found[leaf.key]] * len(asked)

    async def _read_owners(self, asked: list[AroundOwner]) -> list[OwnersNeighbours | None]:
        first = asked[0]
        [leaf] = first.board.leaves
        if leaf.archived_us is not None:
            return [None] * len(asked)
        ranking = self._boards.open_rows(leaf).rankings[first.column_index]
        owners = [each.owner for each in asked]
        rows_max = limit_gap_rows(self._gap_rows_max, crowded=self._crowd.is_crowded())
        found = await self._store.at(leaf.partition).read(lambda: _read_around(ranking, owners, first, rows_max))
        if not found:
            await self._read_totals([first.board])  # raises an error if the copy of the board is outdated
        return [found.get(number) for number in range(len(asked))]

    async def _read_owners_in_segments(self, asked: list[AroundOwner]) -> list[OwnersNeighbours | None]:
        first, owners = asked[0], list({each.owner for each in asked})
        rows_max = limit_gap_rows(self._gap_rows_max, crowded=self._crowd.is_crowded())
        entries = self._boards.open_segments(first.board)
        reading = entries.rankings[first.column_index].read_around_owners(first, owners, rows_max)
        found = await read_at_once(self._store, entries.parts, reading)
        return [found.get(each.owner) for each in asked]

    async def read_best_rows(self, board: Board, column_index: int, limit: int) -> OwnersNeighbours:
        entries = self._boards.open_segments(board)
        return await read_at_once(self._store, entries.parts, entries.rankings[column_index].read_best_rows(limit))


def read_owner_on_leaves(leaves: Sequence[OpenLeaf], owner: str) -> Program[list[EntryRead]]:
    """Read an owner's entry and the leaf's totals for each leaf in `leaves`, in the same order.

    This takes one statement for all totals, one for each table that leaves share, and one for each other leaf. If
    entries are missing, one more statement looks for a shadowed owner's entries.

    Raises:
        UnknownBoardError, BoardChangedError: a leaf was deleted, or has changed since the caller read it.
    """
    totals = yield from read_totals([each.leaf for each in leaves])
    found = yield from find_on_leaves([each for each in leaves if totals[each.leaf.key].get(ALL_ENTRIES)], owner)
    missing = [each.leaf for each in leaves if each.leaf.key not in found and each.leaf.archived_us is None]
    unseen = dict((yield from find_unseen(missing, [owner]))) if missing else {}
    found |= {key: entry for key, entry in unseen.items() if isinstance(entry, ShadowEntry)}
    keys = [each.leaf.key for each in leaves]
    return [EntryRead(found.get(key), totals[key], {}, told=None if key in found else unseen.get(key)) for key in keys]


def _find_hidden(entries: OpenLeaf, owners: Sequence[str]) -> Program[dict[str, Entry]]:
    if isinstance(entries, ArchivedEntries):
        return (yield from entries.of_hidden(owners))
    return {entry.owner: entry for _, entry in (yield from find_unseen([entries.leaf], owners))}


def _read_and_count(
    entries: Entries,
    owners: Sequence[str],
    starts: Mapping[int, CountStart],
    before: Sequence[Mapping[int, str]],
    gap_rows_max: int,
) -> Program[list[EntryRead]]:
    found, totals = yield from entries.find_entries_with_totals(list(dict.fromkeys(owners)))
    policy = CountPolicy(entries.leaf.spec.predictor.exact_top)
    counts: defaultdict[str, dict[int, GapCount | None]] = defaultdict(dict)
    earlier: defaultdict[int, dict[int, GapCount | None]] = defaultdict(dict)  # by the number of the request
    had = [number for number, theirs in enumerate(before) if theirs]
    for index, start in starts.items():
        ranking = entries.rankings[index]
        cells = {}
        for owner, entry in found.items():
            if isinstance(cell := entry.cells[index], str):
                cells[owner] = cell, owner if ranking.timed else ""
        past = {
            number: (before[number][index], owners[number] if ranking.timed else "")
            for number in had
            if index in before[number]
        }
        wanted = {*cells.values(), *past.values()}
        # A count made at a knot is as of this snapshot, whereas the curve's own count there may predate the changes.
        rows_max = _limit_gaps(ranking, start, gap_rows_max)
        chosen = policy.choose_cells(start.curve, ranking.padding, wanted, rows_max, knots=bool(had))
        counted = (yield from ranking.gaps.count_better(start, chosen)) if chosen else {}
        for owner, asked in cells.items():
            if asked in counted:
                counts[owner][index] = counted[asked]
        for number, asked in past.items():
            if asked in counted:
                earlier[number][index] = counted[asked]
    reads = [EntryRead(found.get(owner), totals, counts[owner]) for owner in owners]
    return [each._replace(earlier=earlier[number]) for number, each in enumerate(reads)] if had else reads


def _limit_gaps(ranking: RowRanking, start: CountStart, gap_rows_max: int) -> int:
    """Choose the longest gap to count in: only short gaps are counted if many changes follow the mark."""
    return min(gap_rows_max, SHORT_GAP_ROWS) if ranking.gaps.passed_mark == start.mark else gap_rows_max


def _read_around(
    ranking: RowRanking, owners: Sequence[str], asked: AroundOwner, gap_rows_max: int
) -> Program[dict[int, OwnersNeighbours]]:
    found = yield from ranking.read_around_owners(owners, better_rows=asked.better_rows, worse_rows=asked.worse_rows)
    if asked.start is None:
        return found
    cells, start, policy = {}, asked.start, CountPolicy(asked.board.spec.predictor.exact_top)
    for number, (near, _, _) in found.items():
        own = near.after[0]
        cells[number] = str(own.cells[ranking.index]), own.owner if ranking.timed else ""
    rows_max = _limit_gaps(ranking, start, gap_rows_max)
    chosen = policy.choose_cells(start.curve, ranking.padding, {*cells.values()}, rows_max)
    counted = (yield from ranking.gaps.count_better(start, chosen)) if chosen else {}
    return {number: each._replace(counted=counted.get(cells[number])) for number, each in found.items()}


def _read_archive(entries: OpenLeaf, owners: Sequence[str]) -> Program[tuple[dict[str, Entry], dict[int, int]]]:
    found = yield from entries.find_entries(owners)
    return found, (yield from read_totals([entries.leaf]))[entries.leaf.key]

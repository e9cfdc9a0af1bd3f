"""Reads of all segments of a board at once, each in a snapshot of its own, for many callers together."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from storage.leaves.entries import Entries
from storage.leaves.exact_ranks import CellOf, CountStart, GapCount
from storage.leaves.rankings import Neighbours, edge_of
from storage.leaves.row_rankings import AroundOwner, OwnersNeighbours
from storage.leaves.totals import add_up_totals, check_copy, read_totals
from storage.records import Board, Leaf
from storage.store import Program, Store, read_single

from .segmented_entries import SegmentedRanking, add_up_confirmed

T = TypeVar("T")


class SegmentReads:
    """Each method sends the segments their statements at the same time, on connections of their own."""

    def __init__(self, store: Store, open_rows: Callable[[Leaf], Entries]) -> None:
        self._store, self._open_rows = store, open_rows

    async def _each(self, board: Board, ask: Callable[[int, Leaf, Store, Entries], Awaitable[T]]) -> list[T]:
        reads = [
            ask(number, leaf, self._store.at(leaf.partition), self._open_rows(leaf))
            for number, leaf in enumerate(board.leaves)
        ]
        return await asyncio.gather(*reads)

    async def read_totals(self, board: Board) -> dict[int, int]:
        """Return the totals of a board, added up. Raises what `read_totals` raises."""

        async def ask(_number: int, leaf: Leaf, store: Store, _entries: Entries) -> dict[int, int]:
            return (await read_single(store, lambda: read_totals([leaf])))[leaf.key]

        return add_up_totals(await self._each(board, ask))

    async def count_cells(
        self, board: Board, column_index: int, start: CountStart, cells: Sequence[CellOf]
    ) -> dict[CellOf, GapCount | None]:
        """Count the entries better than each cell, in one statement for each segment. None: a log confirms no count."""

        async def ask(number: int, leaf: Leaf, store: Store, entries: Entries) -> dict[CellOf, GapCount | None]:
            gaps, its_start = entries.rankings[column_index].gaps, start.parts[number]
            counts = await read_single(store, lambda: gaps.count_better(its_start, cells))
            for count in counts.values():
                if count is not None:
                    check_copy(leaf, count.totals)
            return counts

        found = await self._each(board, ask)
        return {cell: add_up_confirmed([counts[cell] for counts in found]) for cell in cells}

    async def read_around(
        self, asked: AroundOwner, owners: Sequence[str], *, gap_rows_max: int
    ) -> dict[str, OwnersNeighbours]:
        """Return the rows around each of these owners that has a value in the column, and with a start also counts.

        `gap_rows_max`: see `SegmentedRanking.choose_cells`.
        """
        board, column_index, _, better_rows, worse_rows, start = asked
        merged = SegmentedRanking(board, column_index, ())
        places = await self._find_places(board, column_index, owners)
        if not places:
            return {}
        cells = {owner: (cell, owner if merged.timed else "") for cell, owner in places}
        counted = [] if start is None else merged.choose_cells(start, set(cells.values()), gap_rows_max)

        async def ask(number: int, leaf: Leaf, store: Store, entries: Entries) -> list[OwnersNeighbours]:
            ranking = entries.rankings[column_index]

            def program() -> Program[list[OwnersNeighbours]]:
                around = yield from ranking.read_around_places(places, better_rows=better_rows, worse_rows=worse_rows)
                check_copy(leaf, around[0].totals)
                if not counted or start is None:
                    return around
                counts = yield from ranking.gaps.count_better(start.parts[number], counted)
                owned = zip(around, places, strict=True)
                return [each._replace(counted=counts.get(cells[owner])) for each, (_, owner) in owned]

            return await (store.read(program) if counted else read_single(store, program))

        reads = await self._each(board, ask)
        totals = add_up_totals([read[0].totals for read in reads])
        found = {}
        for (_, owner), *parts in zip(places, *reads, strict=True):
            around = [part.near for part in parts]
            near = merged.merge_neighbours(around, better_rows=better_rows, worse_rows=worse_rows)
            found[owner] = OwnersNeighbours(near, totals, add_up_confirmed([part.counted for part in parts]))
        await self._count_edges(board, merged, [each.near for each in found.values()])
        return found

    async def _count_edges(self, board: Board, merged: SegmentedRanking, around: Sequence[Neighbours]) -> None:
        """Fill in `edge_ties`, with one statement for each segment."""
        edges = [near for near in around if merged.has_edge(near)]
        places = [edge_of(near, merged.index) for near in edges]

        async def ask(_number: int, _leaf: Leaf, store: Store, entries: Entries) -> list[int]:
            ranking = entries.rankings[merged.index]
            return await read_single(store, lambda: ranking.count_ties_before(places))

        if edges:
            for near, *ties in zip(edges, *(await self._each(board, ask)), strict=True):
                near.edge_ties = sum(ties)

    async def _find_places(self, board: Board, column_index: int, owners: Sequence[str]) -> list[tuple[str, str]]:
        """Return the cells of those owners that have a value in the column, with the owners."""

        async def ask(_number: int, leaf: Leaf, store: Store, entries: Entries) -> list[tuple[str, str]]:
            theirs = [owner for owner in owners if board.leaf_of(owner) is leaf]
            found = await read_single(store, lambda: entries.find_entries(theirs)) if theirs else {}
            cells = ((entry.cells[column_index], owner) for owner, entry in found.items())
            return [(cell, owner) for cell, owner in cells if isinstance(cell, str)]

        return [place for places in await self._each(board, ask) for place in places]

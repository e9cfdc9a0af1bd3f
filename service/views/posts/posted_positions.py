"""Adds the owners' positions to the results of posts, if the request asks for them.

The posts are already committed. So all positions on a board are those after the whole request, and share its reads.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from service.context import Context
from service.contract.problems import check_count, post_problem_of
from service.contract.queries import PositionedPostsQuery
from service.contract.responses.boards import BoardResult, PostResult
from service.contract.responses.positions import NoPosition, Position
from service.contract.routes import Call
from service.contract.values import format_us
from service.ranks.locator import COUNTED_METHODS, Locator, WantedRank
from service.ranks.rank_context import AskedRank
from service.views.owners.owners import find_ranked_column, list_wanted_ranks
from service.views.retry_on_change import PAUSES_S
from storage.errors import BoardChangedError, OutcomeUnknownError, StorageError, UnknownBoardError, UnknownColumnError
from storage.reads.point_reads import EntryRead
from storage.records import Board, Family, Leaf, PartOutcome, PostStatus, ShadowEntry, TracedOutcome

POSITIONED_POSTS_MAX = 100  # maximum posts in a request that asks for positions


class AskedPositions(NamedTuple):
    """The columns in which a request asks for positions, and whether it also asks for the ranks before the posts."""

    columns: Sequence[str]
    moved: bool


class Taken(NamedTuple):
    """A post that a leaf has accepted, and the part of the results that describes it."""

    result: PostResult | BoardResult
    owner: str
    leaf: Leaf
    outcome: PartOutcome

    @property
    def tells_before(self) -> bool:
        return self._cells is not None

    @property
    def _cells(self) -> Sequence[str | int | None] | None:
        traced = isinstance(self.outcome, TracedOutcome) and self.outcome.status is not PostStatus.DUPLICATE
        return self.outcome.before if traced else None  # type: ignore[attr-defined]

    def list_cells_before(self, indexes: Sequence[int]) -> Mapping[int, str]:
        """List the owner's cells before the post, by column index: those that are asked for and had a value."""
        cells = self._cells or ()
        return {index: cell for index in indexes if index < len(cells) and isinstance(cell := cells[index], str)}


async def find_asked(context: Context, call: Call, posts: int, target: Board | Family) -> AskedPositions:
    """Find the positions that a request asks for. `posts` is the number of its posts.

    Raises:
        ProblemError: there are too many posts, or the board or family has no such ranked column.
    """
    query: PositionedPostsQuery = call.query
    what = "posts of a request with positions"
    check_count(posts, POSITIONED_POSTS_MAX, "too_many_posts", "positions", what)
    try:
        _find_indexes(target, query.positions)
    except UnknownColumnError:  # the column may just have been added
        await context.catalog.confirm([target.id if isinstance(target, Board) else f"{target.id}:"])
        finding = context.catalog.find_board if isinstance(target, Board) else context.catalog.families.find_family
        try:
            _find_indexes(await finding(target.id), query.positions)
        except UnknownColumnError as error:
            raise post_problem_of(UnknownColumnError(error.detail, pointer="positions")) from None
    return AskedPositions(query.positions, query.moved)


def _find_indexes(target: Board | Family, columns: Sequence[str]) -> list[int]:
    board = target if isinstance(target, Board) else target.template_board
    return [find_ranked_column(board, name) for name in columns]


async def add_positions(context: Context, asked: AskedPositions, taken: Sequence[Taken]) -> None:
    """Set `positions` of the results of posts.

    Raises:
        OutcomeUnknownError: the positions can't be read, although the posts were applied.
    """
    try:
        for pause_s in PAUSES_S:
            try:
                return await _add_positions(context, asked, taken)
            except (BoardChangedError, UnknownBoardError, UnknownColumnError):
                await asyncio.sleep(pause_s)
                await context.catalog.confirm({each.leaf.id for each in taken})
        await _add_positions(context, asked, taken)
    except StorageError as error:
        raise OutcomeUnknownError("the posts were applied, but their positions could not be read") from error


class _Places(NamedTuple):
    """The reads for one post, by column index: the owner's positions now, and those of the earlier values."""

    locator: Locator
    indexes: Sequence[int]
    cells_before: Mapping[int, str]
    read: EntryRead
    now: dict[int, Position]
    before: dict[int, Position]

    def rank_before(self, index: int) -> int | None:
        """Compute the rank that the owner's value before the post has among the current values of the others."""
        before, now = self.before.get(index), self.now.get(index)
        if before is None or now is None or self.read.entry is None:
            return None if before is None else before.rank
        key_of_cell = self.locator.entries.rankings[index].padding.key_of_cell
        if key_of_cell(str(self.read.entry.cells[index])) >= key_of_cell(self.cells_before[index]):
            return min(before.rank, now.rank)
        # The owner's own new value counts as a better one, unless the curve is older than the post.
        if isinstance(self.read.entry, ShadowEntry):  # no ranking has the new value
            return max(before.rank, now.rank)
        has_new = before.method in COUNTED_METHODS or before.as_of >= format_us(self.read.entry.updated_at_us)
        return max(before.rank - has_new, now.rank)


async def _add_positions(context: Context, asked: AskedPositions, taken: Sequence[Taken]) -> None:
    for each, places in zip(taken, await _find_places(context, asked.columns, taken), strict=True):
        each.result.positions = []
        for index in places.indexes:
            position = places.now.get(index) or NoPosition(column=places.locator.board.spec.columns[index].name)
            if isinstance(position, Position):
                context.metrics.meter.add("rankcurve_reads", 1, "positions", position.method)
            if each.tells_before:
                position.rank_before = places.rank_before(index)
            each.result.positions.append(position)


async def _find_places(context: Context, columns: Sequence[str], taken: Sequence[Taken]) -> list[_Places]:
    """Read entries and count ranks together, as for requests for positions. A second snapshot has the other ranks."""
    ids = {each.leaf.id for each in taken}
    boards = {each: context.catalog.find_known(each) or await context.catalog.find_board(each) for each in ids}
    asked, reading = [], []
    for each in taken:
        board = boards[each.leaf.id]
        locator, indexes = context.ranks.find_locator(board), _find_indexes(board, columns)
        starts, cells_before = locator.find_default_starts(indexes, in_segments=False), each.list_cells_before(indexes)
        reading.append(context.reads.read_entry(board, each.owner, starts, cells_before))
        asked.append((locator, indexes, cells_before, starts))
    found, missing = [], []
    reads = await asyncio.gather(*reading)
    for number, read in enumerate(reads):
        if read.entry is None:
            shadow = await context.reads.find_shadow(asked[number][0].board, taken[number].owner)
            reads[number] = read._replace(entry=shadow)
    for (locator, indexes, cells_before, starts), read in zip(asked, reads, strict=True):
        places = _Places(locator, indexes, cells_before, read, {}, {})
        found.append(places)
        wanted = _list_wanted(places)
        positions = [locator.find_position(one, "auto", starts, counted) for _, one, counted in wanted]
        for (into, one, _), position in zip(wanted, positions, strict=True):
            if position is not None:
                into[one.column_index] = position
        if None in positions:  # a rank and the rank before the post must come from the same snapshot
            missing += [(into, AskedRank(locator, one), read.totals) for into, one, _ in wanted]
    totals = {each.locator.board.key: theirs for _, each, theirs in missing}
    counted = await context.ranks.find_positions([each for _, each, _ in missing], "auto", totals) if missing else []
    for (into, (_, one), _), position in zip(missing, counted, strict=True):
        into[one.column_index] = position
    return found


def _list_wanted(places: _Places) -> list[tuple[dict[int, Position], WantedRank, EntryRead]]:
    """List the wanted ranks, each with the dict for its position and the read that may have counted it."""
    entry, read = places.read.entry, places.read
    if entry is None:  # the owner is hidden, or was erased
        return []
    now = [(places.now, each, read) for each in list_wanted_ranks(entry, places.indexes)]
    shadows = int(isinstance(entry, ShadowEntry))
    had = [WantedRank(index, cell, entry.owner, shadows) for index, cell in places.cells_before.items()]
    return now + [(places.before, each, read._replace(counts=read.earlier)) for each in had]

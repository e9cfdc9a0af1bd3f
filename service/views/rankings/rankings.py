"""Handlers of one ranking: pages, positions of values on one or several boards, values of ranks, distribution."""

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from itertools import pairwise
from math import floor

from predictor import AnyCurve, BoundedRank, add_up_ranks
from service.context import Context
from service.contract.problems import ProblemError
from service.contract.queries import BucketsQuery, PageQuery, ValuePositionsQuery, ValuesQuery
from service.contract.responses.boards import (
    Bucket,
    Buckets,
    Page,
    PercentileValue,
    RankedEntry,
    RankValue,
    Values,
)
from service.contract.responses.positions import Position, PositionMethod, Positions
from service.contract.routes import Call, Tagged
from service.contract.values import Number, format_us, parse_decimal, to_wire_number
from service.ranks.curve_buckets import estimate_buckets, split_range
from service.ranks.locator import Locator, WantedRank, percentile, read_board_totals
from service.ranks.rank_context import AskedRank
from service.views.owners.owners import check_count, find_column, rank_entries
from service.views.owners.profiles import add_profiles
from service.views.unchanged import find_unchanged, tag_answer
from storage.boards.totals import CHANGES
from storage.entries.rankings import Ranking
from storage.errors import UnknownColumnError
from storage.records import Board, Entry
from storage.store import Program

# From the best method to the worst. The answer has the worst of the boards' methods, because a sum is no more exact
# than its least exact part.
_METHODS: tuple[PositionMethod, ...] = ("count", "knot", "gap", "curve")


async def get_page(context: Context, call: Call) -> Page | Tagged:
    query: PageQuery = call.query
    board, index = await find_column(context, call.path["board"], call.path["column"])
    limit = query.limit or context.settings.page_entries_default
    if query.order == "owner":
        return await _list_by_owner(context, board, index, query.cursor, limit)
    pager = context.ranks.make_pager(board, index)
    store = context.store.at(board.partition)
    if not query.profiles and (unchanged := await find_unchanged(context, call, board)) is not None:
        return unchanged
    if query.cursor is not None or query.from_rank is not None:
        start = pager.find_count_start()
        if query.cursor is not None:
            place = pager.decode_cursor(query.cursor)
            program, row_number = partial(pager.find_rows_at_cursor, place, limit, start), place.row_number
        else:
            assert query.from_rank is not None
            program, row_number = partial(pager.find_rows_from_rank, query.from_rank, limit, start), query.from_rank
        far = start is None and row_number > context.settings.light_read_rows_max
        window = await store.read(program, heavy=far)
    elif query.profiles:
        window = await pager.read_first(limit)
    else:
        # Most requests are for the top. Requests that arrive at the same time share one read and one encoded answer.
        kind = (board.key, board.epoch, len(board.spec.columns), index, limit)
        first = await context.ranks.first_pages.ask(store, kind, (pager, limit))
        context.metrics.meter.add("rankcurve_reads", first.rows, "page", "count")
        return first.tagged
    context.metrics.meter.add("rankcurve_reads", len(window.rows), "page", "count")
    if not query.profiles:
        return pager.tag_page(window)
    found = pager.make_page(window)
    await add_profiles(context, found.entries)
    return found


async def _list_by_owner(context: Context, board: Board, index: int, cursor: str | None, limit: int) -> Page:
    """Return the next owners of a ranking in alphabetical order. In an archive, only this order reaches all owners."""
    of = f"{board.key}/{index}"
    after = context.cursors.find_start(cursor, of, "")
    locator = context.ranks.find_locator(board)

    def program() -> Program[tuple[list[Entry], dict[int, int]]]:
        return (yield from locator.entries.read_by_owner(after, limit + 1)), (yield from read_board_totals(board))

    found, totals = await context.store.at(board.partition).read(program)
    shown, following = context.cursors.cut_page(found, limit, of, lambda last: last.owner)
    positions, ranked = await rank_entries(context, locator, index, shown, totals), []
    for entry in shown:
        if (position := positions.get(entry.owner)) is not None:
            context.metrics.meter.add("rankcurve_reads", 1, "page", position.method)
            stats, updated_at = locator.format_stats(entry.cells), format_us(entry.updated_at_us)
            ranked.append(RankedEntry(position.rank, position.exact, entry.owner, position.value, updated_at, stats))
    return Page(board.spec.columns[index].name, totals.get(index, 0), ranked, following, None)


async def get_value_positions(context: Context, call: Call) -> Positions:
    query: ValuePositionsQuery = call.query
    board, index = await find_column(context, call.path["board"], call.path["column"])
    if not query.with_:
        return Positions(await _value_positions(context, board, index, query))
    boards = [(board, index), *(await _find_added_boards(context, call, board, index))]
    # At `as_of`, every board has had at least the changes `before` and at most the changes `after`, and so it has in
    # the snapshots that are counted. A curve may lack more changes.
    off_curves = [context.curves.book.count_changes(*each) for each in boards]
    before = [(await context.reads.read_totals(each)).get(CHANGES, 0) for each, _ in boards]
    as_of = format_us(context.now_us())
    shards = [await _value_positions(context, *each, query) for each in boards]
    after = [(await context.reads.read_totals(each)).get(CHANGES, 0) for each, _ in boards]
    spans = list(zip(before, off_curves, after, strict=True))
    return Positions([_add_up_positions(parts, spans, as_of) for parts in zip(*shards, strict=True)])


async def _value_positions(context: Context, board: Board, index: int, query: ValuePositionsQuery) -> list[Position]:
    locator = context.ranks.find_locator(board)
    wanted = [parse_wanted_value(locator, index, text, f"values/{i}") for i, text in enumerate(query.values)]
    found = await context.ranks.find_positions([AskedRank(locator, each) for each in wanted], query.rank, {})
    for position in found:
        context.metrics.meter.add("rankcurve_reads", 1, "rankings", position.method)
    return found


async def _find_added_boards(context: Context, call: Call, first: Board, index: int) -> list[tuple[Board, int]]:
    """Return the boards that `with` names, each with the index of the column there.

    Raises:
        UnknownBoardError, UnknownColumnError: one of the boards, or the column on one of them, does not exist.
        ProblemError: a board is named twice or ranks the column in another way, or there are too many values.
    """
    query: ValuePositionsQuery = call.query
    column = first.spec.columns[index]
    asked, most = len(query.values) * (1 + len(query.with_)), context.settings.query_values_max
    if asked > most:
        raise ProblemError(
            "too_many_values",
            f"{asked} values, counted once for each leaderboard, are more than {most}",
            pointer="values",
        )
    found: list[tuple[Board, int]] = []
    for position, board_id in enumerate(query.with_):
        pointer = f"with/{position}"
        if board_id in (first.id, *query.with_[:position]):
            raise ProblemError("bad_request", f"{board_id!r} would be counted twice", pointer=pointer)
        try:
            board, other_index = await find_column(context, board_id, column.name)
        except UnknownColumnError as error:
            raise UnknownColumnError(error.detail, pointer=pointer) from error
        other = board.spec.columns[other_index]
        if (other.best, other.scale) != (column.best, column.scale):
            raise ProblemError(
                "bad_request", f"{column.name!r} of {board_id!r} has another best or scale", pointer=pointer
            )
        found.append((board, other_index))
    return found


def _add_up_positions(parts: Sequence[Position], spans: Sequence[tuple[int, int, int]], as_of: str) -> Position:
    """Return the position of a value among the entries of all boards, from its position on each board.

    The numbers of better entries on all boards are added up, and so are the ends of the brackets. Every change that a
    board may have had between its own time and `as_of` widens the bracket by one.

    `spans`: the changes of each board before `as_of`, those that its curve counts, and those after `as_of`.
    """
    rank, low, high = add_up_ranks(BoundedRank(part.rank, part.low, part.high) for part in parts)
    for part, (before, off_curve, after) in zip(parts, spans, strict=True):
        doubt = after - (off_curve if part.method in ("knot", "curve") else before)
        low, high = max(1, low - doubt), high + doubt
    total = sum(part.total for part in parts)
    return Position(
        column=parts[0].column,
        value=parts[0].value,
        rank=rank,
        low=low,
        high=high,
        exact=low == high,
        method=max((part.method for part in parts), key=_METHODS.index),
        total=total,
        percentile=percentile(rank, total),
        as_of=as_of,
    )


def parse_wanted_value(locator: Locator, index: int, text: str, pointer: str) -> WantedRank:
    """Return the cell that a newcomer with this value would have.

    Raises:
        ProblemError: the text is not a number, or the column cannot hold that number.
    """
    column = locator.board.spec.columns[index]
    value = parse_decimal(text, column.scale, pointer=pointer)
    if not column.min_scaled <= value <= column.max_scaled:
        raise ProblemError("value_out_of_range", f"{text} is outside the range of {column.name!r}", pointer=pointer)
    return WantedRank(index, locator.entries.rankings[index].padding.pad_arrival(value), None)


async def get_values(context: Context, call: Call) -> Values:
    query: ValuesQuery = call.query
    board, index = await find_column(context, call.path["board"], call.path["column"])
    count = len(query.ranks) + len(query.percentiles)
    check_count(count, context.settings.query_values_max, "too_many_values", "ranks")
    finder = _ValueFinder(context, board, index)
    values = await context.store.at(board.partition).read(
        lambda: finder.find_values(query.ranks, query.percentiles), heavy=finder.curve is None
    )
    context.metrics.meter.add("rankcurve_reads", count, "rankings", "count" if finder.curve is None else "curve")
    return Values(values)


class _ValueFinder:
    """Finds the values of ranks: from rows if they are few or if there is no curve, otherwise from the curve."""

    def __init__(self, context: Context, board: Board, index: int) -> None:
        self._book = context.curves.book
        self.curve: AnyCurve | None = self._book.find_curve(board, index)
        self._start = context.ranks.find_locator(board).find_count_start(index)
        # The rows that this request may still read to find exact values of deep ranks.
        self._rows_left = context.settings.light_read_rows_max
        self._board, self._index = board, index
        self._ranking: Ranking = context.boards.open_board(board).rankings[index]
        self._scale = board.spec.columns[index].scale

    def find_values(
        self, ranks: Sequence[int], percentiles: Sequence[float]
    ) -> Program[list[RankValue | PercentileValue]]:
        totals = yield from read_board_totals(self._board)
        total = totals.get(self._index, 0)
        curve = self.curve
        self._is_current = curve is not None and self._book.is_current(self._board, self._index, curve, totals)
        found: list[RankValue | PercentileValue] = []
        for rank in ranks:
            found.append(RankValue(rank, *(yield from self._value(rank, total))))
        for share in percentiles:
            found.append(PercentileValue(share, *(yield from self._value(rank_of_percentile(share, total), total))))
        return found

    def _value(self, rank: int, total: int) -> Program[tuple[Number | None, Number | None, Number | None, bool]]:
        """Return a value, the bounds between which the true value lies, and whether the value is exact."""
        if total == 0:
            return None, None, None, True
        rank = min(rank, total)
        padding = self._ranking.padding
        near = self.curve is None or not self.curve.total or rank <= self._board.spec.predictor.exact_top
        if not near and not self._takes(rank):
            assert self.curve is not None
            bracket = self.curve.key_at(rank)
            assert bracket is not None
            value, one, other = (padding.decode_value(padding.cell_of_key(key)) for key in bracket)
            low, high = sorted((one, other))
            exact = self._is_current and low == high
        else:
            cell = yield from self._ranking.find_cell(self._start, rank)
            if cell is None:
                cell = yield from self._ranking.find_worst_cell()
            assert cell is not None
            value = low = high = padding.decode_value(cell)
            exact = True
        shown, least, most = (to_wire_number(each, self._scale) for each in (value, low, high))
        return shown, least, most, exact

    def _takes(self, rank: int) -> bool:
        """Return whether the row of a deep rank may be found by a count from an anchor knot.

        Subtract the rows of the anchor's gap from the rows that may still be read.
        """
        near = None if self._start is None else self._start.curve.key_at(rank)
        if self._start is None or near is None:
            return False
        self._rows_left -= self._start.curve.find_gap(near.low).rows
        return self._rows_left >= 0


def rank_of_percentile(percentile: float, total: int) -> int:
    """Return the worst rank whose percentile, 100 * (total - rank) / (total - 1), is at least this percentile."""
    if total <= 1:
        return 1
    return max(1, floor(total - Fraction(str(percentile)) * (total - 1) / 100))


async def get_buckets(context: Context, call: Call) -> Tagged:
    query: BucketsQuery = call.query
    board, index = await find_column(context, call.path["board"], call.path["column"])
    if (unchanged := await find_unchanged(context, call, board, index)) is not None:
        return unchanged
    ranking = context.boards.open_board(board).rankings[index]
    store, to_wire = context.store.at(board.partition), partial(to_wire_number, scale=board.spec.columns[index].scale)
    curve = context.curves.book.find_curve(board, index) if query.rank == "estimate" else None
    if curve is not None:
        # As in `get_curve`: this read raises an error if another process has emptied the board.
        totals = await store.read(lambda: read_board_totals(board))
        current = context.curves.book.is_current(board, index, curve, totals)
        estimated = estimate_buckets(curve, ranking.padding, query.buckets)
        found = [
            Bucket(to_wire(least), to_wire(past), entries, low, high, current and low == high)
            for least, past, entries, low, high in estimated
        ]
    else:
        counted, totals = await store.read(lambda: _count_buckets(board, ranking, query.buckets), heavy=True)
        found = [Bucket(to_wire(least), to_wire(past), entries) for least, past, entries in counted]
    context.metrics.meter.add("rankcurve_reads", len(found), "rankings", "count" if curve is None else "curve")
    return tag_answer(call, board, totals, Buckets(found), curve)


def _count_buckets(
    board: Board, ranking: Ranking, buckets: int
) -> Program[tuple[list[tuple[int, int, int]], dict[int, int]]]:
    totals = yield from read_board_totals(board)  # the board may have left the rows that the program counts
    return (yield from count_buckets(ranking, buckets)), totals


def count_buckets(ranking: Ranking, buckets: int) -> Program[list[tuple[int, int, int]]]:
    """Count the entries in parts of equal width between the smallest and the largest value.

    Return (from, to, entries) for each part. A part includes its `from`, and only the last part includes its `to`.
    There are fewer than `buckets` parts if fewer values lie between the smallest and the largest value.
    """
    best = yield from ranking.find_cell(None, 1)
    worst = yield from ranking.find_worst_cell()
    if best is None or worst is None:
        return []
    padding = ranking.padding
    least, most = sorted((padding.decode_value(best), padding.decode_value(worst)))
    edges = split_range(least, most, buckets)
    found = []
    for start, end in pairwise(edges):
        last = end == edges[-1]
        entries = yield from ranking.count_range(
            least=padding.text_start(start), past=padding.text_start(end + 1 if last else end)
        )
        found.append((start, end, entries))
    return found

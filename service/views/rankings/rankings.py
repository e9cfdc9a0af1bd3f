"""Handlers of one ranking: pages, positions of values, values of ranks, distribution, the curve and its refresh."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from math import floor

from predictor import RankCurve
from service.context import Context
from service.contract.problems import ProblemError
from service.contract.queries import BucketsQuery, PageQuery, ValuePositionsQuery, ValuesQuery
from service.contract.responses.boards import (
    Bucket,
    Buckets,
    CurveAnswer,
    Page,
    PercentileValue,
    RankValue,
    RefreshAnswer,
    Values,
)
from service.contract.responses.positions import Position, Positions
from service.contract.routes import Answer, Call, Reply, match_entity_tag
from service.contract.values import Number, format_us, parse_decimal, to_wire_number
from service.ranks.curve_buckets import EstimatedBucket, estimate_buckets, split_range
from service.ranks.locator import Locator, WantedRank, read_board_totals
from service.views.owners.owners import find_column
from service.views.owners.profiles import add_profiles
from storage.archive.archive_reader import ArchivedEntries
from storage.archive.archive_writer import build_exact_curve
from storage.entries.rankings import Ranking
from storage.errors import ArchivedError, NoCurveError
from storage.records import Board
from storage.store import Program

from .curve_documents import curve_document, curve_etag
from .several_boards import add_up_positions, find_added_boards


async def get_page(context: Context, call: Call) -> Page | bytes:
    """Handle `GET …/rankings/{column}`."""
    query: PageQuery = call.query
    board, index = await find_column(context, call.path["board"], call.path["column"])
    limit = query.limit or context.settings.page_entries_default
    pager = context.ranks.make_pager(board, index)
    light = context.settings.light_read_rows_max
    start = pager.find_count_start() if query.cursor is not None or query.from_rank is not None else None
    if query.cursor is not None:
        place = pager.decode_cursor(query.cursor)
        far = start is None and place.row_number > light
        window = await context.store_for_board(board).read(
            lambda: pager.find_rows_at_cursor(place, limit, start), heavy=far
        )
    elif query.from_rank is not None:
        rank = query.from_rank
        far = start is None and rank > light
        window = await context.store_for_board(board).read(
            lambda: pager.find_rows_from_rank(rank, limit, start), heavy=far
        )
    elif query.profiles:
        window = await pager.read_first(limit)
    else:
        # Most requests are for the top. Requests that arrive at the same time share one read and one encoded answer.
        kind = (board.key, board.epoch, len(board.spec.columns), index, limit)
        first = await context.ranks.first_pages.ask(context.store_for_board(board), kind, (pager, limit))
        context.metrics.count_ranks_read("page", "count", first.rows)
        return first.body
    context.metrics.count_ranks_read("page", "count", len(window.rows))
    found = pager.make_page(window)
    if query.profiles:
        await add_profiles(context, found.entries)
    return found


async def value_positions(context: Context, call: Call) -> Positions:
    """Handle `GET …/rankings/{column}/positions`."""
    query: ValuePositionsQuery = call.query
    board, index = await find_column(context, call.path["board"], call.path["column"])
    others = await find_added_boards(context, call, board, index) if query.with_ else []
    found = await _value_positions(context, board, index, query)
    if not others:
        return Positions(found)
    shards = [found, *[await _value_positions(context, *other, query) for other in others]]
    return Positions([add_up_positions(list(parts)) for parts in zip(*shards, strict=True)])


async def _value_positions(context: Context, board: Board, index: int, query: ValuePositionsQuery) -> list[Position]:
    locator = context.ranks.find_locator(board)
    wanted = [parse_wanted_value(locator, index, text, f"values/{i}") for i, text in enumerate(query.values)]
    found = await locator.find_positions(wanted, query.rank)
    for position in found:
        context.metrics.count_ranks_read("rankings", position.method)
    return found


def parse_wanted_value(locator: Locator, index: int, text: str, pointer: str) -> WantedRank:
    """Return the cell that a newcomer with this value would have.

    Raises:
        ProblemError: the text is not a number, or the column cannot hold that number.
    """
    column = locator.board.spec.columns[index]
    try:
        value = parse_decimal(text, column.scale)
    except ProblemError as problem:
        raise ProblemError(problem.code, problem.detail, pointer=pointer) from None
    if not column.min_scaled <= value <= column.max_scaled:
        raise ProblemError("value_out_of_range", f"{text} is outside the range of {column.name!r}", pointer=pointer)
    return WantedRank(index, locator.entries.rankings[index].padding.pad_arrival(value), None)


async def get_values(context: Context, call: Call) -> Values:
    """Handle `GET …/rankings/{column}/values`."""
    query: ValuesQuery = call.query
    board, index = await find_column(context, call.path["board"], call.path["column"])
    count = len(query.ranks) + len(query.percentiles)
    if count > context.settings.query_values_max:
        raise ProblemError(
            "too_many_values", f"{count} is more than {context.settings.query_values_max}", pointer="ranks"
        )
    finder = _ValueFinder(context, board, index)
    ranks, percentiles = await context.store_for_board(board).read(
        lambda: finder.run(query.ranks, query.percentiles), heavy=finder.curve is None
    )
    context.metrics.count_ranks_read("rankings", "count" if finder.curve is None else "curve", count)
    return Values([*ranks, *percentiles])


class _ValueFinder:
    """Finds the values of ranks: from rows if they are few or if there is no curve, otherwise from the curve."""

    def __init__(self, context: Context, board: Board, index: int) -> None:
        self.curve: RankCurve | None = context.curves.book.find_curve(board, index)
        self._start = context.ranks.find_locator(board).find_count_start(index)
        # The rows that this request may still read to find exact values of deep ranks.
        self._rows_left = context.settings.light_read_rows_max
        self._context, self._board, self._index = context, board, index
        self._ranking: Ranking = context.boards.open_board(board)[0].rankings[index]
        self._scale = board.spec.columns[index].scale

    def run(
        self, ranks: Sequence[int], percentiles: Sequence[float]
    ) -> Program[tuple[list[RankValue], list[PercentileValue]]]:
        totals = yield from read_board_totals(self._board)
        total = totals.get(self._index, 0)
        for_ranks, for_percentiles = [], []
        for rank in ranks:
            value, low, high = yield from self._value(rank, total)
            for_ranks.append(RankValue(rank, value, low, high, low == high))
        for percentile in percentiles:
            value, low, high = yield from self._value(rank_of_percentile(percentile, total), total)
            for_percentiles.append(PercentileValue(percentile, value, low, high, low == high))
        return for_ranks, for_percentiles

    def _value(self, rank: int, total: int) -> Program[tuple[Number | None, Number | None, Number | None]]:
        if total == 0:
            return None, None, None
        rank = min(rank, total)
        padding = self._ranking.padding
        near = self.curve is None or not self.curve.total or rank <= self._board.spec.predictor.exact_top
        if not near and not self._takes(rank):
            assert self.curve is not None
            bracket = self.curve.key_at(rank)
            assert bracket is not None
            value, one, other = (padding.decode_value(padding.cell_of_key(key)) for key in bracket)
            low, high = sorted((one, other))
        else:
            landed = yield from self._ranking.find_row(self._start, rank)
            if landed is None:
                landed = yield from self._ranking.find_worst_row()
            assert landed is not None
            value = low = high = padding.decode_value(landed[0])
        return to_wire_number(value, self._scale), to_wire_number(low, self._scale), to_wire_number(high, self._scale)

    def _takes(self, rank: int) -> bool:
        """Return whether the row of a deep rank may be found by a count from an anchor knot.

        Subtract the rows of the anchor's gap from the rows that may still be read.
        """
        near = None if self._start is None else self._start.curve.key_at(rank)
        if self._start is None or near is None:
            return False
        self._rows_left -= self._start.curve.find_anchor_above(near.low).gap_rows
        return self._rows_left >= 0


def rank_of_percentile(percentile: float, total: int) -> int:
    """Return the worst rank whose percentile, 100 * (total - rank) / (total - 1), is at least this percentile."""
    if total <= 1:
        return 1
    return max(1, floor(total - Fraction(str(percentile)) * (total - 1) / 100))


async def curve(context: Context, call: Call) -> Answer:
    """Handle `GET …/rankings/{column}/curve`."""
    board, index = await find_column(context, call.path["board"], call.path["column"])
    # If another process has emptied the board, this process's curve still describes the former entries. This read
    # raises an error in that case.
    await context.store_for_board(board).read(lambda: read_board_totals(board))
    served = context.curves.book.find_served(board, index)
    if served is None and board.closed_us is not None:
        return await _final_curve(context, call, board, index)
    if served is None:
        raise NoCurveError(f"{call.path['column']!r} of {board.id!r} has no curve yet")
    return _curve_reply(context, call, curve_etag(served), lambda: curve_document(board, index, served.curve))


async def _final_curve(context: Context, call: Call, board: Board, index: int) -> Answer:
    """Answer with the final curve of a closed board, if this process has no curve of the board.

    The curve of an archived board comes from the archive. For another board with few entries, make a curve that has a
    knot for each value.
    """
    entries, _ = context.boards.open_board(board)
    archived = isinstance(entries, ArchivedEntries)
    found = await context.store_for_board(board).read(
        lambda: entries.read_curve(index) if isinstance(entries, ArchivedEntries) else build_exact_curve(entries, index)
    )
    if found is None or not (archived or found.total <= board.spec.predictor.exact_top):
        raise NoCurveError(f"{call.path['column']!r} of {board.id!r} has no curve yet")
    etag = f'W/"{board.key}-{index}-final-{found.total}"'
    return _curve_reply(context, call, etag, lambda: curve_document(board, index, found))


def _curve_reply(context: Context, call: Call, etag: str, document: Callable[[], CurveAnswer]) -> Reply:
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if match_entity_tag(call.request.headers.get("If-None-Match", ""), etag):
        return Reply(None, status=304, headers=headers)
    context.metrics.count_ranks_read("rankings", "curve")
    return Reply(document(), headers=headers)


async def refresh_curve(context: Context, call: Call) -> RefreshAnswer:
    """Handle `POST …/rankings/{column}/refresh`."""
    board, index = await find_column(context, call.path["board"], call.path["column"])
    if board.archived_us is not None:
        raise ArchivedError(f"{board.id!r} was archived, and its curves are final")
    done = await context.curves.refreshes.refresh_now(board, index)
    return RefreshAnswer(
        column=board.spec.columns[index].name,
        method=done.curve.method,
        total=done.curve.total,
        as_of=format_us(done.curve.as_of_us),
        certificate=done.curve.certificate,
        seconds=done.seconds,
    )


async def buckets(context: Context, call: Call) -> Buckets:
    """Handle `GET …/rankings/{column}/buckets`."""
    query: BucketsQuery = call.query
    board, index = await find_column(context, call.path["board"], call.path["column"])
    ranking = context.boards.open_board(board)[0].rankings[index]
    scale = board.spec.columns[index].scale
    curve = context.curves.book.find_curve(board, index) if query.rank == "estimate" else None
    if curve is not None:
        # As in `curve`: this read raises an error if another process has emptied the board.
        await context.store_for_board(board).read(lambda: read_board_totals(board))
        parts = estimate_buckets(curve, ranking.padding, query.buckets)
        context.metrics.count_ranks_read("rankings", "curve", len(parts))
        return Buckets([_estimated(part, scale) for part in parts])
    found = await context.store_for_board(board).read(lambda: count_buckets(ranking, query.buckets), heavy=True)
    context.metrics.count_ranks_read("rankings", "count", len(found))
    return Buckets(
        [
            Bucket(from_=to_wire_number(least, scale), to=to_wire_number(past, scale), entries=entries)
            for least, past, entries in found
        ]
    )


def _estimated(part: EstimatedBucket, scale: int) -> Bucket:
    least, past = to_wire_number(part.least, scale), to_wire_number(part.past, scale)
    return Bucket(least, past, part.entries, part.low, part.high, part.low == part.high)


def count_buckets(ranking: Ranking, buckets: int) -> Program[list[tuple[int, int, int]]]:
    """Count the entries in parts of equal width between the smallest and the largest value.

    Return (from, to, entries) for each part. A part includes its `from`, and only the last part includes its `to`.
    There are fewer than `buckets` parts if fewer values lie between the smallest and the largest value.
    """
    best = yield from ranking.find_row_after_skip(0)
    worst = yield from ranking.find_worst_row()
    if best is None or worst is None:
        return []
    padding = ranking.padding
    least, most = sorted((padding.decode_value(best[0]), padding.decode_value(worst[0])))
    edges = split_range(least, most, buckets)
    found = []
    for start, end in pairwise(edges):
        last = end == edges[-1]
        entries = yield from ranking.count_range(
            least=padding.text_start(start), past=padding.text_start(end + 1 if last else end)
        )
        found.append((start, end, entries))
    return found

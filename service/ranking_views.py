"""What clients ask about a ranking: pages, ranks and values of each other, distribution, the curve and its refresh."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from math import floor

from predictor import RankCurve
from storage.archives import ArchivedEntries
from storage.archiving import curve_of_all
from storage.errors import Archived, NoCurve
from storage.rankings import Ranking
from storage.records import Board
from storage.store import Program

from .answers import Bucket, Buckets, CurveAnswer, Page, PercentileValue, RankValue, RefreshAnswer, Values
from .context import Context
from .curve_buckets import Part, edges_between, estimated_parts
from .curve_documents import curve_document, curve_etag
from .entity_tags import holds
from .owner_views import find_column
from .pages import Pager
from .position_answers import Position, Positions
from .positions import Locator, Wanted, board_totals
from .problems import Problem
from .profiles import add_profiles
from .queries import BucketsQuery, PageQuery, ValuePositionsQuery, ValuesQuery
from .routes import Answer, Call, Reply
from .shard_views import added_boards, together
from .values import Number, format_us, number, parse_decimal


async def page(context: Context, call: Call) -> Page | bytes:
    """`GET …/rankings/{column}`."""
    query: PageQuery = call.query
    board, index = await find_column(context, call.path["board"], call.path["column"])
    limit = query.limit or context.settings.page_entries_default
    pager = Pager(context, board, index)
    light = context.settings.light_read_rows_max
    footing = pager.footing() if query.cursor is not None or query.from_rank is not None else None
    if query.cursor is not None:
        place = pager.place(query.cursor)
        far = footing is None and place.row_number > light
        window = await context.store_of(board).read(lambda: pager.at(place, limit, footing), heavy=far)
    elif query.from_rank is not None:
        rank = query.from_rank
        far = footing is None and rank > light
        window = await context.store_of(board).read(lambda: pager.from_rank(rank, limit, footing), heavy=far)
    elif query.profiles:
        window = await pager.read_first(limit)
    else:
        # Everyone looks at the top: who asks at the same time shares one read and one encoding.
        kind = (board.key, board.epoch, len(board.spec.columns), index, limit)
        first = await context.first_pages.ask(context.store_of(board), kind, (pager, limit))
        context.metrics.read("page", "count", first.rows)
        return first.body
    context.metrics.read("page", "count", len(window.rows))
    found = pager.page(window)
    if query.profiles:
        await add_profiles(context, found.entries)
    return found


async def value_positions(context: Context, call: Call) -> Positions:
    """`GET …/rankings/{column}/positions`."""
    query: ValuePositionsQuery = call.query
    board, index = await find_column(context, call.path["board"], call.path["column"])
    others = await added_boards(context, call, board, index) if query.with_ else []
    found = await _value_positions(context, board, index, query)
    if not others:
        return Positions(found)
    shards = [found, *[await _value_positions(context, *other, query) for other in others]]
    return Positions([together(list(parts)) for parts in zip(*shards, strict=True)])


async def _value_positions(context: Context, board: Board, index: int, query: ValuePositionsQuery) -> list[Position]:
    locator = context.locators.of(board)
    wanted = [wanted_value(locator, index, text, f"values/{i}") for i, text in enumerate(query.values)]
    located, totals = await locator.locate(wanted, query.rank)
    for at in located:
        context.metrics.read("rankings", at.method)
    return [locator.position(each, at, totals) for each, at in zip(wanted, located, strict=True)]


def wanted_value(locator: Locator, index: int, text: str, pointer: str) -> Wanted:
    """The cell that an arrival with this value would have. Raises Problem."""
    column = locator.board.spec.columns[index]
    try:
        value = parse_decimal(text, column.scale)
    except Problem as problem:
        raise Problem(problem.code, problem.detail, pointer=pointer) from None
    if not column.min_scaled <= value <= column.max_scaled:
        raise Problem("value_out_of_range", f"{text} is outside the range of {column.name!r}", pointer=pointer)
    return Wanted(index, locator.entries.rankings[index].padding.pad_arrival(value), None)


async def values(context: Context, call: Call) -> Values:
    """`GET …/rankings/{column}/values`."""
    query: ValuesQuery = call.query
    board, index = await find_column(context, call.path["board"], call.path["column"])
    count = len(query.ranks) + len(query.percentiles)
    if count > context.settings.query_values_max:
        raise Problem("too_many_values", f"{count} is more than {context.settings.query_values_max}", pointer="ranks")
    finder = _ValueFinder(context, board, index)
    ranks, percentiles = await context.store_of(board).read(
        lambda: finder.run(query.ranks, query.percentiles), heavy=finder.curve is None
    )
    context.metrics.read("rankings", "count" if finder.curve is None else "curve", count)
    return Values([*ranks, *percentiles])


class _ValueFinder:
    """Values for ranks: read off the board where that takes few rows or there is no curve, else off the curve."""

    def __init__(self, context: Context, board: Board, index: int) -> None:
        self.curve: RankCurve | None = context.book.find(board, index)
        self._footing = context.locators.of(board).footing(index)
        self._rows_left = context.settings.light_read_rows_max  # that exact values of deep ranks may pass
        self._context, self._board, self._index = context, board, index
        self._ranking: Ranking = context.boards.open(board)[0].rankings[index]
        self._scale = board.spec.columns[index].scale

    def run(
        self, ranks: Sequence[int], percentiles: Sequence[float]
    ) -> Program[tuple[list[RankValue], list[PercentileValue]]]:
        totals = yield from board_totals(self._context.store.dialect, self._board)
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
            value, one, other = (padding.value(padding.cell_of_key(key)) for key in bracket)
            low, high = sorted((one, other))
        else:
            landed = yield from self._ranking.row_at(self._footing, rank)
            if landed is None:
                landed = yield from self._ranking.worst()
            assert landed is not None
            value = low = high = padding.value(landed[0])
        return number(value, self._scale), number(low, self._scale), number(high, self._scale)

    def _takes(self, rank: int) -> bool:
        """Whether the row of a deep rank is sought from a rung, few rows away; the rows are taken off those left."""
        near = None if self._footing is None else self._footing.curve.key_at(rank)
        if self._footing is None or near is None:
            return False
        self._rows_left -= self._footing.curve.rung_for(near.low).gap_rows
        return self._rows_left >= 0


def rank_of_percentile(percentile: float, total: int) -> int:
    """The worst rank whose percentile, 100 * (total - rank) / (total - 1), is at least this one."""
    if total <= 1:
        return 1
    return max(1, floor(total - Fraction(str(percentile)) * (total - 1) / 100))


async def curve(context: Context, call: Call) -> Answer:
    """`GET …/rankings/{column}/curve`."""
    board, index = await find_column(context, call.path["board"], call.path["column"])
    # Another process may have emptied the board: then the curve that serves here is of what it held before.
    await context.store_of(board).read(lambda: board_totals(context.store.dialect, board))
    served = context.book.served(board, index)
    if served is None and board.closed_us is not None:
        return await _final_curve(context, call, board, index)
    if served is None:
        raise NoCurve(f"{call.path['column']!r} of {board.id!r} has no curve yet")
    return _curve_reply(context, call, curve_etag(served), lambda: curve_document(board, index, served.curve))


async def _final_curve(context: Context, call: Call, board: Board, index: int) -> Answer:
    """The curve of a closed board that none serves of: an archive's, or one of few entries, which are all knots."""
    entries, _ = context.boards.open(board)
    archived = isinstance(entries, ArchivedEntries)
    found = await context.store_of(board).read(
        lambda: entries.curve(index) if isinstance(entries, ArchivedEntries) else curve_of_all(entries, index)
    )
    if found is None or not (archived or found.total <= board.spec.predictor.exact_top):
        raise NoCurve(f"{call.path['column']!r} of {board.id!r} has no curve yet")
    etag = f'W/"{board.key}-{index}-final-{found.total}"'
    return _curve_reply(context, call, etag, lambda: curve_document(board, index, found))


def _curve_reply(context: Context, call: Call, etag: str, document: Callable[[], CurveAnswer]) -> Reply:
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if holds(call.request.headers.get("If-None-Match", ""), etag):
        return Reply(None, status=304, headers=headers)
    context.metrics.read("rankings", "curve")
    return Reply(document(), headers=headers)


async def refresh(context: Context, call: Call) -> RefreshAnswer:
    """`POST …/rankings/{column}/refresh`."""
    board, index = await find_column(context, call.path["board"], call.path["column"])
    if board.archived_us is not None:
        raise Archived(f"{board.id!r} was archived, and its curves are final")
    done = await context.desk.refresh_now(board, index)
    return RefreshAnswer(
        column=board.spec.columns[index].name,
        method=done.curve.method,
        total=done.curve.total,
        as_of=format_us(done.curve.as_of_us),
        certificate=done.curve.certificate,
        seconds=done.seconds,
    )


async def buckets(context: Context, call: Call) -> Buckets:
    """`GET …/rankings/{column}/buckets`."""
    query: BucketsQuery = call.query
    board, index = await find_column(context, call.path["board"], call.path["column"])
    ranking = context.boards.open(board)[0].rankings[index]
    scale = board.spec.columns[index].scale
    curve = context.book.find(board, index) if query.rank == "estimate" else None
    if curve is not None:
        # Another process may have emptied the board: then the curve that serves here is of what it held before.
        await context.store_of(board).read(lambda: board_totals(context.store.dialect, board))
        parts = estimated_parts(curve, ranking.padding, query.buckets)
        context.metrics.read("rankings", "curve", len(parts))
        return Buckets([_estimated(part, scale) for part in parts])
    found = await context.store_of(board).read(lambda: count_buckets(ranking, query.buckets), heavy=True)
    context.metrics.read("rankings", "count", len(found))
    return Buckets(
        [Bucket(from_=number(least, scale), to=number(past, scale), entries=entries) for least, past, entries in found]
    )


def _estimated(part: Part, scale: int) -> Bucket:
    least, past = number(part.least, scale), number(part.past, scale)
    return Bucket(least, past, part.entries, part.low, part.high, part.low == part.high)


def count_buckets(ranking: Ranking, buckets: int) -> Program[list[tuple[int, int, int]]]:
    """(from, to, entries) of parts of equal width between the smallest and the largest value.

    A part holds its `from`, only the last its `to`; fewer parts than asked for where fewer values differ.
    """
    best = yield from ranking.landing(0)
    worst = yield from ranking.worst()
    if best is None or worst is None:
        return []
    padding = ranking.padding
    least, most = sorted((padding.value(best[0]), padding.value(worst[0])))
    edges = edges_between(least, most, buckets)
    found = []
    for start, end in pairwise(edges):
        last = end == edges[-1]
        entries = yield from ranking.count_range(
            least=padding.text_start(start), past=padding.text_start(end + 1 if last else end)
        )
        found.append((start, end, entries))
    return found

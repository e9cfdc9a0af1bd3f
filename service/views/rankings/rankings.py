"""Handlers of a ranking: its pages, values' positions on one or several boards, values at ranks, and distributions."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from math import floor

from msgspec import Raw

from predictor import AnyCurve, KeyBracket
from service.context import Context
from service.contract.problems import ProblemError, check_count
from service.contract.queries import BucketsQuery, PageQuery, TopQuery, ValuePositionsQuery, ValuesQuery
from service.contract.responses.boards import (
    Bucket,
    Buckets,
    Page,
    RankedEntry,
    RankValue,
    Values,
)
from service.contract.responses.positions import Position, PositionMethod, Positions
from service.contract.routes import Call, Tagged
from service.contract.values import format_us, parse_decimal, to_wire_number
from service.ranks.buckets import Part, count_buckets, estimate_buckets
from service.ranks.locator import Locator, WantedRank, percentile
from service.ranks.pages import Pager, Window
from service.ranks.rank_context import AskedRank
from service.views.owners.owners import add_profiles, find_column, rank_entries
from service.views.unchanged import find_unchanged, tag_answer
from storage.errors import UnknownColumnError
from storage.leaves.count_policy import CountPolicy
from storage.leaves.exact_ranks import CountStart
from storage.leaves.totals import CHANGES, read_board_totals
from storage.records import INT64_MAX, Board, Entry, describe_range
from storage.store import Program

# The methods, the most exact one first. A position on several boards has the least exact method that was used, because
# a sum is only as exact as its least exact part.
_METHODS: tuple[PositionMethod, ...] = ("count", "knot", "gap", "curve")


async def get_page(context: Context, call: Call) -> Page | Tagged:
    """Answer a page of a column's ranking. The path names the column or, if it does not, the query may."""
    query: PageQuery = call.query
    column = query.column if isinstance(query, TopQuery) else call.path["column"]
    board, index = await find_column(context, call.path["board"], column)
    limit = query.limit or context.settings.page_entries_default
    if query.order == "owner":
        return await _list_by_owner(context, board, index, query.cursor, limit)
    if not query.profiles and (unchanged := await find_unchanged(context, call, board)) is not None:
        return unchanged
    store = context.store.at(board.reading_partition)
    if query.tier is not None:
        _check_tier(context.ranks.find_locator(board), index, query.tier)
    elif query.cursor is None and query.from_rank is None and not query.profiles:
        # Most requests ask for the first page. Requests that arrive together share one read and one encoded answer.
        kind = (board.key, board.gate.epoch, len(board.spec.columns), index, limit)
        tagged, rows = await context.ranks.first_pages[store].ask(kind, (board, index, limit))
        context.metrics.meter.add("rankcurve_reads", rows, "page", "count")
        return tagged
    pager = context.ranks.make_pager(board, index)
    window = await _read_window(context, pager, query, limit)
    context.metrics.meter.add("rankcurve_reads", len(window.rows), "page", "count")
    if not query.profiles:
        return pager.tag_page(window)
    found = pager.make_page(window)
    await add_profiles(context, found.entries)
    return found


async def _read_window(context: Context, pager: Pager, query: PageQuery, limit: int) -> Window:
    if query.cursor is None and query.from_rank is None and query.tier is None:
        return await pager.read_first(limit)
    start = pager.find_count_start()
    if query.tier is not None:
        at = None if query.cursor is None else pager.decode_cursor(query.cursor, query.tier)
        program, row_number = partial(pager.find_tier_rows, query.tier, at, limit, start), INT64_MAX
    elif query.cursor is not None:
        place = pager.decode_cursor(query.cursor)
        program, row_number = partial(pager.find_rows_at_cursor, place, limit, start), place.row_number
    else:
        assert query.from_rank is not None
        program, row_number = partial(pager.find_rows_from_rank, query.from_rank, limit, start), query.from_rank
    far = start is None and row_number > context.settings.light_read_rows_max
    return await context.store.at(pager.board.reading_partition).read(program, heavy=far)


def _check_tier(locator: Locator, index: int, tier: str) -> None:
    tiers, column = locator.tiers.get(index), locator.board.spec.columns[index].name
    if tiers is None or tier not in tiers.names:
        named = f"name one of {', '.join(tiers.names)}" if tiers else "the column has no tiers"
        raise ProblemError("unknown_tier", f"no tier {tier!r} in {column!r}: {named}", pointer="tier")


async def _list_by_owner(context: Context, board: Board, index: int, cursor: str | None, limit: int) -> Page:
    """Read a page in the order of owner names. An archive has all owners by name, even if it ranks only the top."""
    of = f"{board.key}/{index}"
    after = context.cursors.find_start(cursor, of, "")
    locator = context.ranks.find_locator(board)

    def program() -> Program[tuple[list[Entry], dict[int, int]]]:
        return (yield from locator.entries.read_by_owner(after, limit + 1)), (yield from read_board_totals(board))

    found, totals = await context.store.at(board.reading_partition).read(program)
    shown, following = context.cursors.cut_page(found, limit, of, lambda last: last.owner)
    positions, ranked = await rank_entries(context, locator, index, shown, totals), []
    for entry in shown:
        if (position := positions.get(entry.owner)) is not None:
            context.metrics.meter.add("rankcurve_reads", 1, "page", position.method)
            stats, updated_at = locator.format_stats(entry.cells), format_us(entry.updated_at_us)
            row = position.rank, position.exact, entry.owner, position.value, updated_at, stats, position.tier
            ranked.append(RankedEntry(*row, position.reached_at))
    return Page(board.spec.columns[index].name, totals.get(index, 0), ranked, following, None)


async def get_value_positions(context: Context, call: Call) -> Positions:
    query: ValuePositionsQuery = call.query
    board, index = await find_column(context, call.path["board"], call.path["column"])
    if not query.with_:
        return Positions(await _value_positions(context, board, index, query))
    boards = [(board, index), *(await _find_added_boards(context, call, board, index))]
    # Three counts of a board's changes tell how many lie between `as_of` and its rank: at most `after` - `before` for a
    # counted rank. A rank from a curve may be older, so count from the changes in the curve instead.
    off_curves = [context.curves.book.count_changes(*each) for each in boards]
    before = [(await context.reads.read_totals(each)).get(CHANGES, 0) for each, _ in boards]
    as_of = format_us(context.now_us())
    shards = [await _value_positions(context, *each, query) for each in boards]
    after = [(await context.reads.read_totals(each)).get(CHANGES, 0) for each, _ in boards]
    spans = list(zip(before, off_curves, after, strict=True))
    sums = [_add_up_positions(parts, spans, as_of) for parts in zip(*shards, strict=True)]
    if (tiers := context.ranks.find_locator(board).tiers.get(index)) is not None:
        for text, position in zip(query.values, sums, strict=True):
            tiers.add_to_position(position, parse_decimal(text, board.spec.columns[index].scale))
    return Positions(sums)


async def _value_positions(context: Context, board: Board, index: int, query: ValuePositionsQuery) -> list[Position]:
    locator = context.ranks.find_locator(board)
    wanted = [parse_wanted_value(locator, index, text, f"values/{i}") for i, text in enumerate(query.values)]
    found = await context.ranks.find_positions([AskedRank(locator, each) for each in wanted], query.rank, {})
    for position in found:
        context.metrics.meter.add("rankcurve_reads", 1, "rankings", position.method)
    return found


async def _find_added_boards(context: Context, call: Call, first: Board, index: int) -> list[tuple[Board, int]]:
    """Find the boards that the parameter `with` names, and for each the 0-based index of its ranked column.

    Raises:
        UnknownBoardError, UnknownColumnError: a board does not exist, or does not rank the column.
        ProblemError: a board is named twice, its column has another `best` or `scale`, or there are too many values.
    """
    query: ValuePositionsQuery = call.query
    column = first.spec.columns[index]
    asked, most = len(query.values) * (1 + len(query.with_)), context.settings.query_values_max
    check_count(asked, most, "too_many_values", "values", "values, counted once for each leaderboard,")
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
    """Add up a value's positions on several boards. `parts` has its position on each.

    The numbers of better entries are summed, and so are the limits `low` and `high`. The sum is as of `as_of`, but each
    of `parts` is as of its own time. Each change to a board between the two times can alter the rank by one, so it
    widens the limits. `spans` has, for each board, its count of changes just before `as_of`, in its curve, and after
    all reads.
    """
    ranks = zip(*((part.rank, part.low, part.high) for part in parts), strict=True)
    rank, low, high = (1 + sum(numbers) - len(parts) for numbers in ranks)
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


def parse_wanted_value(locator: Locator, index: int, sent: Raw | str, pointer: str) -> WantedRank:
    """Parse a value into a `WantedRank`, which asks for the rank of a new entry with this value.

    Raises:
        ProblemError: the text is not a number, or the column cannot hold that number.
    """
    column = locator.board.spec.columns[index]
    value = parse_decimal(sent, column.scale, pointer=pointer)
    if not column.min_scaled <= value <= column.max_scaled:
        text = sent if isinstance(sent, str) else bytes(sent).decode()
        raise ProblemError("value_out_of_range", f"{text} is outside {describe_range(column)}", pointer=pointer)
    return WantedRank(index, locator.entries.rankings[index].padding.pad_arrival(value), None)


async def get_values(context: Context, call: Call) -> Values:
    query: ValuesQuery = call.query
    board, index = await find_column(context, call.path["board"], call.path["column"])
    count = len(query.ranks) + len(query.percentiles)
    check_count(count, context.settings.query_values_max, "too_many_values", "ranks")
    locator, rows_max = context.ranks.find_locator(board), context.settings.light_read_rows_max
    curve, start = locator.find_curve(index), locator.find_count_start(index)
    values = await context.store.at(board.reading_partition).read(
        lambda: _find_values(locator, index, query, curve, start, rows_max), heavy=curve is None
    )
    context.metrics.meter.add("rankcurve_reads", count, "rankings", "count" if curve is None else "curve")
    return Values(values)


def _find_values(
    locator: Locator, index: int, query: ValuesQuery, curve: AnyCurve | None, start: CountStart | None, rows_left: int
) -> Program[list[RankValue]]:
    """Find the values at ranks and percentiles: exact values from rows, or values with bounds from the curve.

    Rows are read for ranks up to `exact_top`, and for all ranks if there is no curve. If `start` is given, the rows
    between two knots are also read for ranks beyond `exact_top`, but no more than `rows_left` rows in all.
    """
    ranking, board = locator.entries.rankings[index], locator.board
    totals = yield from read_board_totals(board)
    asked = _list_asked_ranks(query, totals.get(index, 0))
    if not totals.get(index):
        return [make(None, None, None, True) for make, _ in asked]
    brackets = _find_brackets(locator.policy, [rank for _, rank in asked], curve, start, rows_left)
    is_current = curve is not None and locator.is_current(index, curve, totals)
    padding, scale, found = ranking.padding, board.spec.columns[index].scale, []
    for (make, rank), bracket in zip(asked, brackets, strict=True):
        if bracket is None:
            cell = (yield from ranking.find_cell(start, rank)) or (yield from ranking.find_worst_cell())
            assert cell is not None
            value = low = high = padding.decode_value(cell)
        else:
            value, *ends = (padding.decode_value(padding.cell_of_key(key)) for key in bracket)
            low, high = sorted(ends)
        exact = bracket is None or (low == high and is_current)
        found.append(make(*(to_wire_number(each, scale) for each in (value, low, high)), exact))
    return found


def _list_asked_ranks(query: ValuesQuery, total: int) -> list[tuple[Callable[..., RankValue], int]]:
    """List a query's ranks, limited to `total`, each with a function that makes its answer."""
    asked: list[tuple[Callable[..., RankValue], int]]
    asked = [(partial(RankValue, rank=rank), min(rank, total)) for rank in query.ranks]
    asked += [(partial(RankValue, percentile=each), rank_of_percentile(each, total)) for each in query.percentiles]
    return asked


def _find_brackets(
    policy: CountPolicy, ranks: Sequence[int], curve: AnyCurve | None, start: CountStart | None, rows_left: int
) -> list[KeyBracket | None]:
    """Read each rank's bracket off the curve, or None for a rank whose value comes from a row."""
    if curve is None or not curve.total:
        return [None] * len(ranks)
    brackets = []
    for rank in ranks:
        near = None if start is None or rank <= policy.exact_top else start.curve.key_at(rank)
        gap_rows = None if start is None or near is None else start.curve.find_gap(near.low).rows
        brackets.append(None if policy.should_read_row(rank, gap_rows, rows_left) else curve.key_at(rank))
        rows_left -= gap_rows or 0
    return brackets


def rank_of_percentile(percentile: float, total: int) -> int:
    """Find the worst rank whose percentile, 100 * (total - rank) / (total - 1), is at least `percentile`."""
    if total <= 1:
        return 1
    return max(1, floor(total - Fraction(str(percentile)) * (total - 1) / 100))


async def get_buckets(context: Context, call: Call) -> Tagged:
    query: BucketsQuery = call.query
    board, index = await find_column(context, call.path["board"], call.path["column"])
    estimates = query.rank == "estimate"
    unchanged = await find_unchanged(context, call, board, index if estimates else None, off_curve=estimates)
    if unchanged is not None:
        return unchanged
    ranking, scale = context.boards.open_board(board).rankings[index], board.spec.columns[index].scale
    curve = context.curves.book.find_curve(board, index) if estimates else None

    def program() -> Program[tuple[list[Part], dict[int, int]]]:
        # This read raises an error if another process has emptied the board, or moved its rows.
        totals = yield from read_board_totals(board)
        if curve is not None:
            return estimate_buckets(curve, ranking.padding, query.buckets), totals
        return (yield from count_buckets(ranking, query.buckets)), totals

    parts, totals = await context.store.at(board.reading_partition).read(program, heavy=curve is None)
    current = curve is not None and context.curves.book.is_current(board, index, curve, totals)
    found = []
    for least, past, entries, low, high in parts:
        bucket = Bucket(to_wire_number(least, scale), to_wire_number(past, scale), entries)
        if low is not None and high is not None:
            bucket.low, bucket.high, bucket.exact = low, high, current and low == high
        found.append(bucket)
    context.metrics.meter.add("rankcurve_reads", len(found), "rankings", "count" if curve is None else "curve")
    return tag_answer(call, board, totals, Buckets(found), curve)

"""Commands that read scores, ranks, ranges, counts, and fields of hashes. An unknown board counts as an empty key."""

import math
from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from functools import partial
from typing import NamedTuple

from service.contract.problems import ProblemError
from service.contract.values import parse_owner
from storage.leaves.exact_ranks import CountStart
from storage.leaves.totals import read_board_totals
from storage.records import Best, ColumnSpec, Entry
from storage.store import Program

from .keys import Place
from .parts import DoorParts
from .redis_order import RedisOrder
from .wire import SCORE_DIGITS_MAX, Answer, Map, Pairs, Refusal, Score, parse_index

RANGE_ROWS_MAX = 10_000  # members of one answer
SCAN_ROWS_DEFAULT, SCAN_ROWS_MAX = 10, 1_000
ReadCommand = Callable[[DoorParts, Sequence[bytes]], Awaitable[Answer]]


class Window(NamedTuple):
    """The range of a sorted set's members that a command asks for, and the order in which to list them."""

    ascending: bool
    first: int = 0  # a 0-based index, as in Redis: a negative one counts from the end
    last: int = -1
    values: tuple[int, int] | None = None  # instead of indexes: the least and the greatest value, scaled
    offset: int = 0
    limit: int = -1  # negative: no limit


def find_owner(member: bytes) -> str | None:
    """Return the owner that a member names, or None if this can't be an owner's name."""
    try:
        text = member.decode()
        return text if parse_owner(text) == text else None
    except (UnicodeDecodeError, ProblemError):
        return None


async def read_cells(parts: DoorParts, place: Place, members: Sequence[bytes]) -> list[str | int | None]:
    """Read each member's stored cell in a column. A read of one member shares its statement with other requests."""
    owners, context = [find_owner(member) for member in members], parts.context
    if len(owners) > RANGE_ROWS_MAX:
        raise Refusal(f"ERR {len(owners)} members are more than {RANGE_ROWS_MAX}")
    if len(owners) == 1 and owners[0] is not None:
        entry = (await context.reads.read_entry(place.board, owners[0])).entry
        return [None if entry is None else entry.cells[place.column_index]]
    locator, named = context.ranks.find_locator(place.board), [owner for owner in owners if owner is not None]

    def program() -> Program[dict[str, Entry]]:
        yield from read_board_totals(place.board)  # raises an error if this process's copy of the board is outdated
        return (yield from locator.entries.find_entries(list(dict.fromkeys(named))))

    found = await context.store.at(place.board.reading_partition).read(program)
    return [found[owner].cells[place.column_index] if owner in found else None for owner in owners]


async def read_score(parts: DoorParts, args: Sequence[bytes]) -> Answer:
    return (await read_scores(parts, args))[0]


async def read_scores(parts: DoorParts, args: Sequence[bytes]) -> list[Answer]:
    place = await parts.keys.find(args[0])
    padding, scale = parts.order(place).ranking.padding, place.column.scale
    cells = await read_cells(parts, place, args[1:])
    return [Score(padding.decode_value(cell), scale) if isinstance(cell, str) else None for cell in cells]


async def read_field(parts: DoorParts, args: Sequence[bytes]) -> Answer:
    return (await read_fields(parts, args))[0]


async def read_fields(parts: DoorParts, args: Sequence[bytes]) -> list[Answer]:
    place = await parts.keys.find(args[0], text=True)
    cells = await read_cells(parts, place, args[1:])
    return [None if cell is None else str(cell).encode() for cell in cells]


async def read_hash(parts: DoorParts, args: Sequence[bytes]) -> Map:
    """Answer HGETALL, if the leaderboard has at most `RANGE_ROWS_MAX` rows."""
    place = await parts.keys.find(args[0], text=True)
    entries = parts.context.ranks.find_locator(place.board).entries

    def program() -> Program[list[Entry]]:
        yield from read_board_totals(place.board)  # raises an error if this process's copy of the board is outdated
        return (yield from entries.read_by_owner("", RANGE_ROWS_MAX + 1))

    rows = await parts.context.store.at(place.board.reading_partition).read(program)
    if len(rows) > RANGE_ROWS_MAX:
        raise Refusal(f"ERR the leaderboard has more than {RANGE_ROWS_MAX} rows: ask for single fields")
    return Map({row.owner: str(cell) for row in rows if (cell := row.cells[place.column_index]) is not None})


async def has_field(parts: DoorParts, args: Sequence[bytes]) -> int:
    return int(await read_field(parts, args) is not None)


async def read_rank(parts: DoorParts, args: Sequence[bytes], *, ascending: bool = True) -> Answer:
    place, scored = parts.keys.find_known(args[0]) or await parts.keys.find(args[0]), len(args) > 2
    if len(args) > 3 or (scored and args[2].upper() != b"WITHSCORE"):
        raise Refusal("ERR syntax error")
    owner = find_owner(args[1])
    found = None if owner is None else await parts.ask_rank(place, owner)
    if found is None:
        return None
    high = place.column.best is Best.HIGH
    rank = found.total - 1 - found.better if ascending == high else found.better
    return [rank, Score(found.value, place.column.scale)] if scored else rank


async def count_members(parts: DoorParts, args: Sequence[bytes]) -> int:
    place = await parts.keys.find(args[0])
    return (await parts.context.reads.read_totals(place.board)).get(place.column_index, 0)


async def count_span(parts: DoorParts, args: Sequence[bytes]) -> int:
    place = await parts.keys.find(args[0])
    order, (least, most) = parts.order(place), parse_bounds(args[1], args[2], place.column)
    start = order.find_start()

    def program() -> Program[int]:
        total = yield from order.read_total()
        begin, end = yield from order.find_span(least, most, total, start)
        return max(0, end - begin)

    return await parts.context.store.at(place.board.reading_partition).read(program)


def parse_bounds(least: bytes, most: bytes, column: ColumnSpec) -> tuple[int, int]:
    """Parse bounds as Redis writes them, such as `(1.5` and `+inf`, into the least and the greatest scaled value."""
    return _parse_bound(least, column, greatest=False), _parse_bound(most, column, greatest=True)


def _parse_bound(text: bytes, column: ColumnSpec, *, greatest: bool) -> int:
    excluded = text[:1] == b"("
    try:
        number = Decimal(text[excluded:].decode().strip())
    except (InvalidOperation, UnicodeDecodeError):
        raise Refusal("ERR min or max is not a float") from None
    if number.is_nan():
        raise Refusal("ERR min or max is not a float")
    lowest, highest = column.min_scaled - 1, column.max_scaled + 1
    far = number.is_infinite() or number.adjusted() > SCORE_DIGITS_MAX
    if far or not lowest <= number.scaleb(column.scale) <= highest:
        return highest if number > 0 else lowest
    scaled = number.scaleb(column.scale)
    if greatest:
        bound = math.floor(scaled)
        return bound - (excluded and bound == scaled)
    bound = math.ceil(scaled)
    return bound + (excluded and bound == scaled)


async def read_window(parts: DoorParts, place: Place, window: Window) -> list[tuple[str, int]]:
    """Read the owners and scaled values in a window. Refuse a window with more than `RANGE_ROWS_MAX` members."""
    order = parts.order(place)
    start, rows_max = order.find_start(), parts.settings.light_read_rows_max
    far = start is None and max(abs(window.first), abs(window.last), window.offset) > rows_max
    finding = partial(_find_window, order, window, start)
    rows = await parts.context.store.at(place.board.reading_partition).read(finding, heavy=far)
    decode = order.ranking.padding.decode_value
    return [(row.owner, decode(str(row.cells[place.column_index]))) for row in rows]


def _find_window(order: RedisOrder, window: Window, start: CountStart | None) -> Program[list[Entry]]:
    total = yield from order.read_total()
    if window.values is None:
        begin = max(0, window.first + (total if window.first < 0 else 0))
        end = min(total, window.last + (total if window.last < 0 else 0) + 1)
    else:
        begin, end = yield from order.find_span(*window.values, total, start)
        if window.ascending == order.high:
            begin, end = total - end, total - begin
    if window.offset < 0:
        return []
    begin += window.offset
    end = end if window.limit < 0 else min(end, begin + window.limit)
    if end - begin > RANGE_ROWS_MAX:
        raise Refusal(f"ERR {end - begin} members are more than {RANGE_ROWS_MAX}: ask for parts, or use ZSCAN")
    return (yield from order.read_rows(begin, end, total, start, ascending=window.ascending))


async def read_range(parts: DoorParts, args: Sequence[bytes]) -> Answer:
    """Answer ZRANGE with its options."""
    options, by_score, reverse, scored, limits = list(args[3:]), False, False, False, (0, -1)
    while options:
        option = options.pop(0).upper()
        if option == b"LIMIT" and len(options) >= 2:
            limits = parse_index(options.pop(0)), parse_index(options.pop(0))
        elif option in (b"BYSCORE", b"REV", b"WITHSCORES"):
            by_score, reverse = by_score or option == b"BYSCORE", reverse or option == b"REV"
            scored = scored or option == b"WITHSCORES"
        else:
            raise Refusal("ERR BYLEX is not supported" if option == b"BYLEX" else "ERR syntax error")
    if limits != (0, -1) and not by_score:
        raise Refusal("ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX")
    place = await parts.keys.find(args[0])
    if by_score:
        least, most = (args[2], args[1]) if reverse else (args[1], args[2])
        window = Window(not reverse, 0, -1, parse_bounds(least, most, place.column), *limits)
    else:
        window = Window(not reverse, parse_index(args[1]), parse_index(args[2]))
    rows = await read_window(parts, place, window)
    if scored:
        return make_pairs(rows, place)
    return [owner.encode() for owner, _ in rows]


def make_pairs(rows: Sequence[tuple[str, int]], place: Place) -> Pairs:
    scale = place.column.scale
    return Pairs((owner.encode(), Score(value, scale)) for owner, value in rows)


async def read_range_of_old(parts: DoorParts, args: Sequence[bytes], *options: bytes) -> Answer:
    """Answer ZREVRANGE, ZRANGEBYSCORE and ZREVRANGEBYSCORE, which are short for ZRANGE with some of its options."""
    return await read_range(parts, [*args, *options])


async def scan(parts: DoorParts, args: Sequence[bytes]) -> Answer:
    """Answer ZSCAN in the order of member names. Only this process knows the cursors that it returns."""
    place, cursor = await parts.keys.find(args[0]), parse_index(args[1])
    options = dict(zip([each.upper() for each in args[2::2]], args[3::2], strict=False))
    if len(args) % 2 or options.keys() - {b"MATCH", b"COUNT"}:
        raise Refusal("ERR syntax error")
    limit = min(SCAN_ROWS_MAX, max(1, parse_index(options.get(b"COUNT", b"%d" % SCAN_ROWS_DEFAULT))))
    pattern = options.get(b"MATCH", b"*").decode("utf-8", "replace").replace("[^", "[!")
    board, order = place.board, parts.order(place)
    if (after := parts.find_cursor(board.key, cursor)) is None:
        raise Refusal("ERR invalid cursor: this process does not know it, so begin again with 0")
    entries = await parts.context.store.at(board.reading_partition).read(partial(_read_by_owner, order, after, limit))
    following = parts.keep_cursor(board.key, entries[-1].owner) if len(entries) == limit else 0
    flat: list[bytes] = []
    for entry in entries:
        if isinstance(cell := entry.cells[place.column_index], str) and fnmatchcase(entry.owner, pattern):
            score = Score(order.ranking.padding.decode_value(cell), place.column.scale)
            flat += [entry.owner.encode(), str(score).encode()]
    return [b"%d" % following, flat]


def _read_by_owner(order: RedisOrder, after: str, limit: int) -> Program[list[Entry]]:
    yield from order.read_total()  # raises an error if this process's copy of the board is outdated
    return (yield from order.locator.entries.read_by_owner(after, limit))

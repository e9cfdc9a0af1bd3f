"""Commands that run alone because they take several steps: those on whole keys, removals by rank, and stored sets."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation

from service.contract.api_keys import Identity
from storage.boards import journal
from storage.boards.acts import Act, ActName, record_act
from storage.boards.board_changes import change_board
from storage.boards.board_removal import delete_board
from storage.errors import StorageError, UnknownBoardError
from storage.records import Board, PartOutcome, PostStatus, PostTerms, Season, describe_range
from storage.store import Program

from .keys import Place, split_key
from .parts import DoorParts
from .sorted_set_posts import find_place, make_post
from .sorted_set_reads import RANGE_ROWS_MAX, Window, make_pairs, parse_bounds, read_window
from .wire import Answer, Refusal, Status, parse_index, parse_score, refuse

POP_TRIES = 8  # maximum tries of ZPOPMIN and ZPOPMAX if others change the members that they are about to remove
STORED_SETS_MAX = 10  # maximum input keys of ZUNIONSTORE and ZINTERSTORE
LoneCommand = Callable[[DoorParts, Sequence[bytes], Identity], Awaitable[Answer]]


async def count_existing(parts: DoorParts, args: Sequence[bytes], _: Identity) -> int:
    return sum([await _kind_of(parts, key) != "none" for key in args])


async def tell_type(parts: DoorParts, args: Sequence[bytes], _: Identity) -> Status:
    return Status(await _kind_of(parts, args[0]))


async def _kind_of(parts: DoorParts, key: bytes) -> str:
    """Return a key's type in the words of Redis: `zset`, `hash` or `none`. An empty sorted set has the type `none`."""
    for text in (False, True):
        try:
            place = await parts.keys.find(key, text=text)
        except (Refusal, UnknownBoardError):
            continue
        if text:
            return "hash"
        if (await parts.context.reads.read_totals(place.board)).get(place.column_index):
            return "zset"
    return "none"


async def delete_keys(parts: DoorParts, args: Sequence[bytes], caller: Identity) -> int:
    return sum([await _delete_key(parts, key, caller) for key in args])


async def _delete_key(parts: DoorParts, key: bytes, caller: Identity) -> bool:
    """Delete a board, and return whether its sorted set had members. A hash can only be deleted with its board."""
    board_id, column = split_key(key, text=False)
    if column is not None:
        raise Refusal("ERR a column can't be deleted: name the leaderboard alone")
    kind, context = await _kind_of(parts, key), parts.context
    if kind == "hash":
        raise Refusal("ERR a hash is a column of its leaderboard, and is deleted with the leaderboard")

    def program() -> Program[Board]:
        gone = yield from delete_board(board_id=board_id)
        yield from journal.log_deleted(gone.leaves, context.now_us())
        yield from _record(parts, "board.deleted", board_id, caller)
        return gone

    try:
        board = await context.store.write(program)
    except UnknownBoardError:
        return False
    context.forget_leaves(board.leaves)
    return kind != "none"


def _record(parts: DoorParts, act: ActName, board_id: str, caller: Identity) -> Program[None]:
    yield from record_act(Act(parts.context.now_us(), act, caller.stored_key, board=board_id))


async def refuse_rename(_: DoorParts, __: Sequence[bytes], ___: Identity) -> Answer:
    raise Refusal("ERR a leaderboard keeps its name: make another one, for example by ZUNIONSTORE of this one")


async def expire(parts: DoorParts, args: Sequence[bytes], caller: Identity, *, after: bool = True) -> int:
    """End a board's season after some seconds, or at a second since 1970. The board then accepts no more posts."""
    if len(args) > 2:
        raise Refusal("ERR options of EXPIRE are not supported")
    ends_us, context = parse_index(args[1]) * 1_000_000 + (parts.context.now_us() if after else 0), parts.context
    place = await _find_whole(parts, args[0])
    if place is None:
        return 0
    board_id = place.board.id

    def program() -> Program[Board]:
        spec = place.board.spec
        season = replace(spec.season or Season(None, None, 0, None), ends_us=ends_us)
        changed = yield from change_board(
            board_id=board_id, wanted=replace(spec, season=season), now_us=context.now_us()
        )
        is_moved = changed.gate.closes_us != place.board.gate.closes_us
        yield from _record(parts, "board.closed" if is_moved else "board.changed", board_id, caller)
        return changed

    context.catalog.keep_board(await context.store.write(program))
    return 1


async def expire_at(parts: DoorParts, args: Sequence[bytes], caller: Identity) -> int:
    return await expire(parts, args, caller, after=False)


async def read_time_left(parts: DoorParts, args: Sequence[bytes], _: Identity) -> int:
    place = await _find_whole(parts, args[0])
    if place is None:
        return -2
    ends_us = place.board.gate.ends_us
    return -1 if ends_us is None else max(0, ends_us - parts.context.now_us()) // 1_000_000


async def _find_whole(parts: DoorParts, key: bytes) -> Place | None:
    """Read from the store which board and column a key names, as a sorted set or as a hash; None if there are none."""
    kind = await _kind_of(parts, key)
    if kind == "none":
        return None
    await parts.keys.confirm(key, text=kind == "hash")
    return await parts.keys.find(key, text=kind == "hash")


async def remove_window(parts: DoorParts, args: Sequence[bytes], caller: Identity, *, by_score: bool = False) -> int:
    """Answer ZREMRANGEBYRANK and ZREMRANGEBYSCORE. A member whose score changes meanwhile stays."""
    place = await parts.keys.find(args[0])
    if by_score:
        window = Window(True, values=parse_bounds(args[1], args[2], place.column))
    else:
        window = Window(True, parse_index(args[1]), parse_index(args[2]))
    rows = await read_window(parts, place, window)
    return len(await _remove_rows(parts, place, rows, caller))


async def remove_span(parts: DoorParts, args: Sequence[bytes], caller: Identity) -> int:
    return await remove_window(parts, args, caller, by_score=True)


async def pop_least(parts: DoorParts, args: Sequence[bytes], caller: Identity, *, ascending: bool = True) -> Answer:
    if len(args) > 2:
        raise Refusal("ERR syntax error")
    count = parse_index(args[1]) if len(args) == 2 else 1
    if count < 0:
        raise Refusal("ERR value is out of range, must be positive")
    place, popped = await parts.keys.find(args[0]), list[tuple[str, int]]()
    for _ in range(POP_TRIES):
        if len(popped) == count:
            break
        try:
            rows = await read_window(parts, place, Window(ascending, 0, count - len(popped) - 1))
            popped += await _remove_rows(parts, place, rows, caller)
        except (StorageError, Refusal):
            if not popped:
                raise
            break  # otherwise nobody would learn what was removed
        if not rows:
            break
    pairs = make_pairs(popped, place)
    return pairs if len(args) == 2 else [each for pair in pairs for each in pair]


async def pop_greatest(parts: DoorParts, args: Sequence[bytes], caller: Identity) -> Answer:
    return await pop_least(parts, args, caller, ascending=False)


async def _remove_rows(
    parts: DoorParts, place: Place, rows: Sequence[tuple[str, int]], caller: Identity
) -> list[tuple[str, int]]:
    """Remove, in one transaction, the members that still have these values. Return the removed members."""
    posts = [make_post(place, owner, None, PostTerms(equals=value), caller) for owner, value in rows]
    outcomes = await parts.submit(posts, caller)
    removed = [row for row, outcome in zip(rows, outcomes, strict=True) if outcome.status is PostStatus.APPLIED]
    if not removed:
        _check(outcomes)
    return removed


def _check(outcomes: Sequence[PartOutcome]) -> None:
    for outcome in outcomes:
        if outcome.error is not None:
            raise refuse(outcome.error)


async def store_union(parts: DoorParts, args: Sequence[bytes], caller: Identity, *, common: bool = False) -> int:
    """Answer ZUNIONSTORE and ZINTERSTORE: in several steps, replace a board by one with the members of other boards."""
    count = parse_index(args[1])
    if not 0 < count <= STORED_SETS_MAX or len(args) < 2 + count:
        raise Refusal(f"ERR at least 1 input key is needed, and at most {STORED_SETS_MAX}")
    weights, aggregate = _parse_options(args[2 + count :], count)
    found: list[dict[str, Decimal]] = []
    for key, weight in zip(args[2 : 2 + count], weights, strict=True):
        try:
            place = await parts.keys.find(key)
            rows = await read_window(parts, place, Window(True))
        except UnknownBoardError:
            rows = []
        found.append({owner: Decimal(value).scaleb(-place.column.scale) * weight for owner, value in rows})
    members = set(found[0]).intersection(*found) if common else set().union(*found)
    scores = {owner: aggregate([each[owner] for each in found if owner in each]) for owner in sorted(members)}
    if len(scores) > RANGE_ROWS_MAX:
        raise Refusal(f"ERR the new set would have more than {RANGE_ROWS_MAX} members")
    column, rounding = parts.keys.find_new_column(), parts.settings.resp_round
    values = {owner: parse_score(f"{score:f}".encode(), column, rounding) for owner, score in scores.items()}
    if any(not column.min_scaled <= value <= column.max_scaled for value in values.values()):
        raise Refusal(f"ERR a score is outside {describe_range(column)}")
    await _delete_made(parts, args[0], caller)
    if values:
        await parts.keys.make(args[0], caller)
        place = find_place(parts, args[0])
        posts = [make_post(place, owner, value, None, caller) for owner, value in values.items()]
        _check(await parts.submit(posts, caller))
    return len(values)


async def _delete_made(parts: DoorParts, key: bytes, caller: Identity) -> None:
    """Delete a board that is about to be replaced. Refuse if its columns differ from those that new boards get."""
    board_id = split_key(key, text=False)[0]
    board = (await parts.context.catalog.reread_boards([board_id])).get(board_id)
    if board is not None and not parts.keys.is_like_new(board):
        raise Refusal(f"ERR the leaderboard {board_id!r} has other columns than resp_board, so it is not replaced")
    await _delete_key(parts, key, caller)


def _parse_options(
    options: Sequence[bytes], count: int
) -> tuple[list[Decimal], Callable[[Sequence[Decimal]], Decimal]]:
    weights, aggregate, left = [Decimal(1)] * count, b"SUM", list(options)
    try:
        while left:
            option = left.pop(0).upper()
            if option == b"WEIGHTS" and len(left) >= count:
                weights, left = [Decimal(each.decode()) for each in left[:count]], left[count:]
            elif option == b"AGGREGATE" and left:
                aggregate = left.pop(0).upper()
            else:
                raise Refusal("ERR syntax error")
    except (InvalidOperation, UnicodeDecodeError):
        raise Refusal("ERR weight value is not a float") from None
    if aggregate not in _AGGREGATES or not all(each.is_finite() for each in weights):
        raise Refusal("ERR syntax error")
    return weights, _AGGREGATES[aggregate]


_AGGREGATES: dict[bytes, Callable[[Sequence[Decimal]], Decimal]] = {
    b"SUM": lambda values: sum(values, Decimal()),
    b"MIN": min,
    b"MAX": max,
}


async def store_intersection(parts: DoorParts, args: Sequence[bytes], caller: Identity) -> int:
    return await store_union(parts, args, caller, common=True)

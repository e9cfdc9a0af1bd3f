"""Commands that become posts: ZADD, ZINCRBY, ZREM, and the hash commands HSET and HDEL. None of them waits here.

A score for a column that is merged by `last` is an ordinary post, and so is a ZINCRBY of a `sum` column. Every other
change overwrites the stored value, for which the caller needs the role ops, as over HTTP.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from service.contract.api_keys import Identity, Role, make_forbidden
from storage.errors import UnknownBoardError
from storage.records import (
    BoardPost,
    ColumnChange,
    Merge,
    PartOutcome,
    Post,
    PostAct,
    PostStatus,
    PostTerms,
    StatValue,
    TracedOutcome,
    format_decimal,
)

from .keys import Place, decode_text, parse_member
from .parts import DoorParts
from .wire import OK, Answer, BoardRefusal, Refusal, Score, parse_score, refuse

PRESENT = PostTerms(present=True)
ADDS = PostTerms(adds=True)
_FLAGS = (b"NX", b"XX", b"GT", b"LT", b"CH", b"INCR")


class Posts(NamedTuple):
    """The posts that a command makes, and the function that turns their outcomes into its answer."""

    posts: list[Post]
    answer: Callable[[Sequence[PartOutcome]], Answer]
    traced: bool = False  # whether the answer needs the cells from before the posts


PostCommand = Callable[[DoorParts, Sequence[bytes], Identity], Posts]


def find_place(parts: DoorParts, key: bytes, *, text: bool = False) -> Place:
    """Resolve a key that is posted to. Raise `UnknownBoardError` if this process does not know the board."""
    place = parts.keys.find_known(key, text=text)
    if place is None:
        raise UnknownBoardError
    if place.column.merge in (Merge.QUOTIENT, Merge.WITH):
        raise BoardRefusal(f"ERR the column {place.column.name!r} follows others, and takes no posts of its own")
    return place


def make_post(place: Place, owner: str, value: StatValue | None, terms: PostTerms | None, caller: Identity) -> Post:
    """Make a post of one value. The value None removes the stored value."""
    board, index = place
    column, act = board.spec.columns[index], None
    overwrites = value is None or not (column.merge is Merge.LAST or (column.merge is Merge.SUM and terms is ADDS))
    if overwrites:
        if caller.role < Role.OPS:
            raise make_forbidden(caller, Role.OPS)
        shown = format_decimal(value, column.scale) if isinstance(value, int) else value
        act = PostAct(caller.stored_key, None, msgspec.json.encode({"set": {column.name: shown}}).decode())
    elif column.merge is Merge.SUM:
        terms = None  # the column's merge rule adds anyway
    leaf = board.leaf_of(owner) if board.is_spread else board.leaf
    post = Post(owner, [BoardPost(leaf, [ColumnChange(index, value, overwrites)])], None, None, "")
    post.act, post.terms = act, terms
    return post


def increment(parts: DoorParts, args: Sequence[bytes], caller: Identity) -> Posts:
    key, more, member = args
    place = find_place(parts, key)
    scaled = parse_score(more, place.column, parts.settings.resp_round)
    post = make_post(place, parse_member(member), scaled, ADDS, caller)
    return Posts([post], lambda outcomes: _score_after(place, outcomes[0]))


def _score_after(place: Place, outcome: PartOutcome) -> Score | None:
    _check(outcome)
    if outcome.stats is None:
        return None
    value = outcome.stats[place.column_index]
    return Score(value, place.column.scale) if isinstance(value, int) else None


def add(parts: DoorParts, args: Sequence[bytes], caller: Identity) -> Posts:
    begin, flags = 1, set[bytes]()
    while begin < len(args) and (flag := args[begin].upper()) in _FLAGS:
        flags.add(flag)
        begin += 1
    pairs = args[begin:]
    if not pairs or len(pairs) % 2:
        raise Refusal("ERR syntax error")
    if len(flags & {b"NX", b"GT", b"LT"}) > 1:
        raise Refusal("ERR GT, LT, and/or NX options at the same time are not compatible")
    if {b"NX", b"XX"} <= flags:
        raise Refusal("ERR XX and NX options at the same time are not compatible")
    adds = b"INCR" in flags
    if adds and len(pairs) > 2:
        raise Refusal("ERR INCR option supports a single increment-element pair")
    terms = None
    if conditions := flags - {b"CH"}:
        has = [each in conditions for each in (b"INCR", b"NX", b"XX", b"GT", b"LT")]
        terms = ADDS if conditions == {b"INCR"} else PostTerms(*has)
    place, rounding = find_place(parts, args[0]), parts.settings.resp_round
    scores = [parse_score(each, place.column, rounding) for each in pairs[::2]]
    owners = [parse_member(each) for each in pairs[1::2]]
    posts = [make_post(place, owner, score, terms, caller) for owner, score in zip(owners, scores, strict=True)]
    if adds:
        return Posts(posts, lambda outcomes: _score_after(place, outcomes[0]))
    return Posts(posts, lambda outcomes: _count(place.column_index, outcomes, changed=b"CH" in flags), traced=True)


def _count(index: int, outcomes: Sequence[PartOutcome], *, changed: bool = False) -> int:
    """Count the outcomes that gave an owner its first value and, with `changed`, all others that changed something."""
    count = 0
    for outcome in outcomes:
        _check(outcome)
        if outcome.status is PostStatus.APPLIED:
            before = outcome.before if isinstance(outcome, TracedOutcome) else None
            count += changed or before is None or index >= len(before) or before[index] is None
    return count


def _check(outcome: PartOutcome) -> None:
    if outcome.error is not None:
        raise refuse(outcome.error)


def _count_applied(outcomes: Sequence[PartOutcome]) -> int:
    for outcome in outcomes:
        _check(outcome)
    return sum(outcome.status is PostStatus.APPLIED for outcome in outcomes)


def remove(parts: DoorParts, args: Sequence[bytes], caller: Identity) -> Posts:
    return _remove(find_place(parts, args[0]), args[1:], caller)


def _remove(place: Place, members: Sequence[bytes], caller: Identity) -> Posts:
    posts = [make_post(place, parse_member(member), None, PRESENT, caller) for member in members]
    return Posts(posts, _count_applied)


def set_fields(parts: DoorParts, args: Sequence[bytes], caller: Identity, *, counts: bool = True) -> Posts:
    place = find_place(parts, args[0], text=True)
    if len(args) < 3 or not len(args) % 2:
        raise Refusal("ERR wrong number of arguments for 'hset' command")
    posts = []
    for member, raw in zip(args[1::2], args[2::2], strict=True):
        text = decode_text(raw)
        if "\0" in text or len(raw) > parts.settings.text_bytes_max:
            raise Refusal(f"ERR a value is a text of at most {parts.settings.text_bytes_max} bytes without NUL here")
        posts.append(make_post(place, parse_member(member), text, None, caller))
    if counts:
        return Posts(posts, lambda outcomes: _count(place.column_index, outcomes), traced=True)
    return Posts(posts, lambda outcomes: OK if _count_applied(outcomes) >= 0 else None)


def set_fields_quietly(parts: DoorParts, args: Sequence[bytes], caller: Identity) -> Posts:
    return set_fields(parts, args, caller, counts=False)


def remove_fields(parts: DoorParts, args: Sequence[bytes], caller: Identity) -> Posts:
    return _remove(find_place(parts, args[0], text=True), args[1:], caller)

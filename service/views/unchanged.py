"""Answers 304 to callers who already have the current answer, which they show by the request's header `If-None-Match`.

Pages that poll a leaderboard mostly ask for what they already have. To answer them, it is enough to read the board's
totals, without any entries.
"""

import msgspec
from aiohttp import hdrs

from predictor import AnyCurve
from service.context import Context
from service.contract.routes import Call, Tagged, match_entity_tag
from service.ranks.pages import make_entity_tag
from storage.records import Board, Leaf


async def find_unchanged(
    context: Context, call: Call, board: Board | Leaf, index: int | None = None, *, off_curve: bool = False
) -> Tagged | None:
    """Return the answer 304 if the caller sent `*` or an entity tag of the board's current state, or None otherwise.

    Read the board's totals, but no entries. `index` is the column if the answer may be read off the column's curve. The
    caller's tag may then also name this curve, and must do so if every answer is read `off_curve`.
    """
    known = call.request.headers.get(hdrs.IF_NONE_MATCH)
    if known is None or (known == "*" and "owner" in call.path):  # for `*`, the handler must look for the owner
        return None
    totals = await context.reads.read_totals(board)
    curve = None if index is None or isinstance(board, Leaf) else context.curves.book.find_curve(board, index)
    for etag in {make_entity_tag(board, totals, curve if off_curve else None), make_entity_tag(board, totals, curve)}:
        if match_entity_tag(known, etag):
            return Tagged(None, etag)
    return None


def tag_answer(
    call: Call, board: Board | Leaf, totals: dict[int, int], answer: msgspec.Struct, curve: AnyCurve | None = None
) -> Tagged:
    """Tag the answer by `curve` and the board's `totals`, or answer 304 if the caller sent `*`.

    `curve` is the curve from which a part of the answer was read. It is None if no part depends on a curve.
    """
    unwanted = call.request.headers.get(hdrs.IF_NONE_MATCH) == "*"
    return Tagged(None if unwanted else msgspec.json.encode(answer), make_entity_tag(board, totals, curve))

"""Answers callers that have the answer for the present state of a board already: `If-None-Match` gets 304."""

import msgspec
from aiohttp import hdrs

from service.context import Context
from service.contract.routes import Call, Tagged, match_entity_tag
from service.ranks.pages import make_entity_tag
from storage.records import Board


async def find_unchanged(context: Context, call: Call, board: Board) -> Tagged | None:
    """Return the answer 304 if the caller has a tag of the board's present state. This takes no read of rows."""
    known = call.request.headers.get(hdrs.IF_NONE_MATCH)
    if known is None or (known == "*" and "owner" in call.path):  # `*` needs a look whether the owner has an entry
        return None
    etag = make_entity_tag(board, await context.reads.read_totals(board))
    return Tagged(None, etag) if match_entity_tag(known, etag) else None


def tag_answer(call: Call, board: Board, totals: dict[int, int], answer: msgspec.Struct) -> Tagged:
    """Return an answer with the tag of the state that was read with it, or 304 if the caller sent `*`."""
    unwanted = call.request.headers.get(hdrs.IF_NONE_MATCH) == "*"
    return Tagged(None if unwanted else msgspec.json.encode(answer), make_entity_tag(board, totals))

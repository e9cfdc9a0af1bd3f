"""Handlers that void a post, either on a leaderboard or on all leaderboards of a family that the post reached."""

from contextlib import suppress
from dataclasses import replace

from service.context import Context
from service.contract.problems import post_problem_of
from service.contract.queries import VoidQuery
from service.contract.responses.boards import VoidedBoard, VoidedPost
from service.contract.routes import Call
from service.contract.values import parse_owner
from storage.errors import FamilyBoardError, JournalIncompleteError, StoreBusyError, UnknownPostError
from storage.histories import merged_owners
from storage.posting.voiding import VoidedPart, Voiding
from storage.queue.outcomes import is_waiting
from storage.records import Board, Family

from .posts import format_stats

_QUEUE_WAIT_S = 1.0  # workers apply a waiting post within seconds


async def void_board_post(context: Context, call: Call) -> VoidedPost:
    board = await context.catalog.find_board(call.path["board"])
    if board.family_key is not None:
        raise FamilyBoardError(f"{board.id!r} belongs to a family: take the post back from the family")
    return await _void(context, call, board)


async def void_family_post(context: Context, call: Call) -> VoidedPost:
    # Read the family again: another process may have deleted it and created it again.
    return await _void(context, call, await context.catalog.families.reread_family(call.path["family"]))


async def _void(context: Context, call: Call, place: Board | Family) -> VoidedPost:
    query: VoidQuery = call.query
    owner, post_id = parse_owner(query.owner), call.path["post_id"]
    post_hash = context.posting.post_ids.hash_post_id(post_id, owner)
    voiding = Voiding(
        place=place, owner=owner, posted_by=owner, post_id=post_id, post_hash=post_hash, now_us=context.now_us()
    )
    try:
        try:
            parts = await context.store.write(voiding.void_post)
        except UnknownPostError:
            if await is_waiting(context.store, place, post_id, post_hash):
                raise StoreBusyError("the post still waits in the queue", retry_after_s=_QUEUE_WAIT_S) from None
            parts = await _void_by_any(context, voiding)
    except JournalIncompleteError as error:
        raise post_problem_of(error) from None
    return VoidedPost(post_id, owner, [_board_answer(part) for part in parts])


async def _void_by_any(context: Context, voiding: Voiding) -> list[VoidedPart]:
    """Void the post if it was sent under the owner's id or under one of its earlier ids."""
    names = await context.store.read(lambda: merged_owners.list_names(voiding.owner))
    for name in names:  # the current id, too, because a worker may just have applied the post
        post_hash = context.posting.post_ids.hash_post_id(voiding.post_id, name)
        with suppress(UnknownPostError):
            return await context.store.write(replace(voiding, posted_by=name, post_hash=post_hash).void_post)
    raise UnknownPostError


def _board_answer(part: VoidedPart) -> VoidedBoard:
    if part.error is not None:
        return VoidedBoard(board=part.leaf.id, error=post_problem_of(part.error).to_document())
    stats = None if part.stats is None else format_stats(part.leaf.spec, part.stats)
    return VoidedBoard(board=part.leaf.id, status="recomputed", stats=stats)

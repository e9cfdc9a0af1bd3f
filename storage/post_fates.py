"""What became of a post: remembered with its effect, rejected when its turn came, or still in the queue.

The rule: all of it is asked in one snapshot, so a post on its way from the queue to a board is always in one of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from .errors import StorageError, UnknownPost
from .ingest_queue import ingest_queue
from .post_ids import PostIds
from .queued_posts import as_in_block, block_of
from .records import Board, Status, StatValue
from .rejected_posts import rejected_posts
from .store import Program, Store

BLOCKS_MAX = 1_000  # in whose text the id stands, as an id or as anything else


@dataclass(frozen=True, slots=True)
class PostFate:
    """What a board made of a post."""

    status: Status | None  # None: its turn is yet to come
    updated_at_us: int | None = None
    stats: list[StatValue | None] | None = None
    error: StorageError | None = None


async def post_fate(store: Store, post_ids: PostIds, board: Board, post_id: str) -> PostFate:
    """What became of a post on a board.

    Raises:
        UnknownPost: nothing is known of it, or no longer.
    """
    post_hash = post_ids.hash(post_id)
    found = await store.read(lambda: _settled(store, post_ids, board, post_hash))
    if found is None:  # the queue may be long, so it is read only now, and where reads may take long
        found = await store.read(lambda: _anywhere(store, post_ids, board, post_id, post_hash), heavy=True)
    if found is None:
        raise UnknownPost
    return found


def _anywhere(store: Store, post_ids: PostIds, board: Board, post_id: str, post_hash: str) -> Program[PostFate | None]:
    queue = ingest_queue(store.dialect)
    for waiting in (yield from queue.mentioning(as_in_block(post_id), blocks_max=BLOCKS_MAX)):
        block = block_of(waiting.block)
        for queued in block.posts:
            if queued.post_hash == post_hash and any(block.boards[place][0] == board.key for place in queued.boards):
                return PostFate(None)
    return (yield from _settled(store, post_ids, board, post_hash))


def _settled(store: Store, post_ids: PostIds, board: Board, post_hash: str) -> Program[PostFate | None]:
    if board.family_key is not None:
        remembered = (yield from post_ids.find_in_family(board.family_key, [post_hash])).get(post_hash)
        for part in [] if remembered is None else remembered.parts:
            if part.board_key == board.key:
                return PostFate(part.status, part.updated_at_us, part.stats)
    else:
        _, seen = yield from post_ids.find(board.key, board.epoch, [post_hash])
        if (found := seen.get(post_hash)) is not None:
            return PostFate(found.status, found.updated_at_us, found.stats)
    error = yield from rejected_posts(store.dialect).find(board.key, post_hash)
    return None if error is None else PostFate(Status.REJECTED, error=error)

"""Takes an owner who is erased out of the ingest queue: what waits there would bring them back.

The rule: the queue comes before the boards. Whoever has taken a block of the owner's is waited for, so what it applied
is there when the boards are gone through; whoever read one and takes it later finds another block.
"""

from __future__ import annotations

from querybuilder import Dialect

from .ingest_queue import Waiting, ingest_queue
from .queued_posts import Block, QueuedPost, as_in_block, block_of, shard_of, text_of
from .store import Program

BLOCKS_A_PAGE = 100


def drop_queued(dialect: Dialect, owner: str, *, board_key: int | None = None) -> Program[int]:
    """Drop the owner's queued posts, or their parts for one board; answers how many posts that changed."""
    queue = ingest_queue(dialect)
    shards = yield from queue.shards()
    if not shards:
        return 0
    shard, text = shard_of(owner, shards), as_in_block(owner)
    dropped = past = 0
    while page := (yield from queue.mentioning_in(shard, text, past=past, blocks_max=BLOCKS_A_PAGE)):
        for waiting in page:
            dropped += yield from _rewrite(dialect, waiting, owner, board_key)
        past = page[-1].head.number
    return dropped


def _rewrite(dialect: Dialect, waiting: Waiting, owner: str, board_key: int | None) -> Program[int]:
    block = block_of(waiting.block)
    kept = [_without(post, block, board_key) if post.owner == owner else post for post in block.posts]
    left = [post for post in kept if post is not None]
    changed = sum(before is not after for before, after in zip(block.posts, kept, strict=True))
    # A block without posts stays until its turn: it counts for nothing, and the worker takes it as any other.
    text = text_of(Block(block.boards, left))
    if changed and (yield from ingest_queue(dialect).rewrite(waiting.head, posts=len(left), block=text)):
        return changed
    return 0  # or it was applied meanwhile


def _without(post: QueuedPost, block: Block, board_key: int | None) -> QueuedPost | None:
    if board_key is None:
        return None
    places = [place for place in post.boards if block.boards[place][0] != board_key]
    if len(places) == len(post.boards):
        return post
    if not places:
        return None
    one_for_all = len(post.stats) == 1
    kept = [index for index, place in enumerate(post.boards) if place in places]
    return QueuedPost(
        post.owner,
        places,
        post.stats if one_for_all else [post.stats[index] for index in kept],
        post.overwrite if one_for_all or not post.overwrite else [post.overwrite[index] for index in kept],
        post.at_us,
        post.fingerprint,
        post.post_hash,
        post.post_id,
        post.family_key,
    )

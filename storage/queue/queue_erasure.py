"""Removes an erased owner from the ingest queue: posts that wait there would bring the owner back.

An erasure removes the owner from the queue before it searches the boards. If a worker has taken a block with the
owner's posts, the erasure waits for the worker's transaction, and then finds the applied posts on the boards. If a
worker has read such a block but not taken it yet, that worker's transaction is rolled back, because the block changed.
"""

from __future__ import annotations

from storage.store import Program, Store

from .ingest_queue import WaitingBlock, ingest_queue
from .post_blocks import Block, QueuedPost, decode_block, encode_block, encode_text, shard_of

BLOCKS_A_PAGE = 100


async def drop_queued(store: Store, owner: str, *, board_key: int | None = None) -> int:
    """Drop the owner's queued posts, or their parts for one board. Return how many posts were dropped or changed.

    Each block has a transaction of its own. A transaction that waited for a second block could deadlock with a worker.
    """
    shards = await store.read(ingest_queue.shards)
    if not shards:
        return 0
    shard, text = shard_of(owner, shards), encode_text(owner)
    dropped = past = 0

    def page() -> Program[list[WaitingBlock]]:
        return (yield from ingest_queue.find_mentions_in_shard(shard, text, past=past, blocks_max=BLOCKS_A_PAGE))

    while found := await store.read(page):
        for waiting in found:
            changed = await _drop_from(store, waiting, owner, board_key)
            if changed is None:  # a worker applied the block, or a part of it, meanwhile: read the page again
                break
            dropped, past = dropped + changed, waiting.head.number
    return dropped


async def _drop_from(store: Store, waiting: WaitingBlock, owner: str, board_key: int | None) -> int | None:
    changed, posts, text = _without_owner(waiting, owner, board_key)
    if not changed:
        return 0
    written = await store.write(lambda: ingest_queue.rewrite(waiting.head, posts=posts, block=text))
    return changed if written else None


def _without_owner(waiting: WaitingBlock, owner: str, board_key: int | None) -> tuple[int, int, str]:
    """Return how many posts are changed or dropped, how many posts are left, and the block's new text."""
    block = decode_block(waiting.block)
    kept = [_without(post, block, board_key) if post.owner == owner else post for post in block.posts]
    left = [post for post in kept if post is not None]
    changed = sum(before is not after for before, after in zip(block.posts, kept, strict=True))
    # A block without posts stays in the queue. It counts as 0 posts, and a worker takes it like any other block.
    return changed, len(left), encode_block(Block(block.boards, left))


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

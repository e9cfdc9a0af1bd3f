"""Removes an erased owner's posts from the ingest queue, because applying them would bring the owner back.

An erasure clears the queue before it searches the boards. If a worker has taken a block with the owner's posts, the
erasure waits for the worker's transaction, and then finds the applied posts on the boards. If a worker has read such a
block but not taken it yet, that worker's transaction is rolled back, because the block has changed.
"""

from collections.abc import Callable, Iterable
from itertools import product

from msgspec.structs import replace

from storage.posting.packed_posts import PackedPost
from storage.schema.creation import count_partitions
from storage.store import Program, Store

from . import ingest_queue
from .ingest_queue import WaitingBlock, list_queues
from .post_blocks import Block, decode_block, encode_json, shard_of

BLOCKS_A_PAGE = 100


async def drop_queued(
    store: Store, owner: str, *, leaf_key: int | None = None, concerns: Callable[[int], bool] = lambda _: True
) -> int:
    """Drop the owner's queued posts, or their changes to one board. Return how many posts were dropped or changed.

    `concerns`: skip the queues of partitions that this function does not accept.

    Each block has its own transaction, because one that waits for a second block could deadlock with a worker.
    """
    shards, count = await store.read(read_layout)
    if not shards:
        return 0
    queues = filter(concerns, list_queues(store.dialect, count))
    return sum([await _drop_in(store.at(partition), owner, shards, leaf_key) for partition in queues])


async def drop_queued_of(store: Store, owners: Iterable[str], leaf_keys: Iterable[int]) -> None:
    """Drop many owners' queued changes to these boards, as `drop_queued` does. Usually nothing is queued."""
    shards, count = await store.read(read_layout)
    for partition in list_queues(store.dialect, count) if shards else ():
        queue = store.at(partition)
        if not await queue.read(ingest_queue.is_empty):
            for owner, key in product(owners, leaf_keys):
                await _drop_in(queue, owner, shards, key)


def read_layout() -> Program[tuple[int, int]]:
    shards = yield from ingest_queue.count_shards()
    return shards, (yield from count_partitions())


async def _drop_in(store: Store, owner: str, shards: int, leaf_key: int | None) -> int:
    shard, text = shard_of(owner, shards), encode_json(owner)
    dropped = past = 0

    def page() -> Program[list[WaitingBlock]]:
        return ingest_queue.find_mentions(text, shard=shard, past=past, blocks_max=BLOCKS_A_PAGE)

    while found := await store.read(page):
        for waiting in found:
            changed = await _drop_from(store, waiting, owner, leaf_key)
            if changed is None:  # a worker has applied the block, or a part of it: read the page again
                break
            dropped, past = dropped + changed, waiting.head.number
    return dropped


async def _drop_from(store: Store, waiting: WaitingBlock, owner: str, leaf_key: int | None) -> int | None:
    """Rewrite a block without the owner's posts. Return how many it lost or changed, or None if a worker took it."""
    block = decode_block(waiting.block)
    kept = [_without(post, block, leaf_key) if post.owner == owner else post for post in block.posts]
    changed = sum(before is not after for before, after in zip(block.posts, kept, strict=True))
    if not changed:
        return 0
    # A block without posts stays in the queue. It counts as 0 posts, and a worker takes it like any other block.
    left = Block(block.boards, [post for post in kept if post is not None])
    written = await store.write(lambda: ingest_queue.rewrite_block(waiting.head, left))
    return changed if written else None


def _without(post: PackedPost, block: Block, leaf_key: int | None) -> PackedPost | None:
    """Remove a post's changes to one board. Return None if no board is left, or if `leaf_key` is None."""
    kept = [index for index, place in enumerate(post.boards) if block.boards[place][0] != leaf_key]
    if leaf_key is None or not kept:
        return None
    if len(kept) == len(post.boards):
        return post
    changes = post.changes if len(post.changes) == 1 else [post.changes[index] for index in kept]
    return replace(post, boards=[post.boards[index] for index in kept], changes=changes)

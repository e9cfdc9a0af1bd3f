"""Takes an owner who is erased out of the ingest queue: what waits there would bring them back.

The rule: the queue comes before the boards. Whoever has taken a block of the owner's is waited for, so what it applied
is there when the boards are gone through; whoever read one and takes it later finds another block.
"""

from __future__ import annotations

from .ingest_queue import Waiting, ingest_queue
from .queued_posts import Block, QueuedPost, as_in_block, block_of, shard_of, text_of
from .store import Program, Store

BLOCKS_A_PAGE = 100


async def drop_queued(store: Store, owner: str, *, board_key: int | None = None) -> int:
    """Drop the owner's queued posts, or their parts for one board; answers how many posts that changed.

    A transaction a block: who held one while waiting for another could wait for a worker that waits for it.
    """
    queue = ingest_queue(store.dialect)
    shards = await store.read(queue.shards)
    if not shards:
        return 0
    shard, text = shard_of(owner, shards), as_in_block(owner)
    dropped = past = 0

    def page() -> Program[list[Waiting]]:
        return (yield from queue.mentioning_in(shard, text, past=past, blocks_max=BLOCKS_A_PAGE))

    while found := await store.read(page):
        for waiting in found:
            changed = await _drop_from(store, waiting, owner, board_key)
            if changed is None:  # it was applied meanwhile, or some of it: look at it again
                break
            dropped, past = dropped + changed, waiting.head.number
    return dropped


async def _drop_from(store: Store, waiting: Waiting, owner: str, board_key: int | None) -> int | None:
    changed, posts, text = _without_owner(waiting, owner, board_key)
    if not changed:
        return 0
    written = await store.write(lambda: ingest_queue(store.dialect).rewrite(waiting.head, posts=posts, block=text))
    return changed if written else None


def _without_owner(waiting: Waiting, owner: str, board_key: int | None) -> tuple[int, int, str]:
    """How many posts change, how many are left, and the block's text then."""
    block = block_of(waiting.block)
    kept = [_without(post, block, board_key) if post.owner == owner else post for post in block.posts]
    left = [post for post in kept if post is not None]
    changed = sum(before is not after for before, after in zip(block.posts, kept, strict=True))
    # A block without posts stays until its turn: it counts for nothing, and the worker takes it as any other.
    return changed, len(left), text_of(Block(block.boards, left))


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

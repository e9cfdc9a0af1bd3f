"""Blocks: the form in which posts wait in the ingest queue. A block is one text with many posts of a shard, in order.

A block holds everything that is needed to apply its posts, except the boards, which are looked up later. A block
also stores each board's epoch, which grows when the board is emptied. So a worker sees if this happened meanwhile.
"""

import zlib
from collections.abc import Mapping, Sequence

import msgspec

from storage.records import BoardPost, ColumnChange, Family, Leaf, Post


class QueuedPost(msgspec.Struct, array_like=True, gc=False):
    owner: str
    boards: list[int]  # 0-based indexes in the block's list of boards
    changes: list[Sequence[ColumnChange]]  # one sequence for each of the post's boards, or a single one for all of them
    at_us: int  # the time that the post names, or else the time of its arrival
    fingerprint: str
    post_hash: str | None = None
    post_id: str | None = None
    family_key: int | None = None

    def changes_to(self, index: int) -> Sequence[ColumnChange]:
        """Return the changes that the post makes to one of its boards, given by its 0-based index in `boards`."""
        return self.changes[index if len(self.changes) > 1 else 0]


class Block(msgspec.Struct, array_like=True, gc=False):
    boards: list[tuple[int, int, int]]  # key, epoch and partition of each board that a post of the block goes to
    posts: list[QueuedPost]


_encode = msgspec.json.Encoder().encode
decode_block = msgspec.json.Decoder(Block).decode


def shard_of(owner: str, shards: int) -> int:
    """Return the number of the shard for all posts of an owner. It never changes, so the posts keep their order."""
    return zlib.crc32(owner.encode()) % shards


def encode_posts(posts: Sequence[Post], now_us: int) -> str:
    """Return the text of a block with these posts, which arrived at `now_us`."""
    places: dict[int, int] = {}
    boards: list[tuple[int, int, int]] = []
    queued: list[QueuedPost] = []
    for post in posts:
        reached = []
        for part in post.parts:
            place = places.get(part.leaf.key)
            if place is None:
                place = places[part.leaf.key] = len(boards)
                boards.append((part.leaf.key, part.leaf.epoch, part.leaf.partition))
            reached.append(place)
        changes = [part.changes for part in post.parts]
        if changes.count(changes[0]) == len(changes):
            changes = changes[:1]
        at_us = now_us if post.at_us is None else post.at_us
        family_key = None if post.family is None else post.family.key
        queued.append(
            QueuedPost(post.owner, reached, changes, at_us, post.fingerprint, post.post_hash, post.post_id, family_key)
        )
    return encode_json(Block(boards, queued))


def encode_json(value: Block | str) -> str:
    """Encode a block as text, or encode an owner or a post id as it appears in such a text, to search for it."""
    return _encode(value).decode()


def restore_post(queued: QueuedPost, leaves: Sequence[Leaf], families: Mapping[int, Family]) -> Post:
    """Return the post as it was before it was queued, but only with its changes to `leaves`."""
    changes = queued.changes * len(leaves) if len(queued.changes) == 1 else queued.changes
    parts = [BoardPost(leaf, theirs) for leaf, theirs in zip(leaves, changes, strict=True)]
    family = None if queued.family_key is None else families[queued.family_key]
    return Post(queued.owner, parts, queued.post_hash, queued.at_us, queued.fingerprint, family, post_id=queued.post_id)

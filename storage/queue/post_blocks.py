"""Encodes blocks, in which posts wait in the ingest queue. A block is one text with many posts of a shard, in order.

A block holds everything needed to apply its posts except the boards, which are looked up later. It also stores each
board's epoch, which grows when the board is emptied, so that a worker notices if that has happened.
"""

import zlib
from collections.abc import Sequence

import msgspec

from storage.posting.packed_posts import PackedPost, pack_posts
from storage.records import Leaf, Post


class Block(msgspec.Struct, array_like=True, gc=False):
    boards: list[tuple[int, int, int]]  # key, epoch and partition of each board that a post of the block goes to
    posts: list[PackedPost]


_encode = msgspec.json.Encoder().encode
decode_block = msgspec.json.Decoder(Block).decode


def shard_of(owner: str, shards: int) -> int:
    """Choose the shard for all of an owner's posts. It never changes, so the posts keep their order."""
    return zlib.crc32(owner.encode()) % shards


def encode_posts(posts: Sequence[Post], now_us: int) -> str:
    leaves: dict[int, tuple[int, Leaf]] = {}
    packed = pack_posts(posts, leaves, now_us)
    return encode_json(Block([(leaf.key, leaf.epoch, leaf.partition) for _, leaf in leaves.values()], packed))


def encode_json(value: Block | str) -> str:
    """Encode a block as text, or encode an owner or a post id the way it appears in such a text, to search for it."""
    return _encode(value).decode()

"""Blocks: the form in which posts wait in the ingest queue. A block is one text with many posts of a shard, in order.

A block holds everything that is needed to apply its posts, except the boards, which are looked up later. The epochs in
the block then show whether a board was emptied meanwhile.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from storage.records import Board, BoardPost, ColumnChange, Family, Post, StatValue


class QueuedPost(msgspec.Struct, array_like=True, gc=False):
    """One post.

    `stats` and `overwrite` hold one list for each of the post's boards, or a single list for all of them. Such a list
    is column, value, column, value, and so on; each column is an index.
    """

    owner: str
    boards: list[int]  # 0-based indexes in the block's list of boards
    stats: list[list[StatValue]]
    overwrite: list[list[StatValue]]  # the values to "set", in the form of `stats`; empty: nothing is overwritten
    at_us: int  # the time that the post names, or else the time of its arrival
    fingerprint: str
    post_hash: str | None = None
    post_id: str | None = None
    family_key: int | None = None


class Block(msgspec.Struct, array_like=True, gc=False):
    boards: list[tuple[int, int]]  # key and epoch of each board that a post of the block goes to
    posts: list[QueuedPost]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Block).decode


def shard_of(owner: str, shards: int) -> int:
    """Return the shard in which all posts of an owner wait, so that the posts keep their order."""
    return zlib.crc32(owner.encode()) % shards


def encode_posts(posts: Sequence[Post], now_us: int) -> str:
    """Return the text of a block that holds posts; they arrived at `now_us`."""
    places: dict[int, int] = {}
    boards: list[tuple[int, int]] = []
    queued: list[QueuedPost] = []
    for post in posts:
        reached = []
        for part in post.parts:
            place = places.get(part.board.key)
            if place is None:
                place = places[part.board.key] = len(boards)
                boards.append((part.board.key, part.board.epoch))
            reached.append(place)
        queued.append(_queued(post, reached, now_us))
    return _encode(Block(boards, queued)).decode()


def _queued(post: Post, reached: list[int], now_us: int) -> QueuedPost:
    changes = [part.changes for part in post.parts]
    if all(each is changes[0] or each == changes[0] for each in changes):
        changes = changes[:1]
    overwrite = [_flatten_changes(each, overwrite=True) for each in changes]
    return QueuedPost(
        post.owner,
        reached,
        [_flatten_changes(each, overwrite=False) for each in changes],
        overwrite if any(overwrite) else [],
        now_us if post.at_us is None else post.at_us,
        post.fingerprint,
        post.post_hash,
        post.post_id,
        None if post.family is None else post.family.key,
    )


def _flatten_changes(changes: Sequence[ColumnChange], *, overwrite: bool) -> list[StatValue]:
    flat: list[StatValue] = []
    for change in changes:
        if change.overwrite is overwrite:
            flat += (change.index, change.value)
    return flat


def decode_block(text: str) -> Block:
    return _decode(text)


def encode_block(block: Block) -> str:
    return _encode(block).decode()


def encode_text(text: str) -> str:
    """Return an owner or a post id in the form that it has within the text of a block."""
    return _encode(text).decode()


def changes_to(queued: QueuedPost, index: int) -> list[ColumnChange]:
    """Return the changes that a post makes to one of its boards, given by its 0-based index in `queued.boards`."""
    index = index if len(queued.stats) > 1 else 0
    return _changes(queued.stats[index], queued.overwrite[index] if queued.overwrite else ())


def restore_post(queued: QueuedPost, boards: Sequence[Board], families: Mapping[int, Family]) -> Post:
    """Return the post as it was before it was queued, but only for `boards`, which may be fewer than the post had."""
    restored = [
        _changes(stats, queued.overwrite[index] if queued.overwrite else ()) for index, stats in enumerate(queued.stats)
    ]
    if len(restored) == 1:
        parts = [BoardPost(board, restored[0]) for board in boards]
    else:
        parts = [BoardPost(board, changes) for board, changes in zip(boards, restored, strict=True)]
    family = None if queued.family_key is None else families[queued.family_key]
    return Post(queued.owner, parts, queued.post_hash, queued.at_us, queued.fingerprint, family, post_id=queued.post_id)


def _changes(stats: Iterable[StatValue], overwrite: Iterable[StatValue]) -> list[ColumnChange]:
    merged, overwritten = iter(stats), iter(overwrite)  # zipping an iterator with itself pairs neighbours
    changes = [ColumnChange(int(index), value, False) for index, value in zip(merged, merged, strict=True)]
    changes += [ColumnChange(int(index), value, True) for index, value in zip(overwritten, overwritten, strict=True)]
    return changes

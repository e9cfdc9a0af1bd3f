"""Blocks: posts as they wait in the ingest queue, many posts of one shard as one text, in their order.

A block holds everything that is needed to apply its posts, except the boards. They are looked up when the block is
applied. The key and epoch of a board tell it from its successor, if it was deleted or emptied meanwhile.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from storage.records import Board, BoardPost, ColumnChange, Family, Post, StatValue


class QueuedPost(msgspec.Struct, array_like=True, gc=False):
    """One post. Its changes are column, value, column, value …, for each of its boards or once for all of them."""

    owner: str
    boards: list[int]  # 0-based indexes in the block's list of boards
    stats: list[list[StatValue]]
    overwrite: list[list[StatValue]]  # from "set", in the form of `stats`; empty: nothing is overwritten
    at_us: int  # its own time; the time of its arrival if it names none
    fingerprint: str
    post_hash: str | None = None
    post_id: str | None = None
    family_key: int | None = None


class Block(msgspec.Struct, array_like=True, gc=False):
    """Posts of one shard."""

    boards: list[tuple[int, int]]  # key and epoch of each board that some post goes to
    posts: list[QueuedPost]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Block).decode


def shard_of(owner: str, shards: int) -> int:
    """Return the shard in which all posts of an owner wait, so that they stay in their order."""
    return zlib.crc32(owner.encode()) % shards


def encode_posts(posts: Sequence[Post], now_us: int) -> str:
    """Return the text of a block of posts that arrived at `now_us`."""
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
    overwrite = [_said(each, overwrite=True) for each in changes]
    return QueuedPost(
        post.owner,
        reached,
        [_said(each, overwrite=False) for each in changes],
        overwrite if any(overwrite) else [],
        now_us if post.at_us is None else post.at_us,
        post.fingerprint,
        post.post_hash,
        post.post_id,
        None if post.family is None else post.family.key,
    )


def _said(changes: Sequence[ColumnChange], *, overwrite: bool) -> list[StatValue]:
    said: list[StatValue] = []
    for change in changes:
        if change.overwrite is overwrite:
            said += (change.index, change.value)
    return said


def decode_block(text: str) -> Block:
    """Return the block that a text holds."""
    return _decode(text)


def encode_block(block: Block) -> str:
    """Return the text of a block."""
    return _encode(block).decode()


def encode_text(text: str) -> str:
    """Return the form that an owner or a post id has within the text of a block."""
    return _encode(text).decode()


def changes_to(queued: QueuedPost, index: int) -> list[ColumnChange]:
    """Return the changes of a post to the board at a 0-based index of its boards."""
    index = index if len(queued.stats) > 1 else 0
    return _changes(queued.stats[index], queued.overwrite[index] if queued.overwrite else ())


def restore_post(queued: QueuedPost, boards: Sequence[Board], families: Mapping[int, Family]) -> Post:
    """Return the post to those of its boards that get it: all that it was queued for, or fewer."""
    said = [
        _changes(stats, queued.overwrite[index] if queued.overwrite else ()) for index, stats in enumerate(queued.stats)
    ]
    if len(said) == 1:
        parts = [BoardPost(board, said[0]) for board in boards]
    else:
        parts = [BoardPost(board, changes) for board, changes in zip(boards, said, strict=True)]
    family = None if queued.family_key is None else families[queued.family_key]
    return Post(queued.owner, parts, queued.post_hash, queued.at_us, queued.fingerprint, family, post_id=queued.post_id)


def _changes(stats: Iterable[StatValue], overwrite: Iterable[StatValue]) -> list[ColumnChange]:
    said, over = iter(stats), iter(overwrite)
    changes = [ColumnChange(int(index), value, False) for index, value in zip(said, said, strict=True)]
    changes += [ColumnChange(int(index), value, True) for index, value in zip(over, over, strict=True)]
    return changes

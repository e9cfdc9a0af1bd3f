"""Posts as they wait in the ingest queue: many of them as one text, all of one shard, in their order.

The rule: a block says all that applying its posts needs but the boards themselves, which are looked up when it is
applied: a post to a board that was deleted or emptied meanwhile is told from one to its successor by key and epoch.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from .records import Board, BoardPost, Change, Family, Post, StatValue


class QueuedPost(msgspec.Struct, array_like=True, gc=False):
    """One post. Changes are column, value, column, value …, for each of its boards or once for all of them."""

    owner: str
    boards: list[int]  # places in the block's list of boards
    stats: list[list[StatValue]]
    overwrite: list[list[StatValue]]  # from "set", as `stats`; none: nothing is overwritten
    at_us: int  # of its arrival, where it said nothing else
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
    """Where all posts of an owner wait, so that they stay in their order."""
    return zlib.crc32(owner.encode()) % shards


def block_text(posts: Sequence[Post], now_us: int) -> str:
    """The block of posts that arrived now."""
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


def _said(changes: Sequence[Change], *, overwrite: bool) -> list[StatValue]:
    said: list[StatValue] = []
    for change in changes:
        if change.overwrite is overwrite:
            said += (change.index, change.value)
    return said


def block_of(text: str) -> Block:
    """The block of a text."""
    return _decode(text)


def text_of(block: Block) -> str:
    """The text of a block."""
    return _encode(block).decode()


def as_in_block(text: str) -> str:
    """How a text of a post, an owner or an id, stands in the text of its block."""
    return _encode(text).decode()


def changes_to(queued: QueuedPost, index: int) -> list[Change]:
    """What a post says to the board at a 0-based index of its boards."""
    index = index if len(queued.stats) > 1 else 0
    return _changes(queued.stats[index], queued.overwrite[index] if queued.overwrite else ())


def post_of(queued: QueuedPost, boards: Sequence[Board], families: Mapping[int, Family]) -> Post:
    """The post, to those of its boards that are to have it: as many as it was queued for, or fewer."""
    said = [
        _changes(stats, queued.overwrite[index] if queued.overwrite else ()) for index, stats in enumerate(queued.stats)
    ]
    if len(said) == 1:
        parts = [BoardPost(board, said[0]) for board in boards]
    else:
        parts = [BoardPost(board, changes) for board, changes in zip(boards, said, strict=True)]
    family = None if queued.family_key is None else families[queued.family_key]
    return Post(queued.owner, parts, queued.post_hash, queued.at_us, queued.fingerprint, family, post_id=queued.post_id)


def _changes(stats: Iterable[StatValue], overwrite: Iterable[StatValue]) -> list[Change]:
    said, over = iter(stats), iter(overwrite)
    changes = [Change(int(index), value, False) for index, value in zip(said, said, strict=True)]
    changes += [Change(int(index), value, True) for index, value in zip(over, over, strict=True)]
    return changes

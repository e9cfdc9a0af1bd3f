"""The fate of a queued post: `find_post_fate` returns whether the post was applied, was rejected or still waits.

The queue, the applied posts and the rejected posts are read in one snapshot. So a post that moves from the queue to a
board meanwhile is always found.

The reason of each rejection is stored, because the sender got the answer "accepted" long before. Rejections are stored
by board and post id, up to a maximum age and a maximum number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from querybuilder import INTEGER, TEXT, asc, col, delete, desc, insert, param, select
from storage import errors
from storage.errors import PostError, PostRejectedError, StorageError, UnknownPostError
from storage.log.log_record import RecordedError
from storage.posting.post_ids import PostIds
from storage.records import Board, PostStatus, StatValue
from storage.schema.ingest_tables import REJECTED_POSTS
from storage.store import Program, Store

from .ingest_queue import ingest_queue
from .post_blocks import decode_block, encode_text

BLOCKS_MAX = 1_000  # most blocks to read among those whose text contains the post id


@dataclass(frozen=True, slots=True)
class PostFate:
    status: PostStatus | None  # None: the post still waits in the queue
    updated_at_us: int | None = None
    stats: list[StatValue | None] | None = None
    error: StorageError | None = None


async def find_post_fate(store: Store, post_ids: PostIds, board: Board, post_id: str) -> PostFate:
    """Return the fate of a post on a board; raise `UnknownPostError` if the store knows nothing about the post."""
    post_hash = post_ids.hash_post_id(post_id)
    found = await store.read(lambda: _settled(store, post_ids, board, post_hash))
    if found is None:  # the queue may be long, so it is read last, on a connection for heavy reads
        found = await store.read(lambda: _anywhere(store, post_ids, board, post_id, post_hash), heavy=True)
    if found is None:
        raise UnknownPostError
    return found


def _anywhere(store: Store, post_ids: PostIds, board: Board, post_id: str, post_hash: str) -> Program[PostFate | None]:
    for waiting in (yield from ingest_queue.find_mentions(encode_text(post_id), blocks_max=BLOCKS_MAX)):
        block = decode_block(waiting.block)
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
        _, seen = yield from post_ids.find_known(board.key, board.epoch, [post_hash])
        if (found := seen.get(post_hash)) is not None:
            return PostFate(found.status, found.updated_at_us, found.stats)
    error = yield from rejected_posts.find_error(board.key, post_hash)
    return None if error is None else PostFate(PostStatus.REJECTED, error=error)


class RejectedPost(NamedTuple):
    board_key: int
    post_hash: str
    error: errors.StorageError


class RejectedPosts:
    """Programs on rejected posts."""

    def __init__(self) -> None:
        named = (col("board_key").eq(param("board_key")), col("post_hash").eq(param("post_hash")))
        self._find = select(col("error")).from_(REJECTED_POSTS).where(*named).prepared()
        self._remember = (
            insert(REJECTED_POSTS)
            .rows(param("rows"), board_key=INTEGER, post_hash=TEXT, error=TEXT, rejected_at=INTEGER)
            .on_conflict("board_key", "post_hash")
            .overwrite()
            .prepared()
        )
        times = select(col("rejected_at")).from_(REJECTED_POSTS)
        self._oldest = times.order_by(asc(col("rejected_at"))).limit(1).offset(param("rows_max")).prepared()
        self._newest = times.order_by(desc(col("rejected_at"))).limit(1).offset(param("keep")).prepared()
        self._prune = delete(REJECTED_POSTS).where(col("rejected_at").le(param("until_us"))).prepared()

    def find_error(self, board_key: int, post_hash: str) -> Program[PostError | None]:
        """Return the error with which a board rejected a post, or None."""
        rows = yield self._find.bind(board_key=board_key, post_hash=post_hash)
        return decode_error(msgspec.json.decode(rows[0][0])) if rows else None

    def store_rejected(self, rejected: Iterable[RejectedPost], now_us: int) -> Program[None]:
        """Store rejected posts. If a board and post id occur twice, keep the later one."""
        last = {each[:2]: each for each in rejected}
        if last:
            rows = [
                (key, post_hash, msgspec.json.encode(encode_error(error)).decode(), now_us)
                for (key, post_hash), (*_, error) in sorted(last.items())
            ]
            yield self._remember.bind(rows=rows)

    def prune(self, *, before_us: int, keep: int, rows_max: int) -> Program[int]:
        """Delete rejected posts that are older than `before_us` or not among the newest `keep`. Return their number.

        One call deletes about `rows_max` posts at most.
        """
        over = yield self._newest.bind(keep=keep)
        until_us = max(before_us, over[0][0]) if over else before_us
        bound = yield self._oldest.bind(rows_max=rows_max)
        rows = yield self._prune.bind(until_us=min(until_us, bound[0][0]) if bound else until_us)
        return int(rows[0][0])


def encode_error(error: errors.StorageError) -> RecordedError:
    return type(error).__name__, error.detail, error.pointer


def decode_error(recorded: RecordedError) -> PostError:
    name, detail, pointer = recorded
    # A newer version of the service may have stored the name of a class that this version does not have.
    kind = getattr(errors, name, PostRejectedError)
    known = isinstance(kind, type) and issubclass(kind, PostError)
    return (kind if known else PostRejectedError)(detail, pointer=pointer)


rejected_posts = RejectedPosts()

"""The fate of a queued post: `find_post_fate` returns whether the post was applied, was rejected or still waits.

The queue, the applied posts and the rejected posts are read in one snapshot. So a post that moves from the queue to a
board meanwhile is always found. Only a post to boards on several servers can be missed, while the servers commit it.

The reason of each rejection is stored, because the sender got the answer "accepted" long before. Rejections are stored
by board and post id, up to a maximum age and a maximum number, in the partition in which the post waited.
"""

from collections.abc import Iterable, Sequence
from operator import itemgetter

import msgspec

from querybuilder import asc, col, delete, desc, insert, param, select
from storage import errors
from storage.boards.boards import find_keys_ever
from storage.errors import PostError, PostRejectedError, StorageError, UnknownPostError
from storage.log.log_record import RecordedError
from storage.posting.post_ids import PostIds, RememberedPost, find_in_family, find_known
from storage.records import Board, PartOutcome, PostStatus
from storage.schema.ingest_tables import REJECTED_POSTS
from storage.schema.placement import TABLES
from storage.store import Program, Store, in_partition

from . import ingest_queue
from .ingest_queue import find_queues, list_queues
from .post_blocks import decode_block, encode_json

BLOCKS_MAX = 1_000  # most blocks to read among those whose text contains the post id


async def find_post_fate(store: Store, post_ids: PostIds, board: Board, post_id: str) -> PartOutcome | None:
    """Return the outcome of a post on a board, or None if the post still waits in the queue.

    Raises:
        UnknownPostError: the store knows nothing about the post.
    """
    post_hash, queues = post_ids.hash_post_id(post_id), find_queues(board, store.dialect, store.partitions)
    found = await store.read(lambda: _find_settled(queues, board, post_hash))
    if found is None:  # the queue may be long, so it is read last, on a connection for heavy reads
        # A post that was queued before its board was moved or split waits where the board was. A partition that is away
        # is asked only about such a post.
        every = [*dict.fromkeys([*queues, *list_queues(store.dialect, store.partitions)])]
        found = await store.read(lambda: _find_anywhere(every, board, post_id, post_hash), heavy=True)
    return found


def _find_anywhere(queues: list[int], board: Board, post_id: str, post_hash: str) -> Program[PartOutcome | None]:
    keys = yield from _find_keys(board)
    for partition in queues:
        if (yield from in_partition(partition, _waits(keys, post_id, post_hash))):
            return None
    found = yield from _find_settled(queues, board, post_hash)
    if found is None:
        raise UnknownPostError
    return found


def _waits(board_keys: Sequence[int], post_id: str, post_hash: str) -> Program[bool]:
    for waiting in (yield from ingest_queue.find_mentions(encode_json(post_id), blocks_max=BLOCKS_MAX)):
        block = decode_block(waiting.block)
        for queued in block.posts:
            if queued.post_hash == post_hash and any(block.boards[place][0] in board_keys for place in queued.boards):
                return True
    return False


def _find_settled(queues: list[int], board: Board, post_hash: str) -> Program[PartOutcome | None]:
    for part in board.parts:  # the owner is not known, so the post may be in any of them
        known: dict[str, RememberedPost]
        if part.family_key is None:
            finding = find_known(part.key, part.epoch, [post_hash])
            _, known = yield from in_partition(part.partition, finding)
        else:
            known = yield from in_partition(part.partition, find_in_family(part.family_key, [post_hash]))
        for outcome in known[post_hash].parts if post_hash in known else ():
            if outcome.board_key == part.key:
                return outcome
    keys = yield from _find_keys(board)
    for partition in queues:
        if (error := (yield from in_partition(partition, find_error(keys, post_hash)))) is not None:
            return PartOutcome(PostStatus.REJECTED, error=error)
    return None


def _find_keys(board: Board) -> Program[list[int]]:
    """Return the keys under which posts to a board wait, or were rejected."""
    return (yield from find_keys_ever(board)) if board.segments else [board.key]


def find_error(board_keys: Sequence[int], post_hash: str) -> Program[PostError | None]:
    """Return the error with which the board that has these keys last rejected a post, or None."""
    rows = yield _FIND.bind(board_keys=board_keys, post_hash=post_hash)
    return decode_error(msgspec.json.decode(rows[0][0])) if rows else None


def store_rejected(rejected: Iterable[tuple[int, str, PostError]], now_us: int) -> Program[None]:
    """Store rejected posts, given as (board key, post hash, error). Of equal keys and hashes, keep the last."""
    last = {(board_key, post_hash): error for board_key, post_hash, error in rejected}
    if last:
        rows = [
            (*key, msgspec.json.encode(encode_error(error)).decode(), now_us)
            for key, error in sorted(last.items(), key=itemgetter(0))
        ]
        yield _REMEMBER.bind(rows=rows)


def prune_rejected(*, before_us: int, keep: int, rows_max: int) -> Program[int]:
    """Delete rejected posts that are older than `before_us` or not among the newest `keep`. Return their number.

    One call deletes about `rows_max` posts at most.
    """
    over = yield _NEWEST.bind(keep=keep)
    until_us = max(before_us, over[0][0]) if over else before_us
    bound = yield _OLDEST.bind(rows_max=rows_max)
    rows = yield _PRUNE.bind(until_us=min(until_us, bound[0][0]) if bound else until_us)
    return int(rows[0][0])


def encode_error(error: StorageError) -> RecordedError:
    return type(error).__name__, error.detail, error.pointer


def decode_error(recorded: RecordedError) -> PostError:
    name, detail, pointer = recorded
    # A newer version of the service may have stored the name of a class that this version does not have.
    kind = getattr(errors, name, PostRejectedError)
    known = isinstance(kind, type) and issubclass(kind, PostError)
    return (kind if known else PostRejectedError)(detail, pointer=pointer)


_named = (col("board_key").in_(param("board_keys")), col("post_hash").eq(param("post_hash")))
_FIND = select(col("error")).from_(REJECTED_POSTS).where(*_named).order_by(desc(col("rejected_at"))).limit(1).prepared()
_REMEMBER = (
    insert(REJECTED_POSTS)
    .rows(param("rows"), **TABLES[REJECTED_POSTS].kinds)
    .on_conflict("board_key", "post_hash")
    .overwrite()
    .prepared()
)
_times = select(col("rejected_at")).from_(REJECTED_POSTS)
_OLDEST = _times.order_by(asc(col("rejected_at"))).limit(1).offset(param("rows_max")).prepared()
_NEWEST = _times.order_by(desc(col("rejected_at"))).limit(1).offset(param("keep")).prepared()
_PRUNE = delete(REJECTED_POSTS).where(col("rejected_at").le(param("until_us"))).prepared()

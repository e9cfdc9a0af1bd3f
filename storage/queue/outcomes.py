"""Finds the fate of a post: whether it was applied, was rejected or still waits in the queue.

`find_post_fate` returns the fate of one owner's post, and `list_post_fates` the fates of all posts with a post id. Both
read the queue, the applied posts and the rejected posts in one snapshot, so a post that moves from the queue to a board
at that moment is always found. Only a post to boards on several servers can be missed, while these servers commit it.

The stored fate of a post has only a hash of its owner. Lists take the owners' names from the journal and the queue,
from which an erasure removes the names.

The reason for each rejection is stored, because the sender got the answer "accepted" long before. Rejections are stored
by board and post id, up to a maximum age and number, in the partition in which the post waited.
"""

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple

import msgspec

from querybuilder import asc, col, delete, desc, param, select
from storage import errors
from storage.errors import PostError, PostRejectedError, StorageError, UnknownPostError
from storage.leaves.catalog_rows import find_keys_ever, find_posted_leaves
from storage.log import partition_journal
from storage.log.bundles import RecordedError
from storage.posting.post_ids import PostIds, in_range, list_keys, range_of
from storage.records import Board, Family, Leaf, PartOutcome, PostStatus
from storage.schema.creation import in_each_partition
from storage.schema.ingest_tables import REJECTED_POSTS
from storage.schema.placement import prepare_put_rows
from storage.store import Program, Store, in_partition

from . import ingest_queue
from .ingest_queue import find_queues, list_queues
from .post_blocks import decode_block, encode_json

POSTS_LISTED_MAX = 200  # the most posts with one post id in a list
_LISTED_AND_ONE = POSTS_LISTED_MAX + 1
BLOCKS_MAX = 1_000  # the most blocks read; only blocks whose text contains the post id are read


class PostFate(NamedTuple):
    owner: str | None  # None: the owner was not looked up, or the journal no longer names the owner
    outcome: PartOutcome | None  # None: the post waits in the queue
    settled_us: int | None = None  # the time that the journal has for the post; None: the post waits


Fates = dict[str, PostFate]  # by the key of the post, see `PostIds`


async def find_post_fate(store: Store, post_ids: PostIds, board: Board, post_id: str, owner: str) -> PartOutcome | None:
    """Find the outcome of an owner's post on a board, or return None if the post still waits in the queue.

    Raises:
        UnknownPostError: the store knows nothing about the post.
    """
    key, leaf = post_ids.hash_post_id(post_id, owner), board.leaf_of(owner)
    queues = find_queues(board, store.dialect, store.partitions)
    found = await store.read(lambda: _find_settled(queues, board, leaf, key))
    if not found:  # the queue may be long, so it is read last, on a connection for heavy reads
        # A post that was queued before its board was moved or split waits in the board's former partition. So the other
        # partitions are queried, too, but last, because they may not respond.
        every = [*dict.fromkeys([*queues, *list_queues(store.dialect, store.partitions)])]
        found = await store.read(lambda: _find_anywhere(every, board, leaf, post_id, key), heavy=True)
    return found[key].outcome


async def list_post_fates(store: Store, post_ids: PostIds, board: Board, post_id: str) -> list[PostFate]:
    """List the fates of up to `POSTS_LISTED_MAX` + 1 posts with a post id, by owner. All partitions are queried.

    Raises:
        UnknownPostError: the store knows nothing about such a post.
    """
    queues = list_queues(store.dialect, store.partitions)

    def program() -> Program[Fates]:
        found = yield from _find_anywhere(queues, board, board, post_id, post_ids.hash_id(post_id))
        found = {key: found[key] for key in sorted(found)[:_LISTED_AND_ONE]}
        times_us = {fate.settled_us for fate in found.values() if fate.settled_us is not None}
        keys = yield from _find_keys(board)
        named = yield from in_each_partition(lambda: partition_journal.find_owners(post_id, keys, times_us))
        for owners in named.values():
            for owner in owners:
                if (key := post_ids.hash_post_id(post_id, owner)) in found:
                    found[key] = found[key]._replace(owner=owner)
        return found

    fates = (await store.read(program, heavy=True)).values()
    return sorted(fates, key=lambda fate: (fate.owner is None, fate.owner))


async def is_waiting(store: Store, place: Board | Family, post_id: str, post_hash: str) -> bool:
    """Return whether a post to this board or family is waiting in the queue. `post_hash`: the post's key."""

    def program() -> Program[bool]:
        keys = [place.key] if isinstance(place, Family) else (yield from _find_keys(place))
        for partition in list_queues(store.dialect, store.partitions):
            if (yield from in_partition(partition, _find_waiting(keys, post_id, post_hash))):
                return True
        return False

    return await store.read(program, heavy=True)


def _find_anywhere(queues: Sequence[int], board: Board, part: Leaf | Board, post_id: str, begin: str) -> Program[Fates]:
    keys = yield from _find_keys(board)
    found: Fates = {}
    for partition in queues:
        found |= yield from in_partition(partition, _find_waiting(keys, post_id, begin))
        if begin in found:  # so `begin` is a whole key, and its only post was found
            return found
    found |= yield from _find_settled(queues, board, part, begin)
    if not found:
        raise UnknownPostError
    return found


def _find_waiting(keys: Sequence[int], post_id: str, begin: str) -> Program[Fates]:
    found: Fates = {}
    for waiting in (yield from ingest_queue.find_mentions(encode_json(post_id), blocks_max=BLOCKS_MAX)):
        block = decode_block(waiting.block)
        for queued in block.posts:
            key = queued.post_hash or ""
            named = (queued.family_key, *(block.boards[place][0] for place in queued.boards))
            if key.startswith(begin) and not set(keys).isdisjoint(named):
                found[key] = PostFate(queued.owner, None)
    return found


def _find_settled(queues: Sequence[int], board: Board, part: Leaf | Board, begin: str) -> Program[Fates]:
    keys = yield from _find_keys(board)
    found: Fates = {}
    for partition in queues:
        found |= yield from in_partition(partition, find_rejected(keys, begin))
    for each in (yield from find_posted_leaves(part)):
        for post, at_us in (yield from in_partition(each.partition, list_keys(each, begin, _LISTED_AND_ONE))):
            for outcome in post.parts:
                if outcome.leaf_key == each.key:
                    found[post.post_hash] = PostFate(None, outcome, at_us)
    return found


def _find_keys(board: Board) -> Program[list[int]]:
    return (yield from find_keys_ever(board)) if board.is_spread or board.gate.archived_us is not None else [board.key]


def find_rejected(leaf_keys: Sequence[int], begin: str) -> Program[Fates]:
    """Find the fates of rejected posts whose keys begin with `begin`. `leaf_keys`: all keys that the board ever had."""
    rows = yield _FIND.bind(leaf_keys=leaf_keys, **range_of(begin), limit=_LISTED_AND_ONE)
    found: Fates = {}
    for post_hash, error, at_us in reversed(rows):  # the newest row of a key comes last, so it replaces older ones
        outcome = PartOutcome(PostStatus.REJECTED, error=decode_error(msgspec.json.decode(error)))
        found[post_hash] = PostFate(None, outcome, at_us)
    return found


def store_rejected(rejected: Iterable[tuple[int, str, PostError]], now_us: int) -> Program[None]:
    """Store rejected posts, given as (leaf key, post hash, error). If a key and hash repeat, keep the last."""
    last = {(leaf_key, post_hash): error for leaf_key, post_hash, error in rejected}
    if last:
        rows = [
            (*key, msgspec.json.encode(encode_error(error)).decode(), now_us)
            for key, error in sorted(last.items(), key=itemgetter(0))
        ]
        yield _REMEMBER.bind(rows=rows)


def prune_rejected(*, before_us: int, keep: int, rows_max: int) -> Program[int]:
    """Delete rejected posts that are older than `before_us` or not among the newest `keep`. Return their number.

    One call deletes at most about `rows_max` posts.
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


_found = select(col("post_hash"), col("error"), col("rejected_at")).from_(REJECTED_POSTS)
_found = _found.where(col("leaf_key").in_(param("leaf_keys")), *in_range(col("post_hash")))
_FIND = _found.order_by(desc(col("rejected_at"))).limit(param("limit")).packed().prepared()
_REMEMBER = prepare_put_rows(REJECTED_POSTS)
_times = select(col("rejected_at")).from_(REJECTED_POSTS)
_OLDEST = _times.order_by(asc(col("rejected_at"))).limit(1).offset(param("rows_max")).prepared()
_NEWEST = _times.order_by(desc(col("rejected_at"))).limit(1).offset(param("keep")).prepared()
_PRUNE = delete(REJECTED_POSTS).where(col("rejected_at").le(param("until_us"))).prepared()

"""Stores the ingest queue: blocks of accepted posts, by shard, in the order in which they were accepted.

Every partition has its own queue, and all queues have the same number of shards. A post waits in its boards' partition,
or in the control partition if its boards are in several. Run a program in the partition of its queue. The control
partition stores the number of shards, so that a process can start while another partition is unreachable.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple, TypeVar

from querybuilder import (
    INTEGER,
    Dialect,
    Prepared,
    asc,
    col,
    contains_text,
    count,
    delete,
    excluded,
    insert,
    min_,
    param,
    plus,
    select,
    sum_,
    union_all,
    update,
)
from storage.errors import LostRaceError
from storage.records import Board, Post
from storage.schema.creation import is_apart
from storage.schema.ingest_tables import INGEST_BLOCKS, INGEST_SHARDS
from storage.schema.placement import TABLES
from storage.schema.sequences import take_number
from storage.store import CONTROL, Program, in_partition

from .post_blocks import Block, encode_json

T = TypeVar("T")

_HEAD = tuple(map(col, ("shard", "number", "queued_at", "posts", "edition")))


class Shard(NamedTuple):
    partition: int
    number: int  # within the partition, 0-based


class NewBlock(NamedTuple):
    shard: int
    queued_at_us: int
    posts: int
    block: str  # the text of the block, see `post_blocks`


class BlockHead(NamedTuple):
    shard: int
    number: int
    queued_at_us: int
    posts: int  # how many posts the block has
    edition: int  # grows when the block is rewritten


class WaitingBlock(NamedTuple):
    head: BlockHead
    block: str


@dataclass(frozen=True, slots=True)
class ShardBacklog:
    posts: int
    oldest_us: int  # the time at which the oldest post was accepted


@dataclass(frozen=True, slots=True)
class ShardCount:
    applied: int  # number of posts that workers took from the shard and applied or rejected
    busy_us: int  # total time that workers were busy


def list_queues(dialect: Dialect, partitions: int) -> list[int]:
    """List the partitions that have queues, in the order in which transactions lock their rows.

    If there are several partitions, and the control partition has its own database schema, it has a queue as well, for
    posts to boards in several partitions.
    """
    return [*([CONTROL] if partitions > 1 and is_apart(dialect) else []), *range(partitions)]


def find_queue(post: Post, dialect: Dialect) -> int:
    first = post.parts[0].leaf.partition
    if all(part.leaf.partition == first for part in post.parts):
        return first
    return _queue_of_several(dialect)


def find_queues(board: Board, dialect: Dialect, partitions: int) -> list[int]:
    """Find the partitions in which a post to this board can wait, unless the board was moved or split afterwards."""
    places = {leaf.partition for leaf in board.leaves}
    return sorted({*places, *([_queue_of_several(dialect)] if partitions > 1 else [])})


def _queue_of_several(dialect: Dialect) -> int:
    return CONTROL if is_apart(dialect) else 0


def read_queues(queues: Iterable[int], read: Callable[[], Program[dict[int, T]]]) -> Program[dict[Shard, T]]:
    """Run `read` in the partition of each queue, and return the results by shard."""
    found: dict[Shard, T] = {}
    for partition in queues:
        by_number = yield from in_partition(partition, read())
        found |= {Shard(partition, number): each for number, each in by_number.items()}
    return found


def count_shards() -> Program[int]:
    """Read the number of shards in each partition, or 0 if the queues have not been divided into shards yet."""
    rows = yield _SHARDS.bind().at(CONTROL)
    return int(rows[0][0])


def make_shards(wanted: int) -> Program[int]:
    """Divide the queues into `wanted` shards each, unless they are divided already. Return the final number of shards.

    All partitions keep this number forever, so that an owner's posts are never in two shards of a partition.
    """
    shards = yield from count_shards()
    if not shards:
        yield _MAKE_SHARDS.bind(rows=[(shard, 0, 0) for shard in range(wanted)]).at(CONTROL)
        shards = yield from count_shards()
    return shards


def append_blocks(blocks: Sequence[NewBlock]) -> Program[None]:
    last = yield from take_number("ingest_blocks", len(blocks))
    rows = [(number, *head, 1, text) for number, (*head, text) in enumerate(blocks, last - len(blocks) + 1)]
    yield _APPEND.bind(rows=rows)


def read_heads(shards: Sequence[int], *, blocks_max: int) -> Program[list[BlockHead]]:
    """Read the heads (everything but the text) of up to `blocks_max` oldest blocks of each shard, oldest first."""
    if not shards:
        return []
    numbered = {f"shard_{index}": shard for index, shard in enumerate(shards)}
    rows = yield _heads_of(len(shards)).bind(limit=blocks_max, **numbered)
    return sorted(map(BlockHead._make, rows), key=attrgetter("number"))


@lru_cache
def _heads_of(shards: int) -> Prepared:
    # Each part of the union reads from the oldest block of one shard up to the limit. So a shard with many blocks does
    # not slow down the others.
    heads = select(*_HEAD).from_(INGEST_BLOCKS)
    ordered = heads.order_by(asc(col("number"))).limit(param("limit", INTEGER))
    arms = [ordered.where(col("shard").eq(param(f"shard_{index}", INTEGER))) for index in range(shards)]
    return union_all(*arms).packed().prepared()


def read_blocks(heads: Sequence[BlockHead]) -> Program[list[WaitingBlock]]:
    """Read these blocks with their posts, oldest first. Leave out blocks that no longer exist."""
    rows = yield _BLOCKS.bind(**_named(heads))
    return sorted((WaitingBlock(BlockHead(*head), block) for *head, block in rows), key=attrgetter("head.number"))


def take_blocks(heads: Sequence[BlockHead]) -> Program[None]:
    """Remove these blocks in this transaction. Raise `LostRaceError` if one has changed since its head was read."""
    rows = yield _DELETE.bind(**_named(heads))
    if set(map(tuple, rows)) != {(head.number, head.edition) for head in heads}:
        raise LostRaceError("a block was deleted or replaced meanwhile")


def rewrite_block(head: BlockHead, block: Block) -> Program[bool]:
    """Replace a block and return True. If it has changed since `head` was read, return False."""
    rows = yield _REWRITE.bind(
        posts=len(block.posts), block=encode_json(block), shard=head.shard, number=head.number, edition=head.edition
    )
    return bool(rows[0][0])


def read_backlog() -> Program[dict[int, ShardBacklog]]:
    """Read the backlog of each shard that has posts. This reads the head of every block."""
    rows = yield _BACKLOG.bind()
    return {shard: ShardBacklog(posts, oldest_us) for shard, posts, oldest_us in rows}


def is_empty() -> Program[bool]:
    """Return whether no block is waiting. This is one short statement, because workers call it very often."""
    return not (yield _ANY.bind())


def find_mentions(
    text: str, *, blocks_max: int, shard: int | None = None, past: int = 0
) -> Program[list[WaitingBlock]]:
    """Find up to `blocks_max` blocks whose text contains `text`, oldest first.

    `shard`: return only blocks of this shard with a number above `past`.
    """
    if shard is None:
        rows = yield _MENTIONING.bind(text=text, limit=blocks_max)
    else:
        rows = yield _MENTIONING_IN.bind(text=text, limit=blocks_max, shard=shard, past=past)
    return [WaitingBlock(BlockHead(*head), block) for *head, block in rows]


def read_counts() -> Program[dict[int, ShardCount]]:
    """Read the stored counts by shard, leaving out shards for which this partition has not stored a count yet."""
    rows = yield _COUNTS.bind()
    return {shard: ShardCount(applied, busy_us) for shard, applied, busy_us in rows}


def add_counts(applied: dict[int, int], *, busy_us: int) -> Program[None]:
    """Add to the shards' counts of applied posts. Add `busy_us` to only one shard, because readers use sums."""
    shards = sorted(applied)  # all writers use one order, so they cannot deadlock
    rows = [(shard, applied[shard], busy_us if shard == shards[0] else 0) for shard in shards]
    yield _COUNT.bind(rows=rows)


def _named(heads: Sequence[BlockHead]) -> dict[str, object]:
    # Two lists, and not pairs, find exactly these blocks, because a block number is unique in the partition.
    return {"shards": sorted({head.shard for head in heads}), "numbers": [head.number for head in heads]}


_APPEND = insert(INGEST_BLOCKS).rows(param("rows"), **TABLES[INGEST_BLOCKS].kinds).prepared()
_chosen = (col("shard").in_(param("shards")), col("number").in_(param("numbers")))
_BLOCKS = select(*_HEAD, col("block")).from_(INGEST_BLOCKS).where(*_chosen).packed().prepared()
_DELETE = delete(INGEST_BLOCKS).where(*_chosen).returning(col("number"), col("edition")).prepared()
_REWRITE = (
    update(INGEST_BLOCKS)
    .set(posts=param("posts"), block=param("block"), edition=plus(col("edition"), 1))
    .where(*(col(name).eq(param(name)) for name in ("shard", "number", "edition")))
    .prepared()
)
_BACKLOG = (
    select(col("shard"), sum_(col("posts")), min_(col("queued_at")))
    .from_(INGEST_BLOCKS)
    .group_by(col("shard"))
    .packed()
    .prepared()
)
_ANY = select(col("number")).from_(INGEST_BLOCKS).order_by(asc(col("shard")), asc(col("number"))).limit(1).prepared()
_found = select(*_HEAD, col("block")).from_(INGEST_BLOCKS).where(contains_text(col("block"), param("text")))
_found = _found.order_by(asc(col("number"))).limit(param("limit")).packed()
_MENTIONING = _found.prepared()
_MENTIONING_IN = _found.where(col("shard").eq(param("shard")), col("number").gt(param("past"))).prepared()
_SHARDS = select(count()).from_(INGEST_SHARDS).prepared()
_shards = insert(INGEST_SHARDS).rows(param("rows"), **TABLES[INGEST_SHARDS].kinds).on_conflict("shard")
_MAKE_SHARDS = _shards.do_nothing().prepared()
_COUNTS = select(col("shard"), col("applied"), col("busy_us")).from_(INGEST_SHARDS).packed().prepared()
_added = {name: plus(col(name, INGEST_SHARDS), excluded(name)) for name in ("applied", "busy_us")}
_COUNT = _shards.do_update(where=None, **_added).prepared()

"""The ingest queue in the store: blocks of accepted posts, by shard, in the order in which they were accepted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from querybuilder import (
    INTEGER,
    TEXT,
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
from storage.schema.ingest_tables import INGEST_BLOCKS, INGEST_SHARDS
from storage.store import Program, Row

_HEAD = tuple(map(col, ("shard", "number", "queued_at", "posts", "edition")))


class NewBlock(NamedTuple):
    shard: int
    queued_at_us: int
    posts: int
    block: str
    edition: int = 1


class BlockHead(NamedTuple):
    shard: int
    number: int
    queued_at_us: int
    posts: int
    edition: int

    @property
    def block_id(self) -> tuple[int, int]:
        return self[:2]


class WaitingBlock(NamedTuple):
    head: BlockHead
    block: str


@dataclass(frozen=True, slots=True)
class ShardBacklog:
    """The posts that wait in a shard."""

    posts: int
    oldest_us: int  # the time at which the oldest post was accepted


@dataclass(frozen=True, slots=True)
class ShardCount:
    """The work of all workers for a shard since the shard was made."""

    applied: int  # number of applied posts
    busy_us: int  # total time that workers were busy


class IngestQueue:
    """Programs on the queue."""

    def __init__(self) -> None:
        self._append = (
            insert(INGEST_BLOCKS)
            .rows(param("rows"), shard=INTEGER, queued_at=INTEGER, posts=INTEGER, block=TEXT, edition=INTEGER)
            .prepared()
        )
        self._heads: dict[int, Prepared] = {}  # statements of `heads`, by the number of shards that they read
        one = (col("shard").in_(param("shards")), col("number").in_(param("numbers")))
        blocks = select(col("shard"), col("number"), col("block")).from_(INGEST_BLOCKS).where(*one)
        self._blocks = blocks.packed().prepared()
        self._delete = (
            delete(INGEST_BLOCKS).where(*one).returning(col("shard"), col("number"), col("edition")).prepared()
        )
        as_read = (col(name).eq(param(name)) for name in ("shard", "number", "edition"))
        self._rewrite = (
            update(INGEST_BLOCKS)
            .set(posts=param("posts"), block=param("block"), edition=plus(col("edition"), 1))
            .where(*as_read)
            .prepared()
        )
        self._backlog = (
            select(col("shard"), sum_(col("posts")), min_(col("queued_at")))
            .from_(INGEST_BLOCKS)
            .group_by(col("shard"))
            .packed()
            .prepared()
        )
        any_block = select(col("number")).from_(INGEST_BLOCKS).order_by(asc(col("shard")), asc(col("number"))).limit(1)
        self._any = any_block.prepared()
        found = select(*_HEAD, col("block")).from_(INGEST_BLOCKS).where(contains_text(col("block"), param("text")))
        found = found.order_by(asc(col("number"))).limit(param("limit")).packed()
        self._mentioning = found.prepared()
        past = (col("shard").eq(param("shard")), col("number").gt(param("past")))
        self._mentioning_in = found.where(*past).prepared()
        self._shards = select(count()).from_(INGEST_SHARDS).prepared()
        self._make_shards = (
            insert(INGEST_SHARDS)
            .rows(param("rows"), shard=INTEGER, applied=INTEGER, busy_us=INTEGER)
            .on_conflict("shard")
            .do_nothing()
            .prepared()
        )
        self._counts = select(col("shard"), col("applied"), col("busy_us")).from_(INGEST_SHARDS).packed().prepared()
        self._count = (
            insert(INGEST_SHARDS)
            .rows(param("rows"), shard=INTEGER, applied=INTEGER, busy_us=INTEGER)
            .on_conflict("shard")
            .do_update(
                applied=plus(col("applied", INGEST_SHARDS), excluded("applied")),
                busy_us=plus(col("busy_us", INGEST_SHARDS), excluded("busy_us")),
            )
            .prepared()
        )

    def shards(self) -> Program[int]:
        """Return the number of shards in the store, or 0 if the queue was not divided yet."""
        [[shards]] = yield self._shards.bind()
        return int(shards)

    def make_shards(self, wanted: int) -> Program[int]:
        """Divide the queue into `wanted` shards, unless it is divided already. Return the final number of shards.

        An owner's posts must never be in two shards.
        """
        shards = yield from self.shards()
        if not shards:
            yield self._make_shards.bind(rows=[(shard, 0, 0) for shard in range(wanted)])
            shards = yield from self.shards()
        return shards

    def append_blocks(self, blocks: Iterable[NewBlock]) -> Program[None]:
        yield self._append.bind(rows=blocks)

    def heads(self, shards: Sequence[int], *, blocks_max: int) -> Program[list[BlockHead]]:
        """Return the heads of the oldest blocks, up to `blocks_max` of each shard, in one list, oldest first."""
        if not shards:
            return []
        statement = self._heads.get(len(shards))
        if statement is None:
            statement = self._heads[len(shards)] = self._compile_heads(len(shards))
        rows = yield statement.bind(limit=blocks_max, **{f"shard_{index}": each for index, each in enumerate(shards)})
        return sorted((BlockHead(*row) for row in rows), key=_number)

    def _compile_heads(self, shards: int) -> Prepared:
        # Each shard has its own part of the union, which reads from the shard's oldest block up to the limit. So a
        # shard with many blocks does not slow down the others.
        heads = select(*_HEAD).from_(INGEST_BLOCKS)
        ordered = heads.order_by(asc(col("number"))).limit(param("limit", INTEGER))
        arms = [ordered.where(col("shard").eq(param(f"shard_{index}", INTEGER))) for index in range(shards)]
        return union_all(*arms).packed().prepared()

    def blocks(self, heads: Sequence[BlockHead]) -> Program[list[WaitingBlock]]:
        """Return these blocks with their posts, in the same order. Leave out blocks that were removed meanwhile."""
        rows = yield self._blocks.bind(**_named(heads))
        texts = {(shard, number): block for shard, number, block in rows}
        return [WaitingBlock(head, texts[head.block_id]) for head in heads if head.block_id in texts]

    def take_blocks(self, heads: Sequence[BlockHead]) -> Program[None]:
        """Remove these blocks in the current transaction; raise `LostRaceError` if one of them has changed."""
        rows = yield self._delete.bind(**_named(heads))
        taken = {(shard, number): edition for shard, number, edition in rows}
        if any(taken.get(head.block_id) != head.edition for head in heads):
            raise LostRaceError("a block was deleted or replaced meanwhile")

    def rewrite(self, head: BlockHead, *, posts: int, block: str) -> Program[bool]:
        """Replace the text of a block and return True, or return False if the block has changed since `head` was read.

        `posts` is the number of posts in the new text.
        """
        rows = yield self._rewrite.bind(
            posts=posts, block=block, shard=head.shard, number=head.number, edition=head.edition
        )
        return bool(rows[0][0])

    def backlog(self) -> Program[dict[int, ShardBacklog]]:
        """Return the backlog of each shard that has posts. The statement reads the head of every block."""
        rows = yield self._backlog.bind()
        return {shard: ShardBacklog(posts, oldest_us) for shard, posts, oldest_us in rows}

    def is_empty(self) -> Program[bool]:
        """Return whether no block waits. Workers call this very often, so it is one short statement."""
        return not (yield self._any.bind())

    def find_mentions(self, text: str, *, blocks_max: int) -> Program[list[WaitingBlock]]:
        """Return up to `blocks_max` blocks whose text contains `text`, oldest first."""
        rows = yield self._mentioning.bind(text=text, limit=blocks_max)
        return [_waiting(row) for row in rows]

    def find_mentions_in_shard(
        self, shard: int, text: str, *, past: int, blocks_max: int
    ) -> Program[list[WaitingBlock]]:
        """Return up to `blocks_max` blocks of a shard whose number is above `past` and whose text contains `text`."""
        rows = yield self._mentioning_in.bind(shard=shard, text=text, past=past, limit=blocks_max)
        return [_waiting(row) for row in rows]

    def counts(self) -> Program[dict[int, ShardCount]]:
        rows = yield self._counts.bind()
        return {shard: ShardCount(applied, busy_us) for shard, applied, busy_us in rows}

    def add_counts(self, applied: dict[int, int], *, busy_us: int) -> Program[None]:
        """Add applied posts to the counts of their shards. Add the whole busy time to the first of the shards."""
        shards = sorted(applied)  # all writers use one order, so they cannot deadlock
        rows = [(shard, applied[shard], busy_us if shard == shards[0] else 0) for shard in shards]
        yield self._count.bind(rows=rows)


def _waiting(row: Row) -> WaitingBlock:
    *head, block = row
    return WaitingBlock(BlockHead(*head), block)


def _number(head: BlockHead) -> int:
    return head.number


def _named(heads: Sequence[BlockHead]) -> dict[str, object]:
    # No other pairs of shard and number match, because a block number is unique in the store.
    return {"shards": sorted({head.shard for head in heads}), "numbers": [head.number for head in heads]}


ingest_queue = IngestQueue()

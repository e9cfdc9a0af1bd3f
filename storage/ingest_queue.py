"""The ingest queue in the store: blocks of accepted posts, by shard and in the order in which they were accepted.

    append (durable: accepted) ──> waiting ──> take, in the transaction that applies them ──> gone

The rule: a block leaves by the transaction that applies its posts and by no other, so a crash repeats nothing and loses
nothing. Of two workers that take the same block, whoever is second finds it gone and is rolled back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from querybuilder import (
    INTEGER,
    TEXT,
    Dialect,
    Statement,
    asc,
    col,
    count,
    delete,
    excluded,
    holds,
    insert,
    min_,
    param,
    plus,
    select,
    sum_,
    union_all,
    update,
)

from .errors import LostRace
from .ingest_schema import INGEST, INGEST_SHARDS
from .store import Program, Row, Store

_HEAD = tuple(map(col, ("shard", "number", "queued_at", "posts", "edition")))


class Appended(NamedTuple):
    """A block to be queued."""

    shard: int
    queued_at_us: int
    posts: int
    block: str
    edition: int = 1


class Head(NamedTuple):
    """What a block is, without what is in it."""

    shard: int
    number: int
    queued_at_us: int
    posts: int
    edition: int

    @property
    def place(self) -> tuple[int, int]:
        """What tells it from other blocks."""
        return self[:2]


class Waiting(NamedTuple):
    """A block and what is in it."""

    head: Head
    block: str


@dataclass(frozen=True, slots=True)
class ShardBacklog:
    """What waits in a shard."""

    posts: int
    oldest_us: int  # when the oldest of them was accepted


@dataclass(frozen=True, slots=True)
class ShardCount:
    """What workers ever did for a shard."""

    applied: int  # posts
    busy_us: int


class IngestQueue:
    """The statements, for one dialect; see `ingest_queue`."""

    def __init__(self, dialect: Dialect) -> None:
        self._append = (
            insert(INGEST)
            .rows(param("rows"), shard=INTEGER, queued_at=INTEGER, posts=INTEGER, block=TEXT, edition=INTEGER)
            .compile(dialect)
        )
        self._dialect = dialect
        self._heads: dict[int, Statement] = {}  # by how many shards are asked for
        one = (col("shard").in_(param("shards")), col("number").in_(param("numbers")))
        blocks = select(col("shard"), col("number"), col("block")).from_(INGEST).where(*one)
        self._blocks = blocks.packed().compile(dialect)
        self._delete = (
            delete(INGEST).where(*one).returning(col("shard"), col("number"), col("edition")).compile(dialect)
        )
        as_read = (col(name).eq(param(name)) for name in ("shard", "number", "edition"))
        self._rewrite = (
            update(INGEST)
            .set(posts=param("posts"), block=param("block"), edition=plus(col("edition"), 1))
            .where(*as_read)
            .compile(dialect)
        )
        self._backlog = (
            select(col("shard"), sum_(col("posts")), min_(col("queued_at")))
            .from_(INGEST)
            .group_by(col("shard"))
            .packed()
            .compile(dialect)
        )
        any_block = select(col("number")).from_(INGEST).order_by(asc(col("shard")), asc(col("number"))).limit(1)
        self._any = any_block.compile(dialect)
        found = select(*_HEAD, col("block")).from_(INGEST).where(holds(col("block"), param("text")))
        found = found.order_by(asc(col("number"))).limit(param("limit")).packed()
        self._mentioning = found.compile(dialect)
        past = (col("shard").eq(param("shard")), col("number").gt(param("past")))
        self._mentioning_in = found.where(*past).compile(dialect)
        self._shards = select(count()).from_(INGEST_SHARDS).compile(dialect)
        self._make_shards = (
            insert(INGEST_SHARDS)
            .rows(param("rows"), shard=INTEGER, applied=INTEGER, busy_us=INTEGER)
            .on_conflict("shard")
            .do_nothing()
            .compile(dialect)
        )
        self._counts = (
            select(col("shard"), col("applied"), col("busy_us")).from_(INGEST_SHARDS).packed().compile(dialect)
        )
        self._count = (
            insert(INGEST_SHARDS)
            .rows(param("rows"), shard=INTEGER, applied=INTEGER, busy_us=INTEGER)
            .on_conflict("shard")
            .do_update(
                applied=plus(col("applied", INGEST_SHARDS), excluded("applied")),
                busy_us=plus(col("busy_us", INGEST_SHARDS), excluded("busy_us")),
            )
            .compile(dialect)
        )

    def shards(self) -> Program[int]:
        """How many shards the store has; 0: they were not made yet."""
        [[shards]] = yield self._shards.bind()
        return int(shards)

    def make_shards(self, wanted: int) -> Program[int]:
        """Divide the queue, once for ever: an owner's posts must not be in two shards. Answers how many there are."""
        shards = yield from self.shards()
        if not shards:
            yield self._make_shards.bind(rows=[(shard, 0, 0) for shard in range(wanted)])
            shards = yield from self.shards()
        return shards

    def append(self, blocks: Iterable[Appended]) -> Program[None]:
        """Queue blocks, in this order."""
        yield self._append.bind(rows=blocks)

    def heads(self, shards: Sequence[int], *, blocks_max: int) -> Program[list[Head]]:
        """The oldest blocks of each of these shards, the oldest of all first."""
        if not shards:
            return []
        statement = self._heads.get(len(shards))
        if statement is None:
            statement = self._heads[len(shards)] = self._compile_heads(len(shards))
        rows = yield statement.bind(limit=blocks_max, **{f"shard_{index}": each for index, each in enumerate(shards)})
        return sorted((Head(*row) for row in rows), key=_number)

    def _compile_heads(self, shards: int) -> Statement:
        # An arm a shard: each starts at its own oldest block and ends at its limit, whoever else's posts wait beside.
        heads = select(*_HEAD).from_(INGEST)
        ordered = heads.order_by(asc(col("number"))).limit(param("limit", INTEGER))
        arms = [ordered.where(col("shard").eq(param(f"shard_{index}", INTEGER))) for index in range(shards)]
        return union_all(*arms).packed().compile(self._dialect)

    def blocks(self, heads: Sequence[Head]) -> Program[list[Waiting]]:
        """What is in these blocks, in their order; those that are gone are left out."""
        rows = yield self._blocks.bind(**_named(heads))
        texts = {(shard, number): block for shard, number, block in rows}
        return [Waiting(head, texts[head.place]) for head in heads if head.place in texts]

    def take(self, heads: Sequence[Head]) -> Program[None]:
        """Have these blocks gone when this transaction is committed.

        Raises:
            LostRace: somebody took one of them, or wrote it anew.
        """
        rows = yield self._delete.bind(**_named(heads))
        taken = {(shard, number): edition for shard, number, edition in rows}
        if any(taken.get(head.place) != head.edition for head in heads):
            raise LostRace("a block was gone, or another one")

    def rewrite(self, head: Head, *, posts: int, block: str) -> Program[bool]:
        """Have other posts in a block, so many, if it is still as it was read; whether it was."""
        rows = yield self._rewrite.bind(
            posts=posts, block=block, shard=head.shard, number=head.number, edition=head.edition
        )
        return bool(rows[0][0])

    def backlog(self) -> Program[dict[int, ShardBacklog]]:
        """What waits, by shard; those where nothing does are left out."""
        rows = yield self._backlog.bind()
        return {shard: ShardBacklog(posts, oldest_us) for shard, posts, oldest_us in rows}

    async def is_empty(self, store: Store) -> bool:
        """Whether nothing waits, as one short statement: workers ask all the time."""
        return not await store.read_one(self._any.bind())

    async def look(self, store: Store) -> dict[int, ShardBacklog]:
        """The backlog, as one statement; it reads the head of every block."""
        rows = await store.read_one(self._backlog.bind())
        return {shard: ShardBacklog(posts, oldest_us) for shard, posts, oldest_us in rows}

    def mentioning(self, text: str, *, blocks_max: int) -> Program[list[Waiting]]:
        """Blocks in whose text another one stands, the oldest first."""
        rows = yield self._mentioning.bind(text=text, limit=blocks_max)
        return [_waiting(row) for row in rows]

    def mentioning_in(self, shard: int, text: str, *, past: int, blocks_max: int) -> Program[list[Waiting]]:
        """The same in one shard, past a number."""
        rows = yield self._mentioning_in.bind(shard=shard, text=text, past=past, limit=blocks_max)
        return [_waiting(row) for row in rows]

    def counts(self) -> Program[dict[int, ShardCount]]:
        """What workers did so far, by shard."""
        rows = yield self._counts.bind()
        return {shard: ShardCount(applied, busy_us) for shard, applied, busy_us in rows}

    def count(self, applied: dict[int, int], *, busy_us: int) -> Program[None]:
        """Count posts by shard, and the time that a worker was busy."""
        shards = sorted(applied)  # one order for all who write: no deadlock
        rows = [(shard, applied[shard], busy_us if shard == shards[0] else 0) for shard in shards]
        yield self._count.bind(rows=rows)


def _waiting(row: Row) -> Waiting:
    *head, block = row
    return Waiting(Head(*head), block)


def _number(head: Head) -> int:
    return head.number


def _named(heads: Sequence[Head]) -> dict[str, object]:
    # Numbers are the store's own: of no two shards the same.
    return {"shards": sorted({head.shard for head in heads}), "numbers": [head.number for head in heads]}


@lru_cache
def ingest_queue(dialect: Dialect) -> IngestQueue:
    """The queue's statements, compiled once."""
    return IngestQueue(dialect)

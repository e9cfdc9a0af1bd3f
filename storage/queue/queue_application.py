"""Applies queued posts, in transactions that take some of each shard's oldest posts out of the queue and apply them.

    read the oldest ──> look up their boards ──> one transaction: keep the leases · take · apply · remember rejections

These steps are called a round. A round takes posts from one partition's queue, so its transaction changes only that
partition, unless a post goes to boards of several partitions.

The transaction begins by renewing the worker's leases on the shards. If another worker has taken over a shard, for
example because the first worker was paused, the first worker's transaction is rolled back.

A post is not applied to a board that was deleted or emptied after the post was accepted. A post to several boards is
applied to all of them or to none, except that a board of a family, or one that was emptied or closed, rejects only its
own part. The transaction that applies a post checks whether its boards were open when the post was accepted. The
closing job shuts a board only once the posts queued before its end are applied.

If a post cannot be applied even on its own, it is rejected after `ingest_alone_attempts_max` attempts, so that the
posts behind it can be applied.

A round must end well before its leases expire, even if each post goes to many boards. Otherwise another worker tries to
claim the shards, and has to wait for the lease rows that the round has locked.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from config.settings import Settings
from storage.boards.boards import find_present_boards
from storage.errors import (
    BoardChangedError,
    LeaseLostError,
    LostRaceError,
    OutdatedFactsError,
    PeriodClosedError,
    PostError,
    PostRejectedError,
    RacesLostError,
    UnknownBoardError,
)
from storage.leases.work_leases import WorkLease, WorkLeases
from storage.leaves.catalog_rows import find_families_by_key
from storage.leaves.entries import Entries
from storage.leaves.gates import read_gates_of
from storage.log.bundles import record_of_rejection
from storage.log.change_log import NewChange
from storage.posting.decision import decide_posts
from storage.posting.group_facts import KnownFacts, read_group
from storage.posting.packed_posts import PackedPost, unpack_post
from storage.posting.rules import Attempt, find_refusal
from storage.posting.transaction import TransactionResult, open_boards_of, write_changes
from storage.posting.writer import FAULTS_OF_STORE, draw_pause_s
from storage.reads.open_boards import OpenBoards
from storage.records import Board, ColumnChange, Leaf, PartOutcome, Post, PostStatus
from storage.store import Program, Store

from . import ingest_queue
from .ingest_queue import BlockHead, WaitingBlock
from .outcomes import encode_error, store_rejected
from .post_blocks import Block, decode_block

BLOCKS_MIN = 50  # a round may read at least this many blocks per shard, except a round of one post; blocks may be small


@dataclass(frozen=True, slots=True)
class DrainedRound:
    posts: dict[int, int]  # number of posts by shard of the partition
    statuses: Counter[str]  # number of posts by status; a post counts once for each of its boards
    oldest_us: int  # the time at which the oldest post of the round was accepted
    more: bool  # whether posts are left in the queue
    applied: dict[int, int] = field(default_factory=dict)  # see `TransactionResult.applied`


class Drainer:
    """Applies the posts that wait in the partition for which `store` runs programs."""

    def __init__(
        self,
        store: Store,
        boards: OpenBoards,
        leases: WorkLeases,
        limits: Settings,
        *,
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        rng: random.Random,
    ) -> None:
        self._store, self._boards, self._leases = store, boards, leases
        self._known_facts = KnownFacts()
        self._limits, self._monotonic = limits, monotonic
        self._sleep, self._rng = sleep, rng
        self._lease_us = round(limits.ingest_lease_s * 1e6)
        self._posts_max = limits.ingest_round_posts_max
        self._alone_failures = 0
        self._counted_to_s = 0.0  # monotonic time at which the last round stored its busy time
        self._uncounted_s = 0.0  # time from `_counted_to_s` to the end of the last round; the next round stores it, too

    async def drain_round(self, shards: Sequence[tuple[int, WorkLease]]) -> DrainedRound | None:
        """Apply some of the oldest posts of these shards. Return None if no posts are waiting there.

        After an unexpected failure, the next round takes a tenth as many posts, down to one. After a success, it takes
        twice as many, up to `ingest_round_posts_max`.

        Raises:
            LeaseLostError: another worker holds one of the shards.
            RacesLostError, StoreBusyError: nothing was applied.
            OutcomeUnknownError: the posts may have been applied.
        """
        try:
            drained = await self._round(shards, self._posts_max)
        except (LeaseLostError, *FAULTS_OF_STORE):  # a round with fewer posts would fail too
            raise
        except Exception:
            if self._posts_max > 1:
                self._posts_max = max(1, self._posts_max // 10)
                raise
            self._alone_failures += 1
            if self._alone_failures < self._limits.ingest_alone_attempts_max:
                raise
            drained = await self._round(shards, 1, reject=PostRejectedError("the post could not be applied"))
        self._alone_failures = 0
        self._posts_max = min(self._limits.ingest_round_posts_max, self._posts_max * 2)
        return drained

    async def _round(
        self, shards: Sequence[tuple[int, WorkLease]], posts_max: int, *, reject: PostError | None = None
    ) -> DrainedRound | None:
        leases, check_boards = dict(shards), False
        for attempt in range(self._limits.write_attempts_max):
            if attempt > 0:
                await self._sleep(draw_pause_s(self._limits, attempt, self._rng))
            began_s = self._monotonic()
            batch = await self._store.read(partial(self._read, list(leases), posts_max))
            if not batch.pieces:
                return None
            if reject is not None:
                batch.refuse_all(reject)
            held = [leases[shard] for shard in batch.by_shard]
            opened = open_boards_of(batch.posts, self._boards)
            apply = partial(self._apply, batch, held, opened, check_boards=check_boards, began_s=began_s)
            try:
                result = await self._store.write(apply)
            except OutdatedFactsError as error:
                self._known_facts.keep(error.learned)
                continue
            except (LostRaceError, BoardChangedError):
                continue
            except UnknownBoardError:
                check_boards = True
                continue
            self._known_facts.keep(result.learned)
            self._uncounted_s = self._monotonic() - self._counted_to_s
            statuses = Counter(part.status.value for parts in result.outcomes for part in parts)
            statuses[PostStatus.REJECTED.value] += len(batch.refusals)
            oldest_us = batch.pieces[0].head.queued_at_us
            return DrainedRound(batch.by_shard, statuses, oldest_us, batch.more, result.applied)
        raise RacesLostError(f"posts could not be applied in {self._limits.write_attempts_max} attempts")

    def _read(self, shards: list[int], posts_max: int) -> Program[_Batch]:
        blocks_max = max(BLOCKS_MIN, posts_max // max(1, len(shards))) if posts_max > 1 else 1
        heads = yield from ingest_queue.read_heads(shards, blocks_max=blocks_max)
        chosen: list[BlockHead] = []
        posts = 0
        for head in heads:
            if chosen and posts + head.posts > posts_max:
                break
            chosen.append(head)
            posts += head.posts
        batch = _Batch(more=len(chosen) < len(heads) or len(heads) >= blocks_max)
        if chosen:
            for waiting in (yield from ingest_queue.read_blocks(chosen)):
                if not self._add(batch, waiting, posts_max):
                    break
            yield from batch.resolve()
        return batch

    def _add(self, batch: _Batch, waiting: WaitingBlock, posts_max: int) -> bool:
        """Add as many of a block's posts to the batch as fit into the round. Return whether all of them fit."""
        block, posts = decode_block(waiting.block), 0
        for queued in block.posts[:posts_max]:
            if batch.parts and batch.parts + len(queued.boards) > self._limits.ingest_round_parts_max:
                break
            batch.parts += len(queued.boards)
            posts += 1
        whole = posts == len(block.posts)  # true for a block without posts, too
        if posts or whole:
            batch.pieces.append(_Piece(waiting.head, block.boards, block.posts[:posts], block.posts[posts:]))
            batch.by_shard[waiting.head.shard] += posts
        batch.more |= not whole
        return whole

    def _apply(
        self, batch: _Batch, held: Sequence[WorkLease], opened: Sequence[Entries], *, check_boards: bool, began_s: float
    ) -> Program[TransactionResult]:
        renewed = yield from self._leases.renew_leases(held, lease_us=self._lease_us)
        if len(renewed) < len(held):
            raise LeaseLostError("another worker has taken over a shard of the queue")
        now_us = renewed[0].expires_at_us - self._lease_us  # the store's time; the clock of this process may be wrong
        yield from batch.take_blocks()
        copies = {key: (leaf.place, leaf.gate) for key, leaf in batch.leaves.items()}
        if copies and (yield from read_gates_of(batch.leaves.values(), held=True)) != copies:
            raise BoardChangedError
        accepted_us = min(piece.head.queued_at_us for piece in batch.pieces)
        known, posts = self._known_facts, batch.posts
        asked = read_group(
            self._store, opened, posts, known, now_us, check_boards=check_boards, accepted_us=accepted_us
        )
        decision = decide_posts((yield from asked), posts)
        refusals = [*batch.refusals, *_refused_by(posts, decision.outcomes)]
        kept = [
            (each.leaf_key, each.post.post_hash, each.error)
            for each in refusals
            if each.there and each.post.post_hash is not None
        ]
        yield from store_rejected(kept, now_us)
        self._counted_to_s = self._monotonic()
        busy_s = self._counted_to_s - began_s + self._uncounted_s
        yield from ingest_queue.add_counts(batch.by_shard, busy_us=round(busy_s * 1e6))
        rejections = [(each.partition, _journalled(each)) for each in refusals]
        return (yield from write_changes(self._store, decision, rejections))  # last: it takes the counters of logs


class _Piece(NamedTuple):
    head: BlockHead
    boards: list[tuple[int, int, int]]  # as in `Block`
    posts: list[PackedPost]  # the posts that the round takes
    left: list[PackedPost]  # the later posts, which stay in the queue


class Refusal(NamedTuple):
    leaf_key: int
    partition: int  # the partition of the board
    there: bool  # whether the board exists; only then can a sender ask for the fate of the post
    post: Post | PackedPost
    error: PostError
    changes: Sequence[ColumnChange]


@dataclass(slots=True)
class _Batch:
    more: bool = False  # whether posts are left for the next round
    parts: int = 0  # number of posts, each counted once for each of its boards
    by_shard: Counter[int] = field(default_factory=Counter)  # number of posts by shard
    pieces: list[_Piece] = field(default_factory=list)
    posts: list[Post] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    leaves: dict[int, Leaf] = field(default_factory=dict)  # the leaves outside families, by key

    def resolve(self) -> Program[None]:
        boards = yield from find_present_boards(sorted({key for piece in self.pieces for key, _, _ in piece.boards}))
        families: Container[int] = ()
        if family_keys := {board.family_key for board in boards.values() if board.family_key is not None}:
            families = yield from find_families_by_key(sorted(family_keys))
        for piece in self.pieces:
            found = [
                (key, partition, boards.get(key), _find_fault(boards.get(key), epoch, families))
                for key, epoch, partition in piece.boards
            ]
            for queued in piece.posts:
                self._add_post(queued, piece.head.queued_at_us, [found[place] for place in queued.boards])

    def _add_post(
        self,
        queued: PackedPost,
        accepted_us: int,
        found: Sequence[tuple[int, int, Board | None, PostError | None]],
    ) -> None:
        refused = queued.family_key is None and not all(
            isinstance(fault, PeriodClosedError | None) for *_, fault in found
        )
        left: list[Leaf] = []
        for index, (key, partition, board, fault) in enumerate(found):
            error = fault or (PostRejectedError() if refused else None)
            if error is not None:
                refusal = Refusal(key, partition, board is not None, queued, error, queued.changes_to(index))
                self.refusals.append(refusal)
            elif board is not None:
                leaf = board.leaf_of(queued.owner)
                left.append(leaf)
                if leaf.family_key is None:
                    self.leaves[leaf.key] = leaf
        if left:
            self.posts.append(unpack_post(queued, left))
            self.posts[-1].accepted_us = accepted_us

    def refuse_all(self, error: PostError) -> None:
        self.refusals += [
            Refusal(part.leaf.key, part.leaf.partition, True, post, error, part.changes)
            for post in self.posts
            for part in post.parts
        ]
        self.posts, self.leaves = [], {}

    def take_blocks(self) -> Program[None]:
        if whole := [piece.head for piece in self.pieces if not piece.left]:
            yield from ingest_queue.take_blocks(whole)
        for piece in self.pieces:
            left = Block(piece.boards, piece.left)
            if piece.left and not (yield from ingest_queue.rewrite_block(piece.head, left)):
                raise LostRaceError("the block was deleted or replaced meanwhile")


def _find_fault(board: Board | None, epoch: int, families: Container[int]) -> PostError | None:
    """Return an error if the board or its family was deleted, or a board without a family was emptied since `epoch`."""
    deleted, is_emptied = None, False
    if board is None:
        deleted = "the leaderboard was deleted since the post was accepted"
    elif board.family_key is None:
        is_emptied = board.gate.epoch != epoch
    elif board.family_key not in families:
        deleted = "the family was deleted since the post was accepted"
    return find_refusal(Attempt(None, 0, deleted=deleted, is_emptied=is_emptied))


def _refused_by(posts: Sequence[Post], outcomes: Sequence[list[PartOutcome]]) -> list[Refusal]:
    refused: list[Refusal] = []
    for post, parts in zip(posts, outcomes, strict=True):
        # If a post repeats an earlier post to a family, `parts` has the earlier outcomes, which may be more or fewer.
        for target, part in zip(post.parts, parts, strict=False):
            if part.error is not None:
                there = not isinstance(part.error, UnknownBoardError)
                leaf = target.leaf
                refused.append(Refusal(leaf.key, leaf.partition, there, post, part.error, target.changes))
    return refused


def _journalled(refusal: Refusal) -> NewChange:
    post = refusal.post
    record = record_of_rejection(refusal.changes, post.post_id, post.at_us, encode_error(refusal.error))
    return NewChange(refusal.leaf_key, post.owner, "", "", record)

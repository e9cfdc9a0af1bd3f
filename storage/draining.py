"""Queued posts, applied: some of each shard's oldest in one transaction that also takes them out of the queue.

    read the oldest ──> look their boards up ──> one transaction: fence · take · apply · remember what was rejected

The rule: a transaction applies the posts that it takes, or does neither. It begins with the leases of the shards, which
it holds and renews: a worker that was paused finds them somebody else's, and nothing of it stays.

A post that the store refuses by itself, whatever comes with it, is rejected after some tries: those behind it have
waited long enough.

A round should end well within its lease, also where each post goes to many boards. Another worker takes a longer round
for a dead worker's, and waits for the rows of its leases.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from .applying import Group
from .boards import OpenBoards
from .change_log import Appended, change_log
from .entries import live_epochs
from .errors import (
    BoardChanged,
    LeaseLost,
    LostRace,
    OutcomeUnknown,
    PostError,
    PostRejected,
    RacesLost,
    StorageError,
    StoreAway,
    StoreDamaged,
    StoreFull,
    UnknownBoard,
)
from .ingest_queue import Head, Waiting, ingest_queue
from .leases import Lease, Leases
from .post_ids import PostIds
from .posted import said_of_rejected
from .queued_boards import Refusal, Resolved, boards_of, is_as_found, resolve
from .queued_posts import Block, block_of, text_of
from .records import PartOutcome, Status
from .rejected_posts import RejectedPost, rejected_posts, said_error
from .store import Program, Store

BLOCKS_MIN = 50  # looked at in each shard: with few posts a block, as many make a round


@dataclass(frozen=True, slots=True)
class DrainLimits:
    """The bounds; each is a setting of the same name."""

    ingest_round_posts_max: int
    ingest_round_parts_max: int
    ingest_alone_attempts_max: int
    ingest_lease_s: float
    write_attempts_max: int
    write_backoff_base_s: float
    write_backoff_s_max: float
    change_log: bool  # False: posts leave no trace in the log


@dataclass(frozen=True, slots=True)
class Drained:
    """What one round did."""

    posts: dict[int, int]  # by shard
    statuses: Counter[str]  # each post counted once a board
    rows: int
    races: int
    oldest_us: int  # when the oldest post of the round was accepted
    more: bool  # posts that waited then were left to the next round


@dataclass(frozen=True, slots=True)
class _Piece:
    """The first posts of a block, or all of them."""

    head: Head
    block: Block
    posts: int

    @property
    def whole(self) -> bool:
        return self.posts == len(self.block.posts)

    @property
    def rest(self) -> str:
        return text_of(Block(self.block.boards, self.block.posts[self.posts :]))


@dataclass(slots=True)
class _Batch:
    more: bool = False  # than these wait
    parts: int = 0  # the posts, each counted once a board
    pieces: list[_Piece] = field(default_factory=list)
    resolved: Resolved = field(default_factory=Resolved)


class Drainer:
    """Applies queued posts of shards that are leased to it."""

    def __init__(
        self,
        store: Store,
        boards: OpenBoards,
        post_ids: PostIds,
        leases: Leases,
        limits: DrainLimits,
        *,
        now_us: Callable[[], int],
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        rng: random.Random,
    ) -> None:
        self._store, self._boards, self._post_ids, self._leases = store, boards, post_ids, leases
        self._limits, self._now_us, self._monotonic = limits, now_us, monotonic
        self._sleep, self._rng = sleep, rng
        self._queue = ingest_queue(store.dialect)
        self._lease_us = round(limits.ingest_lease_s * 1e6)
        self._posts_max = limits.ingest_round_posts_max
        self._alone_failures = 0
        self._uncounted_s = 0.0  # of the last round, after it had counted its time

    async def round(self, shards: Sequence[tuple[int, Lease]]) -> Drained | None:
        """Apply some of the oldest posts of these shards; None where they have none.

        Raises:
            LeaseLost: one of the shards is somebody else's by now.
            RacesLost, StoreBusy: nothing was applied.
            OutcomeUnknown: it may have been.
        """
        try:
            drained = await self._round(shards, self._posts_max)
        except (
            LeaseLost,
            StoreAway,
            StoreDamaged,
            StoreFull,
            OutcomeUnknown,
            RacesLost,
        ):  # fewer posts would meet the same
            raise
        except Exception:
            if self._posts_max > 1:
                self._posts_max = max(1, self._posts_max // 10)
                raise
            self._alone_failures += 1
            if self._alone_failures < self._limits.ingest_alone_attempts_max:
                raise
            drained = await self._round(shards, 1, reject=PostRejected("the post could not be applied"))
        self._alone_failures = 0
        self._posts_max = min(self._limits.ingest_round_posts_max, self._posts_max * 2)
        return drained

    async def _round(
        self, shards: Sequence[tuple[int, Lease]], posts_max: int, *, reject: PostError | None = None
    ) -> Drained | None:
        check_boards, races = False, 0
        for attempt in range(self._limits.write_attempts_max):
            if attempt > 0:
                await self._sleep(self._pause_s(attempt - 1))
            began_s = self._monotonic()
            batch = await self._store.read(lambda: self._read([shard for shard, _ in shards], posts_max))
            if not batch.pieces:
                return None
            if reject is not None:
                _refuse_all(batch, reject)
            taken = {piece.head.shard for piece in batch.pieces}
            held = [lease for shard, lease in shards if shard in taken]
            run = _Run(self, batch, held, check_boards=check_boards, began_s=began_s)
            try:
                outcomes, rows = await self._store.write(run.program)
                self._uncounted_s = self._monotonic() - run.counted_to_s
            except LostRace:
                races += 1
                continue
            except BoardChanged:
                continue
            except UnknownBoard:
                check_boards = True
                continue
            return _drained(batch, outcomes, rows, races)
        raise RacesLost(f"posts could not be applied in {self._limits.write_attempts_max} attempts")

    def _read(self, shards: list[int], posts_max: int) -> Program[_Batch]:
        blocks_max = max(BLOCKS_MIN, posts_max // max(1, len(shards))) if posts_max > 1 else 1
        heads = yield from self._queue.heads(shards, blocks_max=blocks_max)
        chosen: list[Head] = []
        posts = 0
        for head in heads:
            if chosen and posts + head.posts > posts_max:
                break
            chosen.append(head)
            posts += head.posts
        batch = _Batch(more=len(chosen) < len(heads) or len(heads) >= blocks_max)
        if chosen:
            for waiting in (yield from self._queue.blocks(chosen)):
                if not self._add(batch, waiting, posts_max):
                    break
            pieces = [(piece.block, piece.posts) for piece in batch.pieces]
            batch.resolved = yield from resolve(self._store.dialect, pieces)
        return batch

    def _add(self, batch: _Batch, waiting: Waiting, posts_max: int) -> bool:
        """Add a block to a round, or as much of it as the round takes; whether the round may take another one."""
        block, posts = block_of(waiting.block), 0
        for queued in block.posts[:posts_max]:
            if batch.parts and batch.parts + len(queued.boards) > self._limits.ingest_round_parts_max:
                break
            batch.parts += len(queued.boards)
            posts += 1
        whole = posts == len(block.posts)  # one that was emptied, too
        if posts or whole:
            batch.pieces.append(_Piece(waiting.head, block, posts))
        batch.more |= not whole
        return whole

    def _pause_s(self, pauses_before: int) -> float:
        longest = min(self._limits.write_backoff_s_max, self._limits.write_backoff_base_s * 2**pauses_before)
        return self._rng.uniform(0, longest)


class _Run:
    """The transaction of one batch."""

    def __init__(
        self, drainer: Drainer, batch: _Batch, held: Sequence[Lease], *, check_boards: bool, began_s: float
    ) -> None:
        self._drainer, self._batch, self._held = drainer, batch, held
        self._check_boards, self._began_s = check_boards, began_s
        self.counted_to_s = began_s
        self._opened = [drainer._boards.open(board) for board in boards_of(batch.resolved.posts)]

    def program(self) -> Program[tuple[list[list[PartOutcome]], int]]:
        """Fence, take, apply, remember; answers the outcomes of the posts and the rows that were written."""
        drainer, resolved = self._drainer, self._batch.resolved
        dialect, queue = drainer._store.dialect, drainer._queue
        now_us = drainer._now_us()
        held = yield from drainer._leases.keep_all(self._held, lease_us=drainer._lease_us)
        if len(held) < len(self._held):
            raise LeaseLost("a shard of the queue is another worker's by now")
        yield from self._take()
        if resolved.epochs:
            found = yield from live_epochs(dialect, sorted(resolved.epochs), held=True)
            if not is_as_found(resolved.epochs, found):
                raise BoardChanged
        outcomes: list[list[PartOutcome]] = []
        rows = logged = 0
        if resolved.posts:
            group = Group(
                self._opened,
                drainer._post_ids,
                now_us,
                check_boards=self._check_boards,
                logged=drainer._limits.change_log,
            )
            result = yield from group.run(resolved.posts)
            outcomes, rows, logged = result.outcomes, sum(result.rows_written.values()), result.logged
        refused = [*resolved.refusals, *_refused_by(resolved, outcomes)]
        kept = [
            RejectedPost(each.board_key, each.queued.post_hash, each.error)
            for each in refused
            if each.there and each.queued.post_hash is not None
        ]
        yield from rejected_posts(dialect).remember(kept, now_us)
        if refused and drainer._limits.change_log:
            yield change_log(dialect).append(map(_journalled, refused), now_us=now_us, place=logged)
        self.counted_to_s = drainer._monotonic()
        busy_s = self.counted_to_s - self._began_s + drainer._uncounted_s
        yield from queue.count(_posts_by_shard(self._batch), busy_us=round(busy_s * 1e6))
        return outcomes, rows

    def _take(self) -> Program[None]:
        queue, pieces = self._drainer._queue, self._batch.pieces
        if whole := [piece.head for piece in pieces if piece.whole]:
            yield from queue.take(whole)
        for piece in pieces:
            if not piece.whole:
                posts = len(piece.block.posts) - piece.posts
                if not (yield from queue.rewrite(piece.head, posts=posts, block=piece.rest)):
                    raise LostRace("the block was gone, or another one")


def _refuse_all(batch: _Batch, error: PostError) -> None:
    resolved = batch.resolved
    for post, queued in zip(resolved.posts, resolved.queued, strict=True):
        resolved.refusals += [Refusal(part.board.key, True, queued, error, part.changes) for part in post.parts]
    resolved.posts, resolved.queued, resolved.epochs = [], [], {}


def _refused_by(resolved: Resolved, outcomes: Sequence[list[PartOutcome]]) -> list[Refusal]:
    """What the boards themselves did not take."""
    refused: list[Refusal] = []
    for post, queued, parts in zip(resolved.posts, resolved.queued, outcomes, strict=False):
        for target, part in zip(post.parts, parts, strict=False):  # a family's duplicate answers its parts of then
            if part.error is not None:
                error = part.error if isinstance(part.error, PostError) else PostRejected(_said(part.error))
                there = not isinstance(error, UnknownBoard)
                refused.append(Refusal(target.board.key, there, queued, error, target.changes))
    return refused


def _said(error: StorageError) -> str:
    return error.detail


def _journalled(refusal: Refusal) -> Appended:
    queued = refusal.queued
    said = said_of_rejected(refusal.changes, queued.post_id, queued.at_us, said_error(refusal.error))
    return Appended(refusal.board_key, queued.owner, "", "", said)


def _posts_by_shard(batch: _Batch) -> dict[int, int]:
    posts: dict[int, int] = defaultdict(int)
    for piece in batch.pieces:
        posts[piece.head.shard] += piece.posts
    return dict(posts)


def _drained(batch: _Batch, outcomes: Sequence[list[PartOutcome]], rows: int, races: int) -> Drained:
    statuses = Counter(part.status.value for parts in outcomes for part in parts)
    statuses[Status.REJECTED.value] += len(batch.resolved.refusals)
    oldest_us = min(piece.head.queued_at_us for piece in batch.pieces)
    return Drained(_posts_by_shard(batch), statuses, rows, races, oldest_us, batch.more)

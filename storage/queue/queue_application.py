"""Applies queued posts: one transaction takes some of each shard's oldest posts out of the queue and applies them.

    read the oldest ──> look up their boards ──> one transaction: keep the leases · take · apply · remember rejections

These steps are called a round. Its transaction begins by renewing the leases of the shards. If another worker has taken
over a shard, while the first worker was paused for example, the transaction of the first worker is rolled back.

A board that was deleted or emptied since a post was accepted does not get the post. A post to several boards is applied
to all of them or to none, unless they are boards of a family. The transaction that applies a post checks whether its
boards are still open.

If a post cannot be applied even on its own, it is rejected after `ingest_alone_attempts_max` attempts. Then the posts
behind it can be applied.

A round must end well before its leases expire, even if each post goes to many boards. Otherwise another worker claims
the shards, and then waits for the rows of the leases, which the round has locked.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from config.settings import Settings
from storage.boards.boards import find_boards_by_key
from storage.boards.families import find_families_by_key
from storage.entries.entries import read_live_epochs
from storage.errors import (
    BoardChangedError,
    LeaseLostError,
    LostRaceError,
    OutcomeUnknownError,
    PostError,
    PostRejectedError,
    RacesLostError,
    StorageError,
    StoreAwayError,
    StoreDamagedError,
    StoreFullError,
    UnknownBoardError,
)
from storage.leases.work_leases import WorkLease, WorkLeases
from storage.log.change_log import NewChange, change_log
from storage.log.log_record import record_of_rejection
from storage.posting.post_ids import PostIds
from storage.posting.transaction import PostTransaction
from storage.reads.open_boards import OpenBoards
from storage.records import Board, ColumnChange, Family, PartOutcome, Post, PostStatus
from storage.store import Program, Store

from .ingest_queue import BlockHead, WaitingBlock, ingest_queue
from .outcomes import RejectedPost, encode_error, rejected_posts
from .post_blocks import Block, QueuedPost, changes_to, decode_block, encode_block, restore_post

BLOCKS_MIN = 50  # fewest blocks of each shard that a round of several posts may read; blocks may be small


@dataclass(frozen=True, slots=True)
class DrainedRound:
    posts: dict[int, int]  # number of posts by shard
    statuses: Counter[str]  # number of posts by status; a post counts once for each of its boards
    rows: int  # rows written
    races: int  # lost races
    oldest_us: int  # the time at which the oldest post of the round was accepted
    more: bool


class Drainer:
    def __init__(
        self,
        store: Store,
        boards: OpenBoards,
        post_ids: PostIds,
        leases: WorkLeases,
        limits: Settings,
        *,
        now_us: Callable[[], int],
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        rng: random.Random,
    ) -> None:
        self._store, self._boards, self._post_ids, self._leases = store, boards, post_ids, leases
        self._limits, self._now_us, self._monotonic = limits, now_us, monotonic
        self._sleep, self._rng = sleep, rng
        self._lease_us = round(limits.ingest_lease_s * 1e6)
        self._posts_max = limits.ingest_round_posts_max
        self._alone_failures = 0
        self._uncounted_s = 0.0  # time from storing the busy time of the last round to the end of that round

    async def drain_round(self, shards: Sequence[tuple[int, WorkLease]]) -> DrainedRound | None:
        """Apply some of the oldest posts of these shards. Return None if no posts wait there.

        After an unexpected failure the next round takes a tenth as many posts, down to one. After a success it takes
        twice as many, up to `ingest_round_posts_max`.

        Raises:
            LeaseLostError: another worker holds one of the shards.
            RacesLostError, StoreBusyError: nothing was applied.
            OutcomeUnknownError: the posts may have been applied.
        """
        try:
            drained = await self._round(shards, self._posts_max)
        except (
            LeaseLostError,
            StoreAwayError,
            StoreDamagedError,
            StoreFullError,
            OutcomeUnknownError,
            RacesLostError,
        ):  # a round with fewer posts would fail too
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
            run = _RoundTransaction(self, batch, held, check_boards=check_boards, began_s=began_s)
            try:
                outcomes, rows = await self._store.write(run.program)
                self._uncounted_s = self._monotonic() - run.counted_to_s
            except LostRaceError:
                races += 1
                continue
            except BoardChangedError:
                continue
            except UnknownBoardError:
                check_boards = True
                continue
            return _drained(batch, outcomes, rows, races)
        raise RacesLostError(f"posts could not be applied in {self._limits.write_attempts_max} attempts")

    def _read(self, shards: list[int], posts_max: int) -> Program[_Batch]:
        blocks_max = max(BLOCKS_MIN, posts_max // max(1, len(shards))) if posts_max > 1 else 1
        heads = yield from ingest_queue.heads(shards, blocks_max=blocks_max)
        chosen: list[BlockHead] = []
        posts = 0
        for head in heads:
            if chosen and posts + head.posts > posts_max:
                break
            chosen.append(head)
            posts += head.posts
        batch = _Batch(more=len(chosen) < len(heads) or len(heads) >= blocks_max)
        if chosen:
            for waiting in (yield from ingest_queue.blocks(chosen)):
                if not self._add(batch, waiting, posts_max):
                    break
            pieces = [(piece.block, piece.posts) for piece in batch.pieces]
            batch.resolved = yield from resolve_posts(pieces)
        return batch

    def _add(self, batch: _Batch, waiting: WaitingBlock, posts_max: int) -> bool:
        """Add a block, or as many of its posts as fit into the round. Return whether another block may fit."""
        block, posts = decode_block(waiting.block), 0
        for queued in block.posts[:posts_max]:
            if batch.parts and batch.parts + len(queued.boards) > self._limits.ingest_round_parts_max:
                break
            batch.parts += len(queued.boards)
            posts += 1
        whole = posts == len(block.posts)  # true for a block without posts, too
        if posts or whole:
            batch.pieces.append(_Piece(waiting.head, block, posts))
        batch.more |= not whole
        return whole

    def _pause_s(self, pauses_before: int) -> float:
        longest = min(self._limits.write_backoff_s_max, self._limits.write_backoff_base_s * 2**pauses_before)
        return self._rng.uniform(0, longest)


class _RoundTransaction:
    def __init__(
        self, drainer: Drainer, batch: _Batch, held: Sequence[WorkLease], *, check_boards: bool, began_s: float
    ) -> None:
        self._drainer, self._batch, self._held = drainer, batch, held
        self._check_boards, self._began_s = check_boards, began_s
        self.counted_to_s = began_s
        self._opened = [drainer._boards.open_board(board) for board in boards_of(batch.resolved.posts)]

    def program(self) -> Program[tuple[list[list[PartOutcome]], int]]:
        """Run the transaction. Return the outcomes of the posts and the number of rows written."""
        drainer, resolved = self._drainer, self._batch.resolved
        now_us = drainer._now_us()
        held = yield from drainer._leases.renew_leases(self._held, lease_us=drainer._lease_us)
        if len(held) < len(self._held):
            raise LeaseLostError("another worker has taken over a shard of the queue")
        yield from self._take()
        if resolved.epochs:
            found = yield from read_live_epochs(sorted(resolved.epochs), held=True)
            if not epochs_unchanged(resolved.epochs, found):
                raise BoardChangedError
        outcomes: list[list[PartOutcome]] = []
        rows = logged = 0
        if resolved.posts:
            group = PostTransaction(
                drainer._store.dialect,
                self._opened,
                drainer._post_ids,
                now_us,
                check_boards=self._check_boards,
                logged=drainer._limits.change_log,
            )
            result = yield from group.apply_posts(resolved.posts)
            outcomes, rows, logged = result.outcomes, sum(result.rows_written.values()), result.logged
        refused = [*resolved.refusals, *_refused_by(resolved, outcomes)]
        kept = [
            RejectedPost(each.board_key, each.queued.post_hash, each.error)
            for each in refused
            if each.there and each.queued.post_hash is not None
        ]
        yield from rejected_posts.store_rejected(kept, now_us)
        if refused and drainer._limits.change_log:
            yield from change_log.append_changes(map(_journalled, refused), now_us=now_us, place=logged)
        self.counted_to_s = drainer._monotonic()
        busy_s = self.counted_to_s - self._began_s + drainer._uncounted_s
        yield from ingest_queue.add_counts(_posts_by_shard(self._batch), busy_us=round(busy_s * 1e6))
        return outcomes, rows

    def _take(self) -> Program[None]:
        pieces = self._batch.pieces
        if whole := [piece.head for piece in pieces if piece.whole]:
            yield from ingest_queue.take_blocks(whole)
        for piece in pieces:
            if not piece.whole:
                posts = len(piece.block.posts) - piece.posts
                if not (yield from ingest_queue.rewrite(piece.head, posts=posts, block=piece.rest)):
                    raise LostRaceError("the block was deleted or replaced meanwhile")


@dataclass(frozen=True, slots=True)
class _Piece:
    """A block, and how many posts a round takes from its start."""

    head: BlockHead
    block: Block
    posts: int

    @property
    def whole(self) -> bool:
        return self.posts == len(self.block.posts)

    @property
    def rest(self) -> str:
        return encode_block(Block(self.block.boards, self.block.posts[self.posts :]))


class Refusal(NamedTuple):
    """A post that a board will not get."""

    board_key: int
    there: bool  # whether the board exists; only then can a sender ask for the fate of the post
    queued: QueuedPost
    error: PostError
    changes: Sequence[ColumnChange]


@dataclass(slots=True)
class Resolved:
    """The posts that can be applied, in their order, and the refusals of the other posts."""

    posts: list[Post] = field(default_factory=list)
    queued: list[QueuedPost] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)  # epochs of the boards without a family, by board key


@dataclass(slots=True)
class _Batch:
    more: bool = False  # whether posts are left for the next round
    parts: int = 0  # number of posts, each counted once for each of its boards
    pieces: list[_Piece] = field(default_factory=list)
    resolved: Resolved = field(default_factory=Resolved)


def resolve_posts(blocks: Sequence[tuple[Block, int]]) -> Program[Resolved]:
    """Look up the boards of queued posts, and return the posts that can be applied and the refusals of the others.

    `blocks` holds blocks, each with the number of its first posts to look up.
    """
    keys = {key for block, _ in blocks for key, _ in block.boards}
    boards = yield from find_boards_by_key(sorted(keys))
    families: Mapping[int, Family] = {}
    if family_keys := {board.family_key for board in boards.values() if board.family_key is not None}:
        families = yield from find_families_by_key(sorted(family_keys))
    resolved = Resolved()
    for block, count in blocks:
        there = [_open(boards.get(key), epoch, families) for key, epoch in block.boards]
        for queued in block.posts[:count]:
            found = [(block.boards[place][0], there[place]) for place in queued.boards]
            _resolve_one(resolved, queued, found, boards, families)
    return resolved


_Found = Board | PostError


def _open(board: Board | None, epoch: int, families: Mapping[int, Family]) -> _Found:
    if board is None:
        return UnknownBoardError("the leaderboard was deleted since the post was accepted")
    if board.family_key is None:
        if board.epoch != epoch:
            return UnknownBoardError("the leaderboard was emptied since the post was accepted")
        return board
    if board.family_key not in families:
        return UnknownBoardError("the family was deleted since the post was accepted")
    return board


def _resolve_one(
    resolved: Resolved,
    queued: QueuedPost,
    found: Sequence[tuple[int, _Found]],
    boards: Mapping[int, Board],
    families: Mapping[int, Family],
) -> None:
    errors = {key: each for key, each in found if not isinstance(each, Board)}
    if errors and queued.family_key is None:
        refused = PostRejectedError()
        errors = {key: errors.get(key, refused) for key, _ in found}
    for index, (key, _) in enumerate(found):
        if key in errors:
            refusal = Refusal(key, key in boards, queued, errors[key], changes_to(queued, index))
            resolved.refusals.append(refusal)
    left = [each for key, each in found if key not in errors and isinstance(each, Board)]
    if left:
        resolved.epochs |= {board.key: board.epoch for board in left if board.family_key is None}
        resolved.posts.append(restore_post(queued, left, families))
        resolved.queued.append(queued)


def epochs_unchanged(epochs: Mapping[int, int], found: Mapping[int, int]) -> bool:
    """Return whether all boards are still in the epochs that they had when the posts were resolved."""
    return all(found.get(key) == epoch for key, epoch in epochs.items())


def boards_of(posts: Iterable[Post]) -> list[Board]:
    """Return the boards of posts that one call of `resolve_posts` returned, each board once."""
    return list({part.board.key: part.board for post in posts for part in post.parts}.values())


def _refuse_all(batch: _Batch, error: PostError) -> None:
    resolved = batch.resolved
    for post, queued in zip(resolved.posts, resolved.queued, strict=True):
        resolved.refusals += [Refusal(part.board.key, True, queued, error, part.changes) for part in post.parts]
    resolved.posts, resolved.queued, resolved.epochs = [], [], {}


def _refused_by(resolved: Resolved, outcomes: Sequence[list[PartOutcome]]) -> list[Refusal]:
    refused: list[Refusal] = []
    for post, queued, parts in zip(resolved.posts, resolved.queued, outcomes, strict=False):
        # Not strict: a duplicate of a family's post has the outcomes of the first post, whose boards may differ.
        for target, part in zip(post.parts, parts, strict=False):
            if part.error is not None:
                error = part.error if isinstance(part.error, PostError) else PostRejectedError(_detail_of(part.error))
                there = not isinstance(error, UnknownBoardError)
                refused.append(Refusal(target.board.key, there, queued, error, target.changes))
    return refused


def _detail_of(error: StorageError) -> str:
    return error.detail


def _journalled(refusal: Refusal) -> NewChange:
    queued = refusal.queued
    record = record_of_rejection(refusal.changes, queued.post_id, queued.at_us, encode_error(refusal.error))
    return NewChange(refusal.board_key, queued.owner, "", "", record)


def _posts_by_shard(batch: _Batch) -> dict[int, int]:
    posts: dict[int, int] = defaultdict(int)
    for piece in batch.pieces:
        posts[piece.head.shard] += piece.posts
    return dict(posts)


def _drained(batch: _Batch, outcomes: Sequence[list[PartOutcome]], rows: int, races: int) -> DrainedRound:
    statuses = Counter(part.status.value for parts in outcomes for part in parts)
    statuses[PostStatus.REJECTED.value] += len(batch.resolved.refusals)
    oldest_us = min(piece.head.queued_at_us for piece in batch.pieces)
    return DrainedRound(_posts_by_shard(batch), statuses, rows, races, oldest_us, batch.more)

"""Posts to boards that have segments: each goes to its owner's segment only, but its id belongs to the whole board.

The owner's segment remembers the id in the transaction of the post. So a post that is sent again takes effect once,
whatever happens. That an id was used before for an owner of another segment is looked up before the transaction:

    wait for posts in flight with this id ──> look the id up in all segments ──> owner's segment: one transaction
                                                         │
                                                         └── another post has the id: PostIdConflictError

A segment that can't be reached is not asked, so its node may be down while posts to other segments go on. Two processes
that at the same moment get two posts with one id, for owners of two segments, may apply both.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from storage.coalesce import StoreCoalescers
from storage.errors import (
    OutcomeUnknownError,
    PostIdConflictError,
    PostRejectedError,
    StorageError,
    StoreAwayError,
    UnknownBoardError,
)
from storage.records import Board, PartOutcome, Post, PostStatus
from storage.store import Store, read_steps

from .post_ids import find_known

LOOK_UPS_TOGETHER_MAX = 16  # requests whose ids one statement looks up in a segment
LOOK_UPS_WAITING_MAX = 10_000
LOOK_UP_LANES = 2  # statements at the same time for the boards of one connection pool

Outcomes = list[list[PartOutcome]]
Submit = Callable[[Store, Sequence[Post]], Coroutine[Any, Any, Outcomes]]
PostKey = tuple[int, str]  # the key of a board that has segments, and the hash of a post's id


class SegmentPosts:
    """Applies posts of which at least one is to a segment."""

    def __init__(self, store: Store, find_board: Callable[[str], Board | None], submit: Submit) -> None:
        """Prepare to apply posts.

        `find_board` returns this process's copy of a board with its segments. `submit` lets the writer of a store apply
        posts.
        """
        self._store, self._find_board, self._submit = store, find_board, submit
        self._look_ups = StoreCoalescers(
            self._look_up, batch_max=LOOK_UPS_TOGETHER_MAX, waiting_max=LOOK_UPS_WAITING_MAX, lanes=LOOK_UP_LANES
        )
        self._in_flight: dict[PostKey, asyncio.Future[None]] = {}

    async def submit(self, posts: Sequence[Post]) -> Outcomes:
        """Apply posts and return their outcomes, as `Writer.submit` does.

        The posts to one board take one transaction for each partition, all of them at once.

        Raises:
            OutcomeUnknownError: some posts were applied, but others were not.
        """
        outcomes: dict[int, list[PartOutcome]] = {}
        for numbers in _split_repeats(posts):
            try:
                found = await self._apply([posts[number] for number in numbers])
            except StorageError as error:
                if not outcomes:
                    raise
                raise OutcomeUnknownError("only the first posts with repeated ids were applied") from error
            outcomes |= zip(numbers, found, strict=True)
        return [outcomes[number] for number in range(len(posts))]

    async def _apply(self, posts: Sequence[Post]) -> Outcomes:
        """Apply posts whose ids do not repeat in different segments."""
        keys = {(board.segment_of or 0, post_hash) for post in posts for board, post_hash in _ids_of(post)}
        if not keys:
            return await self._write(posts)
        while busy := [self._in_flight[key] for key in keys & self._in_flight.keys()]:
            await asyncio.wait(busy)
        with self._hold(keys):
            refused = await self._find_conflicts(posts)
            left = [post for number, post in enumerate(posts) if number not in refused]
            applied = iter(await self._write(left) if left else [])
            return [refused.get(number) or next(applied) for number in range(len(posts))]

    @contextmanager
    def _hold(self, keys: Collection[PostKey]) -> Iterator[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._in_flight |= dict.fromkeys(keys, done)
        try:
            yield
        finally:
            for key in keys:
                del self._in_flight[key]
            done.set_result(None)

    async def _write(self, posts: Sequence[Post]) -> Outcomes:
        """Apply posts in one transaction for each partition. Posts to several boards take one transaction together."""
        boards = {part.board.key: part.board for post in posts for part in post.parts}.values()
        stores = {self._store.for_board(board) for board in boards}
        if len(stores) == 1 or len({board.segment_of for board in boards}) > 1:
            return await self._submit(stores.pop() if len(stores) == 1 else self._store, posts)
        by_store: dict[Store, list[Post]] = defaultdict(list)
        for post in posts:
            by_store[self._store.for_board(post.parts[0].board)].append(post)
        submitting = [self._submit(store, theirs) for store, theirs in by_store.items()]
        done = await asyncio.gather(*submitting, return_exceptions=True)
        answers: dict[Store, Iterator[list[PartOutcome]]] = {}
        errors: list[BaseException] = []
        for store, found in zip(by_store, done, strict=True):
            if isinstance(found, BaseException):
                errors.append(found)
            else:
                answers[store] = iter(found)
        if errors and answers:
            raise OutcomeUnknownError("only the posts to some segments were applied") from errors[0]
        if errors:
            raise errors[0]
        return [next(answers[self._store.for_board(post.parts[0].board)]) for post in posts]

    async def _find_conflicts(self, posts: Sequence[Post]) -> dict[int, list[PartOutcome]]:
        """Return the outcomes of the posts that may not be applied, by their numbers in the list."""
        asked: dict[int, list[str]] = defaultdict(list)
        boards: dict[int, Board] = {}
        for post in posts:
            for board, post_hash in _ids_of(post):
                boards[board.segment_of or 0] = board
                asked[board.segment_of or 0].append(post_hash)
        known = {key: await self._find_fingerprints(boards[key], hashes) for key, hashes in asked.items()}
        refused: dict[int, list[PartOutcome]] = {}
        for number, post in enumerate(posts):
            conflicts = {
                board.key
                for board, post_hash in _ids_of(post)
                if (found := known[board.segment_of or 0].get(post_hash)) and post.fingerprint not in found
            }
            if conflicts:
                refused[number] = [_refuse(part.board, is_cause=part.board.key in conflicts) for part in post.parts]
        return refused

    async def _find_fingerprints(self, segment: Board, hashes: list[str]) -> dict[str, set[str]]:
        """Return the fingerprints of the posts that any segment of a board has seen, by the hash of their id.

        There is more than one for an id that two processes got at the same moment.
        """
        board = self._find_board(segment.id)
        if board is None or segment.segment_of != board.key:
            return {}  # the board was deleted, and the transaction finds that
        asking = [self._look_ups.ask(self._store.for_board(each), each.key, (each, hashes)) for each in board.segments]
        found: dict[str, set[str]] = {}
        for answer in await asyncio.gather(*asking, return_exceptions=True):
            if isinstance(answer, (StoreAwayError, UnknownBoardError)):
                continue
            if isinstance(answer, BaseException):
                raise answer
            for post_hash in hashes:
                if (fingerprint := answer.get(post_hash)) is not None:
                    found.setdefault(post_hash, set()).add(fingerprint)
        return found

    async def _look_up(self, asked: list[tuple[Board, list[str]]]) -> list[Mapping[str, str]]:
        """Return the fingerprints of the posts that a segment has seen, by the hash of their id, for each question."""
        segment, hashes = asked[0][0], {post_hash for _, theirs in asked for post_hash in theirs}
        looking = read_steps(self._store.for_board(segment), lambda: find_known(segment.key, segment.epoch, hashes))
        _, known = await looking
        found = {post_hash: post.fingerprint for post_hash, post in known.items()}
        return [found] * len(asked)


def _ids_of(post: Post) -> Iterator[tuple[Board, str]]:
    """Yield the segments of a post, each with the hash of the post's id, if it has one."""
    if post.post_hash is not None:
        for part in post.parts:
            if part.board.segment_of is not None:
                yield part.board, post.post_hash


def _refuse(board: Board, *, is_cause: bool) -> PartOutcome:
    error = PostIdConflictError(pointer="/post_id") if is_cause else PostRejectedError()
    return PartOutcome(PostStatus.REJECTED, error=error, board_key=board.key)


def _split_repeats(posts: Sequence[Post]) -> list[list[int]]:
    """Split the numbers of posts, so that posts with one id for different segments of a board are in different lists.

    The posts of an owner keep their order. Nearly always there is one list.
    """
    segments: dict[PostKey, list[int]] = {}
    latest: dict[str, int] = {}  # by owner, the list with the owner's last post so far, if it is not the first list
    turns: list[list[int]] = []
    for number, post in enumerate(posts):
        turn = latest.get(post.owner, 0)
        for board, post_hash in _ids_of(post):
            seen = segments.setdefault((board.segment_of or 0, post_hash), [])
            if board.key not in seen:
                seen.append(board.key)
            turn = max(turn, seen.index(board.key))
        if turn:
            latest[post.owner] = turn
        while len(turns) <= turn:
            turns.append([])
        turns[turn].append(number)
    return [turn for turn in turns if turn]

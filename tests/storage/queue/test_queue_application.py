"""Test that each accepted post is applied once, in its owner's order, even if a queue worker dies or pauses."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

import pytest
from msgspec import structs

from querybuilder import Bound
from storage.errors import BeforeResetError, PostRejectedError, StoreFullError
from storage.queue.outcomes import find_rejected, prune_rejected, store_rejected
from storage.queue.queue_application import DrainedRound
from storage.queue.queue_erasure import drop_queued
from storage.records import Board, Merge, Post, PostStatus
from storage.store import Program, Store
from tests.storage.deployment import counter, part, ranked
from tests.storage.meddling import MeddlingStore, interpose
from tests.storage.passing import PassingStore
from tests.storage.queueing import LIMITS, QueueDesk, Worker

T = TypeVar("T")
XP = ranked("xp", max_scaled=1_000)
OWNERS = ("ada", "bob", "cleo", "ÿ", "漢", "😀")


async def make_board(desk: QueueDesk, board_id: str = "b") -> Board:
    """Create a board with two columns: a sum, and the number of the last post."""
    return await desk.deployment.create(board_id, XP, counter("last", merge=Merge.LAST))


def make_post(desk: QueueDesk, board: Board, owner: str, xp: int, *, last: int = 0, post_id: str | None = None) -> Post:
    made = desk.deployment.post(owner, part(board, {"xp": xp, "last": last}), post_id=post_id)
    return structs.replace(made, post_id=post_id)


async def start_worker(desk: QueueDesk, name: str = "ada", *, store: Store | None = None) -> Worker:
    worker = desk.worker(name, store=store)
    await desk.update_share(worker)
    return worker


async def begin_round(desk: QueueDesk) -> tuple[Worker, Callable[[], Awaitable[DrainedRound | None]]]:
    """Let a worker begin a round, and pause before it writes. Return the worker, and a function that ends the pause."""
    paused = MeddlingStore(desk.store)
    worker = await start_worker(desk, "first", store=paused)
    paused.hold()
    running = asyncio.create_task(desk.run_round(worker))
    await paused.wait_for_write()

    async def go_on() -> DrainedRound | None:
        paused.release()
        return await running

    return worker, go_on


async def test_a_round_takes_whole_blocks_up_to_its_bound_and_at_least_one(desk: QueueDesk) -> None:
    board = await make_board(desk)
    for number in range(5):
        await desk.enqueue_block([make_post(desk, board, "ada", 1, last=number)] * 40)
    rounds = await desk.drain_queue(limits=LIMITS.model_copy(update={"ingest_round_posts_max": 100}))
    assert [sum(each.posts.values()) for each in rounds] == [80, 80, 40]
    assert await desk.deployment.stats(board, "ada") == {"xp": 200, "last": 4}


async def test_a_round_takes_fewer_posts_where_each_goes_to_many_boards(desk: QueueDesk) -> None:
    boards = [await make_board(desk, name) for name in ("b", "c", "d", "e")]
    for number in range(1, 31):
        everywhere = [part(board, {"xp": 1, "last": number}) for board in boards]
        await desk.enqueue_block([desk.deployment.post("ada", *everywhere)] * 3)
    rounds = await desk.drain_queue(limits=LIMITS.model_copy(update={"ingest_round_parts_max": 64}))
    assert [sum(each.posts.values()) for each in rounds] == [16, 16, 16, 16, 16, 10]
    assert [each.more for each in rounds] == [True] * 5 + [False]
    for board in boards:
        assert await desk.deployment.stats(board, "ada") == {"xp": 90, "last": 30}
    await desk.enqueue(*[desk.deployment.post("ada", *(part(board, {"xp": 1}) for board in boards))] * 2)
    rounds = await desk.drain_queue(limits=LIMITS.model_copy(update={"ingest_round_parts_max": 2}))
    assert [sum(each.posts.values()) for each in rounds] == [1, 1], "a post to too many boards is applied alone"


async def test_posts_that_waited_while_their_board_was_emptied_or_deleted_are_void(desk: QueueDesk) -> None:
    emptied, deleted, kept = await make_board(desk, "e"), await make_board(desk, "d"), await make_board(desk, "k")
    both = desk.deployment.post("ada", part(kept, {"xp": 1}), part(deleted, {"xp": 1}), post_id="both")
    await desk.enqueue(
        make_post(desk, emptied, "ada", 1, post_id="e"),
        make_post(desk, deleted, "ada", 1),
        structs.replace(both, post_id="both"),
        make_post(desk, kept, "ada", 2),
    )
    await desk.deployment.reset("e")
    await desk.deployment.delete("d")
    again = await make_board(desk, "d")
    [drained] = await desk.drain_queue()
    assert drained.statuses == {"applied": 1, "rejected": 4}
    assert await desk.deployment.stats(kept, "ada") == {"xp": 2, "last": 0}, "a post is all or nothing"
    now = (await desk.deployment.catalog.reread_board("e"), again)
    assert [await desk.deployment.stats(board, "ada") for board in now] == [None, None]
    assert isinstance((await desk.find_fate(now[0], "e", "ada")).error, BeforeResetError)
    assert isinstance((await desk.find_fate(kept, "both", "ada")).error, PostRejectedError)


async def test_a_board_that_was_emptied_refuses_only_its_own_part_of_a_waiting_post(desk: QueueDesk) -> None:
    emptied, kept = await make_board(desk, "e"), await make_board(desk, "k")
    both = desk.deployment.post("ada", part(emptied, {"xp": 1}), part(kept, {"xp": 1}), post_id="both")
    await desk.enqueue(structs.replace(both, post_id="both"))
    await desk.deployment.reset("e")
    [drained] = await desk.drain_queue()
    assert drained.statuses == {"applied": 1, "rejected": 1}
    assert await desk.deployment.value(kept, "ada") == 1
    now = await desk.deployment.catalog.reread_board("e")
    assert isinstance((await desk.find_fate(now, "both", "ada")).error, BeforeResetError)


async def test_one_round_applies_posts_from_before_and_after_a_column_was_added(desk: QueueDesk) -> None:
    board = await make_board(desk)
    await desk.enqueue(make_post(desk, board, "ada", 1))
    wanted = replace(board.spec, columns=(*board.spec.columns, counter("shots")))
    wide = await desk.deployment.change("b", wanted)
    await desk.enqueue(desk.deployment.post("ada", part(wide, {"xp": 1, "shots": 3})))
    await desk.drain_queue()
    assert await desk.deployment.stats(wide, "ada") == {"xp": 2, "last": 0, "shots": 3}


async def test_posts_that_another_worker_applied_are_not_applied_again_under_the_same_lease(desk: QueueDesk) -> None:
    board = await make_board(desk)
    await desk.enqueue(*(make_post(desk, board, owner, 1) for owner in OWNERS))
    first, pausing = await begin_round(desk)
    same = desk.worker("first")
    same.share = first.share
    assert await desk.run_round(same) is not None
    assert await pausing() is None, "the worker looked again, and nothing was left"
    assert await desk.deployment.stats(board, "ada") == {"xp": 1, "last": 0}


async def test_a_post_that_the_store_always_refuses_is_rejected_and_holds_up_no_other(desk: QueueDesk) -> None:
    board = await make_board(desk)
    await desk.enqueue_block([make_post(desk, board, "ada", 1, last=number) for number in range(5)])
    poisonous = [
        make_post(desk, board, "ada", 1, last=6),
        make_post(desk, board, "ada", 666, post_id="poison"),
        make_post(desk, board, "ada", 1, last=7),
    ]
    await desk.enqueue_block(poisonous)
    worker = await start_worker(
        desk, "ada", store=FailingStore(desk.store, desk.deployment.post_ids.hash_post_id("poison", "ada"))
    )
    failures = 0
    while await desk.count_waiting():
        try:
            await desk.run_round(worker)
        except RuntimeError:
            failures += 1
        assert failures < 20
    assert await desk.deployment.stats(board, "ada") == {"xp": 7, "last": 7}
    fate = await desk.find_fate(board, "poison", "ada")
    assert (fate.status, type(fate.error)) == (PostStatus.REJECTED, PostRejectedError)


async def test_a_full_disk_rejects_no_post_however_long_it_lasts(desk: QueueDesk) -> None:
    board = await make_board(desk)
    full = MeddlingStore(desk.store)
    worker = await start_worker(desk, "ada", store=full)
    for failures in range(1, 10):
        await desk.enqueue(make_post(desk, board, "ada", 1))
        full.meddle = [StoreFullError() for _ in range(failures)]
        for _ in range(failures):
            with pytest.raises(StoreFullError):
                await desk.run_round(worker)
        await desk.run_round(worker)
        assert await desk.deployment.stats(board, "ada") == {"xp": failures, "last": 0}


async def test_rejections_are_deleted_past_their_time_or_their_number(desk: QueueDesk) -> None:
    for number in range(6):
        at_us, one = number, (1, f"hash {number}", PostRejectedError())
        await desk.store.write(lambda one=one, at_us=at_us: store_rejected([one], at_us))  # type: ignore[misc]

    async def left() -> list[int]:
        found = await desk.store.read(lambda: find_rejected([1], "hash "))
        return [number for number in range(6) if f"hash {number}" in found]

    assert await desk.store.write(lambda: prune_rejected(before_us=1, keep=100, rows_max=100)) == 2
    assert await left() == [2, 3, 4, 5]
    assert await desk.store.write(lambda: prune_rejected(before_us=0, keep=2, rows_max=100)) == 2
    assert await left() == [4, 5]


async def test_erasing_an_owner_takes_only_its_posts_out_of_the_queue(desk: QueueDesk) -> None:
    board, other = await make_board(desk), await make_board(desk, "other")
    both = desk.deployment.post("ada", part(board, {"xp": 5}), part(other, {"xp": 4}))
    await desk.enqueue(make_post(desk, board, "ada", 1), both, make_post(desk, board, "bob", 2))
    block = [make_post(desk, board, "ada", 1), make_post(desk, other, "ada", 3), make_post(desk, board, "ada", 1)]
    await desk.enqueue_block(block)
    assert await drop_queued(desk.store, "ada", leaf_key=board.key) == 4
    await desk.drain_queue()
    assert await desk.deployment.stats(board, "ada") is None
    assert await desk.deployment.stats(other, "ada") == {"xp": 7, "last": 0}
    assert await desk.deployment.stats(board, "bob") == {"xp": 2, "last": 0}
    await desk.enqueue(both, make_post(desk, other, "ada", 3))
    assert await drop_queued(desk.store, "ada") == 2
    assert await drop_queued(desk.store, "cleo") == 0
    await desk.drain_queue()
    assert await desk.deployment.stats(board, "ada") is None
    assert await desk.count_waiting() == 0


async def test_a_round_reads_a_block_again_if_it_was_rewritten_meanwhile(desk: QueueDesk) -> None:
    board = await make_board(desk)
    await desk.enqueue_block([make_post(desk, board, "ada", 1)] * 3)
    _, pausing = await begin_round(desk)
    await drop_queued(desk.store, "ada")
    drained = await pausing()
    assert drained is not None
    assert sum(drained.posts.values()) == 0
    assert await desk.deployment.stats(board, "ada") is None


class FailingStore(PassingStore):
    """A store that makes a transaction fail at the first statement whose SQL or post ids contain `text`."""

    def __init__(self, store: Store, text: str) -> None:
        super().__init__(store)
        self._text = text

    async def write(self, program: Callable[[], Program[T]]) -> T:
        return await self._store.write(lambda: interpose(program(), self._refuse))

    def _refuse(self, query: Bound) -> None:
        built = query.build(self.dialect)
        if self._text in built.sql or ("post_ids" in built.sql and self._text in repr(built.arguments)):
            raise RuntimeError("refused")

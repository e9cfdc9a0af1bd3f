"""Test limits of posts and held posts: against plain models, with families, the queue, and verdicts that race."""

import asyncio
import random
from dataclasses import replace

import pytest

from querybuilder import col, select
from storage.errors import OwnerMergedError, PostLimitError, PostVoidedError, UnknownPostError
from storage.limits.gains import KEPT_S, prune_gains
from storage.limits.held_posts import HeldPost, count_all_held, list_held, prune_held
from storage.posting import rules
from storage.records import Board, ColumnSpec, PartOutcome, Post, PostLimits, PostStatus
from storage.schema.tables import OF_OWNERS
from storage.verdicts import find_accepted, refuse_post
from tests.storage.boards.test_families import make_family_post
from tests.storage.deployment import Deployment, part, ranked
from tests.storage.queueing import QueueDesk

HOUR_US = 3_600_000_000


def limited(*, gain: int | None = None, most: int | None = 10, holds: bool = True) -> ColumnSpec:
    return replace(ranked("xp"), limits=PostLimits(None, most, gain, holds))


def post_of(deployment: Deployment, board: Board, owner: str, xp: int, post_id: str) -> Post:
    return deployment.post(owner, part(board, {"xp": xp}), post_id=post_id)


async def accept(deployment: Deployment, board: Board, owner: str, post_id: str) -> list[PartOutcome] | None:
    """Apply a held post. Return its outcomes, or None if it is not held."""
    leaf, post_hash = board.leaf_of(owner), deployment.post_ids.hash_post_id(post_id, owner)
    post = await deployment.read(find_accepted, leaf, owner, post_hash)
    return None if post is None else (await deployment.apply(post))[0]


async def refuse(deployment: Deployment, board: Board, owner: str, post_id: str) -> None:
    leaf, post_hash = board.leaf_of(owner), deployment.post_ids.hash_post_id(post_id, owner)
    await deployment.write(refuse_post, leaf, owner, post_hash, now_us=deployment.clock())


async def list_all(deployment: Deployment, board: Board) -> list[HeldPost]:
    found: list[HeldPost] = []
    for leaf in board.leaves:
        found += await deployment.store.at(leaf.partition).read(lambda leaf=leaf: list_held(leaf.key, (0, ""), 100))  # type: ignore[misc]
    return found


async def find_owners(deployment: Deployment) -> set[str]:
    """Return who has rows in the tables of held posts, of gains and of hidden entries."""
    found: set[str] = set()
    for table in OF_OWNERS:
        for partition in range(deployment.store.partitions):
            rows = await deployment.store.at(partition).read_query(select(col("owner")).from_(table).bind())
            found.update(owner for (owner,) in rows)
    return found


async def test_a_post_beyond_a_limit_is_held_until_a_verdict(deployment: Deployment) -> None:
    board = await deployment.create("b", limited())
    held = post_of(deployment, board, "ada", 11, "big")
    [[first], [small], [again]] = await deployment.apply(held, post_of(deployment, board, "ada", 4, "small"), held)
    assert [each.status for each in (first, small, again)] == [PostStatus.HELD, PostStatus.APPLIED, PostStatus.HELD]
    [row] = await list_all(deployment, board)
    assert (row.owner, row.post_id, row.decoded_changes) == ("ada", "big", list(held.parts[0].changes))
    assert row.reason == "xp: 11 is more than post_max, 10"
    at_us = row.at_us
    [applied] = await accept(deployment, board, "ada", "big") or []
    assert (applied.status, applied.stats) == (PostStatus.APPLIED, [15])
    assert await accept(deployment, board, "ada", "big") is None
    repeated = await deployment.apply_one(held)
    assert (repeated.status, repeated.stats) == (PostStatus.DUPLICATE, [15])
    assert [each.record.at_us for each in await deployment.read_journal() if each.record and each.record.post_id] == [
        None,
        at_us,
    ]
    await deployment.apply_one(post_of(deployment, board, "ada", 12, "bigger"))
    with pytest.raises(UnknownPostError):
        await deployment.void(board, "ada", "bigger")
    for _ in range(2):
        await refuse(deployment, board, "ada", "bigger")
    refused = await deployment.apply_one(post_of(deployment, board, "ada", 12, "bigger"))
    assert isinstance(refused.error, PostVoidedError)
    assert await list_all(deployment, board) == []
    assert await accept(deployment, board, "ada", "bigger") is None


async def test_of_two_verdicts_at_once_one_counts(deployment: Deployment) -> None:
    board = await deployment.create("b", limited())
    for number in range(8):
        post = post_of(deployment, board, "ada", 100, f"p{number}")
        await deployment.apply(post)
        await asyncio.gather(*(judge(deployment, board, "ada", f"p{number}") for judge in (accept, refuse, accept)))
        settled = await deployment.apply_one(post)
        assert settled.status is PostStatus.DUPLICATE or isinstance(settled.error, PostVoidedError)
    assert await list_all(deployment, board) == []
    rows = await deployment.rows(board, ["ada"])
    applied = [each.record for each in await deployment.read_journal() if each.record and each.record.post_id]
    assert len({each.post_id for each in applied}) == len(applied)
    value = deployment.merger(board).decode_stats(rows["ada"].cells)[0] if rows and not board.is_spread else None
    assert value in (None, 100 * len(applied))


async def test_a_post_to_a_family_is_held_and_judged_as_a_whole(deployment: Deployment) -> None:
    family = await deployment.create_family(limited(), facets=((), ("clan",)))
    boards = await deployment.make_boards("all", "all:clan=red")
    post = make_family_post(deployment, family, "ada", 11, *boards, post_id="p")
    assert [each.status for each in (await deployment.apply(post))[0]] == [PostStatus.HELD] * 2
    other = make_family_post(deployment, family, "ada", 12, *boards, post_id="q")
    await deployment.apply(other)
    assert [len(await list_all(deployment, board)) for board in boards] == [2, 2]
    outcomes = await accept(deployment, boards[1], "ada", "p") or []
    assert [(each.status, each.stats) for each in outcomes] == [(PostStatus.APPLIED, [11])] * 2
    await refuse(deployment, boards[0], "ada", "q")
    assert [len(await list_all(deployment, board)) for board in boards] == [0, 0]
    assert [each.status for each in (await deployment.apply(post))[0]] == [PostStatus.DUPLICATE] * 2
    [refused] = {type(each.error) for each in (await deployment.apply(other))[0]}
    assert refused is PostVoidedError


async def test_what_one_board_holds_all_boards_of_a_post_hold(deployment: Deployment) -> None:
    one, two = await deployment.create("b", limited()), await deployment.create("c", ranked("xp"))
    post = deployment.post("ada", part(one, {"xp": 11}), part(two, {"xp": 11}), post_id="p")
    assert [each.status for each in (await deployment.apply(post))[0]] == [PostStatus.HELD] * 2
    assert await deployment.rows(two, ["ada"]) == {}
    await accept(deployment, two, "ada", "p")
    assert [len(await list_all(deployment, board)) for board in (one, two)] == [1, 0]


async def test_a_queued_post_is_held_and_refused_once_its_owner_is_merged(deployment: Deployment) -> None:
    board, desk = await deployment.create("b", limited()), await QueueDesk.on(deployment)
    asked = post_of(deployment, board, "ada", 1, "asked")
    asked.asks_hold = True
    await desk.enqueue(post_of(deployment, board, "ada", 11, "big"), asked)
    await desk.drain_queue()
    assert sorted(each.post_id for each in await list_all(deployment, board)) == ["asked", "big"]
    await deployment.merge("ada", "bob")
    [refused] = await accept(deployment, board, "ada", "asked") or []
    assert isinstance(refused.error, OwnerMergedError)


async def test_a_board_holds_a_bounded_number_of_posts(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "HELD_POSTS_MAX", 2)
    board = await deployment.create("b", limited())
    posts = [post_of(deployment, board, "ada", 11, f"p{number}") for number in range(3)]
    outcomes = [each for [each] in await deployment.apply(*posts)]
    assert [each.status for each in outcomes] == [PostStatus.HELD, PostStatus.HELD, PostStatus.REJECTED]
    assert isinstance((await deployment.apply_one(posts[2])).error, PostLimitError)
    await refuse(deployment, board, "ada", "p0")
    assert (await deployment.apply_one(posts[2])).status is PostStatus.HELD
    nameless = await deployment.apply_one(deployment.post("bob", part(board, {"xp": 11})))
    assert isinstance(nameless.error, PostLimitError), "nobody could name it"


async def test_erasing_and_pruning_leave_nothing(deployment: Deployment) -> None:
    board = await deployment.create("b", limited(gain=50))
    kept = await deployment.create("c", limited(gain=50))
    for owner in ("ada", "bob", "cy"):
        for each in (board, kept):
            await deployment.apply(post_of(deployment, each, owner, 11, "p"), post_of(deployment, each, owner, 1, "q"))
    await deployment.change_owner("ada").erase()
    await deployment.change_owner("bob").erase_entry(board)
    assert await find_owners(deployment) == {"bob", "cy"}
    assert {each.owner for each in await list_all(deployment, board)} == {"cy"}
    await deployment.reset("b")
    assert await list_all(deployment, await deployment.find("b")) == []
    later_us = deployment.clock() + round(KEPT_S * 1e6)
    for partition in range(deployment.store.partitions):
        store = deployment.store.at(partition)
        for prune in (prune_held, prune_gains):
            while await store.write(lambda prune=prune: prune(before_us=later_us, rows_max=1)):  # type: ignore[misc]
                pass
        assert await store.read(count_all_held) == 0
    assert await find_owners(deployment) == set()


async def test_a_process_that_does_not_know_new_limits_reads_them_first(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = await deployment.create("b", ranked("xp"))
    other = Deployment(deployment.store, "00", deployment.table)  # another process
    other.post_ids = deployment.post_ids
    assert (await other.apply_one(post_of(other, board, "ada", 11, "p"))).status is PostStatus.APPLIED
    changed = await deployment.change("b", deployment.laid_out(replace(board.spec, columns=(limited(),))))
    assert changed.edition != board.edition
    outdated = await other.apply_one(post_of(other, board, "ada", 11, "q"))
    assert outdated.error is not None, "the process has to read the board again"
    assert (await other.apply_one(post_of(other, changed, "ada", 11, "q"))).status is PostStatus.HELD
    lifted = await deployment.change("b", deployment.laid_out(replace(board.spec, columns=(ranked("xp"),))))
    assert (await other.apply_one(post_of(other, lifted, "ada", 11, "r"))).status is PostStatus.APPLIED


async def test_gains_within_an_hour_are_limited_as_a_list_says(deployment: Deployment) -> None:
    column = replace(ranked("xp"), limits=PostLimits(-3, 9, 20, False))
    board, rng, clock = await deployment.create("b", column), random.Random(7), deployment.clock
    gained: dict[str, list[tuple[int, int]]] = {"ada": [], "ÿ": []}
    for _ in range(60):
        clock.now_us += rng.choice([0, 60_000_000, 25 * 60_000_000, HOUR_US, HOUR_US + 60_000_000])
        posts = [(rng.choice(["ada", "ÿ"]), rng.randint(-5, 12)) for _ in range(rng.randint(1, 6))]
        outcomes = await deployment.apply(*(deployment.post(owner, part(board, {"xp": xp})) for owner, xp in posts))
        minute = clock.now_us // 60_000_000
        for (owner, xp), [outcome] in zip(posts, outcomes, strict=True):
            recent = sum(gain for at, gain in gained[owner] if at >= minute - 60)
            fits = -3 <= xp <= 9 and (xp <= 0 or recent + xp <= 20)
            assert (outcome.error is None) is fits, (owner, xp, recent)
            if fits and xp > 0:
                gained[owner].append((minute, xp))
    assert sum(len(each) for each in gained.values()) > 50

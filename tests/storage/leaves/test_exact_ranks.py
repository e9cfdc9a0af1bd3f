"""Compare ranks that the store calls exact with a plain count in the same snapshot."""

import asyncio
import random

import pytest

from storage.leaves.count_policy import DEFAULT_CHANGES_MAX
from storage.leaves.exact_ranks import CountStart
from storage.leaves.row_rankings import RowRanking
from storage.leaves.totals import find_totals
from storage.records import Best, Board, ColumnSpec, Post, Ties
from storage.store import Program
from tests.storage.deployment import Deployment, counter, part, ranked, spec
from tests.storage.processes import Processes

CHANGES_MAX = 1_000
OWNERS = [f"o{number:03d}" for number in range(120)]


async def fit(deployment: Deployment, board: Board, index: int) -> CountStart:
    return CountStart(*await deployment.fit(board, index), CHANGES_MAX, 0)


def columns(best: Best) -> tuple[ColumnSpec, ...]:
    return counter("shots"), ranked("xp", best=best, min_scaled=-300, max_scaled=300), ranked("lap", best=Best.LOW)


def random_post(deployment: Deployment, board: Board, rng: random.Random) -> Post:
    stats = {"xp": rng.randint(-20, 20), "shots": 1} if rng.random() < 0.8 else {"lap": rng.randint(1, 9)}
    # Each post has a time of its own. On a timed board, equal values with equal times would tie, which the test does
    # not expect.
    return deployment.post(rng.choice(OWNERS), part(board, stats), at_us=rng.randint(1, 10**12))


async def fill(deployment: Deployment, board: Board, rng: random.Random, posts: int = 150) -> None:
    await deployment.apply(*(random_post(deployment, board, rng) for _ in range(posts)))


def compare_counts(ranking: RowRanking, fitted: CountStart, probe: str, owner: str) -> Program[None]:
    found = yield from ranking.count_from_anchor(fitted, probe, owner=owner)
    assert found is not None
    better_count = yield from ranking.count_better(probe)
    _, before = yield from ranking.count_tied(probe, owner)
    assert (found.better_count, found.ties_before) == (better_count, before)


async def check_all(deployment: Deployment, board: Board, index: int, fitted: CountStart) -> int:
    """Compare the counts of every row, and of values without a row, with plain counts. Return the number of rows."""
    ranking = deployment.open_rows(board).rankings[index]

    def program() -> Program[int]:
        rows = yield from ranking.read_first_rows(1_000)
        totals = yield from find_totals([board.key])
        for number, entry in enumerate(rows, start=1):
            cell = entry.cells[index]
            assert isinstance(cell, str)
            yield from compare_counts(ranking, fitted, cell, entry.owner)
            at = yield from ranking.find_row(fitted, number)
            assert at == (cell, entry.owner)
        for value in (-300, -1, 0, 1, 299, 300):
            yield from compare_counts(ranking, fitted, ranking.padding.pad_arrival(value), "o5")
        found = yield from ranking.count_from_anchor(fitted, ranking.padding.pad(0))
        assert found is not None
        assert found.totals == totals[board.key]
        return len(rows)

    return await deployment.store.read(program)


@pytest.mark.parametrize("ties", Ties)
@pytest.mark.parametrize("best", Best)
async def test_short_and_full_counts_agree_after_every_change(deployment: Deployment, best: Best, ties: Ties) -> None:
    board = await deployment.create("b", *columns(best), ties=ties)
    rng = random.Random(5)
    await fill(deployment, board, rng)
    fitted = await fit(deployment, board, 1)
    assert await check_all(deployment, board, 1, fitted) > 50
    for _ in range(3):
        await fill(deployment, board, rng, posts=40)
        for owner in rng.sample(OWNERS, 10):
            await deployment.erase(board, owner)
        assert await check_all(deployment, board, 1, fitted) > 50
    wanted = deployment.laid_out(spec(*columns(best), ranked("late"), ties=ties))
    wider = await deployment.change(board.id, wanted)
    await deployment.apply(*(deployment.post(owner, part(wider, {"late": 1, "xp": 3})) for owner in OWNERS[:20]))
    await fill(deployment, board, rng, posts=20)
    await check_all(deployment, wider, 1, fitted)


async def test_a_short_count_from_an_empty_curve_counts_all_that_came_since(deployment: Deployment) -> None:
    board = await deployment.create("b", *columns(Best.HIGH))
    fitted = await fit(deployment, board, 1)
    await fill(deployment, board, random.Random(2), posts=30)
    await check_all(deployment, board, 1, fitted)


async def asked(deployment: Deployment, board: Board, start: CountStart) -> int | None:
    ranking = deployment.entries(board).rankings[1]
    found = await deployment.store.read(lambda: ranking.count_from_anchor(start, ranking.padding.pad(0)))
    return None if found is None else found.better_count


async def test_counts_of_many_cells_share_a_bound_on_changes(deployment: Deployment) -> None:
    board = await deployment.create("b", *columns(Best.HIGH))
    rng = random.Random(4)
    await fill(deployment, board, rng)
    fitted = await fit(deployment, board, 1)
    await deployment.apply(*(deployment.post(owner, part(board, {"xp": 1})) for owner in OWNERS[:30]))
    ranking = deployment.open_rows(board).rankings[1]
    cells = [(ranking.padding.pad(value), "") for value in (-20, -5, 0, 5, 20)]

    def count(changes_max: int) -> Program[list[int | None]]:
        start = fitted._replace(changes_max=changes_max)
        found = yield from ranking.gaps.count_better(start, cells)
        assert list(found) == cells
        return [None if each is None else each.better_count for each in found.values()]

    def count_plainly() -> Program[list[int]]:
        counts = []
        for cell, _ in cells:
            counts.append((yield from ranking.count_better(cell)))
        return counts

    assert await deployment.store.read(lambda: count(30)) == await deployment.store.read(count_plainly)
    assert await deployment.store.read(lambda: count(29)) == [None] * 5


async def test_a_ranking_remembers_a_mark_that_many_changes_follow(deployment: Deployment) -> None:
    board = await deployment.create("b", *columns(Best.HIGH))
    await fill(deployment, board, random.Random(3), posts=5)
    fitted = await fit(deployment, board, 1)
    gaps = deployment.open_rows(board).rankings[1].gaps
    for more, passed in ((DEFAULT_CHANGES_MAX, None), (1, fitted.mark)):
        await deployment.apply(*(deployment.post("ada", part(board, {"shots": 1})) for _ in range(more)))
        assert await asked(deployment, board, fitted) is not None
        assert gaps.passed_mark == passed


async def test_the_short_count_refuses_where_the_log_is_incomplete_or_too_long(deployment: Deployment) -> None:
    board = await deployment.create("b", *columns(Best.HIGH))
    rng = random.Random(2)
    await fill(deployment, board, rng, posts=30)
    fitted = await fit(deployment, board, 1)
    assert await asked(deployment, board, fitted) is not None
    later = fitted._replace(mark=fitted.mark + 1_000)
    assert await asked(deployment, board, later) is None, "the mark is of a store with larger numbers"
    await fill(deployment, board, rng, posts=30)
    since = [bundle for bundle in await deployment.read_log() if bundle.position >= fitted.mark]
    logged = sum(bool(after) for bundle in since for *_, after in bundle.changes())
    assert await asked(deployment, board, fitted._replace(changes_max=logged)) is not None
    assert await asked(deployment, board, fitted._replace(changes_max=logged - 1)) is None, "too many changes"
    await fill(deployment, board, rng, posts=30)
    await deployment.prune_log()
    assert await asked(deployment, board, fitted) is None, "the log no longer reaches back to the mark"


async def test_short_and_full_counts_agree_while_many_transactions_overlap(processes: Processes) -> None:
    reader, *writers = [await processes.start_process() for _ in range(4)]
    board = await reader.create("b", *columns(Best.LOW), ties=Ties.EARLIEST)
    await fill(reader, board, random.Random(8))
    done = asyncio.Event()

    async def write(deployment: Deployment, seed: int) -> None:
        rng = random.Random(seed)
        while not done.is_set():
            posts = {post.owner: post for post in (random_post(deployment, board, rng) for _ in range(5))}
            try:
                await deployment.apply(*(posts[owner] for owner in sorted(posts)))
                await deployment.erase(board, rng.choice(OWNERS))
            except Exception as error:
                if "race" not in type(error).__name__.lower():
                    raise

    writing = [asyncio.create_task(write(each, number)) for number, each in enumerate(writers)]
    ranking = reader.open_rows(board).rankings[1]
    rng = random.Random(1)
    try:
        for number in range(75):
            if number % 10 == 0:
                fitted = await fit(reader, board, 1)
            cell, owner = ranking.padding.pad(rng.randint(-40, 40), rng.randint(1, 10**12)), rng.choice(OWNERS)
            using = fitted
            await reader.store.read(lambda: compare_counts(ranking, using, cell, owner))  # noqa: B023 - run at once
    finally:
        done.set()
        await asyncio.gather(*writing)

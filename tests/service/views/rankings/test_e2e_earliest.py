"""Test boards on which the earliest owner wins a tie, in every view and on every store.

The tests use few values and few times, so nearly every rank depends on the time at which a value was reached. A post
may change several values at once. An owner may lose a value and reach it again, or post an equal value again.
"""

import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.service.plain_board import PlainBoard, PlainColumn
from tests.service.played_days import instant
from tests.service.real_service import RARELY, Service, escaped
from tests.storage.deployment import Clock

F = "/v1/families/game"
# Jobs close boards by the store's clock, so this time is far in the future.
NOON = datetime(2037, 3, 27, 12, tzinfo=UTC)
NOON_US = round(NOON.timestamp() * 1e6)
BOARDS = ("game:all", "game:2037-03-27", "game:2037-W13:org=7")
COLUMNS = [
    PlainColumn("mood", "last", "high", 0, -2, 2),
    PlainColumn("place", "last", "low", 2, 0, 300),
    PlainColumn("best", "max", "high", 0, 0, 4),
    PlainColumn("lap", "min", "low", 0, 0, 4),
    PlainColumn("xp", "sum", "high", 0, -1000, 1000),
]
SPEC: dict[str, Any] = {
    "columns": [column.body() for column in COLUMNS], "ties": "earliest", "periods": ["all", "week", "day"],
    "facets": [[], ["org"]], "predictor": {**RARELY, "samples": 7, "exact_top": 3},
}  # fmt: skip
MODES = ("auto", "exact", "estimate")


class Game:
    """A family and its model in plain Python. Every post reaches every board, so one model serves all boards."""

    def __init__(self, service: Service, seed: int) -> None:
        self.service, self.rng = service, random.Random(seed)
        self.clock = Clock(NOON_US)
        service.clock = self.clock
        self.plain = PlainBoard(COLUMNS, "earliest")
        self.owners = [f"p{number:02d}" for number in range(29)] + ["é", "日本", "\U0001f600"]

    async def play(self, posts: int) -> None:
        """Send posts with random times within 12 microseconds. One post in ten overwrites values instead of merging."""
        wire = []
        for _ in range(posts):
            owner, at_us = self.rng.choice(self.owners), NOON_US - self.rng.randrange(12)
            chosen = self.rng.sample(COLUMNS, self.rng.randint(1, 3))
            stats = {column.name: self.value(column) for column in chosen}
            overwrites = self.rng.random() < 0.1
            self.plain.post(owner, stats, at_us, overwrite=overwrites)
            texts = {name: self.plain.column(name).text(value) for name, value in stats.items()}
            body = {"owner": owner, "at": instant(at_us).isoformat(), "facets": {"org": "7"}}
            wire.append(body | {"set" if overwrites else "stats": texts})
        results = (await self.service.must("POST", f"{F}/posts", {"posts": wire}))["results"]
        assert {each["status"] for each in results} <= {"applied", "unchanged"}

    def value(self, column: PlainColumn) -> int:
        return self.rng.randint(-1, 1) if column.merge == "sum" else self.rng.choice((column.least, 1, column.most))

    async def refresh(self, boards: tuple[str, ...] = BOARDS) -> None:
        for board in boards:
            await self.service.refresh(escaped(board), *(column.name for column in COLUMNS))

    async def wait_folded(self, board: str) -> None:
        """Wait until the curves of a board count every post that was acknowledged before this call."""
        self.clock.now_us += 10_000_000  # if no entry changes, the folding job stores a new `as_of` only every 10 s
        await self.service.wait_folded(escaped(board), *(each.name for each in COLUMNS), now=instant(self.clock.now_us))


def path(board: str) -> str:
    return f"/v1/leaderboards/{escaped(board)}"


@pytest.fixture
async def game(either_store: dict[str, Any], table: str, tmp_path: Path) -> AsyncIterator[Game]:
    """Start a service with the family. The service counts ranks only in gaps with few entries."""
    service = Service(tmp_path, exact_gap_rows_max=3, **either_store)
    made = Game(service, seed=5)
    async with service.running():
        await service.must("PUT", F, {**SPEC, "table": table})
        yield made


async def test_every_view_counts_by_the_time_when_a_value_was_reached(game: Game) -> None:
    await game.play(200)
    for board in BOARDS:
        await check_rows(game, board)
        await check_positions(game, board, counted=True)
        await check_values(game, board, counted=True)


async def test_fitted_and_live_curves_rank_by_the_time_when_a_value_was_reached(game: Game) -> None:
    await game.play(180)
    board = BOARDS[1]
    await game.refresh((board,))
    await check_rows(game, board)
    await check_positions(game, board, counted=False)
    await check_values(game, board, counted=False)
    for _ in range(2):
        await game.play(80)
        await check_exact(game, board)
        await game.wait_folded(board)
        await check_rows(game, board)
        await check_positions(game, board, counted=False)
        await check_values(game, board, counted=False)


async def test_certified_curves_rank_by_the_time_when_a_value_was_reached(game: Game, table: str) -> None:
    predictor = {**SPEC["predictor"], "method": "scan"}
    await game.service.must("PUT", F, {**SPEC, "predictor": predictor, "table": table})
    await game.play(180)
    board = BOARDS[0]
    await game.refresh((board,))
    for column in COLUMNS:
        assert (await game.service.get(f"{path(board)}/rankings/{column.name}/curve"))["certificate"] is not None
    await check_positions(game, board, counted=False)
    await game.play(60)
    await game.wait_folded(board)
    await check_positions(game, board, counted=False)
    await check_rows(game, board)


@pytest.mark.parametrize("best", ["high", "low"])
async def test_a_value_that_was_lost_counts_from_when_it_was_reached_again(game: Game, best: str) -> None:
    column = next(each for each in COLUMNS if each.merge == "last" and each.best == best)
    good, bad = (2, 1) if best == "high" else (1, 2)

    async def post(owner: str, value: int, at_us: int) -> None:
        stats = {column.name: column.text(value)}
        body = {"owner": owner, "stats": stats, "at": instant(NOON_US + at_us).isoformat(), "facets": {"org": "7"}}
        await game.service.must("POST", f"{F}/posts", body)

    async def order() -> list[str]:
        page = await game.service.get(f"{path(BOARDS[0])}/rankings/{column.name}")
        assert [row["rank"] for row in page["entries"]] == list(range(1, len(page["entries"]) + 1))
        return [row["owner"] for row in page["entries"]]

    await post("ada", good, -50)
    await post("bob", good, -40)
    await post("cleo", good, -30)
    assert await order() == ["ada", "bob", "cleo"]
    await post("ada", good, -20)
    assert await order() == ["ada", "bob", "cleo"], "an equal value changes nothing"
    await post("ada", bad, -10)
    assert await order() == ["bob", "cleo", "ada"]
    await post("ada", good, -9)
    assert await order() == ["bob", "cleo", "ada"], "ada reached the value again, later than the others"
    await post("cleo", bad, -8)
    await post("cleo", good, -45)
    assert await order() == ["cleo", "bob", "ada"], "a late post counts from the time that it names"


async def check_positions(game: Game, board: str, *, counted: bool) -> None:
    truths = {column.name: game.plain.ranks(column.name) for column in COLUMNS}
    for owner in game.plain.rows:
        for mode in MODES:
            answer = await game.service.get(f"{path(board)}/entries/{escaped(owner)}/positions?rank={mode}")
            for each in answer["positions"]:
                name = each["column"]
                if each["rank"] is None:
                    assert owner not in truths[name]
                    continue
                check_position(each, truths[name][owner], len(truths[name]), exact=counted or mode == "exact")
    asked = {"owners": list(game.plain.rows), "column": "mood"}
    page = await game.service.must("POST", f"{path(board)}/entries/lookup", asked)
    for entry in page["entries"]:
        truth = truths["mood"].get(entry["owner"])
        assert (entry["position"] is None) == (truth is None)
        if truth is not None:
            check_position(entry["position"], truth, len(truths["mood"]), exact=counted)


def check_position(found: dict[str, Any], truth: int, total: int, *, exact: bool) -> None:
    """Check that a position's bracket contains the true rank. An exact position must have the true rank."""
    assert found["low"] <= truth <= found["high"]
    assert found["low"] <= found["rank"] <= found["high"]
    assert found["total"] == total
    assert not exact or found["rank"] == found["low"] == found["high"] == truth


async def check_exact(game: Game, board: str) -> None:
    """Check the exact ranks and the next better places of all owners. The curve need not count all posts yet."""
    for column in COLUMNS:
        ranks, order = game.plain.ranks(column.name), game.plain.order(column.name)
        for owner, better in zip(order, [None, *order], strict=False):
            query = f"columns={column.name}&rank=exact&next=true"
            [found] = (await game.service.get(f"{path(board)}/entries/{escaped(owner)}/positions?{query}"))["positions"]
            check_position(found, ranks[owner], len(ranks), exact=True)
            if better is None:
                assert found["next"] is None
            else:
                assert found["next"]["rank"] == ranks[better]
                assert column.scaled(found["next"]["value"]) == game.plain.value(column.name, better)


async def check_values(game: Game, board: str, *, counted: bool) -> None:
    """Check the positions of values, the rows around values, and the values at ranks."""
    for column in COLUMNS:
        order = game.plain.order(column.name)
        held = sorted({game.plain.value(column.name, owner) for owner in order} | {column.least, column.most})
        texts = ",".join(map(column.text, held))
        ranking = f"{path(board)}/rankings/{column.name}"
        for mode in MODES:
            found = (await game.service.get(f"{ranking}/positions?values={texts}&rank={mode}"))["positions"]
            for each, value in zip(found, held, strict=True):
                truth = game.plain.arrival_rank(column.name, value)
                check_position(each, truth, len(order), exact=counted or mode == "exact")
        for value in held:
            page = await game.service.get(f"{ranking}/around?value={column.text(value)}&better=4&worse=4")
            at = game.plain.arrival_rank(column.name, value) - 1
            assert [row["owner"] for row in page["entries"]] == order[max(0, at - 4) : at + 4]
        ranks = [1, 2, 3, 7, len(order) // 2, len(order), len(order) + 9]
        found = (await game.service.get(f"{ranking}/values?ranks={','.join(map(str, ranks))}"))["values"]
        for each, rank in zip(found, ranks, strict=True):
            truth = game.plain.value(column.name, order[min(rank, len(order)) - 1])
            assert column.scaled(each["low"]) <= truth <= column.scaled(each["high"])
            assert not counted or column.scaled(each["value"]) == truth


async def check_rows(game: Game, board: str) -> None:
    for column in COLUMNS:
        order, ranks = game.plain.order(column.name), game.plain.ranks(column.name)
        ranking = f"{path(board)}/rankings/{column.name}"
        page = await game.service.get(f"{ranking}?limit=7")
        walked = check_page(game, column, page, ranks)
        while page["next"] is not None:
            page = await game.service.get(f"{ranking}?limit=7&cursor={page['next']}")
            walked += check_page(game, column, page, ranks)
        assert walked == order
        page = await game.service.get(f"{ranking}?limit=5&cursor={page['prev']}")
        assert check_page(game, column, page, ranks) == order[: -(len(order) % 7 or 7)][-5:]
        for start in (2, len(order) // 2, len(order)):
            page = await game.service.get(f"{ranking}?limit=6&from_rank={start}")
            assert check_page(game, column, page, ranks) == order[start - 1 : start + 5]
        for at in (0, 1, len(order) // 2, len(order) - 1):
            query = f"column={column.name}&better=3&worse=3"
            page = await game.service.get(f"{path(board)}/entries/{escaped(order[at])}/around?{query}")
            rows = page["entries"]
            assert [row["owner"] for row in rows] == order[max(0, at - 3) : at + 4]
            assert all(row["rank"] == ranks[row["owner"]] for row in rows if row["exact"])
            assert all(row["rank"] < after["rank"] for row, after in pairwise(rows)), "ranks are unique"


def check_page(game: Game, column: PlainColumn, page: dict[str, Any], ranks: dict[str, int]) -> list[str]:
    """Check the rows of a page. Every rank must be found by counting. Return the owners on the page."""
    assert page["total"] == len(ranks)
    for row in page["entries"]:
        assert (row["rank"], row["exact"]) == (ranks[row["owner"]], True)
        assert column.scaled(row["value"]) == game.plain.value(column.name, row["owner"])
    return [row["owner"] for row in page["entries"]]

"""Test every view with ranks on random boards. Counted ranks and brackets must agree with a board in plain Python."""

import random
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.service.plain_board import PlainBoard, random_board, random_posts
from tests.service.real_service import Service, escaped

B = "/v1/leaderboards/b"
CASES = [(ties, seed) for ties in ("shared", "earliest") for seed in (1, 2)]
METHODS = {"count": True, "knot": True, "gap": True, "curve": False}  # for each method, whether its ranks are exact


@pytest.fixture(params=[1, 4], ids=["one table", "segments"])
async def service(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Service]:
    """Start a service that counts ranks only in gaps of up to 3 entries. So even small boards get estimated ranks."""
    async with Service(tmp_path, exact_gap_rows_max=3).running() as made:
        made.segments = request.param
        yield made


async def season(service: Service, ties: str, seed: int, **spec: Any) -> PlainBoard:
    """Make a random board. Send the same posts to the service and to a plain board. Return the plain board."""
    rng = random.Random(seed)
    board = random_board(rng, ties)
    await service.board("b", *(column.body() for column in board.columns), ties=ties, **spec)
    await play(service, board, random_posts(rng, board, owners=90, posts=400))
    return board


async def play(service: Service, board: PlainBoard, posts: list[dict[str, Any]]) -> None:
    """Send posts in two batches. Fail unless the service then has the same entries as the plain board."""
    half = len(posts) // 2
    for part in (posts[:half], posts[half:]):
        statuses = {result["status"] for result in await service.post("b", *part)}
        assert statuses <= {"applied", "unchanged", "rejected"}
    found = await service.must("POST", f"{B}/entries/lookup", {"owners": list(board.rows)})
    assert [entry["owner"] for entry in found["entries"]] == list(board.rows)
    for entry in found["entries"]:
        assert stats_of(board, entry["stats"]) == stats_in(board, entry["owner"])


def stats_of(board: PlainBoard, stats: dict[str, Any]) -> dict[str, int | None]:
    return {name: None if value is None else board.column(name).scaled(value) for name, value in stats.items()}


def stats_in(board: PlainBoard, owner: str) -> dict[str, int | None]:
    """Return the stats of an owner on the plain board. A column without a value has None."""
    row = board.rows[owner]
    return {column.name: row[column.name].scaled if column.name in row else None for column in board.columns}


def ranked(board: PlainBoard) -> list[str]:
    return [column.name for column in board.columns if column.sorted]


async def positions_of(service: Service, owner: str, mode: str) -> list[dict[str, Any]]:
    """Return an owner's positions in all ranked columns, or an empty list if the owner is not ranked."""
    answer = await service.call("GET", f"{B}/entries/{escaped(owner)}/positions?rank={mode}")
    if answer.status == 404:
        assert answer.body["code"] == "not_ranked"
        return []
    assert answer.body["owner"] == owner
    found: list[dict[str, Any]] = answer.body["positions"]
    return found


def check_position(found: dict[str, Any], truth: int, total: int, *, counted: bool) -> None:
    """Check that a position's bracket contains the true rank, and that `exact` and `method` agree with the bracket."""
    assert 1 <= found["low"] <= found["rank"] <= found["high"]
    assert found["low"] <= truth <= found["high"]
    assert found["exact"] == (found["low"] == found["high"])
    assert found["exact"] == METHODS[found["method"]]
    assert found["total"] == total
    percentile = 100.0 if total <= 1 else min(100.0, max(0.0, 100 * (total - found["rank"]) / (total - 1)))
    assert float(found["percentile"]) == pytest.approx(percentile, abs=0.0006)
    if counted:
        assert found["rank"] == truth
        assert found["method"] in ("count", "gap")


async def check_positions(service: Service, board: PlainBoard, mode: str, *, counted: bool) -> None:
    truths = {name: board.ranks(name) for name in ranked(board)}
    for owner, row in board.rows.items():
        found = await positions_of(service, owner, mode)
        assert [each["column"] for each in found] == (ranked(board) if set(row) & truths.keys() else [])
        for each in found:
            name = each["column"]
            if name not in row:
                assert each == {"column": name, "value": None, "rank": None}
                continue
            assert board.column(name).scaled(each["value"]) == board.value(name, owner)
            check_position(each, truths[name][owner], len(truths[name]), counted=counted)


@pytest.mark.parametrize(("ties", "seed"), CASES)
async def test_every_position_without_a_curve_is_counted_and_true(service: Service, ties: str, seed: int) -> None:
    board = await season(service, ties, seed)
    for mode in ("auto", "exact", "estimate"):
        await check_positions(service, board, mode, counted=True)


@pytest.mark.parametrize(("ties", "seed"), CASES)
async def test_brackets_of_curves_hold_true_ranks_and_exact_mode_counts(service: Service, ties: str, seed: int) -> None:
    board = await season(service, ties, seed, predictor={"samples": 7, "exact_top": 10})
    await service.refresh("b", *ranked(board))
    await check_positions(service, board, "auto", counted=False)
    await check_positions(service, board, "exact", counted=True)
    await check_positions(service, board, "estimate", counted=False)


async def test_auto_mode_counts_near_the_top_and_in_short_gaps_and_estimate_mode_never(service: Service) -> None:
    board = await season(service, "shared", 3, predictor={"samples": 7, "exact_top": 10})
    await service.refresh("b", *ranked(board))
    await service.wait_folded("b", *ranked(board))  # brackets of segments are wider while their curves' times differ
    for name in ranked(board):
        for owner, rank in board.ranks(name).items():
            path = f"{B}/entries/{escaped(owner)}/positions?columns={name}"
            (found,) = (await service.get(path))["positions"]
            (estimate,) = (await service.get(f"{path}&rank=estimate"))["positions"]
            if rank <= 10:
                assert found["method"] in ("count", "gap")
                assert found["rank"] == rank
            elif found["method"] in ("count", "gap"):
                assert estimate["low"] <= 10 or estimate["high"] - estimate["low"] <= 3, (found, estimate)
            assert estimate["method"] in ("knot", "curve")


async def test_auto_mode_is_exact_in_short_gaps_and_exact_mode_everywhere(tmp_path: Path) -> None:
    async with Service(tmp_path, exact_gap_rows_max=10_000).running() as service:
        board = await season(service, "shared", 3, predictor={"samples": 7, "exact_top": 0})
        await service.refresh("b", *ranked(board))
        await play(service, board, random_posts(random.Random(44), board, owners=200, posts=300))
        await service.wait_folded("b", *ranked(board))  # `auto` does not count while many changes follow the curve
        methods = set()
        for name in ranked(board):
            for owner, rank in board.ranks(name).items():
                for mode in ("auto", "exact"):
                    path = f"{B}/entries/{escaped(owner)}/positions?columns={name}&rank={mode}"
                    (found,) = (await service.get(path))["positions"]
                    methods.add(found["method"])
                    assert found["exact"], (owner, name, mode, found)
                    if (
                        found["method"] != "knot"
                    ):  # the rank of a knot was true when the curve was fitted, and may be wrong now
                        assert found["rank"] == rank
        assert {"gap"} <= methods <= {"count", "gap", "knot"}


async def test_a_live_curve_is_true_of_posts_after_its_fit(service: Service) -> None:
    board = await season(service, "shared", 4, predictor={"samples": 7, "exact_top": 0})
    await service.refresh("b", *ranked(board))
    fitted = {name: (await service.get(f"{B}/rankings/{name}/curve"))["as_of"] for name in ranked(board)}
    await play(service, board, random_posts(random.Random(44), board, owners=200, posts=300))
    await service.wait_folded("b", *ranked(board))
    for name in ranked(board):
        ranks = board.ranks(name)
        for owner, rank in ranks.items():
            path = f"{B}/entries/{escaped(owner)}/positions?columns={name}&rank=estimate"
            (found,) = (await service.get(path))["positions"]
            assert found["as_of"] > fitted[name]
            assert found["total"] == len(board.order(name))
            assert found["low"] <= rank <= found["high"]


@pytest.mark.parametrize(("ties", "seed"), CASES)
async def test_the_position_of_a_value_is_the_rank_of_a_new_arrival(service: Service, ties: str, seed: int) -> None:
    board = await season(service, ties, seed, predictor={"samples": 7, "exact_top": 10})
    rng = random.Random(seed)
    for has_curve in (False, True):
        if has_curve:
            await service.refresh("b", *ranked(board))
        for name in ranked(board):
            column, total = board.column(name), len(board.order(name))
            taken = [board.value(name, owner) for owner in rng.sample(board.order(name), 12)]
            asked = [*taken, *(rng.randint(column.least, column.most) for _ in range(12)), column.least, column.most]
            texts = ",".join(column.text(value) for value in asked)
            for mode in ("auto", "exact", "estimate"):
                found = (await service.get(f"{B}/rankings/{name}/positions?values={texts}&rank={mode}"))["positions"]
                assert [column.scaled(each["value"]) for each in found] == asked
                for each, value in zip(found, asked, strict=True):
                    counted = mode == "exact" or not has_curve
                    check_position(each, board.arrival_rank(name, value), total, counted=counted)


def around_in(board: PlainBoard, name: str, at: int, better: int, worse: int) -> list[str]:
    """Return the `better` owners before the 0-based index `at` of a ranking, and the `worse` owners from `at` on."""
    return board.order(name)[max(0, at - better) : at + worse]


@pytest.mark.parametrize(("ties", "seed"), CASES)
async def test_rows_around_an_owner_are_its_neighbours_in_the_ranking(service: Service, ties: str, seed: int) -> None:
    board = await season(service, ties, seed, predictor={"samples": 7, "exact_top": 10})
    for has_curve in (False, True):
        if has_curve:
            await service.refresh("b", *ranked(board))
        for name in ranked(board):
            order, truths = board.order(name), board.ranks(name)
            for at in {0, 1, len(order) - 1, *random.Random(seed).sample(range(len(order)), 8)}:
                path = f"{B}/entries/{escaped(order[at])}/around?column={name}&better=4&worse=3"
                page = await service.get(path)
                rows = page["entries"]
                assert [row["owner"] for row in rows] == around_in(board, name, at, 4, 4)
                check_rows(board, name, rows, truths, page, counted=not has_curve)


def check_rows(
    board: PlainBoard, name: str, rows: list[dict[str, Any]], truths: dict[str, int], page: Any, *, counted: bool
) -> None:
    """Check that rows have the values of the plain board and true ranks, in the order of the ranking."""
    assert (page["column"], page["total"]) == (name, len(truths))
    for row in rows:
        assert board.column(name).scaled(row["value"]) == board.value(name, row["owner"])
        assert stats_of(board, row["stats"]) == stats_in(board, row["owner"])
        assert row["rank"] >= 1
        if row["exact"] or counted:
            assert (row["rank"], row["exact"]) == (truths[row["owner"]], True)
    for row, after in pairwise(rows):
        tied = board.key(name, row["owner"]) == board.key(name, after["owner"])
        assert (row["rank"] == after["rank"]) if tied else (row["rank"] < after["rank"])


@pytest.mark.parametrize(("ties", "seed"), CASES)
async def test_rows_around_a_value_are_its_neighbours_in_the_ranking(service: Service, ties: str, seed: int) -> None:
    board = await season(service, ties, seed, predictor={"samples": 7, "exact_top": 10})
    rng = random.Random(seed)
    for has_curve in (False, True):
        if has_curve:
            await service.refresh("b", *ranked(board))
        for name in ranked(board):
            column, truths = board.column(name), board.ranks(name)
            values = [board.value(name, owner) for owner in rng.sample(board.order(name), 4)]
            values += [*(rng.randint(column.least, column.most) for _ in range(4)), column.least, column.most]
            for value in values:
                page = await service.get(f"{B}/rankings/{name}/around?value={column.text(value)}&better=4&worse=5")
                at = board.arrival_rank(name, value) - 1
                assert [row["owner"] for row in page["entries"]] == around_in(board, name, at, 4, 5)
                check_rows(board, name, page["entries"], truths, page, counted=not has_curve)


@pytest.mark.parametrize(("ties", "seed"), CASES)
async def test_the_value_for_a_rank_is_the_worst_that_reaches_the_rank(service: Service, ties: str, seed: int) -> None:
    board = await season(service, ties, seed, predictor={"samples": 7, "exact_top": 10})
    asked = [1, 2, 10, 11, 30, 60, 10**6]
    shares = ["0", "12.5", "50", "99", "100"]
    for has_curve in (False, True):
        if has_curve:
            await service.refresh("b", *ranked(board))
        for name in ranked(board):
            column, order = board.column(name), board.order(name)
            query = f"ranks={','.join(map(str, asked))}&percentiles={','.join(shares)}"
            found = (await service.get(f"{B}/rankings/{name}/values?{query}"))["values"]
            assert [each["rank"] for each in found[: len(asked)]] == asked
            assert [str(each["percentile"]) for each in found[len(asked) :]] == ["0.0", "12.5", "50.0", "99.0", "100.0"]
            wanted = [*asked, *(share_rank(share, len(order)) for share in shares)]
            for each, rank in zip(found, wanted, strict=True):
                truth = board.value(name, order[min(rank, len(order)) - 1])
                low, value, high = (column.scaled(each[part]) for part in ("low", "value", "high"))
                assert low <= value <= high
                assert low <= truth <= high
                assert each["exact"] == (low == high)
                if not has_curve or rank <= 10:
                    assert (value, each["exact"]) == (truth, True)


def share_rank(percentile: str, total: int) -> int:
    return max(rank for rank in range(1, total + 1) if 100 * (total - rank) >= float(percentile) * (total - 1))

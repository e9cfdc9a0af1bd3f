"""Test every view with ranks on random boards. Counted ranks and brackets must agree with a board in plain Python.

The boards stand in one table, in segments, and in a shared table of PostgreSQL. Their values and times are few, so many
owners tie. If the earliest owner wins a tie, nearly every rank depends on the time at which a value was reached.
"""

import random
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.schemas import fresh_store
from tests.service.plain_board import PlainBoard, random_board, random_posts
from tests.service.real_service import Service, escaped

B = "/v1/leaderboards/b"
PLACES: dict[str, dict[str, Any]] = {"one table": {}, "segments": {"segments": 4}, "postgres": {"table": "shared"}}
CASES = [
    ("one table", "shared", 1),
    ("segments", "c_last,time,earliest", 2),
    ("postgres", "time,plain", 3),
]
CURVE = {"predictor": {"samples": 7, "exact_top": 10}}
TOP = CURVE["predictor"]["exact_top"]
MODES = ("auto", "exact", "estimate")
METHODS = {"count": True, "knot": True, "gap": True, "curve": False}  # for each method, whether its ranks are exact


@pytest.fixture
async def service(request: pytest.FixtureRequest, tmp_path: Path, place: str) -> AsyncIterator[Service]:
    """Start a service that counts ranks only in gaps of up to 3 entries. So even small boards get estimated ranks."""
    if place != "postgres":
        async with Service(tmp_path, exact_gap_rows_max=3).running() as made:
            yield made
        return
    async with (
        fresh_store(request.getfixturevalue("postgres_url")) as url,
        Service(tmp_path, exact_gap_rows_max=3, store=url).running() as made,
    ):
        yield made


class Season:
    """A board of a service, and its model in plain Python, which gets the same posts."""

    def __init__(self, service: Service, ties: str, seed: int) -> None:
        self.service, self.rng = service, random.Random(seed)
        self.plain = random_board(self.rng, ties)
        self.ranked = [column.name for column in self.plain.columns if column.sorted]

    async def create(self, **spec: Any) -> None:
        columns = (column.body() for column in self.plain.columns)
        await self.service.board("b", *columns, ties=self.plain.ties_sent, **spec)

    async def play(self, owners: int = 60, posts: int = 260) -> None:
        """Send posts in two batches. Fail unless the service then has the same entries as the plain board."""
        sent = random_posts(self.rng, self.plain, owners=owners, posts=posts)
        for part in (sent[: posts // 2], sent[posts // 2 :]):
            statuses = {result["status"] for result in await self.service.post("b", *part)}
            assert statuses <= {"applied", "unchanged", "rejected"}
        found = await self.service.must("POST", f"{B}/entries/lookup", {"owners": list(self.plain.rows)})
        assert [entry["owner"] for entry in found["entries"]] == list(self.plain.rows)
        for entry in found["entries"]:
            assert self.scaled(entry["stats"]) == self.stats_in(entry["owner"])

    async def refresh(self) -> None:
        await self.service.refresh("b", *self.ranked)

    async def wait_folded(self) -> None:
        await self.service.wait_folded("b", *self.ranked)

    def scaled(self, stats: dict[str, Any]) -> dict[str, int | None]:
        return {name: None if text is None else self.plain.column(name).scaled(text) for name, text in stats.items()}

    def stats_in(self, owner: str) -> dict[str, int | None]:
        """Return the stats of an owner on the plain board. A column without a value has None."""
        row = self.plain.rows[owner]
        return {each.name: row[each.name].scaled if each.name in row else None for each in self.plain.columns}


async def make_season(service: Service, place: str, ties: str, seed: int, **spec: Any) -> Season:
    made = Season(service, ties, seed)
    await made.create(**PLACES[place], **spec)
    await made.play()
    return made


def check_position(found: dict[str, Any], truth: int, total: int, *, counted: bool) -> None:
    """Check that a position's bracket contains the true rank, and that `exact` and `method` agree with the bracket."""
    assert 1 <= found["low"] <= found["rank"] <= found["high"]
    assert found["low"] <= truth <= found["high"]
    assert found["exact"] == (found["low"] == found["high"]) == METHODS[found["method"]]
    assert found["total"] == total
    percentile = 100.0 if total <= 1 else min(100.0, max(0.0, 100 * (total - found["rank"]) / (total - 1)))
    assert float(found["percentile"]) == pytest.approx(percentile, abs=0.0006)
    if counted:
        assert found["rank"] == truth
        assert found["method"] in ("count", "gap")


def check_next(board: PlainBoard, ranks: dict[str, int], owner: str, found: dict[str, Any], *, counted: bool) -> None:
    """Compare an answer's next better place with the next better owner. `ranks` has the column's owners, best first."""
    name, place = found["column"], found["next"]
    column = board.column(name)
    better = [other for other, rank in ranks.items() if rank < ranks[owner]]
    if not better:
        assert place is None
        return
    assert column.scaled(place["value"]) == board.value(name, better[-1])
    assert place["low"] <= ranks[better[-1]] <= place["high"]
    assert place["low"] <= place["rank"] <= place["high"]
    assert place["exact"] == (place["low"] == place["high"])
    if counted:
        assert (place["rank"], place["exact"]) == (ranks[better[-1]], True)
    towards = 1 if column.best == "high" else -1
    own = board.value(name, owner)
    if place["points"] is None:
        assert board.value(name, better[-1]) in (column.least, column.most)
        return
    points = column.scaled(place["points"])
    assert board.arrival_rank(name, own + towards * points) <= ranks[better[-1]]
    # If the owner got one unit less than these points, it would not reach the place.
    assert board.arrival_rank(name, own + towards * (points - 1)) > ranks[better[-1]]


async def check_positions(season: Season, mode: str, *, counted: bool) -> None:
    """Check the positions of all owners in all columns, and their next better places."""
    truths = {name: season.plain.ranks(name) for name in season.ranked}
    for owner, row in season.plain.rows.items():
        path = f"{B}/entries/{escaped(owner)}/positions?rank={mode}&next=true"
        if not set(row) & truths.keys():
            assert await season.service.refused("GET", path) == (404, "not_ranked")
            continue
        answer = await season.service.get(path)
        assert (answer["owner"], [each["column"] for each in answer["positions"]]) == (owner, season.ranked)
        for each in answer["positions"]:
            name = each["column"]
            if name not in row:
                assert each == {"column": name, "value": None, "rank": None}
                continue
            assert season.plain.column(name).scaled(each["value"]) == season.plain.value(name, owner)
            check_position(each, truths[name][owner], len(truths[name]), counted=counted)
            check_next(season.plain, truths[name], owner, each, counted=counted)


async def check_lookups(season: Season, *, counted: bool) -> None:
    for name in season.ranked:
        truths, asked = season.plain.ranks(name), {"owners": list(season.plain.rows), "column": name}
        for entry in (await season.service.must("POST", f"{B}/entries/lookup", asked))["entries"]:
            assert (entry["position"] is None) == (entry["owner"] not in truths)
            if entry["position"] is not None:
                check_position(entry["position"], truths[entry["owner"]], len(truths), counted=counted)


async def check_values(season: Season, *, counted: bool, exact_top: int) -> None:
    """Check the positions of values, the rows around values, and the values at ranks and percentiles."""
    for name in season.ranked:
        column, order = season.plain.column(name), season.plain.order(name)
        taken = [season.plain.value(name, owner) for owner in season.rng.sample(order, 12)]
        drawn = (season.rng.randint(column.least, column.most) for _ in range(8))
        asked = [*taken, *drawn, column.least, column.most]
        path = f"{B}/rankings/{name}/positions?values={','.join(map(column.text, asked))}"
        for mode in MODES:
            found = (await season.service.get(f"{path}&rank={mode}"))["positions"]
            assert [column.scaled(each["value"]) for each in found] == asked
            for each, value in zip(found, asked, strict=True):
                truth = season.plain.arrival_rank(name, value)
                check_position(each, truth, len(order), counted=counted or mode == "exact")
        for value in asked[8:]:
            page = await season.service.get(f"{B}/rankings/{name}/around?value={column.text(value)}&better=4&worse=5")
            at = season.plain.arrival_rank(name, value) - 1
            assert [row["owner"] for row in page["entries"]] == order[max(0, at - 4) : at + 5]
            check_rows(season, name, page, counted=counted)
        await check_values_at_ranks(season, name, counted=counted, exact_top=exact_top)


async def check_values_at_ranks(season: Season, name: str, *, counted: bool, exact_top: int) -> None:
    """Check that the value for a rank is the worst value that reaches the rank."""
    column, order = season.plain.column(name), season.plain.order(name)
    asked, shares = [1, 2, 10, 11, 30, 60, 10**6], ["0.0", "12.5", "50.0", "99.0", "100.0"]
    query = f"ranks={','.join(map(str, asked))}&percentiles={','.join(shares)}"
    found = (await season.service.get(f"{B}/rankings/{name}/values?{query}"))["values"]
    assert [each["rank"] for each in found[: len(asked)]] == asked
    assert [str(each["percentile"]) for each in found[len(asked) :]] == shares
    wanted = [*asked, *(share_rank(share, len(order)) for share in shares)]
    for each, rank in zip(found, wanted, strict=True):
        truth = season.plain.value(name, order[min(rank, len(order)) - 1])
        low, value, high = (column.scaled(each[part]) for part in ("low", "value", "high"))
        assert low <= value <= high
        assert low <= truth <= high
        assert each["exact"] == (low == high)
        if counted or rank <= exact_top:
            assert (value, each["exact"]) == (truth, True)


def share_rank(percentile: str, total: int) -> int:
    return max(rank for rank in range(1, total + 1) if 100 * (total - rank) >= float(percentile) * (total - 1))


async def check_rows_around_owners(season: Season, *, counted: bool) -> None:
    for name in season.ranked:
        order = season.plain.order(name)
        for at in {0, 1, len(order) - 1, *season.rng.sample(range(len(order)), 8)}:
            path = f"{B}/entries/{escaped(order[at])}/around?column={name}&better=4&worse=3"
            page = await season.service.get(path)
            assert [row["owner"] for row in page["entries"]] == order[max(0, at - 4) : at + 4]
            check_rows(season, name, page, counted=counted)


def check_rows(season: Season, name: str, page: Any, *, counted: bool) -> None:
    """Check that rows have the values of the plain board and true ranks, in the order of the ranking."""
    board, truths = season.plain, season.plain.ranks(name)
    assert (page["column"], page["total"]) == (name, len(truths))
    for row in page["entries"]:
        assert board.column(name).scaled(row["value"]) == board.value(name, row["owner"])
        assert season.scaled(row["stats"]) == season.stats_in(row["owner"])
        assert row["rank"] >= 1
        if row["exact"] or counted:
            assert (row["rank"], row["exact"]) == (truths[row["owner"]], True)
    for row, after in pairwise(page["entries"]):
        tied = board.keys(name)[row["owner"]] == board.keys(name)[after["owner"]]
        assert (row["rank"] == after["rank"]) if tied else (row["rank"] < after["rank"])


async def check_views(season: Season, *, counted: bool = False, exact_top: int = 0) -> None:
    """Compare all views with the plain board. `counted`: no curve is there, so that every rank has to be counted."""
    for mode in MODES:
        await check_positions(season, mode, counted=counted or mode == "exact")
    await check_lookups(season, counted=counted)
    await check_values(season, counted=counted, exact_top=exact_top)
    await check_rows_around_owners(season, counted=counted)


@pytest.mark.parametrize(("place", "ties", "seed"), CASES)
async def test_every_rank_without_a_curve_is_counted_and_true(
    service: Service, place: str, ties: str, seed: int
) -> None:
    await check_views(await make_season(service, place, ties, seed), counted=True)


@pytest.mark.parametrize(("place", "ties", "seed"), CASES)
async def test_brackets_of_fitted_and_live_curves_hold_true_ranks_and_exact_mode_counts(
    service: Service, place: str, ties: str, seed: int
) -> None:
    season = await make_season(service, place, ties, seed, **CURVE)
    await season.refresh()
    await check_views(season, exact_top=TOP)
    fitted = {name: (await service.get(f"{B}/rankings/{name}/curve"))["as_of"] for name in season.ranked}
    await season.play(owners=80, posts=120)
    await check_positions(season, "exact", counted=True)
    await season.wait_folded()
    await check_views(season)
    for name in season.ranked:
        assert (await service.get(f"{B}/rankings/{name}/curve"))["as_of"] > fitted[name]


@pytest.mark.parametrize("place", PLACES)
async def test_brackets_of_certified_curves_hold_true_ranks(service: Service, place: str) -> None:
    season = await make_season(service, place, "earliest", 3, predictor={**CURVE["predictor"], "method": "scan"})
    await season.refresh()
    for name in season.ranked:
        assert (await service.get(f"{B}/rankings/{name}/curve"))["certificate"] is not None
    await check_positions(season, "estimate", counted=False)
    await season.play(posts=60)
    await season.wait_folded()
    await check_positions(season, "estimate", counted=False)


@pytest.mark.parametrize("place", ["one table", "segments"])
async def test_auto_mode_counts_near_the_top_and_in_short_gaps_and_estimate_mode_never(
    service: Service, place: str
) -> None:
    season = await make_season(service, place, "shared", 3, **CURVE)
    await season.refresh()
    await season.wait_folded()  # brackets of segments are wider while their curves' times differ
    for name in season.ranked:
        for owner, rank in season.plain.ranks(name).items():
            path = f"{B}/entries/{escaped(owner)}/positions?columns={name}"
            (found,) = (await service.get(path))["positions"]
            (estimate,) = (await service.get(f"{path}&rank=estimate"))["positions"]
            if rank <= TOP:
                assert found["method"] in ("count", "gap")
                assert found["rank"] == rank
            elif found["method"] in ("count", "gap"):
                assert estimate["low"] <= TOP or estimate["high"] - estimate["low"] <= 3, (found, estimate)
            assert estimate["method"] in ("knot", "curve")


@pytest.mark.parametrize("best", ["high", "low"])
@pytest.mark.parametrize("place", ["one table", "postgres"])
async def test_a_value_that_was_lost_counts_from_when_it_was_reached_again(
    service: Service, place: str, best: str
) -> None:
    good, bad = (2, 1) if best == "high" else (1, 2)
    await service.board("b", {"name": "xp", "best": best}, ties="earliest", **PLACES[place])

    async def post(owner: str, value: int, second: int) -> None:
        await service.post("b", {"owner": owner, "stats": {"xp": value}, "at": f"2026-01-01T00:00:{second:02d}Z"})

    async def order() -> list[str]:
        rows = (await service.get(f"{B}/rankings/xp"))["entries"]
        assert [row["rank"] for row in rows] == list(range(1, len(rows) + 1))
        return [row["owner"] for row in rows]

    for owner, second in (("ada", 0), ("bob", 10), ("cleo", 20)):
        await post(owner, good, second)
    assert await order() == ["ada", "bob", "cleo"]
    await post("ada", good, 30)
    assert await order() == ["ada", "bob", "cleo"], "an equal value changes nothing"
    await post("ada", bad, 40)
    assert await order() == ["bob", "cleo", "ada"]
    await post("ada", good, 41)
    assert await order() == ["bob", "cleo", "ada"], "ada reached the value again, later than the others"
    await post("cleo", bad, 42)
    await post("cleo", good, 5)
    assert await order() == ["cleo", "bob", "ada"], "a late post counts from the time that it names"

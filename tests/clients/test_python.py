"""Test that every operation of the Python client works with the real service, sync and async."""

import asyncio
import inspect
import json
import pydoc
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
import rankcurve
from rankcurve import AsyncClient, Client, OfflineCurve
from rankcurve.answers import Cohort, Curve, Erased, OwnerEvent, TopEvent, decode
from rankcurve.client import Operations
from rankcurve.errors import (
    BadRequestError,
    BoardFullError,
    ColumnNeededError,
    NotFoundError,
    NotRankedError,
    OwnerMergedError,
    PostsRejectedError,
    RankcurveError,
    UnknownBoardError,
    UnknownFamilyError,
    UnknownOwnerError,
)
from rankcurve.programs import operation, walk

from tests.service.real_service import Service

OWNERS = 300
COLUMNS: list[dict[str, Any]] = [
    {"name": "xp", "sorted": True, "merge": "sum"},
    {"name": "lap", "sorted": True, "merge": "min", "best": "low", "scale": 3, "min": 0},
    {"name": "tag", "sorted": False, "merge": "last", "type": "text"},
]
PREDICTOR = {"samples": 40, "exact_top": 10, "refresh_seconds": 86_400, "method": "skip"}
FAMILY = {"columns": COLUMNS, "periods": ["all", "week", "day"], "facets": [[], ["clan"]], "predictor": PREDICTOR}
OPERATIONS = {name for name, each in vars(Operations).items() if isinstance(each, operation | walk)}


class Recorded:
    """A client whose methods are coroutines, and the names of the methods that were called."""

    def __init__(self, client: Client | AsyncClient) -> None:
        self.called: set[str] = set()
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        self.called.add(name)
        method = getattr(self._client, name)
        is_walk = isinstance(vars(Operations)[name], walk)

        async def call(*arguments: Any, **named: Any) -> Any:
            if isinstance(self._client, AsyncClient):
                return (
                    [item async for item in method(*arguments, **named)]
                    if is_walk
                    else await method(*arguments, **named)
                )
            return await asyncio.to_thread(
                lambda: list(method(*arguments, **named)) if is_walk else method(*arguments, **named)
            )

        return call


@pytest.fixture(params=["sync", "async"])
async def client(request: pytest.FixtureRequest, service: Service) -> AsyncIterator[Recorded]:
    if request.param == "async":
        async with AsyncClient(service.base) as made:
            yield Recorded(made)
    else:
        with Client(service.base) as made:
            yield Recorded(made)


async def test_every_operation_works_with_the_real_service(client: Recorded) -> None:
    await use_posts_and_curves(client)
    await read_ranks(client)
    await rank_offline(client)
    await use_a_family(client)
    await say_it_shorter(client)
    await use_owners(client)
    await claim_a_reward(client)
    await play_a_league(client)
    await request_anything(client)
    assert client.called == OPERATIONS - {"stream", "stream_cohort"}


async def use_posts_and_curves(client: Recorded) -> None:
    made = await client.create_board("b", {"columns": COLUMNS, "predictor": PREDICTOR})
    assert ([column.name for column in made.columns], made.ranked_columns()) == (["xp", "lap", "tag"], ["xp", "lap"])
    posts = [
        {"owner": f"p{index}", "stats": {"xp": index * 3, "lap": Decimal(index) / 8, "tag": "x"}}
        for index in range(OWNERS)
    ]
    results = await client.post("b", posts)
    assert [result.status for result in results] == ["applied"] * OWNERS
    assert results[7].stats == {"xp": 21, "lap": Decimal("0.875"), "tag": "x"}
    assert [result.status for result in await client.post("b", [{"owner": "q", "stats": {"xp": 1}}], queued=True)] == [
        "accepted"
    ]
    assert [result.status for result in await client.post("b", {"owner": "q", "stats": {"xp": 1}})] == ["applied"]
    assert (await client.refresh_curve("b", "xp")).total >= OWNERS
    assert (await client.audit_curve("b", "xp", owners=20)).brackets_broken == 0
    assert (await client.board("b")).curves["xp"].knots > 10


async def read_ranks(client: Recorded) -> None:
    [position] = await client.positions("b", "p299", ["xp"], next=True)
    assert (position.column, position.value, position.rank, position.exact, position.next) == ("xp", 897, 1, True, None)
    xp, lap = await client.positions("b", "p150", rank="exact", next=True)
    assert (xp.next.value, xp.next.points, lap.value, lap.rank) == (453, 3, Decimal("18.750"), 151)
    [other] = await client.positions_on_boards("p150", ["b"], "xp")
    assert (other.board, other.rank) == ("b", xp.rank)
    value = (await client.value_positions("b", "lap", ["18.750", Decimal("0")]))[0]
    assert (value.value, value.low <= 151 <= value.high) == (Decimal("18.750"), True)
    around = await client.around("b", "p150", "xp", better=1, worse=1)
    assert [entry.owner for entry in around.entries] == ["p151", "p150", "p149"]
    assert (await client.value_around("b", "xp", 450, better=1, worse=0)).entries[0].owner == "p151"
    page = await client.page("b", "xp", limit=2, from_rank=3)
    assert ([entry.owner for entry in page.entries], page.prev is not None) == (["p297", "p296"], True)
    assert (await client.page("b", "xp", limit=2, cursor=page.next)).entries[0].rank == 5
    assert [entry.owner for entry in await client.entries("b", "lap", limit=90)] == [
        f"p{index}" for index in range(OWNERS)
    ]
    assert [len(page.entries) for page in await client.pages("b", "lap", limit=200)] == [200, 100]
    assert (await client.entry("b", "p1")).stats == {"xp": 3, "lap": Decimal("0.125"), "tag": "x"}
    found = await client.lookup("b", ["p2", "p5", "nobody"], "xp")
    assert ([entry.place for entry in found.entries], found.missing) == ([2, 1], ["nobody"])
    assert [each.value for each in await client.values("b", "lap", ranks=[1, 2])] == [0, Decimal("0.125")]
    assert (await client.values("b", "lap", percentiles=[99.5]))[0].percentile == 99.5
    assert sum(bucket.entries for bucket in await client.buckets("b", "lap", buckets=3)) == OWNERS


async def rank_offline(client: Recorded) -> None:
    curve = await client.curve("b", "xp")
    assert isinstance(curve, OfflineCurve)
    assert curve.rank(897).rank == 1
    assert await client.renew_curve(curve) is False
    await client.post_to_boards([{"owner": "new", "stats": {"xp": 10_000}, "boards": ["b"]}])
    await client.refresh_curve("b", "xp")
    assert await client.renew_curve(curve) is True
    assert curve.rank(10_000).rank == 1


async def use_a_family(client: Recorded) -> None:
    assert (await client.create_family("arena", FAMILY))["id"] == "arena"
    [result] = await client.post_to_family("arena", {"owner": "p1", "stats": {"xp": 9}, "facets": {"clan": "fox"}})
    assert len(result.boards) == 6
    held = await client.family_board("arena", period="week", facets={"clan": "fox"})
    assert (held.board, held.period.closed) == (result.boards[3].board, False)
    assert (await client.positions("arena:this-week:clan=fox", "p1", ["xp"], compare="previous"))[0].rank == 1
    assert await client.history("arena", "p1", "xp", period="week", facets={"clan": "fox"}) == []
    assert "arena:all" in [board.id for board in await client.boards("arena")]
    assert [board.id for board in await client.boards(contains="B", families=False, order="activity")] == ["b"]
    assert [family["id"] for family in await client.families()] == ["arena"]
    assert (await client.family("arena"))["boards"] == 6
    [fox] = await client.facet_values("arena", "clan", period="week")
    assert (fox.value, fox.board, fox.entries) == ("fox", held.board, 1)


async def say_it_shorter(client: Recorded) -> None:
    made = await client.create_board("laps", "lap:min:low.3", "car:with=lap:text", ties="earliest", segments=2)
    [lap, car] = made.columns
    assert (lap.ranked, lap.best, lap.scale, car.ranked, car.of) == (True, "low", 3, False, "lap")
    car_spec = {"name": "car", "merge": "with", "of": "lap", "type": "text"}
    columns = [{"name": "lap", "merge": "min", "scale": 3}, car_spec]
    assert await client.create_board("laps", {"columns": columns}, ties="earliest", segments=2) == made
    at = datetime.now(UTC) - timedelta(seconds=2)
    first = await client.post_one("laps", "bob", post_id="one", at=at, lap=58.25, car="red")
    assert (first.status, first.stats) == ("applied", {"lap": Decimal("58.250"), "car": "red"})
    assert (await client.post_one("laps", "bob", post_id="one", at=at, lap=58.25, car="red")).status == "duplicate"
    await client.post_one("laps", "ada", lap="58.25")
    placed = await client.post_one("laps", "cy", lap=60, positions=["lap"], moved=True)
    assert [(each.rank, each.rank_before) for each in placed.positions] == [(3, None)]
    [placed] = await client.post("laps", {"owner": "cy", "stats": {"lap": 60}}, positions=["lap"], moved=True)
    assert [(each.rank, each.rank_before) for each in placed.positions] == [(3, 3)]
    assert [(row.rank, row.owner) for row in await client.top("laps")] == [(1, "bob"), (2, "ada"), (3, "cy")]
    assert [row.owner for row in await client.top("laps", 1, "lap")] == ["bob"]
    assert await client.rank("laps", "ada") == await client.rank("laps", "ada", "lap") == 2
    assert [row.owner for row in (await client.around("laps", "ada", better=0)).entries] == ["ada", "cy"]
    assert (await client.page("laps", limit=1)).column == "lap"
    with pytest.raises(NotFoundError, match="tier"):
        await client.page("laps", tier="gold")
    assert [each.rank for each in await client.value_positions("laps", None, ["59"])] == [3]
    assert [each.value for each in await client.values("laps", ranks=[3])] == [60]
    assert (await client.positions_on_boards("cy", ["laps"]))[0].rank == 3
    with pytest.raises(PostsRejectedError, match="bad_value"):
        await client.post_one("laps", "ada", lap=1.23456)
    named = partial(client.values, ranks=[1]), partial(client.value_positions, column=None, values=[1])
    for ambiguous in (client.top, client.page, client.pages, client.curve, *named):
        with pytest.raises(ColumnNeededError, match="'b' has several ranked columns: name one of xp, lap"):
            await ambiguous("b")
    with pytest.raises(RankcurveError, match="'b' has several ranked columns: name one of xp, lap"):
        await client.rank("b", "p1")
    with pytest.raises(NotFoundError):
        await client.rank("laps", "nobody")
    made = await client.create_board("cup", "score:max", entry={"join": True, "posts_max": 1, "owners_max": 1})
    assert made.owners == 0
    assert (await client.join("cup", "ada")) == (await client.join("cup", "ada"))
    assert (await client.join("cup", "ada")).posts_left == 1
    with pytest.raises(BoardFullError):
        await client.join("cup", "bob")
    with pytest.raises(PostsRejectedError, match="not_joined"):
        await client.post_one("cup", "bob", score=1)
    await client.create_family("weeks", "lap:min.3", periods=["week"], facets=[[], ["country"]])
    result = await client.post_one_to_family("weeks", "ada", facets={"country": "Côte d'Ivoire"}, lap=58)
    assert len(result.boards) == 2
    posted = {"owner": "ada", "stats": {"lap": 57}, "facets": {"country": "Côte d'Ivoire"}}
    [again] = await client.post_to_family("weeks", posted, positions=["lap"])
    assert [[each.rank for each in board.positions] for board in again.boards] == [[1], [1]]
    again = await client.post_one_to_family("weeks", "bob", lap=59, positions=["lap"], moved=True)
    assert [[each.rank for each in board.positions] for board in again.boards] == [[2]]
    for country in ("Côte d'Ivoire", "Co\u0302te d'Ivoire"):
        assert await client.rank(f"weeks:this-week:country={country}", "ada") == 1
    assert [each.value for each in await client.facet_values("weeks", "country", period="week")] == ["Côte d'Ivoire"]


def test_a_column_may_have_the_name_of_any_argument() -> None:
    names = ["self", "board", "owner", "path", "stats"]
    bound = inspect.signature(Client("http://none").post_one).bind("b", "ada", **dict.fromkeys(names, 1))
    assert bound.arguments["stats"] == dict.fromkeys(names, 1)


async def use_owners(client: Recorded) -> None:
    await client.put_profile("p1", {"name": "Ada"})
    assert await client.profile("p1") == {"name": "Ada"}
    assert (await client.page("b", "lap", limit=2, profiles=True)).entries[1].profile == {"name": "Ada"}
    assert [each.board for each in await client.owner_boards("p1")][-1] == "b"
    assert (await client.owner_posts("p1", limit=1))[0].board.startswith("arena:")
    journal = await client.journal()
    assert {line.owner for line in journal} >= {f"p{index}" for index in range(OWNERS)}
    assert await client.journal(journal[-1].seq) == []
    assert await client.hide_owner("p299", shadow=True) >= 1
    assert (await client.entry("b", "p299")).hidden == "shadow"
    assert (await client.export_owner("p299"))[-1]["kind"] == "end"
    assert await client.hide_owner("p299", reason="cheats") >= 1
    [hidden] = await client.hidden_owners()
    assert (hidden.owner, hidden.key, hidden.reason, hidden.shadow) == ("p299", None, "cheats", False)
    with pytest.raises(NotRankedError):
        await client.positions("b", "p299")
    assert await client.show_owner("p299") >= 1
    await client.erase_entry("b", "p298", reason="asked")
    [erased] = await client.acts(owner="p298")
    assert (erased.act, erased.board, erased.reason, erased.detail) == ("entry.erased", "b", "asked", None)
    assert [each.act for each in await client.acts(owner="p299", board=None)][:2] == ["owner.shown", "owner.hidden"]
    assert erased.at >= hidden.since
    assert (await client.erase_entries("b", owners=["p297", "nobody"])) == Erased(erased=1, more=False)
    with pytest.raises(UnknownOwnerError):
        await client.entry("b", "p298")
    await client.post("b", {"owner": "guest", "stats": {"xp": 1}})
    assert [each.status for each in await client.merge_owner("guest", "p296", reason="one person")] == ["merged"]
    with pytest.raises(OwnerMergedError) as merged:
        await client.entry("b", "guest")
    assert merged.value.problem.into == "p296"
    issued = await client.issue_token("p295", ["b"], families=["arena"], posts=3, limits={"lap": Decimal("0.5")})
    assert (issued.token.count("."), issued.expires_at > datetime.now(UTC)) == (2, True)
    await client.void_tokens("p295", reason="a lost phone")
    assert await client.erase_owner("p299") >= 1
    with pytest.raises(UnknownOwnerError):
        await client.entry("b", "p299")


async def claim_a_reward(client: Recorded) -> None:
    cup: dict[str, Any] = {"columns": [{"name": "xp", "merge": "sum"}], "grace_seconds": 0}
    await client.create_board("prizes", cup)
    await client.post("prizes", {"owner": "ada", "stats": {"xp": 1}})
    rewards = [{"name": "gold", "column": "xp", "to_rank": 1, "data": {"coins": 5}}]
    ends_at = datetime.now(UTC) + timedelta(seconds=1)
    await client.create_board("prizes", {**cup, "closes_at": ends_at.isoformat(), "rewards": rewards})
    [expected] = await client.preview_rewards("prizes")
    while not (grants := await client.grants("prizes")):
        pass
    [grant] = grants
    assert (grant.owner, grant.reward, grant.rank, grant.data, grant.claimed_at) == (
        "ada",
        "gold",
        1,
        {"coins": 5},
        None,
    )
    assert (expected.owner, expected.data) == (grant.owner, grant.data)
    assert await client.owner_grants("ada", state="open") == grants
    claims = [await client.claim_grant(grant.id) for _ in range(2)]
    assert [each.first for each in claims] == [True, False]
    assert await client.owner_grants("ada", state="open") == []


async def play_a_league(client: Recorded) -> None:
    divisions = [{"name": "bronze", "promote": 1}, {"name": "silver", "relegate": 1}]
    made = await client.create_league("climb", "xp:sum", column="xp", period="week", cohort=3, divisions=divisions)
    assert (await client.league("climb"))["divisions"] == made["divisions"] == divisions
    posts: list[dict[str, Any]] = [{"owner": "ada", "stats": {"xp": 2}}, {"owner": "bob", "stats": {"xp": 1}}]
    await client.post_to_league("climb", [*posts, {"owner": "cy", "stats": {"xp": 1}, "division": "silver"}])
    own = await client.league_owner("climb", "bob")
    assert (own.division, own.cohort, own.position, own.zone, own.waiting) == ("bronze", "bronze-1", 2, "safe", False)
    cohort = await client.cohort("climb", "bronze-1", period=own.period)
    assert [(each.owner, each.rank, each.value) for each in cohort.entries] == [("ada", 1, 2), ("bob", 2, 1)]
    assert [(each.name, each.owners) for each in await client.divisions("climb")] == [("bronze", 2), ("silver", 1)]
    assert await client.league_history("climb", "bob") == []
    await client.leave_league("climb", "bob")
    with pytest.raises(UnknownOwnerError):
        await client.league_owner("climb", "bob")


async def request_anything(client: Recorded) -> None:
    assert await client.request("GET", "/healthz", bytes)
    assert len(await client.list_records("/v1/leaderboards", "leaderboards", dict, {"limit": 2})) > 6
    await client.post("b", {"owner": "cheat", "stats": {"xp": 1}, "post_id": "run"})
    [voided] = await client.void_post("b", "run", owner="cheat")
    assert (voided.board, voided.status, voided.stats) == ("b", "recomputed", None)
    [result] = await client.post("b", {"owner": "cheat", "stats": {"xp": 1}, "post_id": "odd", "hold": True})
    assert (result.status, result.post_id) == ("held", "odd")
    assert [each.post_id for each in await client.held_posts("b")] == ["odd"]
    assert (await client.judge_post("b", "odd", "refuse", owner="cheat"))["status"] == "voided"
    await client.post_to_family("arena", {"owner": "cheat", "stats": {"xp": 1}, "post_id": "run"})
    assert {each.stats for each in await client.void_family_post("arena", "run", owner="cheat")} == {None}
    assert (await client.reset_family("arena", "week"))["boards"] > 0
    await client.delete_family("weeks")
    with pytest.raises(UnknownFamilyError):
        await client.family("weeks")
    await client.reset_board("b")
    assert (await client.board("b")).entries == 0
    await client.delete_board("b")
    with pytest.raises(UnknownBoardError):
        await client.board("b")


async def test_rejected_posts_raise_an_error_with_all_results_unless_told_otherwise(client: Recorded) -> None:
    await client.create_board("b", {"columns": COLUMNS})
    await client.create_family("arena", FAMILY)
    posts: list[dict[str, Any]] = [
        {"owner": "ada", "stats": {"xp": 1}},
        {"owner": "b\u001bob", "stats": {"lap": 0.1 + 0.2}},
        {"owner": "cy", "stats": {"lap": float("nan")}},
    ]
    with pytest.raises(BadRequestError):
        await client.post("b", posts)  # an owner with a control character refuses the request
    posts[1]["owner"] = "bob"
    text = r"2 of 3 posts were rejected; post 2 of 'bob': bad_value: .* \(/stats/lap"
    on_board = [{**post, "boards": ["b"]} for post in posts]
    for post in (
        partial(client.post, "b", posts),
        partial(client.post_to_family, "arena", posts),
        partial(client.post_to_boards, on_board),
    ):
        with pytest.raises(PostsRejectedError, match=text) as met:
            await post()
        assert [result.status for result in met.value.results] == ["applied", "rejected", "rejected"]
        assert [result.status for result in await post(raise_rejected=False)] == ["applied", "rejected", "rejected"]
    assert (await client.entry("b", "ada")).stats["xp"] == 4


async def test_floats_are_rounded_to_the_decimals_of_their_columns_if_wished(client: Recorded) -> None:
    await client.create_board("b", {"columns": COLUMNS})
    await client.create_family("arena", FAMILY)
    laps = [0.1 + 0.2, 1e-320, -0.0, 2.0005, 1e16 / 3e6, float("nan"), 1e300]
    posts = [{"owner": f"p{number}", "stats": {"lap": lap, "xp": 2.5}} for number, lap in enumerate(laps)]
    rounded = [Decimal("0.300"), 0, 0, Decimal("2.001"), Decimal("3333333333.333"), None, None]
    for post, target in ((client.post, "b"), (client.post_to_family, "arena")):
        results = await post(target, posts, round_floats=True, raise_rejected=False)
        stats = [(result.boards[0] if result.boards else result).stats for result in results]
        assert [each.get("lap") for each in stats] == rounded
        assert stats[0]["xp"] == 3
    with pytest.raises(PostsRejectedError, match="1 of 1"):
        await client.post("b", [{"owner": "p", "stats": {"lap": Decimal("0.3001")}}], round_floats=True)


PUBLIC = [each for each in map(vars(rankcurve).get, rankcurve.__all__) if isinstance(each, type)]


@pytest.mark.parametrize("kind", PUBLIC, ids=lambda kind: kind.__name__)
def test_help_shows_the_signature_and_the_docstring_of_every_method(kind: type) -> None:
    for name, method in inspect.getmembers(kind, inspect.isroutine):
        if name.startswith("_") or not str(getattr(method, "__module__", "")).startswith("rankcurve."):
            continue
        assert method.__doc__, f"{kind.__name__}.{name} has no docstring"
        shown = inspect.signature(method)
        assert not {"arguments", "named"} & shown.parameters.keys(), f"{kind.__name__}.{name}{shown}"
        assert not str(shown.return_annotation).startswith(("Program", "Walk")), f"{kind.__name__}.{name}{shown}"
    assert kind.__doc__


def test_a_method_of_either_client_has_its_own_signature_its_docstring_and_its_kind() -> None:
    async_client = AsyncClient("http://none")
    for name, made in inspect.getmembers(Client("http://none"), inspect.ismethod):
        if name.startswith("_") or name in ("run", "iterate"):
            continue
        twin = getattr(async_client, name)
        assert made.__name__ == twin.__name__ == name
        assert inspect.getdoc(made)
        assert inspect.getdoc(made) == inspect.getdoc(twin)
        shown, of_twin = inspect.signature(made), inspect.signature(twin)
        assert "self" not in shown.parameters
        assert shown.parameters == of_twin.parameters
        assert "<" not in str(shown).replace("<function utc_now", "").replace("<built-in function monotonic>", ""), name
        returned = of_twin.return_annotation.removeprefix("Async")
        assert shown.return_annotation == returned
        assert inspect.iscoroutinefunction(twin) is not (returned != of_twin.return_annotation), name
        assert name in pydoc.plain(pydoc.render_doc(made))


@pytest.mark.parametrize("ties", ["shared", "earliest"])
async def test_offline_ranks_equal_those_of_the_service_for_100_000_values(service: Service, ties: str) -> None:
    rng = random.Random(3)
    tiers = [{"name": "top", "to_rank": 40}, {"name": "few", "to_percent": 2.5}]
    best, worst = [{"name": name, "to_percent": share} for name, share in (("many", 33.3333), ("most", 90))]
    columns = [
        {**COLUMNS[0], "tiers": [*tiers, {"name": "rich", "value": 9_000}, best, worst]},
        {**COLUMNS[1], "tiers": [*tiers, {"name": "fast", "value": "12.345"}, best, worst]},
    ]
    async with AsyncClient(service.base) as client:
        await client.create_board("b", {"columns": columns, "ties": ties, "predictor": PREDICTOR | {"samples": 300}})
        posts = [
            {
                "owner": f"p{index}",
                "stats": {"xp": round(rng.lognormvariate(8, 1.5)), "lap": Decimal(rng.randrange(90_000)) / 1000},
            }
            for index in range(4_000)
        ]
        for first in range(0, len(posts), 1_000):
            await client.post("b", posts[first : first + 1_000])
        for column, scale, most in (("xp", 0, 400_000), ("lap", 3, 100_000)):
            await client.refresh_curve("b", column)
            curve = await client.curve("b", column)
            tiers_seen: set[str | None] = set()
            # Values of the board, values between them, and values beyond both ends.
            values = [Decimal(rng.randrange(most)).scaleb(-scale) for _ in range(25_000)]
            for first in range(0, len(values), 1_000):
                asked = values[first : first + 1_000]
                answers = await client.value_positions("b", column, asked, rank="estimate")
                told = [(answer.rank, answer.low, answer.high, answer.exact) for answer in answers]
                ranked = [curve.rank(value) for value in asked]
                assert [(*bracket, bracket.exact) for bracket in ranked] == told
                in_tiers = [(value, answer) for value, answer in zip(asked, answers, strict=True)][:100]
                assert [curve.tier(value) for value, _ in in_tiers] == [
                    (answer.tier, answer.tier_certain) for _, answer in in_tiers
                ]
                tiers_seen |= {answer.tier for _, answer in in_tiers}
            assert len(tiers_seen) == 6


async def test_a_stream_goes_on_where_it_stopped(service: Service) -> None:
    await service.board("b", {"name": "xp", "merge": "sum"})
    await service.post_xp("b", ada=5, bob=7)
    async with AsyncClient(service.base) as client:
        top = client.stream("b", "xp", top=1)
        first = await anext(top)
        assert isinstance(first.data, TopEvent)
        assert (first.event, [entry.owner for entry in first.data.entries]) == ("top", ["bob"])
        owners = client.stream("b", "xp", owner="ada")
        assert [(event.event, event.data and event.data.rank) for event in [await anext(owners)]] == [("position", 2)]  # type: ignore[union-attr]
        await service.restart()
        client.transport.url = service.base  # the service of the tests starts at another port
        await service.post_xp("b", ada=10)
        second, moved = await anext(top), await anext(owners)
        assert isinstance(moved.data, OwnerEvent)
        assert (moved.data.rank, moved.data.value) == (1, 15)
        assert isinstance(second.data, TopEvent)
        assert second.data.entries[0].owner == "ada"
        await top.aclose()
        await owners.aclose()
        with pytest.raises(UnknownBoardError):
            await anext(client.stream("none", "xp"))


async def test_a_stream_follows_a_cohort(service: Service) -> None:
    async with AsyncClient(service.base) as client:
        divisions = [{"name": "bronze"}]
        await client.create_league("climb", "xp:sum", column="xp", period="week", cohort=3, divisions=divisions)
        await client.post_to_league("climb", [{"owner": "ada", "stats": {"xp": 2}}])
        async with aclosing(client.stream_cohort("climb", "bronze-1")) as events:
            first = await anext(events)
            assert isinstance(first.data, Cohort)
            assert [(each.owner, each.rank) for each in first.data.entries] == [("ada", 1)]
            await client.post_to_league("climb", [{"owner": "bob", "stats": {"xp": 3}}])
            assert isinstance(following := (await anext(events)).data, Cohort)
            assert [each.owner for each in following.entries] == ["bob", "ada"]


def test_a_curve_refuses_a_value_with_more_digits_than_its_column() -> None:
    document = {"column": "xp", "method": "skip", "total": 0, "as_of": "2026-11-20T10:00:00Z", "knots": [], "scale": 2}
    curve = OfflineCurve(decode(json.dumps(document).encode(), Curve))
    assert curve.rank("1.250") == (1, 1, 1)
    with pytest.raises(ValueError, match="more than 2 digits"):
        curve.rank(Decimal("1.255"))

"""A process never refuses a request by a board or a family that another process has deleted and created again.

The tests send changes to one process, and requests to another one, which has used the earlier board before.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from service.context import Context
from tests.schemas import fresh_store
from tests.service.closing import close_as_of
from tests.service.event_stream import events_of
from tests.service.real_service import Caller, Service
from tests.storage.meddling import SlowReads

B, F = "/v1/leaderboards/b", "/v1/families/f"
XP: dict[str, Any] = {"name": "xp", "merge": "max", "max": 10}
TOP = f"{B}/stream?column=xp&top=2"
FAMILY: dict[str, Any] = {"columns": [XP], "periods": ["all"], "facets": [[]]}


@pytest.fixture(params=["fronts", "postgres"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[list[Caller]]:
    """Start two processes without jobs: two fronts of one SQLite file, or two services on PostgreSQL."""
    if request.param == "fronts":
        async with (
            Service(tmp_path, fronts=2, jobs="none").running() as both,
            Caller(next(both._bases)) as one,
            Caller(next(both._bases)) as other,
        ):
            yield [one, other]
        return
    async with fresh_store(request.getfixturevalue("postgres_url")) as url:
        settings: dict[str, Any] = {"store": url, "jobs": "none"}
        async with Service(tmp_path, **settings).running() as first, Service(tmp_path, **settings).running() as second:
            yield [first, second]


async def create_again(pair: list[Caller], *columns: dict[str, Any], **spec: Any) -> None:
    """Create a board, let the other process use it, delete it, and create it with these columns.

    A board of an earlier call is deleted first.
    """
    one, other = pair
    await one.call("DELETE", B)
    await one.board("b", XP)
    await other.post_xp("b", ada=1)
    await other.get(f"{B}/rankings/xp")
    await one.must("DELETE", B)
    await one.board("b", *columns, **spec)


WANTED = [
    ({**XP, "merge": "min", "scale": 1}, "3.5"), ({**XP, "max": 1_000}, 500), ({**XP, "min": -5}, -5),
    ({"name": "xp", "sorted": False, "type": "text", "merge": "last"}, "seven"),
]  # fmt: skip


async def test_a_post_is_judged_by_the_new_columns(pair: list[Caller]) -> None:
    for column, value in WANTED:
        await create_again(pair, column)
        [result] = await pair[1].post("b", {"owner": "ada", "stats": {"xp": value}})
        assert (column, result["status"]) == (column, "applied")


async def test_posts_to_many_boards_are_judged_by_the_new_columns(pair: list[Caller]) -> None:
    for column, value in WANTED:
        await create_again(pair, column)
        posts = [{"owner": owner, "stats": {"xp": value}, "boards": ["b"]} for owner in ("ada", "bob")]
        results = (await pair[1].must("POST", "/v1/posts", {"posts": posts}))["results"]
        assert (column, [each["boards"][0]["status"] for each in results]) == (column, ["applied", "applied"])


async def test_one_bad_post_of_a_batch_does_not_change_the_results_of_the_others(pair: list[Caller]) -> None:
    await create_again(pair, {**XP, "max": 1_000}, {"name": "wins"})
    values: list[dict[str, Any]] = [{"xp": 500}, {"xp": 5_000}, {"wins": 1}, {"xp": 5}, {"no": 1}]
    results = await pair[1].post("b", *({"owner": f"o{n}", "stats": stats} for n, stats in enumerate(values)))
    codes = [each["error"]["code"] if "error" in each else each["status"] for each in results]
    assert codes == ["applied", "value_out_of_range", "applied", "applied", "unknown_column"]


async def test_queued_posts_are_judged_by_the_new_columns(pair: list[Caller]) -> None:
    await create_again(pair, {**XP, "max": 1_000})
    answer = await pair[1].call("POST", f"{B}/posts?mode=queued", {"owner": "ada", "stats": {"xp": 500}})
    assert answer.status == 202


READS = [
    "/rankings/xp/positions?values=3.5", "/rankings/xp/around?value=3.5", "/rankings/xp/positions?values=500",
    "/rankings/wins", "/rankings/wins/positions?values=1", "/entries/ada/positions?columns=wins",
    "/entries/ada/around?column=wins", "/rankings/wins/values?ranks=1", "/rankings/wins/buckets",
]  # fmt: skip


async def test_a_read_is_judged_by_the_new_columns(pair: list[Caller]) -> None:
    one, other = pair
    for read in READS:
        await create_again(pair, {**XP, "scale": 1, "max": 1_000}, {"name": "wins"})
        await one.post("b", {"owner": "ada", "stats": {"xp": 5, "wins": 3}})
        await other.get(B + read)


async def test_bodies_that_name_columns_are_judged_by_the_new_columns(pair: list[Caller]) -> None:
    one, other = pair
    await create_again(pair, {"name": "wins"})
    await one.post("b", {"owner": "ada", "stats": {"wins": 3}})
    [found] = (await other.must("POST", f"{B}/entries/lookup", {"owners": ["ada"], "column": "wins"}))["entries"]
    assert found["position"]["rank"] == 1
    found = (await other.must("POST", "/v1/owners/ada/positions", {"boards": ["b"], "column": "wins"}))["positions"]
    assert found[0]["rank"] == 1


HITS, SHOTS = ({"name": name, "merge": "sum", "sorted": False} for name in ("hits", "shots"))
ACCURACY = {"name": "accuracy", "merge": "quotient", "of": "hits", "per": "shots", "scale": 2}


@pytest.mark.parametrize("table", ["own", "shared"])
async def test_every_process_computes_a_column_that_one_has_added(pair: list[Caller], table: str) -> None:
    one, other = pair
    for path, more in ((B, {}), (F, {"periods": ["all"], "facets": [[]]})):
        spec = {"table": table, **more}
        await one.must("PUT", path, {"columns": [HITS, SHOTS], **spec})
        shot = {"owner": "ada", "stats": {"hits": 1, "shots": 4}}
        for caller in (one, other, one, other):
            await caller.must("POST", f"{path}/posts", shot)
        await one.must("PUT", path, {"columns": [HITS, SHOTS, ACCURACY], **spec})
        for hits in (5, 6):
            [result] = (await other.must("POST", f"{path}/posts", shot))["results"]
            stats = result["boards"][0]["stats"] if "boards" in result else result["stats"]
            assert stats == {"hits": hits, "shots": 4 * hits, "accuracy": 0.25}


async def test_a_cursor_of_the_new_board_is_taken(pair: list[Caller]) -> None:
    one, other = pair
    await create_again(pair, {**XP, "max": 1_000})
    await one.post_xp("b", ada=300, bob=200)
    first = await one.get(f"{B}/rankings/xp?limit=1")
    page = await other.get(f"{B}/rankings/xp?limit=1&cursor={first['next']}")
    assert [each["owner"] for each in page["entries"]] == ["bob"]


async def test_refusals_by_the_new_board_stay_refusals(pair: list[Caller]) -> None:
    _, other = pair
    await create_again(pair, {**XP, "scale": 1, "max": 1_000})
    bad = {"owner": "ada", "stats": {"xp": "3.55"}}
    assert await other.refused("POST", f"{B}/posts", bad) == (422, "bad_value")
    assert await other.refused("GET", f"{B}/rankings/xp/positions?values=3.55") == (422, "bad_value")
    assert await other.refused("GET", f"{B}/rankings/no") == (404, "unknown_column")
    await pair[0].must("DELETE", B)
    assert await other.refused("POST", f"{B}/posts", bad) == (404, "unknown_board")
    assert await other.refused("GET", f"{B}/rankings/no") == (404, "unknown_board")


async def test_an_archived_board_that_was_created_again_takes_posts_with_ids(store_url: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"store": store_url, "jobs": "none"}
    end = datetime.now(UTC) + timedelta(hours=1)
    season = {"columns": [XP], "closes_at": end.isoformat(), "grace_seconds": 0, "keep_seconds": 0}
    for table in ("own", "shared"):
        async with Service(tmp_path, **settings).running() as one, Service(tmp_path, **settings).running() as other:
            await one.must("PUT", B, {**season, "table": table})
            await one.post_xp("b", ada=1)
            await close_as_of(one, end + timedelta(hours=1))
            assert (await other.get(B))["archived"]
            await one.must("DELETE", B)
            await one.must("PUT", B, {"columns": [XP], "table": table})
            posts = [post_of(5, post_id="p"), {**post_of(5, post_id="p"), "owner": "bob"}]
            assert [each["status"] for each in await other.post("b", *posts)] == ["applied", "applied"]
            await one.must("DELETE", B)


async def test_an_entry_of_a_board_that_was_archived_before_it_was_created_again_is_erased(
    store_url: str, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"store": store_url, "jobs": "none"}
    end = datetime.now(UTC) + timedelta(hours=1)
    async with Service(tmp_path, **settings).running() as one, Service(tmp_path, **settings).running() as other:
        await one.must("PUT", B, {"columns": [XP], "closes_at": end.isoformat(), "keep_seconds": 0})
        await one.post_xp("b", bob=1)
        await close_as_of(one, end + timedelta(hours=2))
        assert (await other.get(B))["archived"]
        await one.must("DELETE", B)
        await one.board("b", XP)
        await one.post_xp("b", ada=5)
        await other.must("DELETE", f"{B}/entries/ada")
        assert await other.refused("DELETE", f"{B}/entries/ada") == (404, "unknown_owner")
        assert await one.refused("GET", f"{B}/entries/ada") == (404, "unknown_owner")


def post_of(xp: Any, **more: Any) -> dict[str, Any]:
    return {"owner": "ada", "stats": {"xp": xp}, **more}


async def make_family_again(pair: list[Caller], **changed: Any) -> None:
    """Create a family, let the other process post to it, delete it, and create it with a changed specification."""
    one, other = pair
    await one.must("PUT", F, FAMILY)
    await other.must("POST", f"{F}/posts", post_of(1))
    await one.must("DELETE", F)
    await one.must("PUT", F, {**FAMILY, **changed})


@pytest.mark.parametrize(
    ("changed", "post", "boards"),
    [
        ({"facets": [[], ["org"]]}, post_of(5, facets={"org": "7"}), ["f:all", "f:all:org=7"]),
        ({"columns": [{**XP, "max": 1_000}]}, post_of(500), ["f:all"]),
        ({"columns": [{**XP, "scale": 1}]}, post_of("3.5"), ["f:all"]),
        ({"columns": [XP, {"name": "wins", "merge": "sum"}]}, {"owner": "ada", "stats": {"wins": 5}}, ["f:all"]),
    ],
)
async def test_a_post_is_judged_by_the_new_family(
    pair: list[Caller], changed: dict[str, Any], post: dict[str, Any], boards: list[str]
) -> None:
    await make_family_again(pair, **changed)
    [result] = (await pair[1].must("POST", f"{F}/posts", post))["results"]
    assert [(each["board"], each["status"]) for each in result["boards"]] == [(each, "applied") for each in boards]


async def test_a_post_reaches_the_periods_and_facets_of_the_new_family(pair: list[Caller]) -> None:
    one, other = pair
    await one.must("PUT", F, {**FAMILY, "periods": ["day"], "facets": [["org"]]})
    await other.must("POST", f"{F}/posts", post_of(1, facets={"org": "1"}))
    await one.must("DELETE", F)
    await one.must("PUT", F, {**FAMILY, "facets": [["org"]]})
    # The other process knows no board for this value. It may create none for a day, which the new family does not have.
    post = post_of(5, facets={"org": "2"}, post_id="p")
    for status in ("applied", "duplicate"):
        [result] = (await other.must("POST", f"{F}/posts", post))["results"]
        assert [(each["board"], each["status"]) for each in result["boards"]] == [("f:all:org=2", status)]
    assert (await one.get(F))["boards"] == 1
    [result] = (await one.must("POST", f"{F}/posts", post))["results"]
    assert result["status"] == "duplicate", "the post id is stored for the new family"


async def test_a_period_that_the_new_family_keeps_open_is_open(pair: list[Caller]) -> None:
    one, other = pair
    day = {**FAMILY, "periods": ["day"], "grace_seconds": 0}
    await one.must("PUT", F, day)
    await other.must("POST", f"{F}/posts", post_of(1))
    await one.must("DELETE", F)
    await one.must("PUT", F, {**day, "grace_seconds": 691_200})
    earlier = (datetime.now(UTC) - timedelta(days=2)).isoformat()
    [result] = (await other.must("POST", f"{F}/posts", post_of(5, at=earlier)))["results"]
    assert result["status"] == "applied"


async def test_facets_that_reached_no_board_of_the_earlier_family_reach_one_now(pair: list[Caller]) -> None:
    one, other = pair
    await one.must("PUT", F, {**FAMILY, "facets": [["org"]]})
    await other.must("POST", f"{F}/posts", post_of(1, facets={"org": "1"}))
    await one.must("DELETE", F)
    await one.must("PUT", F, FAMILY)
    [result] = (await other.must("POST", f"{F}/posts", post_of(5)))["results"]
    assert result["status"] == "applied"


async def test_a_board_with_the_id_of_a_deleted_familys_board_takes_posts(pair: list[Caller]) -> None:
    one, other = pair
    await one.must("PUT", F, FAMILY)
    await other.must("POST", f"{F}/posts", post_of(1))
    await other.get("/v1/leaderboards/f:all/rankings/xp")
    await one.must("DELETE", F)
    await one.must("PUT", "/v1/leaderboards/f:all", {"columns": [XP]})
    [result] = await other.post("f:all", post_of(5))
    assert result["status"] == "applied"


def count_reads(context: Context) -> SlowReads:
    """Let the catalog of a process read by a store that counts and holds its reads, until the test sets `go`."""
    store = SlowReads(context.store)
    context.catalog._store = context.catalog.families._store = store
    return store


BAD = [
    ("POST", f"{B}/posts", post_of("x")), ("POST", f"{B}/posts", {"posts": [post_of(99)] * 100}),
    ("POST", "/v1/posts", post_of(99, boards=["b"])), ("GET", f"{B}/rankings/no", None),
    ("GET", f"{B}/rankings/xp/positions?values=99", None), ("GET", f"{B}/entries/ada/positions?columns=no", None),
]  # fmt: skip


async def test_a_refusal_costs_one_read(service: Service) -> None:
    await service.board("b", XP)
    store = count_reads(service.context)
    store.go.set()
    for number, (method, path, body) in enumerate(BAD, start=1):
        await service.call(method, path, body)
        assert (path, store.reads) == (path, number)


async def test_a_refusal_by_a_family_costs_one_read_of_the_family(service: Service) -> None:
    await service.must("PUT", F, FAMILY)
    store = count_reads(service.context)
    store.go.set()
    posts = [post_of(5, facets={"org": "7"})] * 100
    results = (await service.must("POST", f"{F}/posts", {"posts": posts}))["results"]
    assert {each["error"]["code"] for each in results} == {"unknown_facet"}
    assert store.reads == 2, "the other one looks for a leaderboard, as the refused id could be of one"


async def test_bad_requests_that_arrive_during_a_read_share_the_next_one(service: Service) -> None:
    boards = [f"/v1/leaderboards/b{number}" for number in range(5)]
    for board in boards:
        await service.must("PUT", board, {"columns": [XP]})
    store, catalog = count_reads(service.context), service.context.catalog
    others: list[asyncio.Task[tuple[int, str]]] = []
    confirm, asked, arrived = catalog.confirm, itertools.count(), asyncio.Event()

    async def count_refusals(ids: Iterable[str]) -> None:
        if next(asked) == len(others):
            arrived.set()
        await confirm(ids)

    catalog.confirm = count_refusals  # type: ignore[method-assign]
    first = asyncio.create_task(service.refused("GET", f"{boards[0]}/rankings/no"))
    await store.answered.wait()
    bad: list[tuple[Any, ...]] = [("GET", f"{board}/rankings/no{number}") for number in range(10) for board in boards]
    bad += [("POST", f"{board}/posts", post_of("x")) for board in boards]
    others += [asyncio.create_task(service.refused(*request)) for request in bad]
    await arrived.wait()
    assert store.reads == 1
    store.go.set()
    assert await first == (404, "unknown_column")
    assert {*await asyncio.gather(*others)} == {(404, "unknown_column"), (422, "bad_value")}
    assert store.reads == 2, "one read for the first request, and one for all the others"


async def test_a_stream_that_is_opened_after_a_reset_shows_the_empty_board(pair: list[Caller]) -> None:
    one, other = pair
    await one.board("b", XP)
    await one.post_xp("b", ada=5)
    async with events_of(other.base, TOP) as open_before:
        await open_before.expect_event("top")
        for path in (TOP, f"{B}/stream?column=xp&owner=ada"):
            await one.post_xp("b", ada=5)
            async with events_of(other.base, TOP) as still_open:
                await still_open.expect_event("top")
                await one.must("POST", f"{B}/reset")
                async with events_of(other.base, path) as stream:
                    await one.post_xp("b", bob=4)
                    if path == TOP:
                        assert (await stream.expect_event("top")).rows in ([], [("bob", 4)])
                    else:
                        await one.post_xp("b", ada=3)
                        assert (await stream.expect_event("position")).data["value"] == 3


async def test_a_stream_that_is_resumed_on_a_new_board_begins_with_the_empty_top(pair: list[Caller]) -> None:
    one, other = pair
    await one.board("b", XP)
    await one.post_xp("b", ada=5)
    owner = f"{B}/stream?column=xp&owner=ada"
    async with events_of(other.base, TOP) as top, events_of(other.base, owner) as position:
        top_id, owner_id = (await top.expect_event("top")).text_id, (await position.expect_event("position")).text_id
    await one.must("DELETE", B)
    await one.must("PUT", B, {"columns": [XP], "partition": 0})
    async with events_of(other.base, TOP, last_id=top_id) as top:
        assert (await top.expect_event("top")).rows == []
    async with events_of(other.base, owner, last_id=owner_id) as position:
        assert (await position.expect_event("position")).data["rank"] is None
    await one.post_xp("b", bob=4)
    async with events_of(other.base, owner, last_id=owner_id) as position:
        assert (await position.expect_event("position")).data["rank"] is None
    async with events_of(other.base, TOP, last_id=top_id) as top:
        assert (await top.expect_event("top")).rows == [("bob", 4)]

"""Test requests to a store with four partitions, and requests about boards that have moved to another partition."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from storage.curves.live_counts import list_bundles_after
from storage.log import bundles
from storage.schema.creation import in_each_partition
from tests.jobs.moving import make_move
from tests.service.real_service import Service

XP = {"name": "xp", "merge": "sum"}
COLUMNS = {"columns": [{**XP, "sorted": True}]}
IDS = ["b0", "b1", "b2", "b3"]
RANKING = "/v1/leaderboards/b1/rankings/xp"


@pytest.fixture
async def service(tmp_path: Path, partitions_url: str) -> AsyncIterator[Service]:
    async with Service(tmp_path, store=partitions_url).running() as made:
        yield made


async def create_boards(service: Service, table: str = "own") -> None:
    for partition, board in enumerate(IDS):
        await service.board(board, XP, partition=partition, table=table)


async def move(service: Service, board_id: str, partition: int) -> None:
    """Move a board to another partition, without the knowledge of the service."""
    await make_move(service.context.store, target=partition, board_id=board_id).run()


async def post_to_all(service: Service, **xp: int) -> list[Any]:
    posts = [{"owner": owner, "stats": {"xp": value}, "boards": IDS} for owner, value in xp.items()]
    results: list[Any] = (await service.must("POST", "/v1/posts", {"posts": posts}))["results"]
    return results


async def owners_of(service: Service, board: str) -> list[str]:
    page = await service.get(f"/v1/leaderboards/{board}/rankings/xp")
    return [entry["owner"] for entry in page["entries"]]


async def test_a_board_is_created_in_the_partition_that_is_asked_for(service: Service) -> None:
    at = "/v1/leaderboards/b"
    created = await service.call("PUT", at, {**COLUMNS, "partition": 2})
    assert (created.status, created.body["partition"]) == (201, 2)
    for body in (COLUMNS, {**COLUMNS, "partition": 2}):
        assert (await service.must("PUT", at, body))["partition"] == 2
    refused = await service.call("PUT", at, {**COLUMNS, "partition": 1})
    assert (refused.status, refused.body["code"]) == (409, "spec_conflict")
    assert "rankcurve partition move" in refused.body["detail"]
    assert await service.refused("PUT", "/v1/leaderboards/c", {**COLUMNS, "partition": 4}) == (422, "bad_spec")
    assert (await service.must("PUT", "/v1/leaderboards/c", COLUMNS))["partition"] == 0
    listed = (await service.get("/v1/leaderboards"))["leaderboards"]
    assert [(board["id"], board["partition"]) for board in listed] == [("b", 2), ("c", 0)]


async def test_a_family_is_created_in_the_partition_that_is_asked_for(service: Service) -> None:
    body = {**COLUMNS, "periods": ["all"], "facets": [[], ["org"]]}
    assert (await service.must("PUT", "/v1/families/game", {**body, "partition": 3}))["partition"] == 3
    assert (await service.must("PUT", "/v1/families/game", body))["partition"] == 3
    refused = await service.call("PUT", "/v1/families/game", {**body, "partition": 1})
    assert (refused.status, refused.body["code"]) == (409, "spec_conflict")
    post = {"owner": "ada", "stats": {"xp": 5}, "facets": {"org": "7"}}
    await service.must("POST", "/v1/families/game/posts", {"posts": [post]})
    assert (await service.get("/v1/leaderboards/game:all"))["partition"] == 3
    values = (await service.get("/v1/families/game/facets?facet=org&period=all"))["values"]
    assert [(each["value"], each["entries"]) for each in values] == [("7", 1)]
    await service.must("DELETE", "/v1/families/game")
    assert await service.refused("GET", "/v1/leaderboards/game:all") == (404, "unknown_board")


async def test_a_store_with_one_partition_does_not_show_it(tmp_path: Path) -> None:
    async with Service(tmp_path).running() as small:
        answer = await small.must("PUT", "/v1/leaderboards/b", {**COLUMNS, "partition": 0})
        assert "partition" not in answer
        assert await small.refused("PUT", "/v1/leaderboards/c", {**COLUMNS, "partition": 1}) == (422, "bad_spec")


async def test_an_owner_is_read_on_boards_of_all_partitions(service: Service) -> None:
    await create_boards(service)
    await post_to_all(service, ada=30, bob=10)
    body = {"boards": IDS, "column": "xp"}
    found = await service.must("POST", "/v1/owners/bob/positions", body)
    assert [(each["board"], each["rank"], each["total"]) for each in found["positions"]] == [(b, 2, 2) for b in IDS]
    listed = (await service.get("/v1/leaderboards"))["leaderboards"]
    assert [board["entries"] for board in listed] == [2] * 4
    await service.must("POST", "/v1/leaderboards/b2/reset")
    await service.must("DELETE", "/v1/leaderboards/b3")
    assert [board["entries"] for board in (await service.get("/v1/leaderboards"))["leaderboards"]] == [2, 2, 0]


@pytest.mark.parametrize("table", ["own", "shared"])
async def test_an_owner_is_hidden_shown_and_erased_in_all_partitions(service: Service, table: str) -> None:
    await create_boards(service, table)
    await post_to_all(service, ada=30, cheat=99)
    await service.must("PUT", "/v1/owners/cheat/hidden")
    await post_to_all(service, cheat=1)
    for board in IDS:
        assert await owners_of(service, board) == ["ada"]
        entry = await service.get(f"/v1/leaderboards/{board}/entries/cheat")
        assert (entry["hidden"], entry["stats"]) == (True, {"xp": 100})
    await service.must("DELETE", "/v1/owners/cheat/hidden")
    for board in IDS:
        assert await owners_of(service, board) == ["cheat", "ada"]
    await service.must("DELETE", "/v1/owners/cheat")
    for board in IDS:
        assert await owners_of(service, board) == ["ada"]
    assert await named_in_logs(service) == [{"ada"}] * 4


async def named_in_logs(service: Service) -> list[set[str]]:
    """Return, for each partition, which of the two owners the change log names."""

    def read() -> Any:
        found = yield from list_bundles_after(0, changes_max=10_000)
        return {owner for bundle in found for owner in bundles.owners_of(bundle.owners)} & {"ada", "cheat"}

    return [*(await service.context.store.read(lambda: in_each_partition(read))).values()]


@pytest.mark.parametrize("table", ["own", "shared"])
async def test_an_erased_entry_leaves_no_name_in_the_partition_that_the_board_has_left(
    service: Service, table: str
) -> None:
    await create_boards(service, table)
    await service.post_xp("b1", ada=30, cheat=99)
    await move(service, "b1", 2)
    await service.post_xp("b1", cheat=1)
    await service.must("DELETE", "/v1/leaderboards/b1/entries/cheat")
    assert await named_in_logs(service) == [set(), {"ada"}, set(), set()]
    await service.post_xp("b1", cheat=1)
    assert await named_in_logs(service) == [set(), {"ada"}, {"cheat"}, set()]


@pytest.mark.parametrize("table", ["own", "shared"])
async def test_requests_about_a_board_that_has_moved_are_answered(service: Service, table: str) -> None:
    await create_boards(service, table)
    await post_to_all(service, ada=30, bob=10)
    entry, place = "/v1/leaderboards/b1/entries/bob", iter([3, 1] * 20)

    async def moved() -> Service:
        await move(service, "b1", next(place))
        return service

    assert (await (await moved()).get(entry))["stats"] == {"xp": 10}
    for query in ("", "?next=true", "?rank=exact"):
        [position] = (await (await moved()).get(f"{entry}/positions{query}"))["positions"]
        assert (position["rank"], position["total"]) == (2, 2)
    assert [row["owner"] for row in (await (await moved()).get(f"{entry}/around?column=xp"))["entries"]] == [
        "ada",
        "bob",
    ]
    assert await owners_of(await moved(), "b1") == ["ada", "bob"]
    buckets = (await (await moved()).get(f"{RANKING}/buckets?buckets=2&rank=exact"))["buckets"]
    assert sum(bucket["entries"] for bucket in buckets) == 2
    for path in (f"{RANKING}/positions?values=20", "/v1/leaderboards/b0/rankings/xp/positions?values=20&with=b1"):
        assert (await (await moved()).get(path))["positions"][0]["rank"] in (2, 3)
    assert [value["value"] for value in (await (await moved()).get(f"{RANKING}/values?ranks=1"))["values"]] == [30]
    lookup = {"owners": ["ada", "nobody"], "column": "xp"}
    found = await (await moved()).must("POST", "/v1/leaderboards/b1/entries/lookup", lookup)
    assert [each["place"] for each in found["entries"]] == [1]
    found = await (await moved()).must("POST", "/v1/owners/bob/positions", {"boards": IDS, "column": "xp"})
    assert [each["rank"] for each in found["positions"]] == [2] * 4
    assert (await (await moved()).get("/v1/leaderboards/b1"))["entries"] == 2


@pytest.mark.parametrize("table", ["own", "shared"])
async def test_writes_to_a_board_that_has_moved_reach_it(service: Service, table: str) -> None:
    await create_boards(service, table)
    await post_to_all(service, ada=30, bob=10)
    await move(service, "b1", 3)
    [result] = await service.post("b1", {"owner": "ada", "stats": {"xp": 1}, "post_id": "p"})
    assert (result["status"], result["stats"]) == ("applied", {"xp": 31})
    await move(service, "b1", 2)
    [result] = await service.post("b1", {"owner": "ada", "stats": {"xp": 1}, "post_id": "p"})
    assert (result["status"], result["stats"]) == ("duplicate", {"xp": 31})
    await move(service, "b1", 0)
    assert [result["status"] for result in await post_to_all(service, ada=1)] == ["applied"]
    await move(service, "b1", 3)
    await move(service, "b1", 2)
    await service.must("PUT", "/v1/owners/ada/hidden")
    assert await owners_of(service, "b1") == ["bob"]
    await move(service, "b1", 1)
    await service.must("DELETE", "/v1/owners/ada/hidden")
    assert await owners_of(service, "b1") == ["ada", "bob"]
    await move(service, "b1", 2)
    await service.must("DELETE", "/v1/leaderboards/b1/entries/ada")
    assert await owners_of(service, "b1") == ["bob"]


async def test_posts_to_a_board_that_has_moved_are_queued(service: Service) -> None:
    await create_boards(service)
    await move(service, "b1", 3)
    post = {"owner": "ada", "stats": {"xp": 1}}
    accepted = await service.must("POST", "/v1/leaderboards/b1/posts?mode=queued", {"posts": [post]})
    assert accepted["accepted"] == 1
    board = await service.context.catalog.find_board("b1")
    assert board.partition == 3

"""Test what a service answers while one of four partitions is away, and what it finishes when the partition is back."""

import math
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jobs.boards.prune import PruneJob
from querybuilder import col, delete
from service.views import retry_on_change
from service.views.posts import posts
from storage.engines.database_nodes import Node
from storage.engines.partitions import Address
from storage.engines.postgres import PostgresStore
from storage.leaves.totals import store_gates
from storage.meter import NO_METER
from storage.records import Board
from storage.schema.tables import GATES
from storage.store import Program
from tests.service.closing import make_job_context
from tests.service.real_service import Service

XP = {"name": "xp", "merge": "sum"}
COLUMNS = {"columns": [{**XP, "sorted": True}]}
IDS = ["b0", "b1", "b2", "b3"]
AWAY = 1


@dataclass
class Cluster:
    """A service on a store whose partition `AWAY` is on a node of its own, which answers or does not."""

    service: Service
    node: Node

    def freeze(self) -> None:
        self.node.breaker.is_open = True

    def thaw(self) -> None:
        self.node.breaker.is_open = False

    async def finish(self) -> int:
        """Run the part of the job of partition `AWAY` that finishes the changes of owners."""
        return await PruneJob(make_job_context(self.service.context), AWAY).finish_owners()


@pytest.fixture
async def cluster(tmp_path: Path, partitions_url: str) -> AsyncIterator[Cluster]:
    async with Service(tmp_path, store=partitions_url, jobs="none").running() as service:
        store = service.context.store
        assert isinstance(store, PostgresStore)
        nodes = store._nodes
        node = Node("the other node", partitions_url, service.context.settings, NO_METER, Counter(), on_citus=True)
        node.placements = None  # this server has no table of Citus
        nodes.coordinator, nodes._read_s = nodes.entry, math.inf
        nodes._by_address[Address("other", 1)] = nodes._of_schema[store._partitions.schema_named(AWAY)] = node
        for partition, board in enumerate(IDS):
            await service.board(board, XP, partition=partition, table="shared")
        posts = [{"owner": owner, "stats": {"xp": 5}, "boards": IDS} for owner in ("ada", "bob")]
        await service.must("POST", "/v1/posts", {"posts": posts})
        yield Cluster(service, node)
        node.breaker.is_open = False


async def owners_of(service: Service, board: str) -> list[str]:
    page = await service.get(f"/v1/leaderboards/{board}/rankings/xp")
    return [entry["owner"] for entry in page["entries"]]


async def total_of(service: Service, board: str, owner: str) -> int:
    [position] = (await service.get(f"/v1/leaderboards/{board}/entries/{owner}/positions"))["positions"]
    total: int = position["total"]
    return total


async def test_only_the_boards_of_the_partition_are_refused(cluster: Cluster) -> None:
    cluster.freeze()
    for board in IDS:
        answer = await cluster.service.call("GET", f"/v1/leaderboards/{board}/rankings/xp")
        posted = await cluster.service.call(
            "POST", f"/v1/leaderboards/{board}/posts", {"owner": "ada", "stats": {"xp": 1}}
        )
        expected = (503, "partition_away") if board == "b1" else (200, None)
        assert (answer.status, answer.body.get("code")) == expected
        assert (posted.status, posted.body.get("code")) == expected
    assert (await cluster.service.get("/readyz"))["partitions_away"] == [AWAY]


async def test_the_journal_goes_on_without_the_partition_and_misses_nothing_later(cluster: Cluster) -> None:
    cluster.freeze()
    page = await cluster.service.call("GET", "/v1/journal?limit=100")
    assert page.headers["Partitions-Away"] == "1"
    assert {line["board"] for line in page.body} == {"b0", "b2", "b3"}
    assert len(page.body) == 6
    posts = await cluster.service.get("/v1/owners/ada/posts")
    assert {line["board"] for line in posts["posts"]} == {"b0", "b2", "b3"}
    assert (posts["partitions_away"], posts["next"]) == ([AWAY], None)
    cluster.thaw()
    later = await cluster.service.call("GET", f"/v1/journal?after={page.body[-1]['seq']}")
    assert [line["board"] for line in later.body] == ["b1", "b1"]
    assert "Partitions-Away" not in later.headers


@pytest.mark.parametrize("order", ["id", "activity"])
async def test_lists_of_boards_go_on_without_the_partition(cluster: Cluster, order: str) -> None:
    service = cluster.service
    await service.board("wide", XP, segments=4)
    listed = [board["id"] for board in (await service.get(f"/v1/leaderboards?order={order}"))["leaderboards"]]
    assert (sorted(listed), AWAY) == ([*IDS, "wide"], 1)
    cluster.freeze()
    found, away, path = [], set[int](), f"/v1/leaderboards?order={order}&limit=1"
    while path:
        page = await service.get(path)
        away.update(page.get("partitions_away", ()))  # if the page would have boards of these partitions
        found += [board["id"] for board in page["leaderboards"]]
        path = page["next"] and f"/v1/leaderboards?order={order}&limit=1&cursor={page['next']}"
    assert (found, away) == ([board for board in listed if board not in ("b1", "wide")], {AWAY})
    boards = await service.get("/v1/owners/ada/boards")
    assert ([each["board"] for each in boards["boards"]], boards["partitions_away"]) == (["b0", "b2", "b3"], [AWAY])
    cluster.thaw()
    assert "partitions_away" not in await service.get("/v1/leaderboards")
    boards = await service.get("/v1/owners/ada/boards")
    assert ([each["board"] for each in boards["boards"]], "partitions_away" in boards) == (IDS, False)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_board_that_moves_is_not_called_unknown(
    cluster: Cluster, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Citus, a transaction over two nodes may be visible on one and not yet on the other."""
    service, store = cluster.service, cluster.service.context.store
    for module in (posts, retry_on_change):
        monkeypatch.setattr(module, "PAUSES_S", (0.0, 0.0, 0.0))
    catalog, rereads = service.context.catalog, 0
    leaf, reread = (await catalog.find_board("b0")).leaf, catalog.reread_boards
    body = {"owner": "ada", "stats": {"xp": 1}} if method == "POST" else None
    path = f"/v1/leaderboards/b0/{'posts' if method == 'POST' else 'rankings/xp'}"

    def remove() -> Program[None]:
        yield delete(GATES).where(col("leaf_key").eq(leaf.key)).bind().at(leaf.partition)

    async def return_late(board_ids: Iterable[str]) -> dict[str, Board]:
        nonlocal rereads
        rereads += 1
        if rereads % 4 == 0:
            await store.write(lambda: store_gates([leaf]))
        return await reread(board_ids)

    monkeypatch.setattr(catalog, "reread_boards", return_late)
    await store.write(remove)
    assert (await service.call(method, path, body)).status == 503
    assert (await service.call(method, path, body)).status == 200
    assert rereads == 4


async def test_a_board_that_another_request_has_forgotten_is_not_called_unknown(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, store, catalog = cluster.service, cluster.service.context.store, cluster.service.context.catalog
    leaf, find, reread = (await catalog.find_board("b0")).leaf, catalog.find_board, catalog.reread_board

    async def find_and_forget(board_id: str) -> Board:
        board = await find(board_id)
        catalog.forget_board(board_id)  # as a post does that meets a segment of before a split
        return board

    async def restore_and_reread(board_id: str) -> Board:
        await store.write(lambda: store_gates([leaf]))
        return await reread(board_id)

    def remove() -> Program[None]:
        yield delete(GATES).where(col("leaf_key").eq(leaf.key)).bind().at(leaf.partition)

    monkeypatch.setattr(catalog, "find_board", find_and_forget)
    monkeypatch.setattr(catalog, "reread_board", restore_and_reread)
    await store.write(remove)
    assert (await service.call("GET", "/v1/leaderboards/b0/rankings/xp")).status == 200


async def test_the_state_of_the_queue_goes_on_without_the_partition(cluster: Cluster) -> None:
    before = await cluster.service.get("/v1/queue")
    assert "partitions_away" not in before
    cluster.freeze()
    queue = await cluster.service.get("/v1/queue")
    assert queue["partitions_away"] == [AWAY]
    assert queue["shards"] == [each for each in before["shards"] if each["partition"] != AWAY]


async def test_a_board_is_created_where_a_partition_answers(cluster: Cluster) -> None:
    await cluster.service.must("DELETE", "/v1/leaderboards/b1")  # so this partition has the fewest boards
    cluster.freeze()
    created = await cluster.service.must("PUT", "/v1/leaderboards/new", {**COLUMNS, "table": "shared"})
    assert created["partition"] != AWAY
    own = await cluster.service.must("PUT", "/v1/leaderboards/own", COLUMNS)  # it shares a table until it is moved
    assert (own["partition"] != AWAY, own["table"]) == (True, "own")
    wanted = {**COLUMNS, "table": "shared", "partition": AWAY}
    assert await cluster.service.refused("PUT", "/v1/leaderboards/there", wanted) == (503, "partition_away")


async def test_an_owner_is_hidden_at_once_where_partitions_answer_and_later_where_not(cluster: Cluster) -> None:
    service = cluster.service
    cluster.freeze()
    hidden = await service.must("PUT", "/v1/owners/ada/hidden", {"shadow": True})
    assert hidden == {"entries": 3, "partitions_away": [AWAY]}
    assert [await owners_of(service, board) for board in ("b0", "b2", "b3")] == [["bob"]] * 3
    cluster.thaw()
    assert await owners_of(service, "b1") == ["ada", "bob"]
    assert await cluster.finish() == 1
    assert await owners_of(service, "b1") == ["bob"]
    assert [await total_of(service, board, "ada") for board in IDS] == [2] * 4
    assert await cluster.finish() == 0
    assert await service.must("DELETE", "/v1/owners/ada/hidden") == {"entries": 4}
    assert [await owners_of(service, board) for board in IDS] == [["ada", "bob"]] * 4


async def test_an_owner_is_erased_later_where_a_partition_does_not_answer(cluster: Cluster) -> None:
    service = cluster.service
    cluster.freeze()
    assert await service.must("DELETE", "/v1/owners/ada") == {"entries": 3, "partitions_away": [AWAY]}
    await service.must("PUT", "/v1/owners/ada/profile", {"name": "a new Ada"})
    cluster.thaw()
    assert await cluster.finish() == 1
    assert [await owners_of(service, board) for board in IDS] == [["bob"]] * 4
    lines: list[Any] = (await service.call("GET", "/v1/journal?limit=100")).body
    assert {line["owner"] for line in lines} == {"bob", None}
    assert (await service.get("/v1/owners/ada/profile"))["profile"] == {"name": "a new Ada"}
    assert await cluster.finish() == 0


async def test_what_was_asked_last_for_an_owner_holds_in_the_end(cluster: Cluster) -> None:
    service = cluster.service
    cluster.freeze()
    await service.must("PUT", "/v1/owners/ada/hidden")
    await service.must("DELETE", "/v1/owners/ada/hidden")
    cluster.thaw()
    await cluster.finish()
    assert [await owners_of(service, board) for board in IDS] == [["ada", "bob"]] * 4
    cluster.freeze()
    await service.must("PUT", "/v1/owners/ada/hidden")
    cluster.thaw()
    await service.must("DELETE", "/v1/owners/ada/hidden")  # it reaches every partition, so nothing is left to finish
    assert await cluster.finish() == 0
    assert [await owners_of(service, board) for board in IDS] == [["ada", "bob"]] * 4

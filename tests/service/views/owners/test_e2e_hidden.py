"""Test hidden owners. A hidden owner disappears from every ranking immediately.

When shown again, it has all its posts.
"""

from decimal import Decimal
from typing import Any

from tests.service.real_service import Service


async def ranks(service: Service, board: str) -> list[tuple[str, int]]:
    page = await service.get(f"/v1/leaderboards/{board}/rankings/xp")
    assert page["total"] == len(page["entries"])
    return [(entry["owner"], entry["rank"]) for entry in page["entries"]]


async def boards(service: Service) -> None:
    for board in ("a", "b"):
        await service.board(board, {"name": "xp", "merge": "sum"}, {"name": "shots", "sorted": False, "merge": "sum"})
        await service.post_xp(board, ada=30, cheat=99, bob=10)


async def test_hiding_an_owner_removes_it_from_every_ranking_at_once(service: Service) -> None:
    await boards(service)
    await service.refresh("a", "xp")
    await service.must("PUT", "/v1/owners/cheat/hidden")
    await service.must("PUT", "/v1/owners/cheat/hidden")
    for board in ("a", "b"):
        assert await ranks(service, board) == [("ada", 1), ("bob", 2)]
        entry = await service.get(f"/v1/leaderboards/{board}/entries/cheat")
        assert (entry["hidden"], entry["stats"]["xp"]) == (True, 99)
        assert (await service.get(f"/v1/leaderboards/{board}"))["entries"] == 2
    at = "/v1/leaderboards/a/entries/cheat"
    assert await service.refused("GET", at + "/positions") == (404, "not_ranked")
    assert await service.refused("GET", at + "/around?column=xp") == (404, "not_ranked")
    [ada] = (await service.get("/v1/leaderboards/a/entries/ada/positions"))["positions"]
    assert (ada["rank"], ada["total"]) == (1, 2)
    assert "hidden" not in await service.get("/v1/leaderboards/a/entries/ada")


async def test_posts_of_a_hidden_owner_merge_and_count_when_it_is_shown_again(service: Service) -> None:
    await boards(service)
    await service.must("PUT", "/v1/owners/cheat/hidden")
    await service.board("later", {"name": "xp", "merge": "sum"})
    retried = {"owner": "cheat", "stats": {"xp": 1, "shots": 2}, "post_id": "p"}
    [applied] = await service.post("a", retried)
    [duplicate] = await service.post("a", retried)
    assert (applied["status"], applied["stats"]) == ("applied", {"xp": 100, "shots": 2})
    assert duplicate["status"] == "duplicate"
    await service.post_xp("later", cheat=5)
    assert await ranks(service, "later") == []
    await service.must("DELETE", "/v1/owners/cheat/hidden")
    assert await ranks(service, "a") == [("cheat", 1), ("ada", 2), ("bob", 3)]
    assert await ranks(service, "later") == [("cheat", 1)]
    entry = await service.get("/v1/leaderboards/a/entries/cheat")
    assert "hidden" not in entry
    assert entry["stats"] == {"xp": 100, "shots": 2}
    [result] = await service.post_xp("a", cheat=1)
    assert result["stats"]["xp"] == 101


async def test_a_column_added_while_an_owner_is_hidden_is_empty_in_its_entry(service: Service) -> None:
    await boards(service)
    await service.must("PUT", "/v1/owners/cheat/hidden")
    ranked, counted = {"merge": "sum"}, {"sorted": False, "merge": "sum"}
    columns: list[dict[str, Any]] = [{"name": "xp", **ranked}, {"name": "shots", **counted}, {"name": "kills"}]
    await service.board("a", *columns)
    [result] = await service.post("a", {"owner": "cheat", "stats": {"kills": 4}})
    assert result["stats"] == {"xp": 99, "shots": None, "kills": 4}
    await service.must("DELETE", "/v1/owners/cheat/hidden")
    assert (await service.get("/v1/leaderboards/a/rankings/kills"))["entries"][0]["owner"] == "cheat"


async def test_erasing_a_hidden_owner_leaves_nothing_to_show(service: Service) -> None:
    await boards(service)
    await service.must("PUT", "/v1/owners/cheat/hidden")
    await service.must("DELETE", "/v1/leaderboards/a/entries/cheat")
    assert await service.refused("GET", "/v1/leaderboards/a/entries/cheat") == (404, "unknown_owner")
    await service.must("DELETE", "/v1/owners/cheat")
    await service.must("DELETE", "/v1/owners/cheat/hidden")
    assert await ranks(service, "b") == [("ada", 1), ("bob", 2)]
    await service.post_xp("b", cheat=1)
    assert await ranks(service, "b") == [("ada", 1), ("bob", 2), ("cheat", 3)]


async def test_emptying_a_board_removes_its_hidden_entries(service: Service) -> None:
    await boards(service)
    await service.must("PUT", "/v1/owners/cheat/hidden")
    await service.must("POST", "/v1/leaderboards/a/reset")
    await service.must("DELETE", "/v1/owners/cheat/hidden")
    assert await ranks(service, "a") == []


async def look_up(service: Service, *owners: str, query: str = "") -> Any:
    body = {"owners": owners, "column": "xp"}
    return await service.must("POST", f"/v1/leaderboards/a/entries/lookup{query}", body)


async def test_a_lookup_ranks_the_requested_owners_among_each_other(service: Service) -> None:
    await boards(service)
    await service.post("a", {"owner": "cleo", "stats": {"xp": 10}}, {"owner": "new", "stats": {"shots": 1}})
    found = await look_up(service, "bob", "ada", "cleo", "new", "nobody")
    places = [(entry["owner"], entry["place"]) for entry in found["entries"]]
    assert places == [("bob", 2), ("ada", 1), ("cleo", 2), ("new", None)]
    assert found["missing"] == ["nobody"]
    await service.must("PUT", "/v1/owners/ada/hidden")
    found = await look_up(service, "bob", "ada")
    assert [(entry.get("hidden", False), entry["place"]) for entry in found["entries"]] == [(False, 1), (True, None)]


async def test_a_lookup_orders_equal_values_as_the_ranks_do(service: Service) -> None:
    await service.must(
        "PUT", "/v1/leaderboards/timed", {"columns": [{"name": "xp", "merge": "max"}], "ties": "earliest"}
    )
    times = {"eve": 3, "cleo": 1, "bob": 2, "ada": 2}
    posts = [{"owner": name, "stats": {"xp": 7}, "at": f"2026-01-01T00:00:0{s}Z"} for name, s in times.items()]
    await service.post("timed", *posts)
    body = {"owners": ["ada", "bob", "cleo", "eve"], "column": "xp"}
    found = (await service.must("POST", "/v1/leaderboards/timed/entries/lookup", body))["entries"]
    assert [entry["place"] for entry in found] == [entry["position"]["rank"] for entry in found] == [2, 3, 1, 4]


async def test_every_read_can_add_profiles_to_its_rows(service: Service) -> None:
    await boards(service)
    profile = {"name": "Ada", "avatar": {"url": "https://example.org/a.png", "size": 1.50}}
    answer = await service.must("PUT", "/v1/owners/ada/profile", profile)
    assert answer["profile"] == as_read(profile)
    page = await service.get("/v1/leaderboards/a/rankings/xp?profiles=true")
    assert [entry["profile"] and entry["profile"]["name"] for entry in page["entries"]] == [None, "Ada", None]
    for path in ("entries/ada/around?column=xp&profiles=true", "rankings/xp/around?value=30&profiles=true"):
        rows = (await service.get(f"/v1/leaderboards/a/{path}"))["entries"]
        assert {row["owner"] for row in rows if row["profile"]} == {"ada"}
    assert (await service.get("/v1/leaderboards/a/entries/ada?profiles=true"))["profile"]["name"] == "Ada"
    found = await look_up(service, "ada", "bob", query="?profiles=true")
    assert [entry["profile"] is None for entry in found["entries"]] == [False, True]
    assert "profile" not in (await service.get("/v1/leaderboards/a/rankings/xp"))["entries"][0]


def as_read(profile: dict[str, Any]) -> dict[str, Any]:
    """Return a profile with `Decimal` numbers, as the tests get it from an answer."""
    return {**profile, "avatar": {**profile["avatar"], "size": Decimal("1.50")}}


async def test_a_profile_is_one_small_json_object(service: Service) -> None:
    at = "/v1/owners/ada/profile"
    assert await service.refused("PUT", at, [1]) == (400, "bad_request")
    assert await service.refused("PUT", at, b'{"a": 1, "a": 2}') == (400, "duplicate_field")
    assert await service.refused("PUT", at, {"name": "x" * 5_000}) == (413, "body_too_large")
    await service.must("PUT", at, {"name": "one"})
    await service.must("PUT", at, {"name": "two"})
    assert (await service.get(at))["profile"] == {"name": "two"}
    await service.must("DELETE", at)
    assert await service.refused("DELETE", at) == (404, "no_profile")


async def test_hiding_an_owner_hides_it_on_boards_of_families(service: Service) -> None:
    column = {"name": "xp", "sorted": True, "merge": "sum"}
    body = {"columns": [column], "periods": ["all", "year"], "facets": [[], ["org"]], "time_zone": "UTC"}
    await service.must("PUT", "/v1/families/game", body)
    for owner, xp in (("ada", 30), ("cheat", 99)):
        post = {"owner": owner, "stats": {"xp": xp}, "facets": {"org": "1"}, "post_id": owner}
        await service.must("POST", "/v1/families/game/posts", post)
    await service.must("PUT", "/v1/owners/cheat/hidden")
    for board in ("game:all", "game:all:org=1"):
        assert await ranks(service, board) == [("ada", 1)]
    late = {"owner": "cheat", "stats": {"xp": 1}, "facets": {"org": "2"}}
    await service.must("POST", "/v1/families/game/posts", late)
    assert await ranks(service, "game:all:org=2") == []
    lines = await service.get("/v1/journal")
    assert {line["post_id"] for line in lines if line.get("post_id")} == {"ada", "cheat"}
    await service.must("DELETE", "/v1/owners/cheat/hidden")
    assert await ranks(service, "game:all") == [("cheat", 1), ("ada", 2)]
    assert await ranks(service, "game:all:org=2") == [("cheat", 1)]
    assert (await service.get("/v1/leaderboards/game:all/entries/cheat"))["stats"] == {"xp": 100}
    await service.must("DELETE", "/v1/owners/cheat")
    assert await ranks(service, "game:all:org=2") == []

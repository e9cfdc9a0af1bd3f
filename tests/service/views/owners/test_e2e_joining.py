"""Test boards with entry rules over HTTP: who may join and post, what answers say of it, and what a full board says."""

from collections import Counter
from pathlib import Path
from typing import Any

from tests.service.entry_races import EntryRace
from tests.service.real_service import Service

XP = {"name": "xp", "merge": "max"}


async def join(service: Service, board: str, owner: str) -> tuple[int, Any]:
    answer = await service.call("POST", f"/v1/leaderboards/{board}/entries", {"owner": owner})
    return answer.status, answer.body


async def errors_of(service: Service, board: str, *posts: tuple[str, int, str | None]) -> list[str | None]:
    sent = [{"owner": owner, "stats": {"xp": xp}, "post_id": post_id} for owner, xp, post_id in posts]
    results = await service.post(board, *sent)
    return [each["error"]["code"] if each["status"] == "rejected" else None for each in results]


async def test_owners_join_a_contest_and_use_their_attempts(service: Service) -> None:
    rules = {"join": True, "posts_max": 2, "owners_max": 2}
    board = await service.board("cup", XP, entry=rules)
    assert (board["entry"], board["owners"]) == (rules, 0)
    status, joined = await join(service, "cup", "ada")
    assert (status, joined["posts"], joined["posts_left"]) == (201, 0, 2)
    entry = await service.get("/v1/leaderboards/cup/entries/ada")
    assert (entry["stats"], entry["updated_at"]) == ({"xp": None}, joined["joined_at"])
    for path in ("positions", "around?column=xp"):
        assert await service.refused("GET", f"/v1/leaderboards/cup/entries/ada/{path}") == (404, "not_ranked")
    assert (await service.get("/v1/leaderboards/cup/rankings/xp"))["entries"] == []
    posts = [("ada", 5, "one"), ("bob", 9, None), ("ada", 3, "two"), ("ada", 5, "one"), ("ada", 7, None)]
    assert await errors_of(service, "cup", *posts) == [None, "not_joined", None, None, "no_posts_left"]
    assert await join(service, "cup", "ada") == (200, joined | {"posts": 2, "posts_left": 0})
    assert [(await join(service, "cup", each))[0] for each in ("bob", "bob", "eve")] == [201, 200, 409]
    looked_up = await service.must("POST", "/v1/leaderboards/cup/entries/lookup", {"owners": ["ada", "bob", "eve"]})
    assert [each["stats"]["xp"] for each in looked_up["entries"]] == [5, None]
    assert looked_up["missing"] == ["eve"]
    shown = await service.get("/v1/leaderboards/cup")
    assert (shown["owners"], shown["entries"]) == (2, 1)
    await service.must("DELETE", "/v1/leaderboards/cup/posts/two?owner=ada")
    assert (await join(service, "cup", "ada"))[1]["posts_left"] == 1
    await service.must("DELETE", "/v1/leaderboards/cup/entries/bob")
    assert (await join(service, "cup", "eve"))[0] == 201
    again = {"columns": [XP], "entry": rules | {"owners_max": 1}}
    assert (await service.must("PUT", "/v1/leaderboards/cup", again))["owners"] == 2
    assert await service.refused("POST", "/v1/leaderboards/cup/entries", {"owner": "bob"}) == (409, "board_full")
    assert await errors_of(service, "cup", ("eve", 1, None)) == [None], "who is in stays in"
    await service.must("POST", "/v1/leaderboards/cup/reset")
    assert (await service.get("/v1/leaderboards/cup"))["owners"] == 0
    del again["entry"]
    assert "entry" not in await service.must("PUT", "/v1/leaderboards/cup", again)
    assert await service.refused("POST", "/v1/leaderboards/cup/entries", {"owner": "bob"}) == (409, "no_entry_rules")
    assert await errors_of(service, "cup", ("bob", 1, None)) == [None]
    for wrong in ({}, {"join": False}, {"posts_max": 0}, {"owners_max": None}, {"more": 1}):
        assert (await service.refused("PUT", "/v1/leaderboards/cup", again | {"entry": wrong}))[0] in (400, 422)


async def test_a_family_is_joined_in_each_of_its_boards(service: Service) -> None:
    spec = {"columns": [XP], "periods": ["all", "week"], "entry": {"join": True, "owners_max": 1}}
    family = await service.must("PUT", "/v1/families/arena", spec)
    assert family["entry"] == {"join": True, "owners_max": 1}
    post = {"owner": "ada", "stats": {"xp": 1}}
    assert await service.refused("POST", "/v1/families/arena/posts", post) == (409, "not_joined")
    status, joined = await join(service, "arena:this-week", "ada")
    assert (status, joined["board"].partition("-W")[0][:6]) == (201, "arena:")
    result = (await service.must("POST", "/v1/families/arena/posts", post))["results"][0]
    assert [each["status"] for each in result["boards"]] == ["rejected", "applied"]
    at = "/v1/leaderboards/arena:{}/entries"
    for board, code in (
        ("this-week", "board_full"), ("2001-W01", "period_closed"), ("2999-W01", "not_open"), ("2999", "unknown_board"),
    ):  # fmt: skip
        assert (await service.refused("POST", at.format(board), {"owner": "bob"}))[1] == code


async def test_clients_that_race_get_exactly_the_places_and_attempts_there_are(
    either_store: dict[str, Any], tmp_path: Path
) -> None:
    """Run a short form of `benchmarks.joins`."""
    async with Service(tmp_path, **either_store).running() as service:
        for join in (False, True):
            race = EntryRace([service], f"cup-{join}", join, owners_max=8, posts_max=2, clients=16)
            await race.run()
            assert race.faults == []
            assert race.codes["board_full"] > 0
            if not join:
                refused = race.codes
        counted = Counter[str]()
        for _ in service.contexts:  # each call asks the next process
            figures = await service.figures()
            for code in ("no_posts_left", "board_full"):
                counted[code] += int(figures["rankcurve_entry_refused_posts_total", code])
        assert counted["board_full"] == refused["board_full"]
        assert counted["no_posts_left"] >= refused["no_posts_left"]

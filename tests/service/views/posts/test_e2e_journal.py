"""Test that the journal lists every change correctly, because rebuilds and streams depend on the journal."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from service.streams import long_answers
from storage.errors import StoreBusyError
from tests.service.real_service import Service, without

SHOTS = {"name": "shots", "sorted": False, "merge": "sum"}


async def journal(service: Service, after: int = 0, limit: int = 100) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = await service.get(f"/v1/journal?after={after}&limit={limit}")
    return lines


async def test_the_journal_holds_posted_and_stored_values(service: Service) -> None:
    await service.board("b", {"name": "lap", "best": "low", "merge": "min", "scale": 2}, SHOTS)
    posted = {"owner": "ada", "stats": {"lap": "61.50", "shots": 3}, "post_id": "m1/a", "at": "2026-01-02T03:04:05Z"}
    more: list[dict[str, Any]] = [{"stats": {"lap": 70}}, {"set": {"shots": 1}}, {"stats": {"lap": "no"}}]
    await service.post("b", posted, *({"owner": "ada", **each} for each in more))
    await service.post("b", posted)
    first, second, third = await journal(service)
    assert first["seq"] < second["seq"] < third["seq"]
    stats = {"lap": Decimal("61.50"), "shots": 3}
    assert without(first, "seq", "accepted_at") == {
        "kind": "post", "status": "applied", "board": "b", "owner": "ada", "post_id": "m1/a",
        "at": "2026-01-02T03:04:05.000000Z", "stats": stats, "stored": stats,
    }  # fmt: skip
    assert (second["status"], second["stats"]) == ("unchanged", {"lap": Decimal("70.00")})
    assert "stored" not in second
    assert (third["stats"], third["set"], third["stored"]) == ({}, {"shots": 1}, {"lap": Decimal("61.50"), "shots": 1})


async def test_the_posts_of_an_owner_on_every_board_are_listed_newest_first(service: Service) -> None:
    for board in ("a", "b"):
        await service.board(board, {"name": "xp"})
        await service.post_xp(board, ada=1, bob=2)
    await service.post_xp("a", ada=3)
    first = await service.get("/v1/owners/ada/posts?limit=2")
    assert [(post["board"], post["stats"]) for post in first["posts"]] == [("a", {"xp": 3}), ("b", {"xp": 1})]
    rest = await service.get(f"/v1/owners/ada/posts?limit=2&before={first['next']}")
    assert [(post["board"], post["stats"]) for post in rest["posts"]] == [("a", {"xp": 1})]
    assert rest["next"] is None
    assert (await service.get("/v1/owners/nobody/posts"))["posts"] == []


async def test_posts_to_a_deleted_board_stay_readable_in_the_journal(service: Service) -> None:
    await service.board("b", {"name": "xp", "scale": 1})
    await service.post("b", {"owner": "ada", "stats": {"xp": "1.5"}})
    await service.must("POST", "/v1/leaderboards/b/reset")
    await service.must("DELETE", "/v1/leaderboards/b")
    await service.board("b", {"name": "other"})
    lines = await journal(service)
    assert [(line["kind"], line["board"]) for line in lines] == [("post", "b"), ("reset", "b"), ("delete", "b")]
    assert lines[0]["stats"] == {"xp": Decimal("1.5")}


async def test_an_erased_owner_leaves_only_sequence_numbers_in_the_journal(service: Service) -> None:
    await service.board("b", {"name": "xp"})
    retried = {"owner": "ada", "stats": {"xp": 7}, "post_id": "match-1"}
    await service.post("b", {"owner": "bob", "stats": {"xp": 5}}, retried)
    before = [line["seq"] for line in await journal(service)]
    await service.must("PUT", "/v1/owners/ada/profile", {"name": "Ada"})
    await service.must("DELETE", "/v1/owners/ada")
    lines = await journal(service)
    assert [line["seq"] for line in lines][: len(before)] == before
    gone = [line for line in lines if line["owner"] is None]
    assert {line["kind"] for line in gone} == {"erased"}
    assert all(line.keys() == {"seq", "kind", "board", "owner", "accepted_at"} for line in gone)
    assert (await service.get("/v1/owners/ada/posts"))["posts"] == []
    assert await service.refused("GET", "/v1/owners/ada/profile") == (404, "no_profile")
    [again] = await service.post("b", retried)
    assert again["status"] == "duplicate"
    assert await service.refused("GET", "/v1/leaderboards/b/entries/ada") == (404, "unknown_owner")


async def test_readers_of_the_journal_let_other_requests_run_between_their_pieces(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.board("b", {"name": "xp"})
    await service.post("b", *({"owner": f"o{number}", "stats": {"xp": number}} for number in range(500)))
    encoded: list[tuple[int, int]] = []
    turns, encode, read, heavy = 0, long_answers._encode, service.context.store.read, list[bool]()

    def encodes(lines: list[Any]) -> bytes:
        encoded.append((turns, len(lines)))
        return encode(lines)

    def reads(program: Any, **lane: bool) -> Any:
        # Count only reads of the journal, not those of background tasks.
        if program.__qualname__.startswith("Context.read_living."):
            heavy.append(lane.get("heavy", False))
        return read(program, **lane)

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(long_answers, "_encode", encodes)
    monkeypatch.setattr(service.context.store, "read", reads)
    counting = asyncio.create_task(count_turns())
    pages = await asyncio.gather(*(journal(service, limit=500) for _ in range(4)))
    counting.cancel()
    assert [len(page) for page in pages] == [500] * 4
    assert sum(lines for _, lines in encoded) == 4 * 500
    assert max(lines for _, lines in encoded) <= long_answers.TURN_LINES
    assert len({turn for turn, _ in encoded}) == len(encoded), "two pieces were encoded in one turn of the loop"
    assert heavy == [True] * 4


async def test_readers_of_the_journal_past_the_bound_are_refused() -> None:
    answers = long_answers.LongAnswers(reads_waiting_max=1)

    async def wait() -> None:
        async with answers.hold_turn():
            pass

    async with answers.hold_turn():
        waiting = asyncio.create_task(wait())
        given_up = asyncio.create_task(wait())
        await asyncio.sleep(0)
        with pytest.raises(StoreBusyError):
            await given_up
    await waiting
    await wait()

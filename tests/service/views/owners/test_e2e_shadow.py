"""Test shadowed owners: two services get the same posts, and one shadows an owner. The owner reads the same from both.

Everybody else reads as if the owner were hidden. Both services have a clock that stands still, so even times are equal.
"""

import random
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.service.event_stream import events_of
from tests.service.real_service import ONE_PROCESS, Caller, Service, bearer, without
from tests.storage.deployment import Clock

CHEAT, SHADOW = "cheat", "/v1/owners/cheat/hidden"
XP = {"name": "xp", "merge": "sum", "min": 0, "max": 10**6, "tiers": [{"name": "gold", "to_percent": 34}]}
LAP = {"name": "lap", "merge": "min", "best": "low", "sorted": True}
BOARDS: dict[str, dict[str, Any]] = {
    "plain": {}, "timed": {"ties": "earliest"}, "spread": {"segments": 2}, "shared": {"table": "shared"},
}  # fmt: skip
GAME = {"columns": [{**XP, "sorted": True}], "periods": ["all", "day"], "time_zone": "UTC", "grace_seconds": 0}
NOW_US = 2_122_000_000_000_000  # far from the time of the store, whose jobs close nothing


class Reader:
    """The answers of a service to callers with the role `reader`."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.caller: Caller

    async def open(self, stack: AsyncExitStack) -> "Reader":
        await self.service.create_first_key()
        key = (await self.service.must("POST", "/v1/keys", {"name": "game", "role": "reader"}))["key"]
        self.headers = bearer(key)
        return self

    async def ask(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """Return status, form of the `ETag` and body of an answer, without what no two services have alike."""
        answer = await self.service.call(method, path, body, {**self.headers, **headers})
        tag = re.sub(r"\d+", "0", answer.headers.get("ETag", ""))
        return answer.status, tag, without(answer.body, "next", "prev", "request_id", "instance", "seq")


@pytest.fixture
async def twins(tmp_path: Path, either_store: dict[str, Any]) -> AsyncIterator[tuple[Reader, Reader]]:
    """Return two services with the same boards and posts. The second one has the store of the parameter."""
    async with AsyncExitStack() as stack:
        readers = []
        for name, settings in (("ranked", {}), ("shadowed", either_store)):
            (tmp_path / name).mkdir()
            service = Service(tmp_path / name, jobs="none", **settings)
            service.clock = Clock(NOW_US)
            await stack.enter_async_context(service.running())
            readers.append(await Reader(service).open(stack))
            for board, spec in BOARDS.items():
                await service.board(board, XP, LAP, **spec)
            await service.must("PUT", "/v1/families/game", GAME)
        yield readers[0], readers[1]


async def play(readers: tuple[Reader, Reader], rng: random.Random, posts: int) -> list[dict[str, Any]]:
    """Send the same posts of some owners to both services, one request after the other. Return the last results."""
    made: list[dict[str, Any]] = [
        {"owner": rng.choice(("ada", "bob", "cleo", CHEAT)), "stats": {"xp": rng.randrange(4)}, "n": each}
        for each in range(posts)
    ]
    for post in made:
        post["post_id"] = f"{rng.random()}"
        del post["n"]
        if rng.random() < 0.4:
            post["stats"]["lap"] = rng.randrange(50)
    results = []
    for reader in readers:
        for board in BOARDS:
            at = f"/v1/leaderboards/{board}/posts?positions=xp,lap&moved=true"
            results.append(await reader.service.must("POST", at, {"posts": made}))
        family = [{"owner": each["owner"], "stats": {"xp": each["stats"]["xp"]}} for each in made]
        await reader.service.must("POST", "/v1/families/game/posts", {"posts": family})
    half = len(results) // 2
    own = [
        [line for line in found["results"] if line["owner"] == CHEAT] if "owner" in found["results"][0] else
        [line for line, post in zip(found["results"], made, strict=True) if post["owner"] == CHEAT]
        for found in results
    ]  # fmt: skip
    assert own[:half] == own[half:]
    return results


def list_requests() -> list[tuple[str, str, Any]]:
    """Return every kind of request that is about the owner alone, or has the owner's row at its centre."""
    found: list[tuple[str, str, Any]] = [
        ("GET", f"/v1/owners/{CHEAT}/{path}", None) for path in ("boards", "posts", "grants", "profile")
    ]
    boards = [*BOARDS, "game:all"]
    found.append(("POST", f"/v1/owners/{CHEAT}/positions", {"boards": [*boards, "game:today"], "column": "xp"}))
    found.append(("GET", f"/v1/families/game/owners/{CHEAT}/history?period=day", None))
    for board in boards:
        at = f"/v1/leaderboards/{board}/entries"
        paths = ["", "?profiles=true", "/positions", "/positions?columns=xp&next=true", "/positions?rank=exact"]
        paths += [f"/around?column=xp&better={a}&worse={b}" for a, b in ((0, 0), (1, 1), (5, 5), (0, 3))]
        paths += ["/around?column=xp&better=3&worse=0&fill=true", "/positions?rank=estimate"]
        paths += ["/positions?compare=previous"] if board.startswith("game") else ["/around?column=lap"]
        found += [("GET", f"{at}/{CHEAT}{path}", None) for path in paths]
        for owners in ([CHEAT], [CHEAT, "ada", "bob", "nobody"]):
            found.append(("POST", f"{at}/lookup", {"owners": owners, "column": "xp"}))
    return found


async def compare(readers: tuple[Reader, Reader]) -> None:
    for request in list_requests():
        ranked, shadowed = [await reader.ask(*request) for reader in readers]
        assert shadowed == ranked, request


async def read_top(service: Service, board: str) -> list[tuple[str, int]]:
    page = await service.get(f"/v1/leaderboards/{board}/rankings/xp")
    assert page["total"] == len(page["entries"])
    return [(row["owner"], row["rank"]) for row in page["entries"]]


@ONE_PROCESS
async def test_a_shadowed_owner_reads_what_it_would_read_if_it_were_ranked(twins: tuple[Reader, Reader]) -> None:
    ranked, shadowed = twins
    rng = random.Random(f"{shadowed.service.store}"[:6])
    await play(twins, rng, 12)
    await compare(twins)
    etag_paths = [f"/v1/leaderboards/{board}/entries/{CHEAT}" for board in BOARDS]
    etag_paths += [f"{path}/around?column=xp" for path in etag_paths]
    before = {path: await shadowed.service.call("GET", path) for path in etag_paths}
    await shadowed.service.must("PUT", SHADOW, {"shadow": True, "reason": "speed hack"})
    for _ in range(4):
        await compare(twins)
        for board in [*BOARDS, "game:all", "game:today"]:
            top = await read_top(shadowed.service, board)
            others = [row for row in await read_top(ranked.service, board) if row[0] != CHEAT]
            assert [owner for owner, _ in top] == [owner for owner, _ in others]
            assert not top or top[0][1] == 1
        for path, earlier in before.items():  # a tag is current as long as the answer is
            answer = await shadowed.service.call("GET", path)
            again = await shadowed.ask("GET", path, **{"If-None-Match": answer.headers["ETag"]})
            assert again[0] == 304
            if without(answer.body, "hidden") != without(earlier.body, "hidden"):
                assert answer.headers["ETag"] != earlier.headers["ETag"]
            before[path] = answer
        await play(twins, rng, 6)
    # Only operators learn of it.
    entry = await shadowed.service.get(f"/v1/leaderboards/plain/entries/{CHEAT}")
    assert entry["hidden"] == "shadow"
    [listed] = (await shadowed.service.get("/v1/owners?hidden=true"))["owners"]
    assert (listed["owner"], listed["shadow"], listed["reason"]) == (CHEAT, True, "speed hack")
    body = {"owners": [CHEAT, "ada"]}
    found = (await shadowed.service.must("POST", "/v1/leaderboards/plain/entries/lookup", body))["entries"]
    assert [each.get("hidden") for each in found] == ["shadow", None]
    await shadowed.service.must("DELETE", SHADOW)
    await compare(twins)
    for board in [*BOARDS, "game:all"]:
        assert await read_top(shadowed.service, board) == await read_top(ranked.service, board)


@ONE_PROCESS
async def test_the_stream_of_a_shadowed_owner_goes_on(twins: tuple[Reader, Reader]) -> None:
    events: list[list[Any]] = []
    for number, reader in enumerate(twins):
        service, shadow = reader.service, SHADOW if number else "/v1/owners/nobody/hidden"
        path = f"/v1/leaderboards/plain/stream?column=xp&owner={CHEAT}"
        await service.post_xp("plain", ada=5, bob=3)
        await service.post_xp("plain", cheat=4)
        async with events_of(service.base, path, headers=reader.headers) as stream:
            seen = [await stream.expect_event("position")]
            await service.must("PUT", shadow, {"shadow": True})
            for owner, xp in ((CHEAT, 2), ("bob", 6), ("ada", 1), (CHEAT, 9)):
                await service.post_xp("plain", **{owner: xp})
                if owner != "ada":
                    seen.append(await stream.expect_event("position"))
        await service.post_xp("plain", bob=20)
        await service.post_xp("plain", cheat=1)
        async with events_of(service.base, path, last_id=seen[-1].text_id, headers=reader.headers) as stream:
            seen.append(await stream.expect_event("position"))
            await service.must("DELETE", shadow)
            await service.post_xp("plain", cheat=30)
            seen.append(await stream.expect_event("position"))
        events.append([event.data for event in seen])
    assert events[1] == events[0]


async def test_an_owner_is_hidden_shadowed_and_shown_in_any_order(service: Service) -> None:
    await service.board("b", XP)
    await service.post_xp("b", ada=30, cheat=99)
    at, kinds = f"/v1/leaderboards/b/entries/{CHEAT}", []
    tags: dict[str, Any] = {}
    async with events_of(service.base, f"/v1/leaderboards/b/stream?column=xp&owner={CHEAT}") as stream:
        assert (await stream.expect_event("position")).data["rank"] == 1
        for state in ("hidden", "shadow", "shadow", "hidden", "shown", "shadow", "shown"):
            body = {"shadow": state == "shadow"}
            await service.must(*(("DELETE", SHADOW) if state == "shown" else ("PUT", SHADOW, body)))
            kinds.append(state)
            entry = await service.call("GET", at, headers={"If-None-Match": tags.get("etag", '"none"')})
            assert entry.status == 200 or kinds[-2:] == ["shadow", "shadow"] or state == "shown", "the tag has changed"
            entry = await service.call("GET", at)
            assert entry.body.get("hidden") == {"hidden": True, "shadow": "shadow"}.get(state)
            assert ("ETag" in entry.headers) is (state != "hidden")
            tags = {"etag": entry.headers["ETag"]} if state != "hidden" else {}
            if state == "hidden":
                assert await service.refused("GET", f"{at}/positions") == (404, "not_ranked")
                assert (await stream.expect_event("position")).data["rank"] is None
            else:
                [position] = (await service.get(f"{at}/positions"))["positions"]
                assert (position["rank"], position["total"]) == (1, 2)
                if kinds[-2:-1] == ["hidden"]:
                    assert (await stream.expect_event("position")).data["rank"] == 1
            listed = (await service.get("/v1/owners?hidden=true"))["owners"]
            assert [each["shadow"] for each in listed] == ([] if state == "shown" else [state == "shadow"])
    acts = (await service.get(f"/v1/acts?owner={CHEAT}"))["acts"][::-1]
    assert [each["act"].removeprefix("owner.") for each in acts] == [
        "hidden", "shadowed", "hidden", "shown", "shadowed", "shown",
    ]  # fmt: skip
    assert await service.refused("PUT", SHADOW, {"shadow": 1}) == (400, "bad_request")
    await service.must("PUT", SHADOW, {"shadow": True})
    await service.must("DELETE", f"/v1/owners/{CHEAT}")
    assert await service.refused("GET", at) == (404, "unknown_owner")

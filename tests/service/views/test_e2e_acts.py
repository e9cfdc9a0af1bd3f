"""Test that what operators do is kept with time, key and reason, and that nothing else is."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec.structs import fields

from service.api import ROUTES
from service.contract.api_keys import Role
from service.contract.requests import REASON_CHARS_MAX
from service.contract.routes import SAFE_METHODS
from service.monitoring.jolokia import JOLOKIA
from storage.boards.acts import ActName
from tests.service.real_service import Caller, Service, Spawn, bearer, without

XP = {"name": "xp", "merge": "sum"}
SPEC = {"columns": [{**XP, "sorted": True}]}
FAMILY = {**SPEC, "periods": ["all", "day"]}
BOARD, FAMILY_PATH, POOL = "/v1/leaderboards/b", "/v1/families/f", "/v1/pools/game/servers"
HIDDEN, HOOK = "/v1/owners/ada/hidden", "/v1/webhooks/shop"
# Routes of operators whose requests are no acts, each with the reason.
NO_ACTS = {
    "refresh_curve": "fits a curve from what is stored, and changes no result",
    "test_webhook": "sends an event that says nothing",
    "audit_curve": "compares a curve with what is stored",
    **dict.fromkeys(
        (route.view for route in JOLOKIA), "may have many operations, so the handler stores an act of each"
    ),
}


@pytest.fixture
async def service(tmp_path: Path, either_store: dict[str, Any]) -> AsyncIterator[Service]:
    async with Service(tmp_path, player_token_keys=("s" * 32,), **either_store).running() as made:
        await made.create_first_key()
        yield made


async def list_acts(caller: Caller, query: str = "") -> list[dict[str, Any]]:
    return [act async for page in caller.pages(f"/v1/acts?limit=3{query}") for act in page["acts"]]


async def list_kinds(caller: Caller, query: str = "") -> list[str]:
    return [act["act"] for act in await list_acts(caller, query)]


def test_each_route_by_which_operators_change_something_names_its_acts() -> None:
    changing = [
        route
        for route in [*ROUTES, *JOLOKIA]
        if route.role is Role.OPS and (route.method not in SAFE_METHODS or route in JOLOKIA)
    ]
    assert {route.view for route in changing if not route.acts} == NO_ACTS.keys()
    for route in ROUTES:
        if route.acts:
            kind = route.query if route.body is None else route.body
            assert isinstance(kind, type)
            assert "reason" in [field.name for field in fields(kind)], route.view
    named = {act for route in ROUTES for act in route.acts}
    assert named | {"board.rebuilt", "entry.set", "job.paused", "job.resumed", "job.run"} == set(get_args(ActName))


async def prepare(service: Service, act: str, path: str) -> None:
    """Post what the request of an act is about."""
    post = {"owner": "bob", "stats": {"xp": 1}, "post_id": path.rpartition("/")[2].partition("?")[0]}
    if act == "entries.erased":
        await service.post_xp("b", carl=-1)
    elif act == "post.voided":
        await service.must("POST", path.partition("/once")[0], post)
    elif "/held/" in path:
        await service.post("b", post | {"hold": True})


async def test_every_act_is_kept_with_its_key_and_reason(service: Service) -> None:
    key_id = (await service.get("/v1/keys"))["keys"][0]["id"]
    acts: list[tuple[str, str, Any, ActName, Any]] = [
        ("PUT", BOARD, SPEC, "board.created", None),
        ("PUT", BOARD, {"columns": [*SPEC["columns"], XP | {"name": "gold"}]}, "board.changed", None),
        ("PUT", FAMILY_PATH, FAMILY, "family.created", {"family": "f"}),
        ("PUT", FAMILY_PATH, {**FAMILY, "keep": {"day": 3}}, "family.changed", {"family": "f"}),
        ("POST", f"{FAMILY_PATH}/reset", {"period": "day"}, "family.reset", {"family": "f", "period": "day"}),
        ("POST", f"{BOARD}/posts", {"owner": "ada", "set": {"xp": 7}}, "entry.set", {"set": {"xp": 7}}),
        ("PUT", HIDDEN, None, "owner.hidden", None),
        ("PUT", HIDDEN, {"shadow": True}, "owner.shadowed", None),
        ("DELETE", HIDDEN, None, "owner.shown", None),
        ("DELETE", "/v1/owners/ada/tokens", None, "tokens.voided", None),
        ("DELETE", f"{BOARD}/posts/once?owner=bob", None, "post.voided", {"post_id": "once"}),
        ("DELETE", f"{FAMILY_PATH}/posts/once?owner=bob", None, "post.voided", {"family": "f", "post_id": "once"}),
        ("PUT", f"{BOARD}/held/odd?owner=bob", {"verdict": "accept"}, "post.accepted", {"post_id": "odd"}),
        ("PUT", f"{BOARD}/held/odder?owner=bob", {"verdict": "refuse"}, "post.refused", {"post_id": "odder"}),
        ("DELETE", f"{BOARD}/entries/ada", None, "entry.erased", None),
        ("POST", f"{BOARD}/entries/erase", {"worse_than": 0, "column": "xp"}, "entries.erased",
         {"column": "xp", "worse_than": 0}),
        ("POST", f"{BOARD}/reset", None, "board.reset", None),
        ("PUT", BOARD, {"columns": [*SPEC["columns"], XP | {"name": "gold"}], "closes_at": "2100-01-01T00:00:00Z"},
         "board.closed", None),
        ("POST", "/v1/owners/ada/merge", {"into": "eve"}, "owner.merged", {"into": "eve", "from": "journal"}),
        ("DELETE", FAMILY_PATH, None, "family.deleted", {"family": "f"}),
        ("DELETE", BOARD, None, "board.deleted", None),
        ("PUT", HOOK, {"url": "https://game.example/"}, "webhook.created", {"webhook": "shop"}),
        ("PUT", HOOK, {"url": "https://game.example/new"}, "webhook.changed", {"webhook": "shop"}),
        ("POST", f"{HOOK}/resume", None, "webhook.resumed", {"webhook": "shop"}),
        ("DELETE", HOOK, None, "webhook.deleted", {"webhook": "shop"}),
        ("PUT", POOL, None, "pool.created", {"client_id": "game", "pool_id": "servers"}),
        ("POST", f"{POOL}/resources", {"region": "eu", "resources": ["one"]}, "resources.added",
         {"client_id": "game", "pool_id": "servers"}),
        ("DELETE", f"{POOL}/resources", {"resources": ["one"]}, "resources.removed",
         {"client_id": "game", "pool_id": "servers"}),
        ("DELETE", POOL, None, "pool.deleted", {"client_id": "game", "pool_id": "servers"}),
    ]  # fmt: skip
    for number, (method, path, body, act, detail) in enumerate(acts):
        await prepare(service, act, path)
        sign = "&" if "?" in path else "?"
        sent, full = ({**body, "reason": f"r{number}"}, path) if body else (None, f"{path}{sign}reason=r{number}")
        await service.must(method, full, sent)
        newest = (await service.get("/v1/acts?limit=1"))["acts"][0]
        owner = "bob" if "bob" in path else "ada" if "ada" in f"{path}{body}" else None
        board = "b" if path.startswith(BOARD) else None
        wanted = {"act": act, "key": key_id, "owner": owner, "board": board, "reason": f"r{number}", "detail": detail}
        assert without(newest, "id", "at") == wanted
    elsewhere = {"board.rebuilt", "owner.erased", "key.created", "key.revoked", "job.paused", "job.resumed", "job.run"}
    assert {act for *_, act, _ in acts} | elsewhere == set(get_args(ActName)), "all are tested"
    made = await list_acts(service, f"&key={key_id}")
    assert [act["reason"] for act in made] == [f"r{number}" for number in reversed(range(len(acts)))]
    assert len({act["id"] for act in made}) == len(acts)
    times = [act["at"] for act in made]
    assert times == sorted(times, reverse=True)
    first = (await list_acts(service))[-1]
    assert (first["act"], first["key"], first["detail"]) == ("key.created", None, {"id": key_id, "role": "ops"})


async def test_a_request_that_changes_nothing_is_no_act(service: Service) -> None:
    await service.must("PUT", BOARD, SPEC)
    await service.must("PUT", FAMILY_PATH, FAMILY)
    await service.must("PUT", POOL)
    resources = {"region": "eu", "resources": ["one"]}
    await service.must("POST", f"{POOL}/resources", resources)
    await service.post("b", {"owner": "bob", "stats": {"xp": 1}, "post_id": "once"})
    await service.must("DELETE", f"{BOARD}/posts/once?owner=bob")
    key = (await service.must("POST", "/v1/keys", {"name": "k", "role": "reader"}))["id"]
    await service.must("DELETE", f"/v1/keys/{key}")
    await service.must("PUT", HIDDEN)
    before = await list_acts(service)
    assert [(act["act"], act["detail"]) for act in before[1:2]] == [("key.revoked", {"id": key})]
    await service.must("PUT", BOARD, SPEC)
    await service.must("PUT", FAMILY_PATH, FAMILY)
    await service.must("PUT", POOL)
    await service.must("POST", f"{POOL}/resources", resources)
    await service.must("DELETE", f"{POOL}/resources", {"resources": ["other"]})
    await service.must("DELETE", f"{BOARD}/posts/once?owner=bob")
    await service.must("DELETE", f"/v1/keys/{key}")
    await service.must("PUT", HIDDEN)
    await service.must("DELETE", "/v1/owners/nobody/hidden")
    await service.must("DELETE", "/v1/owners/nobody")
    assert await service.refused("DELETE", f"{BOARD}/entries/nobody") == (404, "unknown_owner")
    assert await service.refused("DELETE", "/v1/leaderboards/none") == (404, "unknown_board")
    await service.post("b", {"owner": "ada", "stats": {"xp": 1}})
    assert await list_acts(service) == before


async def test_hidden_owners_are_listed_with_the_first_act_that_hid_them(service: Service) -> None:
    await service.must("PUT", BOARD, SPEC)
    for owner in ("dan", "ada", "cleo", "bob", "eve"):
        await service.must("PUT", f"/v1/owners/{owner}/hidden?reason={owner}%20cheats")
    await service.must("PUT", f"{HIDDEN}?reason=again")
    await service.must("DELETE", "/v1/owners/cleo/hidden")
    await service.must("DELETE", "/v1/owners/dan")
    key_id = (await service.get("/v1/keys"))["keys"][0]["id"]
    pages = [page async for page in service.pages("/v1/owners?hidden=true&limit=2")]
    assert [[each["owner"] for each in page["owners"]] for page in pages] == [["ada", "bob"], ["eve"]]
    [ada] = await list_acts(service, "&owner=ada")
    of_act = {"since": ada["at"], "key": key_id, "reason": "ada cheats"}
    assert pages[0]["owners"][0] == {"owner": "ada", "shadow": False, **of_act}
    await service.must("DELETE", HIDDEN)
    await service.must("PUT", f"{HIDDEN}?reason=third")
    assert (await service.get("/v1/owners?hidden=true"))["owners"][0]["reason"] == "third"
    assert await list_kinds(service, "&owner=ada") == ["owner.hidden", "owner.shown", "owner.hidden"]


async def test_the_name_of_an_erased_owner_goes_from_the_acts(service: Service) -> None:
    await service.must("PUT", BOARD, SPEC)
    await service.post("b", {"owner": "ada", "set": {"xp": 3}, "post_id": "ada/1", "reason": "for Ada, ada said"})
    await service.must("PUT", f"{HIDDEN}?reason=cheats")
    await service.must("DELETE", "/v1/owners/ada?reason=asked%20by%20letter")
    assert await list_acts(service, "&owner=ada") == []
    assert (await service.get("/v1/owners?hidden=true"))["owners"] == []
    kept = [(act["act"], act["owner"], act["reason"], act["detail"]) for act in (await list_acts(service))[:3]]
    assert kept == [
        ("owner.erased", None, "asked by letter", None),
        ("owner.hidden", None, "cheats", None),
        ("entry.set", None, None, None),
    ]
    told = [without(act, "id", "key") for act in await list_acts(service)]
    assert "ada" not in json.dumps(told)


async def test_each_post_that_overwrites_is_an_act_on_each_board_if_it_was_applied(service: Service) -> None:
    await service.must("PUT", BOARD, SPEC)
    await service.must("PUT", "/v1/leaderboards/c", {**SPEC, "segments": 1})
    await service.must("PUT", FAMILY_PATH, FAMILY)
    before = len(await list_acts(service))
    for owner in ("cleo", "dan"):
        await service.post_xp("b", **{owner: 1})
        await service.post_xp("c", **{owner: 1})
        await service.must("POST", f"{FAMILY_PATH}/posts", {"owner": owner, "stats": {"xp": 1}})
    await service.post(
        "b",
        {"owner": "new", "set": {"xp": 1}},
        {"owner": "newer", "set": {"xp": 1}, "reason": "by hand"},
        {"owner": "ada", "stats": {"xp": 1}, "post_id": "plain"},
        {"owner": "ada", "set": {"xp": 5}, "post_id": "x", "reason": "wrong sum"},
        {"owner": "ada", "set": {"xp": 5}, "post_id": "x", "reason": "sent again"},
        {"owner": "ada", "set": {"xp": 5}, "reason": "no change"},
        {"owner": "bob", "set": {"none": 5}},
    )
    both = {"owner": "cleo", "boards": ["b", "c"], "set": {"xp": 2}}
    await service.must("POST", "/v1/posts", both)
    await service.must("POST", f"{FAMILY_PATH}/posts", {"owner": "dan", "set": {"xp": 2}})
    acts = await list_acts(service)
    made = [(act["owner"], act["board"], act["reason"]) for act in acts[: len(acts) - before]]
    day = (await service.get(f"{FAMILY_PATH}/boards?period=day"))["board"]
    assert sorted(made, key=str) == sorted(
        [
            ("newer", "b", "by hand"),
            ("ada", "b", "wrong sum"),
            ("cleo", "b", None),
            ("cleo", "c", None),
            ("dan", "f:all", None),
            ("dan", day, None),
        ],
        key=str,
    )
    assert await list_kinds(service, "&board=f:all") == ["entry.set"]
    [ada] = await list_acts(service, "&owner=ada&board=b")
    assert ada["detail"] == {"set": {"xp": 5}, "post_id": "x"}


async def test_a_queued_post_that_overwrites_is_an_act_when_it_is_applied(service: Service) -> None:
    await service.must("PUT", BOARD, SPEC)
    post = {"owner": "ada", "set": {"xp": 5}, "post_id": "x", "reason": "later"}
    await service.must("POST", f"{BOARD}/posts?mode=queued", {"posts": [post, post]})
    await service.wait_applied()
    key_id = (await service.get("/v1/keys"))["keys"][0]["id"]
    [act] = await list_acts(service, "&owner=ada")
    assert (act["act"], act["key"], act["board"], act["reason"]) == ("entry.set", key_id, "b", "later")


@pytest.mark.parametrize("either_store", ["sqlite"], indirect=True)
async def test_a_reason_that_is_too_long_or_without_an_act_changes_nothing(service: Service) -> None:
    await service.must("PUT", BOARD, {**SPEC, "reason": "x" * REASON_CHARS_MAX})
    long = "x" * (REASON_CHARS_MAX + 1)
    before = await list_acts(service)
    posts = f"{BOARD}/posts"
    for method, path, body in (
        ("DELETE", f"{BOARD}?reason={long}", None),
        ("PUT", f"{HIDDEN}?reason=%00", None),
        ("POST", "/v1/keys", {"name": "k", "role": "ops", "reason": long}),
        ("PUT", "/v1/leaderboards/c", {**SPEC, "reason": "a\0b"}),
        ("POST", posts, {"owner": "ada", "set": {"xp": 1}, "reason": long}),
        ("GET", "/v1/owners", None),
        ("GET", "/v1/owners?hidden=false", None),
        ("GET", "/v1/acts?owner=a%00", None),
        ("GET", "/v1/acts?cursor=x", None),
    ):
        assert (await service.refused(method, path, body))[0] == 400, path
    page = await service.get("/v1/acts?limit=1")
    assert await list_acts(service) == before
    assert page["next"] is not None
    refused = await service.refused("GET", f"/v1/acts?owner=ada&cursor={page['next']}")
    assert refused == (400, "bad_cursor"), "the cursor belongs to another list"
    await service.post("b", {"owner": "bob", "stats": {"xp": 1}, "reason": "no act"})
    assert await list_acts(service) == before
    await service.must("PUT", f"{HIDDEN}?reason=")
    assert (await list_acts(service, "&owner=ada"))[0]["reason"] is None


@pytest.mark.parametrize("either_store", ["sqlite"], indirect=True)
async def test_only_operators_read_acts_and_hidden_owners(service: Service) -> None:
    text = (await service.must("POST", "/v1/keys", {"name": "w", "role": "writer"}))["key"]
    for path in ("/v1/acts", "/v1/owners?hidden=true"):
        assert (await service.call("GET", path, None, bearer(text))).status == 403


async def test_an_operation_on_a_job_is_an_act(service: Service) -> None:
    request = {"type": "exec", "mbean": "rankcurve:type=Job,name=prune"}
    paused = {**request, "operation": "pause", "reason": "disk"}
    resumed = {**request, "operation": "resume", "config": {"reason": "done"}}
    answers = await service.must("POST", "/jolokia", [{"type": "version"}, paused, resumed])
    assert [each["status"] for each in answers] == [200, 200, 200]
    ran = await service.get("/jolokia/exec/rankcurve:type=Job,name=prune/run?reason=now")
    assert ran["status"] == 200
    unknown = await service.must("POST", "/jolokia", {**request, "operation": "stop", "reason": "none"})
    long = await service.must("POST", "/jolokia", {**paused, "reason": "x" * (REASON_CHARS_MAX + 1)})
    assert (unknown["status"], long["status"]) == (400, 400)
    found = [(act["act"], act["reason"], act["detail"]) for act in (await list_acts(service))[:3]]
    wanted = [("job.run", "now"), ("job.resumed", "done"), ("job.paused", "disk")]
    assert found == [(*each, {"job": "prune"}) for each in wanted]
    assert len(await list_acts(service)) == 4


async def test_acts_of_one_process_are_listed_by_another(spawn: Spawn, store_url: str) -> None:
    processes = [spawn("--workers", "1", "--store", store_url) for _ in range(2)]
    one, other = [Caller(each.ready().url) for each in processes]
    async with one, other:
        await one.must("PUT", BOARD, SPEC)
        await other.must("PUT", f"{HIDDEN}?reason=cheats")
        await one.must("PUT", HIDDEN)
        assert await list_kinds(one) == await list_kinds(other) == ["owner.hidden", "board.created"]
        hiding = (caller.must("PUT", "/v1/owners/bob/hidden") for _ in range(5) for caller in (one, other))
        await asyncio.gather(*hiding)
        assert await list_kinds(one, "&owner=bob") == ["owner.hidden"], "requests at the same time"
        await one.must("DELETE", "/v1/owners/bob/hidden")
        assert [each["reason"] for each in (await one.get("/v1/owners?hidden=true"))["owners"]] == ["cheats"]


async def test_acts_on_a_store_of_four_partitions(partitions_url: str, tmp_path: Path) -> None:
    async with Service(tmp_path, store=partitions_url).running() as service:
        await service.must("PUT", "/v1/leaderboards/far", {**SPEC, "partition": 3})
        await service.must("PUT", "/v1/leaderboards/wide", {**SPEC, "segments": 4})
        await service.post("far", {"owner": "ada", "set": {"xp": 3}, "reason": "won"})
        await service.post("wide", {"owner": "ada", "set": {"xp": 3}, "reason": "won"})
        await service.must("DELETE", "/v1/leaderboards/far/entries/ada")
        await service.must("PUT", HIDDEN)
        await service.must("PUT", HIDDEN)
        assert await list_kinds(service, "&owner=ada") == ["owner.hidden", "entry.erased", "entry.set", "entry.set"]
        assert await list_kinds(service, "&board=wide") == ["entry.set", "board.created"]
        await service.must("DELETE", "/v1/owners/ada")
        assert await list_kinds(service, "&owner=ada") == []
        assert (await list_acts(service))[0]["act"] == "owner.erased"


async def test_an_act_is_kept_if_the_service_is_killed_after_its_answer(spawn: Spawn) -> None:
    node = spawn().ready()
    async with Caller(node.url) as caller:
        await caller.must("PUT", BOARD, SPEC)
        await caller.post("b", {"owner": "ada", "set": {"xp": 3}, "reason": "won"})
        await caller.must("PUT", HIDDEN)
    node.discard()
    again = spawn().ready()
    async with Caller(again.url) as caller:
        assert await list_kinds(caller) == ["owner.hidden", "entry.set", "board.created"]
        assert [each["owner"] for each in (await caller.get("/v1/owners?hidden=true"))["owners"]] == ["ada"]

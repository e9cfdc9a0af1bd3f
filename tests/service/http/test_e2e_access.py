"""Test access to a real service: keys from the command line, the role of each route, and loopback without keys."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from service.contract.api_keys import Role
from service.contract.routes import Route
from tests.service.cli_fake_service import make_key, run
from tests.service.every_route import BODIES, NAMES, QUERIES
from tests.service.openapi_checks import ROUTE_TABLE
from tests.service.real_service import Service, Spawn, bearer, command_line

ROLES = ("reader", "writer", "ops")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Make a store with a key for each role and a revoked key. Return the store's folder and the keys by name."""
    folder = tmp_path_factory.mktemp("keys")
    made = {role: make_key(folder, role, f"my {role}") for role in ROLES}
    made["revoked"] = make_key(folder, "ops")
    key_id = made["revoked"].split("_")[1]
    with closing(sqlite3.connect(folder / "rankcurve.db")) as store, store:
        store.execute("UPDATE api_keys SET revoked_at = created_at WHERE id = ?", (key_id,))
    return folder, made


@pytest.fixture
async def closed(keys: tuple[Path, dict[str, str]]) -> AsyncIterator[Service]:
    """Start a service that requires these keys. Requests carry a key only if the test adds one."""
    async with Service(keys[0]).running() as made:
        yield made


def path_of(route: Route) -> str:
    """Return a path and a query that the route accepts. The board in the path need not exist."""
    query = "" if route.view == "stream" else QUERIES.get(route.view, "")
    return route.path.format(**NAMES, id="nobody") + query


async def test_every_route_accepts_its_role_and_higher_ones(closed: Service, keys: tuple[Path, dict[str, str]]) -> None:
    for route in ROUTE_TABLE:
        body = BODIES.get(route.view)
        for role, key in keys[1].items():
            answer = await closed.call(route.method, path_of(route), body, bearer(key))
            if route.role is None:
                assert answer.status == 200
            elif role == "revoked":
                assert (answer.status, answer.body["code"]) == (401, "unauthorized")
            elif Role[role.upper()] < route.role:
                assert (answer.status, answer.body["code"]) == (403, "forbidden"), f"{role}: {route.view}"
            else:
                assert answer.status not in (401, 403), f"{role}: {route.view}"


async def test_every_route_but_health_is_401_without_a_known_key(closed: Service) -> None:
    for route in ROUTE_TABLE:
        for headers in ({}, {"Authorization": "Bearer rk_0_0"}, {"Authorization": "Basic !"}, {"Authorization": "x"}):
            answer = await closed.call(route.method, path_of(route), BODIES.get(route.view), headers)
            if route.role is None:
                assert answer.status == 200
                continue
            assert (answer.status, answer.body["code"]) == (401, "unauthorized")
            assert "Bearer" in answer.headers["WWW-Authenticate"]


async def test_setting_a_value_needs_the_role_ops(closed: Service, keys: tuple[Path, dict[str, str]]) -> None:
    ops, writer = (bearer(keys[1][role]) for role in ("ops", "writer"))
    await closed.call("PUT", "/v1/leaderboards/s", BODIES["create_board"], ops)
    path, body = "/v1/leaderboards/s/posts", {"owner": "a", "set": {"xp": 5}}
    assert await closed.refused("POST", path, body, **writer) == (403, "forbidden")
    several = {"posts": [{"owner": "a", "stats": {"xp": 1}}, body]}
    assert await closed.refused("POST", path, several, **writer) == (403, "forbidden")
    assert (await closed.call("POST", path, body, ops)).body["results"][0]["stats"] == {"xp": 5}


async def test_an_unknown_path_or_method_is_answered_with_a_problem(service: Service) -> None:
    for path in ("/v1", "/v1/nothing", "/v1/leaderboards/b/nothing", "/v1/leaderboards/b/rankings/xp/nothing"):
        assert await service.refused("GET", path) == (404, "not_found")
    for route in ROUTE_TABLE:
        if route.view in ("lookup", "erase_entries"):
            continue  # with another method, this path means the entry of an owner named `lookup` or `erase`
        taken = {each.method for each in ROUTE_TABLE if each.path == route.path}
        for method in {"GET", "PUT", "POST", "DELETE", "PATCH"} - taken:
            answer = await service.call(method, path_of(route))
            assert (answer.status, answer.body["code"]) == (405, "method_not_allowed")
            assert taken <= {each.strip() for each in answer.headers["Allow"].split(",")}


async def test_keys_are_stored_hashed_and_listed_without_their_text(
    closed: Service, keys: tuple[Path, dict[str, str]]
) -> None:
    folder, made = keys
    listed = str((await closed.call("GET", "/v1/keys", headers=bearer(made["ops"]))).body)
    assert all(f"my {role}" in listed for role in ROLES)
    content = b"".join(path.read_bytes() for path in folder.iterdir())
    for key in made.values():
        _, key_id, secret = key.split("_")
        assert key_id in listed
        assert secret not in listed
        assert secret.encode() not in content


def test_a_service_without_keys_listens_on_loopback_only_and_says_so(spawn: Spawn, tmp_path: Path) -> None:
    for more in ((), ("--set", "anonymous_role=reader")):
        words = ("serve", "--host", "0.0.0.0", "--port", "0", "--store", "sqlite:///x.db", *more)
        assert "loopback" in command_line(*words, cwd=tmp_path, code=1).stderr.splitlines()[-1]
    assert spawn().await_line("open_to_this_machine")["level"] == "warning"


def test_a_service_with_a_key_listens_anywhere_and_owns_its_file(spawn: Spawn, tmp_path: Path) -> None:
    make_key(tmp_path, "ops")
    process = spawn("--host", "0.0.0.0").ready()
    refused = run("keys", "create", "second", "--role", "ops", "--store", process.store, code=1)
    assert (refused.stdout, refused.stderr.count("\n")) == ("", 1)
    [owner] = [line["pid"] for line in process.lines if line["event"] == "process_ready" and line["work"] == "own"]
    assert f"process {owner} owns" in refused.stderr
    assert all(line["event"] != "open_to_this_machine" for line in process.lines)
    assert process.end() == 0
    make_key(tmp_path, "ops")

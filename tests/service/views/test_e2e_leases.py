"""Test pools and leases of a real service, on every store."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.service.real_service import Service, escaped

POOL = "/v1/pools/acme/numbers"


@pytest.fixture
async def service(either_store: dict[str, Any], tmp_path: Path) -> AsyncIterator[Service]:
    settings: dict[str, Any] = {"lease_margin_s": 0, "lease_resources_per_request_max": 5, **either_store}
    async with Service(tmp_path, **settings).running() as made:
        await made.must("PUT", POOL)
        yield made


def lease_request(key: str, region: str = "eu", **more: object) -> dict[str, object]:
    return {"client_id": "acme", "pool_id": "numbers", "key": key, "region": region, **(more or {"lease_seconds": 60})}


async def add_resources(service: Service, *names: str, region: str = "eu") -> Any:
    return await service.must("POST", POOL + "/resources", {"region": region, "resources": names})


async def test_a_key_keeps_its_resource_until_it_gives_the_resource_back(service: Service) -> None:
    assert await add_resources(service, "+49 30 1", "+49 30 2") == {"added": 2, "known": 0}
    first = await service.must("POST", "/v1/leases", lease_request("call 1"))
    assert first["acquired"] is True
    assert 59 < first["expires_in"] <= 60
    again = await service.must("POST", "/v1/leases", lease_request("call 1"))
    assert (again["resource"], again["version"], again["acquired"]) == (first["resource"], first["version"], False)
    assert again["lease_expires"] >= first["lease_expires"]
    looked = await service.get(f"/v1/leases/acme/numbers/{escaped('call 1')}")
    assert looked["resource"] == first["resource"]
    other = await service.must("POST", "/v1/leases", lease_request("call 2"))
    assert {first["resource"], other["resource"]} == {"+49 30 1", "+49 30 2"}
    refused = await service.refused("POST", "/v1/leases", lease_request("call 3"))
    assert refused == (409, "no_resource_available")
    pool = await service.get(POOL)
    assert pool["regions"]["eu"] == {"total": 2, "leased": 2, "available": 0, "headroom": None}
    assert (await service.call("DELETE", f"/v1/leases/acme/numbers/{escaped('call 1')}")).status == 204
    gone = await service.refused("DELETE", f"/v1/leases/acme/numbers/{escaped('call 1')}")
    assert gone == (404, "unknown_lease")
    assert (await service.must("POST", "/v1/leases", lease_request("call 3")))["resource"] == first["resource"]


async def test_a_requested_end_extends_a_lease_and_never_shortens_it(service: Service) -> None:
    await add_resources(service, "a")
    soon, late = (datetime.now(UTC) + timedelta(seconds=seconds) for seconds in (100, 1_000))
    for expires, kept in ((soon, soon), (late, late), (soon, late)):
        answer = await service.must("POST", "/v1/leases", lease_request("k", lease_expires=expires.isoformat()))
        assert answer["lease_expires"] == kept.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    past = datetime.now(UTC) - timedelta(seconds=1)
    ended = lease_request("other", lease_expires=past.isoformat())
    assert await service.refused("POST", "/v1/leases", ended) == (422, "bad_value")


async def test_a_region_that_the_pool_never_had_is_unknown_and_not_exhausted(service: Service) -> None:
    assert await service.refused("POST", "/v1/leases", lease_request("k", "eu")) == (404, "unknown_region")
    await add_resources(service, "a")
    assert await service.refused("POST", "/v1/leases", lease_request("k", "eu-typo")) == (404, "unknown_region")
    await service.must("POST", "/v1/leases", lease_request("k"))
    assert await service.refused("POST", "/v1/leases", lease_request("other")) == (409, "no_resource_available")
    again = await service.must("POST", "/v1/leases", lease_request("k", "eu-typo"))
    assert again["resource"] == "a", "a key gets its leased resource from every region"


async def test_each_region_is_counted_apart_and_a_lease_is_found_from_every_region(service: Service) -> None:
    await add_resources(service, "a", "b")
    await add_resources(service, "c", region="us")
    assert await add_resources(service, "a", region="us") == {"added": 0, "known": 1}
    first = await service.must("POST", "/v1/leases", lease_request("k", "us"))
    assert (first["resource"], first["region"]) == ("c", "us")
    assert (await service.must("POST", "/v1/leases", lease_request("k", "eu")))["resource"] == "c"
    regions = (await service.get(POOL))["regions"]
    assert {name: (each["total"], each["leased"]) for name, each in regions.items()} == {"eu": (2, 0), "us": (1, 1)}
    removed = await service.must("DELETE", POOL + "/resources", {"resources": ["a", "c", "x"]})
    assert removed == {"removed": 1, "leased": 1, "unknown": 1}
    page = await service.get(POOL + "/resources?limit=1")
    assert [(each["resource"], each["key"]) for each in page["resources"]] == [("b", None)]
    rest = await service.get(f"{POOL}/resources?cursor={page['next']}")
    assert [(each["resource"], each["key"]) for each in rest["resources"]] == [("c", "k")]


async def test_the_lease_journal_lists_every_event_in_a_stable_order(service: Service) -> None:
    await add_resources(service, "a")
    await service.must("POST", "/v1/leases", lease_request("k"))
    await service.must("DELETE", "/v1/leases/acme/numbers/k")
    lines = await service.get("/v1/leases/journal")
    events = [(line["kind"], line["resource"], line["key"]) for line in lines]
    assert events == [("added", "a", None), ("acquired", "a", "k"), ("released", "a", "k")]
    numbers = [line["seq"] for line in lines]
    assert numbers == sorted(set(numbers))
    assert await service.get(f"/v1/leases/journal?after={numbers[0]}&limit=1") == lines[1:2]


async def test_pools_are_listed_and_deleted(service: Service) -> None:
    await service.must("PUT", "/v1/pools/acme/extra")
    await service.must("PUT", "/v1/pools/bolt/numbers")
    page = await service.get("/v1/pools?limit=2")
    assert [(each["client_id"], each["pool_id"]) for each in page["pools"]] == [("acme", "extra"), ("acme", "numbers")]
    rest = await service.get(f"/v1/pools?cursor={page['next']}")
    assert [each["client_id"] for each in rest["pools"]] == ["bolt"]
    only = await service.get("/v1/pools?client_id=acme&limit=1")
    rest = await service.get(f"/v1/pools?client_id=acme&cursor={only['next']}")
    assert [each["pool_id"] for each in rest["pools"]] == ["numbers"]
    assert await service.refused("GET", f"/v1/pools?cursor={only['next']}") == (400, "bad_cursor")
    assert (await service.call("PUT", POOL)).status == 200
    assert (await service.call("DELETE", POOL)).status == 204
    for method, path, body in (
        ("GET", POOL, None),
        ("DELETE", POOL, None),
        ("POST", POOL + "/resources", {"region": "eu", "resources": ["a"]}),
        ("POST", "/v1/leases", lease_request("k")),
        ("GET", "/v1/leases/acme/numbers/k", None),
        ("DELETE", "/v1/leases/acme/numbers/k", None),
    ):
        assert await service.refused(method, path, body) == (404, "unknown_pool")


async def test_an_invalid_request_for_a_lease_is_refused(service: Service) -> None:
    for body, refusal in (
        (lease_request("k", lease_seconds=0), (400, "bad_request")),
        (lease_request("k", lease_seconds=1e12), (422, "bad_value")),
        (lease_request("k", lease_seconds=1, lease_expires="2030-01-01T00:00:00Z"), (400, "bad_request")),
        (lease_request("k", lease_expires="2099-01-01T00:00:00Z"), (422, "bad_value")),
        (lease_request("", lease_seconds=1), (400, "bad_request")),
        (lease_request("a\tb", lease_seconds=1), (400, "bad_request")),
        (lease_request("k", "?", lease_seconds=1), (400, "bad_request")),
        ({**lease_request("k"), "client": "acme"}, (400, "unknown_field")),
    ):
        assert await service.refused("POST", "/v1/leases", body) == refusal, body


async def test_a_request_with_too_many_or_invalid_resources_adds_none(service: Service) -> None:
    for names, code in (
        (list("abcdef"), "too_many_resources"),
        (["a", "x" * 501], "bad_request"),
        (["\0"], "bad_request"),
    ):
        body = {"region": "eu", "resources": names}
        assert await service.refused("POST", POOL + "/resources", body) == (400, code)
    assert (await service.get(POOL))["regions"] == {}


async def test_a_lease_of_another_store_is_known_once_its_journal_was_read(service: Service, tmp_path: Path) -> None:
    await add_resources(service, "a")
    first = await service.must("POST", "/v1/leases", lease_request("k"))
    folder = tmp_path / "another"
    folder.mkdir()
    exchange = {"lease_peers": f"one={service.base}", "lease_exchange_interval_s": 0.01}
    async with Service(folder, **exchange).running() as another:
        await another.must("PUT", POOL)
        await another.must("POST", POOL + "/resources", {"region": "us", "resources": ["b"]})
        await service.must("POST", "/v1/leases", lease_request("k", lease_seconds=90))
        path = "/v1/leases/acme/numbers/k"
        while (await another.call("GET", path)).status == 404:
            pass  # wait until the other service has read the lease from this service's journal
        told = await another.must("POST", "/v1/leases", lease_request("k", "us"))
        assert (told["resource"], told["region"], told["version"]) == ("a", "eu", first["version"])
        assert (await another.get(POOL))["regions"]["us"]["leased"] == 0
        assert b"rankcurve_lease_events_exchanged_total" in (await another.call("GET", "/metrics")).body

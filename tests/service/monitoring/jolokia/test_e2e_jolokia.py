"""Test that a real service answers every request of the Jolokia protocol, in every form that Jolokia clients send."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.service.real_service import Caller, Service, Spawn

SNAPSHOT_S_MAX = 60.0
XP = {"name": "xp", "merge": "sum"}
NODE = "rankcurve:type=Node"


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with Service(tmp_path).running() as made:
        await made.board("b", XP)
        await made.post_xp("b", ada=3)
        yield made


async def get_envelope(service: Caller, path: str) -> Any:
    """Send a GET. Return the whole JSON object of the answer; its member `value` holds the value."""
    answer = await service.call("GET", f"/jolokia{path}")
    assert answer.status == 200
    return answer.body


async def get_value(service: Caller, path: str) -> Any:
    return (await get_envelope(service, path))["value"]


async def post_envelope(service: Caller, body: object, path: str = "") -> Any:
    """Send a POST. Return the whole JSON object of the answer, or a list of such objects for a bulk request."""
    answer = await service.call("POST", f"/jolokia{path}", body)
    assert answer.status == 200
    return answer.body


async def test_a_request_without_a_type_answers_the_version(service: Service) -> None:
    for path in ("", "/", "/version", "/version/", "?p=version"):
        answer = await get_envelope(service, path)
        assert (answer["status"], answer["value"]["protocol"]) == (200, "7.2")
        assert answer["request"] == {"type": "version"}
        assert answer["value"]["info"]["product"] == "rankcurve"


async def test_a_body_that_is_not_utf_8_is_no_request(service: Service) -> None:
    for body in (
        b'{"type": "\xff"}',
        b'{"type": "version", "\xc3": 1}',
        b"\xff",
        b'[{"type": "read", "mbean": "\xe2\x82"}]',
    ):
        answer = await service.call("POST", "/jolokia", body)
        assert (answer.status, answer.body["code"]) == (400, "bad_json"), body
    assert await service.refused("GET", "/jolokia/%FF") == (400, "bad_request")
    assert (await get_envelope(service, "?p=%FF"))["status"] == 400
    assert (await post_envelope(service, b"{"))["status"] == 400


async def test_a_read_takes_one_several_or_all_attributes_and_an_inner_path(service: Service) -> None:
    one = await get_envelope(service, f"/read/{NODE}/Memory")
    assert one["request"] == {"type": "read", "mbean": NODE, "attribute": "Memory"}
    assert one["value"].keys() == {"resident", "virtual"}
    used = await get_envelope(service, f"/read/{NODE}/Memory/resident")
    assert used["value"] > 10 * 2**20
    assert used["request"]["path"] == "resident"
    both = ["CpuSeconds", "Memory"]
    several = await post_envelope(service, {"type": "read", "mbean": NODE, "attribute": both})
    assert list(several["value"]) == both
    assert list(await get_value(service, f"/read/{NODE}/{','.join(both)}")) == both
    everything = await get_envelope(service, f"/read/{NODE}")
    assert {"Memory", "Version"} <= everything["value"].keys()
    inner = await post_envelope(service, {"type": "read", "mbean": NODE, "attribute": None, "path": "*/resident"})
    assert inner["value"].keys() == {"Memory"}


async def test_null_means_absent_and_the_answer_repeats_the_request_exactly(service: Service) -> None:
    request: dict[str, object] = {
        "type": "read", "mbean": NODE, "attribute": None, "path": None, "arguments": None, "config": {},
        "my own": [1, {"deep": None}],
    }  # fmt: skip
    answer = await post_envelope(service, request)
    assert (answer["status"], answer["request"]) == (200, request)
    assert "request" not in await post_envelope(service, {**request, "config": {"includeRequest": False}})
    executed = {"type": "EXEC", "mbean": "rankcurve:type=Job,name=fold", "operation": "run()", "arguments": None}
    assert (await post_envelope(service, executed))["value"] == 1


async def test_a_pattern_answers_canonical_names_whatever_the_order_of_its_keys(service: Service) -> None:
    found = await get_envelope(service, "/read/rankcurve:type=RequestProcessor,*/Requests/*/*/Count")
    assert found["value"]["rankcurve:name=post,type=RequestProcessor"] == {"Requests": 1}
    size = await post_envelope(service, {"type": "read", "mbean": "rankcurve:type=Store,name=sqlite"})
    assert size["value"]["Bytes"] > 0
    assert size["value"]["DiskFreeBytes"] > 0
    for mbean in ("rankcurve:name=sqlite,type=Store", "rankcurve:type=Store,name=sqlite"):
        read = {"type": "read", "mbean": mbean, "attribute": "Posts", "path": "outcome/applied"}
        posts = await post_envelope(service, read)
        assert posts["value"]["Count"] == 1
    named = await post_envelope(service, {"type": "search", "mbean": "*:name=sqlite,*"})
    assert named["value"] == ["rankcurve:name=sqlite,type=Store"]
    nothing = await post_envelope(service, {"type": "search", "mbean": "nobody:*"})
    assert nothing["value"] == []


@pytest.mark.parametrize(
    ("request_", "status", "error_type"),
    [
        ({"type": "read", "mbean": "no:type=such"}, 404, "javax.management.InstanceNotFoundException"),
        ({"type": "read", "mbean": "no:*"}, 404, "javax.management.InstanceNotFoundException"),
        ({"type": "read", "mbean": NODE, "attribute": "No"}, 404, "javax.management.AttributeNotFoundException"),
        ({"type": "read", "mbean": "rank*:*", "attribute": "No"}, 404, "javax.management.AttributeNotFoundException"),
        ({"type": "read", "mbean": "nonsense"}, 400, "javax.management.MalformedObjectNameException"),
        ({"type": "read"}, 400, "java.lang.IllegalArgumentException"),
        ({"type": "read", "mbean": 3}, 400, "java.lang.IllegalArgumentException"),
        ({"type": "read", "mbean": NODE, "path": "no/where"}, 400, "java.lang.IllegalArgumentException"),
        ({"type": "read", "mbean": NODE, "config": {"ignoreErrors": "x"}}, 400, "java.lang.IllegalArgumentException"),
        ({"type": "exec", "mbean": NODE, "operation": "gc"}, 400, "java.lang.IllegalArgumentException"),
        ({"type": "exec", "mbean": "rankcurve:*", "operation": "run"}, 400, "java.lang.IllegalArgumentException"),
        ({"type": "nonsense"}, 400, "java.lang.UnsupportedOperationException"),
        ({"type": "notification", "command": "register"}, 400, "java.lang.UnsupportedOperationException"),
        ({"type": "write", "mbean": NODE, "attribute": "Verbose", "value": 1}, 403, "java.lang.Exception"),
        ({"type": "list", "path": "no/type=such"}, 404, "javax.management.InstanceNotFoundException"),
        ([], 400, "java.lang.IllegalArgumentException"), (3, 400, "java.lang.IllegalArgumentException"),
    ],
    ids=str,
)  # fmt: skip
async def test_a_request_that_fails_has_its_own_status_under_http_200(
    service: Service, request_: object, status: int, error_type: str
) -> None:
    answers = await post_envelope(service, [request_, {"type": "version"}])
    assert (answers[0]["status"], answers[0]["error_type"], answers[1]["status"]) == (status, error_type, 200)
    assert answers[0]["request"] == request_
    assert answers[0]["error"]
    assert "stacktrace" not in answers[0]


async def test_a_request_to_another_agent_is_refused(service: Service) -> None:
    proxied = {"type": "read", "mbean": NODE, "target": {"url": "service:jmx:rmi://elsewhere"}}
    assert (await post_envelope(service, proxied))["status"] == 400


async def test_a_body_that_is_not_json_is_answered_with_an_error_envelope(service: Service) -> None:
    for body in (b"{", b"[" * 100_000, b'{"a": NaN}'):
        assert (await post_envelope(service, body))["status"] == 400


async def test_a_post_without_a_body_is_a_bad_request(service: Service) -> None:
    for path in ("/jolokia", "/jolokia/read"):
        assert await service.refused("POST", path) == (400, "bad_json")
        assert await service.refused("POST", path, b"") == (400, "bad_json")


async def test_a_bulk_keeps_its_order_needs_no_content_type_and_is_bounded(service: Service) -> None:
    read = {"type": "read", "mbean": NODE, "attribute": "Memory", "path": "resident"}
    requests = [{**read, "n": n} for n in range(100)]
    async with ClientSession() as session:
        for headers in ({}, {"Content-Type": "text/plain;charset=UTF-8"}, {"Content-Type": "application/json"}):
            async with session.post(
                f"{service.base}/jolokia/read/", data=json.dumps(requests).encode(), headers=headers,
                skip_auto_headers=["Content-Type"],
            ) as answer:  # fmt: skip
                body = await answer.json()
            assert [each["request"] for each in body] == requests
            assert {each["status"] for each in body} == {200}
    await service.restart(jolokia_requests_max=99)
    assert (await post_envelope(service, requests))["status"] == 400


async def test_reads_that_follow_an_operation_in_a_bulk_see_its_effect(service: Service) -> None:
    job = "rankcurve:type=Job,name=prune"
    paused = {"type": "read", "mbean": job, "attribute": "Paused"}
    bulk = [paused, {"type": "exec", "mbean": job, "operation": "pause"}, paused]
    assert [each["value"] for each in await post_envelope(service, bulk)] == [0, 1, 1]


async def test_list_answers_types_units_and_operations_by_path(service: Service) -> None:
    whole = await get_value(service, "/list")
    assert whole["rankcurve"]["name=prune,type=Job"]["op"]["run"]["args"] == []
    description = "Serving curves that are live: their counts follow the posts [curves]"
    assert whole["rankcurve"]["type=Cache"]["attr"]["CurvesLive"] == {
        "rw": False,
        "type": "double",
        "desc": description,
    }
    assert await get_value(service, "/list/rankcurve/type=Cache/attr/CurvesLive/type") == "double"
    assert (await post_envelope(service, {"type": "list", "path": "rankcurve/type=Store,name=sqlite/desc"}))["value"]
    assert await get_value(service, "/list/*/type=Node/class") == {"rankcurve": "rankcurve.Node"}


async def test_parameters_of_the_query_ignore_errors_and_those_of_the_body_come_first(service: Service) -> None:
    ignored = await get_envelope(service, f"/read/{NODE}/No,Memory?ignoreErrors=true")
    assert ignored["value"]["No"].startswith("ERROR: No such attribute: No (class javax.management.AttributeNotFound")
    in_body = {"type": "read", "mbean": NODE, "attribute": ["No"], "config": {"ignoreErrors": False}}
    assert (await post_envelope(service, in_body, "?ignoreErrors=true"))["status"] == 404


async def test_a_page_of_another_site_reaches_nothing_on_a_service_without_keys(service: Service) -> None:
    path = "/jolokia/exec/rankcurve:type=Job,name=fold/run"
    assert await service.refused("GET", path, Origin="https://evil.example") == (403, "forbidden")
    assert await service.refused("GET", path, **{"Sec-Fetch-Site": "cross-site"}) == (403, "forbidden")
    answer = await service.call("GET", path, headers={"Sec-Fetch-Site": "same-origin"})
    assert answer.status == 200
    assert not any(name.startswith("Access-Control") for name in answer.headers)


async def test_any_worker_answers_for_the_node_and_operations_reach_all_of_it(store_url: str, spawn: Spawn) -> None:
    node = spawn("--store", store_url, "--workers", "2", "--set", "rates_tick_s=0.1").ready()
    async with Caller(node.url) as caller:
        await caller.board("b", XP)
    for number in range(20):
        async with Caller(node.url) as caller:
            await caller.post("b", {"owner": f"p{number}", "stats": {"xp": 1}})
    pause = "/exec/rankcurve:type=Job,name=watch/pause"
    applied = "/read/rankcurve:type=Store,name=postgres/Posts/outcome/applied"
    recent = "/read/rankcurve:type=Recent/Posts"  # the last number is the current one
    for _ in range(6):  # the kernel chooses which worker gets each connection, so try several connections
        async with Caller(node.url) as caller:
            posts = await get_envelope(caller, applied)
            assert posts["value"]["Count"] == 20
            async with asyncio.timeout(SNAPSHOT_S_MAX):
                while 20 not in [count for _, count in (await get_value(caller, recent))[:-1]]:
                    pass  # wait until this worker has a snapshot of its metrics that counts the posts
            # The job `prune` runs only in the job process. The job `watch` runs in the job process and in both workers.
            assert await get_value(caller, "/exec/rankcurve:type=Job,name=prune/run") == 1
            assert (await get_envelope(caller, pause))["value"] == 3
            paused = await get_envelope(caller, "/read/rankcurve:type=Job,name=watch/Paused")
            assert paused["value"] == 3
    async with Caller(node.url) as caller:
        assert (await get_envelope(caller, pause.replace("pause", "resume")))["value"] == 3


async def test_other_requests_are_answered_during_a_big_bulk(service: Service) -> None:
    everything = json.dumps([{"type": "read", "mbean": "*:*"}] * 300).encode()
    async with ClientSession() as session:
        answered = 0

        async def bulk() -> list[Any]:
            async with session.post(f"{service.base}/jolokia", data=everything) as answer:
                found: list[Any] = await answer.json()
                return found

        asking = asyncio.create_task(bulk())
        while not asking.done():
            async with session.get(f"{service.base}/healthz") as answer:
                answered += answer.status == 200
        answers = await asking
    assert {answer["status"] for answer in answers} == {200}
    assert len(answers) == 300
    assert answered > 30  # if the bulk request did not let other requests run, none would be answered


async def test_a_line_end_in_a_path_matches_no_name(service: Service) -> None:
    for path in ("/read/rankcurve:type=Node%0A", "/read/%0A", "/%0A"):
        assert (await get_envelope(service, path))["status"] in (400, 404)

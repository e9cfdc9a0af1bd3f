"""Test that Jolokia clients work: jolokia.js, and requests like those of Telegraf and check_jmx4perl."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import ClientSession

from tests.installed_clients import CLIENTS, javascript_modules, node
from tests.service.cli_fake_service import make_key
from tests.service.real_service import WAIT_S, Process, Service

NODE = "rankcurve:type=Node"
XP = {"name": "xp", "merge": "sum"}


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Start a service that requires a key. Yield the service's address and an operator's key."""
    folder = tmp_path_factory.mktemp("closed")
    key = make_key(folder, "ops")
    with Process(folder) as process:
        yield process.url, key


@pytest.fixture(scope="module")
def by_javascript(closed: tuple[str, str]) -> dict[str, Any]:
    """Send all requests of the test by jolokia.js, with Basic authentication. Return the answers."""
    url, key = closed
    command = [str(node()), str(CLIENTS / "every_operation.mjs"), f"{url}/jolokia", "anyone", key]
    done = subprocess.run([*command, str(javascript_modules())], capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("method", ["get", "post"])
def test_jolokia_js_reads_searches_lists_and_executes(by_javascript: dict[str, Any], method: str) -> None:
    found = {name.removeprefix(f"{method} "): each for name, each in by_javascript.items() if name.startswith(method)}
    assert found["version"]["value"]["protocol"] == "7.2"
    assert found["read"]["value"] > 0
    assert found["read path list"]["value"] > 0
    assert {"Memory", "CpuSeconds"} <= found["read all"]["value"].keys()
    assert found["read pattern"]["value"].keys() == {"rankcurve:type=Node"}
    assert "rankcurve:name=fold,type=Job" in found["search"]["value"]
    assert "run" in found["list"]["value"]["op"]
    assert found["list depth"]["value"].keys() == {"rankcurve"}
    assert (found["exec"]["status"], found["exec"]["value"]) == (200, 1)
    assert found["exec argument"]["status"] == 400
    assert found["exec argument"]["request"]["arguments"] == ["a/b!c", None, ""]
    assert (found["write"]["status"], found["unknown"]["status"]) == (403, 404)
    assert found["parameters"]["value"].startswith("ERROR")
    assert "request" not in found["parameters"]


def test_jolokia_js_sends_bulks_polls_and_runs_callbacks(by_javascript: dict[str, Any]) -> None:
    assert [each["status"] for each in by_javascript["bulk"]] == [200, 404, 200]
    assert by_javascript["several attributes"]["value"].keys() == {"Memory", "CpuSeconds"}
    assert by_javascript["config"]["value"].keys() == {"rankcurve"}
    assert json.loads(by_javascript["text"])["status"] == 200
    assert by_javascript["response"] == 200
    assert by_javascript["callbacks"] == [200, 404]
    assert by_javascript["jobs"] == [[200, 404], 1, True, 0, False]
    assert by_javascript["jobs unless changed"] == [True, 200]
    assert by_javascript["static"] == ["a!%2Fb!!c", "a!/b!!c", True]


def test_jolokia_js_extracts_values_and_is_refused_what_does_not_exist(by_javascript: dict[str, Any]) -> None:
    found = {name.removeprefix("value "): each for name, each in by_javascript.items() if name.startswith("value ")}
    assert found["read"] > 0
    assert found["exec"] == 1
    assert NODE in found["search"]
    assert found["version"]["protocol"] == "7.2"
    assert found["list"] == "A background job"
    assert "thrown" in found["write"]
    assert "Can not register client" in by_javascript["notifications"]["thrown"]
    assert by_javascript["wrong key"] == {"thrown": 401}


async def test_telegraf_finds_its_metrics_in_the_answers(service: Service) -> None:
    """Check that each answer repeats the name, attribute and path of its request. Telegraf finds metrics by them.

    The source is plugins/common/jolokia2/client.go of Telegraf.
    """
    await service.board("b", XP)
    await service.post_xp("b", ada=3)
    requests = [
        {"type": "read", "mbean": NODE, "attribute": "UptimeSeconds"},
        {"type": "read", "mbean": NODE, "attribute": ["Memory", "CpuSeconds"]},
        {"type": "read", "mbean": "rankcurve:type=RequestProcessor,name=*"},
        {"type": "read", "mbean": "rankcurve:type=Store,name=*", "attribute": "Posts", "path": "*/*/Count"},
    ]
    body, headers = json.dumps(requests, separators=(",", ":")).encode(), {"Content-type": "application/json"}
    url = f"{service.base}/jolokia/read"
    async with ClientSession() as session, session.post(url, data=body, headers=headers) as answer:
        assert answer.status == 200
        answers = await answer.json(content_type=None)
    assert [each["request"] for each in answers] == requests
    assert [each["status"] for each in answers] == [200] * 4
    assert "rankcurve:name=post,type=RequestProcessor" in answers[2]["value"]  # Telegraf splits this name into tags


async def test_every_request_form_of_check_jmx4perl_is_answered(service: Service) -> None:
    """Send requests in each form of lib/JMX/Jmx4Perl/Agent.pm.

    By default the agent sends a GET. It puts values that a path must not contain into the query parameter `p`. It sends
    a POST only if its user demands that.
    """

    def perl_escaped(text: str) -> str:
        return quote(text.replace("!", "!!").replace("/", "!/"), safe="-_.!~*'()/")

    quoted = 'rankcurve:name="a?b",type=Board'
    paths = {
        f"/jolokia/read/{perl_escaped(NODE)}/Memory/resident": 200,
        "/jolokia/version/": 200,
        f"/jolokia/search/{perl_escaped('rankcurve:*')}": 200,
        "/jolokia/list/rankcurve/type%3DNode?maxDepth=4": 200,
        f"/jolokia/exec/{perl_escaped('rankcurve:type=Job,name=fold')}/run": 200,
        f"/jolokia/?p=read/{perl_escaped(quoted)}/Id": 404,
        f"/jolokia/?p=read/{perl_escaped(NODE)}/Memory/resident&maxDepth=2": 200,
        f"/jolokia/read/{perl_escaped(NODE)}/": 200,
    }
    for path, status in paths.items():
        found = await service.call("GET", path)
        assert (path, found.status, found.body["status"]) == (path, 200, status)
    posted = {
        "type": "READ", "mbean": NODE, "attribute": "Memory", "path": "resident", "config": {"maxDepth": 2},
    }  # fmt: skip
    url, data = f"{service.base}/jolokia/", json.dumps(posted).encode()
    async with ClientSession() as session, session.post(url, data=data, skip_auto_headers=["Content-Type"]) as answer:
        body = await answer.json()
    assert (body["status"], body["request"]) == (200, posted)

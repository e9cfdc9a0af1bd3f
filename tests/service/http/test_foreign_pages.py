"""Test that a service without API keys refuses web pages from other origins, and pages that use DNS rebinding."""

import pytest

from service.contract.api_keys import make_api_key
from service.contract.problems import ProblemError
from service.http.foreign_pages import refuse_foreign_page
from tests.service.raw_connection import exchange
from tests.service.real_service import Service, bearer

LOOPBACK = ["localhost", "LocalHost:8080", "localhost.", "localhost.:80", "127.0.0.1", "127.0.0.1:8080", "127.8.9.1:1"]
LOOPBACK += ["[::1]", "[::1]:8080", "[0:0:0:0:0:0:0:1]:8080", "localhost:"]
FOREIGN = ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "x.localhost"]
FOREIGN += ["", ".", "0.0.0.0:8080", "192.168.1.1", "[::]", "::1", "[::1", "::1]:80", "[localhost]", "127.1"]
FOREIGN += ["2130706433", "localhost:x", "localhost:80:80", "evil@localhost", "localhost@evil.example", "localhost.."]
FOREIGN += ["localhost, x"]


def refusal_code(host: str | None, origin: str | None = None, *, changes: bool = False) -> str:
    """Return the code of the problem that refuses a request, or an empty text if the request is accepted."""
    try:
        refuse_foreign_page(host, origin, changes=changes)
    except ProblemError as problem:
        return problem.code
    return ""


@pytest.mark.parametrize("host", LOOPBACK)
def test_a_loopback_name_is_accepted_with_and_without_a_port(host: str) -> None:
    assert refusal_code(host) == ""


@pytest.mark.parametrize("host", FOREIGN)
def test_any_other_name_is_refused(host: str) -> None:
    assert refusal_code(host) == "host_not_allowed"


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "", "http://[", "http://127.0.0.1.evil.example", "x"]
)
def test_a_page_of_another_site_can_neither_change_nor_read(origin: str) -> None:
    for changes in (False, True):
        assert refusal_code("localhost:8080", origin, changes=changes) == "forbidden"


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1:8080", "[::1]:8080"])
def test_only_a_page_of_the_service_itself_may_change_anything(host: str) -> None:
    assert refusal_code(host, f"http://{host}", changes=True) == ""
    assert refusal_code(host.upper(), f"http://{host}", changes=True) == ""
    for other in ("http://localhost:3000", "http://localhost", "http://127.0.0.1:80801", "http://[::1]:1"):
        assert refusal_code(host, other, changes=True) == "forbidden"
        assert refusal_code(host, other) == "", "the browser keeps the answer from the page"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/leaderboards"), ("PUT", "/v1/leaderboards/b"), ("POST", "/v1/leaderboards/b/posts"), ("GET", "/"),
        ("GET", "/jolokia/exec/rankcurve:type=Job,name=fold/run"), ("POST", "/jolokia"), ("GET", "/metrics"),
        ("GET", "/openapi.json"), ("GET", "/dashboard/dashboard.js"), ("GET", "/docs"), ("GET", "/healthz"),
    ],
)  # fmt: skip
async def test_a_rebound_name_reaches_nothing_of_an_open_service(service: Service, method: str, path: str) -> None:
    assert await service.refused(method, path, Host=f"rebound.example:{service.port}") == (403, "host_not_allowed")
    assert await service.refused(method, path, Host="localhost", Origin="http://evil.example") == (403, "forbidden")
    key, text = make_api_key("", "ops", 0)
    service.context.keyring.replace_keys([key])
    service.headers = bearer(text)
    answer = await service.call(method, path, headers={"Host": "boards.example", "Origin": "http://evil.example"})
    assert answer.status != 403


async def test_a_page_from_another_local_port_may_operate_nothing(service: Service) -> None:
    other = {"Origin": "http://127.0.0.1:1"}
    assert await service.refused("PUT", "/v1/leaderboards/b", {}, **other) == (403, "forbidden")
    assert await service.refused("GET", "/jolokia/exec/rankcurve:type=Job,name=fold/run", **other) == (403, "forbidden")
    own = {"Origin": service.base}
    assert (await service.call("GET", "/jolokia/exec/rankcurve:type=Job,name=fold/run", headers=own)).status == 200


async def test_an_old_client_without_a_host_is_answered(service: Service) -> None:
    assert (await exchange(service.port, b"GET /v1/leaderboards HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.0 200 ")

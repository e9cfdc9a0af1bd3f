"""Test that a request has one name: in the log, the metrics, the OpenAPI document and both clients."""

import inspect
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rankcurve import ApiError, Client, OfflineCurve
from rankcurve.answers import Curve, decode
from rankcurve.client import Operations
from rankcurve.programs import Open, Send, operation, walk

from service.http.route_table import RouteTable
from tests.clients.typescript_builds import build_typescript
from tests.installed_clients import node
from tests.service.openapi_checks import DOCUMENT, ROUTE_TABLE
from tests.service.real_service import WAIT_S, Process

VIEWS = {route.view: route for route in ROUTE_TABLE}
# What a client does by a request that has a method of its own, or by any request.
BY_OTHERS = {
    "rank": "positions", "pages": "page", "entries": "page", "renew_curve": "curve", "post_one": "post",
    "post_one_to_family": "post_to_family",
}  # fmt: skip
ANY_REQUEST = {"request", "list_records"}
# Games have no use for these, or the Python client has them in `leases`.
NOT_OF_GAMES = {
    "post_state", "queue", "remove_profile", "create_key", "keys", "revoke_key", "ask_lease", "lease",
    "give_back_lease", "lease_journal", "pools", "put_pool", "pool", "delete_pool", "add_resources", "resources",
    "remove_resources", "events", "put_webhook", "webhook", "webhooks", "delete_webhook", "rotate_webhook",
    "resume_webhook", "test_webhook", "leagues", "delete_league",
}  # fmt: skip
SAMPLES: dict[str, Any] = {
    "columns": (), "boards": ["b"], "values": [1], "value": 1, "posts": {"owner": "ada", "stats": {"xp": 1}},
    "spec": "xp:sum", "owners": ["ada"], "profile": {}, "period": "week",
}  # fmt: skip
CURVE = b'{"column": "xp", "method": "skip", "total": 0, "as_of": "2026-11-20T10:00:00Z", "knots": []}'


def find_view(method: str, path: str) -> str:
    table: RouteTable[str] = RouteTable()
    for route in ROUTE_TABLE:
        table.add_route([route.method], route.path, route.view)
    found = table.find_route(method, path.partition("?")[0])
    assert found is not None, (method, path)
    return found.handler


def first_request(name: str) -> Send:
    """Return the first request of an operation of the Python client, which needs no answer for it."""
    program = vars(Operations)[name]._program
    curve = OfflineCurve(decode(CURVE, Curve), "/v1/leaderboards/b/rankings/xp/curve")
    required = [
        each.name
        for each in list(inspect.signature(program).parameters.values())[1:]
        if each.default is each.empty and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    given = [curve if each == "curve" else SAMPLES.get(each, "xp") for each in required]
    keywords = {"owner": "ada"} if name.endswith("_post") else {}
    effect = next(program(Client("http://none"), *given, **keywords))
    sent = effect.request if isinstance(effect, Open) else effect
    assert isinstance(sent, Send)
    return sent


def test_an_operation_of_the_python_client_has_the_name_of_its_request() -> None:
    operations = {name for name, each in vars(Operations).items() if isinstance(each, operation | walk)} - ANY_REQUEST
    for name in operations:
        sent = first_request(name)
        assert find_view(sent.method, sent.path) == BY_OTHERS.get(name, name)
    of_games = {route.view for route in ROUTE_TABLE if route.role is not None and route.path.startswith("/v1/")}
    assert operations - BY_OTHERS.keys() == of_games - NOT_OF_GAMES


def test_an_operation_of_the_document_and_the_metrics_has_the_name_of_its_route() -> None:
    assert len(VIEWS) == len(ROUTE_TABLE)
    for route in ROUTE_TABLE:
        described = DOCUMENT["paths"][route.path][route.method.lower()]
        assert described["operationId"] == route.view
        # Routes that share a name in the metrics share the heading of the document, or are nearly the same request.
        shared = {described.get("tags", [route.view])[0].lower(), "operating"}
        own = {route.view} if route.has_own_metrics else shared | {route.counted_as}
        assert route.metrics_name in own - {""}
        assert not route.counted_as or VIEWS[route.counted_as].has_own_metrics


def test_the_log_has_the_name_of_a_request(tmp_path: Path) -> None:
    with Process(tmp_path) as process, Client(process.url) as client:
        for name in ("top", "values", "history"):
            sent = first_request(name)
            with pytest.raises(ApiError):  # failed requests are always logged
                client.request(sent.method, sent.path, bytes)
            assert process.await_line("request", view=name)["view"] == name


def test_a_method_of_the_typescript_client_has_the_name_of_its_request(tmp_path: Path) -> None:
    script = Path(__file__).parent / "typescript_names.mjs"
    command = [node(), script, build_typescript(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    sent: dict[str, list[str]] = json.loads(done.stdout)
    assert {"family", "history", "postToFamily", "top"} < sent.keys()
    for name, (method, path) in sent.items():
        snake = re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), name)
        assert find_view(method, path) == BY_OTHERS.get(snake, snake)

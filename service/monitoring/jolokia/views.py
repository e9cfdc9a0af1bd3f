"""The routes of the Jolokia protocol: `/jolokia`, `/jolokia/`, and `/jolokia/` with an operation after it."""

import asyncio
import json
from collections.abc import Mapping
from time import perf_counter
from typing import Any
from urllib.parse import unquote

import msgspec
from aiohttp import hdrs

from service.contract.keys import ANYONE, Role
from service.contract.problems import JSON_TYPE, ProblemError
from service.contract.routes import Call, Reply, Route
from service.http.foreign_pages import refuse_foreign_page

from .answering import JolokiaAgent
from .requests import BadRequestError, JolokiaRequest, echo_of, parameters_of, parse_json, parse_path
from .values import encode_answer

_PREFIX = "/jolokia"
# A body with a thousand requests can take seconds. So other tasks run each time this many seconds have passed.
_TURN_S_MAX = 0.005
_FETCH_SITE = "Sec-Fetch-Site"
_FOREIGN_SITES = ("cross-site", "same-site")


class JolokiaAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one Jolokia request: its value, or an error with a status code like those of HTTP."""

    status: int
    timestamp: int  # seconds since 1970
    request: Any = None
    value: Any = None
    error: str | None = None
    error_type: str | None = None


async def get_jolokia(context: Any, call: Call) -> Reply:
    """Answer a request that is in the path, or in the query parameter `p`."""
    agent = _agent(context, call)
    query = call.request.rel_url.query
    path = unquote(call.request.raw_path.partition("?")[0], errors="strict").removeprefix(_PREFIX)
    if not path.strip("/"):
        path = query.get("p", "")
    try:
        request = parse_path(path, query)
    except Exception as error:
        return _reply(agent.make_error_envelope(error), query)
    return _reply(await agent.answer_request(request, agent.tree.take_snapshot()), query, request)


async def post_jolokia(context: Any, call: Call) -> Reply:
    """Answer the request or the list of requests in the body. Ignore an operation in the path: it is for people."""
    agent = _agent(context, call)
    if not call.body:
        raise ProblemError("bad_json", "the body holds no request")
    query = call.request.rel_url.query
    try:
        body = json.loads(call.body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return _reply(agent.make_error_envelope(BadRequestError("Invalid JSON request")), query)
    if not isinstance(body, list):
        return _reply(await _answered(agent, body, query), query)
    requests_max = context.settings.jolokia_requests_max
    if len(body) > requests_max:
        return _reply(agent.make_error_envelope(BadRequestError(f"A body has at most {requests_max} requests")), query)
    answers, snapshot, began_s = list[bytes](), agent.tree.take_snapshot(), perf_counter()
    for one in body:
        answers.append(encode_answer(await _answered(agent, one, query, snapshot)))
        if isinstance(one, dict) and str(one.get("type")).lower() == "exec":
            snapshot = agent.tree.take_snapshot()  # the requests after an operation must see what it changed
        if perf_counter() - began_s > _TURN_S_MAX:
            await asyncio.sleep(0)
            began_s = perf_counter()
    return Reply(b"[%b]" % b",".join(answers), media_type=_media_type(query))


async def _answered(agent: JolokiaAgent, body: Any, query: Mapping[str, str], snapshot: Any = None) -> dict[str, Any]:
    try:
        request = parse_json(body, query)
    except Exception as error:
        return {**agent.make_error_envelope(error), "request": echo_of(body)}
    return await agent.answer_request(request, snapshot or agent.tree.take_snapshot())


def _agent(context: Any, call: Call) -> JolokiaAgent:
    """Return the agent. Refuse requests from pages of other sites.

    A GET may run an operation, and any page can make the browser of its reader send a GET.
    """
    agent: JolokiaAgent | None = context.agent
    if agent is None:
        raise ProblemError("not_found", "managed objects are off; see the setting managed_objects")
    headers = call.request.headers
    if call.identity is ANYONE:
        refuse_foreign_page(headers.get(hdrs.HOST), headers.get(hdrs.ORIGIN), changes=True)
        if headers.get(_FETCH_SITE) in _FOREIGN_SITES:
            text = "without API keys the service takes no requests from pages of other sites here"
            raise ProblemError("forbidden", text)
    return agent


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _reply(answer: Any, query: Mapping[str, str], request: JolokiaRequest | None = None) -> Reply:
    return Reply(encode_answer(answer), media_type=_media_type(query, request))


def _media_type(query: Mapping[str, str], request: JolokiaRequest | None = None) -> str:
    try:
        wanted = (parameters_of(query) if request is None else request.parameters).mime_type
    except BadRequestError:
        wanted = JSON_TYPE
    return wanted if wanted == "text/plain" else JSON_TYPE


_DESCRIPTION = (
    "Protocol 7.2 of Jolokia, with read, list, search, exec and version. A request that fails has its own status in the"
    " answer, under HTTP 200. In the path, `!/` is a slash and `!!` an exclamation mark. The query takes the"
    " protocol's processing parameters, and `p` instead of a path."
)
JOLOKIA = [
    Route(method, path, handler, Role.OPS, view, operation=operation, summary=summary, tag="Operating",
        foreign_protocol=True, response=JolokiaAnswer, problems=("not_found",), description=_DESCRIPTION)
    for method, path, handler, view, operation, summary in (
        ("GET", "/jolokia", get_jolokia, "jolokia", "getJolokiaVersion",
         "Show the version of the Jolokia agent, or answer `p`"),
        ("POST", "/jolokia", post_jolokia, "jolokia_post", "postToJolokia",
         "Read and operate managed objects, one request or a list"),
        ("GET", "/jolokia/{operation}", get_jolokia, "jolokia_get", "getFromJolokia",
         "Read and operate managed objects"),
        ("POST", "/jolokia/{operation}", post_jolokia, "jolokia_post_to", "postToJolokiaPath",
         "Read and operate managed objects, as without an operation in the path"),
    )
]  # fmt: skip

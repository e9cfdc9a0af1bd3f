"""The routes of the Jolokia protocol: `/jolokia` and `/jolokia/`, alone or followed by an operation such as `read`."""

import asyncio
from typing import Any
from urllib.parse import unquote

import msgspec
from aiohttp import hdrs

from service.contract.keys import ANYONE, Role
from service.contract.problems import JSON_TYPE, ProblemError
from service.contract.routes import Call, Reply, Route
from service.http.foreign_pages import refuse_foreign_page
from service.monitoring.managed.errors import Fault, RefusedError

from .answering import JolokiaAgent, make_error
from .requests import read_path

_PREFIX = "/jolokia"
_FETCH_SITE = "Sec-Fetch-Site"
_FOREIGN_SITES = ("cross-site", "same-site")


async def get_jolokia(context: Any, call: Call) -> Reply:
    """Answer a Jolokia request that is written in the path, or in the query parameter `p`."""
    agent = _find_agent(context, call)
    query = call.request.rel_url.query
    path = unquote(call.request.raw_path.partition("?")[0], errors="strict").removeprefix(_PREFIX)
    if not path.strip("/"):
        path = query.get("p", "")
    return _reply(await agent.answer_request(read_path(path), query, agent.read_objects()))


async def post_jolokia(context: Any, call: Call) -> Reply:
    """Answer the request or the list of requests in the body. Ignore the path: it only informs people."""
    agent = _find_agent(context, call)
    if not call.body:
        raise ProblemError("bad_json", "the body holds no request")
    query = call.request.rel_url.query
    try:
        body = msgspec.json.decode(call.body.decode())
    except UnicodeDecodeError as error:
        raise ProblemError("bad_json", "the body is not UTF-8") from error
    except (msgspec.DecodeError, RecursionError):
        return _reply(make_error(RefusedError(Fault.REQUEST_INVALID, "Invalid JSON request")))
    if not isinstance(body, list):
        return _reply(await agent.answer_request(body, query, agent.read_objects()))
    requests_max = context.settings.jolokia_requests_max
    if len(body) > requests_max:
        text = f"A body has at most {requests_max} requests"
        return _reply(make_error(RefusedError(Fault.REQUEST_INVALID, text)))
    answers, objects = list[bytes](), agent.read_objects()
    for one in body:
        answers.append(msgspec.json.encode(await agent.answer_request(one, query, objects)))
        if isinstance(one, dict) and str(one.get("type")).lower() == "exec":
            objects = agent.read_objects()  # the requests after an operation must see what it changed
        await asyncio.sleep(0)  # a body with a thousand requests can take seconds, so let other tasks run
    return Reply(b"[%b]" % b",".join(answers), media_type=JSON_TYPE)


def _reply(answer: object) -> Reply:
    return Reply(msgspec.json.encode(answer), media_type=JSON_TYPE)


def _find_agent(context: Any, call: Call) -> JolokiaAgent:
    """Return the Jolokia agent. If the service has no API keys, refuse a request from a page of another site.

    A GET may run an operation, and any page can make its reader's browser send a GET.
    """
    headers = call.request.headers
    if call.identity is ANYONE:
        refuse_foreign_page(headers.get(hdrs.HOST), headers.get(hdrs.ORIGIN), changes=True)
        if headers.get(_FETCH_SITE) in _FOREIGN_SITES:
            text = "without API keys the service takes no requests from pages of other sites here"
            raise ProblemError("forbidden", text)
    agent: JolokiaAgent = context.agent
    return agent


JOLOKIA = [
    Route("GET", "/jolokia", get_jolokia, Role.OPS, "jolokia", "Operating", foreign_protocol=True),
    Route("POST", "/jolokia", post_jolokia, Role.OPS, "jolokia_post", "Operating", foreign_protocol=True),
    Route("GET", "/jolokia/{operation}", get_jolokia, Role.OPS, "jolokia_get", "Operating", foreign_protocol=True),
    Route("POST", "/jolokia/{operation}", post_jolokia, Role.OPS, "jolokia_post_to", "Operating",
        foreign_protocol=True),
]  # fmt: skip

"""The routes of the Jolokia protocol: `/jolokia` with and without a slash, and with an operation after it.

The rule: whoever may call gets HTTP 200, whatever comes of the request; a page of another site may not call at all
where the service has no keys.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from time import perf_counter
from typing import Any
from urllib.parse import unquote

from aiohttp import hdrs

from ..foreign_pages import refuse_foreign_page
from ..keys import ANYONE, Role
from ..problems import Problem
from ..routes import Call, Reply, Route
from .answer import JolokiaAnswer
from .answering import Agent
from .errors import BadRequest
from .requests import Request, echo_of, from_json, from_path, parameters_of
from .values import encoded

_PREFIX = "/jolokia"
_TURN_S_MAX = 0.005  # a thousand requests of all there is take seconds, for which nobody else would be answered
_FETCH_SITE = "Sec-Fetch-Site"
_FOREIGN_SITES = ("cross-site", "same-site")


async def get(context: Any, call: Call) -> Reply:
    """A request in the path, or in the query's `p`."""
    agent = _agent(context)
    _refuse_foreign(call)
    query = _query(call)
    path = unquote(call.request.raw_path.partition("?")[0], errors="strict").removeprefix(_PREFIX)
    if not path.strip("/"):
        path = query.get("p", "")
    try:
        request = from_path(path, query)
    except Exception as error:
        return _reply(agent.refused(error), query)
    return _reply(await agent.answer(request, agent.look()), query, request)


async def post(context: Any, call: Call) -> Reply:
    """A request in the body, or a list of them; what follows the path is for people to read."""
    agent = _agent(context)
    _refuse_foreign(call)
    if not call.body:
        raise Problem("bad_json", "the body holds no request")
    query = _query(call)
    try:
        body = json.loads(call.body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return _reply(agent.refused(BadRequest("Invalid JSON request")), query)
    if not isinstance(body, list):
        return _reply(await _answered(agent, body, query), query)
    requests_max = context.settings.jolokia_requests_max
    if len(body) > requests_max:
        return _reply(agent.refused(BadRequest(f"A body has at most {requests_max} requests")), query)
    answers, look, began_s = list[bytes](), agent.look(), perf_counter()
    for one in body:
        answers.append(encoded(await _answered(agent, one, query, look)))
        if isinstance(one, dict) and str(one.get("type")).lower() == "exec":
            look = agent.look()  # what comes after an operation is read after it
        if perf_counter() - began_s > _TURN_S_MAX:
            await asyncio.sleep(0)
            began_s = perf_counter()
    return Reply(b"[%b]" % b",".join(answers), media_type=_media_type(query))


async def _answered(agent: Agent, body: Any, query: Mapping[str, str], look: Any = None) -> dict[str, Any]:
    try:
        request = from_json(body, query)
    except Exception as error:
        return {**agent.refused(error), "request": echo_of(body)}
    return await agent.answer(request, look or agent.look())


def _agent(context: Any) -> Agent:
    agent: Agent | None = context.agent
    if agent is None:
        raise Problem("not_found", "managed objects are off: see the setting managed_objects")
    return agent


def _refuse_foreign(call: Call) -> None:
    """An operation may be in a GET, which a page can have its reader's browser send without a word."""
    if call.identity is not ANYONE:
        return
    headers = call.request.headers
    refuse_foreign_page(headers.get(hdrs.HOST), headers.get(hdrs.ORIGIN), changes=True)
    if headers.get(_FETCH_SITE) in _FOREIGN_SITES:
        raise Problem("forbidden", "without API keys the service takes no requests of pages of other sites here")


def _query(call: Call) -> Mapping[str, str]:
    return call.request.rel_url.query


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _reply(answer: Any, query: Mapping[str, str], request: Request | None = None) -> Reply:
    return Reply(encoded(answer), media_type=_media_type(query, request))


def _media_type(query: Mapping[str, str], request: Request | None = None) -> str:
    try:
        return (parameters_of(query) if request is None else request.parameters).mime_type
    except BadRequest:
        return "application/json"


_DESCRIPTION = (
    "Protocol 7.2: read, list, search, exec, version. What can't be met is an answer with a status of its own, under"
    " HTTP 200. In the path `!/` is a slash and `!!` an exclamation mark; the query takes the protocol's processing"
    " parameters, and `p` in place of a path."
)
JOLOKIA = [
    Route(
        method=method, path=path, handler=handler, role=Role.OPS, view=view, summary=summary, tag="Operating",
        description=_DESCRIPTION, foreign=True, response=JolokiaAnswer, problems=("not_found",),
    )
    for method, path, handler, view, summary in (
        ("GET", "/jolokia", get, "jolokia", "The version of the Jolokia agent, or the request in `p`"),
        ("POST", "/jolokia", post, "jolokia_post", "Read and operate managed objects, one request or a list"),
        ("GET", "/jolokia/{operation}", get, "jolokia_get", "Read and operate managed objects"),
        ("POST", "/jolokia/{operation}", post, "jolokia_post_to", "The same as without an operation in the path"),
    )
]  # fmt: skip

"""The Jolokia protocol 7.2, by which JMX tools use the managed objects: read, list, search, exec, version.

    path of a GET or body of a POST ──> JolokiaRequest ──JolokiaAgent──> value of an object ──> JSON answer

If a Jolokia request fails, the HTTP status is 200, and the JSON answer holds an error status. `write`, stack traces,
limits on the size of an answer, and CORS are not supported. Because a GET may run an operation, a service without API
keys refuses requests from other sites' pages. An answer describes the whole node, not only the process that sends it.

In a path, `!` escapes a character: `!/` is a slash inside a part, `!!` is an exclamation mark, and `!x` is any other
character x. `split_path(join_path(parts)) == parts` is true unless the last part is empty, because a path in this
protocol cannot end with an empty part.

Source: https://jolokia.org/reference/html/manual/jolokia_protocol.html
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec
import structlog
from aiohttp import hdrs

from service.contract.api_keys import ANYONE, Role
from service.contract.problems import JSON_TYPE, ProblemError, problem_of
from service.contract.requests import Reason
from service.contract.routes import Call, Reply, Route
from service.http.foreign_pages import refuse_foreign_page
from service.monitoring.managed.objects import (
    Fault,
    ManagedObject,
    ObjectName,
    Objects,
    RefusedError,
    find_matching,
    find_object,
    parse_name,
)
from storage.boards.acts import Act, ActName, store_acts
from storage.errors import NotOwnerError

TYPES = ("read", "list", "search", "exec", "version")
_TOKEN = re.compile(r"!.?|/|[^!/]+", re.DOTALL)
_T = TypeVar("_T")
_SPECIAL_ARGUMENTS = {"[null]": None, '""': ""}  # the forms of null and of the empty text in a path


class Parameters(msgspec.Struct, frozen=True, rename="camel"):
    """A request's options, from the URL's query or the request's `config`. Jolokia's other options are ignored."""

    ignore_errors: bool = False
    reason: Reason | None = None
    include_request: bool = True


class JolokiaRequest(msgspec.Struct, frozen=True):
    """The JSON fields of a request that this agent uses. A field that is missing or null is None."""

    type: str | None = None
    mbean: str | None = None
    attribute: str | list[str] | None = None  # None: all attributes
    operation: str | None = None
    arguments: Any = None
    path: str | list[str | int] | None = None
    target: Any = None
    reason: Reason | None = None  # why an operator runs the operation; it may also be a parameter

    @property
    def attributes(self) -> Sequence[str]:
        """The names of the attributes that the request asks for. They are empty if it asks for all."""
        return [self.attribute] if isinstance(self.attribute, str) and self.attribute else self.attribute or ()

    @property
    def parts(self) -> Sequence[str]:
        """The steps of `path`, which lead to the part of the value that the request asks for."""
        path = self.path or ()
        return split_path(path.removeprefix("/")) if isinstance(path, str) else list(map(str, path))


def read_path(path: str) -> dict[str, Any]:
    """Turn the path of a GET into the JSON object of a POST. `path` is what follows `/jolokia`, decoded once."""
    kind, *rest = split_path(path.removeprefix("/")) or ["version"]
    kind = kind.lower() or "version"
    if kind == "list":
        return {"type": kind, **_name_path(rest)}
    if kind not in ("read", "search", "exec"):
        return {"type": kind}
    mbean, *rest = rest or [""]
    details = {"read": _name_attributes, "exec": _name_operation}.get(kind)
    return {"type": kind, "mbean": mbean, **(details(*rest) if details and rest else {})}


def _name_attributes(asked: str, *steps: str) -> dict[str, Any]:
    names = [name for name in asked.split(",") if name]
    attributes = {} if asked in ("", "*") else {"attribute": names if len(names) > 1 else asked}
    return {**attributes, **_name_path(steps)}


def _name_operation(operation: str, *arguments: str) -> dict[str, Any]:
    special = [_SPECIAL_ARGUMENTS.get(each, each) for each in arguments]
    return {"operation": operation, **({"arguments": special} if special else {})}


def _name_path(steps: Sequence[str]) -> dict[str, Any]:
    return {"path": join_path(steps)} if steps else {}


def read_request(body: Any, query: Mapping[str, str]) -> tuple[JolokiaRequest, Parameters]:
    """Parse the JSON object of a request, whose `config` overrides the parameters in `query`.

    Raises:
        RefusedError: the request is malformed, or the agent does not support its type.
    """
    config = body.get("config") if isinstance(body, dict) else None
    given = {**query, **config} if isinstance(config, dict) else query
    # An empty parameter counts as not set, as in Jolokia itself.
    parameters = _convert({name: value for name, value in given.items() if value not in (None, "")}, Parameters)
    request = _convert(body, JolokiaRequest)
    kind = (request.type or "").lower()
    if kind == "write":
        raise RefusedError(Fault.FORBIDDEN, "Attributes can't be written here")
    if kind not in TYPES:
        raise RefusedError(Fault.TYPE_UNSUPPORTED, f"Requests of type '{kind}' are not supported")
    if request.target is not None:
        raise RefusedError(Fault.TYPE_UNSUPPORTED, "Requests to other agents (proxy mode) are not supported")
    if kind in ("read", "search", "exec") and not request.mbean:
        raise RefusedError(Fault.REQUEST_INVALID, f"No MBean is named in a {kind} request")
    if kind == "exec" and not request.operation:
        raise RefusedError(Fault.REQUEST_INVALID, "No operation is named in an exec request")
    return msgspec.structs.replace(request, type=kind), parameters


def _convert(value: Any, kind: type[_T]) -> _T:
    try:
        return msgspec.convert(value, kind, strict=kind is not Parameters)  # in a URL query, `True` is the text "true"
    except msgspec.ValidationError as error:
        raise RefusedError(Fault.REQUEST_INVALID, str(error)) from error


def join_path(parts: Iterable[str]) -> str:
    return "/".join(part.replace("!", "!!").replace("/", "!/") for part in parts)


def split_path(path: str) -> list[str]:
    """Split a path into its parts. An empty path has no parts, and a final slash adds no empty part."""
    parts = [""]
    for token in _TOKEN.findall(path):
        if token == "/":
            parts.append("")
        else:
            parts[-1] += token.removeprefix("!")
    return parts if parts[-1] else parts[:-1]


log = structlog.get_logger(__name__)
PROTOCOL = "7.2"
_ACTS: dict[str, ActName] = {"pause": "job.paused", "resume": "job.resumed", "run": "job.run"}  # by operation
# Stores the act before an operation runs. Takes the reason, the operation's name and the job's name.
KeepAct = Callable[[str | None, str, str], Awaitable[None]]


class JolokiaAgent:
    """Answers requests about the objects that `read_objects` returns, and logs every unexpected error."""

    def __init__(self, read_objects: Callable[[], Objects], version: str) -> None:
        self.read_objects, self._version = read_objects, version

    async def answer_request(
        self, body: Any, query: Mapping[str, str], objects: Objects, keep_act: KeepAct
    ) -> dict[str, Any]:
        """Answer the JSON object of a request. The answer has an error status if the request fails."""
        parameters = Parameters()
        try:
            request, parameters = read_request(body, query)
            value = await self._find_value(request, parameters, objects, keep_act)
            answer = {"value": value, "status": 200, "timestamp": int(time.time())}
        except Exception as error:
            answer = make_error(error)
        return {"request": body, **answer} if parameters.include_request else answer

    async def _find_value(
        self, request: JolokiaRequest, parameters: Parameters, objects: Objects, keep_act: KeepAct
    ) -> Any:
        if request.type == "version":
            info = {"product": "rankcurve", "vendor": "rankcurve", "version": self._version}
            return {"agent": self._version, "protocol": PROTOCOL, "info": info}
        if request.type == "list":
            return _list(request.parts, objects)
        name = parse_name(request.mbean or "")
        if request.type == "search":
            return [found.name.text for found in find_matching(objects, name)]
        if request.type == "exec":
            if name.is_pattern:
                raise RefusedError(Fault.REQUEST_INVALID, f"An operation needs one MBean, not the pattern {name.text}")
            keep = partial(keep_act, request.reason or parameters.reason)
            return follow_path(await _run_operation(find_object(objects, name), request, keep), request.parts)
        return follow_path(_read(request, parameters, objects), request.parts)


async def _run_operation(
    managed: ManagedObject, request: JolokiaRequest, keep: Callable[[str, str], Awaitable[None]]
) -> int:
    # Use only the name, without the signature in brackets: no two operations have the same name.
    name = (request.operation or "").partition("(")[0]
    if name not in managed.operations:
        raise RefusedError(Fault.REQUEST_INVALID, f"No operation {name} found on MBean {managed.name.text}")
    if request.arguments:
        raise RefusedError(Fault.REQUEST_INVALID, f"Operation {name} has no arguments")
    await keep(name, managed.name.properties["name"])  # before it runs, because it may fail in one of several processes
    return await managed.operations[name].run()


def _list(path: Sequence[str], objects: Objects) -> Any:
    """List descriptions of objects in nested dicts, by domain and key list, or only the part that a `path` selects."""
    described: dict[str, dict[str, Any]] = {}
    for _, managed in sorted(objects.items()):
        described.setdefault(managed.name.domain, {})[managed.name.key_list] = describe_object(managed)
    # A request may name an object with its keys in any order. In the dicts of `described`, the order is alphabetical.
    named = [*path[:1], *(",".join(sorted(keys.split(","))) for keys in path[1:2])]
    try:
        return follow_path(described, [*named, *path[2:]])
    except RefusedError:
        with suppress(RefusedError):
            follow_path(described, named)
            raise
        raise RefusedError(Fault.OBJECT_UNKNOWN, f"No MBean with name '{':'.join(path[:2])}' found") from None


def describe_object(managed: ManagedObject) -> dict[str, Any]:
    return {
        "attr": {
            name: {"rw": False, "type": attribute.kind, "desc": attribute.description}
            for name, attribute in managed.attributes.items()
        },
        "op": {
            name: {"args": [], "ret": "long", "desc": operation.description}
            for name, operation in managed.operations.items()
        },
        "class": f"{managed.name.domain}.{managed.name.properties['type']}",
        "desc": managed.description,
    }


def _read(request: JolokiaRequest, parameters: Parameters, objects: Objects) -> Any:
    name = parse_name(request.mbean or "")
    if name.is_pattern:
        return _read_matching(name, request.attributes, objects)
    managed = find_object(objects, name)

    def read(attribute: str) -> Any:
        try:
            return managed.read(attribute)
        except RefusedError as error:
            if not parameters.ignore_errors:
                raise
            return f"ERROR: {error} (class {error.fault.value[1]})"

    if isinstance(request.attribute, str) and request.attribute:
        return read(request.attribute)
    return {attribute: read(attribute) for attribute in request.attributes or managed.attributes}


def _read_matching(pattern: ObjectName, wanted: Sequence[str], objects: Objects) -> Any:
    matching = find_matching(objects, pattern)
    if not matching:
        raise RefusedError(Fault.OBJECT_UNKNOWN, f"No MBean with pattern {pattern.text} found for reading attributes")
    found = {
        managed.name.text: {each: managed.read(each) for each in managed.attributes if not wanted or each in wanted}
        for managed in matching
    }
    if not any(found.values()):
        text = f"No matching attributes found on any MBean of pattern {pattern.text}"
        raise RefusedError(Fault.ATTRIBUTE_UNKNOWN, text)
    return {text: values for text, values in found.items() if values}


def make_error(error: Exception) -> dict[str, Any]:
    """Build the answer to an error. If the error is unexpected, the message does not reveal its cause."""
    if isinstance(error, RefusedError):
        (status, java_name), text = error.fault.value, str(error)
    else:
        (status, java_name), text = Fault.FAILED.value, problem_of(error).detail
    if status >= 500:
        log.error("managed_request_failed", exc_info=error)
    message = f"{java_name} : {text}"
    return {"status": status, "error_type": java_name, "error": message, "timestamp": int(time.time())}


def follow_path(value: Any, path: Sequence[str]) -> Any:
    """Follow a path into nested dicts and lists, and return what is there.

    The step `*` takes every entry of a dict or list, except those in which the rest of the path is missing.

    Raises:
        RefusedError: nothing is at this path.
    """
    if not path:
        return value
    part, rest = path[0], path[1:]
    if isinstance(value, list):
        entries = {str(index): each for index, each in enumerate(value)}
    elif isinstance(value, dict):
        entries = value
    elif part == "*" and not rest:
        return value
    else:
        entries = {}
    if part in entries and part != "*":
        return follow_path(entries[part], rest)
    kept = {}
    for name, each in entries.items() if part == "*" else ():
        with suppress(RefusedError):
            kept[name] = follow_path(each, rest)
    if not kept:
        raise RefusedError(Fault.REQUEST_INVALID, f"Invalid path: nothing is at {'/'.join(path)}")
    return kept if isinstance(value, dict) else list(kept.values())


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
    body = read_path(path)
    keep_act = _prepare_keeping(context, call, [body])
    return _reply(await agent.answer_request(body, query, agent.read_objects(), keep_act))


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
    keep_act = _prepare_keeping(context, call, body if isinstance(body, list) else [body])
    if not isinstance(body, list):
        return _reply(await agent.answer_request(body, query, agent.read_objects(), keep_act))
    requests_max = context.settings.jolokia_requests_max
    if len(body) > requests_max:
        text = f"A body has at most {requests_max} requests"
        return _reply(make_error(RefusedError(Fault.REQUEST_INVALID, text)))
    answers, objects = list[bytes](), agent.read_objects()
    for one in body:
        answers.append(msgspec.json.encode(await agent.answer_request(one, query, objects, keep_act)))
        if _runs_operation(one):
            objects = agent.read_objects()  # the requests after an operation must see what it changed
        await asyncio.sleep(0)  # let other tasks run, because a body with a thousand requests can take seconds
    return Reply(b"[%b]" % b",".join(answers), media_type=JSON_TYPE)


def _runs_operation(body: Any) -> bool:
    return isinstance(body, dict) and str(body.get("type")).lower() == "exec"


def _prepare_keeping(context: Any, call: Call, bodies: Sequence[Any]) -> KeepAct:
    """Make the function that stores acts. Raise NotOwnerError if only the owner of the store can store them."""
    if context.relay is not None and any(map(_runs_operation, bodies)):
        raise NotOwnerError

    async def keep_act(reason: str | None, operation: str, job: str) -> None:
        detail = msgspec.json.encode({"job": job}).decode()
        act = Act(context.now_us(), _ACTS[operation], call.identity.stored_key, reason=reason, detail=detail)
        await context.store.write(partial(store_acts, [act]))

    return keep_act


def _reply(answer: object) -> Reply:
    return Reply(msgspec.json.encode(answer), media_type=JSON_TYPE)


def _find_agent(context: Any, call: Call) -> JolokiaAgent:
    """Find the Jolokia agent. If the service has no API keys, refuse a request from another site's page.

    A GET may run an operation, and any page can make its reader's browser send a GET.
    """
    headers = call.request.headers
    if call.identity is ANYONE:
        refuse_foreign_page(headers.get(hdrs.HOST), headers.get(hdrs.ORIGIN), changes=True)
        if headers.get(_FETCH_SITE) in _FOREIGN_SITES:
            text = "pages of other sites may send requests here only once there are API keys"
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

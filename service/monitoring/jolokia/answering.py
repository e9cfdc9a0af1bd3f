"""Answers all types of Jolokia requests. An answer describes the whole node, not only the process that sends it."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import structlog

from service.contract.problems import problem_of
from service.monitoring.managed.errors import Fault, RefusedError
from service.monitoring.managed.object_names import parse_name
from service.monitoring.managed.objects import ManagedObject, Objects, find_matching, find_object

from .requests import JolokiaRequest, Parameters, read_request

log = structlog.get_logger(__name__)
PROTOCOL = "7.2"


class JolokiaAgent:
    """Answers requests about the objects that `read_objects` returns, and logs every unexpected error."""

    def __init__(self, read_objects: Callable[[], Objects], version: str) -> None:
        self.read_objects, self._version = read_objects, version

    async def answer_request(self, body: Any, query: Mapping[str, str], objects: Objects) -> dict[str, Any]:
        """Return the answer to a request's JSON object. If the request fails, its answer has an error status."""
        parameters = Parameters()
        try:
            request, parameters = read_request(body, query)
            value = await self._find_value(request, parameters, objects)
            answer = {"value": value, "status": 200, "timestamp": int(time.time())}
        except Exception as error:
            answer = make_error(error)
        return {"request": body, **answer} if parameters.include_request else answer

    async def _find_value(self, request: JolokiaRequest, parameters: Parameters, objects: Objects) -> Any:
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
            return follow_path(await _run_operation(find_object(objects, name), request), request.parts)
        return follow_path(_read(request, parameters, objects), request.parts)


async def _run_operation(managed: ManagedObject, request: JolokiaRequest) -> int:
    # Use only the name, without the signature in brackets: no two operations have the same name.
    name = (request.operation or "").partition("(")[0]
    if name not in managed.operations:
        raise RefusedError(Fault.REQUEST_INVALID, f"No operation {name} found on MBean {managed.name.text}")
    if request.arguments:
        raise RefusedError(Fault.REQUEST_INVALID, f"Operation {name} takes no arguments")
    return await managed.operations[name].run()


def _list(path: Sequence[str], objects: Objects) -> Any:
    """Return descriptions of objects in nested dicts, by domain and key list. A `path` selects a part of them."""
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
    """Return the description of an object for an answer to `list`: its attributes and operations."""
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
    asked, name = request.attribute, parse_name(request.mbean or "")

    def read(managed: ManagedObject, attribute: str) -> Any:
        try:
            return managed.read(attribute)
        except RefusedError as error:
            if not parameters.ignore_errors:
                raise
            return f"ERROR: {error} (class {error.fault.value[1]})"

    if not name.is_pattern:
        managed = find_object(objects, name)
        if isinstance(asked, str) and asked:
            return read(managed, asked)
        return {attribute: read(managed, attribute) for attribute in asked or managed.attributes}
    wanted = [asked] if isinstance(asked, str) and asked else asked
    matching = find_matching(objects, name)
    if not matching:
        raise RefusedError(Fault.OBJECT_UNKNOWN, f"No MBean with pattern {name.text} found for reading attributes")
    found = {
        managed.name.text: {each: managed.read(each) for each in managed.attributes if not wanted or each in wanted}
        for managed in matching
    }
    if not any(found.values()):
        raise RefusedError(Fault.ATTRIBUTE_UNKNOWN, f"No matching attributes found on any MBean of pattern {name.text}")
    return {text: values for text, values in found.items() if values}


def make_error(error: Exception) -> dict[str, Any]:
    """Return the answer for an error. If the error is unexpected, the message does not reveal its cause."""
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

    The step `*` takes every entry of a dict or list. It leaves out an entry in which the rest of the path is missing.

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

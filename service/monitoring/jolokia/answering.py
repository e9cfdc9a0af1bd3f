"""Answers all types of Jolokia requests. An answer describes the whole node, not the process that answers."""

import time
from typing import Any

import structlog

from service.contract.problems import problem_of
from service.monitoring.managed.node_channel import ProcessFailedError
from service.monitoring.managed.object_names import MalformedNameError, ObjectName, parse_name
from service.monitoring.managed.objects import (
    ForbiddenError,
    ManagedObject,
    UnknownAttributeError,
    UnknownObjectError,
    UnknownOperationError,
)
from service.monitoring.managed.tree import ObjectTree, TreeSnapshot

from .requests import BadRequestError, JolokiaRequest, UnsupportedTypeError
from .values import cut_to_limits, follow_path

log = structlog.get_logger(__name__)
PROTOCOL = "7.2"


class NotModifiedError(Exception):
    """Nothing has changed since the time that the client named."""


class JolokiaAgent:
    """Answers requests about the objects of a tree, and logs every unexpected error."""

    def __init__(self, tree: ObjectTree, version: str) -> None:
        self.tree, self._version = tree, version

    async def answer_request(self, request: JolokiaRequest, snapshot: TreeSnapshot) -> dict[str, Any]:
        echo = {"request": request.echo} if request.parameters.include_request else {}
        try:
            value = cut_to_limits(await self._value(request, snapshot), request.parameters)
        except NotModifiedError:
            return {**echo, "status": 304, "timestamp": int(time.time())}
        except Exception as error:
            return {**self.make_error_envelope(error), **echo}
        return {**echo, "value": value, "status": 200, "timestamp": int(time.time())}

    def make_error_envelope(self, error: Exception) -> dict[str, Any]:
        status, java_name, message = describe_error(error)
        if status >= 500:
            log.error("managed_request_failed", exc_info=error)
        return {"status": status, "error_type": java_name, "error": message, "timestamp": int(time.time())}

    async def _value(self, request: JolokiaRequest, snapshot: TreeSnapshot) -> Any:
        if request.type == "version":
            return self._about()
        if request.type == "list":
            return self._list(request, snapshot)
        name = parse_name(request.mbean)
        if request.type == "search":
            self._check_modified(request, snapshot)
            naming = request.parameters.canonical_naming
            return [found.text(canonical=naming) for found in snapshot.find_matching(name)]
        if request.type == "exec":
            if name.is_pattern:
                raise BadRequestError(f"An operation needs one MBean, not the pattern {request.mbean}")
            # Use only the name, without the signature in brackets: no two operations have the same name.
            operation = request.operation.partition("(")[0]
            return follow_path(
                await self.tree.run_operation(snapshot.find_object(name), operation, request.arguments), request.path
            )
        return follow_path(_read(name, request, snapshot), request.path)

    def _about(self) -> dict[str, Any]:
        config = {"maxDepth": "0", "maxCollectionSize": "0", "maxObjects": "0", "canonicalNaming": "true"}
        info = {"product": "rankcurve", "vendor": "rankcurve", "version": self._version}
        return {"agent": self._version, "protocol": PROTOCOL, "config": config, "info": info}

    def _check_modified(self, request: JolokiaRequest, snapshot: TreeSnapshot) -> None:
        self.tree.note_changes(snapshot)
        since_s = request.parameters.if_modified_since
        if since_s and self.tree.changed_at_s < since_s:
            raise NotModifiedError

    def _list(self, request: JolokiaRequest, snapshot: TreeSnapshot) -> Any:
        self._check_modified(request, snapshot)
        naming = request.parameters.canonical_naming
        domain, key_list, *_ = [*request.path, "*", "*"] if len(request.path) < 2 else request.path
        wanted_keys = sorted(key_list.split(","))
        listed: dict[str, dict[str, Any]] = {}
        for name in snapshot.list_names():
            keys = name.key_list(canonical=naming)
            if domain in ("*", name.domain) and (key_list == "*" or sorted(keys.split(",")) == wanted_keys):
                listed.setdefault(name.domain, {})[keys] = name
        if not listed and request.path:
            raise UnknownObjectError(f"No MBean with name '{':'.join(request.path[:2])}' found")
        depth = request.parameters.max_depth
        if depth and depth <= 2 and len(request.path) < 2:
            return follow_path(
                {one: 1 if depth == 1 else dict.fromkeys(found, 1) for one, found in listed.items()}, request.path
            )
        described_names = {
            one: {keys: describe_object(snapshot.find_object(name)) for keys, name in sorted(found.items())}
            for one, found in sorted(listed.items())
        }
        path = list(request.path)
        # The request may give the keys of the object name in another order than the tree. So use the text of the tree.
        if len(path) >= 2 and path[1] != "*" and path[0] != "*":
            path[1] = next(iter(described_names[path[0]]))
        return follow_path(described_names, path)


def describe_object(managed: ManagedObject) -> dict[str, Any]:
    """Return the description of an object in an answer to `list`."""
    return {
        "attr": {
            name: {"rw": False, "type": attribute.kind, "desc": attribute.description}
            for name, attribute in managed.attributes.items()
        },
        "op": {
            name: {"args": [], "ret": operation.returns, "desc": operation.description}
            for name, operation in managed.operations.items()
        },
        "class": managed.kind,
        "desc": managed.description,
    }


def _read(name: ObjectName, request: JolokiaRequest, snapshot: TreeSnapshot) -> Any:
    if not name.is_pattern:
        managed = snapshot.find_object(name)
        if request.single:
            return _value(managed, request.attributes[0], request, snapshot)
        wanted = request.attributes or list(managed.attributes)
        return {attribute: _value(managed, attribute, request, snapshot) for attribute in wanted}
    names = snapshot.find_matching(name)
    if not names:
        raise UnknownObjectError(f"No MBean with pattern {request.mbean} found for reading attributes")
    found = {}
    for one in names:
        managed = snapshot.find_object(one)
        wanted = [
            attribute for attribute in managed.attributes if not request.attributes or attribute in request.attributes
        ]
        if wanted:
            key = one.text(canonical=request.parameters.canonical_naming)
            found[key] = {attribute: _value(managed, attribute, request, snapshot) for attribute in wanted}
    if not found:
        raise UnknownAttributeError(f"No matching attributes found on any MBean of pattern {request.mbean}")
    return found


def _value(managed: ManagedObject, attribute: str, request: JolokiaRequest, snapshot: TreeSnapshot) -> Any:
    try:
        return snapshot.read_attribute(managed, attribute)
    except Exception as error:
        if not request.parameters.ignore_errors:
            raise
        _, java_name, _ = describe_error(error)
        return f"ERROR: {error} (class {java_name})"


# The status of an error, and the Java exception that Jolokia clients know.
_STATUSES: tuple[tuple[type[Exception], int, str], ...] = (
    (UnknownObjectError, 404, "javax.management.InstanceNotFoundException"),
    (UnknownAttributeError, 404, "javax.management.AttributeNotFoundException"),
    (UnknownOperationError, 400, "java.lang.IllegalArgumentException"),
    (BadRequestError, 400, "java.lang.IllegalArgumentException"),
    (UnsupportedTypeError, 400, "java.lang.UnsupportedOperationException"),
    (MalformedNameError, 400, "javax.management.MalformedObjectNameException"),
    (ForbiddenError, 403, "java.lang.Exception"),
    (ProcessFailedError, 500, "javax.management.MBeanException"),
)


def describe_error(error: Exception) -> tuple[int, str, str]:
    """Return status, Java exception and message of an error. The message of an unexpected error hides its cause."""
    for kind, status, java_name in _STATUSES:
        if isinstance(error, kind):
            return status, java_name, f"{java_name} : {error}"
    java_name = "javax.management.MBeanException"
    problem = problem_of(error)
    return 500, java_name, f"{java_name} : {problem.detail}"

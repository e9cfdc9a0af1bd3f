"""Parses Jolokia requests, from a path or from JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.monitoring.managed.objects import ForbiddenError

from .errors import BadRequestError, UnsupportedTypeError
from .escapes import join_path, split_path

TYPES = ("read", "list", "search", "exec", "version")
_OFF = ("notification", "config")
_NULL, _EMPTY = "[null]", '""'  # how a path writes null and the empty text


@dataclass(frozen=True, slots=True)
class Parameters:
    """Processing parameters, from the query and from the request's `config`."""

    max_depth: int = 0  # 0 means no limit, also in the next two fields
    max_collection_size: int = 0
    max_objects: int = 0
    ignore_errors: bool = False
    canonical_naming: bool = True
    include_request: bool = True
    if_modified_since: int = 0
    serialize_long: str = "number"
    mime_type: str = "application/json"


_USUAL = Parameters()


@dataclass(frozen=True, slots=True)
class JolokiaRequest:
    """One request. `echo` is the part of the request that the answer repeats, so that clients can match the two."""

    type: str
    echo: Mapping[str, Any]
    parameters: Parameters
    mbean: str = ""
    attributes: Sequence[str] = ()  # empty means all attributes
    single: bool = False  # the request names one attribute as text, so the answer has no mapping
    operation: str = ""
    arguments: Sequence[Any] = field(default_factory=tuple)
    path: Sequence[str] = field(default_factory=tuple)


def parse_path(path: str, query: Mapping[str, str]) -> JolokiaRequest:
    """Parse the request of a GET. `path` is the part after `/jolokia`, percent-decoded once.

    Raises:
        BadRequestError: the request is malformed.
        UnsupportedTypeError: the agent does not support the type of request.
        ForbiddenError: the request would write an attribute.
    """
    kind, *rest = split_path(path.removeprefix("/")) or ["version"]
    kind = kind.lower() or "version"
    parameters = parameters_of(query)
    if kind in ("version", "list"):
        echo: dict[str, Any] = {"type": kind}
        if kind == "list" and rest:
            echo["path"] = join_path(rest)
        return _request(echo, parameters)
    if kind not in TYPES:
        return _request({"type": kind}, parameters)
    if not rest or not rest[0]:
        raise BadRequestError(f"No MBean is named in a {kind} request")
    echo = {"type": kind, "mbean": rest[0]}
    if kind == "read":
        echo |= _read_echo(rest[1:])
    elif kind == "exec":
        if len(rest) < 2:
            raise BadRequestError("No operation is named in an exec request")
        echo |= {"operation": rest[1]}
        if rest[2:]:
            echo["arguments"] = [_argument(each) for each in rest[2:]]
    return _request(echo, parameters)


def _read_echo(rest: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if rest and rest[0] not in ("", "*"):
        names = [name for name in rest[0].split(",") if name]
        found["attribute"] = names if len(names) > 1 else rest[0]
    if rest[1:]:
        found["path"] = join_path(rest[1:])
    return found


def _argument(text: str) -> str | None:
    return None if text == _NULL else "" if text == _EMPTY else text


def parse_json(body: Any, query: Mapping[str, str]) -> JolokiaRequest:
    """Parse the request in one JSON object of a POST. Its `config` overrides the parameters of `query`.

    Raises:
        BadRequestError, UnsupportedTypeError, ForbiddenError: see `parse_path`.
    """
    if not isinstance(body, dict):
        raise BadRequestError("a request is a JSON object")
    config = body.get("config")
    if not isinstance(config, dict | None):
        raise BadRequestError("config is a JSON object")
    return _request(body, parameters_of({**query, **(config or {})}))


def echo_of(body: Any) -> Any:
    """Return the request as an answer repeats it: unchanged, but without the password of a proxy target."""
    if isinstance(body, dict) and isinstance(target := body.get("target"), dict):
        return {**body, "target": {name: value for name, value in target.items() if name != "password"}}
    return body


def _request(body: Mapping[str, Any], parameters: Parameters) -> JolokiaRequest:
    kind = _text(body, "type").lower()
    if kind == "write":
        raise ForbiddenError("Attributes can't be written here")
    if kind in _OFF:
        raise UnsupportedTypeError(f"Requests of type {kind} are not supported")
    if kind not in TYPES:
        raise UnsupportedTypeError(f"No type with name '{kind}' exists")
    if body.get("target") is not None:
        raise UnsupportedTypeError("Requests to other agents (proxy mode) are not supported")
    mbean = _text(body, "mbean")
    operation = _text(body, "operation")
    if kind in ("read", "search", "exec") and not mbean:
        raise BadRequestError(f"No MBean is named in a {kind} request")
    if kind == "exec" and not operation:
        raise BadRequestError("No operation is named in an exec request")
    attribute = body.get("attribute")
    names = [] if attribute in (None, "") else attribute if isinstance(attribute, list) else [attribute]
    if not all(isinstance(name, str) for name in names):
        raise BadRequestError("attribute is a name, a list of names, or null")
    return JolokiaRequest(
        type=kind,
        echo=echo_of(dict(body)),
        parameters=parameters,
        mbean=mbean,
        attributes=tuple(names),
        single=isinstance(attribute, str) and bool(attribute),
        operation=operation,
        arguments=_arguments(body.get("arguments")),
        path=_path(body.get("path")),
    )


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str | None):
        raise BadRequestError(f"{name} is text")
    return value or ""


def _arguments(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (value,)


def _path(value: Any) -> tuple[str, ...]:
    """Return the parts of a path, which a request gives as a list or as one text with escapes."""
    if value is None or value == "":
        return ()
    if isinstance(value, list):
        return tuple(str(part) for part in value)
    if not isinstance(value, str):
        raise BadRequestError("path is text or a list of parts")
    return tuple(split_path(value.removeprefix("/")))


def parameters_of(given: Mapping[str, Any]) -> Parameters:
    """Read the processing parameters that this agent knows, by the names of the protocol. Ignore all others.

    Raises:
        BadRequestError: a parameter that must be a whole number is something else.
    """
    if not given:
        return _USUAL
    return Parameters(
        max_depth=_whole(given, "maxDepth"),
        max_collection_size=_whole(given, "maxCollectionSize"),
        max_objects=_whole(given, "maxObjects"),
        ignore_errors=_flag(given, "ignoreErrors", default=False),
        canonical_naming=_flag(given, "canonicalNaming", default=True),
        include_request=_flag(given, "includeRequest", default=True),
        if_modified_since=_whole(given, "ifModifiedSince"),
        serialize_long=str(given.get("serializeLong") or "number"),
        mime_type="text/plain" if given.get("mimeType") == "text/plain" else "application/json",
    )


def _whole(given: Mapping[str, Any], name: str) -> int:
    value = given.get(name)
    try:
        return max(0, int(value)) if value not in (None, "") else 0
    except (TypeError, ValueError):
        raise BadRequestError(f"{name} is a whole number") from None


def _flag(given: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = given.get(name)
    return default if value is None else str(value).lower() == "true"

"""Parses Jolokia requests, from a path or from JSON.

In a path, `!` escapes a character: `!/` is a slash inside a part, `!!` is an exclamation mark, and `!x` is any other
character x. `split_path(join_path(parts)) == parts` holds unless the last part is empty. The protocol can't write such
a part.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.monitoring.managed.objects import ForbiddenError

TYPES = ("read", "list", "search", "exec", "version")
_OFF = ("notification", "config")
_PART = re.compile(r"((?:[^!/]|!.)*)(/|$)", re.DOTALL)
_ESCAPED = re.compile(r"!(.)", re.DOTALL)
_SPECIAL_ARGUMENTS = {"[null]": None, '""': ""}  # how a path writes null and the empty text


class BadRequestError(Exception):
    """The request does not follow the protocol."""


class UnsupportedTypeError(Exception):
    """The agent does not support the type of the request."""


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
    arguments: Sequence[Any] = ()
    path: Sequence[str] = ()


def parse_path(path: str, query: Mapping[str, str]) -> JolokiaRequest:
    """Parse the request of a GET. `path` is the part after `/jolokia`, percent-decoded once.

    Raises:
        BadRequestError: the request is malformed.
        UnsupportedTypeError: the agent does not support the type of request.
        ForbiddenError: the request would write an attribute.
    """
    kind, *rest = split_path(path.removeprefix("/")) or ["version"]
    kind = kind.lower() or "version"
    echo: dict[str, Any] = {"type": kind}
    if kind == "list" and rest:
        echo["path"] = join_path(rest)
    elif kind in ("read", "search", "exec"):
        echo["mbean"], *rest = rest or [""]
        if kind == "read" and rest:
            if rest[0] not in ("", "*"):
                names = [name for name in rest[0].split(",") if name]
                echo["attribute"] = names if len(names) > 1 else rest[0]
            if rest[1:]:
                echo["path"] = join_path(rest[1:])
        elif kind == "exec" and rest:
            echo["operation"] = rest[0]
            if rest[1:]:
                echo["arguments"] = [_SPECIAL_ARGUMENTS.get(each, each) for each in rest[1:]]
    return _request(echo, parameters_of(query))


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
    if kind not in TYPES:
        reason = f"Requests of type {kind} are not supported" if kind in _OFF else f"No type with name '{kind}' exists"
        raise UnsupportedTypeError(reason)
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
    arguments = body.get("arguments")
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
        arguments=arguments if isinstance(arguments, list) else [] if arguments is None else [arguments],
        path=_path(body.get("path")),
    )


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str | None):
        raise BadRequestError(f"{name} is text")
    return value or ""


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


def escape(part: str) -> str:
    return part.replace("!", "!!").replace("/", "!/")


def join_path(parts: Iterable[str]) -> str:
    return "/".join(map(escape, parts))


def split_path(path: str) -> list[str]:
    """Return the parts of a path; an empty path has none."""
    parts, at = [], 0
    while at < len(path):
        found = _PART.match(path, at)
        if found is None:  # the path ends with an exclamation mark that escapes nothing
            parts.append(_ESCAPED.sub(r"\1", path[at:].removesuffix("!")))
            break
        parts.append(_ESCAPED.sub(r"\1", found[1]))
        at = found.end()
    return parts

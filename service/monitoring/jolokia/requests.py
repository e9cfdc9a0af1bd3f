"""Parses Jolokia requests, from a path or from JSON.

In a path, `!` escapes a character: `!/` is a slash inside a part, `!!` is an exclamation mark, and `!x` is any other
character x. `split_path(join_path(parts)) == parts` holds unless the last part is empty. The protocol can't write such
a part.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from service.monitoring.managed.objects import ForbiddenError

TYPES = ("read", "list", "search", "exec", "version")
_OFF = ("notification", "config")
_TOKEN = re.compile(r"!.?|/|[^!/]+", re.DOTALL)
_T = TypeVar("_T")
_SPECIAL_ARGUMENTS = {"[null]": None, '""': ""}  # how a path writes null and the empty text


class BadRequestError(Exception):
    """The request does not follow the protocol."""


class UnsupportedTypeError(Exception):
    """The agent does not support the type of the request."""


class Parameters(msgspec.Struct, frozen=True, rename="camel"):
    """Processing parameters, from the query and from the request's `config`. All others are ignored."""

    max_depth: int = 0  # 0 means no limit, also in the next two fields
    max_collection_size: int = 0
    max_objects: int = 0
    ignore_errors: bool = False
    canonical_naming: bool = True
    include_request: bool = True
    if_modified_since: int = 0
    serialize_long: str = "number"
    mime_type: str = "application/json"


class _Members(msgspec.Struct, frozen=True):
    """The members of a request that this agent knows."""

    type: str | None = None
    mbean: str | None = None
    attribute: str | list[str] | None = None
    operation: str | None = None
    arguments: Any = None
    path: str | list[str | int] | None = None
    target: Any = None
    config: dict[str, Any] | None = None


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
    config = body.get("config") if isinstance(body, dict) else None
    return _request(body, parameters_of({**query, **config} if isinstance(config, dict) else query))


def echo_of(body: Any) -> Any:
    """Return the request as an answer repeats it: unchanged, but without the password of a proxy target."""
    if isinstance(body, dict) and isinstance(target := body.get("target"), dict):
        return {**body, "target": {name: value for name, value in target.items() if name != "password"}}
    return body


def _request(body: Any, parameters: Parameters) -> JolokiaRequest:
    members = _convert(body, _Members)
    kind, mbean, operation = (members.type or "").lower(), members.mbean or "", members.operation or ""
    if kind == "write":
        raise ForbiddenError("Attributes can't be written here")
    if kind not in TYPES:
        reason = f"Requests of type {kind} are not supported" if kind in _OFF else f"No type with name '{kind}' exists"
        raise UnsupportedTypeError(reason)
    if members.target is not None:
        raise UnsupportedTypeError("Requests to other agents (proxy mode) are not supported")
    if kind in ("read", "search", "exec") and not mbean:
        raise BadRequestError(f"No MBean is named in a {kind} request")
    if kind == "exec" and not operation:
        raise BadRequestError("No operation is named in an exec request")
    single = isinstance(members.attribute, str) and bool(members.attribute)
    arguments, path = members.arguments, members.path or ()
    return JolokiaRequest(
        type=kind,
        echo=echo_of(dict(body)),
        parameters=parameters,
        mbean=mbean,
        attributes=[str(members.attribute)] if single else list(members.attribute or ()),
        single=single,
        operation=operation,
        arguments=arguments if isinstance(arguments, list) else [] if arguments is None else [arguments],
        path=split_path(path.removeprefix("/")) if isinstance(path, str) else list(map(str, path)),
    )


def parameters_of(given: Mapping[str, Any]) -> Parameters:
    """Read the processing parameters, by the names of the protocol.

    Raises:
        BadRequestError: a parameter has a wrong type.
    """
    # As with Jolokia, a limit that is empty or negative is none.
    meant = {name: value for name, value in given.items() if value not in (None, "") and str(value)[0] != "-"}
    return _convert(meant, Parameters)


def _convert(value: Any, kind: type[_T]) -> _T:
    try:
        return msgspec.convert(value, kind, strict=kind is not Parameters)  # in a query, numbers and flags are text
    except msgspec.ValidationError as error:
        raise BadRequestError(str(error)) from error


def escape(part: str) -> str:
    return part.replace("!", "!!").replace("/", "!/")


def join_path(parts: Iterable[str]) -> str:
    return "/".join(map(escape, parts))


def split_path(path: str) -> list[str]:
    """Return the parts of a path; an empty path has none, and neither has one after a final slash."""
    parts = [""]
    for token in _TOKEN.findall(path):
        if token == "/":
            parts.append("")
        else:
            parts[-1] += token.removeprefix("!")
    return parts if parts[-1] else parts[:-1]

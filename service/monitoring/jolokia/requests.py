"""Parses Jolokia requests, from a path or from JSON.

In a path, `!` escapes a character: `!/` is a slash inside a part, `!!` is an exclamation mark, and `!x` is any other
character x. `split_path(join_path(parts)) == parts` is true unless the last part is empty, because a path of this
protocol cannot end with an empty part.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from service.monitoring.managed.errors import Fault, RefusedError

TYPES = ("read", "list", "search", "exec", "version")
_TOKEN = re.compile(r"!.?|/|[^!/]+", re.DOTALL)
_T = TypeVar("_T")
_SPECIAL_ARGUMENTS = {"[null]": None, '""': ""}  # how a path writes null and the empty text


class Parameters(msgspec.Struct, frozen=True, rename="camel"):
    """Options of a request, from the URL's query or the request's `config`. Other options of Jolokia are ignored."""

    ignore_errors: bool = False
    include_request: bool = True


class JolokiaRequest(msgspec.Struct, frozen=True):
    """The JSON fields of a request that this agent uses. A field is None if the request lacks it or has null."""

    type: str | None = None
    mbean: str | None = None
    attribute: str | list[str] | None = None  # None: all attributes
    operation: str | None = None
    arguments: Any = None
    path: str | list[str | int] | None = None
    target: Any = None

    @property
    def parts(self) -> Sequence[str]:
        """Return `path` as a list of steps. They lead to the part of the value that the request asks for."""
        path = self.path or ()
        return split_path(path.removeprefix("/")) if isinstance(path, str) else list(map(str, path))


def read_path(path: str) -> dict[str, Any]:
    """Return a GET request as the JSON object of a POST. `path` is the text after `/jolokia`, percent-decoded once."""
    kind, *rest = split_path(path.removeprefix("/")) or ["version"]
    kind = kind.lower() or "version"
    body: dict[str, Any] = {"type": kind}
    if kind == "list" and rest:
        body["path"] = join_path(rest)
    elif kind in ("read", "search", "exec"):
        body["mbean"], *rest = rest or [""]
        if kind == "read" and rest:
            if rest[0] not in ("", "*"):
                names = [name for name in rest[0].split(",") if name]
                body["attribute"] = names if len(names) > 1 else rest[0]
            if rest[1:]:
                body["path"] = join_path(rest[1:])
        elif kind == "exec" and rest:
            body["operation"] = rest[0]
            if rest[1:]:
                body["arguments"] = [_SPECIAL_ARGUMENTS.get(each, each) for each in rest[1:]]
    return body


def read_request(body: Any, query: Mapping[str, str]) -> tuple[JolokiaRequest, Parameters]:
    """Parse the JSON object of a request. Its `config` overrides the parameters of `query`.

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
    """Return the parts of a path. An empty path has no parts, and a final slash adds no empty part."""
    parts = [""]
    for token in _TOKEN.findall(path):
        if token == "/":
            parts.append("")
        else:
            parts[-1] += token.removeprefix("!")
    return parts if parts[-1] else parts[:-1]

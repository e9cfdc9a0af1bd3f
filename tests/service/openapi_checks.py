"""Compare each answer of a real service with the OpenAPI document.

The document alone decides which answers are right. This module has no other knowledge of the routes.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any

from config import Settings
from service.api import ROUTES
from service.health_routes import add_health_routes
from service.http.openapi import read_document

ROUTE_TABLE = add_health_routes(ROUTES)
DOCUMENT = read_document(ROUTE_TABLE, Settings())
_SCHEMAS = DOCUMENT["components"]["schemas"]
_KINDS: dict[type, set[str]] = {
    str: {"string"}, int: {"integer", "number"}, float: {"number"}, Decimal: {"number"}, bool: {"boolean"},
    dict: {"object"}, list: {"array"}, type(None): {"null"},
}  # fmt: skip
# Returns the first violation of a schema by a value, with the path of the member that is wrong.
FindFault = Callable[[Any], str | None]
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_PATHS = [
    (
        re.compile(re.sub(r"\\\{operation\\\}", ".*", re.sub(r"\\\{(?!operation)\w+\\\}", "[^/]+", re.escape(path)))),
        path,
        methods,
    )
    for path, methods in DOCUMENT["paths"].items()
]


def check_answer(method: str, path: str, status: int, media_type: str, content: Any) -> None:
    """Fail unless the document allows an answer with this status, media type and content. `path` has no query."""
    if method == "OPTIONS" and status == 204:  # the answer to a browser, which no client asks for
        assert content is None
        return
    found = _find_operation(method, path)
    if found is None:
        assert status in (404, 405), f"{method} {path} is not a route and answered {status}"
        assert content["code"] in ("not_found", "method_not_allowed")
        return
    place, operation = found
    described = operation["responses"].get(str(status))
    assert described is not None, f"{method} {path}: {status} {content} is not described"
    if status >= 400:
        assert f"`{content['code']}`" in described["description"], f"{method} {path}: {content} is not described"
    if "content" not in described or status == 304 or method == "HEAD":
        assert content is None
        return
    fault = _answer_check(*place, str(status), media_type)(content)
    assert fault is None, f"{method} {path}: answer{fault}"


@cache
def _answer_check(path: str, method: str, status: str, media_type: str) -> FindFault:
    return make_check(DOCUMENT["paths"][path][method]["responses"][status]["content"][media_type]["schema"])


def _find_operation(method: str, path: str) -> tuple[tuple[str, str], dict[str, Any]] | None:
    """Return the operation of the document that a request asks for, and the path and the method that name it there."""
    as_get = "get" if method == "HEAD" else method.lower()
    found = [
        ((name, as_get), methods[as_get])
        for pattern, name, methods in _PATHS
        if as_get in methods and pattern.fullmatch(path)
    ]
    assert len(found) < 2, f"{method} {path} is two routes"
    return found[0] if found else None


@cache
def _named_check(name: str) -> FindFault:
    return make_check(_SCHEMAS[name])


def make_check(schema: dict[str, Any]) -> FindFault:
    """Return a function that compares values with a schema. It supports only the keywords that the document uses.

    The schema is read once and not for each value, because some tests compare a million values.
    """
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return lambda value: _named_check(name)(value)  # not made yet: a schema may contain itself
    choices = schema.get("anyOf") or schema.get("oneOf") or []
    fits = [make_check(choice) for choice in choices]
    kinds, listed = schema.get("type"), schema.get("enum")
    named = {kinds} if isinstance(kinds, str) else set(kinds or ())
    allowed = {kind for kind, names in _KINDS.items() if not named or names & named}
    is_time, items = schema.get("format") == "date-time", schema.get("items")
    find_in_list = None if items is None else make_check(items)
    find_in_object = _make_object_check(schema)

    def find_fault(value: Any) -> str | None:
        if fits and all(find(value) for find in fits):
            return f": {value!r} fits none of {choices}"
        kind = type(value)
        if kind not in allowed:
            return f": {value!r} is not {kinds}"
        if listed is not None and value not in listed:
            return f": {value!r} is none of {listed}"
        if is_time and kind is str and not _TIME.fullmatch(value):
            return f": {value!r} is no time"
        if kind is dict:
            return find_in_object(value)
        if kind is list and find_in_list is not None:
            for index, item in enumerate(value):
                if fault := find_in_list(item):
                    return f"[{index}]{fault}"
        return None

    return find_fault


def _make_object_check(schema: dict[str, Any]) -> Callable[[dict[str, Any]], str | None]:
    members = {name: make_check(member) for name, member in schema.get("properties", {}).items()}
    others, required = schema.get("additionalProperties"), schema.get("required", ())
    find_in_other = make_check(others) if isinstance(others, dict) else None
    closed = members or others is False  # without declared members, an object may have any

    def find_fault(value: dict[str, Any]) -> str | None:
        for name in required:
            if name not in value:
                return f": no {name}"
        for name, member in value.items():
            find = members.get(name, find_in_other)
            if find is not None:
                if fault := find(member):
                    return f".{name}{fault}"
            elif closed:
                return f".{name} is not described"
        return None

    return find_fault

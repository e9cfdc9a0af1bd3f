"""Compare each answer of a real service with the OpenAPI document.

The document alone decides which answers are right. This module has no other knowledge of the routes.
"""

import re
from decimal import Decimal
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
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_PATHS = [
    (
        re.compile(re.sub(r"\\\{operation\\\}", ".*", re.sub(r"\\\{(?!operation)\w+\\\}", "[^/]+", re.escape(path)))),
        methods,
    )
    for path, methods in DOCUMENT["paths"].items()
]


def check_answer(method: str, path: str, status: int, media_type: str, content: Any) -> None:
    """Fail unless the document allows an answer with this status, media type and content. `path` has no query."""
    if method == "OPTIONS" and status == 204:  # the answer to a browser, which no client asks for
        assert content is None
        return
    operation = _operation(method, path)
    if operation is None:
        assert status in (404, 405), f"{method} {path} is not a route and answered {status}"
        assert content["code"] in ("not_found", "method_not_allowed")
        return
    described = operation["responses"].get(str(status))
    assert described is not None, f"{method} {path}: {status} {content} is not described"
    if status >= 400:
        assert f"`{content['code']}`" in described["description"], f"{method} {path}: {content} is not described"
    if "content" not in described or status == 304 or method == "HEAD":
        assert content is None
        return
    fault = find_fault(content, described["content"][media_type]["schema"])
    assert fault is None, f"{method} {path}: answer{fault}"


def _operation(method: str, path: str) -> dict[str, Any] | None:
    as_get = "get" if method == "HEAD" else method.lower()
    found = [methods[as_get] for pattern, methods in _PATHS if pattern.fullmatch(path) and as_get in methods]
    assert len(found) < 2, f"{method} {path} is two routes"
    return found[0] if found else None


def find_fault(value: Any, schema: dict[str, Any]) -> str | None:
    """Return the first violation of the schema by a value, with the path of the member that is wrong.

    Support only the keywords that the document uses.
    """
    if "$ref" in schema:
        return find_fault(value, _SCHEMAS[schema["$ref"].rpartition("/")[2]])
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices and all(find_fault(value, choice) for choice in choices):
        return f": {value!r} fits none of {choices}"
    kinds = schema.get("type", ())
    if kinds and _KINDS[type(value)].isdisjoint([kinds] if isinstance(kinds, str) else kinds):
        return f": {value!r} is not {kinds}"
    if "enum" in schema and value not in schema["enum"]:
        return f": {value!r} is none of {schema['enum']}"
    if schema.get("format") == "date-time" and isinstance(value, str) and not _TIME.fullmatch(value):
        return f": {value!r} is no time"
    if isinstance(value, dict):
        return _find_fault_of_member(value, schema)
    if isinstance(value, list) and "items" in schema:
        faults = ((index, find_fault(item, schema["items"])) for index, item in enumerate(value))
        return next((f"[{index}]{fault}" for index, fault in faults if fault), None)
    return None


def _find_fault_of_member(value: dict[str, Any], schema: dict[str, Any]) -> str | None:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    missing = [name for name in schema.get("required", ()) if name not in value]
    if missing:
        return f": no {missing}"
    for name, member in value.items():
        described = properties.get(name, others)
        if isinstance(described, dict):
            fault = find_fault(member, described)
            if fault:
                return f".{name}{fault}"
        elif properties or others is False:  # without declared members, an object may have any
            return f".{name} is not described"
    return None

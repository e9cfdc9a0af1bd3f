"""Compare each answer of a real service with the OpenAPI document.

The document alone decides which answers are right. This module has no other knowledge of the routes.
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from config import Settings
from service.api import ROUTES
from service.health_routes import add_health_routes
from service.http.openapi import read_document

ROUTE_TABLE = add_health_routes(ROUTES)
DOCUMENT = read_document(ROUTE_TABLE, Settings())
_SCHEMAS = DOCUMENT["components"]["schemas"]
_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float, Decimal), "boolean": (bool,), "object": (dict,),
    "array": (list,), "null": (type(None),),
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
    schema = described["content"][media_type]["schema"]
    faults = list(faults_of(content, schema))
    assert not faults, f"{method} {path}: {faults[:3]}"


def _operation(method: str, path: str) -> dict[str, Any] | None:
    as_get = "get" if method == "HEAD" else method.lower()
    found = [methods[as_get] for pattern, methods in _PATHS if pattern.fullmatch(path) and as_get in methods]
    assert len(found) < 2, f"{method} {path} is two routes"
    return found[0] if found else None


def faults_of(value: Any, schema: dict[str, Any], where: str = "$") -> Iterator[str]:
    """Yield a text for each violation of the schema by a value. Support only the keywords that the document uses."""
    if "$ref" in schema:
        yield from faults_of(value, _SCHEMAS[schema["$ref"].rpartition("/")[2]], where)
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            found = [list(faults_of(value, choice, where)) for choice in schema[keyword]]
            if all(found):
                yield f"{where}: {value!r} fits none of {found}"
    kinds = schema.get("type")
    if kinds is not None and not _is_one_of(value, [kinds] if isinstance(kinds, str) else kinds):
        yield f"{where}: {value!r} is not {kinds}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is none of {schema['enum']}"
    if schema.get("format") == "date-time" and isinstance(value, str) and not _TIME.fullmatch(value):
        yield f"{where}: {value!r} is no time"
    if isinstance(value, dict):
        yield from _member_faults(value, schema, where)
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from faults_of(item, schema["items"], f"{where}[{index}]")


def _member_faults(value: dict[str, Any], schema: dict[str, Any], where: str) -> Iterator[str]:
    missing = set(schema.get("required", ())) - value.keys()
    if missing:
        yield f"{where}: no {missing}"
    properties, others = schema.get("properties"), schema.get("additionalProperties")
    for name, member in value.items():
        if properties is not None and name in properties:
            yield from faults_of(member, properties[name], f"{where}.{name}")
        elif isinstance(others, dict):
            yield from faults_of(member, others, f"{where}.{name}")
        elif properties or others is False:  # without declared members, an object may have any
            yield f"{where}: {name!r} is not described"


def _is_one_of(value: Any, kinds: list[str]) -> bool:
    if isinstance(value, bool):
        return "boolean" in kinds
    return any(isinstance(value, _KINDS[kind]) for kind in kinds)

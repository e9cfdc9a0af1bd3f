"""Test that the OpenAPI 3.1 document is valid and describes the routes correctly."""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from config import Settings
from docs import openapi_examples
from docs.openapi_document import find_status, list_codes
from service.contract.api_keys import Role
from service.contract.values import PATTERN_WORDS, PYTHON_END
from service.http.openapi import read_document
from tests.service.openapi_checks import DOCUMENT, ROUTE_TABLE, make_check
from tests.service.real_service import Service


def parts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for member in value.values():
            yield from parts(member)
    elif isinstance(value, list):
        for member in value:
            yield from parts(member)


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_the_document_has_every_route_once() -> None:
    described = sorted((path, method.upper()) for path, method, _ in operations())
    assert described == sorted((route.path, route.method) for route in ROUTE_TABLE)


def test_query_parameters_have_their_defaults_and_bounds() -> None:
    operation = DOCUMENT["paths"]["/v1/leaderboards/{board}/entries/{owner}/positions"]["get"]
    columns, rank, *_ = operation["parameters"][2:]
    assert (columns["schema"]["type"], columns["explode"]) == ("array", False)
    assert rank["schema"] == {"enum": ["auto", "estimate", "exact"], "default": "auto"}
    limit = DOCUMENT["paths"]["/v1/leaderboards/{board}/rankings/{column}"]["get"]["parameters"][2]
    assert limit["schema"] == {"type": "integer", "minimum": 1, "maximum": 1000}


def test_the_document_states_bounds_as_the_settings_have_them() -> None:
    settings = Settings(page_entries_max=700, query_values_max=71, posts_per_request_max=72, lease_s_max=73)
    told = read_document(ROUTE_TABLE, settings)
    schemas = told["components"]["schemas"]
    assert schemas["PostList"]["properties"]["posts"]["maxItems"] == 72
    assert schemas["ManyBoards"]["properties"]["boards"]["maxItems"] == 71
    assert schemas["AskLease"]["properties"]["lease_seconds"]["maximum"] == 73
    values = told["paths"]["/v1/leaderboards/{board}/rankings/{column}/values"]["get"]["parameters"]
    assert [parameter["schema"]["maxItems"] for parameter in values[2:]] == [71, 71]
    page = told["paths"]["/v1/leaderboards/{board}/rankings/{column}"]["get"]["parameters"]
    assert page[2]["schema"]["maximum"] == 700


def test_the_document_describes_204_without_content_and_routes_that_take_lines() -> None:
    assert "content" not in DOCUMENT["paths"]["/v1/leaderboards/{board}/entries/{owner}"]["delete"]["responses"]["204"]
    body = DOCUMENT["paths"]["/v1/leaderboards/{board}/posts"]["post"]["requestBody"]["content"]
    assert set(body) == {"application/json", "application/x-ndjson"}
    assert [each.get("type", "$ref") for each in body["application/json"]["schema"]["oneOf"]] == [
        "$ref", "$ref", "array"
    ]  # fmt: skip
    lookup = DOCUMENT["paths"]["/v1/leaderboards/{board}/entries/lookup"]["post"]["requestBody"]["content"]
    assert set(lookup) == {"application/json"}


def test_the_document_describes_every_problem_by_its_code_and_which_paths_need_a_key() -> None:
    for route in ROUTE_TABLE:
        operation = DOCUMENT["paths"][route.path][route.method.lower()]
        assert bool(operation["security"]) == (route.role is not None), "only open paths need no key"
        for code in list_codes(route):
            response = operation["responses"][str(find_status(route, code))]
            assert f"`{code}`" in response["description"]
            assert set(response["content"]) == {"application/problem+json"}


_CHECKED = {"$ref", "anyOf", "oneOf", "type", "enum", "format"}
_CHECKED |= {"required", "properties", "items", "additionalProperties"}
_OF_REQUESTS = {
    "exclusiveMinimum", "pattern", "minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum",
    "propertyNames", "uniqueItems", "contentMediaType", "contentSchema",
}  # fmt: skip
_FOR_PEOPLE = {"title", "description", "default"}


def keywords(schema: Any) -> Iterator[str]:
    """Yield every JSON Schema keyword in a schema. The names of properties are not keywords."""
    if isinstance(schema, dict):
        for keyword, value in schema.items():
            yield keyword
            for inner in value.values() if keyword == "properties" else [value]:
                yield from keywords(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from keywords(inner)


def test_the_checks_of_answers_know_every_keyword_that_the_schemas_use() -> None:
    used = {keyword for schema in DOCUMENT["components"]["schemas"].values() for keyword in keywords(schema)}
    assert used <= _CHECKED | _OF_REQUESTS | _FOR_PEOPLE


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        (1.5, {"type": "integer"}), (True, {"type": "integer"}), (None, {"type": "string"}), ("x", {"enum": ["y"]}),
        ({}, {"type": "object", "required": ["a"]}), ({"b": 1}, {"type": "object", "properties": {"a": {}}}),
        ({"a": "x"}, {"additionalProperties": {"type": "number"}}), ([1, "x"], {"items": {"type": "integer"}}),
        ("2026-01-01", {"type": "string", "format": "date-time"}),
        ({"column": "xp"}, {"$ref": "#/components/schemas/OwnerPositions"}),
        ([], {"anyOf": [{"type": "string"}, {"type": "null"}]}),
    ],
)  # fmt: skip
def test_an_answer_that_does_not_fit_its_schema_is_found(value: Any, schema: dict[str, Any]) -> None:
    assert make_check(schema)(value)


async def test_the_service_serves_this_very_document(service: Service) -> None:
    assert (await service.call("GET", "/openapi.json")).body == json.loads(json.dumps(DOCUMENT), parse_float=Decimal)


def test_the_document_describes_request_headers() -> None:
    parameters = DOCUMENT["paths"]["/v1/leaderboards/{board}/stream"]["get"]["parameters"]
    assert {"name": "Last-Event-ID", "in": "header", "required": False, "schema": {"type": "string"}} in parameters


def examples() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield each example with its place and its schema."""
    for path, method, operation in operations():
        for part in parts(operation):
            if "example" in part:
                yield f"{method} {path}", part["example"], part["schema"]


def test_a_service_that_lets_anyone_read_says_so_of_every_read_but_owners_posts() -> None:
    document = read_document(ROUTE_TABLE, Settings(anonymous_role="reader"))
    free = {
        each["operationId"]
        for methods in document["paths"].values()
        for each in methods.values()
        if {} in each["security"]
    }
    assert free == {route.view for route in ROUTE_TABLE if route.role is Role.READER} - {"owner_posts"}


def test_examples_are_made_of_types_that_exist() -> None:
    assert set(openapi_examples._BY_TYPE) <= set(DOCUMENT["components"]["schemas"])


def test_every_example_follows_its_schema() -> None:
    faults = {place: make_check(schema)(example) for place, example, schema in examples()}
    assert {place: fault for place, fault in faults.items() if fault} == {}


def test_every_operation_has_an_example_of_what_it_takes_and_of_what_it_answers() -> None:
    for path, method, operation in operations():
        if path in ("/", "/docs", "/metrics", "/openapi.json"):  # these take nothing, and answer no JSON or any
            continue
        described = [*operation.get("parameters", ()), operation.get("requestBody", {}), operation["responses"]]
        assert '"example"' in json.dumps(described), f"{method} {path}"


def _list_patterns(kind: Any, seen: set[Any]) -> Iterator[str]:
    """Yield the patterns that msgspec checks in values of a type."""
    if isinstance(kind, msgspec.inspect.StrType) and kind.pattern is not None:
        yield kind.pattern
    if isinstance(kind, msgspec.inspect.StructType):
        if kind.cls in seen:
            return
        seen.add(kind.cls)
        for field in kind.fields:
            yield from _list_patterns(field.type, seen)
    for name in ("type", "types", "item_type", "item_types", "key_type", "value_type"):
        inner = getattr(kind, name, ())
        for each in inner if isinstance(inner, tuple) else (inner,):
            yield from _list_patterns(each, seen)


def test_every_pattern_of_a_body_has_words_for_its_error() -> None:
    bodies = [
        kind for route in ROUTE_TABLE for kind in (route.body if isinstance(route.body, tuple) else (route.body,))
    ]
    found = {each for body in bodies if body for each in _list_patterns(msgspec.inspect.type_info(body), set())}
    assert len(found) >= 6
    assert all(each.endswith(PYTHON_END) for each in found), "`$` would allow a final line end"
    assert {each.removesuffix(PYTHON_END) + "$" for each in found} <= PATTERN_WORDS.keys()

"""Writes the OpenAPI 3.1 document from the routes, and from the types that parse requests and make answers.

This module holds no facts about single routes; whatever can't be derived from the code is in `docs/route_words.py`. If
a setting defines a bound, both the type and the document name the setting, and `service.http.openapi` replaces the name
with its value.
"""

import ast
import inspect
import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from types import NoneType
from typing import Any, get_args, get_type_hints

import msgspec

from docs.openapi_examples import FOREIGN_REQUEST, SHOWN_PARAMETERS, make_example
from docs.route_words import ROUTE_WORDS
from service.contract.api_keys import Role
from service.contract.lease_messages import CLIENT_PATTERN, LeaseKey
from service.contract.post_bodies import NDJSON_TYPE
from service.contract.problems import CODES, JSON_TYPE, POST_STATUSES, PROBLEM_TYPE, ProblemDocument
from service.contract.queries import VoidQuery, bound_of
from service.contract.requests import LIST_BOUNDS, OwnerName, PostId
from service.contract.routes import Reply, Route, Tagged, Types
from service.contract.values import (
    ALIASES_DESCRIPTION,
    ANY_BOARD_PATTERN,
    BOARD_PATTERN,
    COHORT_PATTERN,
    PATH_COLUMN_PATTERN,
    PYTHON_END,
    REF_TEMPLATE,
    UNION_MEMBERS,
    WEBHOOK_PATTERN,
)
from storage.boards.family_ids import FAMILY_PATTERN
from storage.rewards.grants import GRANT_PATTERN

Schema = dict[str, Any]

_PARAMETER = re.compile(r"\{(\w+)\}")
_PATH_SCHEMAS: dict[str, Schema] = {
    "board": {
        "type": "string",
        "pattern": ANY_BOARD_PATTERN,
        "description": f"`{BOARD_PATTERN}`; the id of a family's board is longer by its facet values."
        f" {ALIASES_DESCRIPTION}",
    },
    "column": {
        "type": "string",
        "pattern": PATH_COLUMN_PATTERN,
        "description": "A ranked column, or `-` if the leaderboard has only one.",
    },
    "family": {"type": "string", "pattern": FAMILY_PATTERN},
    "league": {"type": "string", "pattern": FAMILY_PATTERN},
    "cohort": {"type": "string", "pattern": COHORT_PATTERN},
    "webhook": {"type": "string", "pattern": WEBHOOK_PATTERN},
    "grant": {"type": "string", "pattern": GRANT_PATTERN},
    "operation": {
        "type": "string",
        "description": "The rest of the path, with slashes, in the protocol's own escapes.",
    },
    "id": {"type": "string", "description": "The id as the list shows it."},
    "file": {"type": "string", "description": "The name of the file as the page has it."},
    "client_id": {"type": "string", "pattern": CLIENT_PATTERN},
    "pool_id": {"type": "string", "pattern": CLIENT_PATTERN},
    "key": msgspec.json.schema(LeaseKey),
    "post_id": msgspec.json.schema(PostId),
    "owner": msgspec.json.schema(OwnerName),
}
_PATH_CODES = {
    "board": "unknown_board",
    "column": "unknown_column",
    "family": "unknown_family",
    "league": "unknown_family",
}
_DESCRIPTION = """Leaderboards over SQL: durable posts, and ranks from a fitted curve with their brackets.

* Ranks start at 1. Times are ISO 8601 in UTC. A time sent with another offset is converted, digits past microseconds \
are rounded, and times before 1970 are refused.
* Decimals are exact: numbers with the column's scale. They may be sent as strings, too: `-?\\d+(\\.\\d+)?`. Those \
sent may have an exponent (`2E-9`), and answers never have one.
* Owners are normalised to NFC, in bodies and paths alike.
* Errors are RFC 9457 problems with a stable `code`. After a request error nothing is applied. A post error concerns \
one post and is its `rejected` result.
* Whole numbers have neither a point nor an exponent.
* `application/x-ndjson` has one JSON value on each line; its schema is that of a line.
* A body without Content-Type is read as JSON in UTF-8.
* Each role includes the ones before it: reader, player, writer, ops. A player has a player token in place of an API \
key, and its requests concern the token's owner only. If no API key exists, every other caller is ops and the service \
listens on loopback only. `Host` then has to be a loopback name, and requests from web pages of other sites are refused.
* `X-Request-Id` is taken from the request if it is 1 to 64 characters of `A-Za-z0-9._:-`, and made otherwise. It \
is in every answer.
"""


def build_document(routes: Sequence[Route]) -> Schema:
    """Return the document, without a version. Its bounds may be names of settings."""
    used: set[type[msgspec.Struct]] = {*UNION_MEMBERS, ProblemDocument}
    for route in routes:
        used.update(_types(route.body), _types(_find_answer(route)[0]))
    types = sorted(used, key=lambda kind: kind.__name__)
    schemas, components = _components(types)
    refs = dict(zip(types, schemas, strict=True))
    paths: dict[str, Schema] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, refs)
    document: Schema = {
        "openapi": "3.1.0",
        "info": {"title": "rankcurve", "version": "", "description": _DESCRIPTION},
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "servers": [{"url": "/", "description": "The service that this document comes from."}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "The API key."},
                "basic": {"type": "http", "scheme": "basic", "description": "The API key as the password."},
            },
        },
        "tags": [{"name": tag} for tag in dict.fromkeys(route.tag for route in routes if route.tag)],
    }
    _add_examples(document)
    return document


def _components(types: Sequence[Any]) -> tuple[list[Schema], Schema]:
    """Return the schemas of types, and the components that they refer to. Enums are written out where they are used."""
    schemas, components = msgspec.json.schema_components(types, ref_template=REF_TEMPLATE)
    enums = {REF_TEMPLATE.format(name=name): each["enum"] for name, each in components.items() if "enum" in each}

    def inline(part: Any) -> Any:
        if isinstance(part, list):
            return [inline(each) for each in part]
        if not isinstance(part, dict):
            return part
        found: Schema = {}
        for name, each in part.items():
            if (name, each) == ("default", {}):  # some generators would make such a member a required one
                continue
            values = enums.get(each) if name == "$ref" else None
            each = each.replace(PYTHON_END, "$") if name == "pattern" and isinstance(each, str) else each
            # From Python 3.13 on, docstrings come without the indentation of their source.
            each = inspect.cleandoc(each) if name == "description" and isinstance(each, str) else each
            found |= {name: inline(each)} if values is None else {"enum": part.get("enum", values)}
        return found

    kept = {name: inline(each) for name, each in components.items() if "enum" not in each}
    for name, component in kept.items():
        for member, text in _member_texts(name).items():
            member = member.removesuffix("_")  # the name of a Python keyword
            component["properties"][member] = _describe(component["properties"][member], text)
    return inline(list(schemas)), kept


@cache
def _member_texts(name: str) -> dict[str, str]:
    """Return the text that follows each member in the source of a service's type and its bases, joined into one line.

    Members have the names that they have on the wire, so `from_` is `from`.
    """
    found: dict[str, str] = {}
    kind = next((each for each in _list_types(msgspec.Struct) if each.__name__ == name), msgspec.Struct)
    for base in kind.__mro__[: kind.__mro__.index(msgspec.Struct)]:
        [declared] = ast.parse(inspect.getsource(base)).body
        assert isinstance(declared, ast.ClassDef)
        for member, text in pairwise(declared.body):
            match member, text:
                case ast.AnnAssign(target=ast.Name(id=label)), ast.Expr(value=ast.Constant(value=str(description))):
                    found.setdefault(label.removesuffix("_"), " ".join(description.split()))
    return found


def _list_types(above: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for kind in above.__subclasses__():
        if kind.__module__.startswith(("service.", "docs.")):
            yield kind
        yield from _list_types(kind)


def _describe(schema: Schema, text: str) -> Schema:
    """Return a member's schema with a text. If the member may be null, the text goes to its other type."""
    if "anyOf" in schema:
        return schema | {"anyOf": [_describe(schema["anyOf"][0], text), *schema["anyOf"][1:]]}
    return {"description": text} | schema | {"description": text}


def _add_examples(document: Schema) -> None:
    """Add examples to parameters, to each body that a caller sends, and to each successful answer in JSON.

    An example request has the required parameters, and the optional ones that `SHOWN_PARAMETERS` names.
    """
    schemas = document["components"]["schemas"]
    for operation in (each for methods in document["paths"].values() for each in methods.values()):
        shown = SHOWN_PARAMETERS.get(operation["operationId"], ())
        for parameter in operation.get("parameters", ()):
            if parameter["required"] or parameter["name"] in shown:
                parameter["example"] = make_example(parameter["schema"], schemas, parameter["name"])
        for media in operation.get("requestBody", {}).get("content", {}).values():
            media["example"] = make_example(media["schema"], schemas) if media["schema"] else FOREIGN_REQUEST
        answers = [answer for status, answer in operation["responses"].items() if status < "300"]
        for number, answer in enumerate(answers):
            for media in answer.get("content", {}).values():
                if schema := media["schema"]:
                    # Where there is a type for each status, the types are in the order of the statuses.
                    choices = schema.get("oneOf", ())
                    chosen = choices[number] if len(choices) == len(answers) else schema
                    media["example"] = make_example(chosen, schemas)


def _types(declared: Types) -> tuple[type[msgspec.Struct], ...]:
    if isinstance(declared, tuple):
        return declared
    return () if declared is None else (declared,)


def _find_answer(route: Route) -> tuple[Types, tuple[int, ...]]:
    """Return the types and statuses of a route's answers, as declared or as annotated on its handler."""
    words = ROUTE_WORDS[route.view]
    found = get_type_hints(inspect.unwrap(route.handler))["return"]
    kinds = get_args(found) or (found,)
    statuses = (204,) if found is NoneType else (200, 304) if Tagged in kinds else (200,)
    types = tuple(kind for kind in kinds if issubclass(kind, msgspec.Struct) and kind not in (Reply, Tagged))
    return words.response or (types if len(types) > 1 else next(iter(types), None)), words.statuses or statuses


def _operation(route: Route, refs: dict[type[msgspec.Struct], Schema]) -> Schema:
    words = ROUTE_WORDS[route.view]
    role = "anyone" if route.role is None else route.role.name.lower()
    operation: Schema = {
        "operationId": route.view,
        "summary": words.summary,
        "description": f"{words.description}\n\nRole: {role}.".strip(),
        "security": [] if route.role is None else [{"bearer": []}, {"basic": []}],
        "x-role": role,
        "responses": _responses(route, refs),
    }
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _PATH_SCHEMAS[name]}
        for name in _PARAMETER.findall(route.path)
    ]
    if route.query is not None:
        parameters += [_query_parameter(route.query, field) for field in msgspec.structs.fields(route.query)]
    for name in words.request_headers:
        parameters.append({"name": name, "in": "header", "required": False, "schema": {"type": "string"}})
    if parameters:
        operation["parameters"] = parameters
    if route.tag:
        operation["tags"] = [route.tag]
    if route.body is not None:
        content: Schema = {JSON_TYPE: {"schema": _one_of(route.body, refs)}}
        operation["requestBody"] = {"required": not route.optional_body, "content": content}
        if route.ndjson:
            content[NDJSON_TYPE] = {"schema": refs[_types(route.body)[0]]}  # this describes one line of the body
            listed = {"type": "array", "items": refs[_types(route.body)[0]], **LIST_BOUNDS}
            content[JSON_TYPE]["schema"]["oneOf"].append(listed)
            lines = f"As `{NDJSON_TYPE}`, each line is one post; blank lines are skipped."
            operation["requestBody"]["description"] = lines
    elif route.takes_body:
        operation["requestBody"] = {"required": True, "content": {JSON_TYPE: {"schema": {}}}}
    return operation


def _query_parameter(query: type[msgspec.Struct], field: msgspec.structs.FieldInfo) -> Schema:
    schema = _without_null(_components([field.type])[0][0])
    if text := _member_texts(query.__name__).get(field.name):
        schema = _describe(schema, text)
    if bound := bound_of(query, field.encode_name):
        schema["maxItems" if schema.get("type") == "array" else "maximum"] = bound[0]
    parameter: Schema = {"name": field.encode_name, "in": "query", "required": field.required, "schema": schema}
    if schema.get("type") == "object":
        parameter |= {"style": "form", "explode": True}  # each member is sent as a parameter of its own
    if schema.get("type") == "array":
        parameter |= {"style": "form", "explode": False}
        schema.setdefault("minItems", 1)  # a query would send an empty list as one empty text
    if field.default not in (msgspec.NODEFAULT, None, (), ""):
        schema["default"] = field.default
    return parameter


def _without_null(schema: Schema) -> Schema:
    """Return a parameter's schema without null, because callers omit the parameter instead of sending null."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    return dict(choices[0]) if len(choices) == 1 else schema


def _one_of(declared: Types, refs: dict[type[msgspec.Struct], Schema]) -> Schema:
    found = [refs[kind] for kind in _types(declared)]
    return {"oneOf": found} if isinstance(declared, tuple) else found[0] if found else {}


def _responses(route: Route, refs: dict[type[msgspec.Struct], Schema]) -> Schema:
    request_id = {"X-Request-Id": {"schema": {"type": "string"}}}
    words = ROUTE_WORDS[route.view]
    declared, statuses = _find_answer(route)
    headers = request_id | ({"ETag": {"schema": {"type": "string"}}} if 304 in statuses else {})
    responses: Schema = {}
    for status in statuses:
        answer: Schema = {"description": words.summary, "headers": headers}
        if status not in (204, 304):
            schema = _one_of(declared, refs)
            if route.foreign_protocol and route.takes_body:  # a list of requests in the body gets a list of answers
                schema = {"anyOf": [schema, {"type": "array", "items": schema}]}
            answer["content"] = {words.media_type: {"schema": schema}}
        responses[str(status)] = answer
    by_status: dict[int, list[str]] = {}
    for code in list_codes(route):
        by_status.setdefault(find_status(route, code), []).append(code)
    for status, codes in sorted(by_status.items()):
        lines = "\n".join(f"* `{code}`: {CODES[code].title}." for code in codes)
        content = {PROBLEM_TYPE: {"schema": refs[ProblemDocument]}}
        responses[str(status)] = {"description": lines, "headers": request_id, "content": content}
    return responses


def find_status(route: Route, code: str) -> int:
    special = POST_STATUSES if route.ndjson or route.query is VoidQuery else {}
    return special.get(code, CODES[code].status)


def list_codes(route: Route) -> list[str]:
    """Return the problem codes that a route declares, and those implied by its role, path, query and body."""
    parameters = _PARAMETER.findall(route.path)
    codes = [_PATH_CODES[name] for name in parameters if name in _PATH_CODES and route.method != "PUT"]
    codes += ROUTE_WORDS[route.view].problems
    codes += ["column_needed"] if "column" in parameters else []
    names = [] if route.query is None else [field.encode_name for field in msgspec.structs.fields(route.query)]
    codes += ["owner_merged"] if "owner" in (*parameters, *names) else []
    if route.query is not None:
        codes += ["bad_cursor"] if "cursor" in names else []
        codes += [bound[1] for name in names if (bound := bound_of(route.query, name))]
    if parameters or route.query is not None or route.body is not None:
        codes.append("bad_request")
    if route.query is not None or route.body is not None:
        codes += ["unknown_field", "duplicate_field"]
    if route.foreign_protocol and route.takes_body:
        codes += ["bad_request", "bad_json", "body_too_large", "body_timeout", "too_many_bodies"]
    if route.body is not None:
        codes += ["bad_json", "body_too_large", "body_timeout", "too_many_bodies", "unsupported_media_type"]
    if route.role is not None:
        codes += ["unauthorized", "bad_token", "token_expired", "token_voided"]
        codes += ["store_busy", "partition_away", "store_damaged"]
    if route.role is Role.PLAYER:
        codes += ["foreign_owner", "foreign_board"]
    if route.role in (Role.PLAYER, Role.WRITER, Role.OPS) and route.method != "GET":
        codes += ["store_read_only", "store_full", "timeout"]
    if route.role in (Role.READER, Role.PLAYER):
        codes.append("rate_limited")
    return [*dict.fromkeys([*codes, "forbidden", "host_not_allowed", "internal"])]

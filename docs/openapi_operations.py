"""Lists the operations of an OpenAPI document in a form that suits readers.

`write_reference` writes the list as Markdown, and `api_page` writes it as a page. All facts come from the document. The
only markup in the texts is code in backticks.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Any, NamedTuple
from urllib.parse import quote

from docs.openapi_examples import Schema
from service.contract.problems import JSON_TYPE
from service.contract.values import (
    ANY_BOARD_PATTERN,
    COLUMN_PATTERN,
    DECIMAL_PATTERN,
    INT64_MAX,
    NO_CONTROL_PATTERN,
    PATH_COLUMN_PATTERN,
    SEARCH_PATTERN,
    TIER_PATTERN,
)

OPEN = "open"  # the role of requests that anyone may send
SSE_TYPE = "text/event-stream"
_CODE = re.compile(r"^\* `(\w+)`", re.MULTILINE)
_PATTERN_NAMES = {
    ANY_BOARD_PATTERN: "id of a leaderboard", COLUMN_PATTERN: "name of a column",
    PATH_COLUMN_PATTERN: "name of a column", DECIMAL_PATTERN: "decimal number",
    TIER_PATTERN: "name of a tier",
    NO_CONTROL_PATTERN: "text",  # the descriptions of owners and keys of leases say more
}  # fmt: skip
_FIRST_TAGS = ("Leaderboards", "Posting", "Owners", "Rankings", "Families", "Journal")  # what newcomers look for
_METHODS = ("GET", "PUT", "POST", "DELETE")
_LINE_CHARS_MAX = 116
_DEPTH_MAX = 3


class Field(NamedTuple):
    """A parameter of a request, or a member of its body. Nested members have names such as `columns[].name`."""

    name: str
    place: str  # path, query, header or body
    is_required: bool
    allowed: str  # which values it may have
    description: str


class Example(NamedTuple):
    """An example of a successful answer. `text` is empty if there is none to show."""

    statuses: tuple[str, ...]
    media_type: str  # empty if the answer has no body
    text: str


class Operation(NamedTuple):
    """A request of the API."""

    id: str
    tag: str
    method: str
    path: str
    role: str
    summary: str
    description: str
    fields: tuple[Field, ...]
    example_path: str
    example_body: str  # JSON text; empty if the request has no body
    is_stream: bool
    answers: tuple[Example, ...]
    codes: tuple[tuple[int, str], ...]  # status and problem code, in the order of the statuses

    def curl(self, base: str) -> str:
        """Return a shell command that sends the example request to the service at `base`, which may be a variable."""
        quoted = f'"{base}{self.example_path}"'
        options = "" if self.method == "GET" else f"-X {self.method} "
        command = f"curl {'-N ' if self.is_stream else ''}{options}{quoted}"
        if not self.example_body:
            return command
        sent = self.example_body.replace("'", "'\\''")
        return f"{command} \\\n  -H 'Content-Type: {JSON_TYPE}' -d '{sent}'"


def list_operations(document: Schema) -> list[Operation]:
    """Return a document's operations by tag. Within a tag, they are sorted by path and method."""
    tags = [*dict.fromkeys([*_FIRST_TAGS, *(tag["name"] for tag in document["tags"])])]
    schemas = document["components"]["schemas"]
    found = [
        _operation(path, method, operation, schemas)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    return sorted(found, key=lambda each: (tags.index(each.tag), each.path.split("/"), _METHODS.index(each.method)))


def list_path_fields(operations: Sequence[Operation]) -> list[Field]:
    """Return the parameters that are part of a path. A name means the same in every path."""
    found = {field.name: field for each in operations for field in each.fields if field.place == "path"}
    return [found[name] for name in sorted(found)]


def list_common_codes(operations: Sequence[Operation]) -> list[str]:
    """Return the problem codes that may answer any request that needs a role."""
    every = [{code for _, code in each.codes} for each in operations if each.role != OPEN]
    return sorted(reduce(and_, every))


def format_json(value: Any, indent: int = 0) -> str:
    """Return JSON text, in which anything that fits on one line stays there and short members share lines."""
    text = json.dumps(value, ensure_ascii=False)
    if len(text) + indent <= _LINE_CHARS_MAX or not isinstance(value, dict | list) or not value:
        return text
    inner = indent + 2
    if isinstance(value, dict):
        parts = [f"{json.dumps(name)}: {format_json(each, inner)}" for name, each in value.items()]
    else:
        parts = [format_json(each, inner) for each in value]
    lines = [parts[0]]
    for part in parts[1:]:
        if "\n" in lines[-1] + part or inner + len(f"{lines[-1]}, {part}") > _LINE_CHARS_MAX:
            lines.append(part)
        else:
            lines[-1] += f", {part}"
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    between = ",\n" + " " * inner
    return f"{opening}\n{' ' * inner}{between.join(lines)}\n{' ' * indent}{closing}"


def _operation(path: str, method: str, described: Schema, schemas: Mapping[str, Schema]) -> Operation:
    parameters = described.get("parameters", ())
    bodies = described.get("requestBody", {}).get("content", {})
    body = bodies.get(JSON_TYPE, {})
    role = described["x-role"]
    codes = [
        (int(status), code)
        for status, answer in described["responses"].items()
        for code in _CODE.findall(answer["description"])
        if status >= "400"
    ]
    answers = tuple(_answers(described["responses"]))
    return Operation(
        id=described["operationId"],
        tag=described["tags"][0],
        method=method.upper(),
        path=path,
        role=OPEN if role == "anyone" else role,
        summary=described["summary"],
        description=described["description"].removesuffix(f"Role: {role}.").strip(),
        fields=(*map(_parameter, parameters), *_body_fields(body.get("schema", {}), schemas)),
        example_path=_example_path(path, parameters),
        example_body=format_json(body["example"]) if "example" in body else "",
        is_stream=any(each.media_type == SSE_TYPE for each in answers),
        answers=answers,
        codes=tuple(codes),
    )


def _answers(responses: Mapping[str, Schema]) -> Iterator[Example]:
    """Yield the successful answers. Statuses with identical answers share an example."""
    found: dict[tuple[str, str], list[str]] = {}
    for status, answer in responses.items():
        if status < "400":
            media_type, media = next(iter(answer.get("content", {}).items()), ("", {}))
            found.setdefault((media_type, _example_text(media_type, media)), []).append(status)
    for (media_type, text), statuses in found.items():
        yield Example(tuple(statuses), media_type, text)


def _example_text(media_type: str, media: Schema) -> str:
    if "example" not in media or not ("json" in media_type or media_type == SSE_TYPE):
        return ""
    if media_type == SSE_TYPE:
        return "\n".join(f"{name}: {value}" for name, value in media["example"].items())
    return format_json(media["example"]) if media_type == JSON_TYPE else json.dumps(media["example"])


def _example_path(path: str, parameters: Sequence[Schema]) -> str:
    pairs = []
    for each in parameters:
        if "example" not in each:
            continue
        value = each["example"]
        if each["in"] == "path":
            path = path.replace(f"{{{each['name']}}}", quote(str(value), safe=""))
        elif isinstance(value, dict):
            pairs += [f"{name}={quote(str(inner))}" for name, inner in value.items()]
        else:
            members = value if isinstance(value, list) else [value]
            pairs.append(f"{each['name']}={','.join(quote(str(member)) for member in members)}")
    return f"{path}?{'&'.join(pairs)}" if pairs else path


def _parameter(described: Schema) -> Field:
    schema = described["schema"]
    description = _description_of(schema)
    if schema.get("type") == "object":
        description = f"{description} Each is a parameter of its own, such as `clan=fox`.".strip()
    allowed = _allowed(schema, {}, default=True)
    if described["in"] == "path" and "pattern" in schema and not description:
        allowed = f"text like `{schema['pattern']}`"
    return Field(described["name"], described["in"], described["required"], allowed, description)


def _body_fields(schema: Schema, schemas: Mapping[str, Schema], prefix: str = "", depth: int = 0) -> Iterator[Field]:
    """Yield the members of a body, each followed by its own members."""
    resolved = _resolve(schema, schemas)
    if "oneOf" in resolved:
        first, *others = resolved["oneOf"]
        yield from _body_fields(first, schemas, prefix, depth)
        for other in others:
            for field in _members(_resolve(other, schemas), schemas, prefix):
                yield field._replace(is_required=False, description="Many such objects, instead of all other members.")
        return
    members = resolved.get("properties", {})
    for field, member in zip(_members(resolved, schemas, prefix), members.values(), strict=True):
        yield field
        inner = _without_null(_resolve(member, schemas), schemas)
        name = field.name
        if inner.get("type") == "array":
            inner, name = _resolve(inner.get("items", {}), schemas), f"{name}[]"
        if depth < _DEPTH_MAX and "properties" in inner:
            yield from _body_fields(inner, schemas, f"{name}.", depth + 1)


def _members(schema: Schema, schemas: Mapping[str, Schema], prefix: str) -> Iterator[Field]:
    required = schema.get("required", ())
    for name, member in schema.get("properties", {}).items():
        inner = _without_null(_resolve(member, schemas), schemas)
        described = _description_of(member) or _description_of(inner) * ("properties" not in inner)
        yield Field(prefix + name, "body", name in required, _allowed(member, schemas, default=True), described)


def _resolve(schema: Schema, schemas: Mapping[str, Schema]) -> Schema:
    return schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def _without_null(schema: Schema, schemas: Mapping[str, Schema]) -> Schema:
    choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    return _resolve(choices[0], schemas) if len(choices) == 1 else schema


def _description_of(schema: Schema) -> str:
    described = schema.get("description") or next(
        (each["description"] for each in schema.get("anyOf", ()) if "description" in each), ""
    )
    return " ".join(described.split())


def _allowed(schema: Schema, schemas: Mapping[str, Schema], *, default: bool = False) -> str:
    """Describe the values that a schema allows."""
    inner = _without_null(_resolve(schema, schemas), schemas)
    text = _kind(inner, schemas)
    if default and schema.get("default") not in (None, {}, [], ""):
        value = schema["default"]
        text += f"; default `{value if isinstance(value, str) else json.dumps(value)}`"
    return text


def _kind(schema: Schema, schemas: Mapping[str, Schema]) -> str:
    if "enum" in schema:
        return _or([f"`{each}`" for each in schema["enum"]])
    if "anyOf" in schema:
        return _or([_allowed(each, schemas) for each in schema["anyOf"] if each != {"type": "null"}])
    match schema.get("type"):
        case "boolean":
            return "`true` or `false`"
        case "integer":
            return f"whole number{_range(schema)}"
        case "number":
            return f"number{_range(schema)}"
        case "array":
            return f"list{_counts(schema)}, each: {_allowed(schema.get('items', {}), schemas)}"
        case "object" if "additionalProperties" in schema and isinstance(schema["additionalProperties"], dict):
            return f"object with values by name, each: {_allowed(schema['additionalProperties'], schemas)}"
        case "object":
            return "object"
        case "string":
            return _text_kind(schema)
        case ["number", "string"]:
            return "decimal number"
    return "any JSON value"


def _text_kind(schema: Schema) -> str:
    if schema.get("format") == "date-time":
        return "time"
    pattern = schema.get("pattern", "")
    if pattern in _PATTERN_NAMES:
        return _PATTERN_NAMES[pattern]
    least, most = schema.get("minLength"), schema.get("maxLength")
    if most is not None:
        return f"text of {least or 0} to {most:,} characters"
    return "text" if pattern in ("", SEARCH_PATTERN) else f"text like `{pattern}`"


def _range(schema: Schema) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    most = None if most == INT64_MAX else most
    if "exclusiveMinimum" in schema:
        return f" above {schema['exclusiveMinimum']:,}" + ("" if most is None else f", at most {most:,g}")
    if least is None:
        return "" if most is None else f" up to {most:,}"
    return f" from {least:,}" if most is None else f" from {least:,} to {most:,}"


def _counts(schema: Schema) -> str:
    least, most = schema.get("minItems", 0), schema.get("maxItems")
    return "" if most is None else f" of {least} to {most:,}"


def _or(texts: Sequence[str]) -> str:
    return " or ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)

"""Writes the TypeScript client's types from the OpenAPI document."""

import json
import textwrap
from collections.abc import Iterator, Mapping

from docs.openapi_examples import Schema

ABOUT = """/**
 * The types of requests and answers. `docs/write_reference.py` writes this file from the service's OpenAPI document,
 * and a test compares the two.
 */
"""
TEXT_WIDTH = 111


def write_typescript_types(document: Schema) -> str:
    """Return `api.ts`, which has a type for each schema, and for each operation's query, body and answer."""
    lines = [ABOUT]
    for name, schema in document["components"]["schemas"].items():
        lines += [*_comment(schema, ""), f"export type {name} = {_type(schema)};", ""]
    lines += [
        "/** Values of facets, by the names of the facets. */",
        "export type Facets = Record<string, string | number | undefined>;",
        "",
        "/** By the name of an operation: what it takes, and what it answers with the status 200 or 201. */",
        "export interface Operations {",
    ]
    for described in (each for methods in document["paths"].values() for each in methods.values()):
        query = [each for each in described.get("parameters", ()) if each["in"] == "query"]
        lines += [
            f"  {described['operationId']}: {{",
            f"    query: {_members({each['name']: each for each in query}, '    ')};",
            f"    body: {_json_type(described.get('requestBody', {}))};",
            f"    answer: {_json_type(described['responses'].get('200') or described['responses'].get('201', {}))};",
            "  };",
        ]
    return "\n".join([*lines, "}", ""])


def _json_type(described: Schema) -> str:
    media = described.get("content", {}).get("application/json")
    return _type(media["schema"], "    ") if media else "never"


def _members(parameters: Mapping[str, Schema], indent: str) -> str:
    """Return the type of a query. Parameters whose names are not fixed, such as facets, may have any name."""
    named = {name: each["schema"] for name, each in parameters.items() if each["schema"].get("type") != "object"}
    required = [name for name, each in parameters.items() if each["required"]]
    text = _type({"type": "object", "properties": named, "required": required}, indent) if named else "{}"
    return text if len(named) == len(parameters) else f"{text} & Facets"


def _type(schema: Schema, indent: str = "") -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "enum" in schema or "const" in schema:
        return " | ".join(json.dumps(each) for each in schema.get("enum", [schema.get("const")]))
    for union in ("oneOf", "anyOf"):
        if union in schema:
            return " | ".join(dict.fromkeys(_type(each, indent) for each in schema[union]))
    match schema.get("type"):
        case list(kinds):
            return " | ".join(dict.fromkeys(_type({**schema, "type": kind}, indent) for kind in kinds))
        case "integer" | "number":
            return "number"
        case "string" | "boolean" | "null" as kind:
            return str(kind)
        case "array":
            return f"Array<{_type(schema.get('items', {}), indent)}>"
        case "object" if schema.get("properties"):
            return "{\n" + "".join(f"{line}\n" for line in _properties(schema, indent + "  ")) + indent + "}"
        case "object":
            rest = schema.get("additionalProperties")
            return f"Record<string, {_type(rest, indent) if isinstance(rest, dict) else 'unknown'}>"
    return "unknown"


def _properties(schema: Schema, indent: str) -> Iterator[str]:
    for name, each in schema["properties"].items():
        yield from _comment(each, indent)
        mark = "" if name in schema.get("required", ()) else "?"
        yield f"{indent}{name if name.isidentifier() else json.dumps(name)}{mark}: {_type(each, indent)};"


def _comment(schema: Schema, indent: str) -> Iterator[str]:
    text = " ".join(str(schema.get("description", "")).split()).replace("*/", "* /")
    lines = textwrap.wrap(text, TEXT_WIDTH, break_long_words=False, break_on_hyphens=False)
    if len(lines) == 1:
        yield f"{indent}/** {lines[0]} */"
    elif lines:
        yield from (f"{indent}/**", *(f"{indent} * {line}" for line in lines), f"{indent} */")

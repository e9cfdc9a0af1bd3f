"""`rankcurve mcp`: offers the requests of a service to language models as tools (Model Context Protocol) over stdio.

The tools are made from the service's own OpenAPI document, so their names, descriptions and bounds can never be out of
date. A tool has the parameters of its operation, and a `body` if the operation has one.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer
from rankcurve import AsyncClient, RankcurveError
from rankcurve.answers import Record

from service.commands.request_commands import fill_path
from service.commands.target import fail, service_command
from service.contract.problems import JSON_TYPE

if TYPE_CHECKING:
    import mcp_types
    from mcp.server.lowlevel import Server

Role = Literal["reader", "writer", "ops"]
ROLES = ("reader", "player", "writer", "ops")  # each may do what those before it may
DESTRUCTIVE = ("reset_board", "reset_family")  # apart from operations with the method DELETE
COMPONENT = re.compile(r"#/components/schemas/(\w+)")
INSTRUCTIONS = (
    "Leaderboards of a game. A position has a rank and a bracket from low to high that the true rank lies in. "
    "Values are exact decimals: send them as strings if they have many digits."
)


class Operation(NamedTuple):
    """An operation that is offered as a tool. `query` has the names of its query parameters."""

    method: str
    path: str
    query: frozenset[str]
    tool: mcp_types.Tool


@service_command()
async def serve_tools(
    client: AsyncClient,
    role: Annotated[
        Role, typer.Option(help="Offer the requests that this role may make. The key must have at least this role.")
    ] = "reader",
) -> None:
    """Offer the service's requests to a language model, as tools over stdin and stdout (MCP).

    Tools that delete or empty something are marked as destructive. By default all tools only read; `--role` offers
    more. Needs the package mcp: `pip install 'rankcurve[mcp]'`.
    """
    try:
        from mcp.server.stdio import stdio_server
    except ImportError:
        fail("rankcurve mcp needs the package mcp: pip install 'rankcurve[mcp]'")
    document = json.loads(await client.request("GET", "/openapi.json", bytes))
    server = make_server(client, {each.tool.name: each for each in list_operations(document, role)})
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def make_server(client: AsyncClient, operations: dict[str, Operation]) -> Server:
    """Make a server that lists the tools and sends their requests. A refused request is an error of the tool."""
    import mcp_types as types
    from mcp.server.lowlevel import Server

    async def list_tools(_: object, __: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[each.tool for each in operations.values()])

    async def call_tool(_: object, call: types.CallToolRequestParams) -> types.CallToolResult:
        answered = False
        try:
            if (operation := operations.get(call.name)) is None:
                text = f"there is no tool {call.name!r}"
            else:
                text, answered = await send(client, operation, call.arguments or {}), True
        except KeyError as missing:
            text = f"the parameter {missing} is missing"
        except RankcurveError as error:
            text = str(error)
        return types.CallToolResult(content=[types.TextContent(text=text)], is_error=not answered)

    version = importlib.metadata.version("rankcurve")
    return Server(
        "rankcurve", version=version, instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )


async def send(client: AsyncClient, operation: Operation, given: Mapping[str, Any]) -> str:
    """Send the request of a tool and return the answer's text. Raises KeyError if the path lacks a parameter."""
    path = fill_path(operation.path, given)
    query = {name: value for name, value in given.items() if name in operation.query}
    content = await client.request(operation.method, path, bytes, query=query, body=given.get("body"))
    return content.decode() or "done"


def list_operations(document: Record, role: Role) -> Iterator[Operation]:
    """Yield the operations of an OpenAPI document that `role` may call, except streams and those that need no role."""
    from mcp_types import Tool, ToolAnnotations

    allowed = ROLES[: ROLES.index(role) + 1]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if operation["x-role"] not in allowed or not path.startswith("/v1/") or not _is_finite(operation):
                continue
            name = operation["operationId"]
            yield Operation(
                method.upper(),
                path,
                frozenset(each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"),
                Tool(
                    name=name,
                    title=operation["summary"],
                    description=operation.get("description") or operation["summary"],
                    input_schema=_input_schema(operation, document["components"]["schemas"]),
                    annotations=ToolAnnotations(
                        read_only_hint=operation["x-role"] == ROLES[0],
                        destructive_hint=method == "delete" or name in DESTRUCTIVE,
                        idempotent_hint=method != "post",
                        open_world_hint=False,
                    ),
                ),
            )


def _is_finite(operation: Record) -> bool:
    return "text/event-stream" not in operation["responses"].get("200", {}).get("content", {})


def _input_schema(operation: Record, schemas: Record) -> Record:
    taken = [each for each in operation.get("parameters", ()) if each["in"] in ("path", "query")]
    properties = {each["name"]: {**each["schema"], "description": each.get("description", "")} for each in taken}
    required = [each["name"] for each in taken if each.get("required")]
    if (body := operation.get("requestBody")) is not None:
        properties["body"] = body["content"][JSON_TYPE]["schema"]
        required += ["body"] if body.get("required") else []
    named: Record = {}
    schema: Record = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    schema["$defs"] = named
    while missing := {*COMPONENT.findall(json.dumps(schema))} - named.keys():
        named |= {kind: schemas[kind] for kind in missing}
    schema = json.loads(COMPONENT.sub(r"#/$defs/\1", json.dumps(schema)))
    return schema

"""Test `rankcurve mcp` with the client of the library itself, over stdio, against a real service."""

import importlib.metadata
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client
from mcp_types import CallToolResult, Tool

from tests.service.cli_fake_service import run_at
from tests.service.real_service import ROOT, Process

DESTRUCTIVE = {
    "void_post", "void_family_post", "delete_board", "delete_family", "erase_entry", "erase_owner", "reset_board",
}  # fmt: skip


@asynccontextmanager
async def talking_to(serving: Process, *options: str) -> AsyncIterator[Client]:
    arguments = ["-m", "service.cli", "mcp", "--url", serving.url, *options]
    process = StdioServerParameters(command=sys.executable, args=arguments, cwd=ROOT)
    async with Client(stdio_client(process)) as client:
        yield client


async def list_tools(client: Client) -> dict[str, Tool]:
    return {tool.name: tool for tool in (await client.list_tools()).tools}


def text_of(result: CallToolResult) -> str:
    return "".join(part.text for part in result.content if part.type == "text")


async def call(client: Client, name: str, **arguments: object) -> object:
    result = await client.call_tool(name, arguments)
    assert not result.is_error, text_of(result)
    return json.loads(text_of(result))


async def test_a_model_creates_a_board_posts_and_reads_a_position(serving: Process) -> None:
    async with talking_to(serving, "--role", "ops") as client:
        columns = [{"name": "lap", "sorted": True, "merge": "min", "scale": 3}]
        await call(client, "create_board", board="laps", body={"columns": columns})
        posts = [{"owner": "ada", "stats": {"lap": "61.204"}}, {"owner": "bob", "stats": {"lap": 59.1}}]
        await call(client, "post", board="laps", body={"posts": posts})
        page = await call(client, "page", board="laps", column="lap", limit=1)
        assert isinstance(page, dict)
        assert [entry["owner"] for entry in page["entries"]] == ["bob"]
        positions = await call(client, "positions", board="laps", owner="ada", columns=["lap"])
        assert isinstance(positions, dict)
        assert [each["rank"] for each in positions["positions"]] == [2]


@pytest.mark.parametrize("role", ["reader", "writer", "ops"])
async def test_a_role_sees_its_tools_and_those_that_destroy_are_marked(serving: Process, role: str) -> None:
    async with talking_to(serving, "--role", role) as client:
        assert client.server_info is not None
        assert client.server_info.version == importlib.metadata.version("rankcurve")
        tools = await list_tools(client)
    destroying = {name for name, tool in tools.items() if tool.annotations and tool.annotations.destructive_hint}
    reading = {name for name, tool in tools.items() if tool.annotations and tool.annotations.read_only_hint}
    assert "positions" in reading
    assert "stream" not in tools
    assert ("post" in tools) == (role != "reader")
    assert (set(tools) == reading) == (role == "reader")
    assert destroying >= DESTRUCTIVE if role == "ops" else not destroying & DESTRUCTIVE
    assert not destroying & reading


async def test_every_reference_of_a_tool_leads_to_a_definition_of_the_tool(serving: Process) -> None:
    async with talking_to(serving, "--role", "ops") as client:
        schemas = [tool.input_schema for tool in (await list_tools(client)).values()]
    for schema in schemas:
        for part in json.dumps(schema).split('"$ref": "')[1:]:
            assert part.partition('"')[0].removeprefix("#/$defs/") in schema["$defs"]


async def test_a_refused_request_is_an_error_of_the_tool_and_says_why(serving: Process) -> None:
    async with talking_to(serving) as client:
        result = await client.call_tool("board", {"board": "nowhere"})
        assert result.is_error
        assert "nowhere" in text_of(result)
        for name, arguments, said in (("board", {}, "board"), ("delete_board", {"board": "laps"}, "no tool")):
            refused = await client.call_tool(name, arguments)
            assert refused.is_error
            assert said in text_of(refused)


def test_without_a_service_the_command_says_so() -> None:
    assert "rankcurve serve" in run_at("http://127.0.0.1:9", "mcp", code=1).stderr

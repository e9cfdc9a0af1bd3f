"""Tests the private parts of dependencies that the product uses. A dependency may change them in any release.

So `pyproject.toml` bounds the version of these dependencies. Whoever raises a bound runs these tests.
"""

import ast
import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import pytest
from aiohttp import base_protocol, web, web_protocol
from asyncpg.protocol import protocol

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[1]
# By the file that uses the private parts: the class that has them, the name, and the parameters of a function. None: an
# attribute of the instances.
Parts = list[tuple[Any, str, list[str] | None]]
PARTS: dict[str, tuple[str, Parts]] = {
    "service/http/malformed.py": (
        "aiohttp",
        [
            (web_protocol._ErrInfo, "__init__", ["self", "status", "exc", "message"]),
            (base_protocol.BaseProtocol, "_loop", None),
            (web.RequestHandler, "_messages", None),
            (web.RequestHandler, "_request_count", None),
            (web.RequestHandler, "_waiter", None),
        ],
    ),
    "service/http/fast_json.py": ("aiohttp", [(web.StreamResponse, "_prepare_headers", ["self"])]),
    "storage/engines/sqlite.py": (
        "aiosqlite",
        [
            (aiosqlite.Connection, "_conn", None),
            (aiosqlite.Connection, "_connection", None),
            (aiosqlite.Connection, "_connector", None),
            (aiosqlite.Connection, "_execute", ["self", "fn", "args", "kwargs"]),
            (aiosqlite.Connection, "_thread", None),
        ],
    ),
    "storage/engines/postgres_connection.py": (
        "asyncpg",
        [
            (asyncpg.Connection, "_cancel_current_command", ["self", "waiter", "cancel_waiter"]),
            (asyncpg.Connection, "_protocol", None),
            (asyncpg.Connection, "_transport", None),
            (protocol.BaseProtocol, "get_settings", ["self"]),
            (protocol.ConnectionSettings, "register_data_types", ["self", "types"]),
        ],
    ),
}


@pytest.mark.parametrize("file", PARTS)
def test_a_private_part_of_a_dependency_is_as_the_product_uses_it(file: str) -> None:
    for owner, name, parameters in PARTS[file][1]:
        if parameters is None:
            made = re.search(rf"self\.{name}\b[^=\n]* = ", inspect.getsource(owner.__init__))
            assert made is not None or name in vars(owner), f"{owner} has no {name}"
        else:
            assert list(inspect.signature(getattr(owner, name)).parameters) == parameters, f"{owner} {name}"


@pytest.mark.parametrize("file", PARTS)
def test_every_private_part_that_a_file_uses_is_tested(file: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr.startswith("_")]
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    own = {node.attr for node in found if isinstance(node.ctx, ast.Store)} | functions
    tested = {name for _, name, _ in PARTS[file][1]}
    ours = {"_replace", "__init__", "__name__"} | own
    assert {node.attr for node in found} - ours <= tested


def test_a_dependency_with_private_parts_in_use_has_an_upper_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounded = {wanted.partition(">")[0] for wanted in project["dependencies"] if "<" in wanted}
    assert {package for package, _ in PARTS.values()} <= bounded

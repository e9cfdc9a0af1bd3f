"""A fake service, so that commands are tested over real HTTP without a store.

The fake follows the wire contract as far as commands need it, and records the requests that it receives.
"""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from aiohttp import web
from typer.testing import CliRunner, Result

from service.cli import app as cli_app
from service.contract.problems import TYPE_PREFIX
from service.contract.values import DECIMAL_PATTERN
from tests.clients.served import serving_handler


@dataclass
class FakeBoard:
    spec: dict[str, Any]
    stats: dict[str, dict[str, Any]] = field(default_factory=dict)
    post_ids: set[tuple[str, str]] = field(default_factory=set)


@dataclass
class FakeService:
    """The state and the request handlers of the fake service. A test sets the fields before it runs a command."""

    url: str = ""
    boards: dict[str, FakeBoard] = field(default_factory=dict)
    families: dict[str, dict[str, Any]] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    batches: list[list[dict[str, Any]]] = field(default_factory=list)
    failures: list[tuple[int, dict[str, str], str]] = field(default_factory=list)
    refused_owners: set[str] = field(default_factory=set)
    estimates: bool = False
    rejected_owners: set[str] = field(default_factory=set)
    posts_before_outage: int | None = None
    post_failure: tuple[int, str] | None = None

    def add_board(self, board: str, *columns: dict[str, Any], **more: Any) -> FakeBoard:
        defaults = {"sorted": True, "merge": "max", "best": "high", "scale": 0, "type": "decimal"}
        self.boards[board] = FakeBoard({"columns": [defaults | column for column in columns], "ties": "shared"} | more)
        return self.boards[board]

    def xp(self, board: str) -> dict[str, str]:
        return {owner: stats["xp"] for owner, stats in self.boards[board].stats.items()}

    async def handle(self, request: web.Request) -> web.Response:
        path = request.raw_path
        self.requests.append((request.method, path))
        self.headers.append(dict(request.headers))
        if self.failures:
            status, headers, code = self.failures.pop(0)
            return problem(status, code, headers=headers)
        parts = [unquote(part) for part in path.partition("?")[0].strip("/").split("/")]
        match parts:
            case ["readyz"]:
                return web.Response(text="ready")
            case ["v1", "leaderboards"]:
                return self.list_boards(request)
            case ["v1", "leaderboards", board, *rest]:
                return await self.on_board(request, board, rest)
            case ["v1", "families", family, *rest]:
                return await self.on_family(request, family, rest)
        return problem(404, "not_found")

    async def on_family(self, request: web.Request, family: str, rest: list[str]) -> web.Response:
        if request.method == "PUT":
            self.families[family] = await request.json()
            return answer({"id": family} | self.families[family], status=201)
        if family not in self.families:
            return problem(404, "unknown_family", f"no family {family}")
        match rest:
            case ["boards"]:
                return answer({"board": f"{family}:{request.query['period']}:org={request.query.get('org')}"})
        if request.method == "DELETE":
            del self.families[family]
            return web.Response(status=204)
        return answer({"id": family, "boards": 3} | self.families[family])

    def list_boards(self, request: web.Request) -> web.Response:
        names = sorted(name for name in self.boards if name.startswith(request.query.get("prefix", "")))
        start, limit = int(request.query.get("cursor", "0")), min(int(request.query["limit"]), 2)
        found = [{"id": name} | self.boards[name].spec for name in names[start : start + limit]]
        return answer({"leaderboards": found, "next": str(start + limit) if start + limit < len(names) else None})

    async def on_board(self, request: web.Request, board: str, rest: list[str]) -> web.Response:
        if request.method == "PUT" and not rest:
            spec = await request.json()
            known = board in self.boards
            self.boards.setdefault(board, FakeBoard(spec)).spec = spec
            return answer({"id": board} | spec, status=200 if known else 201)
        if board not in self.boards:
            return problem(404, "unknown_board", f"no leaderboard {board}")
        held = self.boards[board]
        if request.method == "DELETE":
            del self.boards[board]
            return web.Response(status=204)
        if rest[:2] == ["rankings", "-"]:
            ranked = [column["name"] for column in held.spec["columns"] if column["sorted"]]
            if not ranked:
                return problem(404, "unknown_column", f"{board} has no ranked column")
            if len(ranked) > 1:
                return problem(400, "column_needed", f"{board} has several ranked columns: name one of {ranked}")
            rest[1:2] = ranked
        match rest:
            case []:
                return answer({"id": board, "entries": len(held.stats)} | held.spec)
            case ["posts"]:
                return await self.on_posts(request, held)
            case ["rankings", column]:
                return page(request, held, column, exact=not self.estimates)
            case ["rankings", column, "refresh"]:
                total = len(held.stats)
                return answer(
                    {
                        "column": column,
                        "method": "skip",
                        "total": total,
                        "as_of": "2026-11-20T10:00:00Z",
                        "seconds": 0.016,
                    }
                )
            case ["rankings", column, "positions"]:
                return answer({"positions": [position(column, value) for value in request.query["values"].split(",")]})
            case ["entries", owner, "positions"]:
                columns = request.query.get("columns", "xp").split(",")
                return answer({"owner": owner, "positions": [position(column, "600") for column in columns]})
        return problem(404, "not_found")

    async def on_posts(self, request: web.Request, board: FakeBoard) -> web.Response:
        posts = (await request.json())["posts"]
        if self.posts_before_outage is not None and len(self.batches) >= self.posts_before_outage:
            return problem(500, "internal")
        if self.post_failure is not None:
            return problem(*self.post_failure)
        if any(post["owner"] in self.refused_owners for post in posts):
            return problem(422, "bad_value", "the owner is not acceptable")
        self.batches.append(posts)
        return answer({"results": [self.apply(board, post) for post in posts]})

    def apply(self, board: FakeBoard, post: dict[str, Any]) -> dict[str, Any]:
        owner = post["owner"]
        if owner in self.rejected_owners:
            error = {"code": "value_out_of_range", "detail": "too large", "errors": [{"pointer": "/stats/xp"}]}
            return {"owner": owner, "status": "rejected", "error": error}
        if (owner, post["post_id"]) in board.post_ids:
            return {"owner": owner, "status": "duplicate"}
        numbers = {column["name"] for column in board.spec["columns"] if column.get("type") != "text"}
        for name, value in post["stats"].items():
            if name in numbers and not re.fullmatch(DECIMAL_PATTERN, str(value)):
                error = {"code": "bad_value", "detail": f"{value!r} is not a decimal number", "errors": []}
                return {"owner": owner, "status": "rejected", "error": error}
        board.post_ids.add((owner, post["post_id"]))
        board.stats.setdefault(owner, {}).update(post["stats"])
        return {"owner": owner, "status": "applied", "updated_at": "2026-11-20T10:00:00Z", "stats": post["stats"]}


def page(request: web.Request, board: FakeBoard, column: str, *, exact: bool) -> web.Response:
    rows = sorted(board.stats.items(), key=lambda row: (-Decimal(row[1][column]), row[0]))
    start = int(request.query.get("cursor", request.query.get("from_rank", "1"))) - 1
    end = start + int(request.query["limit"])
    entries = [
        f'{{"rank": {start + i + 1}, "exact": {json.dumps(exact)}, "owner": {json.dumps(owner)}, '
        f'"value": {stats[column]}, "updated_at": "2026-11-20T10:00:00Z", "stats": {json.dumps(stats)}}}'
        for i, (owner, stats) in enumerate(rows[start:end])
    ]
    following = f'"{end + 1}"' if end < len(rows) else "null"
    text = f'{{"column": "{column}", "total": {len(rows)}, "entries": [{",".join(entries)}], "next": {following}}}'
    return web.Response(text=text, content_type="application/json")


def position(column: str, value: str) -> dict[str, Any]:
    bracket = {"rank": 12345, "low": 12301, "high": 12390, "exact": False, "method": "curve", "total": 343000}
    return {"column": column, "value": int(value), "percentile": 96.401, "as_of": "2026-11-20T10:00:00Z"} | bracket


def answer(body: object, *, status: int = 200) -> web.Response:
    return web.json_response(body, status=status)


def problem(status: int, code: str, detail: str = "as asked", headers: dict[str, str] | None = None) -> web.Response:
    body = {"type": TYPE_PREFIX + code, "title": code, "status": status, "detail": detail, "code": code, "errors": []}
    return web.json_response(body, status=status, headers=headers, content_type="application/problem+json")


@contextmanager
def running_fake() -> Iterator[FakeService]:
    """Run a fake service on a free loopback port.

    It runs in a thread, because a command runs an event loop of its own.
    """
    fake, loop, serves, ended = FakeService(), asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with serving_handler(fake.handle) as fake.url:
            serves.set()
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert serves.wait(10)
    try:
        yield fake
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(10)
        loop.close()


def run(*arguments: str, fake: FakeService | None = None, stdin: str | None = None, code: int | None = None) -> Result:
    """Run `rankcurve` in this process, against `fake` if that is given. Fail if the exit code is not `code`."""
    environ: dict[str, str | None] = {"RANKCURVE_URL": fake.url if fake else "", "RANKCURVE_KEY": "", "COLUMNS": "200"}
    environ["RANKCURVE_TEST_STORE"] = None  # the variable of the tests is no setting
    result = CliRunner().invoke(cli_app, list(arguments), input=stdin, env=environ)
    assert code in (None, result.exit_code), result.output
    return result


def run_at(url: str, *arguments: str, code: int = 0, typed: str | None = None) -> Result:
    """Run `rankcurve` in this process, against the service at `url`. Fail if the exit code is not `code`."""
    result = CliRunner().invoke(cli_app, [*arguments, "--url", url], input=typed)
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def make_key(folder: Path, role: str, name: str = "somebody") -> str:
    """Create an API key in the SQLite store of a folder, as an operator does. Return the text of the key."""
    words = ("keys", "create", name, "--role", role, "--store", f"sqlite:///{folder}/rankcurve.db")
    return run(*words, code=0).stdout.strip()

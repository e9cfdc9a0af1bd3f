"""A real service for tests: in this process on a SQLite file, or as a separate process that runs `rankcurve serve`.

No part of the service is fake. Requests use HTTP, and every answer is compared with the OpenAPI document.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Self
from urllib.parse import quote

import pytest
from aiohttp import ClientSession, ClientTimeout, web
from prometheus_client.parser import text_string_to_metric_families
from yarl import URL

from config import Settings, load
from service.api import ROUTES
from service.app import make_server
from service.context import Context
from service.contract.post_bodies import NDJSON_TYPE
from service.processes.node import listen_on
from service.serve import serve_fronts
from service.stores import OwnerSockets
from service.telemetry.metrics.process import Metrics
from service.wiring import now_us, open_context
from tests.servers import READY_S
from tests.service.openapi_checks import check_answer

ROOT = Path(__file__).parents[2]
WAIT_S = READY_S  # no test waits longer; beside other load, a start can take half a minute
PROGRAM = (sys.executable, "-m", "service.cli")
SERVE = ("serve", "--port", "0")
Figures = dict[tuple[str, ...], float]
NEVER_BUSY = {"crowd_min": 1_000_000}  # only a test that wants it makes its service busy
# For tests that change or watch what one process holds in its memory: its clock, API keys, curves, or how busy it is.
ONE_PROCESS = pytest.mark.parametrize("either_store", ["sqlite", "postgres"], indirect=True)
RARELY = {"refresh_seconds": 86_400}  # longer than any test, so curves are refreshed only on request


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the service. Decimal numbers in the body are `Decimal` objects."""

    status: int
    body: Any
    headers: Mapping[str, str]


class Caller:
    """Send requests to a service. Send paths unchanged, including percent escapes."""

    changed_at: ClassVar[datetime] = datetime.now(UTC)  # of the last answer that any caller got, except to a GET

    def __init__(self, base: str, key: str | None = None) -> None:
        self.base = base
        self.headers = bearer(key) if key else {}
        self._session: ClientSession | None = None

    async def __aenter__(self) -> Caller:
        self._session = ClientSession(timeout=ClientTimeout(WAIT_S))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def call(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send one request. If `body` is bytes, send it unchanged. Otherwise send it as JSON."""
        assert self._session is not None
        sent = {**self.headers, **(headers or {})}
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
        data = body if isinstance(body, bytes | None) else json.dumps(body, default=str).encode()
        url = URL(self.base + path, encoded=True)
        async with self._session.request(method, url, data=data, headers=sent) as response:
            content = await response.read()
        if method != "GET":
            Caller.changed_at = datetime.now(UTC)
        media_type = response.headers.get("Content-Type", "")
        if media_type == NDJSON_TYPE:
            lines = [json.loads(line, parse_float=Decimal) for line in content.splitlines()]
            for line in lines:
                check_answer(method, path.partition("?")[0], response.status, media_type, line)
            return Answer(response.status, lines, response.headers)
        parsed = json.loads(content, parse_float=Decimal) if content and "json" in media_type else content or None
        if "json" in media_type or not content:
            check_answer(method, path.partition("?")[0], response.status, media_type, parsed)
        return Answer(response.status, parsed, response.headers)

    async def must(self, method: str, path: str, body: object = None) -> Any:
        """Send a request that must succeed. Return the body of the answer."""
        answer = await self.call(method, path, body)
        assert answer.status < 300, f"{method} {path}: {answer.status} {answer.body}"
        return answer.body

    async def refused(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, str]:
        """Send a request that the service must refuse with a problem. Return the status and the problem's code."""
        answer = await self.call(method, path, body, headers)
        assert answer.status >= 400, f"{method} {path}: {answer.status} {answer.body}"
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.body["status"] == answer.status
        return answer.status, answer.body["code"]

    async def get(self, path: str) -> Any:
        """Send a GET that must succeed. Return the body of the answer."""
        return await self.must("GET", path)

    async def pages(self, path: str) -> AsyncIterator[Any]:
        page = await self.get(path)
        yield page
        while page["next"] is not None:
            page = await self.get(f"{path}&cursor={page['next']}")
            yield page

    async def post(self, board: str, *posts: object) -> list[dict[str, Any]]:
        body = await self.must("POST", f"/v1/leaderboards/{board}/posts", {"posts": posts})
        results: list[dict[str, Any]] = body["results"]
        assert len(results) == len(posts)
        return results

    async def post_xp(self, board: str, **xp: int) -> list[dict[str, Any]]:
        """Post a value of xp for each of these owners. Return the results of the posts."""
        return await self.post(board, *({"owner": owner, "stats": {"xp": value}} for owner, value in xp.items()))

    async def board(self, board: str, *columns: dict[str, Any], **spec: Any) -> Any:
        """Create a leaderboard whose curves are refreshed only on request."""
        predictor = {**RARELY, **spec.pop("predictor", {})}
        body = {"columns": [{"merge": "last", **column} for column in columns], **spec}
        return await self.must("PUT", f"/v1/leaderboards/{board}", {**body, "predictor": predictor})

    async def create_first_key(self) -> str:
        """Create the first key, and send it with every later request of this caller. Return the key's text."""
        key: str = (await self.must("POST", "/v1/keys", {"name": "operator", "role": "ops"}))["key"]
        self.headers = bearer(key)
        return key

    async def figures(self) -> Figures:
        """Return the value of every Prometheus metric, by the metric's name and its label values, sorted by label."""
        families = text_string_to_metric_families((await self.call("GET", "/metrics")).body.decode())
        samples = [sample for family in families for sample in family.samples]
        return {(one.name, *(value for _, value in sorted(one.labels.items()))): one.value for one in samples}

    async def wait_folded(self, board: str, *columns: str) -> dict[str, Any]:
        """Wait until the curves of these columns count all posts of callers. Return the state of each curve.

        It may end before they are current: without changes, a service makes them current only every 10 s.
        """
        async with asyncio.timeout(WAIT_S):
            while True:
                curves: dict[str, Any] = (await self.get(f"/v1/leaderboards/{board}"))["curves"]
                states = [curves[column] for column in columns]
                current = [each and each["live"] and datetime.fromisoformat(each["as_of"]) for each in states]
                if all(as_of and as_of >= self.changed_at for as_of in current):
                    return curves

    async def wait_applied(self) -> None:
        """Wait until no queued post waits any more."""
        async with asyncio.timeout(WAIT_S):
            while (await self.get("/v1/queue"))["posts"]:
                pass

    async def refresh(self, board: str, *columns: str) -> None:
        """Refresh the curves of these columns, and wait until the new curves are fitted."""
        for column in columns:
            await self.must("POST", f"/v1/leaderboards/{board}/rankings/{column}/refresh")


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def without(answer: Any, *names: str) -> Any:
    """Return a copy of an answer without the members of these names."""
    if isinstance(answer, dict):
        return {name: without(value, *names) for name, value in answer.items() if name not in names}
    return [without(each, *names) for each in answer] if isinstance(answer, list) else answer


def escaped(text: str) -> str:
    """Percent-encode a name, so that the name can be a part of a path."""
    return quote(text, safe="")


class Service(Caller):
    """The service in this process, on a SQLite file in a folder. A test can stop the service and start it again.

    With `fronts`, it has an owner and that many fronts, which answer the requests in turn. `context` is the owner's.

    Before the start, a test may replace `clock` and `make_metrics`.
    """

    clock: Callable[[], int] = staticmethod(now_us)
    make_metrics: Callable[[], Metrics] = Metrics

    def __init__(self, folder: Path, *, fronts: Any = 0, **settings: object) -> None:
        super().__init__("")
        self.folder, self.fronts = folder, fronts
        self.store = f"sqlite:///{folder}/rankcurve.db"
        self.settings = {"store": self.store, "sqlite_cache_mib": 8, "checkpoint_after_s": 60, **NEVER_BUSY, **settings}
        self.context: Context
        self.contexts: list[Context]  # of the processes that answer
        self._stack = AsyncExitStack()
        self._bases = cycle([""])

    async def start(self) -> None:
        constants = {name: value for name, value in self.settings.items() if name not in Settings.model_fields}
        named = {name: value for name, value in self.settings.items() if name not in constants}
        settings = load(named, {}, None).model_copy(update=constants)
        self.context = await self._stack.enter_async_context(
            open_context(settings, self.make_metrics(), clock=self.clock)
        )
        serving = [self.context]
        if self.fronts:
            sockets = OwnerSockets.in_folder(Path(self._stack.enter_context(TemporaryDirectory())))
            await self._stack.enter_async_context(serve_fronts(self.context, [listen_on(path) for path in sockets]))
            settings = settings.model_copy(update={"jobs": "none"})
            opening = partial(open_context, settings, clock=self.clock, owner=sockets)
            serving = [
                await self._stack.enter_async_context(opening(metrics=self.make_metrics())) for _ in range(self.fronts)
            ]
        self.contexts = serving
        self._bases = cycle([await self._serve(context) for context in serving])
        self.base = next(self._bases)
        await self._stack.enter_async_context(self)

    async def _serve(self, context: Context) -> str:
        # `serve` does not cancel handlers, but the test server of aiohttp does. So this runner is used.
        runner = web.ServerRunner(make_server(ROUTES, context))
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    async def call(self, *request: Any, **named: Any) -> Answer:
        self.base = next(self._bases)
        return await super().call(*request, **named)

    @property
    def port(self) -> int:
        return int(self.base.rpartition(":")[2])

    def keep_busy(self) -> None:
        """Be so busy with reads from now on that the process counts no default rank."""
        self.context.ranks.crowd.enter(2 * self.context.settings.crowd_min)

    async def stop(self) -> None:
        """Finish the accepted requests, stop the service, and close the database."""
        await self._stack.aclose()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        await self.start()
        yield self
        await self.stop()

    async def restart(self, **settings: object) -> None:
        """Stop the service, and start it again on the same file with changed settings."""
        await self.stop()
        self._stack = AsyncExitStack()
        self.settings.update(settings)
        await self.start()


class Process:
    """A process that runs `rankcurve serve` on a free port, or another long command.

    `lines` has its parsed log lines. Without `variables`, the process has the environment of the tests. A `with` block
    begins when the process serves, and kills it at the end.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        store: str = "rankcurve.db",
        command: tuple[str, ...] = SERVE,
        program: tuple[str, ...] = PROGRAM,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.store = f"sqlite:///{folder / store}"
        self.lines: list[dict[str, Any]] = []
        self.port = 0
        self._logged: queue.Queue[dict[str, Any]] = queue.Queue()
        self.process = subprocess.Popen(
            [*program, *command, "--store", self.store, *arguments],
            cwd=folder, env=environment() if variables is None else variables, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            for line in stream:
                found = json.loads(line) if line.startswith("{") else {"event": line.strip()}
                self.lines.append(found)
                self._logged.put(found)
        self._logged.put({"event": "the log ended"})

    def await_line(self, event: str, **fields: object) -> dict[str, Any]:
        """Return the next log line with this event and these fields. Fail if the process ends first."""
        while True:
            line = self._logged.get(timeout=WAIT_S)
            if line["event"] == event and fields.items() <= line.items():
                return line
            assert line["event"] != "the log ended", f"the process ended before {event!r}: {self.lines[-3:]}"

    def ready(self) -> Process:
        """Wait until the process accepts requests. Return this object."""
        self.port = int(self.await_line("serving")["addresses"][0].rpartition(":")[2])
        return self

    def await_end_of_log(self) -> None:
        """Wait until the process and all its children have ended, so that none of them can write to the log."""
        self._reader.join(WAIT_S)
        assert not self._reader.is_alive()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, and wait until the process ends. Return the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        return code

    def discard(self) -> None:
        if self.process.poll() is None:
            self.end(signal.SIGKILL)

    def __enter__(self) -> Process:
        try:
            return self.ready()
        except BaseException:
            self.discard()
            raise

    def __exit__(self, *_: object) -> None:
        self.discard()


Spawn = Callable[..., Process]  # starts a process that is stopped at the end of the test


def environment() -> dict[str, str]:
    """Return the environment variables of this process without settings of the service.

    The import path also has the project.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RANKCURVE_")}
    return {**kept, "PYTHONPATH": str(ROOT), "COLUMNS": "200", "NO_COLOR": "1"}


def command_line(*arguments: str, cwd: Path, code: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run a `rankcurve` command in a process of its own, and return the result. Fail if the exit code is not `code`."""
    command = [*PROGRAM, *arguments]
    done = subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=WAIT_S)
    assert code in (None, done.returncode), done.stderr
    return done

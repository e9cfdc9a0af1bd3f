"""Count what one request of each hot route costs, and compare the counts with budgets.

Times depend on the machine, and counts do not. The service runs in this process on an event loop of uvloop, without
jobs, and one client sends one request after the other. Whoever goes over a budget raises it in the table below, and
gives the reason in the commit. A budget that is too large fails as well, so that a saving is kept.
"""

import asyncio
import json
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest
import uvloop

from service.http import key_watch
from service.telemetry.metrics.process import Metrics
from storage.engines import sqlite
from tests.service.real_service import Service

OWNERS = 3_000
WARM_UP, REQUESTS, ROUNDS = 20, 20, 3
NEVER_S = 86_400  # longer than the test
SLACK = 0.1  # a budget may be larger than what was counted by this share
BOARD = "/v1/leaderboards/b"


class Cost(NamedTuple):
    """The average cost of one request, in the cheapest of the rounds."""

    loop_calls: float  # calls of Python functions on the thread of the event loop; each resumed coroutine counts
    store_calls: float  # calls of Python functions on the threads of the store
    statements: float  # statements of SQL
    hops: float  # functions that a thread of the store ran
    bytes_sent: float  # bytes of the answer, with its head


BUDGETS = {
    "positions": Cost(155, 0, 1.2, 0, 345),
    "positions, counted": Cost(192, 0, 2.2, 0, 345),
    "positions, exact": Cost(258, 0, 2.2, 0, 345),
    "around": Cost(295, 0, 1.8, 0, 1_745),
    "top page": Cost(225, 0, 2.2, 0, 1_560),
    "single post": Cost(240, 260, 6.5, 1.5, 265),
    "batch of 1,000": Cost(6_600, 18_500, 7, 2, 109_000),
}


def _owner(number: int) -> str:
    return f"owner-{number % OWNERS:06d}"


def _post(number: int) -> dict[str, Any]:
    return {"owner": _owner(number * 7), "stats": {"xp": 1}}


_REQUESTS: dict[str, Callable[[int], tuple[str, str, Any]]] = {
    "positions": lambda number: ("GET", f"{BOARD}/entries/{_owner(2_000 + number)}/positions?rank=estimate", None),
    "positions, counted": lambda number: ("GET", f"{BOARD}/entries/{_owner(1_000 + number)}/positions", None),
    "positions, exact": lambda number: ("GET", f"{BOARD}/entries/{_owner(2_000 + number)}/positions?rank=exact", None),
    "around": lambda number: (
        "GET", f"{BOARD}/entries/{_owner(2_000 + number)}/around?column=xp&better=5&worse=5", None,
    ),
    "top page": lambda _: ("GET", f"{BOARD}/rankings/xp?limit=10", None),
    "single post": lambda number: ("POST", f"{BOARD}/posts", _post(number)),
    "batch of 1,000": lambda number: (
        "POST", f"{BOARD}/posts", {"posts": [_post(number * 1_000 + each) for each in range(1_000)]},
    ),
}  # fmt: skip


class Client:
    """Sends requests over one connection, and waits for each answer. It runs on a thread that is not counted."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._answers = self._socket.makefile("rb")
        self._host = f"127.0.0.1:{port}"

    def send(self, method: str, path: str, body: Any) -> int:
        """Send a request. Return how many bytes its answer has, with its head."""
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
        self._socket.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        lines = [self._answers.readline()]
        while lines[-1] != b"\r\n":
            lines.append(self._answers.readline())
        length = next(int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length:"))
        answer = self._answers.read(length)
        assert lines[0].split()[1] == b"200", answer
        return sum(map(len, lines)) + length

    def close(self) -> None:
        self._answers.close()
        self._socket.close()


class Counts:
    """Counts calls and hops while `counting` is set."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.counting = False
        self.found: Counter[str] = Counter()

    def count_statements(self) -> float:
        """Return how many statements the store has run until now."""
        totals = self.metrics.totals.add_up()
        return sum(totals[place] for place in self.metrics.totals.series["rankcurve_store_statements"].values())

    def profile(self, name: str) -> None:
        """Count the calls of Python functions on this thread from now on."""

        def count(frame: FrameType, event: str, _: object) -> None:
            if self.counting and event == "call":
                self.found[name] += 1

        sys.setprofile(count)

    @contextmanager
    def profiled_store(self) -> Iterator[None]:
        """Count the calls on the threads that are started within the block, and the functions that they run."""
        threading.setprofile(lambda *_: self.profile("store_calls"))  # each new thread calls this once
        run = sqlite._Connection.run

        async def counted(connection: Any, function: Any) -> Any:
            self.found["hops"] += self.counting
            return await run(connection, function)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sqlite._Connection, "run", counted)
            yield
        threading.setprofile(None)


async def _measure(folder: Path) -> dict[str, Cost]:
    counts = Counts()
    service = Service(folder)
    async with service.running():
        await service.board("b", {"name": "xp", "merge": "sum", "best": "high", "min": 0, "max": 10**9, "sorted": True})
        for first in range(0, OWNERS, 1_000):
            posts = [{"owner": _owner(each), "stats": {"xp": each * 13}} for each in range(first, first + 1_000)]
            await service.post("b", *posts)
        await service.refresh("b", "xp")
    # On a slow machine, the polls of a watch would add statements to every round.
    service = Service(folder, jobs="none", live_poll_s=NEVER_S)
    service.make_metrics = lambda: counts.metrics
    with counts.profiled_store(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_watch, "KEY_POLL_INTERVAL_S", NEVER_S)
        await service.start()
        found = {}
        for name, make in _REQUESTS.items():
            client = await asyncio.to_thread(Client, service.port)
            requests = [make(number) for number in range(WARM_UP + ROUNDS * REQUESTS)]
            await asyncio.to_thread(_send, client, requests[:WARM_UP])
            rounds = [await _count(counts, client, requests[WARM_UP + each :: ROUNDS]) for each in range(ROUNDS)]
            client.close()
            found[name] = Cost._make(map(min, zip(*rounds, strict=True)))
        await service.stop()
    return found


async def _count(counts: Counts, client: Client, requests: Sequence[tuple[str, str, Any]]) -> Cost:
    counts.found.clear()
    before = counts.count_statements()
    counts.profile("loop_calls")
    counts.counting = True
    sent = await asyncio.to_thread(_send, client, requests)
    counts.counting = False
    sys.setprofile(None)
    counts.found["statements"] = round(counts.count_statements() - before)
    return Cost._make([*[counts.found[each] / REQUESTS for each in Cost._fields[:-1]], sent / REQUESTS])


def _send(client: Client, requests: Sequence[tuple[str, str, Any]]) -> int:
    return sum(client.send(*request) for request in requests)


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Cost]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_measure(tmp_path_factory.mktemp("costs")))


@pytest.mark.parametrize("route", BUDGETS)
def test_a_request_costs_no_more_than_its_budget(costs: dict[str, Cost], route: str) -> None:
    found, budget = costs[route], BUDGETS[route]
    over = {name: (each, most) for name, each, most in zip(Cost._fields, found, budget, strict=True) if each > most}
    assert not over, f"{route}: over the budget: {over}"


@pytest.mark.parametrize("route", BUDGETS)
def test_a_budget_is_no_larger_than_it_must_be(costs: dict[str, Cost], route: str) -> None:
    found, budget = costs[route], BUDGETS[route]
    loose = {
        name: (each, most)
        for name, each, most in zip(Cost._fields, found, budget, strict=True)
        if most > each * (1 + SLACK) + 1
    }
    assert not loose, f"{route}: budgets that are too large: {loose}"

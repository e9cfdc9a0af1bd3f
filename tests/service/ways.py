"""Traces calls of Python functions, and the ways of five requests: what each passes until its effect is stored."""

import asyncio
import dis
import inspect
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial, reduce
from itertools import count
from operator import and_
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

import pytest

from jobs.curves import refresh
from tests.service.real_service import Service

ROOT = Path(__file__).parents[2]
PACKAGES = ("config", "querybuilder", "predictor", "storage", "jobs", "service")
NEVER_S = 3_600  # longer than the test
# Python 3.11 runs these as functions of their own, and newer ones as part of the function around them.
INLINED = {"<listcomp>", "<dictcomp>", "<setcomp>"}
COROUTINE = inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE | inspect.CO_ASYNC_GENERATOR
ROUNDS = 10  # background work may run during some rounds, but not during all


class Call(NamedTuple):
    caller: str  # module of the nearest function of the project on the stack; "" if there is none, or for other code
    code: CodeType  # the function that was called
    on_loop: bool  # whether it ran in the thread that installed the trace

    @property
    def module(self) -> str:
        """Return the called module, or "" if it is not one of the project's."""
        return module_of(self.code.co_filename)


Calls = Counter[Call]  # each resumed generator counts, but no resumed coroutine
Ways = dict[str, Calls]  # by the name of the way


class Trace:
    """Records calls, in every thread that starts while the trace is installed."""

    def __init__(self) -> None:
        self._calls: Calls | None = None
        self._awaited, self._called = "", asyncio.Event()  # the function that `until` waits for

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Trace this thread, and each thread that starts inside the `with` block."""
        threading.setprofile(partial(self._note, False))
        sys.setprofile(partial(self._note, True))
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    @contextmanager
    def recording(self) -> Iterator[Calls]:
        """Record the calls inside the `with` block."""
        self._calls = calls = Calls()
        try:
            yield calls
        finally:
            self._calls = None

    async def calls_of(self, request: Callable[[], Awaitable[object]]) -> Calls:
        """Send a request several times. Return the calls that each of the rounds had."""
        rounds = []
        for _ in range(1 + ROUNDS):  # the first compiles statements and opens boards, which others do not repeat
            with self.recording() as calls:
                await request()
            rounds.append(calls)
        return reduce(and_, rounds[1:])

    async def until(self, name: str) -> None:
        """Wait until the recording has a call of a function with this qualified name, which runs on the event loop."""
        assert self._calls is not None
        self._awaited, self._called = name, asyncio.Event()
        if not any(call.code.co_qualname == name for call in [*self._calls]):
            await self._called.wait()

    def _note(self, on_loop: bool, frame: FrameType, event: str, _: object) -> None:
        calls, code = self._calls, frame.f_code
        if calls is None or event != "call" or code.co_name in INLINED:
            return
        # Whether a coroutine pauses depends on the machine: what it awaits may be done already.
        if code.co_flags & COROUTINE and frame.f_lasti != _start_of(code):
            return
        if code.co_qualname == self._awaited:
            self._called.set()
        caller = frame.f_back if module_of(frame.f_code.co_filename) else None
        while caller is not None and not module_of(caller.f_code.co_filename):
            caller = caller.f_back
        calls[Call("" if caller is None else module_of(caller.f_code.co_filename), code, on_loop)] += 1


@cache
def _start_of(code: CodeType) -> int:
    """Return the offset at which a new call is traced. A coroutine that is resumed is traced at a later one."""
    return next(each.offset for each in dis.get_instructions(code) if each.opname == "RESUME")


@cache
def module_of(file_name: str) -> str:
    """Return the path of a project's module relative to the project's root, or "" for other code."""
    path = Path(file_name)
    if not path.is_relative_to(ROOT):
        return ""
    inside = path.relative_to(ROOT)
    return inside.as_posix() if inside.parts[0] in PACKAGES else ""


async def trace_ways(folder: Path) -> Ways:
    """Trace each way in a real service with jobs, which is busy, so it reads ranks off the curve."""
    trace, numbers = Trace(), count()
    with trace.installed(), pytest.MonkeyPatch.context() as patch:
        # No other worker runs, no lease is renewed, and nothing looks for what it would hear of anyway: on a busy
        # machine, every round is long enough for such a look.
        settings = {"ingest_workers_max": 1, "ingest_lease_s": 600, "curve_poll_s": 2.0}
        patch.setattr(refresh, "LOOK_BASE_S", NEVER_S)
        async with Service(folder, ingest_poll_s=NEVER_S, live_poll_s=NEVER_S, **settings).running() as service:
            await service.create_first_key()
            for board, spec in ("b", {}), ("parts", {"segments": 4}):
                await service.board(board, {"name": "xp"}, predictor={"exact_top": 1, "samples": 20}, **spec)
                await service.post_xp(board, **{f"o{each}": each**2 for each in range(1_000)})
                await service.refresh(board, "xp")
            await service.wait_folded("b", "xp")
            service.keep_busy()
            for job in "deliver", "refresh", "fold", "close", "events":  # they look for work several times a second
                await service.get(f"/jolokia/exec/rankcurve:type=Job,name={job}/pause")

            async def post(path: str) -> None:
                number = next(numbers)
                body = {"owner": "o500", "stats": {"xp": number}, "post_id": f"post {number}"}
                await service.must("POST", f"/v1/leaderboards/{path}", body)

            async def post_queued() -> None:
                await post("b/posts?mode=queued")
                await trace.until("DrainWorker._report_round")  # its transaction has applied the post

            async def read_positions() -> None:
                [position] = (await service.get("/v1/leaderboards/b/entries/o700/positions"))["positions"]
                assert position["method"] == "curve"

            requests: dict[str, Callable[[], Awaitable[object]]] = {
                "way: post": lambda: post("b/posts"),
                "way: positions": read_positions,
                "way: post to segments": lambda: post("parts/posts"),
                "way: queued post": post_queued,
                "way: refresh": lambda: service.refresh("b", "xp"),
            }
            return {name: await trace.calls_of(request) for name, request in requests.items()}

"""Test that two requests pass through the modules that docs/architecture.md names, and through no others.

The requests are a post and a request for positions. For each of them, the document describes a journey and prints its
modules in bold. Then it lists the leaves: modules that every journey may call. The test sends both requests to a real
service, and a profile function records every call between modules of the project.
"""

import asyncio
import re
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType

import pytest

from tests.service.real_service import WAIT_S, Service

ROOT = Path(__file__).parents[2]
# The package querybuilder is left out, because most modules of storage use it.
PACKAGES = ("config", "predictor", "storage", "jobs", "service")
POST_MODULES_MAX = 10
POSITIONS_MODULES_MAX = 8
ROUNDS = 5  # background work may run during some rounds, but not during all
# These leaves run functions of named modules that were passed to them, so these leaves may call named modules.
CARRIERS = {
    "service/app.py",
    "storage/coalesce.py",
    "storage/engines/brief_reads.py",
    "storage/engines/sqlite.py",
    "storage/store.py",
}
B = "/v1/leaderboards/b"

Calls = set[tuple[str, str]]  # (calling module or "", called module)


class Trace:
    """Record the calls between modules of the project, in every thread that starts while the trace is installed."""

    def __init__(self) -> None:
        self._calls: Calls = set()
        self._noting = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Record the calls of this thread, and of each thread that starts inside the `with` block."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    async def calls_of(self, request: Callable[[], Awaitable[None]]) -> Calls:
        """Send a request several times. Return the calls that happened every time."""
        counts: Counter[tuple[str, str]] = Counter()
        for _ in range(ROUNDS):
            self._calls = set()
            self._noting = True
            await request()
            self._noting = False
            counts.update(self._calls)
        return {call for call, rounds in counts.items() if rounds == ROUNDS}

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if not self._noting or event != "call":
            return
        called = module_of(frame.f_code.co_filename)
        if not called:
            return
        caller = frame.f_back
        while caller is not None and not module_of(caller.f_code.co_filename):
            caller = caller.f_back
        self._calls.add(("" if caller is None else module_of(caller.f_code.co_filename), called))


@cache
def module_of(file_name: str) -> str:
    """Return the path of a project's module relative to the project's root, or "" for other code."""
    path = Path(file_name)
    if not path.is_relative_to(ROOT):
        return ""
    inside = path.relative_to(ROOT)
    return inside.as_posix() if inside.parts[0] in PACKAGES else ""


def section(title: str) -> str:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    found = re.search(rf"^##+ {title}[^\n]*\n(.+?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/architecture.md has no section {title!r}"
    return found[1]


def named_modules(journey: str) -> list[str]:
    return re.findall(r"\*\*`([\w/]+\.py)`\*\*", section(journey))


@cache
def leaves() -> tuple[str, ...]:
    return tuple(re.findall(r"`([\w/]+/[\w.]+)`", section("Leaves").partition("\n- ")[2]))


def is_leaf(module: str) -> bool:
    return any(module == leaf or module.startswith(f"{leaf}/") for leaf in leaves())


async def await_live_curves(service: Service) -> None:
    book = service.context.curves.book
    async with asyncio.timeout(WAIT_S):
        while not all(served.live_version for served in book.list_served()):
            await book.poll()


@pytest.fixture
def trace() -> Iterator[Trace]:
    made = Trace()
    with made.installed():
        yield made


@pytest.fixture
async def service(trace: Trace, tmp_path: Path) -> AsyncIterator[Service]:
    """Start a service with an API key and a board with a live curve. The service runs no jobs.

    The service is busy, so it reads ranks off the curve, except in gaps with at most one entry.
    """
    async with Service(tmp_path).running() as made:
        await made.create_first_key()
        await made.board("b", {"name": "score"}, predictor={"exact_top": 1, "samples": 20})
        await made.post("b", *({"owner": f"o{i}", "stats": {"score": i * i}} for i in range(1_000)))
        await made.refresh("b", "score")
        await await_live_curves(made)
        await made.restart(jobs="none", exact_gap_rows_max=1)
        made.keep_busy()
        yield made


async def test_both_journeys_pass_the_modules_that_the_page_names(service: Service, trace: Trace) -> None:
    numbers = iter(range(1_000_000))

    async def post() -> None:
        number = next(numbers)
        [result] = await service.post("b", {"owner": "o500", "stats": {"score": number}, "post_id": f"post {number}"})
        assert result["status"] == "applied"

    positions = [(await service.get(f"{B}/entries/o{i}/positions"))["positions"][0] for i in range(500)]
    owner = next(i for i, position in enumerate(positions) if position["method"] == "curve")

    async def read_positions() -> None:
        [position] = (await service.get(f"{B}/entries/o{owner}/positions"))["positions"]
        assert position["method"] == "curve"

    await post()  # the first post compiles statements and opens the board, which other posts do not repeat
    of_post, of_positions = await trace.calls_of(post), await trace.calls_of(read_positions)
    check_journey("One post", of_post, POST_MODULES_MAX)
    check_journey("One `positions` request", of_positions, POSITIONS_MODULES_MAX)
    passed = {called for _, called in of_post | of_positions}
    unused = [leaf for leaf in leaves() if not any(f"{module}/".startswith(f"{leaf}/") for module in passed)]
    assert unused == [], "listed as leaves, but on neither path"


def check_journey(journey: str, calls: Calls, modules_max: int) -> None:
    """Compare the calls of one journey with the document. Fail if a leaf calls a named module."""
    named, passed = named_modules(journey), {called for _, called in calls}
    assert len(named) <= modules_max
    assert sorted(set(named)) == sorted(named), "a module is named twice"
    assert [module for module in named if module not in passed] == [], f"{journey}: named, but not on the path"
    others = sorted(module for module in passed - set(named) if not is_leaf(module))
    assert others == [], f"{journey}: on the path, but neither named nor a leaf"
    assert not any(map(is_leaf, named)), "both named and a leaf"
    upwards = [(caller, called) for caller, called in calls if is_leaf(caller) and called in named]
    assert [call for call in upwards if call[0] not in CARRIERS] == [], f"{journey}: a leaf calls a named module"

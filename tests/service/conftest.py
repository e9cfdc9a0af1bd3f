"""Real services for the tests that need one, gone when the test is over.

The rule: each test has a file of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.real_service import Process, Service


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """A service in this process with default settings."""
    made = Service(tmp_path)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts processes of the command line."""
    started: list[Process] = []

    def start(*arguments: str, **named: Any) -> Process:
        started.append(Process(tmp_path, *arguments, **named))
        return started[-1]

    yield start
    for process in started:
        process.discard()

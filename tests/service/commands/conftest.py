"""Fixtures for the tests of commands: a fake service, and a function that runs commands against a real service."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from typer.testing import Result

from tests.service.cli_fake_service import FakeService, run_at, running_fake
from tests.service.real_service import Process


@pytest.fixture
def fake() -> Iterator[FakeService]:
    with running_fake() as service:
        yield service


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """Start a service that all tests of a module share. Each test uses boards, owners or lease clients of its own."""
    with Process(tmp_path_factory.mktemp("serving")) as process:
        yield process


@pytest.fixture
def run(serving: Process) -> Callable[..., Result]:
    """Return a function that runs a command against the service `serving`."""
    return partial(run_at, serving.url)

"""Test that a transaction goes on after Citus has refused it because a partition is being moved to another node."""

import asyncio
from collections.abc import Callable

import asyncpg
import pytest

from querybuilder import lit, select
from storage.engines import connection_pool
from storage.engines.connection_pool import MOVING_ATTEMPTS_MAX
from storage.errors import StoreBusyError
from storage.store import Program
from tests.storage.processes import Processes

REFUSALS = (
    "could not acquire the lock required to colocate distributed table rankcurve_p1.sequences",
    'Query could not find the intermediate result file "1_2", it was mostly likely deleted due to an error',
    "failure on connection marked as essential: db0:5432",
    'duplicate key value violates unique constraint "changes_pkey_102041"',
)
CALLERS = 25  # with MOVING_ATTEMPTS_MAX attempts each, they make a thousand


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_pool, "MOVING_PAUSE_S", 0.0)


def refused(text: str, *, times: int) -> tuple[Callable[[], Program[int]], list[int]]:
    """Return a program that Citus refuses this many times, and a list that gets the number of each attempt."""
    attempts: list[int] = []

    def program() -> Program[int]:
        attempts.append(len(attempts) + 1)
        yield select(lit(1)).bind()
        if len(attempts) <= times:
            raise asyncpg.PostgresError(text)
        return len(attempts)

    return program, attempts


@pytest.mark.parametrize("text", REFUSALS)
async def test_a_transaction_is_tried_again_until_the_move_has_ended(processes: Processes, text: str) -> None:
    store = await processes.open_store()
    program, _ = refused(text, times=MOVING_ATTEMPTS_MAX - 1)
    assert await store.write(program) == MOVING_ATTEMPTS_MAX


async def test_other_refusals_are_reported_at_once(processes: Processes) -> None:
    store = await processes.open_store()
    program, attempts = refused("could not acquire a snapshot", times=1)
    with pytest.raises(StoreBusyError):
        await store.write(program)
    assert attempts == [1]


async def test_a_thousand_refused_attempts_leave_no_connection_lent(processes: Processes) -> None:
    store = await processes.open_store()

    async def call() -> int:
        program, attempts = refused(REFUSALS[0], times=MOVING_ATTEMPTS_MAX)
        with pytest.raises(StoreBusyError, match="lock required to colocate"):
            await store.write(program)
        return len(attempts)

    assert sum(await asyncio.gather(*(call() for _ in range(CALLERS)))) == CALLERS * MOVING_ATTEMPTS_MAX
    program, _ = refused(REFUSALS[0], times=0)
    assert len(await asyncio.gather(*(store.write(program) for _ in range(50)))) == 50

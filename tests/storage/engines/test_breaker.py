"""Test the breaker that keeps requests away from a server which does not answer."""

import asyncio

import pytest

from storage.engines.breaker import Breaker
from storage.errors import PartitionAwayError

ROUNDS = 1_000


class Server:
    """A server that answers probes, or is frozen. It tells a test what its breaker reports."""

    def __init__(self, *, silence_s: float = 0.0) -> None:
        self.answers = asyncio.Event()
        self.answers.set()
        self.probes = 0
        self.away = 0
        self.changed = asyncio.Event()
        self.probed = asyncio.Event()
        self.breaker = Breaker(
            "the server", self._probe, probe_s_max=0.001, report=self._report, silence_s=silence_s, pause_s=0.0
        )

    async def _probe(self) -> None:
        self.probes += 1
        self.probed.set()
        await self.answers.wait()

    def _report(self, change: int) -> None:
        self.away += change
        self.changed.set()

    async def see_change(self) -> None:
        await self.changed.wait()
        self.changed.clear()


async def test_a_server_that_goes_away_a_thousand_times_ends_each_wait_once_and_leaves_nothing_behind() -> None:
    server, ended = Server(), 0

    def end() -> None:
        nonlocal ended
        ended += 1

    before = len(asyncio.all_tasks())
    for number in range(ROUNDS):
        server.answers.clear()
        server.breaker.enter(number, end)
        await server.see_change()
        with pytest.raises(PartitionAwayError, match="the server does not answer"):
            server.breaker.check()
        assert (server.away, ended) == (1, number + 1)
        server.answers.set()
        await server.see_change()
        server.breaker.check()
    await server.breaker.close()
    assert (server.away, server.breaker._waits) == (0, {})
    assert len(asyncio.all_tasks()) == before


async def test_a_thousand_long_waits_for_a_server_that_answers_are_never_ended() -> None:
    server = Server()

    def end() -> None:
        raise AssertionError("the server answers")

    for number in range(ROUNDS):
        server.breaker.enter(number, end)
        if number % 100 == 0:
            server.probed.clear()
            await server.probed.wait()
        server.breaker.leave(number)
    assert not server.breaker.is_open
    await server.breaker.close()
    assert server.breaker._waits == {}


async def test_short_waits_are_never_probed() -> None:
    server = Server(silence_s=3_600)
    for number in range(100):
        server.breaker.enter(number, lambda: None)
        server.breaker.leave(number)
    assert server.probes == 0
    await server.breaker.close()


async def test_a_probe_that_fails_shows_that_the_server_is_away() -> None:
    refused = asyncio.Event()

    async def probe() -> None:
        refused.set()
        raise ConnectionRefusedError

    breaker = Breaker("it", probe, probe_s_max=60, report=lambda _: None, silence_s=0.0, pause_s=60)
    ended = asyncio.Event()
    breaker.enter("a wait", ended.set)
    await ended.wait()
    late = asyncio.Event()
    breaker.enter("a wait that began when the server was away already", late.set)
    await late.wait()
    await breaker.close()

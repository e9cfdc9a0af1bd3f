"""Finds out that a database server has stopped answering, and keeps requests away from it until it answers again.

A server that accepts connections and never answers (a frozen process, a dead host) would hold every request until the
timeout of its statement. A long statement of a healthy server looks the same from outside. So a breaker asks the server
a short question, a *probe*, as soon as something has waited for `SILENCE_S`:

    closed ── something waits for long ──> probing ── an answer ──> closed
      ^                                       └── no answer in time ──> open: end all waits, refuse new ones
      └────────────── an answer ── a probe every `PAUSE_S` ─────────────────┘

The duration of a statement alone never opens a breaker; only a probe without an answer does.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from storage.errors import PartitionAwayError, StoreAwayError

log = structlog.get_logger(__name__)
SILENCE_S = 0.3  # something that waits for this long lets the breaker probe the server
PAUSE_S = 0.5  # the pause between two probes of a server that is away
LATE_S = 0.1  # a timer that comes this late shows that this process was busy, so the server gets more time to answer
EndWait = Callable[[], object]


class Breaker:
    """Watches the waits for one server. `probe` asks the server a short question, and raises an error if it fails."""

    def __init__(
        self,
        name: str,
        probe: Callable[[], Awaitable[object]],
        *,
        probe_s_max: float,
        report: Callable[[int], None],
        refusal: type[StoreAwayError] = PartitionAwayError,
        silence_s: float = SILENCE_S,
        pause_s: float = PAUSE_S,
    ) -> None:
        """Watch the server called `name`. `report` is called with 1 when it goes away, and with -1 when it is back."""
        self.name = name
        self.is_open = False
        self._refusal, self._silence_s, self._pause_s = refusal, silence_s, pause_s
        self._probe, self._probe_s_max, self._report = probe, probe_s_max, report
        self._waits: dict[object, tuple[float, EndWait]] = {}  # in the order in which they began: when, what ends it
        self._timer: asyncio.TimerHandle | None = None
        self._probing: asyncio.Task[None] | None = None
        self._closed = False

    def check(self) -> None:
        if self.is_open:
            raise self._refusal(f"{self.name} does not answer")

    def enter(self, wait: object, end: EndWait) -> None:
        """Note that the caller begins to wait for the server. If the server goes away, `end` has to end the wait.

        `wait` is any object that identifies the wait. The caller gives it to `leave` at the end.
        """
        loop = asyncio.get_running_loop()
        self._waits[wait] = loop.time(), end
        if self.is_open:  # the wait was prepared before
            loop.call_soon(end)
        if self._timer is None and self._probing is None:
            self._timer = loop.call_later(self._silence_s, self._look)

    def leave(self, wait: object) -> None:
        self._waits.pop(wait, None)

    def _look(self) -> None:
        """Probe the server if the longest wait is too long. Otherwise look again when it would be."""
        self._timer = None
        if self._closed or not self._waits:
            return
        loop = asyncio.get_running_loop()
        since_s, _ = next(iter(self._waits.values()))
        rest_s = since_s + self._silence_s - loop.time()
        if rest_s > 0:
            self._timer = loop.call_later(rest_s, self._look)
        else:
            self._probing = asyncio.create_task(self._judge(), name="breaker")

    async def _judge(self) -> None:
        """Probe the server. If it does not answer, end all waits, and repeat the probe until it answers."""
        try:
            if not await self._answers():
                self._open()
                while self.is_open:
                    await asyncio.sleep(self._pause_s)
                    if await self._answers():
                        self._close()
        finally:
            self._probing = None
        if not self._closed:
            self._timer = asyncio.get_running_loop().call_later(self._silence_s, self._look)

    def _open(self) -> None:
        self.is_open = True
        log.warning("node_away", node=self.name, waits=len(self._waits))
        self._report(1)
        waits, self._waits = self._waits, {}
        for _, end in waits.values():
            end()

    def _close(self) -> None:
        self.is_open = False
        log.info("node_back", node=self.name)
        self._report(-1)

    async def _answers(self) -> bool:
        loop = asyncio.get_running_loop()
        asked = asyncio.ensure_future(self._probe())
        due_s = loop.time() + self._probe_s_max
        try:
            await asyncio.wait([asked], timeout=self._probe_s_max)
            if not asked.done() and loop.time() - due_s > LATE_S:
                await asyncio.wait([asked], timeout=self._probe_s_max)
            return asked.done() and not asked.cancelled() and asked.exception() is None
        finally:
            asked.cancel()

    async def close(self) -> None:
        """Stop watching. Waits that have begun are no longer ended, and a server that is away is no longer counted."""
        self._closed = True
        if self.is_open:
            self._report(-1)
        if self._timer is not None:
            self._timer.cancel()
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.wait([self._probing])

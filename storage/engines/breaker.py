"""Notices when a database server has stopped answering, and keeps requests away from it until it answers again.

A server that accepts connections but never answers (a frozen process, a dead host) would hold every request until its
statement times out. From outside, a long statement on a healthy server looks the same. To tell the two apart, a breaker
sends the server a short query, the *probe*, as soon as something has waited for `SILENCE_S`:

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
PAUSE_S = 0.5  # the pause between two probes of an unreachable server
LATE_S = 0.1  # a timer that comes this late shows that this process was busy, so the server gets more time to answer
EndWait = Callable[[], object]


class Breaker:
    """Watches the waits for one server. `probe` sends it a short query, and raises an error if that fails."""

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
        """Watch the server `name`. Call `report` with 1 when it becomes unreachable, and with -1 when it is back."""
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
        """Register a wait for the server. If the server becomes unreachable, `end` is called and has to end the wait.

        `wait` is any object that identifies the wait. The caller passes the same object to `leave` when it is over.
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
        """Probe the server if the longest wait has lasted too long. Otherwise check again when it would have."""
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
        """Probe the server. If it does not answer, end all waits and keep probing until it does."""
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
        """Stop watching: end no more waits, and no longer report the server as unreachable."""
        self._closed = True
        if self.is_open:
            self._report(-1)
        if self._timer is not None:
            self._timer.cancel()
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.wait([self._probing])

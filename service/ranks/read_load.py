"""Decide, by the load of this process and its store, if there is room to count ranks that nobody asked to be exact.

The load of a window is the largest part of it for which one of the process's resources was busy. At a load of 1,
further work delays other requests. There are two resources. The thread of the event loop is busy while it runs or waits
for a processor. The store is busy in proportion to the point reads under way: with READS_FULL of them, all the time.

A count is more work than an estimate. So a process that is not quite able to count all ranks counts a share of them:
from window to window, the share is cut if the load is above BUSY_LOAD, and grows if the load is below CALM_LOAD.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

WINDOW_S = 0.25
BUSY_LOAD, CALM_LOAD = 0.97, 0.88
READS_FULL = 16  # 32 clients that never pause keep more reads under way at a store that can't keep up
CUT, STEP, SHARE_MIN = 0.5, 0.05, 0.1


def make_thread_clock() -> Callable[[], float]:
    """Return a function that tells for how many seconds this thread has run or waited for a processor.

    Only Linux tells the waits (see `schedstat` in `man 5 proc`). On other systems the function returns the processor
    time of the whole process.
    """
    path = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")

    def read_thread_s() -> float:
        ran_ns, waited_ns, _ = path.read_text().split()
        return (int(ran_ns) + int(waited_ns)) / 1e9

    return read_thread_s if path.exists() else time.process_time


class ReadLoad:
    """Knows which part of the ranks this process has room to count. `look` must be called every `WINDOW_S` seconds."""

    def __init__(
        self,
        *,
        monotonic: Callable[[], float],
        busy_clocks: Sequence[Callable[[], float]],
        on_share: Callable[[float], None],
    ) -> None:
        """Each of `busy_clocks` returns for how many seconds a resource has been busy.

        `on_share` is called with the share, from 0 to 1, now and after each change.
        """
        self._monotonic, self._busy_clocks, self._on_share = monotonic, busy_clocks, on_share
        self._looked_s, self._busy_s = monotonic(), [clock() for clock in busy_clocks]
        self._due = 0.0
        self.set_share(1.0)

    @asynccontextmanager
    async def watch(self, sleep: Callable[[float], Awaitable[None]]) -> AsyncIterator[None]:
        """Look every `WINDOW_S` seconds within the block."""

        async def look_until_cancelled() -> None:
            while True:
                await sleep(WINDOW_S)
                self.look()

        looking = asyncio.create_task(look_until_cancelled(), name="load of reads")
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.wait([looking])

    def admit_count(self) -> bool:
        """Return whether to count the ranks of one more read, and take that read into account."""
        if self._share == 1.0:
            return True
        self._due += self._share
        if self._due < 1.0:
            return False
        self._due -= 1.0
        return True

    def look(self) -> None:
        """Measure the load since the last look, and adjust the share."""
        now_s, busy_s = self._monotonic(), [clock() for clock in self._busy_clocks]
        longest_s = max(now - before for now, before in zip(busy_s, self._busy_s, strict=True))
        load = longest_s / max(now_s - self._looked_s, 1e-9)
        self._looked_s, self._busy_s = now_s, busy_s
        if load > BUSY_LOAD and self._share:
            share = self._share * CUT
            self.set_share(share if share >= SHARE_MIN else 0.0)
        elif load < CALM_LOAD and self._share < 1.0:
            self.set_share(min(1.0, self._share + STEP))

    def set_share(self, share: float) -> None:
        self._share = share
        self._on_share(share)

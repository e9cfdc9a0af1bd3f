"""Has the key ring of this process follow the store: a key that is created or revoked takes effect without a restart.

    another process, or this one ──key created or revoked──> store ──looked at every second──> key ring ──> sessions end

A look is one statement that counts keys. Only where the counts have changed all keys are read, in the same snapshot.
While the store does not answer, the keys that were known stay in force: nobody can revoke one then.

The rule: it is not one of the jobs that operators pause. A revoked key stops working whatever is paused.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import structlog

from config import Settings
from jobs.runner import Runner, RunnerLimits
from storage.keys import KeyCounts, StoredKey, count_keys, list_keys
from storage.store import Program, Store

from .keys import KeyRing
from .limits import limits_of

log = structlog.get_logger(__name__)
KEY_LOOK_S = 1.0  # the wire contract: within 5 s on every process


class KeyWatch:
    """Looks at the store's keys on behalf of one key ring."""

    def __init__(
        self, store: Store, keyring: KeyRing, *, keys_max: int, sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        self._store, self.keyring, self._keys_max, self._sleep = store, keyring, keys_max, sleep
        self._known: KeyCounts | None = None
        self._looking = asyncio.Lock()  # an older look never overwrites what a newer one found

    async def look(self) -> None:
        """Have the key ring hold what the store holds now.

        Raises:
            StoreBusy: the store did not answer within its bounds.
        """
        async with self._looking:
            counts, rows = await self._store.read(self._changed)
            if rows is None:
                return
            was_open, is_first = self.keyring.open, self._known is None
            self._known = counts
            self.keyring.replace(rows)
            if was_open and not self.keyring.open and not is_first:
                log.warning("closed_by_first_key", detail="an API key exists: every caller needs one from now on")
            if not is_first:
                log.info("keys_changed", valid=self.keyring.valid_count)

    async def run(self) -> None:
        """Look at every interval, for ever."""
        away = False
        while True:
            await self._sleep(KEY_LOOK_S)
            try:
                await self.look()
                away = False
            except Exception as error:
                if not away:
                    log.warning("key_look_failed", detail=str(error))
                away = True

    def _changed(self) -> Program[tuple[KeyCounts, list[StoredKey] | None]]:
        counts = yield from count_keys(self._store.dialect)
        if counts == self._known:
            return counts, None
        return counts, (yield from list_keys(self._store.dialect, keys_max=self._keys_max))


async def watch_keys(settings: Settings, store: Store, stack: AsyncExitStack) -> KeyWatch:
    """Return a watch that has looked once and looks on until the stack ends."""
    watch = KeyWatch(store, KeyRing(), keys_max=settings.keys_max, sleep=asyncio.sleep)
    await watch.look()
    runner = Runner(
        limits_of(RunnerLimits, settings), monotonic=time.monotonic, sleep=asyncio.sleep, rng=random.Random()
    )
    stack.push_async_callback(runner.stop)
    runner.start("key watch", watch.run)
    return watch

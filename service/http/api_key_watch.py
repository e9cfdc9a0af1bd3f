"""Updates the key ring (the API keys that this process accepts) when keys in the store change, without a restart.

    this or another process ──creates or revokes a key──> store ──polled every second──> key ring

A poll counts the API keys in the store, and reads all keys only if the counts have changed. It also ends the streams of
revoked keys. While the store does not answer, the known keys stay valid, and nobody can revoke one.

The watch is not a job, because a revoked key must stop working even if an operator has paused all jobs.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import structlog

from config import Settings
from service.contract.api_keys import KeyRing
from storage.boards.api_keys import (
    KeyCounts,
    StoredKey,
    VoidsSign,
    count_keys,
    list_keys,
    list_voids,
    read_voids_sign,
)
from storage.store import Program, Store

if TYPE_CHECKING:
    from service.contract.player_tokens import PlayerTokens

log = structlog.get_logger(__name__)
KEY_POLL_INTERVAL_S = 1.0  # the API promises that a change takes effect within 5 s in every process


class KeyWatch:
    def __init__(self, store: Store, keyring: KeyRing, *, keys_max: int) -> None:
        self._store, self.keyring, self._keys_max = store, keyring, keys_max
        self._known: KeyCounts | None = None
        self._known_voids: VoidsSign = (0, 0)
        self._poll_lock = asyncio.Lock()  # one poll at a time: an older poll must not undo a newer one

    async def poll_keys(self) -> None:
        """Replace the keys in the key ring with the store's current keys.

        Raises:
            StoreBusyError: the store did not answer in time.
        """
        async with self._poll_lock:
            counts, rows = await self._store.read(self._changed)
            await self._poll_voids()
            self.keyring.end_invalid()
            if rows is None:
                return
            was_open, is_first = self.keyring.open, self._known is None
            self._known = counts
            self.keyring.replace_keys(rows)
            if was_open and not self.keyring.open and not is_first:
                log.warning("closed_by_first_key", detail="an API key exists: every caller needs one from now on")
            if not is_first:
                log.info("keys_changed", valid=self.keyring.valid_count)

    async def _poll_voids(self) -> None:
        if (tokens := self.keyring.tokens) is None:
            return
        sign, voids = await self._store.read(self._changed_voids)
        if voids is not None:
            self._known_voids, tokens.voids = sign, voids

    def _changed_voids(self) -> Program[tuple[VoidsSign, dict[str, int] | None]]:
        sign = yield from read_voids_sign()
        return sign, None if sign == self._known_voids else (yield from list_voids())

    async def poll_forever(self) -> None:
        failing = False
        while True:
            await asyncio.sleep(KEY_POLL_INTERVAL_S)
            try:
                await self.poll_keys()
                failing = False
            except Exception as error:
                if not failing:
                    log.warning("key_look_failed", detail=str(error))
                failing = True

    def _changed(self) -> Program[tuple[KeyCounts, list[StoredKey] | None]]:
        counts = yield from count_keys()
        if counts == self._known:
            return counts, None
        return counts, (yield from list_keys(limit=self._keys_max))


async def watch_keys(
    settings: Settings, store: Store, stack: AsyncExitStack, *, tokens: PlayerTokens | None
) -> KeyWatch:
    """Start a watch, poll the store once, and return the watch, which continues to poll until `stack` is closed."""
    keyring = KeyRing(anonymous=settings.anonymous_role == "reader", tokens=tokens)
    watch = KeyWatch(store, keyring, keys_max=settings.keys_max)
    await watch.poll_keys()
    polling = asyncio.create_task(watch.poll_forever(), name="key watch")
    stack.push_async_callback(asyncio.wait, [polling], timeout=settings.job_stop_s_max)
    stack.callback(polling.cancel)
    return watch

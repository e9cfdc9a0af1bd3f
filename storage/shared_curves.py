"""Curves through memcached: whoever stores one in the table puts it there too, and others look there first.

The rule: the table alone says which curves there are; memcached only saves reading their contents from it. So a value
that is absent, damaged, forged, of another place or of another version costs a read of the table and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import structlog

from predictor import Curve, CurveCorrupt

from .envelope import Envelopes, Listed
from .memcached import Memcached

log = structlog.get_logger(__name__)

ReadOutcome = Literal["hit", "miss", "stale", "corrupt"]  # a miss: absent, or its server did not answer
WriteOutcome = Literal["stored", "too_large", "failed"]


class SharingObserver(Protocol):
    """What sharing tells its operators."""

    def shared_read(self, outcome: ReadOutcome) -> None:
        """One curve was looked for."""

    def shared_write(self, outcome: WriteOutcome) -> None:
        """One curve was to be put."""

    def memcached_failed(self, servers: int) -> None:
        """So many servers failed in a call."""


class SharedCurves:
    """The curves that all processes of one store share."""

    def __init__(self, cache: Memcached, envelopes: Envelopes, observer: SharingObserver) -> None:
        self._cache, self._envelopes, self._observer = cache, envelopes, observer

    async def find(self, wanted: Sequence[Listed]) -> dict[Listed, Curve]:
        """Those of the wanted curves that are at hand. Once a call has failed no more is asked of any server."""
        found: dict[Listed, Curve] = {}
        batch_max = self._cache.limits.memcached_batch_max
        for start in range(0, len(wanted), batch_max):
            batch = {self._envelopes.key(listed): listed for listed in wanted[start : start + batch_max]}
            answered = await self._cache.get_many(list(batch))
            # Decoding 1,000 knots takes a millisecond: off the event loop.
            opened = await asyncio.to_thread(self._open_all, batch, answered.values)
            for listed, curve, outcome in opened:
                self._observer.shared_read(outcome)
                if curve is not None:
                    found[listed] = curve
            if answered.errors:
                self._observer.memcached_failed(answered.errors)
                break
        return found

    def _open_all(
        self, batch: Mapping[str, Listed], values: Mapping[str, bytes]
    ) -> list[tuple[Listed, Curve | None, ReadOutcome]]:
        return [(listed, *self._open(listed, values.get(key))) for key, listed in batch.items()]

    def _open(self, listed: Listed, value: bytes | None) -> tuple[Curve | None, ReadOutcome]:
        if value is None:
            return None, "miss"
        try:
            curve = self._envelopes.open(listed, value)
        except CurveCorrupt as error:
            log.warning(
                "shared_curve_corrupt", board_key=listed.board_key, column_index=listed.column_index, detail=str(error)
            )
            return None, "corrupt"
        return curve, "stale" if curve is None else "hit"

    async def put(self, listed: Listed, curve: Curve) -> None:
        """Make a curve that is in the table known to the others."""
        value = await asyncio.to_thread(self._envelopes.seal, listed, curve)
        if len(value) > self._cache.limits.memcached_value_bytes_max:
            self._observer.shared_write("too_large")  # it stays in the table
            return
        answered = await self._cache.put(self._envelopes.key(listed), value)
        self._observer.shared_write("stored" if answered.stored else "failed")
        if answered.errors:
            self._observer.memcached_failed(answered.errors)

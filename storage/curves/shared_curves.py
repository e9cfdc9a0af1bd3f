"""Shares curves between processes through memcached, as copies that are sealed against forgery.

The process that stores a curve puts a copy there for the others to read. A copy may be absent, damaged, forged, or made
for another column or version. Then the only cost is that a process has to read the curve from the table.

A value consists of a seal (16 bytes), the curve's version (8 bytes) and the encoded curve. The seal is a hash of the
key, the version and the curve, so another board's curve counts as corrupt even if intact. The hash needs a secret,
which comes from the store's salt. A checksum is not enough, because anyone who can reach memcached's network port could
store a forged curve with a correct checksum. Sealing 11 KB takes 20 us (docs/decisions.md).
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Mapping, Sequence
from hashlib import blake2b

import structlog

from predictor import Curve, CurveCorruptError, decode_curve, encode_curve
from storage.meter import Meter, ReadOutcome

from .memcached import Memcached
from .stored_curves import ListedCurve

log = structlog.get_logger(__name__)
SEAL_BYTES = 16
_VERSION_BYTES = 8


class SharedCurves:
    def __init__(self, cache: Memcached, envelopes: Envelopes, meter: Meter) -> None:
        self._cache, self._envelopes, self._meter = cache, envelopes, meter

    async def find_curves(self, wanted: Sequence[ListedCurve]) -> dict[ListedCurve, Curve]:
        """Find the wanted curves that memcached has. Stop asking after the first call in which a server failed."""
        found: dict[ListedCurve, Curve] = {}
        batch_max = self._cache.limits.memcached_batch_max
        for start in range(0, len(wanted), batch_max):
            batch = {self._envelopes.key(listed): listed for listed in wanted[start : start + batch_max]}
            answered = await self._cache.get_many(list(batch))
            # Decoding takes so long that it must not run on the event loop.
            opened = await asyncio.to_thread(self._open_all, batch, answered.values)
            for listed, curve, outcome in opened:
                self._meter.add("rankcurve_shared_curve_reads", 1, outcome)
                if curve is not None:
                    found[listed] = curve
            if answered.errors:
                self._meter.add("rankcurve_memcached_errors", answered.errors)
                break
        return found

    def _open_all(
        self, batch: Mapping[str, ListedCurve], values: Mapping[str, bytes]
    ) -> list[tuple[ListedCurve, Curve | None, ReadOutcome]]:
        return [(listed, *self._open(listed, values.get(key))) for key, listed in batch.items()]

    def _open(self, listed: ListedCurve, value: bytes | None) -> tuple[Curve | None, ReadOutcome]:
        if value is None:
            return None, "miss"
        try:
            curve = self._envelopes.open(listed, value)
        except CurveCorruptError as error:
            log.warning(
                "shared_curve_corrupt", leaf_key=listed.leaf_key, column_index=listed.column_index, detail=str(error)
            )
            return None, "corrupt"
        return curve, "stale" if curve is None else "hit"

    async def store_curve(self, listed: ListedCurve, curve: Curve) -> None:
        """Store a copy of a curve in memcached for other processes. The table must already hold the curve."""
        value = await asyncio.to_thread(self._envelopes.seal, listed, curve)
        if len(value) > self._cache.limits.memcached_value_bytes_max:
            # Other processes read the curve from the table.
            self._meter.add("rankcurve_shared_curve_writes", 1, "too_large")
            return
        answered = await self._cache.store_value(self._envelopes.key(listed), value)
        self._meter.add("rankcurve_shared_curve_writes", 1, "stored" if answered.stored else "failed")
        if answered.errors:
            self._meter.add("rankcurve_memcached_errors", answered.errors)


class Envelopes:
    def __init__(self, salt: str) -> None:
        secret = bytes.fromhex(salt)
        self._seal_key = blake2b(key=secret, person=b"rankcurve seal").digest()
        # Two stores on the same servers never share a key in memcached, and a key reveals nothing about the salt.
        self._place = blake2b(key=secret, person=b"rankcurve place", digest_size=8).hexdigest()

    def key(self, listed: ListedCurve) -> str:
        """Return the curve's key in memcached. All versions share a key, so that a new one replaces the old one."""
        return f"rankcurve:{self._place}:{listed.leaf_key}:{listed.column_index}:{listed.epoch}"

    def seal(self, listed: ListedCurve, curve: Curve) -> bytes:
        body = listed.version.to_bytes(_VERSION_BYTES, "big") + encode_curve(curve)
        return self._make_seal(listed, body) + body

    def open(self, listed: ListedCurve, value: bytes) -> Curve | None:
        """Unseal a value from memcached. Return the listed curve, or None if the value holds another of its versions.

        Raises:
            CurveCorruptError: the value is damaged, forged, or a curve of another column or epoch.
        """
        seal, body = value[:SEAL_BYTES], value[SEAL_BYTES:]
        if not hmac.compare_digest(seal, self._make_seal(listed, body)):
            raise CurveCorruptError("the seal does not match")
        if int.from_bytes(body[:_VERSION_BYTES], "big") != listed.version:
            return None
        curve = decode_curve(body[_VERSION_BYTES:])
        # A store restored from a backup assigns the same versions again, to curves with another `as_of_us`.
        return curve if curve.as_of_us == listed.as_of_us else None

    def _make_seal(self, listed: ListedCurve, body: bytes) -> bytes:
        hashed = blake2b(self.key(listed).encode(), key=self._seal_key, digest_size=SEAL_BYTES)
        hashed.update(body)
        return hashed.digest()

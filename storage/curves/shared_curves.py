"""Curves shared through memcached: the process that stores a curve also puts it there, and others look there first.

The table of curves alone says which curves exist; memcached only saves reading their contents from the table. A value
that is absent, damaged, forged, or of another place or version costs one read of the table and nothing else.

A value is an envelope, sealed and bound to the place that its curve was made for:

    magic 4s · format B · board key q · column index i · epoch q · version q · the curve's bytes · then the 16-byte seal

An opened envelope holds exactly the curve that a holder of the store's salt stored for that board, column, epoch and
version. A checksum would detect damage only. Memcached asks nobody for a name, so anyone who reaches its port could
store a curve of their own with a correct checksum. The seal is a hash keyed from the salt; it takes 20 us for 11 KB
(docs/decisions.md). It covers the place too, so a sound curve of another board counts as corrupt.
"""

from __future__ import annotations

import asyncio
import hmac
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal, Protocol

import structlog

from predictor import Curve, CurveCorruptError, decode_curve, encode_curve
from storage.log.change_log import LogMark

from .memcached import Memcached

log = structlog.get_logger(__name__)
ReadOutcome = Literal["hit", "miss", "stale", "corrupt"]  # a miss: absent, or its server did not answer
WriteOutcome = Literal["stored", "too_large", "failed"]


class SharingObserver(Protocol):
    """Receives what happens while curves are shared, for metrics."""

    def shared_read(self, outcome: ReadOutcome) -> None:
        """Count one curve that was looked for."""

    def shared_write(self, outcome: WriteOutcome) -> None:
        """Count one curve that was to be stored."""

    def memcached_failed(self, servers: int) -> None:
        """Count the servers that failed in one call."""


@dataclass(frozen=True, slots=True)
class ListedCurve:
    """A stored curve without its contents, as the table lists it."""

    board_key: int
    column_index: int
    epoch: int
    version: int
    as_of_us: int
    mark: LogMark | None = None  # how far the fit's snapshot saw the change log; None: unknown


class SharedCurves:
    """The curves that all processes of one store share."""

    def __init__(self, cache: Memcached, envelopes: Envelopes, observer: SharingObserver) -> None:
        self._cache, self._envelopes, self._observer = cache, envelopes, observer

    async def find_curves(self, wanted: Sequence[ListedCurve]) -> dict[ListedCurve, Curve]:
        """Return those of the wanted curves that the cache holds. After a failed call no server is asked for more."""
        found: dict[ListedCurve, Curve] = {}
        batch_max = self._cache.limits.memcached_batch_max
        for start in range(0, len(wanted), batch_max):
            batch = {self._envelopes.key(listed): listed for listed in wanted[start : start + batch_max]}
            answered = await self._cache.get_many(list(batch))
            # Decoding takes long enough to run off the event loop.
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
                "shared_curve_corrupt", board_key=listed.board_key, column_index=listed.column_index, detail=str(error)
            )
            return None, "corrupt"
        return curve, "stale" if curve is None else "hit"

    async def store_curve(self, listed: ListedCurve, curve: Curve) -> None:
        """Store a curve in the cache, for other processes. It must be in the table already."""
        value = await asyncio.to_thread(self._envelopes.seal, listed, curve)
        if len(value) > self._cache.limits.memcached_value_bytes_max:
            self._observer.shared_write("too_large")  # it stays in the table
            return
        answered = await self._cache.store_value(self._envelopes.key(listed), value)
        self._observer.shared_write("stored" if answered.stored else "failed")
        if answered.errors:
            self._observer.memcached_failed(answered.errors)


MAGIC = b"RKCE"
FORMAT = 1
SEAL_BYTES = 16
_HEADER = struct.Struct("<4sBqiqq")


class Envelopes:
    """Seals and opens the curves of one store."""

    def __init__(self, salt: str) -> None:
        secret = bytes.fromhex(salt)
        self._seal_key = blake2b(key=secret, person=b"rankcurve seal").digest()
        # Two stores on the same servers never use the same name, and a name reveals nothing of the salt.
        self._place = blake2b(key=secret, person=b"rankcurve place", digest_size=8).hexdigest()

    def key(self, listed: ListedCurve) -> str:
        """Return the name in the cache. A column and epoch have one name, so a new version replaces the old one."""
        return f"rankcurve:{FORMAT}:{self._place}:{listed.board_key}:{listed.column_index}:{listed.epoch}"

    def seal(self, listed: ListedCurve, curve: Curve) -> bytes:
        """Return the value to store."""
        body = _header(listed, listed.version) + encode_curve(curve)
        return body + self._sealed(body)

    def open(self, listed: ListedCurve, value: bytes) -> Curve | None:
        """Return the listed curve; None if the value is a sound curve of this place but of another version.

        Raises:
            CurveCorruptError: the value is anything else.
        """
        body, seal = value[:-SEAL_BYTES], value[-SEAL_BYTES:]
        if len(body) < _HEADER.size or not hmac.compare_digest(seal, self._sealed(body)):
            raise CurveCorruptError("the seal does not match")
        version = _HEADER.unpack_from(body)[-1]
        if body[: _HEADER.size] != _header(listed, version):
            raise CurveCorruptError("the curve belongs to another column")
        if version != listed.version:
            return None
        curve = decode_curve(body[_HEADER.size :])
        # A store restored from a backup uses its versions a second time, at other times.
        return curve if curve.as_of_us == listed.as_of_us else None

    def _sealed(self, body: bytes) -> bytes:
        return blake2b(body, key=self._seal_key, digest_size=SEAL_BYTES).digest()


def _header(listed: ListedCurve, version: int) -> bytes:
    return _HEADER.pack(MAGIC, FORMAT, listed.board_key, listed.column_index, listed.epoch, version)

"""A curve as it travels through a cache that anybody may write to: sealed, and bound to the place it was made for.

    magic 4s · format B · board key q · column index i · epoch q · version q · the curve's bytes · then the 16-byte seal

The one rule: what is opened is the very curve that a holder of the store's salt stored for that board, column, epoch
and version. A checksum would tell damage only: memcached asks nobody for a name, so whoever reaches its port could
store a curve of their own with a checksum that is right. The seal is a hash keyed from the salt, 20 us for 11 KB; it
covers the place too, so that a sound curve of another board is no less corrupt than noise.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass
from hashlib import blake2b

from predictor import Curve, CurveCorrupt, decode, encode

from .change_log import Mark

MAGIC = b"RKCE"
FORMAT = 1
SEAL_BYTES = 16
_HEADER = struct.Struct("<4sBqiqq")


@dataclass(frozen=True, slots=True)
class Listed:
    """A stored curve without its contents, as the table lists it."""

    board_key: int
    column_index: int
    epoch: int
    version: int
    as_of_us: int
    mark: Mark | None = None  # what of the change log the fit's snapshot saw; None: not known


class Envelopes:
    """Seals and opens the curves of one store."""

    def __init__(self, salt: str) -> None:
        secret = bytes.fromhex(salt)
        self._seal_key = blake2b(key=secret, person=b"rankcurve seal").digest()
        # Two stores that share servers never meet, and their names tell nothing of the salt.
        self._place = blake2b(key=secret, person=b"rankcurve place", digest_size=8).hexdigest()

    def key(self, listed: Listed) -> str:
        """The name in the cache: one a column and epoch, so that a new version takes the place of the old one."""
        return f"rankcurve:{FORMAT}:{self._place}:{listed.board_key}:{listed.column_index}:{listed.epoch}"

    def seal(self, listed: Listed, curve: Curve) -> bytes:
        """The value to store."""
        body = _header(listed, listed.version) + encode(curve)
        return body + self._sealed(body)

    def open(self, listed: Listed, value: bytes) -> Curve | None:
        """The curve that is listed; None where the value is a sound one of this place and another version.

        Raises:
            CurveCorrupt: anything else.
        """
        body, seal = value[:-SEAL_BYTES], value[-SEAL_BYTES:]
        if len(body) < _HEADER.size or not hmac.compare_digest(seal, self._sealed(body)):
            raise CurveCorrupt("the seal does not match")
        version = _HEADER.unpack_from(body)[-1]
        if body[: _HEADER.size] != _header(listed, version):
            raise CurveCorrupt("the curve is another column's")
        if version != listed.version:
            return None
        curve = decode(body[_HEADER.size :])
        # A store that was set back to a backup gives its versions a second time, at other times.
        return curve if curve.as_of_us == listed.as_of_us else None

    def _sealed(self, body: bytes) -> bytes:
        return blake2b(body, key=self._seal_key, digest_size=SEAL_BYTES).digest()


def _header(listed: Listed, version: int) -> bytes:
    return _HEADER.pack(MAGIC, FORMAT, listed.board_key, listed.column_index, listed.epoch, version)

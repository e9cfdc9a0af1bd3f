"""Opaque cursors: a place in a ranking, signed with the store's salt. One survives a restart, none can be made up."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Literal, TypeVar

import msgspec

from storage.errors import BadCursor

P = TypeVar("P", "Place", "BoardsPlace", "PoolsPlace", "ResourcesPlace", "ClientsPlace", "KeysPlace")
TAG_BYTES = 8
CURSOR_CHARS_MAX = 2048


class Place(msgspec.Struct, array_like=True, frozen=True):
    """A row of a ranking, and which way to go from it."""

    board_key: int
    epoch: int
    column_index: int
    forward: bool
    cell: str
    owner: str
    row_number: int  # 1-based place of the row in the order
    changes: int  # of the board when the number was known


class BoardsPlace(msgspec.Struct, array_like=True, frozen=True):
    """The last leaderboard of a page of the catalog."""

    after: str
    prefix: str


class PoolsPlace(msgspec.Struct, array_like=True, frozen=True):
    """The last pool of a page of pools."""

    after: tuple[str, str]
    client_id: str | None


class ResourcesPlace(msgspec.Struct, array_like=True, frozen=True):
    """The last resource of a page of a pool."""

    pool_key: int
    after: str


class ClientsPlace(msgspec.Struct, array_like=True, frozen=True):
    """The last client of a page of clients; apart from other places by what it says first."""

    what: Literal["clients"]
    after: str


class KeysPlace(msgspec.Struct, array_like=True, frozen=True):
    """The last API key of a page of keys."""

    what: Literal["keys"]
    after: tuple[int, str]


class Cursors:
    """Writes and reads cursors."""

    def __init__(self, salt: str) -> None:
        self._key = hashlib.blake2b(bytes.fromhex(salt), person=b"rankcurve-cursor").digest()

    def write(self, place: Place | BoardsPlace | PoolsPlace | ResourcesPlace | ClientsPlace | KeysPlace) -> str:
        """The cursor of a place."""
        payload = msgspec.msgpack.encode(place)
        return base64.urlsafe_b64encode(self._tag(payload) + payload).rstrip(b"=").decode()

    def read(self, cursor: str, kind: type[P]) -> P:
        """The place of this kind that a cursor stands for.

        Raises:
            BadCursor: not one that this store gave out, or a place of another kind.
        """
        try:
            if len(cursor) > CURSOR_CHARS_MAX:
                raise ValueError
            signed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
            payload = signed[TAG_BYTES:]
            if not hmac.compare_digest(signed[:TAG_BYTES], self._tag(payload)):
                raise ValueError
            return msgspec.msgpack.decode(payload, type=kind)
        except (ValueError, binascii.Error, msgspec.DecodeError):
            raise BadCursor from None

    def _tag(self, payload: bytes) -> bytes:
        return hashlib.blake2b(payload, key=self._key, digest_size=TAG_BYTES).digest()

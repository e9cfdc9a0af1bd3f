"""Cursors: opaque texts that callers send back to get the next page of a list or of a ranking.

Each cursor is signed with the salt of the store. Without the signature, callers could make up cursors that read from
places that no page has shown them; and because the salt is stored, cursors survive a restart.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from storage.errors import BadCursorError

from .problems import ProblemError

R = TypeVar("R")
P = TypeVar("P", bound=msgspec.Struct)
A = TypeVar("A")
TAG_BYTES = 8
CURSOR_CHARS_MAX = 2048


class RowCursor(msgspec.Struct, array_like=True, frozen=True):
    """The content of a cursor of a ranking: a row, and whether the page has the rows after or before this row."""

    board_key: int
    epoch: int
    column_index: int
    forward: bool
    cell: str
    owner: str
    row_number: int  # 1-based
    changes: int | None  # the board's count of changes when `row_number` was exact; None: it is an estimate
    tier: str | None = None  # the tier whose rows the pages have; None: the pages have all rows


class ListCursor(msgspec.Struct, array_like=True, frozen=True):
    """The content of a cursor of a list: `after` identifies the last item of a page, `of` the list and its filters.

    The next page begins after that item. `after` has the item's values by which the list is ordered: a text, or several
    values. For the journal or an owner's posts, `after` has the number of the last change read in each partition.
    """

    of: str | int | None
    after: Any


class CursorCodec:
    def __init__(self, salt: str) -> None:
        self._key = hashlib.blake2b(bytes.fromhex(salt), person=b"rankcurve-cursor").digest()

    def encode_cursor(self, place: msgspec.Struct) -> str:
        """Sign a `RowCursor` or `ListCursor` and encode it as a text."""
        payload = msgspec.msgpack.encode(place)
        return base64.urlsafe_b64encode(self._tag(payload) + payload).rstrip(b"=").decode()

    def decode_cursor(self, cursor: str, kind: type[P]) -> P:
        """Decode a cursor of the type `kind`, a `RowCursor` or a `ListCursor`.

        Raises:
            BadCursorError: the store did not sign the cursor, or the cursor is not of the type `kind`.
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
            raise BadCursorError from None

    def find_start(self, cursor: str | None, of: str | int | None, first: A) -> A:
        """Find the value after which a page begins: the cursor's `after`, or `first` without a cursor.

        Raises:
            BadCursorError: the store did not sign the cursor, or `after` does not have the type of `first`.
            ProblemError: `bad_cursor`, because the cursor belongs to another list: its `of` is not the parameter `of`.
        """
        if cursor is None:
            return first
        place = self.decode_cursor(cursor, ListCursor)
        if place.of != of:
            raise ProblemError("bad_cursor", "the cursor belongs to another list or order", pointer="cursor")
        try:
            return msgspec.convert(place.after, type(first))
        except msgspec.ValidationError:
            raise BadCursorError from None

    def cut_page(
        self, found: Sequence[R], limit: int, of: str | int | None, find_place: Callable[[R], object]
    ) -> tuple[Sequence[R], str | None]:
        """Cut a page of `limit` items from `found`.

        Return it with the next page's cursor, or None if nothing follows.
        """
        shown = found[:limit]
        return shown, self.encode_cursor(ListCursor(of, find_place(shown[-1]))) if len(found) > limit else None

    def encode_numbers(self, numbers: tuple[int, ...], of: Literal["journal", "posts"] = "journal") -> int | str:
        """Encode a journal position for callers: its number, or a cursor if the store has several partitions."""
        return numbers[0] if len(numbers) == 1 else self.encode_cursor(ListCursor(of, numbers))

    def decode_numbers(self, place: int | str, of: Literal["journal", "posts"] = "journal") -> tuple[int, ...]:
        """Decode a journal position to a number for each partition. `place` is a cursor, or the number in partition 0.

        Raises:
            BadCursorError, ProblemError: the store did not sign the cursor, or the cursor belongs to another list.
        """
        if isinstance(place, int):
            return (place,)
        try:
            return self.find_start(place, of, ())
        except BadCursorError:
            raise BadCursorError("the cursor was not made by the journal of this store") from None

    def _tag(self, payload: bytes) -> bytes:
        return hashlib.blake2b(payload, key=self._key, digest_size=TAG_BYTES).digest()

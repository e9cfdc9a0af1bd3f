"""Encodes a curve as bytes for a table or a cache, as MessagePack with a CRC32 checksum.

A damaged curve would silently give wrong ranks. Decoding therefore either returns exactly the curve that was encoded or
raises `CurveCorruptError`. Keys may have any size, so they are stored as bytes: the first key, then the differences
between neighbours, all equally long. 1,000 knots take 6 to 19 KB.
"""

from itertools import accumulate
from operator import add, sub
from typing import TypeVar
from zlib import crc32

import msgspec

from .curve import Curve, FitMethod, Knot
from .errors import CurveCorruptError, KnotsInvalidError

T = TypeVar("T")
_CRC_BYTES = 4


class _StoredCurve(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    method: FitMethod
    total: int
    as_of_us: int
    certificate: float | None
    step: bytes
    first_key: bytes
    differences: bytes  # for each knot except the first, its key minus the key of the knot before it
    gaps: list[int]  # for each knot, the number of entries between the knot before it and this knot
    ties: list[int]
    errors: list[int] | None
    shapes: list[tuple[int, int]] | None


# msgspec analyses a type when the decoder is made. So threads can share a decoder that is made at the import.
_DECODER = msgspec.msgpack.Decoder(_StoredCurve)


def encode_curve(curve: Curve) -> bytes:
    """Encode a curve. Raise `KnotsInvalidError` if its time or total does not fit into 64 bits."""
    knots = curve.knots
    keys, better_counts, ties = zip(*knots, strict=True) if knots else ((), (), ())
    differences = [*map(sub, keys[1:], keys)]
    width = (max(differences, default=0).bit_length() + 7) // 8
    counted = (0, *map(add, better_counts, ties))
    return encode_checked(
        _StoredCurve(
            curve.method,
            curve.total,
            curve.as_of_us,
            curve.certificate,
            pack_int(curve.step),
            pack_int(keys[0] if keys else 0),
            b"".join([difference.to_bytes(width, "big") for difference in differences]),
            [*map(sub, better_counts, counted)],
            [*ties],
            curve.errors,  # type: ignore[arg-type]  # a tuple is encoded as a list
            curve.shapes,  # type: ignore[arg-type]
        )
    )


def decode_curve(data: bytes) -> Curve:
    """Decode a curve from the bytes that `encode_curve` returned, or raise `CurveCorruptError`."""
    stored = decode_checked(data, _DECODER)
    if len(stored.gaps) != len(stored.ties):
        raise CurveCorruptError("the knots have different numbers of gaps and ties")
    try:
        return Curve(
            _list_knots(stored),
            total=stored.total,
            as_of_us=stored.as_of_us,
            method=stored.method,
            step=unpack_int(stored.step),
            certificate=stored.certificate,
            errors=stored.errors,
            shapes=stored.shapes,
        )
    except ValueError as error:
        raise CurveCorruptError(f"the contents are no curve: {error}") from error


def _list_knots(stored: _StoredCurve) -> list[Knot]:
    if not stored.ties:
        return []
    packed, gap_count = stored.differences, len(stored.ties) - 1
    width = len(packed) // gap_count if gap_count else 0
    differences = [int.from_bytes(packed[at : at + width], "big") for at in range(0, len(packed), width or 1)]
    keys = accumulate(differences, initial=unpack_int(stored.first_key))
    # For each knot, the number of entries with its key or a better one.
    counted = accumulate(map(add, stored.gaps, stored.ties))
    return [Knot(key, upto - ties, ties) for key, upto, ties in zip(keys, counted, stored.ties, strict=True)]


def encode_checked(stored: msgspec.Struct) -> bytes:
    """Encode a struct with a checksum. Raise `KnotsInvalidError` if a number does not fit into 64 bits."""
    try:
        body = msgspec.msgpack.encode(stored)
    except OverflowError as error:
        raise KnotsInvalidError(f"a number does not fit into 64 bits: {error}") from error
    return body + crc32(body).to_bytes(_CRC_BYTES, "big")


def decode_checked(data: bytes, decoder: msgspec.msgpack.Decoder[T]) -> T:
    """Decode a struct from the bytes that `encode_checked` returned, or raise `CurveCorruptError` if damaged."""
    body = data[:-_CRC_BYTES]
    if data[-_CRC_BYTES:] != crc32(body).to_bytes(_CRC_BYTES, "big"):
        raise CurveCorruptError("the checksum does not match")
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CurveCorruptError(f"the contents have another form: {error}") from error


def pack_int(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def unpack_int(packed: bytes) -> int:
    return int.from_bytes(packed, "big", signed=True)

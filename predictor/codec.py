"""Encodes a curve as bytes, for a table or a cache that processes of different versions share.

Decoding gives exactly the curve that was encoded, or raises `CurveCorruptError`.

The fields, one after the other, little-endian:

    magic            4 bytes   RKCV
    version          uint8     the format version
    method           uint8     index of the fit method in METHODS
    certified        uint8     1 if the curve has a certificate, else 0
    knots            uint32    number of knots
    total            uint64    entries at the snapshot
    as_of_us         int64     time of the snapshot, microseconds since 1970
    certificate      float64   worst relative error; 0 without a certificate
    step             integer   the lattice step
    first key        integer   the key of the first knot; 0 without knots
    key differences  column    for each knot, its key minus the key of the knot before it; 0 for the first knot
    entries between  column    for each knot, the number of entries between the knot before it and this knot
    ties             column    for each knot, the number of entries with its key
    options          uint8     bit 0: the errors follow; bit 1: the control values follow
    errors           column    for each gap between two knots, the largest error in ranks
    control values   2 columns for each gap between two knots, the first and the second inner control value
    checksum         uint32    the CRC32 of all fields before

An `integer` may have any size: its width in bytes (uint16), then its bytes. A `column` is a list of numbers of one
width: the width in bytes (uint16), which is the smallest that fits all of them, then the numbers. 1,000 knots take 6 to
19 KB.
"""

import struct
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import get_args
from zlib import crc32

from .curve import Curve, FitMethod, Knot
from .errors import CurveCorruptError, KnotsInvalidError

MAGIC = b"RKCV"
VERSION = 2
METHODS: tuple[FitMethod, ...] = get_args(FitMethod)  # encoded curves store an index of it, so only append methods
_HEADER = struct.Struct("<4sBBBIQqd")
_CRC = struct.Struct("<I")
_WIDTH = struct.Struct("<H")
_ERRORS, _SHAPES = 1, 2  # bits of the options
_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}  # codes of `struct` by width in bytes; small letters for signed numbers


def encode_curve(curve: Curve) -> bytes:
    """Return the bytes of a curve. Raise `KnotsInvalidError` if its time or total does not fit into 64 bits."""
    knots = curve.knots
    certified = curve.certificate is not None
    gaps, counted, key = [], 0, knots[0].key if knots else 0
    differences = []
    for knot in knots:
        differences.append(knot.key - key)
        gaps.append(knot.better_count - counted)
        key, counted = knot.key, knot.better_count + knot.ties
    try:
        header = _HEADER.pack(
            MAGIC,
            VERSION,
            METHODS.index(curve.method),
            certified,
            len(knots),
            curve.total,
            curve.as_of_us,
            curve.certificate or 0.0,
        )
        parts = [header, pack_int(curve.step), pack_int(knots[0].key if knots else 0)]
        parts += [pack_column(differences), pack_column(gaps), pack_column([knot.ties for knot in knots])]
        parts += _options(curve)
    except (struct.error, ValueError) as error:
        raise KnotsInvalidError(f"this curve does not fit the format: {error}") from error
    return add_checksum(parts)


def decode_curve(data: bytes) -> Curve:
    """Return the curve that `encode_curve` encoded, or raise `CurveCorruptError`."""
    body = strip_checksum(data, MAGIC, _HEADER)
    if body[len(MAGIC)] != VERSION:
        raise CurveCorruptError(f"format version {body[len(MAGIC)]}, this program reads {VERSION}")
    try:
        return _curve(body)
    except (struct.error, ValueError, IndexError) as error:
        raise CurveCorruptError(f"the contents are no curve: {error}") from error


def _curve(body: bytes) -> Curve:
    """Parse the body of a curve; raise struct.error, ValueError or IndexError if it is not one."""
    _, _, method, certified, knot_count, total, as_of_us, certificate = _HEADER.unpack_from(body)
    step, at = unpack_int(body, _HEADER.size)
    first_key, at = unpack_int(body, at)
    differences, at = unpack_column(body, at, knot_count)
    gaps, at = unpack_column(body, at, knot_count)
    ties, at = unpack_column(body, at, knot_count)
    errors, shapes, at = _unpack_options(body, at, max(0, knot_count - 1))
    if at != len(body) or certified > 1 or (knot_count and differences[0]):
        raise ValueError("parts are missing or left over")
    keys = accumulate(differences, initial=first_key)
    next(keys)
    # `counted` holds, for each knot, how many entries have its key or a better one.
    counted = accumulate(map(int.__add__, gaps, ties))
    knots = [Knot(key, upto - tied, tied) for key, upto, tied in zip(keys, counted, ties, strict=True)]
    return Curve(
        knots,
        total=total,
        as_of_us=as_of_us,
        method=METHODS[method],
        step=step,
        certificate=certificate if certified else None,
        errors=errors,
        shapes=shapes,
    )


def _options(curve: Curve) -> list[bytes]:
    parts = [bytes([_ERRORS * (curve.errors is not None) + _SHAPES * (curve.shapes is not None)])]
    if curve.errors is not None:
        parts.append(pack_column(curve.errors))
    if curve.shapes is not None:
        parts += [pack_column([shape[inner] for shape in curve.shapes]) for inner in (0, 1)]
    return parts


def _unpack_options(
    body: bytes, at: int, gap_count: int
) -> tuple[Sequence[int] | None, list[tuple[int, int]] | None, int]:
    """Return (errors, shapes, the offset of the next part)."""
    options, at = body[at], at + 1
    if options > _ERRORS + _SHAPES:
        raise ValueError("an option is not known")
    errors = shapes = None
    if options & _ERRORS:
        errors, at = unpack_column(body, at, gap_count)
    if options & _SHAPES:
        first, at = unpack_column(body, at, gap_count)
        second, at = unpack_column(body, at, gap_count)
        shapes = list(zip(first, second, strict=True))
    return errors, shapes, at


def add_checksum(parts: Iterable[bytes]) -> bytes:
    body = b"".join(parts)
    return body + _CRC.pack(crc32(body))


def strip_checksum(data: bytes, magic: bytes, header: struct.Struct) -> bytes:
    """Return the bytes without their checksum; raise `CurveCorruptError` if they are damaged or begin otherwise."""
    body = data[: -_CRC.size]
    if len(body) < header.size or body[: len(magic)] != magic:
        raise CurveCorruptError(f"the bytes do not begin with {magic!r} and its header")
    if _CRC.unpack(data[-_CRC.size :])[0] != crc32(body):
        raise CurveCorruptError("the checksum does not match")
    return body


def pack_int(value: int) -> bytes:
    """Encode a signed integer of any size as its width in bytes, followed by its bytes."""
    width = value.bit_length() // 8 + 1
    return _WIDTH.pack(width) + value.to_bytes(width, "little", signed=True)


def unpack_int(body: bytes, at: int) -> tuple[int, int]:
    """Return (the integer, the offset of the next part)."""
    (width,) = _WIDTH.unpack_from(body, at)
    at += _WIDTH.size
    if at + width > len(body):
        raise ValueError("an integer is cut off")
    return int.from_bytes(body[at : at + width], "little", signed=True), at + width


def pack_column(values: Sequence[int], *, signed: bool = False) -> bytes:
    """Encode integers of any size. The result begins with their common width in bytes."""
    bits = max(values, default=0).bit_length()
    if signed and values:
        bits = max(bits, (~min(values)).bit_length()) + 1
    width = (bits + 7) // 8
    width = next((size for size in _CODES if size >= width), width)
    if code := _CODES.get(width):
        return _WIDTH.pack(width) + struct.pack(f"<{len(values)}{code.lower() if signed else code}", *values)
    return _WIDTH.pack(width) + b"".join([value.to_bytes(width, "little", signed=signed) for value in values])


def unpack_column(body: bytes, at: int, count: int, *, signed: bool = False) -> tuple[Sequence[int], int]:
    """Return (the integers, the offset of the next part)."""
    (width,) = _WIDTH.unpack_from(body, at)
    at += _WIDTH.size
    end = at + width * count
    if width == 0 or end > len(body):
        raise ValueError("a column is cut off")
    if code := _CODES.get(width):
        return struct.unpack_from(f"<{count}{code.lower() if signed else code}", body, at), end
    return [int.from_bytes(body[i : i + width], "little", signed=signed) for i in range(at, end, width)], end

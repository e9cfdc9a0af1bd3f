"""Test the encoding of curves as bytes. Decoding returns the encoded curve or raises CurveCorruptError."""

import struct
from random import Random
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor import SHAPE_UNIT, Curve, CurveCorruptError, Knot, KnotsInvalidError, decode_curve, encode_curve
from tests.predictor.walking import sample


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    step = draw(st.sampled_from([1, 1, 3, 10**20]))
    key, counted, knots = draw(st.integers(-(10**40), 10**40)), 0, []
    sizes = st.sampled_from([3, 300, 10**5, 10**12, 10**40])
    for index in range(draw(st.integers(0, 12))):
        entries = 0 if index == 0 else draw(st.integers(0, draw(st.sampled_from([0, 5, 10**6]))))
        key += step * (draw(st.integers(2, draw(sizes))) if index else 0)
        ties = draw(st.integers(1, draw(st.sampled_from([1, 300, 10**7]))))
        knots.append(Knot(key, counted + entries, ties))
        counted += entries + ties
    gap_count = max(0, len(knots) - 1)
    errors = st.lists(st.integers(0, 10**6), min_size=gap_count, max_size=gap_count)
    shape = st.tuples(st.integers(0, SHAPE_UNIT), st.integers(0, SHAPE_UNIT)).map(lambda pair: (min(pair), max(pair)))
    return Curve(
        knots,
        total=counted,
        as_of_us=draw(st.integers(-(2**63), 2**63 - 1)),
        method=draw(st.sampled_from(["skip", "scan"])),
        step=step,
        certificate=draw(st.none() | st.floats(0, 10)),
        errors=draw(st.none() | errors),
        shapes=draw(st.none() | st.lists(shape, min_size=gap_count, max_size=gap_count)),
    )


def seal_body(body: bytes) -> bytes:
    return body + struct.pack(">I", crc32(body))


@given(curve=curves())
def test_a_curve_decodes_to_itself(curve: Curve) -> None:
    again = decode_curve(encode_curve(curve))
    assert again == curve
    assert encode_curve(again) == encode_curve(curve)
    for knot in curve.knots:
        for key in (knot.key - 1, knot.key, knot.key + 1):
            assert again.locate(key) == curve.locate(key)


@given(curve=curves(), data=st.data())
def test_a_flipped_bit_is_noticed(curve: Curve, data: st.DataObject) -> None:
    stored = bytearray(encode_curve(curve))
    bit_index = data.draw(st.integers(0, len(stored) * 8 - 1))
    stored[bit_index // 8] ^= 1 << bit_index % 8
    with pytest.raises(CurveCorruptError):
        decode_curve(bytes(stored))


@given(curve=curves(), data=st.data())
def test_a_cut_or_extended_curve_is_noticed(curve: Curve, data: st.DataObject) -> None:
    stored = encode_curve(curve)
    with pytest.raises(CurveCorruptError):
        decode_curve(stored[: data.draw(st.integers(0, len(stored) - 1))])
    with pytest.raises(CurveCorruptError):
        decode_curve(stored + data.draw(st.binary(min_size=1, max_size=9)))


@given(data=st.binary(max_size=200))
def test_bytes_that_are_no_curve_are_refused(data: bytes) -> None:
    for candidate in (data, seal_body(data), seal_body(b"\x9b\xa4skip\x00\x00\xc0" + data)):
        with pytest.raises(CurveCorruptError):
            decode_curve(candidate)


@given(curve=curves(), data=st.data())
def test_a_changed_body_under_a_right_checksum_is_refused_or_a_valid_curve(curve: Curve, data: st.DataObject) -> None:
    body = bytearray(encode_curve(curve)[:-4])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        again = decode_curve(seal_body(bytes(body)))
    except CurveCorruptError:
        return
    assert decode_curve(encode_curve(again)) == again


def test_a_time_beyond_64_bits_cannot_be_encoded() -> None:
    with pytest.raises(KnotsInvalidError):
        encode_curve(Curve([], total=0, as_of_us=2**64))


@pytest.mark.parametrize(("digits", "size_bytes_max"), [(16, 12_000), (40, 20_000)])
def test_a_thousand_knots_of_many_digits_stay_below_32_kib(digits: int, size_bytes_max: int) -> None:
    rng = Random(5)
    curve = sample(sorted(rng.randrange(10**digits) for _ in range(50_000)), 1_000)
    assert len(curve.knots) == 1_000
    assert len(encode_curve(curve)) <= size_bytes_max

"""Test the seal of shared curves.

Anyone who can reach the cache can write to it, and a wrong curve gives wrong ranks.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor import Curve, CurveCorruptError, Knot, encode_curve
from storage.curves.shared_curves import SEAL_BYTES, Envelopes, ListedCurve

SALT = "00112233445566778899aabbccddeeff"
OURS = Envelopes(SALT)
CURVE = Curve((Knot(-5, 0, 1), Knot(-4, 1, 9)), total=10, as_of_us=77)
LISTED = ListedCurve(board_key=3, column_index=1, epoch=2, version=40, as_of_us=77)
SEALED = OURS.seal(LISTED, CURVE)


def test_a_sealed_curve_opens_with_the_same_salt() -> None:
    assert Envelopes(SALT).open(LISTED, SEALED) == CURVE
    assert OURS.key(LISTED) == Envelopes(SALT).key(replace(LISTED, version=41, as_of_us=78))


@given(st.integers(0, len(SEALED) - 1), st.integers(1, 255))
def test_a_changed_byte_anywhere_is_corrupt(place: int, change: int) -> None:
    damaged = bytearray(SEALED)
    damaged[place] ^= change
    with pytest.raises(CurveCorruptError):
        OURS.open(LISTED, bytes(damaged))


@pytest.mark.parametrize("length", range(len(SEALED)))
def test_a_value_that_was_cut_off_is_corrupt(length: int) -> None:
    for part in (SEALED[:length], SEALED[len(SEALED) - length :]):
        with pytest.raises(CurveCorruptError):
            OURS.open(LISTED, part)


@given(st.binary(max_size=300))
def test_noise_is_corrupt(noise: bytes) -> None:
    with pytest.raises(CurveCorruptError):
        OURS.open(LISTED, noise)


@pytest.mark.parametrize("field", ["board_key", "column_index", "epoch"])
def test_a_sound_curve_of_another_place_is_corrupt(field: str) -> None:
    elsewhere = replace(LISTED, **{field: 7})  # type: ignore[arg-type]  # no mark
    assert OURS.key(elsewhere) != OURS.key(LISTED)
    with pytest.raises(CurveCorruptError, match="another column"):
        OURS.open(LISTED, OURS.seal(elsewhere, CURVE))


def test_a_curve_of_another_store_is_corrupt_and_has_another_name() -> None:
    theirs = Envelopes(SALT[::-1])
    assert theirs.key(LISTED) != OURS.key(LISTED)
    with pytest.raises(CurveCorruptError, match="seal"):
        OURS.open(LISTED, theirs.seal(LISTED, CURVE))


def test_a_curve_without_the_seal_of_the_store_is_corrupt_however_sound_it_is() -> None:
    header = SEALED[: -SEAL_BYTES - len(encode_curve(CURVE))]
    with pytest.raises(CurveCorruptError):
        OURS.open(LISTED, header + encode_curve(CURVE) + bytes(SEAL_BYTES))


@pytest.mark.parametrize("version", [39, 41])
def test_a_curve_of_another_version_is_not_the_one_that_was_asked_for(version: int) -> None:
    assert OURS.open(LISTED, OURS.seal(replace(LISTED, version=version), CURVE)) is None


def test_a_version_that_was_given_twice_is_told_apart_by_its_time() -> None:
    before = Curve(CURVE.knots, total=10, as_of_us=55)
    assert OURS.open(LISTED, OURS.seal(LISTED, before)) is None

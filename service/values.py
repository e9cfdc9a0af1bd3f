"""Text of the wire to the values that the rooms below use, and back: decimals, times and names.

The rule: exact or refused. A value is never rounded, a name never shortened, a digit never taken from another script.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec

from storage.family_ids import FAMILY_PATTERN, ID_CHARS_MAX, is_family_id
from storage.family_ids import parse_board_id as parse_family_board

from .problems import BadValue, Problem, shown

SCALE_MAX = 9
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
OWNER_CHARS_MAX = 128
POST_ID_CHARS_MAX = 200
TEXT_CHARS_MAX = 1000

BOARD_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._:=,@+-]{0,127}$"
ANY_BOARD_PATTERN = f"^[A-Za-z0-9][A-Za-z0-9._:=,@+-]{{0,{ID_CHARS_MAX - 1}}}$"  # one of a family may be longer
COLUMN_PATTERN = "^[a-z][a-z0-9_]{0,47}$"
DECIMAL_PATTERN = "^-?[0-9]+(\\.[0-9]+)?$"
NO_CONTROL_PATTERN = "^[^\\u0000-\\u001f\\u007f-\\u009f]+$"
NO_NUL_PATTERN = "^[^\\u0000]+$"

if TYPE_CHECKING:
    Number: TypeAlias = int | msgspec.Raw
else:
    # msgspec can't describe Raw, and an answer's decimals are Raw so that no digit passes through a float.
    Number = Annotated[float, msgspec.Meta(description="fixed point, with the column's scale")]

_INT64_DIGITS = 19
_POWERS: tuple[int, ...] = tuple(10**digits for digits in range(_INT64_DIGITS + 1))
_FAST_DIGITS = 18  # as many always fit an int64
_DECIMAL = re.compile(rb"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
_EXPONENT_DIGITS_MAX = 9
BOARD_CHARS = 128  # a family's board may have a longer id, by the values of its facets
_BOARD = re.compile(BOARD_PATTERN[1:-1])
_COLUMN = re.compile(COLUMN_PATTERN[1:-1])
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_US_PER_S = 1_000_000


def parse_decimal(raw: msgspec.Raw | bytes | str, scale: int) -> int:
    """The value times 10**scale, exact.

    Takes a JSON scalar as it stands in the body (`600`, `6e2`, `"600.00"`), or the bare text of a query (`600`). A
    string holds `-?\\d+(\\.\\d+)?` in ASCII and nothing else; a JSON number may have an exponent.
    Values of up to 18 digits take less than 1 us, others the regular expression and 2 us.
    Raises BadValue: `bad_value` for what is no decimal or has more digits than the scale, `value_out_of_range` for what
    does not fit a signed 64-bit integer.
    """
    if isinstance(raw, str):
        text, quoted = raw.encode("utf-8", "surrogatepass"), True
    else:
        text = bytes(raw)
        if text.isdigit() and len(text) + scale <= _FAST_DIGITS:
            return int(text) * _POWERS[scale]
        quoted = text[:1] == b'"'
        if quoted:
            text = text[1:-1] if b"\\" not in text else scalar_text(text).encode("utf-8", "surrogatepass")
    negative = text[:1] == b"-"
    whole, dot, fraction = (text[1:] if negative else text).partition(b".")
    if (
        whole.isdigit()
        and (not dot or fraction.isdigit())
        and len(fraction) <= scale
        and len(whole) + scale <= _FAST_DIGITS
    ):
        value = int(whole + fraction) * _POWERS[scale - len(fraction)]
        return -value if negative else value
    if quoted and (b"e" in text or b"E" in text):
        raise _no_decimal(text)
    return _exact(text, scale)


def _exact(text: bytes, scale: int) -> int:
    found = _DECIMAL.fullmatch(text)
    if found is None:
        raise _no_decimal(text)
    sign, whole, fraction, exponent = found.groups(b"")
    digits = (whole + fraction).lstrip(b"0")
    significant = digits.rstrip(b"0")
    if not significant:
        return 0
    shift = _small_int(exponent) - len(fraction) + scale + len(digits) - len(significant)
    if shift < 0:
        raise BadValue(f"{_quoted(text)} has more digits after the point than the column's {scale}")
    if len(significant) + shift > _INT64_DIGITS:
        raise _too_large(text, scale)
    value = int(sign + significant) * _POWERS[shift]
    if not INT64_MIN <= value <= INT64_MAX:
        raise _too_large(text, scale)
    return value


def _small_int(exponent: bytes) -> int:
    """The exponent, or one that is as good as any larger: a body is too small to hold the digits to make up for it."""
    if not exponent:
        return 0
    negative = exponent[:1] == b"-"
    digits = exponent.lstrip(b"+-").lstrip(b"0") or b"0"
    size = int(digits) if len(digits) <= _EXPONENT_DIGITS_MAX else int(10**_EXPONENT_DIGITS_MAX)
    return -size if negative else size


def _quoted(text: bytes) -> str:
    return shown(text.decode("utf-8", "replace"))


def _no_decimal(text: bytes) -> BadValue:
    return BadValue(f"{_quoted(text)} is not a decimal number")


def _too_large(text: bytes, scale: int) -> BadValue:
    detail = f"{_quoted(text)} with {scale} digits after the point does not fit 64 bits"
    return BadValue(detail, code="value_out_of_range")


def scalar_text(raw: msgspec.Raw | bytes) -> str:
    """The text of a JSON string that stands in the body as `raw`. Raises BadValue where it is another kind of value."""
    text = bytes(raw)
    if text[:1] != b'"':
        raise BadValue(f"{_quoted(text)} is not a string")
    try:
        if b"\\" not in text:
            return text[1:-1].decode("utf-8")
        return msgspec.json.decode(text, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadValue(f"{_quoted(text)} is not a string of Unicode characters") from error


def parse_text(raw: msgspec.Raw | bytes, *, chars_max: int = TEXT_CHARS_MAX) -> str:
    """The value of a text column, as given (not normalised): at most `chars_max` characters, without NUL.

    Raises BadValue (PostgreSQL can't store NUL, and a store must not decide what a value may be).
    """
    text = scalar_text(raw)
    if len(text) > chars_max:
        raise BadValue(f"a text value has at most {chars_max} characters", code="value_out_of_range")
    if "\0" in text:
        raise BadValue("a text value has no NUL character")
    return text


def format_decimal(value: int, scale: int) -> str:
    """The number as the wire writes it: `60250` with scale 3 is `60.250`."""
    if scale == 0:
        return str(value)
    whole, fraction = divmod(abs(value), _POWERS[scale])
    return f"{'-' if value < 0 else ''}{whole}.{fraction:0{scale}d}"


def number(value: int, scale: int) -> Number:
    """The number for an answer: an int where the scale is 0, else its exact digits as they go on the wire."""
    return value if scale == 0 else msgspec.Raw(format_decimal(value, scale).encode())


@lru_cache(maxsize=4096)
def _second_text(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).isoformat()[:19]


def format_us(at_us: int) -> str:
    """Microseconds since 1970 as `2026-11-20T10:00:00.123456Z`."""
    return f"{_second_text(at_us // _US_PER_S)}.{at_us % _US_PER_S:06d}Z"


def micros(at: datetime) -> int:
    """Microseconds since 1970 of a time with a zone. Raises Problem `bad_request` for a time before 1970."""
    since = at - _EPOCH
    if since.days < 0:
        raise Problem("bad_request", "a time before 1970-01-01T00:00:00Z", pointer="/at")
    return (since.days * 86_400 + since.seconds) * _US_PER_S + since.microseconds


def normalised(text: str, *, chars_max: int) -> str | None:
    """The text in NFC; None unless that has 1 to `chars_max` characters, no control character and no surrogate."""
    if text.isascii():
        return text if text.isprintable() and 0 < len(text) <= chars_max else None
    if len(text) > chars_max * 4:  # a bound before the work: NFC shortens text, at most to a third
        return None
    found = unicodedata.normalize("NFC", text)
    if len(found) > chars_max or any(unicodedata.category(char) in ("Cc", "Cs") for char in found):
        return None
    return found


def parse_owner(text: str, *, pointer: str = "owner") -> str:
    """The owner in NFC, 1 to 128 characters, none of them a control character or a surrogate. Raises Problem."""
    owner = normalised(text, chars_max=OWNER_CHARS_MAX)
    if owner is not None:
        return owner
    detail = f"an owner is 1 to {OWNER_CHARS_MAX} characters, none of them a control character, not {_repr(text)}"
    raise Problem("bad_request", detail, pointer=pointer)


def parse_board_id(text: str, *, pointer: str = "board") -> str:
    """The leaderboard's id, if it is one. Raises Problem."""
    if _BOARD.fullmatch(text) or (BOARD_CHARS < len(text) <= ID_CHARS_MAX and parse_family_board(text) is not None):
        return text
    raise Problem("bad_request", f"{_repr(text)} is not a leaderboard id: {BOARD_PATTERN}", pointer=pointer)


def parse_family_id(text: str) -> str:
    """The family's id, if it is one. Raises Problem."""
    if is_family_id(text):
        return text
    raise Problem("bad_request", f"{_repr(text)} is not a family: {FAMILY_PATTERN}", pointer="family")


def parse_column(text: str, *, pointer: str = "column") -> str:
    """The column's name, if it is one. Raises Problem."""
    if _COLUMN.fullmatch(text):
        return text
    raise Problem("bad_request", f"{_repr(text)} is not a column name: {COLUMN_PATTERN}", pointer=pointer)


def parse_post_id(text: str, *, pointer: str = "/post_id") -> str:
    """The post id, 1 to 200 characters without NUL. Raises Problem."""
    if 0 < len(text) <= POST_ID_CHARS_MAX and "\0" not in text:
        return text
    raise Problem("bad_request", f"a post id is 1 to {POST_ID_CHARS_MAX} characters without NUL", pointer=pointer)


def _repr(text: str) -> str:
    return repr(shown(text))

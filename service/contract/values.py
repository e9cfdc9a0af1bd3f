"""Converts texts of requests to stored values, and stored values to texts of answers: decimals, times and names.

A text that can't be converted exactly is refused, and only ASCII digits are accepted.

Some fields of answers have one of several struct types. msgspec can encode such a field, but makes schemas only for
types that it can also decode. So `one_of` makes the schema for the OpenAPI document, and `UNION_MEMBERS` collects the
types.
"""

import re
import unicodedata
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec
from msgspec import Meta

from storage.boards.family_ids import FACET_PATTERN, FAMILY_PATTERN, ID_CHARS_MAX, names_family_board
from storage.errors import StoreDamagedError
from storage.periods import ALIASES, EVERY_PATTERN, PERIOD_NAME_PATTERN
from storage.records import format_decimal

from .problems import ProblemError, clip_text

SCALE_MAX = 9
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
OWNER_CHARS_MAX = 128
POST_ID_CHARS_MAX = 200

BOARD_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._:=,@+-]{0,127}$"
# The id of a family's board contains values of facets, so it may be longer than BOARD_PATTERN allows.
ANY_BOARD_PATTERN = f"^[A-Za-z0-9](?:[A-Za-z0-9._:=,@+' -]|[^\\u0000-\\u007f]){{0,{ID_CHARS_MAX - 1}}}$"
ALIASES_DESCRIPTION = (
    f"In the id of a family's board, {', '.join(f'`{alias}`' for alias in ALIASES)} may replace the period"
    " (`arena:this-week:clan=fox`). The time of the request and the family's time zone decide which period that is."
    " Answers name the real board."
)
# The id of a board, or the beginning of ids and `*`. The rest of it is what `ANY_BOARD_PATTERN` has.
WATCHED_PATTERN = f"^(?:{ANY_BOARD_PATTERN[1:-1]})?\\*?$"
WEBHOOK_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
COLUMN_PATTERN = "^[a-z][a-z0-9_]{0,47}$"
ONLY_COLUMN = "-"  # in a path, it means the ranked column of a board that has only one
PATH_COLUMN_PATTERN = "^(-|[a-z][a-z0-9_]{0,47})$"
TIER_PATTERN = "^[a-z][a-z0-9_]{0,31}$"
COHORT_PATTERN = "^[a-z][a-z0-9_]{0,31}-[1-9][0-9]{0,8}$"
DECIMAL_PATTERN = "^-?[0-9]+(\\.[0-9]+)?([eE][+-]?[0-9]+)?$"
REGION_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$"
NO_CONTROL_PATTERN = "^[^\\u0000-\\u001f\\u007f-\\u009f]+$"
NO_NUL_PATTERN = "^[^\\u0000]+$"
SEARCH_PATTERN = "^[^\\u0000]*$"  # a text to search for, such as the beginning of an id
KEY_NAME_PATTERN = "^[^\\x00-\\x1f\\x7f]+$"
SEQ_PATTERN = "^[A-Za-z0-9_-]{20,}$"  # a journal position as a cursor; a plain number has at most 19 digits
_ID_WORDS = "1 to 128 letters, digits and ._:=,@+- of ASCII, a letter or digit first"
PATTERN_WORDS = {  # pattern -> a description of the texts that match it, for messages of errors
    BOARD_PATTERN: _ID_WORDS,
    ANY_BOARD_PATTERN: _ID_WORDS,
    WATCHED_PATTERN: "the id of a leaderboard, or the beginning of ids and *",
    WEBHOOK_PATTERN: "1 to 64 letters, digits and ._- of ASCII, a letter or digit first",
    COLUMN_PATTERN: "1 to 48 lower-case letters, digits and _, a letter first",
    PATH_COLUMN_PATTERN: "1 to 48 lower-case letters, digits and _, a letter first; or -, the only ranked column",
    TIER_PATTERN: "1 to 32 lower-case letters, digits and _, a letter first",
    FAMILY_PATTERN: "1 to 32 letters, digits, _ and - of ASCII, a letter or digit first",
    PERIOD_NAME_PATTERN: "1 to 16 lower-case letters, digits and _, a letter first",
    EVERY_PATTERN: "a length such as P1M, P6W, P1D or PT12H",
    COHORT_PATTERN: "the name of a division, - and a number",
    FACET_PATTERN: "1 to 16 lower-case letters, digits and _, a letter first",
    KEY_NAME_PATTERN: "a text without control characters",
    SEQ_PATTERN: "a sequence number or a cursor",
    SEARCH_PATTERN: "a text without NUL",
    REGION_PATTERN: "1 to 32 letters, digits and ._- of ASCII, a letter or digit first",
}
PYTHON_END = r"\Z"  # how a pattern of Python writes the end of a text; JSON Schema writes `$`
TIME_WORDS = "a time such as 2026-12-31T23:00:00Z"

if TYPE_CHECKING:
    Number: TypeAlias = int | msgspec.Raw
else:
    # Decimals in answers are `Raw`, so that they are never converted to a float. msgspec can't describe `Raw` in the
    # OpenAPI document. So only type checkers see `Raw`. msgspec sees this float, but converts no value to it.
    Number = Annotated[float, msgspec.Meta(description="fixed point, with the column's scale")]

Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"}, description="ISO 8601 in UTC, with microseconds")]

_INT64_DIGITS = 19
_POWERS: tuple[int, ...] = tuple(10**digits for digits in range(_INT64_DIGITS + 1))
_FAST_DIGITS = 18  # every number of at most this many digits fits into an int64
_DECIMAL = re.compile(rb"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?)0*([0-9]+))?")
_EXPONENT_DIGITS_MAX = 10
_BOARD = re.compile(BOARD_PATTERN[1:-1])
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US_PER_S = 1_000_000


def parse_decimal(raw: msgspec.Raw | bytes | str, scale: int, *, pointer: str | None = None) -> int:
    """Parse a decimal number exactly, and return it times 10**scale.

    `raw` is a JSON scalar as in the body (`600`, `"600.00"`), or the bare text of a query (`600`). A number may have an
    exponent (`6e2`), because many programs write small numbers in this way. Numbers of up to 18 digits without an
    exponent skip the slow regular expression.

    Raises:
        ProblemError: `bad_value` for a text that is no decimal or has more digits after the point than `scale`;
            `value_out_of_range` for a number that does not fit a signed 64-bit integer.
    """
    if isinstance(raw, str):
        text = raw.encode("utf-8", "surrogatepass")
    else:
        text = bytes(raw)
        if text.isdigit() and len(text) + scale <= _FAST_DIGITS:
            return int(text) * _POWERS[scale]
        if text[:1] == b'"':
            text = text[1:-1] if b"\\" not in text else scalar_text(text, pointer).encode("utf-8", "surrogatepass")
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
    return _exact(text, scale, pointer)


def _exact(text: bytes, scale: int, pointer: str | None) -> int:
    found = _DECIMAL.fullmatch(text)
    if found is None:
        raise ProblemError("bad_value", f"{_quoted(text)} is not a decimal number", pointer=pointer)
    sign, whole, fraction, exponent_sign, exponent_digits = found.groups(b"")
    digits = (whole + fraction).lstrip(b"0")
    significant = digits.rstrip(b"0")
    if not significant:
        return 0
    # Ten digits of the exponent are enough. Further digits would matter only for a number with about 10**9 digits, and
    # no body has that many.
    exponent = int(exponent_sign + exponent_digits[:_EXPONENT_DIGITS_MAX] or b"0")
    shift = exponent - len(fraction) + scale + len(digits) - len(significant)
    if shift < 0:
        detail = f"{_quoted(text)} has more digits after the point than the column's {scale}"
        raise ProblemError("bad_value", detail, pointer=pointer)
    value = int(sign + significant) * _POWERS[shift] if len(significant) + shift <= _INT64_DIGITS else None
    if value is None or not INT64_MIN <= value <= INT64_MAX:
        detail = f"{_quoted(text)} with {scale} digits after the point does not fit 64 bits"
        raise ProblemError("value_out_of_range", detail, pointer=pointer)
    return value


def _quoted(text: bytes) -> str:
    return clip_text(text.decode("utf-8", "replace"))


def scalar_text(raw: msgspec.Raw | bytes, pointer: str | None = None) -> str:
    """Decode a JSON string in the body. Raise ProblemError `bad_value` for any other JSON value."""
    text = bytes(raw)
    if text[:1] != b'"':
        raise ProblemError("bad_value", f"{_quoted(text)} is not a string", pointer=pointer)
    try:
        if b"\\" not in text:
            return text[1:-1].decode("utf-8")
        return msgspec.json.decode(text, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        detail = f"{_quoted(text)} is not a string of Unicode characters"
        raise ProblemError("bad_value", detail, pointer=pointer) from error


def parse_text(raw: msgspec.Raw | bytes, *, bytes_max: int) -> str:
    """Parse the value of a text column, and keep it as it was sent, without normalising it.

    Raises:
        ProblemError: the value is no string, has more than `bytes_max` bytes in UTF-8, or contains NUL. PostgreSQL
            can't store NUL, and all stores must accept the same values.
    """
    text = scalar_text(raw)
    if len(text.encode()) > bytes_max:
        raise ProblemError("value_out_of_range", f"a text value has at most {bytes_max} bytes in UTF-8")
    if "\0" in text:
        raise ProblemError("bad_value", "a text value has no NUL character")
    return text


def to_wire_number(value: int, scale: int) -> Number:
    """Convert a stored value for an answer: an int if the scale is 0, else the exact digits of `format_decimal`."""
    return value if scale == 0 else msgspec.Raw(format_decimal(value, scale).encode())


@lru_cache(maxsize=4096)
def _second_text(second: int) -> str:
    try:
        return (_EPOCH + timedelta(seconds=second)).isoformat()[:19]
    except OverflowError as error:
        raise StoreDamagedError("a stored time is damaged: restore a backup") from error


def format_us(at_us: int) -> str:
    """Format microseconds since 1970 as `2026-11-20T10:00:00.123456Z`."""
    return f"{_second_text(at_us // _US_PER_S)}.{at_us % _US_PER_S:06d}Z"


def to_micros(at: datetime) -> int:
    """Convert a time with a zone to microseconds since 1970.

    Raise ProblemError `bad_request` for a time before 1970.
    """
    since = at - _EPOCH
    if since.days < 0:
        raise ProblemError("bad_request", "the time is before 1970-01-01T00:00:00Z", pointer="/at")
    return (since.days * 86_400 + since.seconds) * _US_PER_S + since.microseconds


def parse_name(text: str, what: str, chars_max: int, pointer: str) -> str:
    """Normalise a name to NFC. The message of an error calls the name `what`, for example "an owner".

    Raises:
        ProblemError: `bad_request`, because the NFC is empty, too long, or has control characters or surrogates.
    """
    if text.isascii():
        if text.isprintable() and 0 < len(text) <= chars_max:
            return text
    elif len(text) <= chars_max * 4:  # NFC keeps over a quarter of the length, so longer texts stay too long
        found = unicodedata.normalize("NFC", text)
        if len(found) <= chars_max and not any(unicodedata.category(char) in ("Cc", "Cs") for char in found):
            return found
    detail = f"{what} is 1 to {chars_max} characters, none of them a control character, not {clip_text(text)!r}"
    raise ProblemError("bad_request", detail, pointer=pointer)


parse_owner = partial(parse_name, what="an owner", chars_max=OWNER_CHARS_MAX, pointer="owner")


def parse_board_id(text: str, *, pointer: str = "board") -> str:
    """Normalise a leaderboard id to NFC.

    Raise ProblemError `bad_request` if the text does not have the form of an id.
    """
    if _BOARD.fullmatch(text):
        return text
    found = unicodedata.normalize("NFC", text) if len(text) <= ID_CHARS_MAX * 4 else text
    if len(found) <= ID_CHARS_MAX and names_family_board(found):
        return found
    raise ProblemError("bad_request", f"{clip_text(text)!r} is not a leaderboard id: {_ID_WORDS}", pointer=pointer)


def matching(pattern: str) -> Meta:
    """Declare a text that must match `pattern` and not end in a line break, which Python's `$` allows."""
    return Meta(pattern=pattern[:-1] + PYTHON_END)


def parse_matching(text: str, *, pattern: str, what: str, pointer: str) -> str:
    """Check that a text matches a pattern of `PATTERN_WORDS`. Raise ProblemError `bad_request` if it does not."""
    if re.fullmatch(pattern[1:-1], text):
        return text
    raise ProblemError("bad_request", f"{clip_text(text)!r} is not {what}: {PATTERN_WORDS[pattern]}", pointer=pointer)


def parse_post_id(text: str, *, pointer: str = "/post_id") -> str:
    if 0 < len(text) <= POST_ID_CHARS_MAX and "\0" not in text:
        return text
    raise ProblemError("bad_request", f"a post id is 1 to {POST_ID_CHARS_MAX} characters without NUL", pointer=pointer)


REF_TEMPLATE = "#/components/schemas/{name}"
UNION_MEMBERS: list[type[msgspec.Struct]] = []  # all types that were given to `one_of`


def one_of(*kinds: type[msgspec.Struct]) -> Meta:
    """Declare a field whose value has one of the types `kinds`. The OpenAPI document lists these types."""
    UNION_MEMBERS.extend(kinds)
    return Meta(extra_json_schema={"anyOf": [{"$ref": REF_TEMPLATE.format(name=kind.__name__)} for kind in kinds]})

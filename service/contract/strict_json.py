"""Decodes JSON bodies strictly: a body with a duplicate key or with bytes that are not UTF-8 is refused.

If an object has a key twice, msgspec silently drops the first value, and a caller's typing error would become a wrong
score. Usually a cheap count of colons proves that nothing was dropped. If it does not, a slower decoder looks for
duplicate keys.
"""

import ast
import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from .problems import FieldError, ProblemError, clip_text
from .values import PATTERN_WORDS, PYTHON_END, TIME_WORDS

T = TypeVar("T")

_AT = re.compile(r"^(?P<what>.*?)(?: - at `(?P<path>(?:key in )?\$[^`]*)`)?$", re.DOTALL)
_PATTERN = re.compile(r"Expected `str` matching regex (.*)", re.DOTALL)
_TIME = re.compile(r"Invalid RFC3339 encoded datetime|Expected `datetime`.*", re.DOTALL)
_UNKNOWN_FIELD = re.compile(r"unknown field `(.*)`", re.DOTALL)
_TOP = msgspec.json.Decoder(dict[str, msgspec.Raw])


def count_key_colons(body: bytes) -> int:
    """Count the keys of a body, or a few more. If msgspec decoded that many keys, it dropped none.

    The count is that of colons after a quote mark or white space. It exceeds the number of keys only if a string
    contains such a colon.
    """
    count = body.count(b'":') + body.count(b" :")
    for space in (b"\t", b"\n", b"\r"):
        if space in body:  # usually false, and much faster than the count below
            count += body.count(space + b":")
    return count


def decode_strictly(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode a body.

    Raises:
        ProblemError: `bad_json`, `bad_request`, `unknown_field` or `duplicate_field`.
    """
    value = decode_or_refuse(decoder.decode, body)
    if count_key_colons(body) != len(decode_or_refuse(_TOP.decode, body)):
        refuse_duplicates(body)
    return value


def decode_or_refuse(read: Callable[[bytes], T], body: bytes, *, prefix: str = "") -> T:
    """Call `read(body)`, and turn every error that msgspec can raise into a ProblemError.

    `prefix` is put before the JSON pointer of an error.

    Raises:
        ProblemError: `bad_json`, `bad_request` or `unknown_field`.
    """
    try:
        if not body.isascii():
            body.decode("utf-8")  # msgspec does not check the bytes of strings that it skips
        return read(body)
    except msgspec.ValidationError as error:
        code, fault = describe_mismatch(error)
        pointer = prefix + fault.pointer
        detail = f"{fault.detail} at {pointer or 'the top'}"
        raise ProblemError(code, detail, errors=[FieldError(pointer, fault.detail)]) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProblemError("bad_json", clip_text(str(error))) from error
    except RecursionError as error:
        raise ProblemError("bad_json", "the body is nested too deeply") from error


def to_json_pointer(path: str) -> str:
    """Convert a path in an error of msgspec to a JSON pointer: `$.posts[3].owner` to `/posts/3/owner`.

    msgspec writes `[...]` for a member whose key it does not name. It becomes `/*`.
    """
    path = path.removeprefix("key in ").removeprefix("$")
    return re.sub(r"\.|\[(\d+|\.\.\.)\]", lambda found: "/" + (found[1] or ""), path).replace("/...", "/*")


def pointer_token(key: str) -> str:
    """Escape a JSON key for a JSON pointer (RFC 6901), and shorten a long one."""
    return clip_text(key).replace("~", "~0").replace("/", "~1")


def describe_mismatch(error: msgspec.ValidationError) -> tuple[str, FieldError]:
    """Turn an error of msgspec into a problem code, and the fault with its JSON pointer."""
    found = _AT.match(str(error))
    what, path = (found["what"], found["path"] or "$") if found else (str(error), "$")
    pointer = to_json_pointer(path)
    if unknown := _UNKNOWN_FIELD.search(what):
        return "unknown_field", FieldError(f"{pointer}/{pointer_token(unknown[1])}", clip_text(what))
    if matching := _PATTERN.fullmatch(what):
        pattern = ast.literal_eval(matching[1]).removesuffix(PYTHON_END) + "$"
        what = f"Expected {PATTERN_WORDS[pattern]}"
    elif _TIME.fullmatch(what):
        what = f"Expected {TIME_WORDS}"
    return "bad_request", FieldError(pointer, clip_text(what))


class _Repeating(list[tuple[str, Any]]):
    """The members of a JSON object that has a key twice."""


def refuse_duplicates(body: bytes, *, prefix: str = "") -> None:
    """Raise ProblemError `duplicate_field` if an object of the body has a key twice.

    Call this only after msgspec has decoded `body` without an error. For `prefix`, see `decode_or_refuse`.
    """
    repeating: list[_Repeating] = []

    def check_members(members: list[tuple[str, Any]]) -> dict[str, Any] | _Repeating:
        made = dict(members)
        if len(made) == len(members):
            return made
        repeating.append(_Repeating(members))
        return repeating[-1]

    try:
        # Numbers stay text, because their values are not needed here and int() refuses more than 4,300 digits.
        tree = json.loads(body.decode("utf-8"), object_pairs_hook=check_members, parse_int=str, parse_float=str)
    except (ValueError, RecursionError) as error:
        raise ProblemError("bad_json", clip_text(str(error))) from error
    waiting: list[tuple[str, Any]] = [(prefix, tree)] if repeating else []
    while waiting:
        pointer, value = waiting.pop()
        if isinstance(value, _Repeating):
            keys = [key for key, _ in value]
            key = next(key for index, key in enumerate(keys) if key in keys[:index])
            detail = f"the field {clip_text(key)!r} is given twice"
            raise ProblemError("duplicate_field", detail, pointer=f"{pointer}/{pointer_token(key)}")
        if isinstance(value, dict):
            waiting.extend((f"{pointer}/{pointer_token(key)}", member) for key, member in value.items())
        elif isinstance(value, list):
            waiting.extend((f"{pointer}/{index}", member) for index, member in enumerate(value))

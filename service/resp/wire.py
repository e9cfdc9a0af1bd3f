"""Parses commands (RESP2 arrays of strings), and encodes answers in RESP2 or RESP3.

hiredis does the parsing. It allocates an array as soon as it has read its length, so `CommandParser` first refuses
arrays that are too long.
"""

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from service.contract.problems import ProblemError, problem_of
from service.contract.values import parse_decimal
from storage.records import ColumnSpec, format_decimal

ARGUMENTS_MAX = 99_999  # in one command
_LONG_ARRAY = re.compile(rb"\n[*~>%|]\d{6}")
_TAIL_BYTES = 16  # how much of the last piece is searched again, because a length may arrive in two pieces
_LINE_ENDS = str.maketrans("\r\n", "  ")
SCORE_DIGITS_MAX = 20  # before the decimal point
ROUNDINGS = {"nearest": "ROUND_HALF_EVEN", "down": "ROUND_FLOOR", "up": "ROUND_CEILING"}


class Refusal(Exception):  # noqa: N818  # it is an answer of the protocol
    """An answer that begins with a word such as `ERR`, in place of the result of a command."""


class BoardRefusal(Refusal):
    """A refusal that rests on this process's copy of a board, which is confirmed before anybody is refused."""


class ProtocolFault(Exception):  # noqa: N818
    """The bytes are no commands, so the connection has to be closed."""


class Score(NamedTuple):
    scaled: int
    scale: int

    def __str__(self) -> str:
        text = format_decimal(self.scaled, self.scale)
        return text.rstrip("0").rstrip(".") if self.scale else text


class Status(str):
    """A short answer such as `OK`, which is encoded differently from a string of data."""


class Pairs(list[tuple[bytes, Score]]):
    """Members with their scores: a flat array in RESP2, and an array of pairs in RESP3."""


class Map(dict[str, Any]):
    """Keys with their values: a flat array in RESP2, and a map in RESP3."""


Answer = Any  # None, an int, bytes, a list, or one of the classes above

OK = Status("OK")


class CommandParser:
    """Parses the commands of one connection, and refuses arrays that are too long."""

    def __init__(self) -> None:
        import hiredis  # an extra, see `pyproject.toml`; only a service with the setting `resp_port` needs it

        self._error: type[Exception] = hiredis.ProtocolError
        self._reader = hiredis.Reader()
        self._tail = b"\r\n"
        self.pending_bytes = 0  # roughly the size of the command that is still incomplete, and never less

    def feed(self, data: bytes) -> list[list[bytes]]:
        """Parse bytes, and return the commands that are now complete. Raise `ProtocolFault` if they are no commands."""
        searched = self._tail + data
        if _LONG_ARRAY.search(searched):
            raise ProtocolFault("Protocol error: invalid multibulk length")
        self._tail = searched[-_TAIL_BYTES:]
        commands: list[list[bytes]] = []
        self._reader.feed(data)
        try:
            while (found := self._reader.gets()) is not False:
                if not isinstance(found, list) or any(kind is not bytes for kind in {*map(type, found)}):
                    raise ProtocolFault("Protocol error: a command is an array of strings")
                if found:
                    commands.append(found)
        except (self._error, MemoryError, ValueError) as error:
            raise ProtocolFault("Protocol error: not a command of RESP") from error
        self.pending_bytes = 0 if commands and not self._reader.has_data() else self.pending_bytes + len(data)
        return commands


def parse_score(text: bytes, column: ColumnSpec, rounding: str) -> int:
    """Return a score times 10**scale, where the scale is its column's.

    Raises:
        Refusal: the text is no number, or a number that fits no column.
        BoardRefusal: the column can't hold it exactly, and `rounding` is `refuse`.
    """
    try:
        return parse_decimal(text, column.scale)
    except ProblemError as problem:
        refused = problem
    try:
        number = Decimal(text.decode().strip())
        if not number.is_finite() or number.adjusted() > SCORE_DIGITS_MAX:
            raise Refusal("ERR a score is a finite number, and fits its column here") from None
        scaled = number.scaleb(column.scale)
        if rounding in ROUNDINGS or scaled == scaled.to_integral_value():
            return int(scaled.to_integral_value(ROUNDINGS.get(rounding)))
    except (InvalidOperation, UnicodeDecodeError):
        raise Refusal("ERR value is not a valid float") from None
    raise BoardRefusal(f"ERR {refused.detail}; the setting resp_round can round scores")


def parse_index(text: bytes) -> int:
    body = text[1:] if text[:1] == b"-" else text
    if not body.isdigit() or len(body) > 18:
        raise Refusal("ERR value is not an integer or out of range")
    return int(text)


def refuse(error: BaseException) -> Refusal:
    """Return the answer to a command that failed with this error."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, ArithmeticError):
        return Refusal("ERR a number is out of range")
    problem = problem_of(error)
    word = {"forbidden": "NOPERM", "unauthorized": "NOAUTH", "store_busy": "BUSY", "queue_full": "BUSY"}
    return Refusal(f"{word.get(problem.code, 'ERR')} {problem.code}: {problem.detail}")


def encode_answer(answer: Answer, version: int) -> bytes:
    """Encode an answer in RESP2 or RESP3."""
    if type(answer) is int:
        return b":%d\r\n" % answer
    if type(answer) is Score:
        text = str(answer).encode()
        return b",%b\r\n" % text if version == 3 else b"$%d\r\n%b\r\n" % (len(text), text)
    if type(answer) is bytes:
        return b"$%d\r\n%b\r\n" % (len(answer), answer)
    if answer is None:
        return b"_\r\n" if version == 3 else b"$-1\r\n"
    if isinstance(answer, Status):
        return b"+%b\r\n" % answer.encode()
    if isinstance(answer, str):
        return encode_answer(answer.encode(), version)
    if isinstance(answer, Refusal):
        return b"-%b\r\n" % str(answer).translate(_LINE_ENDS).encode("utf-8", "backslashreplace")
    if isinstance(answer, Map):
        flat = [each for pair in answer.items() for each in pair]
        return _join(b"%" if version == 3 else b"*", len(answer) if version == 3 else len(flat), flat, version)
    if isinstance(answer, Pairs):
        parts: Sequence[Any] = [[*pair] for pair in answer] if version == 3 else [x for pair in answer for x in pair]
        return _join(b"*", len(parts), parts, version)
    return _join(b"*", len(answer), answer, version)


def _join(sign: bytes, length: int, parts: Sequence[Answer], version: int) -> bytes:
    return b"%b%d\r\n" % (sign, length) + b"".join([encode_answer(each, version) for each in parts])

"""What must not stand in a line of the log, whoever wrote the line: keys, bodies, owners.

The rule: an exception's text is somebody's input until its type says that it is of the code. Of a traceback the files,
lines and names of functions stay, which is what a bug is found by.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping
from typing import Any

from config.masking import masked

from .keys import KEY_PREFIX

TEXT_CHARS_MAX = 200
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'?|"(?:[^"\\]|\\.)*"?""")
_HIDDEN = "'…'"
# Errors whose quotes hold names of the code or of tables; what others quote is what they were given.
_OF_THE_CODE = frozenset(
    (
        "AttributeError", "ImportError", "ModuleNotFoundError", "NameError", "TypeError", "UnboundLocalError",
        "UndefinedColumnError", "UndefinedFunctionError", "UndefinedTableError",
    )
)  # fmt: skip
_KEY = re.compile(rf"({KEY_PREFIX}_[0-9A-Za-z]{{1,16}}_)[0-9A-Za-z]+")

Event = MutableMapping[str, Any]


def scrubbed_tracebacks(_: object, __: str, event: Event) -> Event:
    """A processor of structlog: tracebacks, as dicts, without what callers sent."""
    for each in _chained(event.get("exception")):
        each["exc_value"] = scrubbed(each["exc_type"], each["exc_value"])
        each["exc_notes"] = [scrubbed(each["exc_type"], note) for note in each.get("exc_notes", ())]
        if each.get("syntax_error"):
            each["syntax_error"] = None
    return event


def scrubbed(type_name: str, text: str) -> str:
    """The first line of an error's text, what it quotes left out; the lines after it quote rows."""
    line = text.partition("\n")[0]
    if type_name not in _OF_THE_CODE:
        line = masked(_QUOTED.sub(_HIDDEN, line))
    return line if len(line) <= TEXT_CHARS_MAX else line[:TEXT_CHARS_MAX] + "…"


def tracebacks_as_text(_: object, __: str, event: Event) -> Event:
    """A processor: tracebacks for people."""
    if isinstance(event.get("exception"), list):
        lines = []
        for each in _chained(event["exception"]):
            lines += [f"  {frame['filename']}:{frame['lineno']} in {frame['name']}" for frame in each["frames"]]
            lines.append(f"{each['exc_type']}: {_escaped(each['exc_value'])}")
        event["exception"] = "\n".join(lines)
    return event


def _chained(exceptions: Any) -> Iterator[dict[str, Any]]:
    """An exception and its causes, those of a group included."""
    if isinstance(exceptions, list):
        for each in exceptions:
            yield each
            for part in each.get("exceptions") or ():
                yield from _chained(part)


def printable(_: object, __: str, event: Event) -> Event:
    """A processor, for what JSON does not escape: nothing in a line can begin another, or speak to a terminal."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = _escaped(value)
    return event


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def without_keys(_: object, __: str, line: Any) -> Any:
    """The last processor: the rendered line, and of a key of the service, wherever it comes from, its public part."""
    return _KEY.sub(r"\1***", line) if KEY_PREFIX in line else line

"""Removes API keys, request bodies and names of owners from log lines, including the log lines of libraries.

The functions with three parameters are processors of structlog. The text of an exception may quote a caller's input,
unless the type of the exception is in `_QUOTING_CODE`. A traceback keeps its file names, line numbers and function
names, because operators need them to find a bug.
"""

import re
from collections.abc import Iterator, MutableMapping
from typing import Any

from config.masking import masked
from service.contract.keys import KEY_PREFIX

TEXT_CHARS_MAX = 200
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'?|"(?:[^"\\]|\\.)*"?""")
_HIDDEN = "'…'"
# Errors of these types quote only names of the code or of tables. Other errors may quote a caller's input.
_QUOTING_CODE = frozenset(
    (
        "AttributeError", "ImportError", "ModuleNotFoundError", "NameError", "TypeError", "UnboundLocalError",
        "UndefinedColumnError", "UndefinedFunctionError", "UndefinedTableError",
    )
)  # fmt: skip
_KEY = re.compile(rf"({KEY_PREFIX}_[0-9A-Za-z]{{1,16}}_)[0-9A-Za-z]+")

Event = MutableMapping[str, Any]


def scrub_tracebacks(_: object, __: str, event: Event) -> Event:
    """Remove callers' input from tracebacks. Call this before JSON is made, while tracebacks are still dicts."""
    for each in _chained(event.get("exception")):
        each["exc_value"] = scrub_text(each["exc_type"], each["exc_value"])
        each["exc_notes"] = [scrub_text(each["exc_type"], note) for note in each.get("exc_notes", ())]
        if each.get("syntax_error"):
            each["syntax_error"] = None
    return event


def scrub_text(type_name: str, text: str) -> str:
    """Return the first line of an error's text. If its quoted parts may hold a caller's input, hide these parts.

    Later lines are dropped, because they may quote rows of the database.
    """
    line = text.partition("\n")[0]
    if type_name not in _QUOTING_CODE:
        line = masked(_QUOTED.sub(_HIDDEN, line))
    return line if len(line) <= TEXT_CHARS_MAX else line[:TEXT_CHARS_MAX] + "…"


def _chained(exceptions: Any) -> Iterator[dict[str, Any]]:
    """Yield an exception and its causes. For each exception in an exception group, yield it and its causes, too."""
    if isinstance(exceptions, list):
        for each in exceptions:
            yield each
            for part in each.get("exceptions") or ():
                yield from _chained(part)


def mask_keys(_: object, __: str, line: Any) -> Any:
    """Replace the secret part of every API key with stars. This is the last step. Its input is the rendered line."""
    return _KEY.sub(r"\1***", line) if KEY_PREFIX in line else line

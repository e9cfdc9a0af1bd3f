"""Parses specifications of boards that are written in words, where a column is a text such as `lap:min.3`.

    NAME:sum|max|min|last|with=COLUMN|quotient=COLUMN/COLUMN[:from=N][:high|low][:scale=N][:min=N][:max=N]
        [:unsorted][:text]

`sum` adds up, `max` and `min` keep the greatest or least value, and `last` keeps the latest. `with=score` keeps the
value from the post that brought the `score`, and `quotient=hits/shots:from=100` divides `hits` by `shots` where there
are at least 100 `shots`.

`high` or `low` says which values rank first; the default is `low` for `min`, and `high` for everything else. Numbers
are ranked unless they are `unsorted` or follow another column, and texts never are. `.3` after a rule or after `high`
or `low` is short for `scale=3`, which gives the column three decimals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

RULES = "sum|max|min|last|with=COLUMN|quotient=COLUMN/COLUMN[:from=N]"
SYNTAX = f"NAME:{RULES}[:high|low][:scale=N][:min=N][:max=N][:unsorted][:text]"
MERGES = ("sum", "max", "min", "last")
# Maps each word in a column's text to the member of its specification that has this word as its value.
MEMBERS = {**dict.fromkeys(MERGES, "merge"), "high": "best", "low": "best", "text": "type"}
SHORT_SCALE = re.compile(r"(sum|max|min|last|high|low)\.([0-9])")


def parse_column(text: str) -> dict[str, Any]:
    """Parse a column in words into its specification. Raises ValueError."""
    name, *words = text.split(":")
    spec: dict[str, Any] = {"name": name}
    for word in words:
        if short := SHORT_SCALE.fullmatch(word):
            _add(spec, MEMBERS[short[1]], short[1], text)
            _add(spec, "scale", int(short[2]), text)
            continue
        option, equals, value = word.partition("=")
        if word in MEMBERS:
            _add(spec, MEMBERS[word], word, text)
        elif word == "unsorted":
            _add(spec, "sorted", False, text)
        elif equals and option == "with":
            _add(spec, "merge", "with", text)
            _add(spec, "of", value, text)
        elif equals and option == "quotient":
            _add(spec, "merge", "quotient", text)
            spec["of"], _, spec["per"] = value.partition("/")
        elif equals and option in ("scale", "min", "max", "from"):
            _add(spec, option, parse_number(option, value), text)
        else:
            raise ValueError(f"{word!r} in {text!r} is not part of {SYNTAX}")
    if not name or "merge" not in spec:
        raise ValueError(f"{text!r} needs a name and one of {RULES}: {SYNTAX}")
    return spec


def parse_number(option: str, text: str) -> object:
    """Parse a whole number as an int, and keep a decimal as its text, so that no digit is lost. Raises ValueError."""
    form = r"[0-9]{1,32}" if option in ("scale", "from") else r"-?[0-9]{1,31}(\.[0-9]{1,31})?"
    if not re.fullmatch(form, text):
        raise ValueError(f"{option}={text} is not a number that {option} accepts")
    return text if "." in text else int(text)


def whole_spec(
    spec: Mapping[str, Any] | str, columns: Sequence[str], ties: str | Sequence[str] | None, members: Mapping[str, Any]
) -> dict[str, Any]:
    """Build a specification from columns in words and further members.

    `spec` is the first column in words, or a specification whose members the other arguments overwrite. `ties` may be
    `shared`, `earliest`, or the columns that order equal values, optionally followed by `earliest`: either as a list,
    or as a text such as `time,earliest`. Raises ValueError.
    """
    if isinstance(spec, str):
        columns = [spec, *columns]
        spec = {}
    if isinstance(ties, str) and ties not in ("shared", "earliest"):
        ties = ties.split(",")
    made = {**spec, **({"columns": columns} if columns else {}), **({} if ties is None else {"ties": ties}), **members}
    if isinstance(made.get("columns"), list | tuple):
        made["columns"] = [parse_column(each) if isinstance(each, str) else each for each in made["columns"]]
    return made


def _add(spec: dict[str, Any], member: str, value: object, text: str) -> None:
    if member in spec:
        raise ValueError(f"{text!r} gives {member} twice")
    spec[member] = value

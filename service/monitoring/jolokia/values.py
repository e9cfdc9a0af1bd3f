"""Shapes the value of an answer: selects the part at the request's path, and cuts that part to the client's limits.

`*` in a path stands for every entry of a level. Below a `*`, an entry is left out if it lacks the rest of the path.
Without a `*`, every part of the path must exist.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from math import isfinite
from typing import Any

from .requests import BadRequestError, Parameters


class _MissingError(Exception):
    """The value has nothing at the path."""


def follow_path(value: Any, path: Sequence[str]) -> Any:
    """Return the part of a value that a path leads to.

    Raises:
        BadRequestError: the value has no part at this path.
    """
    try:
        return _follow(value, path)
    except _MissingError:
        raise BadRequestError(f"Invalid path: nothing is at {'/'.join(path)}") from None


def _follow(value: Any, path: Sequence[str]) -> Any:
    if not path:
        return value
    part, rest = path[0], path[1:]
    if not isinstance(value, dict | list):
        if part == "*" and not rest:
            return value
        raise _MissingError
    entries = value if isinstance(value, dict) else {str(index): each for index, each in enumerate(value)}
    if part != "*":
        if part not in entries:
            raise _MissingError
        return _follow(entries[part], rest)
    kept = {}
    for name, each in entries.items():
        with suppress(_MissingError):
            kept[name] = _follow(each, rest)
    if not kept:
        raise _MissingError
    return kept if isinstance(value, dict) else list(kept.values())


def cut_to_limits(value: Any, parameters: Parameters) -> Any:
    limits = parameters.max_depth or parameters.max_collection_size or parameters.max_objects
    if not limits and parameters.serialize_long == "number":
        return value  # nearly every request sets no limits
    return _Limits(parameters).cut(value, 0)


def encode_answer(answer: Any) -> bytes:
    """Return an answer as JSON. Infinity and NaN become null, because JSON does not have them."""
    try:
        return json.dumps(answer, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        return json.dumps(_Limits(Parameters()).cut(answer, 0), separators=(",", ":")).encode()


class _Limits:
    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._objects = 0

    def cut(self, value: Any, depth: int) -> Any:
        limits = self._parameters
        self._objects += 1
        if limits.max_objects and self._objects > limits.max_objects:
            return "[Object limit exceeded]"
        if isinstance(value, dict | list | tuple):
            if limits.max_depth and depth >= limits.max_depth:
                return f"[Depth limit {value}]"
            size = limits.max_collection_size or len(value)
            if isinstance(value, dict):
                return {name: self.cut(each, depth + 1) for name, each in list(value.items())[:size]}
            return [self.cut(each, depth + 1) for each in value[:size]]
        if isinstance(value, int) and not isinstance(value, bool) and limits.serialize_long == "string":
            return str(value)
        return None if isinstance(value, float) and not isfinite(value) else value

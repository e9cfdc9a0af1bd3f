"""Shapes the value of an answer: selects the part at the request's path, and cuts that part to the client's limits.

`*` in a path stands for every entry of a level. Below a `*`, an entry is left out if it lacks the rest of the path.
Without a `*`, every part of the path must exist.
"""

import json
from collections.abc import Sequence
from math import isfinite
from typing import Any

from .requests import BadRequestError, Parameters

_NOTHING = object()  # stands for a value that a path with wildcards leaves out


def follow_path(value: Any, path: Sequence[str]) -> Any:
    """Return the part of a value that a path leads to.

    Raises:
        BadRequestError: the value has no part at this path.
    """
    found = _follow(value, path, filtering=False)
    if found is _NOTHING:
        raise BadRequestError(f"Invalid path: nothing is at {'/'.join(path)}")
    return found


def _follow(value: Any, path: Sequence[str], *, filtering: bool) -> Any:
    if not path:
        return value
    part, rest = path[0], path[1:]
    if part == "*":
        return _follow_all(value, rest)
    inner: Any = _NOTHING
    if isinstance(value, dict):
        inner = value.get(part, _NOTHING)
    elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
        inner = value[int(part)]
    if inner is not _NOTHING:
        return _follow(inner, rest, filtering=filtering)
    if filtering:
        return _NOTHING
    raise BadRequestError(f"Invalid path: no {part!r} there")


def _follow_all(value: Any, rest: Sequence[str]) -> Any:
    if isinstance(value, dict):
        found = {name: _follow(each, rest, filtering=True) for name, each in value.items()}
        kept: Any = {name: each for name, each in found.items() if each is not _NOTHING}
    elif isinstance(value, list):
        kept = [each for each in (_follow(one, rest, filtering=True) for one in value) if each is not _NOTHING]
    else:
        return _NOTHING if rest else value
    return kept or _NOTHING


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

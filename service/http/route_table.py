"""Finds the handler of a request by its method and path, in one step for each word of the path.

aiohttp would compare the path with one pattern after another, so the last of our routes would be the slowest.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

H = TypeVar("H")
_PARAMETER, _HANDLER = "{}", "{handler}"  # keys of a tree that can't be words of a path


class FoundRoute(msgspec.Struct, Generic[H]):  # making a named tuple would take three times as long
    handler: H
    parameters: Sequence[str]  # decoded values of the path's parameters, in the order of the path


class RouteTable(Generic[H]):
    def __init__(self) -> None:
        # One tree for each method and number of words. In a common tree, the word `b` of a route `/a/b` would hide the
        # parameter of a longer route `/a/{name}/c` from the path `/a/b/c`.
        self._trees: dict[tuple[str, int], dict[str, Any]] = {}
        self._open_ended: dict[tuple[str, str], H] = {}  # by (method, beginning of the path)

    def add_route(self, methods: Iterable[str], path: str, handler: H, *, open_ended: bool = False) -> None:
        """Add a route. A `{name}` in `path` matches one word. If `open_ended`, a final `{name}` matches the rest."""
        for method in methods:
            if open_ended and path.endswith("}"):
                self._open_ended[method, path[: path.rindex("{")]] = handler
                continue
            words = path.split("/")
            tree = self._trees.setdefault((method, len(words)), {})
            for word in words:
                tree = tree.setdefault(_PARAMETER if word.startswith("{") else word, {})
            tree[_HANDLER] = handler

    def find_route(self, method: str, path: str) -> FoundRoute[H] | None:
        """Find a request's route, or return None. `path` is yarl's `path_safe`: decoded, except for `%2F` and `%25`."""
        words = path.split("/")
        tree = self._trees.get((method, len(words)))
        if tree is not None:
            parameters = []
            for word in words:
                below = tree.get(word)
                if below is None:
                    below = tree.get(_PARAMETER) if word else None
                    if below is None:
                        break
                    parameters.append(_decode(word) if "%" in word else word)
                tree = below
            else:
                return FoundRoute(tree[_HANDLER], parameters)
        for (known, begin), handler in self._open_ended.items():
            if known == method and path.startswith(begin):
                return FoundRoute(handler, [_decode(path[len(begin) :])])
        return None

    def find_methods(self, path: str) -> list[str]:
        methods = {method for method, _ in (*self._trees, *self._open_ended)}
        return sorted(method for method in methods if self.find_route(method, path) is not None)


def _decode(word: str) -> str:
    # Browsers take `.` and `..` for folders, even as `%2E`. So clients write `.%25%7F`, which is no other name.
    return word.replace("%2F", "/").replace("%25", "%").removesuffix("%\x7f")

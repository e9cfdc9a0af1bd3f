"""Parses the setting `pools`, which gives sets of boards connection pools of their own.

`config.settings` uses this module to check the text of the setting. The PostgreSQL engine opens the connections that
the text describes.

A board belongs to the first connection pool whose pattern matches its id. If no pattern matches, it belongs to the
common connection pool.
"""

import re
from fnmatch import fnmatchcase
from typing import NamedTuple

COMMON_CONNECTION_POOL = "common"
_ENTRY = re.compile(r"(?P<name>[a-z][a-z0-9_]{0,31})=(?P<pattern>[^=,\s]+):(?P<connections>[1-9][0-9]?)")
_POOLS_MAX = 16


class BoardConnectionPool(NamedTuple):
    """A connection pool for the boards whose ids match a pattern with `*`, `?` and `[…]`."""

    name: str
    pattern: str
    connections: int  # for short reads; two more are opened, one for writes and one for counts and walks

    def matches_board(self, board_id: str) -> bool:
        """Return whether the pattern matches the id of a board."""
        return fnmatchcase(board_id, self.pattern)


def parse_connection_pools(text: str) -> list[BoardConnectionPool]:
    """Return the connection pools that a text describes.

    The text is a list of `NAME=PATTERN:CONNECTIONS` with commas between the items. It may be empty.

    Raises ValueError for anything else.
    """
    pools: list[BoardConnectionPool] = []
    for entry in filter(None, map(str.strip, text.split(","))):
        found = _ENTRY.fullmatch(entry)
        if found is None:
            raise ValueError(f"{entry!r} should be NAME=PATTERN:CONNECTIONS, like arena=arena-*:2")
        pools.append(BoardConnectionPool(found["name"], found["pattern"], int(found["connections"])))
    names = [pool.name for pool in pools]
    if len({*names, COMMON_CONNECTION_POOL}) <= len(names):
        raise ValueError(f"pools should have different names, none of them {COMMON_CONNECTION_POOL!r}")
    if len(pools) > _POOLS_MAX:
        raise ValueError(f"there should be at most {_POOLS_MAX} pools")
    return pools

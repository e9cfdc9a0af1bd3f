"""Parses the setting `pools`: connection pools that serve only the boards with certain ids.

A board belongs to the first connection pool whose pattern matches the board's id. If no pattern matches, the board
belongs to the common connection pool.
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
    connections: int  # for short reads; the pool opens two more: one for writes, and one for counts and walks

    def matches_board(self, board_id: str) -> bool:
        return fnmatchcase(board_id, self.pattern)


def parse_connection_pools(text: str) -> list[BoardConnectionPool]:
    """Return the connection pools that the text describes. Raises ValueError if the text is not such a list.

    The text is a list of `NAME=PATTERN:CONNECTIONS` with commas between the items. It may be empty.
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

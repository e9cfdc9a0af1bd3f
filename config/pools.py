"""Why here: how the setting `pools` is written is checked where settings are, and read where connections are made.

The one rule: the first pattern that a board's id matches names its pool; what none matches belongs to the common one.
"""

import re
from fnmatch import fnmatchcase
from typing import NamedTuple

COMMON = "common"
_ENTRY = re.compile(r"(?P<name>[a-z][a-z0-9_]{0,31})=(?P<pattern>[^=,\s]+):(?P<connections>[1-9][0-9]?)")
_POOLS_MAX = 16


class BoardPool(NamedTuple):
    """Connections for the boards whose ids match a pattern with `*`, `?` and `[…]`."""

    name: str
    pattern: str
    connections: int  # for short reads; with them come one that writes and one for counts and walks

    def takes(self, board_id: str) -> bool:
        """Whether a board belongs here."""
        return fnmatchcase(board_id, self.pattern)


def parse_pools(text: str) -> list[BoardPool]:
    """`NAME=PATTERN:CONNECTIONS`, separated by commas; none for an empty text. Raises ValueError."""
    pools: list[BoardPool] = []
    for entry in filter(None, map(str.strip, text.split(","))):
        found = _ENTRY.fullmatch(entry)
        if found is None:
            raise ValueError(f"{entry!r} should be NAME=PATTERN:CONNECTIONS, like arena=arena-*:2")
        pools.append(BoardPool(found["name"], found["pattern"], int(found["connections"])))
    names = [pool.name for pool in pools]
    if len({*names, COMMON}) <= len(names):
        raise ValueError(f"pools should have different names, none of them {COMMON!r}")
    if len(pools) > _POOLS_MAX:
        raise ValueError(f"there should be at most {_POOLS_MAX} pools")
    return pools

"""What an owner is called and looks like: a small JSON object that reads add to rows.

The rule: it belongs to no board, and nothing is ever ranked or counted by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from querybuilder import Dialect, col, delete, excluded, insert, param, select

from .migrate import PROFILES
from .store import Program


class Profiles:
    """The statements, for one dialect; see `profiles`."""

    def __init__(self, dialect: Dialect) -> None:
        found = select(col("owner"), col("profile")).from_(PROFILES).where(col("owner").in_(param("owners")))
        self._find = found.packed().compile(dialect)
        self._put = (
            insert(PROFILES)
            .values(owner=param("owner"), profile=param("profile"), updated_at=param("now_us"))
            .on_conflict("owner")
            .do_update(profile=excluded("profile"), updated_at=excluded("updated_at"))
            .compile(dialect)
        )
        self._remove = delete(PROFILES).where(col("owner").eq(param("owner"))).compile(dialect)

    def find(self, owners: Sequence[str]) -> Program[dict[str, str]]:
        """The profiles of those owners that have one, as JSON text, in one statement."""
        rows = yield self._find.bind(owners=owners)
        return {row[0]: row[1] for row in rows}

    def put(self, owner: str, profile: str, *, now_us: int) -> Program[None]:
        """Store a profile, over the one that is there."""
        yield self._put.bind(owner=owner, profile=profile, now_us=now_us)

    def remove(self, owner: str) -> Program[bool]:
        """Remove a profile; whether there was one."""
        rows = yield self._remove.bind(owner=owner)
        return bool(rows[0][0])


@lru_cache
def profiles(dialect: Dialect) -> Profiles:
    """The statements, compiled once."""
    return Profiles(dialect)

"""A process's copy of the families, and the boards that they list.

The rule: a family is read again before it, or a board of it, is called unknown. A listed board that no post has reached
is empty and nobody's: it is made up for whoever reads it, and never kept.
"""

from __future__ import annotations

from .errors import UnknownFamily
from .families import existing_family, list_families
from .family_ids import is_listed, parse_board_id
from .records import Board, Family
from .store import Store


class FamilyCatalog:
    """The families by id."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_id: dict[str, Family] = {}

    async def load(self, *, families_max: int) -> None:
        """Read every family."""
        found = await self._store.read(lambda: list_families(self._store.dialect, after="", limit=families_max))
        self._by_id = {family.id: family for family in found}

    async def find(self, family_id: str) -> Family:
        """The family of that id.

        Raises:
            UnknownFamily: the store has none either.
        """
        return self._by_id.get(family_id) or await self.reread(family_id)

    async def reread(self, family_id: str) -> Family:
        """The family as the store has it now.

        Raises:
            UnknownFamily: there is none.
        """
        self._by_id.pop(family_id, None)
        family = await self._store.read(lambda: existing_family(self._store.dialect, family_id))
        return self._by_id.setdefault(family_id, family)

    def put(self, family: Family) -> None:
        """Take over a family that this process has just written."""
        self._by_id[family.id] = family

    def drop(self, family_id: str) -> None:
        """Forget a family that this process has just deleted."""
        self._by_id.pop(family_id, None)

    async def unreached(self, board_id: str) -> Board | None:
        """The empty board of that id, which no post has reached; None where no family lists it."""
        named = parse_board_id(board_id)
        if named is None:
            return None
        try:
            family = await self.reread(named.family)
        except UnknownFamily:
            return None
        return family.unreached(board_id) if is_listed(family.spec, named) else None

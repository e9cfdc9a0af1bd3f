"""A process's copy of the boards.

The rule: it is read again before a board is called unknown.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from .errors import UnknownBoard
from .family_catalog import FamilyCatalog
from .leaderboards import boards_by_id, existing, list_boards
from .records import Board
from .store import Store

ARCHIVED_KEPT_MAX = 1_000  # archived boards that a process keeps a copy of


class Catalog:
    """A process's copy of the boards. `find` re-reads before it calls one unknown."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.families = FamilyCatalog(store)
        self._by_id: dict[str, Board] = {}
        self._archived: OrderedDict[str, Board] = OrderedDict()  # those asked for last: there may be any number
        self._reads_under_way = 0
        self._written_meanwhile: set[str] = set()  # their reads under way may answer what was before the write
        self._on_gone: list[Callable[[int], None]] = []

    def watch_gone(self, forget: Callable[[int], None]) -> None:
        """Call `forget` with the key of every board that this process knew and that exists no longer."""
        self._on_gone.append(forget)

    def _let_go(self, board_key: int) -> None:
        # Only of what was known before a read began: the answer may be older than what was learned meanwhile.
        for forget in self._on_gone:
            forget(board_key)

    async def load(self, *, boards_max: int) -> None:
        """Read every board."""
        known_before = {board.key for board in self._by_id.values()}
        with self._reading():
            boards = await self._store.read(
                lambda: list_boards(self._store.dialect, prefix="", after="", limit=boards_max, archived=False)
            )
            before, self._by_id = self._by_id, {}
            for board in boards:
                if board.id not in self._written_meanwhile:
                    known = before.get(board.id)
                    self._by_id[board.id] = known if known == board else board
            for board_id in self._written_meanwhile & before.keys():
                self._by_id[board_id] = before[board_id]
            kept = {board.key for board in self._by_id.values()}
            for key in known_before - kept:
                self._let_go(key)

    def known(self, board_id: str) -> Board | None:
        """The board as this process last saw it."""
        return self._by_id.get(board_id) or self._archived.get(board_id)

    def boards(self) -> list[Board]:
        """All boards that this process knows, without those that were archived."""
        return list(self._by_id.values())

    async def find(self, board_id: str) -> Board:
        """The board of that id.

        Raises:
            UnknownBoard: the store has none either.
        """
        board = self.known(board_id)
        return board if board is not None else await self.reread(board_id)

    async def reread(self, board_id: str) -> Board:
        """The board as the store has it now.

        Raises:
            UnknownBoard: there is none.
        """
        known_before = self._by_id.get(board_id)
        with self._reading():
            try:
                board = await self._store.read(lambda: existing(self._store.dialect, board_id))
            except UnknownBoard:
                if board_id not in self._written_meanwhile:
                    self._by_id.pop(board_id, None)
                    self._archived.pop(board_id, None)
                    if known_before is not None:
                        self._let_go(known_before.key)
                unreached = await self.families.unreached(board_id)
                if unreached is None:
                    raise
                return unreached
            return board if board_id in self._written_meanwhile else self._keep(board)

    async def find_made(self, board_ids: Iterable[str]) -> dict[str, Board]:
        """Those of these boards that the store has a row of, by id; it is asked once for all that are not known."""
        asked = list(dict.fromkeys(board_ids))
        found = {each: board for each in asked if (board := self.known(each)) is not None}
        unknown = [each for each in asked if each not in found]
        if unknown:
            with self._reading():
                for board in await self._store.read(lambda: boards_by_id(self._store.dialect, unknown)):
                    found[board.id] = board if board.id in self._written_meanwhile else self._keep(board)
        return found

    def put(self, board: Board) -> Board:
        """Take over a board that this process has just written."""
        if self._reads_under_way:
            self._written_meanwhile.add(board.id)
        return self._keep(board)

    def put_all(self, boards: Iterable[Board]) -> None:
        """Take over boards that this process has just made sure of."""
        for board in boards:
            self.put(board)

    def drop(self, board_id: str) -> None:
        """Forget a board that this process has just deleted."""
        if self._reads_under_way:
            self._written_meanwhile.add(board_id)
        self._archived.pop(board_id, None)
        if (board := self._by_id.pop(board_id, None)) is not None:
            self._let_go(board.key)

    def _keep(self, board: Board) -> Board:
        """The board as it is known from now on: unchanged, it stays the object that it was, with what it carries."""
        if board.archived_us is not None:
            return self._keep_archived(board)
        self._archived.pop(board.id, None)
        known = self._by_id.get(board.id)
        if known is None or known != board:
            self._by_id[board.id] = board
            if known is not None and known.key < board.key:  # keys grow: deleted and made anew elsewhere
                self._let_go(known.key)
            return board
        return known

    def _keep_archived(self, board: Board) -> Board:
        if (before := self._by_id.pop(board.id, None)) is not None:  # with its rows went its curves
            self._let_go(before.key)
        known = self._archived.get(board.id)
        self._archived[board.id] = board = known if known is not None and known == board else board
        self._archived.move_to_end(board.id)
        if len(self._archived) > ARCHIVED_KEPT_MAX:
            self._archived.popitem(last=False)
        return board

    @contextmanager
    def _reading(self) -> Iterator[None]:
        self._reads_under_way += 1
        try:
            yield
        finally:
            self._reads_under_way -= 1
            if not self._reads_under_way:
                self._written_meanwhile.clear()

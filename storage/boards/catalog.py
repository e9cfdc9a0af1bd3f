"""A process's copy of the catalog: its boards, and in `families` its families.

The rule: the store is read again before a board is called unknown. So a copy may be old, but it never hides a board.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from storage.errors import UnknownBoardError
from storage.records import Board
from storage.store import Store

from .boards import find_board, find_boards_by_id, list_boards
from .families import FamilyCatalog

ARCHIVED_KEPT_MAX = 1_000  # archived boards that a process keeps a copy of


class Catalog:
    """A process's copy of the boards. `find_board` reads the store before it calls a board unknown."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.families = FamilyCatalog(store)
        self._by_id: dict[str, Board] = {}
        self._archived: OrderedDict[str, Board] = OrderedDict()  # the most recently used; the store may have any number
        self._reads_under_way = 0
        self._written_meanwhile: set[str] = set()  # reads under way may return these boards as they were before
        self._on_gone: list[Callable[[int], None]] = []

    def watch_removals(self, forget: Callable[[int], None]) -> None:
        """Call `forget` with the key of each known board that was deleted, or whose rows were archived."""
        self._on_gone.append(forget)

    def _tell_removal(self, board_key: int) -> None:
        # Call it only for boards known before a read began: what the read returns may be older than what came since.
        for forget in self._on_gone:
            forget(board_key)

    async def load(self, *, boards_max: int) -> None:
        """Read every board that is not archived."""
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
                self._tell_removal(key)

    def find_known(self, board_id: str) -> Board | None:
        """Return the board as this process last saw it; None if it does not know it. The store is not asked."""
        return self._by_id.get(board_id) or self._archived.get(board_id)

    def list_known(self) -> list[Board]:
        """Return all boards that this process knows, without archived ones."""
        return list(self._by_id.values())

    async def find_board(self, board_id: str) -> Board:
        """Return the board with that id, from the copy if it has it.

        Raises:
            UnknownBoardError: the store has none either.
        """
        board = self.find_known(board_id)
        return board if board is not None else await self.reread_board(board_id)

    async def reread_board(self, board_id: str) -> Board:
        """Read the board from the store, and keep and return it.

        A board that a family lists and no post has reached is returned too, but not kept.

        Raises:
            UnknownBoardError: there is none.
        """
        known_before = self._by_id.get(board_id)
        with self._reading():
            try:
                board = await self._store.read(lambda: find_board(self._store.dialect, board_id))
            except UnknownBoardError:
                if board_id not in self._written_meanwhile:
                    self._by_id.pop(board_id, None)
                    self._archived.pop(board_id, None)
                    if known_before is not None:
                        self._tell_removal(known_before.key)
                unreached = await self.families.find_unreached_board(board_id)
                if unreached is None:
                    raise
                return unreached
            return board if board_id in self._written_meanwhile else self._keep(board)

    async def find_stored_boards(self, board_ids: Iterable[str]) -> dict[str, Board]:
        """Return those of these boards that posts have reached or a client made, by id.

        One read asks the store for all boards that this process does not know.
        """
        asked = list(dict.fromkeys(board_ids))
        found = {each: board for each in asked if (board := self.find_known(each)) is not None}
        unknown = [each for each in asked if each not in found]
        if unknown:
            with self._reading():
                for board in await self._store.read(lambda: find_boards_by_id(self._store.dialect, unknown)):
                    found[board.id] = board if board.id in self._written_meanwhile else self._keep(board)
        return found

    def keep_board(self, board: Board) -> Board:
        """Keep a board that this process has just written. Return the object that is kept."""
        if self._reads_under_way:
            self._written_meanwhile.add(board.id)
        return self._keep(board)

    def keep_boards(self, boards: Iterable[Board]) -> None:
        """Keep boards that this process has just written, or made sure to exist."""
        for board in boards:
            self.keep_board(board)

    def forget_board(self, board_id: str) -> None:
        """Forget a board that this process has just deleted."""
        if self._reads_under_way:
            self._written_meanwhile.add(board_id)
        self._archived.pop(board_id, None)
        if (board := self._by_id.pop(board_id, None)) is not None:
            self._tell_removal(board.key)

    def _keep(self, board: Board) -> Board:
        """Keep a board and return it. If nothing changed, the known object stays, with what is cached on it."""
        if board.archived_us is not None:
            return self._keep_archived(board)
        self._archived.pop(board.id, None)
        known = self._by_id.get(board.id)
        if known is None or known != board:
            self._by_id[board.id] = board
            if known is not None and known.key < board.key:  # keys grow: deleted and made again elsewhere
                self._tell_removal(known.key)
            return board
        return known

    def _keep_archived(self, board: Board) -> Board:
        if (before := self._by_id.pop(board.id, None)) is not None:  # its curves were removed together with its rows
            self._tell_removal(before.key)
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

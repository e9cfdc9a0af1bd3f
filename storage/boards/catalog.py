"""A process's copy of the catalog, in which the process looks up boards and families without reading the store.

If the copy does not have a board, the process reads the store before it reports that the board is unknown. So the copy
may be outdated, but a process finds every board that exists. Before a request is refused because of what the copy says,
`confirm` reads the store, too.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from storage.coalesce import StoreCoalescers
from storage.errors import UnknownBoardError, UnknownFamilyError
from storage.records import Board, Family, Leaf
from storage.store import Store

from .boards import find_boards_by_id, list_boards
from .families import FamilyCatalog, make_boards
from .family_ids import find_aliased_family, resolve_alias

ARCHIVED_KEPT_MAX = 1_000  # how many archived boards a process keeps in its copy of the catalog
CONFIRM_PAUSE_S = 0.02  # the pause before each read that confirms copies; so bad requests cause few reads a second
CONFIRM_MAX = 1_000  # such a read confirms the copies of at most this many requests; as many more may wait for the next


class Catalog:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.families = FamilyCatalog(store)
        self._by_id: dict[str, Board] = {}
        self._archived: OrderedDict[str, Board] = OrderedDict()  # only the most recently used archived boards
        self._reads_under_way = 0
        # Ids of boards that were written while a read was running. The read may return older states of these boards.
        self._written_meanwhile: set[str] = set()
        self._on_removal: list[Callable[[int], None]] = []
        self._confirming = StoreCoalescers(self._confirm, batch_max=CONFIRM_MAX, waiting_max=CONFIRM_MAX, tasks_max=1)

    def watch_removals(self, forget: Callable[[int], None]) -> None:
        """Call `forget`, from now on, with leaf keys of known boards that are deleted, archived, split or forgotten."""
        self._on_removal.append(forget)

    def _tell_removal(self, board: Board) -> None:
        # A board that is created while this process reads the store may be missing in the result. So a caller that does
        # not find a board in a result may call this method only if the copy had the board before the read.
        for forget in self._on_removal:
            for leaf in board.leaves:
                forget(leaf.key)

    async def load(self, *, boards_max: int) -> None:
        """Fill the copy with up to `boards_max` boards from the store. Leave out archived boards."""
        known_before = {leaf.key: board for board in self._by_id.values() for leaf in board.leaves}
        with self._reading():
            boards = await self._store.read(lambda: list_boards(prefix="", after="", limit=boards_max, archived=False))
            before, self._by_id = self._by_id, {}
            for board in boards:
                if board.id not in self._written_meanwhile:
                    known = before.get(board.id)
                    self._by_id[board.id] = known if known == board else board
            for board_id in self._written_meanwhile & before.keys():
                self._by_id[board_id] = before[board_id]
            kept = {leaf.key for leaf in self.list_leaves()}
            for key in known_before.keys() - kept:
                self._tell_removal(known_before[key])

    def find_known(self, board_id: str) -> Board | None:
        """Return the board from the copy, or None if the copy lacks it. This does not read the store."""
        return self._by_id.get(board_id) or self._archived.get(board_id)

    def list_leaves(self) -> list[Leaf]:
        """Return the leaves of all boards that this process knows and that have rows."""
        return [leaf for board in self._by_id.values() for leaf in board.leaves]

    def list_boards(self) -> list[Board]:
        """Return all boards that this process knows, except archived ones."""
        return list(self._by_id.values())

    def is_known(self, leaf: Leaf) -> bool:
        """Return whether the copy still holds this very `Leaf` object. If not, the leaf may be outdated."""
        board = self.find_known(leaf.id)
        return board is not None and any(each is leaf for each in board.leaves)

    async def find_board(self, board_id: str) -> Board:
        """Return the board with that id from the copy. If the copy lacks it, call `reread_board`."""
        board = self.find_known(board_id)
        return board if board is not None else await self.reread_board(board_id)

    async def reread_board(self, board_id: str) -> Board:
        """Read the board from the store, keep it in the copy and return it, or raise `UnknownBoardError`.

        If the board belongs to a family and no post has reached it yet, return an empty board without keeping it.
        """
        found = (await self._reread([board_id])).get(board_id) or await self.families.find_unreached_board(board_id)
        if found is None:
            raise UnknownBoardError(f"no leaderboard {board_id!r}")
        return found

    async def _reread(self, board_ids: Iterable[str]) -> dict[str, Board]:
        """Read boards from the store, keep them in the copy, and return them by id. Forget those that were deleted."""
        known_before = {each: self.find_known(each) for each in board_ids}
        with self._reading():
            boards = await self._store.read(lambda: find_boards_by_id([*known_before]))
            found = {board.id: board for board in boards}
            for board_id in known_before.keys() - self._written_meanwhile:
                if board_id in found:
                    found[board_id] = self._keep(found[board_id])
                elif self.find_known(board_id) is known_before[board_id]:  # no later read has found it
                    self.forget_board(board_id)
            return found

    async def confirm(self, ids: Iterable[str]) -> None:
        """Read boards again before a request is refused by their copies; the caller then tries the request once more.

        If an id has a colon, read the family that the id names, too. One read at a time serves all waiting requests,
        and a pause comes before it. So many bad requests hardly load the store.
        """
        await self._confirming.ask(self._store, None, ids)

    async def _confirm(self, asked: list[Iterable[str]]) -> Sequence[None]:
        await asyncio.sleep(CONFIRM_PAUSE_S)
        ids = {each for ids in asked for each in ids}
        await self._reread(ids)
        for family_id in {each.partition(":")[0] for each in ids if ":" in each}:
            with suppress(UnknownFamilyError):
                await self.families.reread_family(family_id)
        return [None] * len(asked)

    async def resolve_aliases(self, board_ids: Iterable[str], now_us: int) -> list[str]:
        """Return these ids, with each alias, such as `this-week`, replaced by the period that it means at `now_us`.

        A board outside a family may have an id that looks as if it had an alias. Such an id is returned unchanged.

        Raises:
            UnknownBoardError: an id has an alias, but there is neither such a family nor a board with this id.
        """
        reread: dict[str, Family] = {}
        return [await self._resolve_alias(each, now_us, reread) for each in board_ids]

    async def _resolve_alias(self, board_id: str, now_us: int, reread: dict[str, Family]) -> str:
        """Return one id, with an alias replaced. `reread` has the families that this request read from the store."""
        family_id = find_aliased_family(board_id)
        if family_id is None or self.find_known(board_id) is not None:
            return board_id
        try:
            family = reread.get(family_id) or await self.families.find_family(family_id)
            found = resolve_alias(family.spec, board_id, now_us)
            board = self.find_known(found)
            if family_id in reread or (board is not None and board.family_key == family.key):
                return found
            # Another process may have deleted the family and created it again with another time zone.
            family = reread[family_id] = await self.families.reread_family(family_id)
            return resolve_alias(family.spec, board_id, now_us)
        except UnknownFamilyError:
            return (await self.find_board(board_id)).id

    async def find_stored_boards(self, board_ids: Iterable[str]) -> dict[str, Board]:
        """Return the boards with these ids, by id. Leave out unknown ids, and boards that no post has reached."""
        asked = list(dict.fromkeys(board_ids))
        found = {each: board for each in asked if (board := self.find_known(each)) is not None}
        unknown = [each for each in asked if each not in found]
        return found | (await self._reread(unknown) if unknown else {})

    async def make_boards(self, family: Family, board_ids: Iterable[str], **limits: Any) -> dict[str, Board]:
        """Return the boards of a family with these ids, by id. Create missing ones as `families.make_boards` does."""
        found: dict[str, Board] = {}
        missing: list[str] = []
        for each in board_ids:
            board = self.find_known(each)
            if board is None or len(board.spec.columns) < len(family.spec.board.columns):
                missing.append(each)
            else:
                found[each] = board
        if missing:
            made = await self._store.write(lambda: make_boards(family, missing, **limits))
            found |= {board.id: self.keep_board(board) for board in made}
        return found

    def keep_board(self, board: Board) -> Board:
        """Put a board into the copy, after it was written or read. Return the object that the copy then holds."""
        if self._reads_under_way:
            self._written_meanwhile.add(board.id)
        return self._keep(board)

    def keep_leaf(self, leaf: Leaf) -> None:
        """Put a leaf that was just read in place of the copied leaf with the same key. If there is none, do nothing."""
        board = self.find_known(leaf.id)
        if board is None or leaf.key not in [each.key for each in board.leaves]:
            return  # the board was deleted or split meanwhile
        if leaf.archived_us is not None and board.is_spread:  # the board was archived or split
            self.forget_board(board.id)
            return
        # All segments of a board have the same spec, which changes in one transaction.
        leaves = tuple(leaf if each.key == leaf.key else replace(each, spec=leaf.spec) for each in board.leaves)
        spec, home = replace(leaf.spec, segments=board.spec.segments), board.home if board.is_spread else leaf.partition
        self.keep_board(replace(board, spec=spec, leaves=leaves, home=home))

    def forget_board(self, board_id: str) -> None:
        """Remove a board from the copy, because it was deleted or has to be read again."""
        if self._reads_under_way:
            self._written_meanwhile.add(board_id)
        self._archived.pop(board_id, None)
        if (board := self._by_id.pop(board_id, None)) is not None:
            self._tell_removal(board)

    def _keep(self, board: Board) -> Board:
        """Put a board into the copy and return it. If the copy has an equal board, keep and return that one instead."""
        if board.gate.archived_us is not None:
            return self._keep_archived(board)
        self._archived.pop(board.id, None)
        known = self._by_id.get(board.id)
        if known is None or known != board:
            self._by_id[board.id] = board
            if known is not None and known.leaves[-1].key < board.leaf.key:
                self._tell_removal(known)  # another process deleted the board and created it again, or split it
            return board
        return known

    def _keep_archived(self, board: Board) -> Board:
        # The board was archived, so its rows and curves were removed.
        if (before := self._by_id.pop(board.id, None)) is not None:
            self._tell_removal(before)
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

"""Keeps a process's copies of boards and families, so that it can look them up without reading the store.

A copy is immutable and has one version (`Board.version`). `keep_board` replaces it as a whole, and never with an older
version, so any code that has read or written a board may store it here at any time.

A copy may be outdated. An answer is therefore sent only if the store confirms the copy in the answer's own snapshot or
transaction, by the leaf's edition (`check_copy`) or gate. If the copy is the only reason to refuse a request, `confirm`
reads the store first. If the copy lacks a board, the process reads the store before it reports the board as unknown.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
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
        self._archived: OrderedDict[str, Board] = OrderedDict()  # only those that were read last
        self._on_removal: list[Callable[[int], None]] = []
        self._confirming = StoreCoalescers(self._confirm, batch_max=CONFIRM_MAX, waiting_max=CONFIRM_MAX, tasks_max=1)

    def watch_removals(self, forget: Callable[[int], None]) -> None:
        """From now on, call `forget` with the leaf keys of known boards once deleted, archived, split or forgotten."""
        self._on_removal.append(forget)

    async def load(self, *, boards_max: int) -> None:
        known = dict(self._by_id)
        self._replace(
            known,
            await self._store.read(lambda: list_boards(prefix="", after="", limit=boards_max, archived=False)),
        )

    def find_known(self, board_id: str) -> Board | None:
        """Return the board from the copy, or None if the copy lacks it, without reading the store."""
        return self._by_id.get(board_id) or self._archived.get(board_id)

    def list_leaves(self) -> list[Leaf]:
        return [leaf for board in self._by_id.values() for leaf in board.leaves]

    def list_boards(self) -> list[Board]:
        return list(self._by_id.values())

    async def find_board(self, board_id: str) -> Board:
        """Return the board with that id from the copy, or, if the copy lacks it, from `reread_board`."""
        board = self.find_known(board_id)
        return board if board is not None else await self.reread_board(board_id)

    async def reread_board(self, board_id: str) -> Board:
        """Read the board from the store, keep it in the copy and return it, or raise `UnknownBoardError`.

        If the board belongs to a family and no post has reached it yet, return an empty board without keeping it.
        """
        found = (await self.reread_boards([board_id])).get(board_id) or await self.families.find_unreached_board(
            board_id
        )
        if found is None:
            raise UnknownBoardError(f"no leaderboard {board_id!r}")
        return found

    async def reread_boards(self, board_ids: Iterable[str]) -> dict[str, Board]:
        """Read boards from the store, keep them in the copy, and return them by id. Forget those that were deleted."""
        known = {each: self.find_known(each) for each in board_ids}
        return self._replace(known, await self._store.read(lambda: find_boards_by_id([*known])))

    def _replace(self, known: Mapping[str, Board | None], boards: Iterable[Board]) -> dict[str, Board]:
        """Keep boards that were read, and return them by id. `known` holds the copies from before the read.

        Copies of boards that the read did not find are dropped, unless another read or a write has since replaced them.
        """
        found = {board.id: self.keep_board(board) for board in boards}
        for board_id in known.keys() - found.keys():
            if self.find_known(board_id) is known[board_id]:
                self.forget_board(board_id)
        return found

    async def confirm(self, ids: Iterable[str]) -> None:
        """Read boards again before their copies are used to refuse a request, which the caller then tries once more.

        If an id has a colon, the family that it names is read, too. One read at a time, after a pause, serves all
        waiting requests, so that many bad requests hardly load the store.
        """
        await self._confirming[self._store].ask(None, ids)

    async def _confirm(self, asked: list[Iterable[str]]) -> Sequence[None]:
        await asyncio.sleep(CONFIRM_PAUSE_S)
        ids = {each for ids in asked for each in ids}
        await self.reread_boards(ids)
        for family_id in {each.partition(":")[0] for each in ids if ":" in each}:
            with suppress(UnknownFamilyError):
                await self.families.reread_family(family_id)
        return [None] * len(asked)

    async def resolve_aliases(self, board_ids: Iterable[str], now_us: int) -> list[str]:
        """Replace each alias in these ids, such as `this-week`, with the period that it means at `now_us`.

        A board outside a family may have an id that merely looks like an alias. Such an id is returned unchanged.

        Raises:
            UnknownBoardError: an id has an alias, but there is neither such a family nor a board with this id.
        """
        reread: dict[str, Family] = {}
        return [await self._resolve_alias(each, now_us, reread) for each in board_ids]

    async def _resolve_alias(self, board_id: str, now_us: int, reread: dict[str, Family]) -> str:
        family_id = find_aliased_family(board_id)
        if family_id is None or self.find_known(board_id) is not None:
            return board_id
        try:
            family = reread.get(family_id) or await self.families.find_family(family_id)
            if family_id in reread or not family.spec.may_have_grown(now_us):
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
        """Return the boards with these ids, keyed by id. Leave out unknown ids, and boards that no post has reached."""
        asked = list(dict.fromkeys(board_ids))
        found = {each: board for each in asked if (board := self.find_known(each)) is not None}
        unknown = [each for each in asked if each not in found]
        return found | (await self.reread_boards(unknown) if unknown else {})

    async def make_boards(self, family: Family, board_ids: Iterable[str], **limits: Any) -> dict[str, Board]:
        """Return the family's boards with these ids, keyed by id, after `families.make_boards` created missing ones."""
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
        """Replace the copy of a board that was read or written, unless the copy is newer. Return the copy."""
        known = self.find_known(board.id)
        if known is not None and (known.version > board.version or known == board):
            return known
        kept = {leaf.key for leaf in board.leaves} if board.gate.archived_us is None else set()
        self.forget_board(board.id, kept)
        if kept:
            self._by_id[board.id] = board
            return board
        self._archived[board.id] = board
        if len(self._archived) > ARCHIVED_KEPT_MAX:
            self._archived.popitem(last=False)
        return board

    def forget_board(self, board_id: str, kept: Container[int] = ()) -> None:
        """Remove a board from the copy, and tell the listeners about all its leaves except those in `kept`."""
        self._archived.pop(board_id, None)
        if (board := self._by_id.pop(board_id, None)) is not None:
            for leaf in board.leaves:
                if leaf.key not in kept:
                    for forget in self._on_removal:
                        forget(leaf.key)

"""The parts with which a process finds ranks: store, locators, cursors and the shared reads of first pages."""

from __future__ import annotations

from dataclasses import dataclass

from service.contract.cursors import CursorCodec
from storage.coalesce import StoreCoalescers
from storage.records import Board
from storage.store import Store

from .locator_cache import LocatorCache
from .pages import FirstPage, Pager


@dataclass(frozen=True, slots=True)
class RankContext:
    store: Store
    locators: LocatorCache
    cursors: CursorCodec
    first_pages: StoreCoalescers[tuple[Pager, int], FirstPage]

    def make_pager(self, board: Board, index: int) -> Pager:
        return Pager(self.store.for_board(board.id), self.locators.find_locator(board), self.cursors, board, index)

"""Rebuilding a board on the store itself, without a service.

The rule: opening takes the store's lock, like `serve` does; on a shared store who posts to the board waits.
"""

from __future__ import annotations

from config import Settings
from storage.rebuilding import Rebuilt, rebuild_board
from storage.transaction_numbers import bring_up

from .stores import open_store


async def rebuild(settings: Settings, board_id: str) -> Rebuilt:
    """Make a board anew from the journal.

    Raises:
        StoreLocked: a service owns the store.
        UnknownBoard, JournalIncomplete: nothing was changed.
    """
    store = await open_store(settings)
    try:
        await bring_up(store)
        return await store.write(lambda: rebuild_board(store.dialect, board_id=board_id))
    finally:
        await store.close()

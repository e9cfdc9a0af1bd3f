"""Rebuilding a board on the store itself, without a service.

The rule: opening takes the store's lock, like `serve` does; on a shared store who posts to the board waits.
"""

from __future__ import annotations

from config import Settings
from storage.post_ids import PostIds
from storage.rebuilding import Rebuilt, rebuild_board
from storage.replaying import replay_board
from storage.store import Program
from storage.transaction_numbers import bring_up

from .logs import logging_to_stderr
from .posts import fingerprint_of
from .stores import open_store
from .wiring import now_us


async def rebuild(settings: Settings, board_id: str, since: int | None) -> Rebuilt:
    """Make a board anew from the journal: since it was created or reset, or from the number `since` on.

    Raises:
        StoreLocked: a service owns the store.
        UnknownBoard, JournalIncomplete, NothingReplayed, SpecConflict: nothing was changed.
    """
    with logging_to_stderr():
        store = await open_store(settings)
        try:
            post_ids = PostIds(store.dialect, await bring_up(store))

            def program() -> Program[Rebuilt]:
                if since is None:
                    return (yield from rebuild_board(store.dialect, board_id=board_id))
                replay = replay_board(
                    store.dialect, post_ids, fingerprint_of, board_id=board_id, since=since, now_us=now_us()
                )
                return (yield from replay)

            return await store.write(program)
        finally:
            await store.close()

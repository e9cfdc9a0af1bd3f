"""Rebuilds a board on the store itself, without a service.

Opening the store locks it, as `serve` does. If other processes share the store, their posts to the board wait until the
rebuild has ended.
"""

from __future__ import annotations

from config import Settings
from service.stores import open_store
from service.telemetry.logs import logging_to_stderr
from service.views.posts.posts import hash_post
from service.wiring import now_us
from storage.engines.store_start import prepare_store
from storage.entries.rebuild import RebuildCounts, rebuild_board
from storage.posting.post_ids import PostIds
from storage.posting.replay import replay_board
from storage.store import Program


async def rebuild_on_store(settings: Settings, board_id: str, since: int | None) -> RebuildCounts:
    """Rebuild the rows of a board from the journal.

    The rebuild begins at the journal number `since`, or, if it is None, where the board was created or last reset.

    Raises:
        StoreLockedError: a service owns the store.
        UnknownBoardError, JournalIncompleteError, NothingReplayedError, SpecConflictError: the board can't be
            rebuilt, and nothing was changed.
    """
    with logging_to_stderr():
        store = await open_store(settings)
        try:
            post_ids = PostIds(await prepare_store(store))

            def program() -> Program[RebuildCounts]:
                if since is None:
                    return (yield from rebuild_board(board_id=board_id))
                replay = replay_board(post_ids, hash_post, board_id=board_id, since=since, now_us=now_us())
                return (yield from replay)

            return await store.write(program)
        finally:
            await store.close()

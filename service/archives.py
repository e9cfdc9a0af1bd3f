"""Erasing owners from archives, which the catalog of a process does not hold.

The rule: archives come after the boards that have rows: one that is archived meanwhile is not missed.
"""

from __future__ import annotations

from storage.archives import ArchivedEntries, archives_of
from storage.leaderboards import boards_by_key
from storage.store import Program

from .context import Context

ARCHIVES_A_STEP = 100  # of which few blocks each are decoded and written anew


async def erase_from_archives(context: Context, owner: str) -> None:
    """Take an owner out of every archive, in transactions of a bounded number of boards."""
    after_key = -1
    while True:
        keys = await context.store.read(
            lambda after_key=after_key: archives_of(  # type: ignore[misc]
                context.store.dialect, owner, after_key=after_key, limit=ARCHIVES_A_STEP
            )
        )
        if keys:
            await context.store.write(lambda keys=keys: _erase(context, keys, owner))  # type: ignore[misc]
            after_key = keys[-1]
        if len(keys) < ARCHIVES_A_STEP:
            return


def _erase(context: Context, keys: list[int], owner: str) -> Program[None]:
    dialect = context.store.dialect
    boards = yield from boards_by_key(dialect, keys)
    for board in boards.values():
        if board.archived_us is not None:  # otherwise its archive is being written, and is begun anew
            yield from ArchivedEntries(dialect, board).erase(owner, now_us=context.now_us())

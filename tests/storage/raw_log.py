"""A change logged by hand, in a transaction that the test ends when it likes."""

from __future__ import annotations

import asyncpg

from storage.bundles import Draft
from storage.posted import Happened


async def log_change(connection: asyncpg.Connection, board_key: int, owner: str, before: str, after: str) -> None:
    """As a post would."""
    draft = Draft(board_key)
    draft.add(owner, before, after, (Happened.APPLIED,))
    names = "board_key, updated_at, changes, owners, cells, posts, place"
    await connection.execute(f"INSERT INTO changes ({names}) VALUES ($1, $2, $3, $4, $5, $6, 0)", *draft.row(1))

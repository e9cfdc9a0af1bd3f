"""Write to the change log without a post. The test itself ends the transaction."""

import asyncpg

from storage.log.bundles import BundleDraft
from storage.log.log_record import ChangeKind


async def log_change(connection: asyncpg.Connection, board_key: int, owner: str, before: str, after: str) -> None:
    draft = BundleDraft(board_key)
    draft.add_change(owner, before, after, (ChangeKind.APPLIED,))
    names = "board_key, updated_at, changes, owners, cells, posts, place"
    await connection.execute(f"INSERT INTO changes ({names}) VALUES ($1, $2, $3, $4, $5, $6, 0)", *draft.encode_row(1))

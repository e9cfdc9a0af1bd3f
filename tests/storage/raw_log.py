"""Write to the change log without a post. The test itself ends the transaction."""

import asyncpg
from asyncpg.transaction import Transaction

from storage.log.bundles import BundleDraft
from storage.log.log_record import ChangeKind


async def begin_change(connection: asyncpg.Connection, board_key: int, before: str, after: str) -> Transaction:
    """Begin a transaction that logs a change of the owner `slow`, and return the transaction."""
    transaction = connection.transaction()
    await transaction.start()
    draft = BundleDraft(board_key)
    draft.add_change("slow", before, after, (ChangeKind.APPLIED,))
    names = "board_key, updated_at, changes, owners, cells, posts, place"
    await connection.execute(f"INSERT INTO changes ({names}) VALUES ($1, $2, $3, $4, $5, $6, 0)", *draft.encode_row(1))
    return transaction

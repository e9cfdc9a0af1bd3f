"""The tables of the ingest queue, and of the semaphores that bound how many workers empty it.

This is a step of the schema (see `steps`): once released, it is never edited.
"""

from __future__ import annotations

from querybuilder import INTEGER, TEXT, Dialect, Query, asc, col, create_index, create_table

INGEST_BLOCKS = "ingest_blocks"
INGEST_SHARDS = "ingest_shards"
REJECTED_POSTS = "rejected_posts"
SEMAPHORES = "semaphores"


def create_ingest_tables(dialect: Dialect) -> list[Query]:
    """Return the queries that create the tables and their indexes."""
    ordered = not dialect.transaction  # without transaction numbers (SQLite), the numbered column has to be the key
    blocks = (
        create_table(INGEST_BLOCKS)
        .numbered("number")  # a transaction that began after another had been confirmed gets the greater number
        .column("shard", INTEGER)
        .column("queued_at", INTEGER)
        .column("posts", INTEGER)
        .column("edition", INTEGER)  # grows when the block is rewritten, so that an earlier reader notices it
        .column("block", TEXT, sortable=False)
    )
    by_shard = create_index("ingest_blocks_shard", INGEST_BLOCKS, col("shard"), col("number"))
    return [
        *([blocks.primary_key("number"), by_shard] if ordered else [blocks.primary_key("shard", "number")]),
        # One row per shard. The store fixes their number, because it decides which shard an owner's posts go to.
        create_table(INGEST_SHARDS)
        .column("shard", INTEGER)
        .column("applied", INTEGER)  # posts ever taken from the shard
        .column("busy_us", INTEGER)  # how long workers took for them
        .primary_key("shard")
        .clustered(),
        create_table(REJECTED_POSTS)
        .column("board_key", INTEGER)
        .column("post_hash", TEXT)
        .column("error", TEXT)
        .column("rejected_at", INTEGER)
        .primary_key("board_key", "post_hash")
        .clustered(),
        create_index("rejected_posts_rejected_at", REJECTED_POSTS, asc(col("rejected_at"))),
        create_table(SEMAPHORES)
        .column("name", TEXT)
        .column("size", INTEGER)  # how many may hold it at once
        .column("capacity", INTEGER)  # what the store takes per second, as measured
        .column("speed", INTEGER)  # what one holder does per second, as measured
        .column("sized_at", INTEGER)
        .primary_key("name")
        .clustered(),
    ]

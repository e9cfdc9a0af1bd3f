"""The tables of the ingest queue, and of how many may empty it.

The rule: as with all steps of the schema: once released it is never edited.
"""

from __future__ import annotations

from querybuilder import INTEGER, TEXT, Dialect, Query, asc, col, create_index, create_table

INGEST = "ingest_blocks"
INGEST_SHARDS = "ingest_shards"
REJECTED_POSTS = "rejected_posts"
SEMAPHORES = "semaphores"


def ingest_tables(dialect: Dialect) -> list[Query]:
    """What makes them."""
    ordered = not dialect.transaction  # the numbered column has to be the key then
    blocks = (
        create_table(INGEST)
        .numbered("number")  # whoever began to queue after another was answered has the greater one
        .column("shard", INTEGER)
        .column("queued_at", INTEGER)
        .column("posts", INTEGER)
        .column("edition", INTEGER)  # grows when the block is written anew: who read it before has another one
        .column("block", TEXT, sortable=False)
    )
    by_shard = create_index("ingest_blocks_shard", INGEST, col("shard"), col("number"))
    return [
        *([blocks.primary_key("number"), by_shard] if ordered else [blocks.primary_key("shard", "number")]),
        create_table(INGEST_SHARDS)  # one row a shard: their number is the store's, for it says where an owner's are
        .column("shard", INTEGER)
        .column("applied", INTEGER)  # posts ever taken from it
        .column("busy_us", INTEGER)  # and how long workers took
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
        .column("size", INTEGER)  # how many may hold it
        .column("capacity", INTEGER)  # what the store takes a second, as measured
        .column("speed", INTEGER)  # and what one holder does
        .column("sized_at", INTEGER)
        .primary_key("name")
        .clustered(),
    ]

"""Declares the tables for the post queue, and for the semaphores that limit how many workers apply its posts."""

from querybuilder import INTEGER, TEXT, Query, col, create_index, create_table

INGEST_BLOCKS = "ingest_blocks"
INGEST_SHARDS = "ingest_shards"
REJECTED_POSTS = "rejected_posts"
SEMAPHORES = "semaphores"


# The waiting posts in blocks, the shards of the queue, and the posts that were rejected.
QUEUE_TABLES: tuple[Query, ...] = (
    create_table(INGEST_BLOCKS)
    .column("number", INTEGER)  # grows in the order of the commits
    .with_columns(shard=INTEGER, queued_at=INTEGER, posts=INTEGER)
    .column("edition", INTEGER)  # grows when the block is rewritten, so that an earlier reader notices the change
    .column("block", TEXT, sortable=False)
    .primary_key("shard", "number"),
    # One row per shard. In the control partition, the number of rows never changes, because it decides in which shard
    # an owner's posts are. In another partition, a shard gets its row when workers first take posts from the shard.
    create_table(INGEST_SHARDS)
    .column("shard", INTEGER)
    .column("applied", INTEGER)  # how many posts workers have ever taken from the shard
    .column("busy_us", INTEGER)  # working time; a worker with posts of several shards adds its whole time to one shard
    .primary_key("shard")
    .clustered(),
    create_table(REJECTED_POSTS)
    .with_columns(leaf_key=INTEGER, post_hash=TEXT, error=TEXT, rejected_at=INTEGER)
    .primary_key("leaf_key", "post_hash")
    .clustered(),
    create_index("rejected_posts_rejected_at", REJECTED_POSTS, col("rejected_at")),
)

# The semaphores that limit how many workers apply posts at the same time.
SEMAPHORE_TABLES: tuple[Query, ...] = (
    create_table(SEMAPHORES)
    .column("name", TEXT)
    .column("size", INTEGER)  # how many workers may hold the semaphore at the same time
    .column("capacity", INTEGER)  # how many posts the store can apply per second; 0: not measured
    .column("speed", INTEGER)  # how many posts one holder applies per second; 0: not measured
    .column("sized_at", INTEGER)
    .primary_key("name")
    .clustered(),
)

"""The tables of the ingest queue, and of the semaphores that bound how many workers empty it."""

from querybuilder import INTEGER, TEXT, Query, col, create_index, create_table

INGEST_BLOCKS = "ingest_blocks"
INGEST_SHARDS = "ingest_shards"
REJECTED_POSTS = "rejected_posts"
SEMAPHORES = "semaphores"


# The queue itself.
QUEUE_TABLES: tuple[Query, ...] = (
    create_table(INGEST_BLOCKS)
    .column("number", INTEGER)  # in the order of the commits
    .with_columns(shard=INTEGER, queued_at=INTEGER, posts=INTEGER)
    .column("edition", INTEGER)  # grows when the block is rewritten, so that an earlier reader notices it
    .column("block", TEXT, sortable=False)
    .primary_key("shard", "number"),
    # One row per shard. In partition 0, the number of rows never changes, because it decides to which shard an owner's
    # posts go. In other partitions, a shard has a row once workers have taken posts from it.
    create_table(INGEST_SHARDS)
    .column("shard", INTEGER)
    .column("applied", INTEGER)  # how many posts workers have ever taken from the shard
    .column("busy_us", INTEGER)  # how many microseconds workers took for these posts
    .primary_key("shard")
    .clustered(),
    create_table(REJECTED_POSTS)
    .with_columns(board_key=INTEGER, post_hash=TEXT, error=TEXT, rejected_at=INTEGER)
    .primary_key("board_key", "post_hash")
    .clustered(),
    create_index("rejected_posts_rejected_at", REJECTED_POSTS, col("rejected_at")),
)

# The semaphores that bound how many workers empty the queue.
SEMAPHORE_TABLES: tuple[Query, ...] = (
    create_table(SEMAPHORES)
    .column("name", TEXT)
    .column("size", INTEGER)  # how many workers may hold the semaphore at the same time
    .column("capacity", INTEGER)  # how many posts the store applies per second; 0: not measured
    .column("speed", INTEGER)  # how many posts one holder applies per second; 0: not measured
    .column("sized_at", INTEGER)
    .primary_key("name")
    .clustered(),
)

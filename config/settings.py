"""The declarations of all settings: every limit, wait and size of the service, each declared once.

The rule: every number has a lower and an upper bound, and a unit. Its name says the unit unless it is a plain count.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from config.kinds import Operations, PeersText, PoolsText, ReplicaUrl, Servers, StoreUrl
from config.kinds import choice as _choice
from config.kinds import number as _number
from config.kinds import text as _text

L = TypeVar("L")

# The first of each pair should not be greater than the second.
_ORDERED_PAIRS = (
    ("body_bytes_max", "arriving_bytes_max"),
    ("page_entries_default", "page_entries_max"),
    ("write_backoff_base_s", "write_backoff_s_max"),
    ("retry_after_s", "retry_after_s_max"),
    ("job_backoff_base_s", "job_backoff_s_max"),
    ("store_backoff_base_s", "store_backoff_s_max"),
    ("worker_backoff_base_s", "worker_backoff_s_max"),
)


class Settings(BaseModel):
    """The effective configuration, immutable. `Settings()` is the embedded default: one process, one file, loopback.

    Raises pydantic's ValidationError on a bad value; `config.load` turns all of them into one ConfigError.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    # Where it listens and what it runs
    host: str = _text("127.0.0.1", "Address to listen on; without API keys only a loopback address is allowed")
    port: int = _number(8080, 0, 65535, "", "TCP port to listen on; 0 takes a free one")
    store: StoreUrl = _text(
        "sqlite:///data/rankcurve.db", "sqlite:///PATH (relative to the working directory) or postgresql://…"
    )
    jobs: Literal["embedded", "none"] = _choice("embedded", "Run the background jobs beside the service, or not")
    workers: int = _number(1, 1, 64, "processes", "Processes that serve; more than 1 need a PostgreSQL store")
    jobs_port: int = _number(
        0, 0, 65535, "", "TCP port of `rankcurve jobs` for /healthz, /readyz and /metrics; 0: none"
    )
    worker_backoff_base_s: float = _number(
        0.1, 0.001, 60, "s", "First pause before a crashed process is replaced; doubles, with jitter"
    )
    worker_backoff_s_max: float = _number(10, 0.001, 3_600, "s", "Longest pause before a crashed process is replaced")
    worker_steady_s: float = _number(10, 0.1, 3_600, "s", "A process that ran so long did not crash at once")
    worker_crashes_max: int = _number(10, 1, 1_000, "crashes", "Crashes at once in a row after which all are stopped")
    shutdown_s: float = _number(30, 0, 600, "s", "Longest wait on SIGTERM for accepted posts and open requests")

    # What one request may ask for
    body_bytes_max: int = _number(8 * 1024 * 1024, 1024, 1024**3, "bytes", "Request body; larger is 413")
    body_idle_s_max: float = _number(10, 0.1, 600, "s", "Longest pause within a body that is arriving; past it 408")
    body_wait_s_max: float = _number(300, 0.1, 3_600, "s", "Longest arrival of a whole body; past it 408")
    arriving_bytes_max: int = _number(
        256 * 1024 * 1024, 1024, 1024**4, "bytes", "Bodies in one process, from arrival to answer; past it 503"
    )
    head_wait_s_max: float = _number(
        20, 0.1, 600, "s", "Longest wait for a connection's first request, or for a request's headers; then it ends"
    )
    keepalive_s_max: float = _number(3_630, 1, 86_400, "s", "Longest pause of a connection between two requests")
    posts_per_request_max: int = _number(10_000, 1, 1_000_000, "posts", "Posts in one request")
    boards_per_post_max: int = _number(100, 1, 10_000, "boards", "Boards that one post may name")
    parts_per_request_max: int = _number(
        10_000, 1, 1_000_000, "parts", "Posts in one request, each counted once a board that it goes to"
    )
    family_boards_max: int = _number(25, 1, 10_000, "boards", "Boards that a family has in one period of each kind")
    page_entries_max: int = _number(1_000, 1, 100_000, "entries", "Entries on one page")
    page_entries_default: int = _number(100, 1, 100_000, "entries", "Entries on a page when no limit is asked for")
    around_rows_max: int = _number(500, 1, 100_000, "rows", "Rows on each side in a view around an owner or a value")
    lookup_owners_max: int = _number(1_000, 1, 100_000, "owners", "Owners in one lookup")
    query_values_max: int = _number(1_000, 1, 100_000, "values", "Values, ranks or percentiles in one query")
    owner_posts_blocks_max: int = _number(
        10_000, 1, 10_000_000, "blocks", "Stretches of about 8,000 posts that one look for an owner's goes through"
    )
    history_periods_max: int = _number(100, 1, 10_000, "periods", "Closed periods in one answer of an owner's history")
    buckets_max: int = _number(1_000, 1, 100_000, "buckets", "Buckets in one distribution")
    profile_bytes_max: int = _number(4_096, 2, 1024**2, "bytes", "An owner's profile as JSON; larger is 413")
    at_ahead_s_max: float = _number(300, 0, 86_400, "s", "How far a post's `at` may lie ahead of the service's clock")

    # Writing
    grouping: bool = _choice(True, "Commit posts in groups; false (one post a transaction) is for measuring")
    change_log: bool = _choice(True, "Log what posts change; false (ranks go wrong) is for measuring")
    queue_posts_max: int = _number(50_000, 1, 10_000_000, "posts", "Posts waiting, counted once a board; past it 429")
    group_posts_max: int = _number(2_000, 1, 100_000, "posts", "Posts in one transaction, counted once a board")
    post_wait_s_max: float = _number(
        10, 0.01, 3_600, "s", "Longest wait of a post; past it 503, half of it ahead of a new post 503 at once"
    )
    post_id_retention_s: float = _number(30 * 86_400, 60, 10 * 366 * 86_400, "s", "How long a post id is remembered")
    writes_in_flight_max: int = _number(
        8, 1, 256, "transactions", "Most groups of posts in flight, never more than `writer_connections`; on SQLite one"
    )
    write_attempts_max: int = _number(8, 1, 1_000, "attempts", "Tries of a group whose conditional write lost a race")
    write_backoff_base_s: float = _number(0.005, 0, 10, "s", "First back-off after a lost race; doubles, with jitter")
    write_backoff_s_max: float = _number(0.5, 0, 60, "s", "Longest back-off after a lost race")

    # The ingest queue of posts with mode=queued
    ingest_shards: int = _number(
        10, 1, 256, "shards", "Parts of the queue, for a store that has none yet: what is emptied at the same time"
    )
    ingest_posts_max: int = _number(500_000, 1, 1_000_000_000, "posts", "Posts in the queue; past it 429")
    ingest_age_s_max: float = _number(60, 0.1, 86_400, "s", "Longest wait of the oldest post in the queue; past it 503")
    ingest_look_s: float = _number(1, 0.01, 60, "s", "How old what is known of the queue may be where posts are taken")
    ingest_group_posts_max: int = _number(10_000, 1, 100_000, "posts", "Posts queued in one transaction")
    ingest_block_posts_max: int = _number(200, 1, 10_000, "posts", "Posts of a shard that are queued as one row")
    ingest_round_posts_max: int = _number(1_000, 1, 100_000, "posts", "Queued posts applied in one transaction")
    ingest_round_parts_max: int = _number(2_500, 1, 100_000, "posts", "Queued posts of a transaction, once a board")
    ingest_alone_attempts_max: int = _number(
        10, 1, 1_000, "attempts", "Tries of a queued post that the store refuses by itself, before it is rejected"
    )
    ingest_workers: int = _number(1, 0, 64, "workers", "Workers of the queue in each job process; 0: none")
    ingest_workers_max: int = _number(4, 1, 64, "workers", "Most workers of the queue at once, over all job processes")
    ingest_sizing_s: float = _number(
        5, 0.1, 600, "s", "How often it is worked out how many workers of the queue the store is worth"
    )
    ingest_lease_s: float = _number(0.5, 0.1, 600, "s", "How long a worker that died keeps its shards")
    ingest_poll_s: float = _number(
        0.1, 0.001, 60, "s", "How often a worker looks for posts where none are; a fifth as often after a long pause"
    )
    ingest_gather_s: float = _number(
        0.15,
        0,
        60,
        "s",
        "How far apart a worker's rounds begin where each leaves no posts waiting: more gather for the next",
    )
    ingest_backoff_s_max: float = _number(2, 0.001, 600, "s", "Longest pause of a worker whose round failed")
    rejected_post_retention_s: float = _number(
        7 * 86_400, 60, 10 * 366 * 86_400, "s", "How long it is remembered why a queued post was rejected"
    )
    rejected_posts_max: int = _number(1_000_000, 1, 1_000_000_000, "posts", "Rejected posts that are remembered")
    retry_after_s: int = _number(1, 1, 3_600, "s", "Least Retry-After sent with 429 and 503")
    retry_after_s_max: int = _number(60, 1, 3_600, "s", "Longest Retry-After, however long the wait will be")

    # What one API key may ask for in each process
    key_reads_per_s: float = _number(0, 0, 1e6, "reads/s", "Reads of one API key, past it 429; 0 sets no limit")
    key_reads_burst: int = _number(1_000, 1, 1_000_000, "reads", "Reads of one API key at once, after a pause")
    key_posts_per_s: float = _number(0, 0, 1e6, "posts/s", "Posts of one API key, past it 429; 0 sets no limit")
    key_posts_burst: int = _number(10_000, 1, 10_000_000, "posts", "Posts of one API key at once, after a pause")

    # Reading
    reader_connections: int = _number(2, 1, 64, "connections", "Connections for short reads")
    heavy_reader_connections: int = _number(1, 1, 64, "connections", "Connections for counts, walks and refreshes")
    point_reads_per_batch_max: int = _number(512, 1, 10_000, "reads", "Point reads joined into one statement")
    point_read_lanes: int = _number(
        2, 1, 64, "statements", "Point reads under way at once; each begins for as many as are under way already"
    )
    reads_waiting_max: int = _number(20_000, 1, 1_000_000, "reads", "Reads waiting for a connection; past it 503")
    light_read_rows_max: int = _number(
        100_000, 0, 100_000_000, "rows", "Reads that pass more rows than this use the connections for counts and walks"
    )
    exact_gap_rows_max: int = _number(
        50, 0, 10_000_000, "rows", "Ranks by `auto` are counted where the gap of the curve holds no more than this"
    )
    exact_changes_max: int = _number(
        50_000, 0, 10_000_000, "rows", "Changes of a board summed up for an exact rank; past it every row is counted"
    )
    open_boards_max: int = _number(1_000, 1, 1_000_000, "boards", "Boards whose compiled statements are kept")
    statement_cache: int = _number(512, 0, 100_000, "statements", "Prepared statements kept for each connection")

    # Streams
    stream_clients_max: int = _number(5_000, 0, 1_000_000, "streams", "Streams open in one process; past it 503")
    stream_top_default: int = _number(10, 1, 10_000, "rows", "Rows of a streamed top when no number is asked for")
    stream_top_max: int = _number(100, 1, 10_000, "rows", "Rows of a streamed top")
    stream_poll_s: float = _number(0.02, 0.001, 10, "s", "Pause between two looks for what streams have to tell")
    stream_rows_max: int = _number(
        10_000, 1, 1_000_000, "rows", "Posts read in one look, and that a stream resumes over"
    )
    stream_heartbeat_s: float = _number(15, 0.01, 600, "s", "How often a stream says that it is alive")
    stream_retry_s: float = _number(1, 0, 600, "s", "Pause after which a client whose stream ended comes back")
    stream_unread_bytes_max: int = _number(
        262_144, 1_024, 1024**3, "bytes", "Events that a slow client leaves unread; past it the stream ends"
    )

    # SQLite
    create_store: bool = _choice(True, "Create the SQLite file where there is none; false refuses the start")
    store_check: Literal["none", "quick", "full"] = _choice(
        "none", "Check of the SQLite file at the start: quick reads its pages, full compares the indexes too"
    )
    sqlite_cache_mib: int = _number(256, 1, 65_536, "MiB", "Page cache of each connection; 2 MiB halves scans")
    checkpoint_pages: int = _number(40_000, 100, 10_000_000, "pages", "Write-ahead log checkpointed even under load")
    checkpoint_idle_s: float = _number(0.2, 0.001, 3_600, "s", "Pause in writing after which the log is checkpointed")

    # PostgreSQL
    writer_connections: int = _number(4, 1, 64, "connections", "Connections for transactions that write")
    pools: PoolsText = Field(
        default="", description="Connections of their own for sets of boards: `NAME=PATTERN:CONNECTIONS`, by commas"
    )
    sampling_store: ReplicaUrl = Field(
        default="", description="postgresql://… of a read replica that curves are sampled from; empty: from the store"
    )
    sampling_lag_s_max: float = _number(5, 0, 600, "s", "Longest wait for that replica; then the store is sampled")
    connection_wait_s_max: float = _number(5, 0.01, 600, "s", "Longest wait for a connection; past it 503")
    connect_timeout_s: float = _number(3, 0.1, 60, "s", "Longest wait for one host to take a connection")
    statement_timeout_s: float = _number(30, 0.1, 3_600, "s", "Longest statement, and longest idle transaction")
    heavy_statement_timeout_s: float = _number(300, 0.1, 86_400, "s", "Longest statement of counts and walks")
    lock_timeout_s: float = _number(5, 0.01, 600, "s", "Longest wait for a row or table that another one changes")
    commit_timeout_s: float = _number(15, 0.1, 600, "s", "Longest wait for a commit; its outcome is unknown then")
    store_attempts_max: int = _number(8, 1, 1_000, "attempts", "Tries after lost connections and deadlocks; then 503")
    store_backoff_base_s: float = _number(0.02, 0, 10, "s", "First back-off of those tries; doubles, with jitter")
    store_backoff_s_max: float = _number(0.5, 0, 60, "s", "Longest back-off of those tries")

    # Curves shared through memcached
    memcached_servers: Servers = _choice(
        (), "Servers that share curves, HOST:PORT with commas between; none: the table"
    )
    memcached_timeout_s: float = _number(0.03, 0.001, 0.05, "s", "Longest wait for one call of memcached")
    memcached_failures_max: int = _number(3, 1, 1_000, "failures", "Failures in a row that leave a server alone")
    memcached_pause_s: float = _number(5, 0.01, 3_600, "s", "How long a failing server is left alone before a trial")
    memcached_batch_max: int = _number(20, 1, 1_000, "curves", "Curves asked for in one call of memcached")
    memcached_value_bytes_max: int = _number(
        1_000_000, 1_024, 128 * 1024 * 1024, "bytes", "Larger curves stay in the table; memcached's own limit is 1 MiB"
    )
    memcached_expiry_s: int = _number(86_400, 60, 30 * 86_400, "s", "How long memcached keeps a curve at most")

    # Background jobs
    curve_poll_s: float = _number(2, 0.05, 2, "s", "How often new curves and requested refreshes are looked for")
    curve_poll_rows_max: int = _number(100, 1, 100_000, "curves", "Curves read in one step of a look for new ones")
    live_poll_s: float = _number(0.5, 0.05, 1, "s", "How often changes folded into the curves are looked for")
    fold_interval_s: float = _number(0.5, 0.01, 1, "s", "How often changes are folded into the curves")
    fold_load_ratio: float = _number(0.5, 0.01, 1, "ratio", "Part of the time that folding may take")
    fold_rows_max: int = _number(5_000, 1, 1_000_000, "changes", "Changes read in one statement of the folding")
    fold_lag_rows_max: int = _number(
        500_000, 1, 100_000_000, "changes", "Changes folded at once; curves further behind wait for their next refresh"
    )
    fold_curves_max: int = _number(10_000, 1, 10_000_000, "curves", "Curves that the folding process keeps decoded")
    drift_ratio: float = _number(
        0.01, 0.0001, 1, "ratio", "Bound of a live curve's relative error past which it is fitted anew"
    )
    refresh_jitter_ratio: float = _number(0.1, 0, 1, "ratio", "Part of the refresh interval that is random")
    refresh_concurrency: int = _number(1, 1, 64, "refreshes", "Curves refreshed at the same time")
    refresh_load_ratio: float = _number(
        0.5, 0.01, 1, "ratio", "Part of the time that scheduled refreshes may keep a worker busy"
    )
    refresh_patience_intervals: float = _number(
        10, 0.1, 10_000, "intervals", "A due curve that waited for so many goes before those of the most changed boards"
    )
    refresh_wait_s_max: float = _number(30, 0.1, 3_600, "s", "Longest wait of an operator's refresh for its new curve")
    refresh_tick_s: float = _number(0.25, 0.01, 60, "s", "How often due refreshes are looked for")
    refresh_tick_boards_max: int = _number(2_000, 1, 1_000_000, "boards", "Boards looked at in one tick")
    refresh_queue_max: int = _number(1_000, 1, 1_000_000, "refreshes", "Due refreshes that wait for a worker")
    refresh_demands_max: int = _number(1_000, 1, 1_000_000, "refreshes", "Operators' refreshes that wait; past it 503")
    gap_rows_max: int = _number(
        10_000,
        100,
        100_000_000,
        "rows",
        "Most entries between two knots, what an exact count may read; more knots then",
    )
    scan_page_values: int = _number(
        5_000, 10, 1_000_000, "values", "Distinct values that a scan reads in one statement"
    )
    scan_memory_values_max: int = _number(
        4_000_000, 1_000, 1_000_000_000, "values", "Distinct values a scan keeps in memory; further ones in a file"
    )
    scan_bound_ratio: float = _number(
        0.005, 0, 1, "ratio", "Method auto: a curve that may be off by more is scanned, if its board is quiet enough"
    )
    scan_changes_ratio: float = _number(
        0.001, 0, 1, "ratio", "Method auto: quiet is a board that changes by no more of itself while it is scanned"
    )
    scan_rows_per_s: int = _number(
        2_000_000, 1_000, 1_000_000_000, "rows/s", "How fast a scan is taken to be before the first one was timed"
    )
    lease_s: float = _number(10, 0.1, 3_600, "s", "How long a job process that died keeps others from its work")
    lease_renewal_ratio: float = _number(0.3, 0.01, 0.9, "ratio", "Part of its time after which a lease is renewed")
    lease_margin_s: float = _number(
        0.5, 0, 60, "s", "Added before an expired lease is given away: how far the store's clock may jump"
    )
    job_backoff_base_s: float = _number(0.5, 0.001, 60, "s", "First pause of a job that failed; doubles, with jitter")
    job_backoff_s_max: float = _number(30, 0.001, 3_600, "s", "Longest pause of a job that failed")
    job_stop_s_max: float = _number(5, 0.1, 600, "s", "Longest wait for jobs to end at the stop")
    close_interval_s: float = _number(1, 0.05, 3_600, "s", "How often boards to be closed or archived are looked for")
    close_load_ratio: float = _number(0.5, 0.01, 1, "ratio", "Part of the time that closing and archiving may take")
    close_boards_max: int = _number(200, 1, 100_000, "boards", "Boards closed in one transaction")
    archive_top_rows: int = _number(1_000, 1, 100_000, "rows", "Best rows by each column that an archive can show")
    archive_block_rows: int = _number(256, 1, 100_000, "rows", "Rows of a block of an archive: who needs one reads all")
    archive_step_rows: int = _number(5_000, 1, 1_000_000, "rows", "Rows archived in one transaction, about")
    archive_boards_max: int = _number(50, 1, 10_000, "boards", "Small boards archived in one transaction")
    close_retry_s: float = _number(30, 1, 3_600, "s", "After which a board whose closing failed is tried again")
    audit_interval_s: float = _number(
        60, 0, 86_400, "s", "How often the curve of a random column is held against counted rows; 0: never"
    )
    audit_owners_max: int = _number(100, 1, 100_000, "owners", "Random owners counted in one audit")
    audit_rows_max: int = _number(
        50_000_000, 2, 10_000_000_000, "rows", "Rows that one audit reads; ranks past half of it are left out"
    )
    audit_changes_max: int = _number(
        100_000, 0, 100_000_000, "changes", "Changes since the curve's time that an audit takes back from its counts"
    )
    audit_s_max: float = _number(5, 0.01, 3_600, "s", "Time after which an audit counts no further owner")
    change_log_retention_s: float = _number(
        7 * 86_400, 1, 3_660 * 86_400, "s", "How long the journal is kept; twice as long what is yet to be counted"
    )
    erased_cells_s: float = _number(
        3_600,
        60,
        31 * 86_400,
        "s",
        "How long the journal keeps an erased owner's values, without the name, to count by",
    )
    prune_interval_s: float = _number(60, 1, 86_400, "s", "How often old post ids and changes are removed")
    prune_rows_max: int = _number(10_000, 1, 10_000_000, "rows", "Rows removed in one transaction")
    prune_steps_max: int = _number(100, 1, 100_000, "steps", "Transactions in one run of the pruning, of each kind")

    # Leased pools
    lease_partitions: int = _number(10, 1, 1_000, "partitions", "Parts of a pool's region where the spec does not say")
    lease_pools_max: int = _number(10_000, 1, 1_000_000, "pools", "Pools of resources in the store")
    lease_resources_per_request_max: int = _number(
        10_000, 1, 1_000_000, "resources", "Resources put in or taken out in one request"
    )
    lease_s_max: float = _number(31 * 86_400, 1, 10 * 366 * 86_400, "s", "Longest lease of a resource")
    lease_group_max: int = _number(200, 1, 10_000, "requests", "Requests for leases in one transaction")
    lease_groups_in_flight_max: int = _number(
        2, 1, 64, "transactions", "Most transactions for leases in flight; on SQLite one"
    )
    lease_requests_waiting_max: int = _number(
        10_000, 1, 1_000_000, "requests", "Requests for leases that wait; past it 429"
    )
    lease_wait_s_max: float = _number(10, 0.01, 3_600, "s", "Longest wait of a request for a lease; past it 503")
    lease_expired_counted_max: int = _number(
        10_000, 0, 10_000_000, "leases", "Leases of a region that are over, counted as available as far as this"
    )

    liberate_interval_s: float = _number(
        3_600, 1, 31 * 86_400, "s", "How often leases that are over are liberated; a dry region does it at once"
    )
    liberate_rows_max: int = _number(1_000, 1, 1_000_000, "rows", "Leases liberated in one transaction")
    lease_journal_retention_s: float = _number(
        7 * 86_400, 60, 10 * 366 * 86_400, "s", "How long the journal of leases is kept"
    )
    balance_interval_s: float = _number(
        300, 1, 86_400, "s", "How often free resources are moved to the regions that will need them"
    )
    balance_horizon_s: float = _number(600, 1, 86_400, "s", "How far ahead a region's need is projected")
    balance_half_life_s: float = _number(
        600, 1, 31 * 86_400, "s", "Age at which what a region was asked for counts half in its average"
    )
    balance_moves_max: int = _number(100_000, 1, 100_000_000, "resources", "Resources moved in one run, each pool")
    balance_step_rows_max: int = _number(1_000, 1, 1_000_000, "rows", "Resources moved in one transaction")

    lease_store_name: str = _text("here", "What the peers call this store, where keys lease in several stores")
    lease_peers: PeersText = Field(
        default="",
        description="Other stores in which the same keys lease: `NAME=URL` of their services by commas, an API key as "
        "the URL's password; empty: none",
    )
    lease_duplicates: Literal["release", "keep"] = _choice(
        "release", "Of a key that two stores gave a resource: release the second one, or only count it"
    )
    lease_exchange_interval_s: float = _number(1, 0.01, 3_600, "s", "How often the peers' journals of leases are read")
    lease_exchange_rows_max: int = _number(1_000, 1, 100_000, "rows", "Rows of a peer's journal read at once")

    # Boards
    catalog_boards_max: int = _number(100_000, 1, 10_000_000, "boards", "Boards in the catalog")
    own_tables_max: int = _number(1_000, 1, 1_000_000, "boards", "Boards with tables of their own in a SQLite store")
    catalog_families_max: int = _number(1_000, 1, 100_000, "families", "Families in the catalog")
    keys_max: int = _number(1_000, 1, 1_000_000, "keys", "API keys")
    default_samples: int = _number(1_000, 2, 100_000, "samples", "Samples of a curve where the spec does not say")
    default_exact_top: int = _number(500, 0, 1_000_000, "ranks", "Ranks always counted where the spec does not say")
    default_refresh_seconds: float = _number(60, 1, 30 * 86_400, "s", "Refresh interval where the spec does not say")

    dashboard: bool = _choice(True, "Serve the dashboard at /, a page for people over what the service answers anyway")

    # Managed objects: what /jolokia shows and does
    managed_objects: bool = _choice(True, "Keep managed objects with their rates and answer /jolokia")
    managed_operations: Operations = _choice(
        ("Board.refresh", "Predictor.refresh", "Cache.flush", "Job.run", "Job.pause", "Job.resume"),
        "Operations of managed objects that are allowed, Type.operation with commas between them",
    )
    managed_boards_max: int = _number(
        1_000, 0, 1_000_000, "boards", "Boards that are managed objects; where there are more, none is"
    )
    managed_wait_s_max: float = _number(5, 0.01, 600, "s", "Longest wait for each process of the node in an operation")
    rates_tick_s: float = _number(5, 0.1, 60, "s", "How often figures are noted down, to tell rates and percentiles")
    jolokia_requests_max: int = _number(1_000, 1, 100_000, "requests", "Jolokia requests in one body")

    # Logs
    log_level: Literal["debug", "info", "warning", "error"] = _choice("info", "Least severe line written")
    log_format: Literal["json", "console"] = _choice("json", "One JSON object a line, or text for people")
    log_sample_ratio: float = _number(0.01, 0, 1, "ratio", "Share of ordinary requests that are logged")
    tracing_url: str = Field(
        default="",
        description="OTLP over HTTP: where spans are sent, http://…/v1/traces; empty: no tracing (extra tracing)",
    )
    tracing_ratio: float = _number(0.01, 0, 1, "ratio", "Share of traces that begin here which are sent")
    slow_request_s: float = _number(1.0, 0.001, 3_600, "s", "A request as slow as this is always logged")

    # Filled by `config.load`: the source of each setting that is not at its default.
    _sources: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _limits_agree(self) -> Self:
        wrong = [
            f"{lower} should not be greater than {upper}"
            for lower, upper in _ORDERED_PAIRS
            if getattr(self, lower) > getattr(self, upper)
        ]
        if wrong:
            raise ValueError("; ".join(wrong))
        return self


def limits_of(kind: type[L], settings: Settings) -> L:
    """Return a dataclass of bounds, with each field filled from the setting of the same name."""
    return kind(**{field.name: getattr(settings, field.name) for field in fields(kind)})  # type: ignore[arg-type]

"""The declarations of all settings: every limit, wait and size of the service, each declared once.

Every numeric setting has a lower and an upper bound, and a unit unless it is a port. The name of a setting contains
its unit unless the setting is a plain count.

The text under a setting is the setting's description. Operators read it in docs/settings.md, in default.toml and in the
output of `rankcurve config`.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, PrivateAttr

from config.kinds import Hosts, Origins, PeersText, Secrets, Servers, StoreUrl
from config.kinds import number as _number
from config.kinds import text as _text


class _Group(BaseModel):
    # Processes create only `Settings`, never a single group. `defer_build` saves building the validators of the groups.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True, defer_build=True)


class ListeningSettings(_Group):
    """Settings for the addresses, the processes and the shutdown of the service."""

    host: str = _text("127.0.0.1")
    """Address to listen on. Without API keys, the service accepts only a loopback address."""
    port: int = _number(8080, 0, 65535, "")
    """TCP port to listen on; 0 takes a free one."""
    store: StoreUrl = _text("sqlite:///data/rankcurve.db")
    """Address of the store: sqlite:///PATH (relative to the working directory) or postgresql://…."""
    jobs: Literal["embedded", "none"] = "embedded"
    """embedded: run the background jobs beside the service. none: leave them to `rankcurve jobs`."""
    workers: int = _number(1, 0, 64, "processes")
    """Processes that serve requests. Beside them, one process runs the jobs, and on SQLite writes all posts. 0: one
    process does everything, which is the default on a machine with one core."""
    read_only: bool = False
    """Answer reads, refuse everything that writes, and run no jobs. So a store can be served while it is copied."""
    jobs_port: int = _number(0, 0, 65535, "")
    """TCP port on which `rankcurve jobs` serves /healthz, /readyz and /metrics; 0: none."""
    shutdown_s: float = _number(30, 0, 600, "s")
    """On SIGTERM, the longest wait for accepted posts and open requests to end."""
    hang_s_max: float = _number(30, 0, 3_600, "s")
    """With several processes, one that gives no sign of life for this long is killed and replaced. 0: never."""


class RequestSettings(_Group):
    """Settings that limit requests: their size, their duration and what one request may ask for."""

    body_bytes_max: int = _number(8 * 1024 * 1024, 1024, 1024**3, "bytes")
    """Largest body of a request. A larger one is refused with 413."""
    working_bytes_max: int = _number(8 * 1024 * 1024, 1024, 1024**3, "bytes")
    """Bytes of bodies over 64 KiB that a process works on at a time; others wait. A byte takes up to 20 in memory."""
    body_idle_s_max: float = _number(10, 0.1, 600, "s")
    """Longest pause within a body that is arriving. After it, the request is refused with 408."""
    arriving_bytes_max: int = _number(256 * 1024 * 1024, 1024, 1024**4, "bytes")
    """Maximum size of all bodies in one process, each counted from its arrival to its answer. Further bodies are
    refused with 503. It should not be less than `body_bytes_max`."""
    head_wait_s_max: float = _number(20, 0.1, 600, "s")
    """Longest wait for the headers of a connection's first request. Then the connection is closed."""
    keepalive_s_max: float = _number(3_630, 1, 86_400, "s")
    """Longest wait from an answer to the end of the next request's headers. Then the connection is closed."""
    posts_per_request_max: int = _number(10_000, 1, 1_000_000, "posts")
    """Maximum number of posts in one request; more are refused with 400."""
    text_bytes_max: int = _number(4_096, 1, 1_048_576, "bytes")
    """Maximum size of a text value of a post, in UTF-8. A post with a longer one is rejected."""
    boards_per_post_max: int = _number(100, 1, 10_000, "boards")
    """Maximum number of boards that one post may name; more are refused with 400."""
    family_boards_max: int = _number(25, 1, 10_000, "boards")
    """Maximum number of boards that one post to a family may reach: its periods times its lists of facets. A larger
    family is refused with 422."""
    page_entries_max: int = _number(1_000, 1, 100_000, "entries")
    """Maximum number of entries on one page; more are refused with 400."""
    around_rows_max: int = _number(500, 1, 100_000, "rows")
    """Maximum number of rows on each side in a view around an owner or a value; more are refused with 400."""
    lookup_owners_max: int = _number(1_000, 1, 100_000, "owners")
    """Maximum number of owners in one lookup; more are refused with 400."""
    query_values_max: int = _number(1_000, 1, 100_000, "values")
    """Maximum number of values, ranks, percentiles or boards in one query; more are refused with 400."""
    profile_bytes_max: int = _number(4_096, 2, 1024**2, "bytes")
    """Largest profile of an owner, as JSON. A larger one is refused with 413."""

    # The following values are constants, because no operator needs to change them.
    # Longest time that a whole body may take to arrive. After this time, the request is refused with 408.
    body_wait_s_max: ClassVar[float] = 300
    # Maximum number of posts in one request; more are refused with 400. A post counts once for each of its boards.
    parts_per_request_max: ClassVar[int] = 10_000
    # One request for an owner's posts searches at most this many blocks of the journal, of about 8,000 posts each. The
    # request for the next page continues with the next block.
    owner_posts_blocks_max: ClassVar[int] = 10_000
    # Maximum number of closed periods in one answer of an owner's history; more are refused with 400.
    history_periods_max: ClassVar[int] = 100
    buckets_max: ClassVar[int] = 1_000  # maximum number of buckets in one distribution; more are refused with 400
    # A post is rejected with 422 if its time `at` is further ahead of the service's clock than this.
    at_ahead_s_max: ClassVar[float] = 300

    @property
    def page_entries_default(self) -> int:
        """The number of entries on a page if the request gives no limit."""
        return min(100, self.page_entries_max)


class PostingSettings(_Group):
    """Settings of the writer, which applies posts to boards."""

    queue_posts_max: int = _number(50_000, 1, 10_000_000, "posts")
    """Maximum number of posts waiting for a transaction, counted once for every board; more are refused with 429."""
    post_wait_s_max: float = _number(10, 0.01, 3_600, "s")
    """Longest wait of a post, or of each 64,000 values of a batch; then 503. A new post gets 503 at once if the posts
    before it would take more than half of this time."""
    post_id_retention_s: float = _number(30 * 86_400, 60, 10 * 366 * 86_400, "s")
    """Time for which a post id is remembered. Within it, a repeated post is not applied again."""
    writes_in_flight: int = _number(0, 0, 64, "transactions")
    """Transactions of posts that one process runs at the same time on PostgreSQL, at most `writer_connections`. 0: one
    on a machine with up to two cores, otherwise two."""

    # The following values are constants, because no operator needs to change them.
    group_posts_max: ClassVar[int] = 2_000  # maximum number of posts in one transaction, counted once for every board
    # A group of posts is tried again if another transaction changed its rows first. After this many attempts: 503.
    write_attempts_max: ClassVar[int] = 8
    # First pause before a group of posts is tried again. The pause doubles with each attempt, and a part is random.
    write_backoff_base_s: ClassVar[float] = 0.005
    write_backoff_s_max: ClassVar[float] = 0.5  # longest pause before a group of posts is tried again


class QueueSettings(_Group):
    """Settings of the ingest queue, which stores posts with mode=queued until a worker applies them."""

    ingest_shards: int = _number(10, 1, 256, "shards")
    """Shards of the queue, which several workers can empty at the same time. A store that has shards already keeps
    their number."""
    ingest_posts_max: int = _number(500_000, 1, 1_000_000_000, "posts")
    """Maximum number of posts in the queue; more are refused with 429."""
    ingest_age_s_max: float = _number(60, 0.1, 86_400, "s")
    """If the oldest post in the queue has waited longer than this, new posts are refused with 503."""
    ingest_workers: int = _number(1, 0, 64, "workers")
    """Workers of the queue in each job process; 0: none."""
    ingest_workers_max: int = _number(4, 1, 64, "workers")
    """Maximum number of workers of the queue at the same time, in all job processes together."""
    ingest_lease_s: float = _number(0.5, 0.1, 600, "s")
    """Time after which other workers take over the shards of a killed worker."""
    rejected_post_retention_s: float = _number(7 * 86_400, 60, 10 * 366 * 86_400, "s")
    """Time for which the service remembers why a queued post was rejected."""
    retry_after_s: int = _number(1, 1, 60, "s")
    """Shortest Retry-After sent with 429 and 503."""

    # The following values are constants, because no operator needs to change them.
    # Time between two reads of the number of posts in the queue and of their age, in one process.
    ingest_look_s: ClassVar[float] = 1
    ingest_group_posts_max: ClassVar[int] = 10_000  # maximum number of posts that one transaction appends to the queue
    # Maximum number of posts in one row of the queue. A row has posts of only one shard (see `ingest_shards`).
    ingest_block_posts_max: ClassVar[int] = 200
    ingest_round_posts_max: ClassVar[int] = 1_000  # maximum number of queued posts that one transaction applies
    # Maximum number of parts of queued posts that one transaction applies. A post has one part for each of its boards.
    ingest_round_parts_max: ClassVar[int] = 2_500
    # A queued post that fails even in a transaction of its own is rejected after this many attempts.
    ingest_alone_attempts_max: ClassVar[int] = 10
    # Time between two estimates of how many workers of the queue should work at the same time.
    ingest_sizing_s: ClassVar[float] = 5
    # Time after which an idle worker looks for posts again. After 10 s without posts, this time is five times as long.
    ingest_poll_s: ClassVar[float] = 0.1
    # A worker applies posts in rounds. If a round empties the queue, the worker waits until this time has passed since
    # the round began. Until then posts gather, so the next round applies more posts at once.
    ingest_gather_s: ClassVar[float] = 0.15
    ingest_backoff_s_max: ClassVar[float] = 2  # longest pause of a worker whose round failed
    # Maximum number of rejected posts that are remembered; the oldest are forgotten first.
    rejected_posts_max: ClassVar[int] = 1_000_000
    retry_after_s_max: ClassVar[int] = 60  # longest Retry-After, even if the wait will be longer


class KeySettings(_Group):
    """Settings that limit how much one API key may read and post, in each process."""

    key_reads_per_s: float = _number(0, 0, 1e6, "reads/s")
    """Reads per second of one API key in each process; more are refused with 429. 0: no limit."""
    key_reads_burst: int = _number(1_000, 1, 1_000_000, "reads")
    """Reads that an API key may make at once after a pause."""
    key_posts_per_s: float = _number(0, 0, 1e6, "posts/s")
    """Posts per second of one API key in each process; more are refused with 429. 0: no limit."""
    key_posts_burst: int = _number(10_000, 1, 10_000_000, "posts")
    """Posts that an API key may send at once after a pause."""


class PlayerSettings(_Group):
    """Settings of player tokens, with which the programs of players post."""

    player_token_keys: Secrets = ()
    """Secrets that sign and verify player tokens (HS256), of at least 32 characters, with commas between them. The
    first one signs. None: the service issues no tokens."""
    player_token_jwks: str = ""
    """File of public keys (a JSON Web Key Set with EdDSA, ES256 or RS256), with which a game's own login service signs
    player tokens. It is read at the start. Empty: there is none."""
    player_token_s_max: float = _number(86_400, 60, 30 * 86_400, "s")
    """Longest time from the issue of a player token to its expiry, at most `post_id_retention_s`."""
    player_requests_per_s: float = _number(20, 0, 1e6, "requests/s")
    """Requests per second of one player in each process; more are refused with 429. 0: no limit."""
    player_requests_burst: int = _number(200, 1, 1_000_000, "requests")
    """Requests that a player may make at once after a pause."""

    # The following values are constants, because no operator needs to change them.
    player_token_posts_max: ClassVar[int] = 1_000  # maximum number of posts that a token allows on a board


class OpenReadingSettings(_Group):
    """Settings for reading without an API key, and for reading from web pages of other sites."""

    anonymous_role: Literal["none", "reader"] = "none"
    """Role of a caller without an API key, once a key exists. A reader without a key sees no owner's posts."""
    anonymous_reads_per_s: float = _number(20, 0, 1e6, "reads/s")
    """Reads per second of one address without an API key, in each process; more are refused with 429. 0: no limit."""
    anonymous_reads_burst: int = _number(200, 1, 1_000_000, "reads")
    """Reads that an address without an API key may make at once after a pause."""
    anonymous_total_reads_per_s: float = _number(1_000, 0, 1e6, "reads/s")
    """Reads per second of all callers without an API key, in each process; more are refused with 429. 0: no limit."""
    anonymous_total_reads_burst: int = _number(2_000, 1, 1_000_000, "reads")
    """Reads that all callers without an API key may make at once after a pause."""
    anonymous_requests_max: int = _number(50, 1, 1_000_000, "requests")
    """Requests, such as streams, that one address without an API key may have open; more are refused with 429."""
    trusted_proxies: int = _number(0, 0, 10, "proxies")
    """Number of reverse proxies in front of the service. Each adds its caller's address to X-Forwarded-For. The address
    that the first proxy has added is the caller's. 0: the header is ignored."""
    cors_origins: Origins = ()
    """Origins whose web pages may read, such as https://game.example, with commas between; *: any; none: no page."""
    webhook_hosts: Hosts = ()
    """Hosts to which events may be sent although they are not public, also by http: names in lower case or addresses,
    with commas between; none: only https to public addresses."""


class RedisClientSettings(_Group):
    """Settings of the port for Redis clients, whose sorted sets are boards."""

    resp_port: int = _number(0, 0, 65535, "")
    """TCP port for Redis clients; 0: none. It needs the extra `resp`. TLS is left to a proxy."""
    resp_board: str = (
        '{"columns": [{"name": "score", "merge": "last", "scale": 9}, {"name": "member_data", "type": "text",'
        ' "merge": "last"}], "table": "shared"}'
    )
    """The specification of a leaderboard that a post to an unknown key creates, as JSON. Empty: none is created."""
    resp_rank: Literal["auto", "exact"] = "auto"
    """auto: ranks are exact unless the process is busy, as over HTTP. exact: they are always counted."""
    resp_round: Literal["refuse", "nearest", "down", "up"] = "refuse"
    """The rounding of scores with more digits after the point than their column holds. `refuse`: they are an error."""


class ReadingSettings(_Group):
    """Settings for reading entries and ranks."""

    reader_connections: int = _number(2, 1, 64, "connections")
    """Connections for short reads, in each process."""
    heavy_reader_connections: int = _number(1, 1, 64, "connections")
    """Connections for counts, walks and refreshes, in each process."""
    reads_waiting_max: int = _number(20_000, 1, 1_000_000, "reads")
    """Maximum number of reads waiting for a connection; more are refused with 503."""
    exact_gap_rows_max: int = _number(10_000, 0, 10_000_000, "rows")
    """With `auto`, a rank is never counted if the gap of the curve around it holds more entries than this."""
    statement_cache: int = _number(512, 0, 100_000, "statements")
    """Prepared statements kept for each connection."""

    # The following values are constants, because no operator needs to change them.
    point_reads_per_batch_max: ClassVar[int] = 512  # maximum number of point reads that one statement answers together
    # Maximum number of simultaneous statements for point reads. A second statement starts only when the number of
    # waiting reads has reached the number of reads in the running statement.
    point_read_tasks_max: ClassVar[int] = 2
    # While a process answers on average this many point reads at once, rank=auto only estimates ranks in long gaps.
    crowd_min: ClassVar[int] = 22
    # A read that may go over more rows than this uses one of the `heavy_reader_connections`.
    light_read_rows_max: ClassVar[int] = 100_000
    # Counting an exact rank starts at a knot of a curve and adds the changes that were logged since the curve's mark.
    # If there are more changes than this, all better rows are counted instead.
    exact_changes_max: ClassVar[int] = 50_000
    # Maximum number of boards for which a process keeps compiled statements; the least recently used are dropped.
    open_boards_max: ClassVar[int] = 1_000


class StreamSettings(_Group):
    """Settings of streams, which send events to clients."""

    stream_clients_max: int = _number(5_000, 0, 1_000_000, "streams")
    """Maximum number of streams open in one process; more are refused with 503."""
    stream_heartbeat_s: float = _number(15, 0.01, 600, "s")
    """Time between two heartbeats of a stream."""
    stream_unread_bytes_max: int = _number(262_144, 1_024, 1024**3, "bytes")
    """Maximum size of the events that a slow client may leave unread. Beyond it, the stream ends."""

    # The following values are constants, because no operator needs to change them.
    stream_top_default: ClassVar[int] = 10  # number of best rows that a stream follows if the request gives none
    stream_top_max: ClassVar[int] = 100  # maximum number of best rows that a stream follows; more are refused with 400
    stream_poll_s: ClassVar[float] = 0.02  # pause between two reads of the journal on behalf of all streams
    # Maximum number of journal rows read at once for all streams. A resumed stream that missed this many starts over.
    stream_rows_max: ClassVar[int] = 10_000
    stream_retry_s: ClassVar[float] = 1  # time that a client waits before it reopens a stream that ended


class SqliteSettings(_Group):
    """Settings of a SQLite store."""

    create_store: bool = True
    """Create the SQLite file if there is none. With false, the start fails instead."""
    sqlite_cache_mib: int = _number(16, 1, 65_536, "MiB")
    """Page cache of the SQLite connection that writes. The system's own cache holds the file too, so a cache of 256 MiB
    makes batches of posts only 15 % faster."""

    # The following values are constants, because no operator needs to change them.
    # If SQLite's write-ahead log reaches this many pages of 2 KiB (400 MB), a post makes a checkpoint and waits for it.
    # This happens only if the checkpoints that run beside the posts are too slow.
    checkpoint_pages: ClassVar[int] = 200_000
    # Time from the first write after a checkpoint to the next checkpoint. Rare checkpoints cost less, because each one
    # waits for the disk, and copies a changed page only once even if the page has changed many times.
    checkpoint_after_s: ClassVar[float] = 3.0


class PostgresSettings(_Group):
    """Settings of a PostgreSQL store."""

    writer_connections: int = _number(4, 1, 64, "connections")
    """Connections for transactions that write, in each process."""
    connection_wait_s_max: float = _number(5, 0.01, 600, "s")
    """Longest wait for a free connection; then 503."""
    connect_timeout_s: float = _number(3, 0.1, 60, "s")
    """Longest wait for one host to accept a connection."""
    statement_timeout_s: float = _number(30, 0.1, 3_600, "s")
    """Longest run of a statement, and longest idle time within a transaction."""
    heavy_statement_timeout_s: float = _number(300, 0.1, 86_400, "s")
    """Longest run of a statement of a count, a walk or a refresh."""
    lock_timeout_s: float = _number(5, 0.01, 600, "s")
    """Longest wait for a row or table that another transaction has locked."""
    commit_timeout_s: float = _number(15, 0.1, 600, "s")
    """Longest wait for a commit. After it, the outcome is unknown and the connection is closed."""
    store_attempts_max: int = _number(8, 1, 1_000, "attempts")
    """Maximum number of attempts of a transaction that lost its connection or was in a deadlock; then 503."""

    # The following values are constants, because no operator needs to change them.
    # First pause before a transaction is tried again. The pause doubles each time, and a part of it is random.
    store_backoff_base_s: ClassVar[float] = 0.02
    store_backoff_s_max: ClassVar[float] = 0.5  # longest pause before a transaction is tried again


class MemcachedSettings(_Group):
    """Settings for memcached, through which processes share curves."""

    memcached_servers: Servers = ()
    """Servers through which processes share curves, HOST:PORT with commas between; none: curves come from the table."""
    memcached_timeout_s: float = _number(0.03, 0.001, 0.05, "s")
    """Longest wait for one call of memcached."""
    memcached_value_bytes_max: int = _number(1_000_000, 1_024, 128 * 1024 * 1024, "bytes")
    """Maximum size of a curve that is shared. Larger curves are read from the table. memcached's own limit is 1 MiB by
    default."""

    # The following values are constants, because no operator needs to change them.
    # After this many failures in a row, a server gets no calls for `memcached_pause_s`.
    memcached_failures_max: ClassVar[int] = 3
    memcached_pause_s: ClassVar[float] = 5  # a failing server gets no calls for this time; then one call tries it again
    memcached_batch_max: ClassVar[int] = 20  # maximum number of curves requested in one call of memcached
    memcached_expiry_s: ClassVar[int] = 86_400  # longest time that memcached keeps a curve


class JobSettings(_Group):
    """Settings of the background jobs."""

    curve_poll_s: float = _number(0.5, 0.05, 2, "s")
    """Interval at which a job process looks for refresh requests, and for boards that other processes created."""
    fold_interval_s: float = _number(0.5, 0.01, 1, "s")
    """Time between two runs of the folding job, which counts new changes into the live counts of curves."""
    fold_lag_rows_max: int = _number(500_000, 1, 100_000_000, "changes")
    """Maximum number of changes folded at once. Curves that are further behind wait for their next refresh."""
    drift_ratio: float = _number(0.01, 0.0001, 1, "ratio")
    """A live curve is refitted once the bound of its relative error exceeds this."""
    refresh_concurrency: int = _number(1, 1, 64, "refreshes")
    """Curves that one job process refreshes at the same time."""
    refresh_load_ratio: float = _number(0.5, 0.01, 1, "ratio")
    """Largest part of a worker's time that scheduled refreshes may take. Refresh requests are not delayed by it."""
    refresh_wait_s_max: float = _number(30, 0.1, 3_600, "s")
    """Longest wait of a refresh request for its new curve; then 503. The refresh itself continues."""
    gap_rows_max: int = _number(500, 100, 100_000_000, "rows")
    """Maximum number of entries between two knots of a curve, and so of the rows that an exact count reads. Larger
    boards get up to 10,000 knots more, then larger gaps."""
    scan_entries_max: int = _number(20_000_000, 1_000, 1_000_000_000, "entries")
    """Maximum number of entries in a column that is scanned without `method: scan`. A scan keeps 16 to 24 bytes in
    memory for each distinct value."""
    lease_s: float = _number(10, 0.1, 3_600, "s")
    """Time after which other processes take over the work of a killed job process."""
    lease_margin_s: float = _number(0.5, 0, 60, "s")
    """Time added before an expired lease is given to another holder. It allows for jumps of the store's clock."""
    job_stop_s_max: float = _number(5, 0.1, 600, "s")
    """Longest wait of a process that stops for its jobs to end."""
    archive_top_rows: int = _number(1_000, 1, 100_000, "rows")
    """Best rows by each ranked column that an archive keeps in order. Requests beyond them get 410."""
    audit_interval_s: float = _number(60, 0, 86_400, "s")
    """Time between two audits. An audit compares the curve of a random column with counted rows; 0: never."""
    audit_owners_max: int = _number(100, 1, 100_000, "owners")
    """Maximum number of random owners counted in one audit."""
    change_log_retention_s: float = _number(7 * 86_400, 1, 3_660 * 86_400, "s")
    """Time for which the journal is kept."""
    acts_retention_s: float = _number(366 * 86_400, 60, 100 * 366 * 86_400, "s")
    """Time for which acts of operators are kept. The act that has hidden an owner is kept until the owner is shown."""
    held_post_retention_s: float = _number(30 * 86_400, 3_600, 3_660 * 86_400, "s")
    """Time for which a held post waits for a verdict. Then it is forgotten, as if it was refused."""
    grant_retention_s: float = _number(366 * 86_400, 86_400, 100 * 366 * 86_400, "s")
    """Time for which the grants of a leaderboard are kept after it closed, whether they are claimed or not."""

    # The following values are constants, because no operator needs to change them.
    curve_poll_rows_max: ClassVar[int] = 100  # maximum number of new curves that one read of the store returns
    live_poll_s: ClassVar[float] = 0.5  # time after which a process looks for new curves and live counts again
    fold_rows_max: ClassVar[int] = 5_000  # maximum number of changes that one statement of the folding job reads
    fold_load_ratio: ClassVar[float] = 0.5  # largest fraction of the time in which the folding job may work
    fold_curves_max: ClassVar[int] = 10_000  # maximum number of decoded curves in memory, for each partition
    # Each refresh interval is shortened by a random time, which is at most this part of the interval.
    refresh_jitter_ratio: ClassVar[float] = 0.1
    # A due curve that has waited this many refresh intervals is refreshed before curves that changed more.
    refresh_patience_intervals: ClassVar[float] = 10
    refresh_tick_s: ClassVar[float] = 0.25  # time between two searches for boards whose refresh is due
    # Maximum number of boards that one search for due refreshes checks. The next search continues with the next board.
    refresh_tick_boards_max: ClassVar[int] = 2_000
    # Maximum number of due refreshes that wait. If more are due, the least urgent are dropped and found again later.
    refresh_queue_max: ClassVar[int] = 1_000
    # Maximum number of refresh requests that wait; more are refused with 503.
    refresh_demands_max: ClassVar[int] = 1_000
    scan_page_values: ClassVar[int] = 5_000  # maximum number of distinct values that one statement of a scan reads
    # With `method: auto`, a refresh scans a column if its board is quiet and its curve's error may exceed this ratio.
    scan_bound_ratio: ClassVar[float] = 0.005
    # With `method: auto`, a board is quiet if at most this fraction of its entries changes during a scan.
    scan_changes_ratio: ClassVar[float] = 0.001
    scan_rows_per_s: ClassVar[int] = 2_000_000  # entries that a scan reads in a second; method auto assumes this speed
    lease_renewal_ratio: ClassVar[float] = 0.3  # a lease is renewed after this part of its length
    # First pause of a job that failed. The pause doubles with each failure in a row, and a part of it is random.
    job_backoff_base_s: ClassVar[float] = 0.5
    job_backoff_s_max: ClassVar[float] = 30  # longest pause of a job that failed
    close_interval_s: ClassVar[float] = 1  # time between two searches for boards to close or to archive
    close_load_ratio: ClassVar[float] = 0.5  # largest fraction of the time in which the closing job may work
    close_boards_max: ClassVar[int] = 200  # maximum number of boards closed in one transaction
    archive_block_rows: ClassVar[int] = 256  # rows in one block of an archive; reading one row decodes its whole block
    grant_rows: ClassVar[int] = 2_000  # approximate maximum number of rows that are read for grants at once
    grant_step_rows: ClassVar[int] = 250  # the same for a transaction that stores grants on SQLite: posts wait for it
    archive_step_rows: ClassVar[int] = 5_000  # approximate maximum number of rows archived in one transaction
    close_retry_s: ClassVar[float] = 30  # pause before a board whose closing failed is tried again
    # Maximum number of rows that one audit reads. It reads each row twice, so it skips ranks above half of this number.
    audit_rows_max: ClassVar[int] = 50_000_000
    # An audit corrects its counts by the changes since the curve's time. It skips columns with more changes than this.
    audit_changes_max: ClassVar[int] = 100_000
    audit_s_max: ClassVar[float] = 5  # time after which an audit counts no further owner
    # Erased owners' values stay in the journal at least this long, without names: a curve being fitted may need them.
    erased_cells_s: ClassVar[float] = 3_600
    # Time between two runs of the pruning job, which deletes old post ids, changes and leftover rows.
    prune_interval_s: ClassVar[float] = 60
    prune_rows_max: ClassVar[int] = 10_000  # maximum number of rows that one transaction of the pruning job deletes
    # Maximum number of transactions in one run of the pruning job, for each kind of row.
    prune_steps_max: ClassVar[int] = 100


class LeaseSettings(_Group):
    """Settings for pools of resources, and for the leases by which callers use the resources."""

    lease_pools_max: int = _number(10_000, 1, 1_000_000, "pools")
    """Maximum number of pools in the store; more are refused with 409."""
    lease_s_max: float = _number(31 * 86_400, 1, 10 * 366 * 86_400, "s")
    """Longest lease of a resource. A longer one is refused with 422."""
    lease_requests_waiting_max: int = _number(10_000, 1, 1_000_000, "requests")
    """Maximum number of requests for leases that wait; more are refused with 429."""
    lease_wait_s_max: float = _number(10, 0.01, 3_600, "s")
    """Longest wait of a request for a lease; then 503."""

    liberate_interval_s: float = _number(3_600, 1, 31 * 86_400, "s")
    """Time between two liberations of expired leases. A region without a free resource liberates at once."""
    lease_journal_retention_s: float = _number(7 * 86_400, 60, 10 * 366 * 86_400, "s")
    """Time for which the journal of leases is kept."""
    balance_interval_s: float = _number(300, 1, 86_400, "s")
    """Time between two runs of the balancer, which moves free resources to the regions that will need them."""

    lease_store_name: str = _text("here")
    """Name by which the peers know this store, if keys lease in several stores."""
    lease_peers: PeersText = ""
    """Other stores in which the same keys lease: `NAME=URL` of their services, several with commas between, each API
    key as the URL's password; empty: none."""
    lease_exchange_interval_s: float = _number(1, 0.01, 3_600, "s")
    """Time between two reads of the peers' journals of leases."""

    # The following values are constants, because no operator needs to change them.
    # Maximum number of resources added or removed in one request; more are refused with 400.
    lease_resources_per_request_max: ClassVar[int] = 10_000
    lease_group_max: ClassVar[int] = 200  # maximum number of requests for leases in one transaction
    # Maximum number of simultaneous transactions for leases. SQLite runs one.
    lease_groups_in_flight_max: ClassVar[int] = 2
    # The figures of a pool count expired leases as available resources, but at most this many in each region.
    lease_expired_counted_max: ClassVar[int] = 10_000
    liberate_rows_max: ClassVar[int] = 1_000  # maximum number of expired leases that one transaction takes back
    balance_horizon_s: ClassVar[float] = 600  # the balancer estimates how many leases a region will need in this time
    balance_half_life_s: ClassVar[float] = 600  # at this age, a request counts half in its region's average demand
    balance_moves_max: ClassVar[int] = 100_000  # one run of the balancer moves at most this many in a pool
    balance_step_rows_max: ClassVar[int] = 1_000  # maximum number of resources moved in one transaction
    lease_exchange_rows_max: ClassVar[int] = 1_000  # maximum number of rows of a peer's journal read at once


class BoardSettings(_Group):
    """Settings for boards, families and API keys: how many there may be, and defaults for the spec of a board."""

    catalog_boards_max: int = _number(100_000, 1, 10_000_000, "boards")
    """Maximum number of boards in the catalog; more are refused with 409."""
    own_tables_max: int = _number(1_000, 1, 1_000_000, "boards")
    """Maximum number of boards with tables of their own in a SQLite store; more are refused with 409."""
    catalog_families_max: int = _number(1_000, 1, 100_000, "families")
    """Maximum number of families in the catalog; more are refused with 409."""
    keys_max: int = _number(1_000, 1, 1_000_000, "keys")
    """Maximum number of API keys in the store; more are refused with 409."""
    default_samples: int = _number(1_000, 2, 100_000, "samples")
    """Samples of a curve if the spec gives no number."""
    default_exact_top: int = _number(500, 0, 1_000_000, "ranks")
    """Best ranks that are always counted if the spec gives no number."""
    default_refresh_seconds: float = _number(60, 1, 30 * 86_400, "s")
    """Refresh interval if the spec gives none."""

    dashboard: bool = True
    """Serve the pages for people: the dashboard at /, and the API at /docs."""


class ManagedSettings(_Group):
    """Settings of managed objects, which operators see and use through /jolokia."""

    rates_tick_s: float = _number(5, 0.1, 60, "s")
    """Time between two records of figures for percentiles and the verdict on the node."""

    # The following values are constants, because no operator needs to change them.
    # An operation of a managed object may run in another process of the node. Longest wait for that process's answer.
    managed_wait_s_max: ClassVar[float] = 5
    jolokia_requests_max: ClassVar[int] = 1_000  # maximum number of Jolokia requests in one body; more are refused


class LogSettings(_Group):
    """Settings for logs and traces."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe level that is logged."""
    log_form: Literal["auto", "console", "json"] = "auto"
    """console: words and colours for people. json: a JSON object on each line. auto: console on a terminal, otherwise
    json."""
    log_sample_ratio: float = _number(0.01, 0, 1, "ratio")
    """Part of the ordinary requests that are logged."""
    tracing_url: str = ""
    """Address for spans: OTLP over HTTP, http://…/v1/traces; empty: no tracing. Needs the extra `tracing`."""
    tracing_ratio: float = _number(0.01, 0, 1, "ratio")
    """Part of the traces starting at this service that are sent."""
    slow_request_s: float = _number(1.0, 0.001, 3_600, "s")
    """A request that takes at least this long is always logged."""


class Settings(
    LogSettings,
    ManagedSettings,
    BoardSettings,
    LeaseSettings,
    JobSettings,
    MemcachedSettings,
    PostgresSettings,
    SqliteSettings,
    StreamSettings,
    ReadingSettings,
    RedisClientSettings,
    OpenReadingSettings,
    PlayerSettings,
    KeySettings,
    QueueSettings,
    PostingSettings,
    RequestSettings,
    ListeningSettings,
):
    """The effective configuration, with the settings of all groups. It is immutable.

    `Settings()` holds the defaults: one process with embedded jobs, one SQLite file, and a loopback address.

    A part of the service receives this object, but its parameter has the type of one group, for example `JobSettings`.
    The base classes are listed in reverse order, because pydantic then keeps the fields in the order of this module.

    Raises pydantic's ValidationError on a bad value; `config.load` collects all bad values in one ConfigError.
    """

    # Maps the name of each setting that was given to the source of its value. `config.load` sets it.
    _sources: Mapping[str, str] = PrivateAttr(default_factory=dict)

"""Declares the tables for the catalog, the change log, entries and curves, and a constant for each table's name.

Other packages refer to tables by these constants. `lease_tables` and `ingest_tables` declare the remaining tables.
"""

from querybuilder import BLOB, INTEGER, TEXT, Query, col, create_index, create_table

SCHEMA_VERSION = 13  # raise it with every change of what is stored

META = "meta"
BOARDS = "boards"
FAMILIES = "families"
SHARED_TABLES = "shared_tables"
DROPPED_ROWS = "dropped_rows"
GATES = "gates"
FAMILY_GATES = "family_gates"
SEQUENCES = "sequences"
API_KEYS = "api_keys"
PROFILES = "profiles"
OWNER_CHANGES = "owner_changes"
EVENTS = "events"
WEBHOOKS = "webhooks"
TOKEN_VOIDS = "token_voids"
BOARD_TOPS = "board_tops"
GRANT_REWARDS = "grant_rewards"
GRANT_WALKS = "grant_walks"
GRANTS = "grants"
ACTS = "acts"
MERGED_OWNERS = "merged_owners"
MERGED_ENTRIES = "merged_entries"
TOTALS = "totals"
POST_IDS = "post_ids"
HIDDEN_ENTRIES = "hidden_entries"
HIDDEN_OWNERS = "hidden_owners"
ENTRANTS = "entrants"
SEATS = "seats"
STANDINGS = "standings"
OPEN_COHORTS = "open_cohorts"
HELD_POSTS = "held_posts"
GAINS = "gains"
CHANGE_LOG = "changes"
JOURNAL_BLOCKS = "journal_blocks"
LOG_COUNTER = "log_counter"
FOLLOWERS = "followers"
CURVES = "curves"
LIVE_COUNTS = "live_counts"
LIVE_MARK = "live_mark"
REFRESH_REQUESTS = "refresh_requests"
WORK_LEASES = "leases"
ARCHIVE_BLOCKS = "archive_blocks"
OF_OWNERS = (HIDDEN_ENTRIES, HELD_POSTS, GAINS)  # what owners have on a leaf beside their rows
ROW_TABLES_PREFIX = "entries_"  # the names of tables with rows of boards begin with this


# This table holds the version of the schema, the salt of the store, and the number of the store's partitions.
META_TABLE = create_table(META).column("name", TEXT).column("content", TEXT).primary_key("name").if_not_exists()


# The catalog: boards, families, shared tables, API keys, profiles, grants, acts of operators and refresh requests.
CATALOG_TABLES: tuple[Query, ...] = (
    create_table(BOARDS)
    .with_columns(board_key=INTEGER, id=TEXT, spec=TEXT, created_at=INTEGER, epoch=INTEGER)
    .column("family_key", INTEGER, null=True)
    .column("shelf", TEXT, null=True)  # the period and the names of the facets, as `family_ids.shelf` returns them
    .column("table_key", INTEGER, null=True)  # the shared table; null: the board has a table of its own
    .column("rows_key", INTEGER)
    .column("opens_at", INTEGER, null=True)
    .column("ends_at", INTEGER, null=True)  # the end of the season, or of the period of a family's board
    .column("closes_at", INTEGER, null=True)
    .column("closed_at", INTEGER, null=True)
    .column("archived_at", INTEGER, null=True)
    .column("due_at", INTEGER, null=True)
    .column("reset_at", INTEGER, null=True)  # when the board was last emptied; posts with an earlier `at` are refused
    .column("rebuilt_at", INTEGER, null=True)  # when its rows were last rebuilt from posts to earlier boards, too
    .with_columns(stage=INTEGER, partition=INTEGER)
    .column("segment_of", INTEGER, null=True)  # the key of the board to which this segment belongs; null: no segment
    .column("segment", INTEGER)  # its 0-based number among the segments; 0 for a board
    .column("kind", TEXT)  # what the row describes, see `catalog_rows.RowKind`
    .primary_key("board_key"),
    create_index("boards_id", BOARDS, col("id"), unique=True),
    create_index(
        "boards_shelf", BOARDS, col("family_key"), col("shelf"), col("id"), where=col("family_key").not_null()
    ),
    create_index("boards_segment_of", BOARDS, col("segment_of"), where=col("segment_of").not_null()),
    # With this index, the job that closes boards finds the boards to check. It nearly always finds none.
    create_index("boards_due_at", BOARDS, col("stage"), col("due_at"), where=col("due_at").not_null()),
    # The boards that have rows. With this index, counting these boards never reads the archived boards.
    create_index("boards_with_rows", BOARDS, col("board_key"), where=col("archived_at").is_null()),
    create_table(FAMILIES)
    .column("family_key", INTEGER)  # from the sequence of board keys
    .with_columns(id=TEXT, spec=TEXT, created_at=INTEGER)
    .column("closed_through", INTEGER)  # the boards that close at this time or earlier are closed
    .column("partition", INTEGER)  # the partition of all boards of the family
    # JSON: for each kind of period that was emptied, the period and the time. A board that is created later gets it.
    .column("resets", TEXT, null=True)
    .primary_key("family_key"),
    create_index("families_id", FAMILIES, col("id"), unique=True),
    # The shared tables of boards that belong to no family: one table for each partition and list of columns.
    create_table(SHARED_TABLES)
    .column("table_key", INTEGER)  # from the sequence of board keys
    .column("partition", INTEGER)
    .column("layout", TEXT)  # the columns with which the table was created; a new board needs equal columns
    .column("columns", TEXT)  # all columns that the table currently has
    .primary_key("table_key"),
    create_index("shared_tables_layout", SHARED_TABLES, col("partition"), col("layout"), unique=True),
    create_table(API_KEYS)
    .with_columns(id=TEXT, name=TEXT, role=TEXT, hash=TEXT, created_at=INTEGER)
    .column("revoked_at", INTEGER, null=True)
    .primary_key("id"),
    # When all earlier player tokens of an owner became void. The owner is a keyed hash, which names nobody.
    create_table(TOKEN_VOIDS).with_columns(owner_hash=TEXT, voided_at=INTEGER).primary_key("owner_hash").clustered(),
    create_table(PROFILES).with_columns(owner=TEXT, profile=TEXT, updated_at=INTEGER).primary_key("owner").clustered(),
    # Changes of owners that are to be made in partitions which did not answer. See `boards.postponed_changes`.
    create_table(OWNER_CHANGES)
    .with_columns(owner=TEXT, partition=INTEGER, change=TEXT, token=TEXT)
    .primary_key("owner", "partition")
    .clustered(),
    # What happened to boards, in one list for all partitions. See `storage.events`.
    create_table(EVENTS)
    .with_columns(number=INTEGER, at=INTEGER, type=TEXT, board_id=TEXT)
    # The key of the grant that the event is about; null: about none.
    .column("grant_board", INTEGER, null=True)
    .column("grant_number", INTEGER, null=True)
    .primary_key("number")
    .clustered(),
    create_table(WEBHOOKS).with_columns(id=TEXT, document=TEXT).primary_key("id").clustered(),
    # A digest of the first owners of each board for which a webhook asks. See `events.tops`.
    create_table(BOARD_TOPS).with_columns(leaf_key=INTEGER, digest=TEXT).primary_key("leaf_key").clustered(),
    # Rewards of closed boards, how far their grants are made, and the grants. See `storage.rewards`.
    create_table(GRANT_REWARDS)
    .column("board_key", INTEGER)  # the board may be deleted
    .column("reward", INTEGER)  # its 0-based number among the rewards of the board
    .with_columns(board_id=TEXT, name=TEXT)
    .column("data", TEXT)  # a JSON object
    .column("made_at", INTEGER)  # when the board was shut
    .primary_key("board_key", "reward")
    .clustered(),
    create_index("grant_rewards_made_at", GRANT_REWARDS, col("made_at")),
    create_table(GRANT_WALKS)
    .column("leaf_key", INTEGER)  # of the board
    .column("closed_at", INTEGER)
    .with_columns(rewards=TEXT, mark=TEXT)  # JSON
    .primary_key("leaf_key")
    .clustered(),
    create_table(GRANTS)
    .with_columns(board_key=INTEGER, number=INTEGER, owner=TEXT, reward=INTEGER, rank=INTEGER)
    .column("claimed_at", INTEGER, null=True)
    .primary_key("board_key", "number")
    .clustered(),
    create_index("grants_owner", GRANTS, col("owner"), col("board_key"), col("number")),
    # What operators have done, see `boards.acts`.
    create_table(ACTS)
    .column("id", TEXT)  # orders the acts by time
    .with_columns(at=INTEGER, act=TEXT)
    .column("key", TEXT, null=True)  # the id of the operator's API key; null: the service had no keys
    .column("owner", TEXT, null=True)
    .column("board", TEXT, null=True)  # the id of the board
    .column("reason", TEXT, null=True)
    .column("detail", TEXT, null=True)  # a JSON object
    .column("hidden", INTEGER, null=True)  # not null: the act has hidden its owner, who is hidden since then
    .primary_key("id"),
    *(
        create_index(f"acts_{name}", ACTS, col(name), col("id"), where=col(name).not_null())
        for name in ("owner", "board", "key")
    ),
    create_index("acts_hidden", ACTS, col("owner"), where=col("hidden").not_null()),
    create_index("acts_at", ACTS, col("at"), where=col("hidden").is_null()),
    # Owners whose entries now belong to another owner, and what became of each entry. See `histories.merged_owners`.
    create_table(MERGED_OWNERS)
    .with_columns(owner=TEXT, into_owner=TEXT, merged_at=INTEGER)
    .primary_key("owner")
    .clustered(),
    create_index("merged_owners_into", MERGED_OWNERS, col("into_owner")),
    create_table(MERGED_ENTRIES)
    .column("owner", TEXT)
    .column("leaf_key", INTEGER)  # the leaf that got the entry
    .column("into_owner", TEXT)  # who got the entry, even if that owner was merged later
    .column("kind", TEXT)  # how it was merged: one of `bundles.MERGES`
    .column("stats", TEXT)  # a JSON array: the values of the entry that the merge made
    .primary_key("owner", "leaf_key")
    .clustered(),
    create_index("merged_entries_leaf_key", MERGED_ENTRIES, col("leaf_key")),
    create_table(REFRESH_REQUESTS)
    .with_columns(leaf_key=INTEGER, column_index=INTEGER)
    # Numbers from one sequence:
    .column("requested", INTEGER)  # the number of the newest request
    .column("answered", INTEGER)  # the number of the newest answered request; the answer follows
    .column("version", INTEGER, null=True)  # the version of the new curve; null: the refresh failed, or no answer
    .column("failure", TEXT, null=True)  # why there is no new curve; null: there is one, or no answer
    .column("took_us", INTEGER)
    .column("origin", TEXT)  # the HTTP request in which an operator last asked for a refresh
    .primary_key("leaf_key", "column_index")
    .clustered(),
    # A search for open requests nearly always finds none. This partial index makes it cheap, however large the table.
    create_index(
        "refresh_requests_open", REFRESH_REQUESTS, col("requested"), where=col("requested").gt(col("answered"))
    ),
)


# Sequences, and leases on the store's own work.
WORK_TABLES: tuple[Query, ...] = (
    create_table(SEQUENCES).column("name", TEXT).column("next", INTEGER).primary_key("name").clustered(),
    create_table(WORK_LEASES)
    .with_columns(kind=TEXT, resource=TEXT, holder=TEXT)
    .column("version", INTEGER)  # the fencing number: grows with every new lease
    .column("expires_at", INTEGER)  # when the lease ends, by the store's clock; 0: it was released
    .primary_key("kind", "resource")
    .clustered(),
)


# Gates, totals, post ids, hidden entries, archives, and keys of rows that no board uses: a job deletes them.
ENTRY_TABLES: tuple[Query, ...] = (
    # What the catalog says of each leaf in this partition, as far as posts and reads need it. See `leaves.gates`.
    create_table(GATES)
    .column("leaf_key", INTEGER)
    .column("table_key", INTEGER, null=True)
    .with_columns(rows_key=INTEGER, epoch=INTEGER)
    .column("opens_at", INTEGER, null=True)
    .column("ends_at", INTEGER, null=True)
    .column("closes_at", INTEGER, null=True)
    .column("closed_at", INTEGER, null=True)
    .column("archived_at", INTEGER, null=True)
    .column("reset_at", INTEGER, null=True)
    .column("edition", TEXT)  # readers compare it with that of their copy of the leaf, see `records.Leaf.edition`
    .primary_key("leaf_key")
    .clustered(),
    create_table(FAMILY_GATES)
    .column("family_key", INTEGER)
    .column("closed_through", INTEGER)  # as in the catalog
    .column("grace", INTEGER)  # how long after their end the family's boards take late posts, in microseconds
    .primary_key("family_key")
    .clustered(),
    create_table(DROPPED_ROWS)
    .column("table_name", TEXT)
    .column("rows_key", INTEGER)  # as in the catalog; in the table of post ids: the key of their leaf or family
    .primary_key("table_name", "rows_key")
    .clustered(),
    create_table(TOTALS)
    .with_columns(leaf_key=INTEGER, column_index=INTEGER, entries=INTEGER)
    .primary_key("leaf_key", "column_index")
    .clustered(),
    # Post ids are stored as keyed hashes, because such hashes are short and hold no personal data.
    create_table(POST_IDS)
    .with_columns(leaf_key=INTEGER, post_hash=TEXT, fingerprint=TEXT, outcome=TEXT, remembered_at=INTEGER)
    .primary_key("leaf_key", "post_hash")
    .clustered(),
    create_index("post_ids_remembered_at", POST_IDS, col("remembered_at")),
    # Entries of hidden owners. They are not in the tables of their boards, so no ranking has to filter them out.
    create_table(HIDDEN_ENTRIES)
    .with_columns(leaf_key=INTEGER, owner=TEXT, updated_at=INTEGER)
    .column("cells", TEXT)  # a JSON array
    .primary_key("leaf_key", "owner")
    .clustered(),
    create_index("hidden_entries_owner", HIDDEN_ENTRIES, col("owner")),
    # Who may have hidden entries. Every partition has all these owners.
    create_table(HIDDEN_OWNERS)
    .column("owner", TEXT)
    .column(
        "state", TEXT
    )  # whether the owner is hidden, is being shown again, or was merged, see `leaves.hidden_owners`
    .primary_key("owner")
    .clustered(),
    # Who takes part in boards with entry rules, and how many do, see `leaves.entrants`.
    create_table(ENTRANTS)
    .column("leaf_key", INTEGER)  # of a board with segments: the key of the board
    .column("owner", TEXT)  # empty: the row counts the owners
    .column("posts", INTEGER)  # how many posts of the owner were accepted, or how many owners take part
    .column("joined_at", INTEGER, null=True)  # null: the owner takes part by posting, and never joined
    .primary_key("leaf_key", "owner")
    .clustered(),
    create_index("entrants_owner", ENTRANTS, col("owner")),
    # Who is in which cohort of a league, in which division, and which cohorts have seats left, see `storage.leagues`.
    create_table(SEATS)
    .column("leaf_key", INTEGER)  # of the board of a period
    .column("cohort", INTEGER)  # 0: the owner waits for the result of an earlier period
    .column("owner", TEXT)
    .column("family_key", INTEGER)  # the league
    .column("ends_at", INTEGER)  # when the period ends
    # The final rank in the cohort (0: none), and by how many divisions the owner moved; null: the result is not in yet.
    .column("rank", INTEGER, null=True)
    .column("moved", INTEGER, null=True)
    .primary_key("leaf_key", "cohort", "owner")
    .clustered(),
    create_index("seats_owner", SEATS, col("owner"), col("leaf_key"), unique=True),
    create_table(STANDINGS)
    .with_columns(family_key=INTEGER, owner=TEXT)
    .column("division", INTEGER)  # after the last period with a result
    .column("through_at", INTEGER)  # when that period ended; 0: no result is in yet
    .primary_key("family_key", "owner")
    .clustered(),
    create_table(OPEN_COHORTS)
    .with_columns(leaf_key=INTEGER, division=INTEGER)
    .column("slot", INTEGER)  # several cohorts of a division may be open at once, one in each slot
    .column("number", INTEGER)  # of the cohort that is being filled; 0: none yet
    .column("seats", INTEGER)  # how many of its seats were taken
    .primary_key("leaf_key", "division", "slot")
    .clustered(),
    # Posts that wait for the verdict of an operator, see `limits.held_posts`.
    create_table(HELD_POSTS)
    .with_columns(leaf_key=INTEGER, owner=TEXT, post_hash=TEXT)
    .column("family_key", INTEGER, null=True)  # null: it was posted to the board alone
    .with_columns(held_at=INTEGER, at=INTEGER, post_id=TEXT, fingerprint=TEXT)
    .column("changes", TEXT)  # a JSON array of `ColumnChange`
    .column("reason", TEXT)
    .primary_key("leaf_key", "owner", "post_hash")
    .clustered(),
    create_index("held_posts_owner", HELD_POSTS, col("owner")),
    create_index("held_posts_order", HELD_POSTS, *map(col, ("leaf_key", "held_at", "post_hash"))),
    create_index("held_posts_held_at", HELD_POSTS, col("held_at")),
    # What owners have gained in the last hour, if a board limits that, see `limits.gains`.
    create_table(GAINS)
    .with_columns(leaf_key=INTEGER, owner=TEXT, updated_at=INTEGER)
    .column("minutes", TEXT)  # a JSON object
    .primary_key("leaf_key", "owner")
    .clustered(),
    create_index("gains_owner", GAINS, col("owner")),
    create_index("gains_updated_at", GAINS, col("updated_at")),
    # An archived board has sections, such as the tally of a column. A section is a list of blocks, one row for each.
    create_table(ARCHIVE_BLOCKS)
    .with_columns(leaf_key=INTEGER, section=TEXT)
    .column("number", INTEGER)  # how many entries are in the earlier blocks of this section; for a curve: its segment
    .with_columns(entries=INTEGER, first=TEXT, last=TEXT, document=BLOB)
    .primary_key("leaf_key", "section", "number"),
    create_index("archive_blocks_first", ARCHIVE_BLOCKS, *map(col, ("leaf_key", "section", "first"))),
)


# The change log, its counter, and its index by owner.
LOG_TABLES: tuple[Query, ...] = (
    create_table(CHANGE_LOG)
    .column("position", INTEGER)  # a number from the log's counter; without gaps, in the order of the commits
    .column("leaf_key", INTEGER, null=True)  # null: the row has events of whole boards, which move no entries
    .column("updated_at", INTEGER)
    .column("changes", INTEGER)  # how many changes the row holds
    .column("owners", TEXT, sortable=False)  # the owner of each change, see `log.bundles`
    .column("cells", TEXT, sortable=False)  # the ranked cells before and after each change
    .column("posts", TEXT, sortable=False)  # for each change, what was posted
    .column("erased", INTEGER, null=True)  # not null: an owner was erased, but the owner's cells must still be removed
    .primary_key("position"),
    create_index("changes_leaf_key", CHANGE_LOG, col("leaf_key"), col("position")),
    # With this partial index, which is nearly always empty, a job finds the rows with cells to remove.
    create_index("changes_erased", CHANGE_LOG, col("position"), where=col("erased").not_null()),
    create_table(LOG_COUNTER)  # one row
    .column("counter_key", INTEGER)
    .column("next", INTEGER)  # the position that the next row (a bundle of changes) gets
    .column("changed_at", INTEGER)  # the latest start time of all transactions that added rows to the log
    .column("pruned_before", INTEGER)  # all rows with a lower position were pruned, and no other rows
    .column("facts", INTEGER)  # grows when an owner is hidden or shown, or a board gets a new epoch, see `group_facts`
    .primary_key("counter_key")
    .clustered(),
    # How far each follower of the log has come, see `log.following`.
    create_table(FOLLOWERS)
    .column("name", TEXT)
    .column("handled", INTEGER)  # the follower has handled all changes up to this number
    .primary_key("name")
    .clustered(),
    # The change log has no index by owner. The filters in this table replace it, see `log.owner_index`.
    create_table(JOURNAL_BLOCKS).with_columns(first=INTEGER, last=INTEGER, owners=BLOB).primary_key("first"),
)


# Curves and live counts.
CURVE_TABLES: tuple[Query, ...] = (
    create_table(CURVES)
    .with_columns(leaf_key=INTEGER, column_index=INTEGER, epoch=INTEGER, version=INTEGER, as_of=INTEGER)
    .column("document", BLOB)
    .column("changes", INTEGER, null=True)
    .column("rules", TEXT, null=True)
    .column("mark", INTEGER, null=True)  # the curve includes the logged changes before this position; null: unknown
    .primary_key("leaf_key", "column_index"),
    create_index("curves_version", CURVES, col("version")),
    create_table(LIVE_COUNTS)
    .with_columns(leaf_key=INTEGER, column_index=INTEGER, epoch=INTEGER)
    .column("curve_version", INTEGER)  # the version of the curve that the counts belong to
    .column("version", INTEGER)  # of `document`; any document in this table that is written later has a greater version
    .column("document", BLOB)
    .column("changes", INTEGER)  # the live counts include the board's changes up to this value of `totals.CHANGES`
    .column("counted", INTEGER)  # 1: the curve has live counts; 0: it has none, and `document` is empty
    .primary_key("leaf_key", "column_index"),
    create_index("live_counts_version", LIVE_COUNTS, col("version")),
    create_table(LIVE_MARK)
    .with_columns(mark_key=INTEGER, position=INTEGER, as_of=INTEGER)
    .column("version", INTEGER)  # the version of the newest document in `live_counts`
    .primary_key("mark_key"),
)

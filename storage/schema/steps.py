"""The steps of a store's schema, and the function `migrate`, which runs the steps that a store lacks.

The most important rule: a step that was released is never edited. A change of the schema is a new step.

A step is a function from a dialect to the queries of the step. The table `meta` counts the steps that a store has run.
"""

from __future__ import annotations

import secrets

from querybuilder import (
    BLOB,
    INTEGER,
    TEXT,
    Dialect,
    Query,
    add_column,
    asc,
    coalesce,
    col,
    create_index,
    create_row_reader,
    create_table,
    delete,
    drop_table,
    insert,
    lit,
    null,
    oldest_transaction,
    param,
    plus,
    select,
    update,
)
from storage.errors import SchemaTooNewError, StoreDamagedError
from storage.store import Program

from .ingest_tables import create_ingest_tables
from .lease_tables import create_lease_tables

META = "meta"
BOARDS = "boards"
SEQUENCES = "sequences"
TOTALS = "totals"
POST_IDS = "post_ids"
CURVES = "curves"
API_KEYS = "api_keys"
WORK_LEASES = "leases"
REFRESH_REQUESTS = "refresh_demands"
CHANGE_LOG = "changes"
HIDDEN_ENTRIES = "hidden_entries"
PROFILES = "profiles"
JOURNAL_BLOCKS = "journal_blocks"
LIVE_COUNTS = "live_counts"
LIVE_MARK = "live_mark"
SHARED_TABLES = "shared_tables"
DROPPED_ROWS = "dropped_rows"

# This sequence holds a position of the change log. All bundles with a lower position were pruned, and no others.
CHANGES_PRUNED = "changes_pruned"
FAMILIES = "families"
ARCHIVE_BLOCKS = "archive_blocks"


def _first(_dialect: Dialect) -> list[Query]:
    return [
        create_table(BOARDS)
        .column("board_key", INTEGER)
        .column("id", TEXT, sortable=True)
        .column("spec", TEXT)
        .column("created_at", INTEGER)
        .column("epoch", INTEGER)
        .primary_key("board_key"),
        create_index("boards_id", BOARDS, asc(col("id")), unique=True),
        create_table(SEQUENCES).column("name", TEXT).column("next", INTEGER).primary_key("name").clustered(),
        create_table(TOTALS)
        .column("board_key", INTEGER)
        .column("column_index", INTEGER)
        .column("entries", INTEGER)
        .primary_key("board_key", "column_index")
        .clustered(),
        # Post ids are stored as keyed hashes, because such hashes are short and hold no personal data.
        create_table(POST_IDS)
        .column("board_key", INTEGER)
        .column("post_hash", TEXT)
        .column("fingerprint", TEXT)
        .column("outcome", TEXT)
        .column("remembered_at", INTEGER)
        .primary_key("board_key", "post_hash")
        .clustered(),
        create_index("post_ids_remembered_at", POST_IDS, asc(col("remembered_at"))),
        create_table(CURVES)
        .column("board_key", INTEGER)
        .column("column_index", INTEGER)
        .column("epoch", INTEGER)
        .column("version", INTEGER)
        .column("as_of", INTEGER)
        .column("document", BLOB)
        .primary_key("board_key", "column_index"),
        create_index("curves_version", CURVES, asc(col("version"))),
        create_table(API_KEYS)
        .column("id", TEXT)
        .column("name", TEXT)
        .column("role", TEXT)
        .column("hash", TEXT)
        .column("created_at", INTEGER)
        .column("revoked_at", INTEGER, null=True)
        .primary_key("id"),
    ]


def _leases(_dialect: Dialect) -> list[Query]:
    return [
        create_table(WORK_LEASES)
        .column("pool", TEXT)
        .column("resource", TEXT)
        .column("holder", TEXT)
        .column("version", INTEGER)  # the fencing number: grows with every new lease
        .column("expires_at", INTEGER)  # by the store's clock; 0: released
        .primary_key("pool", "resource")
        .clustered(),
        # These columns say what a curve counts and how it was made. They are null in rows older than this step.
        add_column(CURVES, "changes", INTEGER, null=True),
        add_column(CURVES, "rules", TEXT, null=True),
    ]


def _refresh_requests(_dialect: Dialect) -> list[Query]:
    return [
        create_table(REFRESH_REQUESTS)
        .column("board_key", INTEGER)
        .column("column_index", INTEGER)
        .column("epoch", INTEGER)
        .column("board_id", TEXT)
        # The next three columns hold numbers from one sequence.
        .column("demanded", INTEGER)  # the newest request
        .column("taken", INTEGER)  # the newest request that a job process works on
        .column("answered", INTEGER)  # the newest answered request; the columns that follow hold its answer
        .column("outcome", TEXT)
        .column("detail", TEXT)
        .column("version", INTEGER)
        .column("took_us", INTEGER)
        .primary_key("board_key", "column_index")
        .clustered(),
        # A search for open requests nearly always finds none. With this partial index, the search costs nearly nothing,
        # however large the table is.
        create_index(
            "refresh_demands_open", REFRESH_REQUESTS, asc(col("demanded")), where=col("demanded").gt(col("taken"))
        ),
    ]


def _changes(dialect: Dialect) -> list[Query]:
    ordered = not dialect.transaction  # true if `seq` is in the order of the commits
    table = create_table(CHANGE_LOG) if ordered else create_table(CHANGE_LOG).in_transaction("position")
    table = (
        table.numbered("seq")
        .column("board_key", INTEGER)
        .column("owner", TEXT)
        .column("updated_at", INTEGER)
        .column("previous", TEXT)  # the ranked cells before the change, joined into one text at fixed places
        .column("next", TEXT)  # the ranked cells after the change, joined in the same way
    )
    if ordered:
        by_board = create_index("changes_board_key", CHANGE_LOG, col("board_key"))  # SQLite appends the primary key
        return [table.primary_key("seq"), by_board]
    by_position = create_index("changes_position", CHANGE_LOG, col("position"), col("seq"))
    return [table.primary_key("board_key", "position", "seq"), by_position]


def _live_counts(_dialect: Dialect) -> list[Query]:
    return [
        create_table(LIVE_COUNTS)
        .column("board_key", INTEGER)
        .column("column_index", INTEGER)
        .column("epoch", INTEGER)
        .column("curve_version", INTEGER)  # the version of the curve that the counts belong to
        .column("version", INTEGER)  # grows with every stored document
        .column("document", BLOB)
        .column("counted", INTEGER)  # 0: the curve has no live counts, and the document is empty
        .primary_key("board_key", "column_index"),
        create_index("live_counts_version", LIVE_COUNTS, asc(col("version"))),
        create_table(LIVE_MARK)
        .column("mark_key", INTEGER)
        .column("position", INTEGER)
        .column("seen", TEXT)
        .column("as_of", INTEGER)
        .column("version", INTEGER)  # the version of the newest document
        .primary_key("mark_key"),
        # These columns say how much of the change log a curve's snapshot saw. They are null in rows older than this
        # step.
        add_column(CURVES, "mark_position", INTEGER, null=True),
        add_column(CURVES, "mark_seen", TEXT, null=True),
    ]


def _journal(dialect: Dialect) -> list[Query]:
    ordered = not dialect.transaction
    table = create_table(CHANGE_LOG) if ordered else create_table(CHANGE_LOG).in_transaction("position")
    table = (
        table.numbered("seq")
        .column("board_key", INTEGER)
        .column("updated_at", INTEGER)
        .column("changes", INTEGER)  # how many changes the row holds
        .column("owners", TEXT, sortable=False)  # the owner of each change, see `log.bundles`
        .column("cells", TEXT, sortable=False)  # the ranked cells before and after each change
        .column("posts", TEXT, sortable=False)  # for each change, what was posted
        .column("erased", INTEGER, null=True)  # not null: an owner was erased, but `cells` still has to be counted
    )
    if not ordered:  # `place` is a row's place within its transaction; published numbers combine position and place
        table = table.column("place", INTEGER)
    now = lit(1) if ordered else oldest_transaction()
    begins = select(coalesce(select(now).from_(BOARDS).limit(1).scalar(), 0)).scalar()
    return [
        # The old change log did not hold what was posted. Live counts and marks that refer to the old log are void.
        drop_table(CHANGE_LOG),
        delete(LIVE_COUNTS).everything(),
        delete(LIVE_MARK).everything(),
        update(CURVES).set(mark_position=null(INTEGER), mark_seen=null(TEXT)).everything(),
        insert(SEQUENCES).values(name=CHANGES_PRUNED, next=begins).on_conflict("name").overwrite(),
        delete(SEQUENCES).where(
            col("name").eq(lit(CHANGES_PRUNED)), col("next").eq(lit(0))
        ),  # 0 means that the store has no boards and so is new
        table.primary_key(*(("seq",) if ordered else ("board_key", "position", "seq"))),
        (
            create_index("changes_board_key", CHANGE_LOG, col("board_key"))  # SQLite appends the primary key
            if ordered
            else create_index("changes_position", CHANGE_LOG, col("position"), col("seq"))
        ),
        # This partial index is nearly always empty.
        create_index("changes_erased", CHANGE_LOG, col("seq"), where=col("erased").not_null()),
        # The change log has no index by owner. The filters in this table replace it, see `log.owner_index`.
        create_table(JOURNAL_BLOCKS)
        .column("first", INTEGER)
        .column("last", INTEGER)
        .column("owners", BLOB)
        .primary_key("first"),
    ]


def _owners(_dialect: Dialect) -> list[Query]:
    return [
        # The entries of hidden owners. They are not in the tables of the boards, so no ranking has to filter them out.
        create_table(HIDDEN_ENTRIES)
        .column("board_key", INTEGER)  # 0: the owner is hidden, also on future boards
        .column("owner", TEXT)
        .column("updated_at", INTEGER)
        .column("cells", TEXT)  # a JSON array
        .primary_key("board_key", "owner")
        .clustered(),
        create_index("hidden_entries_owner", HIDDEN_ENTRIES, asc(col("owner"))),
        create_table(PROFILES)
        .column("owner", TEXT)
        .column("profile", TEXT)
        .column("updated_at", INTEGER)
        .primary_key("owner")
        .clustered(),
    ]


def _families(_dialect: Dialect) -> list[Query]:
    return [
        create_table(FAMILIES)
        .column("family_key", INTEGER)  # from the sequence of board keys
        .column("id", TEXT, sortable=True)
        .column("spec", TEXT)
        .column("created_at", INTEGER)
        .primary_key("family_key"),
        create_index("families_id", FAMILIES, asc(col("id")), unique=True),
        add_column(BOARDS, "family_key", INTEGER, null=True),
        # The period and the names of the facets of a board, as `family_ids.shelf` returns them.
        add_column(BOARDS, "shelf", TEXT, null=True),
        create_index(
            "boards_shelf",
            BOARDS,
            asc(col("family_key")),
            asc(col("shelf")),
            asc(col("id")),
            where=col("family_key").not_null(),
        ),
        # The shared table of a board. Null: the board has a table of its own, as every board had before this step.
        add_column(BOARDS, "table_key", INTEGER, null=True),
        add_column(BOARDS, "rows_key", INTEGER, null=True),
        # The shared tables of boards that belong to no family: one table for each list of columns.
        create_table(SHARED_TABLES)
        .column("table_key", INTEGER)  # from the sequence of board keys
        .column("layout", TEXT)  # the columns with which the table was created; a new board needs equal columns
        .column("columns", TEXT)  # all columns that the table currently has
        .primary_key("table_key"),
        create_index("shared_tables_layout", SHARED_TABLES, asc(col("layout")), unique=True),
        create_table(DROPPED_ROWS)
        .column("table_key", INTEGER)
        .column("rows_key", INTEGER)
        .primary_key("table_key", "rows_key")
        .clustered(),
    ]


def _cursors(dialect: Dialect) -> list[Query]:
    return [create_row_reader()] if dialect.cursors else []


def _closing(_dialect: Dialect) -> list[Query]:
    times = ("opens_at", "ends_at", "closes_at", "closed_at", "archived_at", "due_at")
    return [
        *[add_column(BOARDS, name, INTEGER, null=True) for name in times],
        add_column(BOARDS, "stage", INTEGER, null=False, default=0),
        # The boards that are due for a job, by time. A job that searches them nearly always finds none.
        create_index("boards_due_at", BOARDS, asc(col("stage")), asc(col("due_at")), where=col("due_at").not_null()),
        # The boards that have rows. With this index, counting these boards never reads the archived boards.
        create_index("boards_with_rows", BOARDS, asc(col("board_key")), where=col("archived_at").is_null()),
        # A time: all boards of the family that close at this time or earlier are closed.
        add_column(FAMILIES, "closed_through", INTEGER, null=False, default=0),
        create_table(ARCHIVE_BLOCKS)
        .column("board_key", INTEGER)
        .column("section", INTEGER)
        .column("number", INTEGER)  # how many entries of the section come before the block
        .column("entries", INTEGER)
        .column("first", TEXT)
        .column("last", TEXT)
        .column("document", BLOB)
        .primary_key("board_key", "section", "number"),
        create_index("archive_blocks_first", ARCHIVE_BLOCKS, *map(asc, map(col, ("board_key", "section", "first")))),
    ]


def _origins(_dialect: Dialect) -> list[Query]:
    return [add_column(REFRESH_REQUESTS, "origin", TEXT, null=True)]


STEPS = (
    _first,
    _leases,
    _refresh_requests,
    _changes,
    _live_counts,
    _families,
    _cursors,
    _closing,
    _journal,
    _owners,
    create_lease_tables,
    create_ingest_tables,
    _origins,
)


def migrate(dialect: Dialect) -> Program[str]:
    """Run the missing steps and return the store's secret salt (hex), which the first run makes.

    Raises:
        SchemaTooNewError: a newer version of the service wrote this store.
        StoreDamagedError: the table `meta` does not say which steps the store has run.
    """
    yield (
        create_table(META)
        .column("name", TEXT)
        .column("content", TEXT)
        .primary_key("name")
        .if_not_exists()
        .build(dialect)
    )
    rows = yield select(col("name"), col("content")).from_(META).build(dialect)
    meta: dict[str, str] = {row[0]: row[1] for row in rows}
    if meta and not (meta.get("schema_version", "").isdecimal() and meta.get("salt")):
        raise StoreDamagedError("the table meta, which describes the store, is damaged: restore a backup")
    version = int(meta.get("schema_version", 0))
    if version > len(STEPS):
        raise SchemaTooNewError(f"the store has schema {version}, and this version knows schemas up to {len(STEPS)}")
    for step in STEPS[version:]:
        for query in step(dialect):
            yield query.build(dialect)
    if not meta:
        meta["salt"] = secrets.token_hex(16)
        for name, content in (("schema_version", str(len(STEPS))), ("salt", meta["salt"])):
            yield insert(META).values(name=name, content=content).build(dialect)
    elif version < len(STEPS):
        yield update(META).set(content=str(len(STEPS))).where(col("name").eq("schema_version")).build(dialect)
    return meta["salt"]


def take_number(dialect: Dialect, name: str) -> Program[int]:
    """Return the next number of a sequence. A sequence never returns a number twice, even after deletions."""
    return (yield from take_numbers(dialect, name, 1))


def take_numbers(dialect: Dialect, name: str, numbers: int) -> Program[int]:
    """Take the next `numbers` numbers from a sequence and return the last of them."""
    upsert = (
        insert(SEQUENCES)
        .values(name=param("name"), next=numbers)
        .on_conflict("name")
        .do_update(next=plus(col("next", SEQUENCES), numbers))
        .returning(col("next"))
    )
    rows = yield upsert.build(dialect, name=name)
    return int(rows[0][0])

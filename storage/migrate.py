"""Brings a store's own tables to this version's schema.

The rule: a step, once released, is never edited; a change is a new step.
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

from .errors import SchemaTooNew, StoreDamaged
from .ingest_schema import ingest_tables
from .lease_tables import lease_pool_tables
from .store import Program

META = "meta"
BOARDS = "boards"
SEQUENCES = "sequences"
TOTALS = "totals"
POST_IDS = "post_ids"
CURVES = "curves"
KEYS = "api_keys"
LEASES = "leases"
DEMANDS = "refresh_demands"
CHANGE_LOG = "changes"
HIDDEN = "hidden_entries"
PROFILES = "profiles"
BLOCKS = "journal_blocks"
LIVE_COUNTS = "live_counts"
LIVE_MARK = "live_mark"
SHARED_TABLES = "shared_tables"
DROPPED_ROWS = "dropped_rows"

PRUNED = "changes_pruned"  # the sequence that holds the lowest position of the change log of which nothing is pruned
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
        # Post ids are kept as keyed hashes: short, and nobody's data.
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
        create_table(KEYS)
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
        create_table(LEASES)
        .column("pool", TEXT)
        .column("resource", TEXT)
        .column("holder", TEXT)
        .column("version", INTEGER)  # the fencing number: grows with every new holding
        .column("expires_at", INTEGER)  # by the store's clock; 0: given back
        .primary_key("pool", "resource")
        .clustered(),
        # What a curve counts and how it was made; null where the version before this step stored it.
        add_column(CURVES, "changes", INTEGER, null=True),
        add_column(CURVES, "rules", TEXT, null=True),
    ]


def _demands(_dialect: Dialect) -> list[Query]:
    return [
        create_table(DEMANDS)
        .column("board_key", INTEGER)
        .column("column_index", INTEGER)
        .column("epoch", INTEGER)
        .column("board_id", TEXT)
        .column("demanded", INTEGER)  # numbers of one sequence: the newest demand,
        .column("taken", INTEGER)  # the newest that a job process works on,
        .column("answered", INTEGER)  # and the newest that is answered, by what follows
        .column("outcome", TEXT)
        .column("detail", TEXT)
        .column("version", INTEGER)
        .column("took_us", INTEGER)
        .primary_key("board_key", "column_index")
        .clustered(),
        # A look finds nothing nearly always: then it should cost nothing, however many were ever made.
        create_index("refresh_demands_open", DEMANDS, asc(col("demanded")), where=col("demanded").gt(col("taken"))),
    ]


def _changes(dialect: Dialect) -> list[Query]:
    ordered = not dialect.transaction  # rows stand in the order of the commits
    table = create_table(CHANGE_LOG) if ordered else create_table(CHANGE_LOG).in_transaction("position")
    table = (
        table.numbered("seq")
        .column("board_key", INTEGER)
        .column("owner", TEXT)
        .column("updated_at", INTEGER)
        .column("previous", TEXT)  # the ranked cells before, side by side at fixed places,
        .column("next", TEXT)  # and after
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
        .column("curve_version", INTEGER)  # of the curve that they belong to
        .column("version", INTEGER)  # grows with every document
        .column("document", BLOB)
        .column("counted", INTEGER)  # 0: the curve goes without, and the document is empty
        .primary_key("board_key", "column_index"),
        create_index("live_counts_version", LIVE_COUNTS, asc(col("version"))),
        create_table(LIVE_MARK)
        .column("mark_key", INTEGER)
        .column("position", INTEGER)
        .column("seen", TEXT)
        .column("as_of", INTEGER)
        .column("version", INTEGER)  # of the newest document
        .primary_key("mark_key"),
        # What of the change log a curve's snapshot saw; null where the version before this step stored it.
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
        .column("changes", INTEGER)  # how many
        .column("owners", TEXT, sortable=False)  # of each change, see `bundles`,
        .column("cells", TEXT, sortable=False)  # the ranked cells before and after,
        .column("posts", TEXT, sortable=False)  # and what was posted
        .column("erased", INTEGER, null=True)  # not null: cells of an erased owner, which are still to be counted
    )
    if not ordered:  # among the changes of its transaction: the number that is published is made of both
        table = table.column("place", INTEGER)
    now = lit(1) if ordered else oldest_transaction()
    begins = select(coalesce(select(now).from_(BOARDS).limit(1).scalar(), 0)).scalar()
    return [
        # The log of before did not say what was posted. Marks that count on it are of no use any more.
        drop_table(CHANGE_LOG),
        delete(LIVE_COUNTS).everything(),
        delete(LIVE_MARK).everything(),
        update(CURVES).set(mark_position=null(INTEGER), mark_seen=null(TEXT)).everything(),
        insert(SEQUENCES).values(name=PRUNED, next=begins).on_conflict("name").overwrite(),
        delete(SEQUENCES).where(col("name").eq(lit(PRUNED)), col("next").eq(lit(0))),  # a new store
        table.primary_key(*(("seq",) if ordered else ("board_key", "position", "seq"))),
        (
            create_index("changes_board_key", CHANGE_LOG, col("board_key"))  # SQLite appends the primary key
            if ordered
            else create_index("changes_position", CHANGE_LOG, col("position"), col("seq"))
        ),
        # Nearly always none.
        create_index("changes_erased", CHANGE_LOG, col("seq"), where=col("erased").not_null()),
        # No index by owner: see `journal_blocks`.
        create_table(BLOCKS)
        .column("first", INTEGER)
        .column("last", INTEGER)
        .column("owners", BLOB)
        .primary_key("first"),
    ]


def _owners(_dialect: Dialect) -> list[Query]:
    return [
        # Entries of owners who are hidden, away from their boards' tables, so that no ranking has to leave them out.
        create_table(HIDDEN)
        .column("board_key", INTEGER)  # 0: the owner is hidden, on boards to come too
        .column("owner", TEXT)
        .column("updated_at", INTEGER)
        .column("cells", TEXT)  # a JSON array
        .primary_key("board_key", "owner")
        .clustered(),
        create_index("hidden_entries_owner", HIDDEN, asc(col("owner"))),
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
        .column("family_key", INTEGER)  # of the boards' sequence
        .column("id", TEXT, sortable=True)
        .column("spec", TEXT)
        .column("created_at", INTEGER)
        .primary_key("family_key"),
        create_index("families_id", FAMILIES, asc(col("id")), unique=True),
        add_column(BOARDS, "family_key", INTEGER, null=True),
        add_column(BOARDS, "shelf", TEXT, null=True),  # the period and the facets' names
        create_index(
            "boards_shelf",
            BOARDS,
            asc(col("family_key")),
            asc(col("shelf")),
            asc(col("id")),
            where=col("family_key").not_null(),
        ),
        # Null where a board has a table of its own, as every board had before this step.
        add_column(BOARDS, "table_key", INTEGER, null=True),
        add_column(BOARDS, "rows_key", INTEGER, null=True),
        # The tables of boards that belong to no family, one for each list of columns.
        create_table(SHARED_TABLES)
        .column("table_key", INTEGER)  # of the boards' sequence
        .column("layout", TEXT)  # the columns that a new board has
        .column("columns", TEXT)  # and all those that there are by now
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
        # With which boards something is to be done, and when: a look finds nothing nearly always.
        create_index("boards_due_at", BOARDS, asc(col("stage")), asc(col("due_at")), where=col("due_at").not_null()),
        # To count them takes as long as there are boards with rows, whatever was archived.
        create_index("boards_with_rows", BOARDS, asc(col("board_key")), where=col("archived_at").is_null()),
        add_column(FAMILIES, "closed_through", INTEGER, null=False, default=0),  # boards that close until then are shut
        create_table(ARCHIVE_BLOCKS)
        .column("board_key", INTEGER)
        .column("section", INTEGER)
        .column("number", INTEGER)  # entries of the section before the block's
        .column("entries", INTEGER)
        .column("first", TEXT)
        .column("last", TEXT)
        .column("document", BLOB)
        .primary_key("board_key", "section", "number"),
        create_index("archive_blocks_first", ARCHIVE_BLOCKS, *map(asc, map(col, ("board_key", "section", "first")))),
    ]


def _origins(_dialect: Dialect) -> list[Query]:
    return [add_column(DEMANDS, "origin", TEXT, null=True)]


STEPS = (
    _first,
    _leases,
    _demands,
    _changes,
    _live_counts,
    _families,
    _cursors,
    _closing,
    _journal,
    _owners,
    lease_pool_tables,
    ingest_tables,
    _origins,
)


def migrate(dialect: Dialect) -> Program[str]:
    """Run the missing steps and return the store's secret salt (hex), made at the first run.

    Raises:
        SchemaTooNew: a newer version of the service wrote this store.
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
        raise StoreDamaged("the table meta, which says what the store is, is damaged: restore a backup")
    version = int(meta.get("schema_version", 0))
    if version > len(STEPS):
        raise SchemaTooNew(f"the store has schema {version}, this version knows {len(STEPS)}")
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


def next_in(dialect: Dialect, name: str) -> Program[int]:
    """The next number of a sequence; a number is never given twice, whatever is deleted."""
    return (yield from next_many(dialect, name, 1))


def next_many(dialect: Dialect, name: str, numbers: int) -> Program[int]:
    """The last of so many next numbers of a sequence."""
    upsert = (
        insert(SEQUENCES)
        .values(name=param("name"), next=numbers)
        .on_conflict("name")
        .do_update(next=plus(col("next", SEQUENCES), numbers))
        .returning(col("next"))
    )
    rows = yield upsert.build(dialect, name=name)
    return int(rows[0][0])

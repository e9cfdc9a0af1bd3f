"""Test every word of the SQL text for PostgreSQL.

The text respects the limits of Citus: DO UPDATE uses only immutable functions, and each call has one DDL statement.
"""

from typing import Any

import pytest

from querybuilder import (
    ASC,
    BLOB,
    DESC,
    INTEGER,
    POSTGRES,
    TEXT,
    Lock,
    add_column,
    advisory_lock,
    any_of,
    asc,
    chained,
    coalesce,
    col,
    collated,
    contains_text,
    count,
    count_if,
    create_index,
    create_table,
    delete,
    desc,
    drop_table,
    excluded,
    hold_table,
    insert,
    length,
    lit,
    not_,
    null,
    param,
    part,
    plus,
    recursive,
    remainder,
    rename_table,
    rows,
    seek,
    select,
    sum_,
    times,
    truncate,
    union_all,
    update,
    whole_part,
)

WANTED: list[tuple[Any, str]] = [
    (
        select(part(col("value", "m"), plus(whole_part(length(col("value", "m")), 2), 1), 2)).from_("b7")
        .each_piece(col("c1"), "m").where(contains_text(col("owner"), param("o"))),
        'SELECT substr("m"."value", ((length("m"."value") / $1::bigint) + $2::bigint)::int, $1::bigint::int) FROM "b7" '
        'CROSS JOIN unnest(string_to_array("c1", \',\')) AS "m"("value") WHERE (strpos("owner", $3) > 0)',
    ),
    (
        select(part(col("c1"), 3, 2)).from_("b7"),
        'SELECT substr("c1", $1::bigint::int, $2::bigint::int) FROM "b7"',
    ),
    (
        select(col("owner"), col("c1")).from_("b7").where(seek(("c1", DESC, param("v")), ("owner", ASC, param("o"))))
        .order_by(desc(col("c1")), asc(col("owner"))).limit(param("rows")).packed(),
        'SELECT "owner", "c1" FROM "b7" WHERE ("c1" <= $1 AND ("c1" < $1 OR "owner" > $2)) '
        'ORDER BY "c1" DESC, "owner" ASC LIMIT $3',
    ),
    (
        select(count_if(col("c1").gt("5")), sum_(col("n")), coalesce(col("n"), 0), param("x", INTEGER))
        .from_("b7").offset(2),
        'SELECT count(*) FILTER (WHERE "c1" > $1::text), sum("n")::bigint, coalesce("n", $2::bigint), $3::bigint '
        'FROM "b7" OFFSET $4::bigint',
    ),
    (
        select(coalesce(col("a"), 0), count()).from_("t").group_by(coalesce(col("a"), 0)),
        'SELECT coalesce("a", $1::bigint), count(*) FROM "t" GROUP BY coalesce("a", $1::bigint)',
    ),
    (
        union_all(select(lit(0), col("a")).from_("t").limit(1), select(lit(1), col("a")).from_("t")).packed(),
        'SELECT * FROM (SELECT $1::bigint, "a" FROM "t" LIMIT $2::bigint) AS "a0" UNION ALL '
        'SELECT * FROM (SELECT $2::bigint, "a" FROM "t") AS "a1"',
    ),
    (
        union_all(select(col("a")).from_("t"), select(col("a")).from_("u")).order_by(desc(col("a"))).limit(3),
        'SELECT * FROM (SELECT "a" FROM "t" ORDER BY "a" DESC LIMIT $1::bigint) AS "a0" UNION ALL '
        'SELECT * FROM (SELECT "a" FROM "u" ORDER BY "a" DESC LIMIT $1::bigint) AS "a1" '
        'ORDER BY "a" DESC LIMIT $1::bigint',
    ),
    (
        union_all(select(col("a")).from_("t"), select(col("a")).from_("u")).order_by(desc(col("a"))),
        'SELECT "a" FROM "t" UNION ALL SELECT "a" FROM "u" ORDER BY "a" DESC',
    ),
    (
        select(col("n")).from_(select(count().as_("n")).from_("t")).where(col("n").in_([1, 2]), not_(any_of())),
        'SELECT "n" FROM (SELECT count(*) AS "n" FROM "t") AS "s" WHERE "n" = ANY($1) AND NOT (FALSE)',
    ),
    (
        select(col("i", "g")).from_(rows("g", param("rows"), i=INTEGER, v=TEXT))
        .join("t", col("c1", "t").eq(col("v", "g"))),
        'SELECT "g"."i" FROM unnest($1::text::bigint[], $2::text::text[]) AS "g"("i", "v") '
        'JOIN "t" ON "t"."c1" = "g"."v"',
    ),
    (
        insert("t").rows(param("rows"), owner=TEXT, n=INTEGER).on_conflict("owner")
        .do_update(where=col("n", "t").lt(excluded("n")), n=plus(col("n", "t"), excluded("n")))
        .returning(col("owner", "t")),
        'INSERT INTO "t" ("owner", "n") '
        'SELECT * FROM unnest($1::text::text[], $2::text::bigint[]) AS "v"("owner", "n") '
        'WHERE TRUE ON CONFLICT ("owner") DO UPDATE SET "n" = ("t"."n" + excluded."n") WHERE "t"."n" < excluded."n" '
        'RETURNING "t"."owner"',
    ),
    (
        insert("t").values(owner="a", n=param("n")).on_conflict("owner").do_nothing(),
        'INSERT INTO "t" ("owner", "n") VALUES ($1::text, $2) ON CONFLICT ("owner") DO NOTHING',
    ),
    (
        update("t").set(c1=col("c1", "v")).from_rows("v", param("rows"), owner=TEXT, old=INTEGER, c1=TEXT)
        .where(col("owner", "t").eq(col("owner", "v")), col("at", "t").eq(col("old", "v")))
        .returning(col("owner", "t")),
        'UPDATE "t" SET "c1" = "v"."c1" '
        'FROM unnest($1::text::text[], $2::text::bigint[], $3::text::text[]) '
        'AS "v"("owner", "old", "c1") '
        'WHERE "t"."owner" = "v"."owner" AND "t"."at" = "v"."old" RETURNING "t"."owner"',
    ),
    (delete("t").where(col("a").in_(param("gone"))), 'DELETE FROM "t" WHERE "a" = ANY($1)'),
    (
        create_table("b7").column("owner", TEXT).column("at", INTEGER, default=0).column("c1", TEXT, null=True)
        .column("note", TEXT, null=True, sortable=False).column("d", BLOB)
        .primary_key("owner").clustered().if_not_exists(),
        'CREATE TABLE IF NOT EXISTS "b7" ("owner" text COLLATE "C" NOT NULL, "at" bigint NOT NULL DEFAULT 0, '
        '"c1" text COLLATE "C", "note" text, "d" bytea NOT NULL, PRIMARY KEY ("owner"))',
    ),
    (
        create_index("b7_c1", "b7", desc(col("c1")), col("owner"), where=col("c1").not_null()),
        'CREATE INDEX "b7_c1" ON "b7" ("c1" DESC, "owner" ASC) WHERE "c1" IS NOT NULL',
    ),
    (add_column("b7", "c2", TEXT), 'ALTER TABLE "b7" ADD COLUMN "c2" text COLLATE "C"'),
    (
        select(col("owner")).from_("b7").where(col("owner").in_(param("who"))).locked(Lock.NO_KEY_UPDATE, col("owner")),
        'SELECT "owner" FROM "b7" WHERE "owner" = ANY($1) ORDER BY "owner" ASC FOR NO KEY UPDATE',
    ),
    (
        select(advisory_lock(col("n"), shared=True)).from_("b7").locked(Lock.SHARE, col("n")),
        'SELECT pg_advisory_xact_lock_shared(CAST(tableoid AS integer), CAST("n" AS integer)) FROM "b7" '
        'ORDER BY "n" ASC FOR SHARE',
    ),
    (
        select(advisory_lock(remainder(col("n"), 7), shared=False)).from_("b7"),
        'SELECT pg_advisory_xact_lock(CAST(tableoid AS integer), CAST(("n" % $1::bigint) AS integer)) FROM "b7"',
    ),
    (truncate("b7"), 'TRUNCATE TABLE "b7"'),
    (hold_table("b7"), 'LOCK TABLE "b7" IN EXCLUSIVE MODE'),
    (
        union_all(select(null(INTEGER), col("a")).from_("t"), select(col("n"), null(TEXT)).from_("t")),
        'SELECT * FROM (SELECT CAST(NULL AS bigint), "a" FROM "t") AS "a0" UNION ALL '
        'SELECT * FROM (SELECT "n", CAST(NULL AS text) FROM "t") AS "a1"',
    ),
    (
        recursive(
            "w", "n", "c",
            seed=select(lit(0), collated(param("c", TEXT))),
            step=select(plus(col("n", "w"), 1), col("c", "f")).from_("w")
            .join_lateral(
                select(col("c1").as_("c")).from_("b7").where(col("c1").lt(col("c", "w"))).order_by(desc(col("c1")))
                .limit(1).offset(whole_part(times(col("n", "w"), 3), 2)),
                "f",
            )
            .where(col("n", "w").lt(param("steps"))),
            final=select(col("c")).from_("w"),
        ),
        'WITH RECURSIVE "w"("n", "c") AS (SELECT $1::bigint, ($2::text COLLATE "C") UNION ALL '
        'SELECT ("w"."n" + $3::bigint), "f"."c" FROM "w" CROSS JOIN LATERAL (SELECT "c1" AS "c" FROM "b7" '
        'WHERE "c1" < "w"."c" ORDER BY "c1" DESC LIMIT $3::bigint OFFSET (("w"."n" * $4::bigint) / $5::bigint)) AS "f" '
        'WHERE "w"."n" < $6) SELECT "c" FROM "w"',
    ),
    (
        chained(
            "changed",
            update("b7").set(n=1).where(col("owner").eq("a")).returning(col("n")),
            insert("log").rows(param("rows"), n=INTEGER).where(select(count()).from_("changed").scalar().eq(1)),
        ),
        'WITH "changed" AS (UPDATE "b7" SET "n" = $1::bigint WHERE "owner" = $2::text RETURNING "n"), '
        '"n_" AS (INSERT INTO "log" ("n") SELECT * FROM unnest($3::text::bigint[]) AS "v"("n") '
        'WHERE (SELECT count(*) FROM "changed") = $1::bigint) SELECT * FROM "changed"',
    ),
    (drop_table("b7"), 'DROP TABLE "b7"'),
    (rename_table("b7", "b7_1"), 'ALTER TABLE "b7" RENAME TO "b7_1"'),
]  # fmt: skip


@pytest.mark.parametrize(("query", "sql"), WANTED, ids=[sql[:40] for _, sql in WANTED])
def test_each_construct_renders_to_the_expected_text_for_postgresql(query: Any, sql: str) -> None:
    compiled = query.compile(POSTGRES)
    assert compiled.sql == sql
    assert not compiled.packed

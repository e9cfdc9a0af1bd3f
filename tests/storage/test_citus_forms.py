"""Test that the check of statements for Citus finds each form that it has to find."""

import pytest

from tests.storage.citus_forms import find_fault


@pytest.mark.parametrize(
    "sql",
    [
        'SELECT 1 FROM "s_p1"."totals" JOIN "s_control"."boards" ON TRUE',
        'INSERT INTO "s_p1"."sequences" VALUES ($1, (SELECT 1))',
        'DECLARE "walk" NO SCROLL CURSOR FOR SELECT 1',
        'UPDATE "s_p1"."leases" SET "at" = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint',
        'INSERT INTO "s_p1"."leases" ("a") VALUES ($1) RETURNING clock_timestamp()',
        'MERGE INTO "s_p1"."leases" USING unnest($1)',
        'SELECT "q"."a", (WITH "p" AS (SELECT 1) SELECT * FROM "p") FROM "s_p1"."totals" AS "q"',
        'INSERT INTO "s_p1"."t" ("a") SELECT * FROM unnest($1) AS "v"("a") WHERE TRUE ON CONFLICT ("a") DO NOTHING',
        'WITH "taken" AS (UPDATE "s_p1"."t" SET "a" = $1 RETURNING "a"), "n" AS (INSERT INTO "s_p1"."u" ("a") '
        'SELECT "taken"."a" FROM unnest($2) AS "v"("b") CROSS JOIN "taken" WHERE TRUE) SELECT * FROM "taken"',
    ],
)
def test_statements_that_citus_refuses_are_found(sql: str) -> None:
    assert find_fault(sql) is not None


@pytest.mark.parametrize(
    "sql",
    [
        'WITH "n" AS (INSERT INTO "s_p1"."t" ("a") SELECT * FROM unnest($1) AS "v"("a") WHERE TRUE '
        'ON CONFLICT ("a") DO NOTHING RETURNING $2) SELECT count(*) FROM "n"',
        'INSERT INTO "s_p1"."t" ("a") VALUES ($1) ON CONFLICT ("a") DO NOTHING',
        'SELECT "a" FROM "s_control"."boards" UNION ALL SELECT "b" FROM "s_control"."families"',
    ],
)
def test_other_statements_pass(sql: str) -> None:
    assert find_fault(sql) is None

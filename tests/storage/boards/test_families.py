"""Test posts to a family: one transaction writes to many boards and stores one post id while others write."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from querybuilder import col, count, select
from storage.boards.families import delete_family, make_boards, put_family
from storage.boards.shared_tables import sweep_rows
from storage.errors import CatalogFullError, OwnTablesFullError, PostIdConflictError
from storage.periods import PeriodKind
from storage.records import Board, Family, Post, PostStatus
from storage.schema.tables import HIDDEN_ENTRIES, POST_IDS
from tests.storage.deployment import Deployment, Part, counter, part, ranked

XP = ranked("xp", max_scaled=1_000)
NAMES = ("all", "all:org=1", "all:org=2", "2018", "2018:org=1", "2018:org=2")


async def make_family(deployment: Deployment, family_id: str = "f", *, grace_seconds: int = 10**9) -> Family:
    named = {"periods": (PeriodKind.ALL, PeriodKind.YEAR), "grace_s": grace_seconds, "family_id": family_id}
    return await deployment.create_family(XP, counter("shots"), facets=((), ("org",)), **named)  # type: ignore[arg-type]


def make_family_post(
    deployment: Deployment, family: Family, owner: str, xp: int, *boards: Board, post_id: str | None = None
) -> Post:
    """Return a post to a family, in the form in which the service passes posts to the writer."""
    parts: list[Part] = [part(board, {"xp": xp}) for board in boards]
    made = deployment.post(owner, *parts, post_id=post_id)
    return replace(made, fingerprint=f"{owner} {xp}", scope=family.scope)


async def test_a_repeated_post_is_a_duplicate_on_the_boards_that_took_it_first(deployment: Deployment) -> None:
    family = await make_family(deployment)
    one, two = await deployment.make_boards("all:org=1", "all:org=2")
    post = make_family_post(deployment, family, "ada", 5, one, post_id="p")
    [[first], [again]] = await deployment.apply(post, post)
    assert (first.status, again.status) == (PostStatus.APPLIED, PostStatus.DUPLICATE)
    for later in (make_family_post(deployment, family, "ada", 5, two, post_id="p"), replace(post, parts=[])):
        [[repeat]] = await deployment.apply(later)
        assert (repeat.status, repeat.leaf_key, repeat.stats) == (PostStatus.DUPLICATE, one.key, [5, None])
        [[conflict]] = await deployment.apply(replace(later, fingerprint="other"))
        assert isinstance(conflict.error, PostIdConflictError)
    assert await deployment.rows(two, ["ada"]) == {}
    other = await make_family(deployment, "other")
    [board] = await deployment.make_boards("all", family_id=other.id)
    [[elsewhere]] = await deployment.apply(make_family_post(deployment, other, "ada", 5, board, post_id="p"))
    assert elsewhere.status is PostStatus.APPLIED, "each family has its own post ids"


async def test_boards_are_created_once_however_often_they_are_requested(deployment: Deployment) -> None:
    family = await make_family(deployment)
    first = await deployment.make_boards(*NAMES)
    assert await deployment.make_boards(*NAMES) == first
    together = await asyncio.gather(*(deployment.make_boards("2019", "2020") for _ in range(4)))
    assert all(found == together[0] for found in together)
    assert len({board.key for board in [*first, *together[0]]}) == 8
    wanted = ["f:2021"]
    with pytest.raises(CatalogFullError):
        await deployment.store.write(lambda: make_boards(family, wanted, now_us=1, boards_max=8))
    assert len(await deployment.make_boards("all")) == 1, "a board that exists needs no room"


async def test_a_family_creates_no_more_tables_than_a_sqlite_store_may_hold(deployment: Deployment) -> None:
    family = await make_family(deployment)
    [first] = await deployment.make_boards("all")
    wanted = ["f:all", "f:2020", "f:2021"]

    async def make(own_tables_max: int | None) -> list[Board]:
        return await deployment.store.write(
            lambda: make_boards(family, wanted, now_us=1, boards_max=9, own_tables_max=own_tables_max)
        )

    if deployment.dialect.parses_schema and not family.shares_table:
        with pytest.raises(OwnTablesFullError):
            await make(2)
        assert await deployment.make_boards("all") == [first], "no board was created"
        assert len(await make(3)) == 3
    else:
        assert len(await make(2 if family.shares_table else None)) == 3


async def test_hidden_rows_and_post_ids_of_a_deleted_family_are_deleted(deployment: Deployment) -> None:
    family, kept = await make_family(deployment), await make_family(deployment, "kept")
    named_boards = [await deployment.make_boards(*NAMES, family_id=each.id) for each in (family, kept)]
    for each, named in zip((family, kept), named_boards, strict=True):
        for owner in ("ada", "bob", "cleo"):
            await deployment.apply(make_family_post(deployment, each, owner, 5, *named, post_id=owner))
        await deployment.hide("ada", *named)
    await deployment.store.write(lambda: delete_family(family_id="f"))
    steps = [gone async for gone in _swept(deployment, rows_max=2)]
    assert max(steps) <= 2
    for table, left in ((HIDDEN_ENTRIES, len(NAMES)), (POST_IDS, 3)):
        found = select(count()).from_(table).where(col("leaf_key").gt(0)).bind()
        assert await deployment.store.read_query(found) == [(left,)], table


async def _swept(deployment: Deployment, *, rows_max: int) -> AsyncIterator[int]:
    while gone := await deployment.store.write(lambda: sweep_rows(rows_max=rows_max)):
        yield gone


async def test_a_store_refuses_families_beyond_its_limit(deployment: Deployment) -> None:
    family = await make_family(deployment)
    with pytest.raises(CatalogFullError):
        await deployment.store.write(lambda: put_family(family_id="g", spec=family.spec, now_us=1, families_max=1))

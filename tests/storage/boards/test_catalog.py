"""Test which changes of a board are allowed. The board's key, columns and epoch decide what its stored cells mean."""

import asyncio
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from storage.boards.board_creation import create_board
from storage.boards.boards import list_boards
from storage.boards.catalog import Catalog
from storage.boards.families import delete_family
from storage.errors import CatalogFullError, OwnTablesFullError, SpecConflictError, UnknownBoardError
from storage.periods import PeriodKind
from storage.records import Best, Board, Family, Merge, TableSharing, Ties
from storage.store import Store
from tests.storage.deployment import PREDICTOR, Deployment, ranked, spec
from tests.storage.meddling import MeddlingStore, SlowReads

XP, LAP = ranked("xp"), ranked("lap", merge=Merge.MIN, best=Best.LOW, scale=3, min_scaled=0)


async def test_a_new_meaning_of_values_is_a_conflict(deployment: Deployment) -> None:
    made = await deployment.create("b", XP)
    for wanted, pointer in (
        (spec(XP, ties=Ties.EARLIEST), "/ties"), (spec(LAP), "/columns"), (spec(), "/columns"),
        (spec(LAP, replace(XP, merge=Merge.MAX)), "/columns/1"), (spec(replace(XP, best=Best.LOW)), "/columns/0"),
        (spec(replace(XP, scale=1)), "/columns/0"), (spec(replace(XP, min_scaled=0)), "/columns/0"),
        (spec(replace(XP, max_scaled=5)), "/columns/0"), (spec(replace(XP, sorted=False)), "/columns/0"),
    ):  # fmt: skip
        with pytest.raises(SpecConflictError) as refused:
            await deployment.change("b", deployment.laid_out(wanted))
        assert refused.value.pointer == pointer
    assert await deployment.catalog.reread_board("b") == made


async def test_deleting_resetting_or_changing_an_unknown_board_is_refused(deployment: Deployment) -> None:
    wanted = deployment.laid_out(spec(XP))
    for change in (deployment.delete("no"), deployment.reset("no"), deployment.change("no", wanted)):
        with pytest.raises(UnknownBoardError):
            await change


async def test_a_store_refuses_boards_beyond_its_limit(deployment: Deployment) -> None:
    async def create(board_id: str) -> Board:
        asked: dict[str, Any] = {"board_id": board_id, "spec": deployment.laid_out(spec(XP)), "now_us": 1}
        return await deployment.store.write(lambda: create_board(**asked, boards_max=2))

    await create("a")
    b = await create("b")
    with pytest.raises(CatalogFullError):
        await create("c")
    assert await create("b") == b, "a board that exists is confirmed even then"
    await deployment.delete("a")
    assert (await create("c")).key > b.key


async def test_a_sqlite_store_refuses_tables_of_boards_beyond_its_limit(store: Store) -> None:
    """Reach the limit of tables. Only SQLite has it, because there each new table slows down every connection."""
    deployment = await Deployment.on(store)

    limit = 2 if store.dialect.parses_schema else None

    async def create(board_id: str, table: TableSharing) -> Board:
        asked: dict[str, Any] = {"board_id": board_id, "spec": replace(spec(XP), table=table), "now_us": 1}
        return await store.write(lambda: create_board(**asked, boards_max=9, own_tables_max=limit))

    a = await create("a", TableSharing.OWN)
    await create("shared", TableSharing.SHARED)
    await create("b", TableSharing.OWN)
    if limit is not None:
        with pytest.raises(OwnTablesFullError, match='"table": "shared"'):
            await create("c", TableSharing.OWN)
    else:
        await create("c", TableSharing.OWN)
    assert await create("a", TableSharing.OWN) == a, "a board that exists is confirmed even then"
    await create("d", TableSharing.SHARED)
    await deployment.delete("a")
    await create("e", TableSharing.OWN)


async def test_the_catalog_reads_again_before_it_calls_a_board_unknown(deployment: Deployment) -> None:
    elsewhere = Catalog(deployment.store)
    await elsewhere.load(boards_max=10)
    with pytest.raises(UnknownBoardError):
        await elsewhere.find_board("b")
    made = await deployment.create("b", XP)
    assert elsewhere.find_known("b") is None
    assert await elsewhere.find_board("b") == made
    assert elsewhere.find_known("b") == made
    elsewhere.forget_board("b")
    assert elsewhere.list_leaves() == []
    await deployment.delete()
    elsewhere.keep_board(made)
    with pytest.raises(UnknownBoardError):
        await elsewhere.reread_board("b")
    assert elsewhere.find_known("b") is None


@pytest.mark.parametrize("write", ["reset", "create"])
@pytest.mark.parametrize("everything", [False, True])
async def test_catalogs_drop_a_read_that_a_write_overtook(deployment: Deployment, write: str, everything: bool) -> None:
    still = await deployment.create("still", XP)
    if write != "create":
        await deployment.create("b", XP)
    store = SlowReads(deployment.store)
    catalog = Catalog(store)
    reading = asyncio.create_task(catalog.load(boards_max=9) if everything else catalog.reread_board("b"))
    await store.answered.wait()
    if write == "reset":
        catalog.keep_board(await deployment.reset())
    else:
        catalog.keep_board(await deployment.create("b", XP))
    store.go.set()
    await asyncio.wait([reading])
    assert (reading.exception() is not None) == (write == "create" and not everything)
    known = catalog.find_known("b")
    assert known is not None
    assert known.gate.epoch == {"reset": 2, "create": 1}[write]
    assert catalog.find_known("still") == (still if everything else None)
    await catalog.load(boards_max=9)
    assert len(catalog.list_leaves()) == 2


async def test_an_older_version_never_replaces_a_copy(deployment: Deployment) -> None:
    """Keep the versions of a board in every order. The copy is always the latest."""
    made = await deployment.create("b", XP)
    versions = [made, await deployment.reset()]
    for columns, exact_top in ((XP,), 7), ((XP, LAP), 7), ((XP, LAP), 8):
        wanted = spec(*columns, predictor=replace(PREDICTOR, exact_top=exact_top))
        versions.append(await deployment.change("b", deployment.laid_out(wanted)))
    await deployment.delete()
    versions.append(await deployment.create("b", XP))
    assert sorted(versions, key=lambda board: board.version) == versions
    assert len({board.version for board in versions}) == len(versions)
    catalog = Catalog(deployment.store)
    for late, early in permutations(versions, 2):
        newest = max(late, early, key=lambda board: board.version)
        catalog.forget_board("b")
        catalog.keep_board(early)
        assert catalog.keep_board(late) is newest
        assert catalog.find_known("b") is newest


async def test_the_catalog_tells_its_listeners_of_a_deleted_board_once(deployment: Deployment) -> None:
    boards = {name: await deployment.create(name, XP) for name in ("dropped", "reread", "loaded", "anew", "still")}
    catalog, gone = Catalog(deployment.store), list[int]()
    catalog.watch_removals(gone.append)
    await catalog.load(boards_max=9)
    for name in ("dropped", "reread", "loaded", "anew"):
        await deployment.delete(name)
    assert gone == []
    catalog.forget_board("dropped")
    assert gone == [boards["dropped"].key]
    with pytest.raises(UnknownBoardError):
        await catalog.reread_board("reread")
    assert gone == [boards["dropped"].key, boards["reread"].key]
    await deployment.create("anew", XP)
    await catalog.reread_board("anew")
    assert gone[2:] == [boards["anew"].key]
    await catalog.load(boards_max=9)
    assert gone[3:] == [boards["loaded"].key]
    await deployment.reset("still")
    await catalog.load(boards_max=9)
    assert len(gone) == 4, "an emptied board is still the same board"


async def test_a_read_that_began_before_a_board_was_created_does_not_call_it_deleted(deployment: Deployment) -> None:
    store = SlowReads(deployment.store)
    catalog, gone = Catalog(store), list[int]()
    catalog.watch_removals(gone.append)
    reading = asyncio.create_task(catalog.load(boards_max=9))
    await store.answered.wait()
    await deployment.create("b", XP)
    finding = asyncio.create_task(catalog.find_board("b"))
    store.go.set()
    await asyncio.wait([reading, finding])
    assert finding.result().id == "b"
    assert gone == []


# In Berlin 2019 begins at this time. In New York it is the evening before.
NEW_YEAR_US = 1_546_297_200_000_000
DAYS = (PeriodKind.DAY, PeriodKind.WEEK)


async def make_family(deployment: Deployment, time_zone: str = "Europe/Berlin") -> Family:
    return await deployment.create_family(XP, periods=DAYS, facets=((), ("org",)), grace_s=10**9, time_zone=time_zone)


async def test_an_alias_of_a_known_board_is_resolved_without_a_read(deployment: Deployment) -> None:
    await make_family(deployment)
    await deployment.make_boards("2019-01-01", "2019-01-01:org=7", "2018-W52")
    store = MeddlingStore(deployment.store)
    catalog = Catalog(store)
    await catalog.load(boards_max=9)
    await catalog.families.load(families_max=9)
    reads = store.reads
    asked = ["f:today", "b", "f:today:org=7", "f:last-week", "f:2018", "f:tomorrow"]
    expected = ["f:2019-01-01", "b", "f:2019-01-01:org=7", "f:2018-W52", "f:2018", "f:tomorrow"]
    assert await catalog.resolve_aliases(asked, NEW_YEAR_US) == expected
    assert store.reads == reads
    unreached = ["f:yesterday", "f:today:org=1", "f:today:org=2", "f:this-year"]
    expected = ["f:2018-12-31", "f:2019-01-01:org=1", "f:2019-01-01:org=2", "f:2019"]
    assert await catalog.resolve_aliases(unreached, NEW_YEAR_US) == expected
    assert store.reads == reads + 1, "the family is read once for all boards that no post has reached"


async def test_a_board_outside_a_family_keeps_an_id_that_looks_aliased(deployment: Deployment) -> None:
    await deployment.create("x:today", XP)
    await deployment.create("x:today:a=1", XP)
    catalog = Catalog(deployment.store)
    assert await catalog.resolve_aliases(["x:today", "x:today:a=1"], NEW_YEAR_US) == ["x:today", "x:today:a=1"]
    for unknown in ("x:yesterday", "y:today"):
        with pytest.raises(UnknownBoardError):
            await catalog.resolve_aliases(["x:today", unknown], NEW_YEAR_US)


async def test_an_alias_is_resolved_in_the_time_zone_of_a_family_that_was_created_again(deployment: Deployment) -> None:
    await make_family(deployment)
    await deployment.make_boards("2019-01-01")
    catalog = Catalog(deployment.store)
    await catalog.families.load(families_max=9)
    assert await catalog.resolve_aliases(["f:today"], NEW_YEAR_US) == ["f:2019-01-01"]
    await deployment.store.write(lambda: delete_family(family_id="f"))
    await make_family(deployment, "America/New_York")
    [board] = await deployment.make_boards("2019-01-01")
    assert await catalog.reread_board(board.id) == board
    assert await catalog.resolve_aliases(["f:today"], NEW_YEAR_US) == ["f:2018-12-31"]
    await deployment.store.write(lambda: delete_family(family_id="f"))
    with pytest.raises(UnknownBoardError):
        await catalog.resolve_aliases(["f:today"], NEW_YEAR_US)


async def test_boards_are_found_by_a_part_of_their_ids_in_either_case(deployment: Deployment) -> None:
    for name in ("Season-1", "season%2", "daily"):
        await deployment.create(name, XP)

    async def found(contains: str, *, families: bool = True) -> list[str]:
        boards = await deployment.store.read(
            lambda: list_boards(prefix="", after="", limit=9, contains=contains, families=families)
        )
        return [board.id for board in boards]

    assert await found("EASO") == ["Season-1", "season%2"]
    assert await found("n%") == ["season%2"]
    assert await found("ail", families=False) == ["daily"]
    assert await found("_") == []

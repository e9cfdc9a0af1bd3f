"""Test the journal. Once a caller has read up to a number, no row with a smaller number may appear."""

import pytest

from storage.leaves import erasure
from storage.log import owner_index as journal_blocks
from storage.log import partition_journal
from storage.log.bundles import ChangeKind, ChangeRecord
from storage.log.change_log import change_log
from storage.log.owner_index import owner_blocks
from storage.log.partition_journal import JournalRow
from storage.records import Board
from tests.storage.deployment import Deployment, counter, part, ranked, read_changes

XP = ranked("xp", min_scaled=0, max_scaled=999)


def records_of(rows: list[JournalRow]) -> list[ChangeRecord]:
    """Return the record of each row. Fail if a row has none."""
    records = [row.record for row in rows]
    assert None not in records
    return [each for each in records if each is not None]


async def make_blocks(deployment: Deployment) -> int:
    made = 0
    while (block := await deployment.store.read(owner_blocks.build_next_block)) is not None:
        await deployment.store.write(lambda: owner_blocks.store_block(block))
        made += 1
    return made


async def read_of_owner(
    deployment: Deployment, owner: str, *, limit: int, before: int = 2**63 - 1, blocks_max: int = 100
) -> tuple[list[int], int | None]:
    rows, more = await deployment.store.read(
        lambda: partition_journal.read_changes_of_owner(owner, before=before, limit=limit, blocks_max=blocks_max)
    )
    assert {row.owner for row in rows} <= {owner}
    return [row.number for row in rows], more


async def post_to_everybody(deployment: Deployment, board: Board, groups: int) -> None:
    for number in range(groups):
        owners = ["ada", "bob", *([f"guest {number}"] if number % 7 == 0 else [])]
        await deployment.apply(*(deployment.post(owner, part(board, {"xp": 1})) for owner in owners))


@pytest.mark.parametrize("block_changes", [4, 1_000])
async def test_the_changes_of_an_owner_are_read_newest_first(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, block_changes: int
) -> None:
    monkeypatch.setattr(journal_blocks, "BLOCK_CHANGES", block_changes)
    board = await deployment.create("b", XP)
    await post_to_everybody(deployment, board, 20)
    assert (await make_blocks(deployment) > 5) is (block_changes == 4)
    await post_to_everybody(deployment, board, 3)
    every = [row.number for row in await read_changes(deployment.store) if row.owner == "ada"][::-1]
    assert await read_of_owner(deployment, "ada", limit=100) == (every, None)
    seen: list[int] = []
    more: int | None = 2**63 - 1
    while more is not None:
        numbers, more = await read_of_owner(deployment, "ada", limit=3, before=more)
        seen += numbers
    assert seen == every
    assert len((await read_of_owner(deployment, "guest 7", limit=9))[0]) == 1
    assert await read_of_owner(deployment, "nobody", limit=9) == ([], None)


def test_a_filter_holds_all_of_its_owners_and_few_others() -> None:
    owners = [f"player {number}" for number in range(journal_blocks.BLOCK_CHANGES)]
    bits = journal_blocks.filter_of(owners)
    assert all(journal_blocks.may_hold(bits, owner) for owner in owners)
    assert sum(journal_blocks.may_hold(bits, f"other {number}") for number in range(10_000)) < 100


async def test_a_page_from_the_last_number_holds_only_later_changes(deployment: Deployment) -> None:
    board = await deployment.create("b", XP)
    await deployment.apply(deployment.post("ada", part(board, {"xp": 5})))
    _, published = await deployment.store.read(partition_journal.find_ends)
    [row] = await read_changes(deployment.store)
    assert row.number <= published
    assert await read_changes(deployment.store, published) == []
    await deployment.apply(deployment.post("bob", part(board, {"xp": 5})))
    assert [row.owner for row in await read_changes(deployment.store, published)] == ["bob"]


async def test_an_erased_owner_is_renamed_from_the_oldest_row_up(deployment: Deployment) -> None:
    board, other = await deployment.create("b", XP), await deployment.create("c", XP)
    log, store = erasure, deployment.store
    for xp in (1, 2, 3):
        await deployment.apply(*(deployment.post(owner, part(board, {"xp": xp})) for owner in ("ada", "bob")))
    await deployment.apply(deployment.post("ada", part(other, {"xp": 9})))
    begun = await store.read(change_log.take_mark) - 1
    await deployment.apply(deployment.post("ada", part(board, {"xp": 4})))
    until = await store.read(change_log.take_mark) - 1
    await deployment.apply(
        deployment.post("ada", part(board, {"xp": 5})), deployment.post("ada", part(other, {"xp": 5}))
    )
    [stretch], more = await store.read(lambda: log.find_stretches("ada", past=0))
    assert more is None

    async def rename(past: int) -> int | None:
        bounds = {"token": "t", "until": {board.key: until}, "otherwise": begun}
        return await store.write(
            lambda: log.rename_owner("ada", stretch, rows_max=3, past=past, **bounds)  # type: ignore[arg-type]
        )

    async def owners() -> list[str | None]:
        return [row.owner for row in await read_changes(store) if row.leaf_key]

    past = await rename(0)
    assert past is not None
    assert await owners() == [None, "bob", None, "bob", "ada", "bob", "ada", "ada", "ada", "ada"]
    while past is not None:
        past = await rename(past)
    assert await owners() == [None, "bob", None, "bob", None, "bob", None, None, "ada", "ada"]
    rows = await read_changes(store)
    assert {row.record for row in rows if row.owner is None and row.leaf_key} == {None}
    assert rows[0].next == "001", "the cells stay until everybody has counted them"


async def test_erasing_renames_an_owner_in_every_block(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_blocks, "BLOCK_CHANGES", 4)
    board = await deployment.create("b", XP)
    log, store = erasure, deployment.store
    await post_to_everybody(deployment, board, 20)
    await make_blocks(deployment)
    await post_to_everybody(deployment, board, 2)
    until = {board.key: await store.read(change_log.take_mark) - 1}
    past: int | None = 0
    while past is not None:
        stretches, past = await store.read(lambda: log.find_stretches("ada", past=past or 0))  # noqa: B023 - run at once
        for stretch in stretches:
            await store.write(
                lambda: log.rename_owner("ada", stretch, token="t", until=until, otherwise=0, rows_max=99)  # noqa: B023
            )
    owners = [row.owner for row in await read_changes(store)]
    assert "ada" not in owners
    assert owners.count("bob") == 22


async def test_cells_of_an_erased_owner_are_blanked_once_they_are_old(deployment: Deployment) -> None:
    board = await deployment.create("b", XP)
    log, store, clock = erasure, deployment.store, deployment.clock
    await deployment.apply(deployment.post("ada", part(board, {"xp": 5})))
    [stretch], _ = await store.read(lambda: log.find_stretches("ada", past=0))
    until = {board.key: 2**63 - 1}
    await store.write(lambda: log.rename_owner("ada", stretch, token="t", until=until, otherwise=0, rows_max=9))

    async def blank(before_us: int) -> int:
        return await store.write(lambda: log.blank_cells(before_us=before_us, rows_max=9))

    assert await blank(clock.now_us) == 0
    assert await blank(clock.now_us + 1) == 1
    assert await blank(clock.now_us + 1) == 0
    [row] = await read_changes(store)
    assert (row.owner, row.previous, row.next, row.record) == (None, "", "", None)


async def test_the_journal_records_hiding_and_showing_with_the_entrys_cells(deployment: Deployment) -> None:
    board = await deployment.create("b", counter("shots"), XP)
    await deployment.apply(deployment.post("ada", part(board, {"xp": 5, "shots": 3})))
    await deployment.hide("ada", board)
    await deployment.apply(deployment.post("ada", part(board, {"xp": 1})))
    assert await deployment.stats(board, "ada") is None
    await deployment.show("ada", board)
    rows = await read_changes(deployment.store)
    assert [told.kind for told in records_of(rows)] == [
        ChangeKind.FIRST, ChangeKind.HIDDEN, ChangeKind.UNSEEN, ChangeKind.SHOWN,
    ]  # fmt: skip
    assert [(row.previous, row.next) for row in rows] == [
        ("   ", "005"), ("005", "   "), ("   ", "   "), ("   ", "006"),
    ]  # fmt: skip
    assert records_of(rows)[1].cells == [3, "005"]
    assert await deployment.stats(board, "ada") == {"shots": 3, "xp": 6}

"""Test the export of one person's data: it has what every table has under the person's names. An erasure leaves none.

The test walks all tables of the store, so a new table with names of owners fails it until both know the table.
"""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from querybuilder import col, select
from storage import owner_export
from storage.archive.blocks import OWNERS, SectionKind, decode_rows
from storage.boards.boards import list_boards
from storage.boards.postponed_changes import PostponedChange, replace_postponed
from storage.schema import tables
from storage.schema.ingest_tables import INGEST_BLOCKS
from storage.schema.placement import TABLES, list_tables
from tests.service.real_service import ONE_PROCESS, WAIT_S, Service
from tests.service.views.players.test_e2e_tokens import SECRET

OWNER, GUEST = "ada lovelace", "zoe the guest"
OWNER_PATH, GUEST_PATH = "/v1/owners/ada%20lovelace", "/v1/owners/zoe%20the%20guest"
XP = {"name": "xp", "merge": "sum"}
ROWS = "rows of boards"
# By table: the kind of the lines that have what the table has under a name.
KINDS = {
    **{table: table for table in owner_export.OWNED_TABLES}, ROWS: "entries", tables.HIDDEN_ENTRIES: "entries",
    tables.ARCHIVE_BLOCKS: "archived_entries", tables.CHANGE_LOG: "changes", INGEST_BLOCKS: "queued_posts",
    tables.GRANTS: "grants",
}  # fmt: skip


async def fill(service: Service) -> None:
    """Make the owner have, or have had, something of every kind. The guest is one of its accounts."""
    await service.create_first_key()
    for board, spec in (("own", {}), ("shared", {"table": "shared"}), ("spread", {"segments": 2})):
        await service.board(board, XP, {"name": "lap", "merge": "min", "best": "low"}, **spec)
    await service.board("contest", XP, entry={"join": True})
    await service.board("limited", XP | {"gain_per_hour_max": 99})
    await service.must("PUT", "/v1/families/game", {"columns": [XP], "periods": ["all", "day"]})
    league = {"columns": [XP], "column": "xp", "period": "week", "cohort": 3, "divisions": [{"name": "bronze"}]}
    await service.must("PUT", "/v1/leagues/climb", league)
    gold = {"name": "gold", "column": "xp", "to_rank": 2}
    await service.board("season", XP)
    for number, owner in enumerate((OWNER, GUEST, "bob")):
        post = {"owner": owner, "stats": {"xp": 10 - number}}
        for board in ("own", "shared", "spread", "season"):
            await service.post(board, {**post, "post_id": f"run of {owner}"})
        await service.must("POST", "/v1/families/game/posts", post)
        await service.must("POST", "/v1/leagues/climb/posts", post)
        await service.must("POST", "/v1/leaderboards/contest/entries", {"owner": owner})
        await service.post("limited", post, {**post, "post_id": "odd", "hold": True})
    ends_at = datetime.now(UTC) + timedelta(seconds=0.5)
    season = {"columns": [XP], "grace_seconds": 0, "keep_seconds": 0, "closes_at": ends_at, "rewards": [gold]}
    await service.must("PUT", "/v1/leaderboards/season", season)
    async with asyncio.timeout(WAIT_S):
        while not (await service.get("/v1/leaderboards/season"))["archived"]:
            pass
    await service.must("PUT", f"{OWNER_PATH}/profile", {"name": "Ada"})
    await service.must("DELETE", f"{GUEST_PATH}/tokens")
    await service.restart(jobs="none")
    queued = {"owner": GUEST, "stats": {"xp": 1}, "post_id": "late"}
    await service.must("POST", "/v1/leaderboards/own/posts?mode=queued", {"posts": [queued]})
    await service.must("POST", f"{GUEST_PATH}/merge", {"into": OWNER, "reason": f"{OWNER} had two accounts"})
    await service.restart(jobs="embedded")  # it rejects the queued post: its owner was merged
    await service.wait_applied()
    await service.restart(jobs="none")
    await service.must("POST", "/v1/leaderboards/own/posts?mode=queued", {"posts": [{**queued, "owner": OWNER}]})
    void = (
        f"/v1/leaderboards/own/posts/run%20of%20{OWNER_PATH.rpartition('/')[2]}?owner={OWNER_PATH.rpartition('/')[2]}"
    )
    await service.must("DELETE", f"{void}&reason=a%20bug")


def text_of(table: str, row: dict[str, Any]) -> str:
    """Return what a row says, decoded where it is compressed."""
    found = dict(row)
    if table == tables.ARCHIVE_BLOCKS:
        is_rows = row["section"] == OWNERS or row["section"].startswith(SectionKind.TOP)
        found["document"] = [each.owner for each in decode_rows(row["document"]).entries] if is_rows else None
    return repr(found)


async def find_names(service: Service) -> dict[str, list[str]]:
    """Return, for each table that has one of the two names, the texts of its rows that have one."""
    store, found = service.context.store, dict[str, list[str]]()
    walked = list_tables(store.partitions, apart=False)
    assert {table for _, table in walked} == TABLES.keys() - {tables.META}
    for partition, table in walked:
        kinds = TABLES[table].kinds
        for row in await store.at(partition).read_query(select(*map(col, kinds)).from_(table).bind()):
            found.setdefault(table, []).append(text_of(table, dict(zip(kinds, row, strict=True))))
    boards = await store.read(partial(list_boards, prefix="", after="", limit=100, archived=False))
    for leaf in (leaf for board in boards for leaf in board.leaves):
        rows = service.context.boards.open_rows(leaf)
        for entry in await store.at(leaf.partition).read(partial(rows.read_by_owner, "", 100)):
            found.setdefault(ROWS, []).append(repr(entry))
    named = {table: [text for text in texts if OWNER in text or GUEST in text] for table, texts in found.items()}
    return {table: texts for table, texts in named.items() if texts}


async def export(service: Service) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = await service.get(f"{OWNER_PATH}/export")
    assert (lines[0]["kind"], lines[-1]["kind"], lines[-1]["data"]["lines"]) == ("export", "end", len(lines) - 1)
    return lines[1:-1]


def values_of(lines: list[dict[str, Any]], kind: str) -> dict[tuple[str, str], int]:
    of_kind = [each["data"] for each in lines if each["kind"] == kind]
    return {(each["board"], each["owner"]): each["stats"]["xp"] for each in of_kind}


@ONE_PROCESS
async def test_an_export_has_what_all_tables_have_and_an_erasure_leaves_none_of_it(
    tmp_path: Path, either_store: dict[str, Any]
) -> None:
    async with Service(tmp_path, player_token_keys=[SECRET], **either_store).running() as service:
        await fill(service)
        for step in ("shown", "shadowed"):
            if step == "shadowed":
                body = {"shadow": True, "reason": f"{OWNER} cheats"}
                await service.must("PUT", f"{OWNER_PATH}/hidden", body)
                change = PostponedChange(OWNER, 0, "shadow", "token")
                await service.context.store.write(partial(replace_postponed, [change], OWNER))
            lines, held = await export(service), await find_names(service)
            expected = {ROWS} if step == "shown" else {tables.HIDDEN_ENTRIES, tables.OWNER_CHANGES}
            assert expected <= held.keys()
            assert (KINDS.keys() - {ROWS, tables.HIDDEN_ENTRIES, tables.OWNER_CHANGES}) <= held.keys()
            for table, texts in held.items():
                assert table in KINDS, f"{table} has a name that no kind of line has"
                theirs = [repr(each["data"]) for each in lines if each["kind"] == KINDS[table]]
                for name in (OWNER, GUEST):
                    assert any(name in each for each in theirs) or not any(name in text for text in texts), (
                        table,
                        name,
                    )
                assert table not in owner_export.OWNED_TABLES or len(theirs) == len(texts), table
            boards = ("own", "shared", "spread", "game:all")
            entries = values_of(lines, "entries")
            assert {board: entries[board, OWNER] for board in boards} == dict.fromkeys(boards, 19) | {"own": 9}
            assert values_of(lines, "archived_entries") == {("season", OWNER): 10, ("season", GUEST): 9}
            changes = [each["data"] for each in lines if each["kind"] == "changes"]
            posted = Counter(each["owner"] for each in changes if each["kind"] == "post")
            assert posted == {OWNER: 8, GUEST: 9}, "the guest's last one was rejected"
            assert [each["data"]["stats"] for each in lines if each["kind"] == "queued_posts"] == [{"xp": 1}]
            assert [each["data"]["reward"] for each in lines if each["kind"] == "grants"] == ["gold", "gold"]
            assert [each["data"]["profile"] for each in lines if each["kind"] == "profiles"] == [{"name": "Ada"}]
            assert len([each for each in lines if each["kind"] == "token_voids"]) == 1
        [state] = [each["data"] for each in lines if each["kind"] == "hidden_owners" and each["data"]["owner"] == OWNER]
        assert state["state"] == "shadowed"
        assert await service.refused("GET", f"{GUEST_PATH}/export") == (404, "owner_merged")
        await service.must("DELETE", OWNER_PATH)
        assert await find_names(service) == {}
        assert await export(service) == []

"""The handler that exports everything that the store has about one person, as NDJSON. It holds one page in memory.

An error after the first line closes the connection, so an export is complete only if its last line is of the kind
`end`. While an export runs, posts move from the queue to entries, and entries to archives. The handler reads in the
same order, so it misses nothing. If the owner is merged during the export, the export fails.
"""

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, cast

import msgspec
import structlog
from aiohttp import hdrs, web
from msgspec import UNSET, Raw

from service.context import Context
from service.contract.post_bodies import NDJSON_TYPE
from service.contract.responses.journal import ExportKind, ExportLine
from service.contract.routes import Call, Reply
from service.contract.values import format_us
from service.http.endpoint import X_REQUEST_ID
from service.http.fast_json import PlainStream
from service.views.boards.grants import answer_grant
from service.views.posts.journal import make_lines, read_owner_lines
from service.views.posts.posts import format_stats, name_changes
from storage import owner_export
from storage.boards.api_keys import list_voids
from storage.boards.journal import Numbers
from storage.errors import MergeConflictError, StorageError, StoreAwayError
from storage.histories import merged_owners
from storage.leaves.catalog_rows import find_families_by_key, find_leaves
from storage.limits.held_posts import decode_changes
from storage.log.change_log import change_log
from storage.log.merging import Merger
from storage.owner_export import LeafEntry
from storage.records import INT64_MAX, Family, Leaf
from storage.rewards import grants
from storage.schema.creation import in_each_partition
from storage.store import Program

log = structlog.get_logger(__name__)
_HEADERS: dict[str, str] = {hdrs.CONTENT_TYPE: NDJSON_TYPE, hdrs.CACHE_CONTROL: "no-store"}
_JSON = ("profile", "detail", "minutes")  # columns that hold JSON
_UNTOLD = ("post_hash", "fingerprint")  # columns that only the service understands
_encode_lines = msgspec.json.Encoder().encode_lines
_decode_stats = msgspec.json.Decoder(list[int | str | None]).decode


async def export_owner(context: Context, call: Call) -> Reply | web.StreamResponse:
    owner, lines = call.path["owner"], 0
    if call.request.method == hdrs.METH_HEAD:
        return Reply(b"", media_type=NDJSON_TYPE)

    def find_names() -> Program[list[str]]:
        yield from in_each_partition(change_log.read_counter)  # raises an error if a partition does not answer
        return (yield from merged_owners.list_names(owner))

    names = await context.store.read(find_names)
    response = PlainStream(headers={**_HEADERS, X_REQUEST_ID: call.request_id, **(call.answer_headers or {})})
    await response.prepare(call.request)
    try:
        async for page in _list_lines(context, names):
            await response.write(_encode_lines(page))
            lines += len(page)
        if names != await context.store.read(find_names):
            raise MergeConflictError(f"{owner!r} was merged meanwhile")
        await response.write(_encode_lines([_line("end", {"lines": lines})]))
    except (StorageError, ConnectionError) as error:
        log.warning("export_cut_off", detail=str(error))
        if call.request.transport is not None:
            call.request.transport.abort()
    return response


async def _list_lines(context: Context, names: list[str]) -> AsyncIterator[list[ExportLine]]:
    store = context.store
    yield [_line("export", {"owner": names[0], "earlier_ids": names[1:], "at": format_us(context.now_us())})]
    async for table, rows in owner_export.read_rows(store, names):
        keys = {row["leaf_key"] for row in rows if "leaf_key" in row}
        leaves = await store.read(partial(find_leaves, sorted(keys)))
        keys = {row["family_key"] for row in rows if row.get("family_key") is not None}
        families = (await store.read(partial(find_families_by_key, keys))) if keys else {}
        yield [_line(table, _tell_row(row, leaves, families)) for row in rows]
    if (tokens := context.keyring.tokens) is not None:
        voids = await store.read(list_voids)
        voided = [voids[each] for each in map(tokens.hash_owner, names) if each in voids]
        yield [_line("token_voids", {"voided_at": format_us(each)}) for each in voided]
    for name in names:
        before, limit = (INT64_MAX, 0), owner_export.ROWS_A_PAGE
        while page := await store.read(partial(grants.list_of_owner, name, before=before, limit=limit)):
            yield [_line("grants", answer_grant(each)) for each in page]
            before = page[-1][:2]
    async for queued, leaves in owner_export.read_queued(store, names):
        lines = list(make_lines(((row.number, row) for row in queued), leaves))
        for line in lines:
            line.status = UNSET  # it was not applied yet
        yield [_line("queued_posts", line) for line in lines]
    async for entries in owner_export.read_entries(store, context.boards, names):
        yield [_line("entries", _tell_entry(each)) for each in entries]
    async for entries in owner_export.read_archived(store, names):
        yield [_line("archived_entries", _tell_entry(each)) for each in entries]
    place: Numbers | None = None
    while True:
        limit = context.settings.page_entries_default
        changes, place, away = await read_owner_lines(context, names[0], place, limit)
        if away:
            raise StoreAwayError(f"the partitions {sorted(away)} do not answer")
        yield [_line("changes", each) for each in changes]
        if place is None:
            return


def _line(kind: str, data: object) -> ExportLine:
    return ExportLine(cast(ExportKind, kind), Raw(msgspec.json.encode(data)))


def _tell_row(row: Mapping[str, Any], leaves: Mapping[int, Leaf], families: Mapping[int, Family]) -> dict[str, object]:
    told: dict[str, object] = {}
    leaf = leaves.get(row.get("leaf_key", -1))  # None: the board was deleted
    for name, value in row.items():
        if name in _UNTOLD:
            continue
        if name == "leaf_key":
            told["board"] = None if leaf is None else leaf.id
        elif name == "family_key":
            told["family"] = families[value].id if value in families else None
        elif name == "stats":
            told[name] = None if leaf is None else format_stats(leaf.spec, _decode_stats(value))
        elif name == "changes":
            for member, overwrite in (("stats", False), ("set", True)):
                named = None if leaf is None else name_changes(leaf.spec, decode_changes(value), overwrite=overwrite)
                told[member] = named
        elif value is not None and (name == "at" or name.endswith("_at")):
            told[name] = format_us(value)
        else:
            told[name] = Raw(value.encode()) if name in _JSON and value is not None else value
    return told


def _tell_entry(found: LeafEntry) -> dict[str, object]:
    leaf, entry = found
    stats = format_stats(leaf.spec, Merger(leaf.spec).decode_stats(entry.cells))
    return {"board": leaf.id, "owner": entry.owner, "updated_at": format_us(entry.updated_at_us), "stats": stats}

"""Reads everything that a store keeps about one person, page by page, for the export of the person's data.

    `read_rows`         rows of `OWNED_TABLES`, which name an owner in their column `owner`
    `read_entries`      entries on boards that have rows, hidden ones included
    `read_archived`     entries in archives
    `read_queued`       posts that wait in the ingest queue

The journal and grants have readers of their own. An erasure (`owners`) removes the same data. A test finds every table
that names an owner and that either of the two forgets. `names` are the owner and all of the owner's earlier ids.
"""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from querybuilder import ASC, asc, col, param, seek, select

from .archive.archive_reader import ArchivedEntries, list_archives_of_owner
from .boards.boards import list_boards
from .leaves.catalog_rows import find_leaves
from .log.bundles import ChangeKind, ChangeRecord
from .log.partition_journal import JournalRow
from .queue import ingest_queue
from .queue.post_blocks import decode_block, encode_json, shard_of
from .queue.queue_erasure import read_layout
from .reads.open_boards import OpenBoards
from .reads.point_reads import read_owner_on_leaves
from .records import Entry, Leaf, by_partition
from .schema import tables
from .schema.creation import count_partitions
from .schema.placement import TABLES
from .store import CONTROL, Program, Store, in_partition

ROWS_A_PAGE = 500
BOARDS_A_PAGE = 100
BLOCKS_A_PAGE = 10  # of the queue; a block holds up to 200 posts
_IN_EACH_PARTITION = (tables.ENTRANTS, tables.SEATS, tables.STANDINGS, tables.HELD_POSTS, tables.GAINS)
_IN_EVERY_PARTITION_ALIKE = (tables.HIDDEN_OWNERS,)
OWNED_TABLES = (
    *_IN_EVERY_PARTITION_ALIKE, *_IN_EACH_PARTITION,
    tables.PROFILES, tables.ACTS, tables.MERGED_OWNERS, tables.MERGED_ENTRIES, tables.OWNER_CHANGES,
)  # fmt: skip
LeafEntry = tuple[Leaf, Entry]


async def read_rows(store: Store, names: Sequence[str]) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """Yield pages of rows from `OWNED_TABLES`, as dicts by column, each page with the name of its table."""
    partitions = await store.read(count_partitions)
    for table in OWNED_TABLES:
        kinds, keys = TABLES[table].kinds, TABLES[table].keys
        rows = select(*map(col, kinds)).from_(table).where(col("owner").in_(param("owners")))
        first = rows.order_by(*(asc(col(key)) for key in keys)).limit(ROWS_A_PAGE)
        following = first.where(seek(*((key, ASC, param(key)) for key in keys)))
        places = [CONTROL] if table not in _IN_EACH_PARTITION else range(partitions)
        for place in [0] if table in _IN_EVERY_PARTITION_ALIKE else places:
            last: dict[str, Any] = {}
            while True:
                query = (following if last else first).bind(owners=list(names), **last)
                page = [dict(zip(kinds, row, strict=True)) for row in await store.at(place).read_query(query)]
                if page:
                    yield table, page
                if len(page) < ROWS_A_PAGE:
                    break
                last = {key: page[-1][key] for key in keys}


async def read_entries(store: Store, boards: OpenBoards, names: Sequence[str]) -> AsyncIterator[list[LeafEntry]]:
    """Yield the entries on boards that have rows, page by page, each with the leaf that stores it."""
    after: str | None = ""
    while after is not None:
        found, after = await store.read(partial(_read_entries, boards, names, after))
        yield found


def _read_entries(opened: OpenBoards, names: Sequence[str], after: str) -> Program[tuple[list[LeafEntry], str | None]]:
    boards, found = (yield from list_boards(prefix="", after=after, limit=BOARDS_A_PAGE, archived=False)), []
    for name in names:
        for partition, leaves in by_partition(board.leaf_of(name) for board in boards):
            reading = read_owner_on_leaves(list(map(opened.open_leaf, leaves)), name)
            read = yield from in_partition(partition, reading)
            found += [(leaf, own) for leaf, each in zip(leaves, read, strict=True) if (own := each.entry or each.told)]
    return found, boards[-1].id if len(boards) == BOARDS_A_PAGE else None


async def read_archived(store: Store, names: Sequence[str]) -> AsyncIterator[list[LeafEntry]]:
    for partition in range(await store.read(count_partitions)):
        for name in names:
            after = -1
            while keys := await store.at(partition).read(
                partial(list_archives_of_owner, name, after_key=after, limit=BOARDS_A_PAGE)
            ):
                leaves = await store.read(partial(find_leaves, keys))
                yield await store.at(partition).read(partial(_read_archived, [*leaves.values()], name))
                after = keys[-1]


def _read_archived(leaves: Sequence[Leaf], name: str) -> Program[list[LeafEntry]]:
    found = []
    for leaf in leaves:
        archive = ArchivedEntries(leaf)
        theirs = (yield from archive.find_entries([name])) or (yield from archive.of_hidden([name]))
        found += [(leaf, entry) for entry in theirs.values()]
    return found


async def read_queued(store: Store, names: Sequence[str]) -> AsyncIterator[tuple[list[JournalRow], dict[int, Leaf]]]:
    """Yield pages of waiting posts, as journal rows of posts not applied yet, with their leaves by key."""
    shards, partitions = await store.read(read_layout)
    for partition in ingest_queue.list_queues(store.dialect, partitions) if shards else ():
        for name in names:
            past, shard, text = 0, shard_of(name, shards), encode_json(name)
            finding = partial(ingest_queue.find_mentions, text, shard=shard, blocks_max=BLOCKS_A_PAGE)
            while blocks := await store.at(partition).read(partial(finding, past=past)):
                rows = []
                for head, text_of_block in blocks:
                    block, past = decode_block(text_of_block), head.number
                    for post in block.posts:
                        for index, place in enumerate(post.boards if post.owner == name else ()):
                            posted = ChangeRecord(
                                ChangeKind.UNCHANGED, list(post.changes_to(index)), post.post_id, post.at_us
                            )
                            at_us = post.at_us or head.queued_at_us
                            key = block.boards[place][0]
                            rows.append(JournalRow(past, key, name, at_us, "", "", posted, head.queued_at_us))
                keys = sorted({row.leaf_key for row in rows})
                yield rows, await store.read(partial(find_leaves, keys))

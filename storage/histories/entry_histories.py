"""Reads the history of entries, all the posts that made each one since its first, from the journal.

An entry that was merged with another owner's has the posts of both. The journal keeps each post under the owner's name
at that time, so a history is read under all of the owner's names (see `merged_owners`).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from querybuilder import col, param, select
from storage.boards import journal
from storage.errors import JournalIncompleteError
from storage.log.bundles import BEGINNINGS, MERGES
from storage.log.partition_journal import JournalRow
from storage.schema.tables import BOARDS
from storage.store import Program

CLOCK_SKEW_US_MAX = 600_000_000  # the clocks of two processes differ by less than this
CHANGES_MAX = 100_000  # the most changes of an owner that one call reads, because it holds them in memory
_PAGE_CHANGES = 1_000
_BLOCKS_MAX = 1_000_000  # more blocks than a journal has: if need be, one call reads it to its beginning
# By key of a board and name of an owner: the owner's changes with their partitions, newest first.
Histories = Mapping[tuple[int, str], list[tuple[int, JournalRow]]]


def read_histories(names: Iterable[str], board_of: Mapping[int, int], partitions: Sequence[int]) -> Program[Histories]:
    """Read these owners' changes, each from the change that created the entry, or from the beginning of the journal.

    `board_of` maps each key under which the journal may know a board to the board's key in the result.
    """
    found: defaultdict[tuple[int, str], list[tuple[int, JournalRow]]] = defaultdict(list)
    for name in names:
        unfinished, before, changes = {*board_of.values()}, None, 0
        while unfinished and changes <= CHANGES_MAX:
            page, before = yield from journal.read_posts_of_owner(
                [name], before=before, limit=_PAGE_CHANGES, blocks_max=_BLOCKS_MAX, partitions=partitions
            )
            changes += len(page)
            for partition, row in page:
                if (key := board_of.get(row.leaf_key)) in unfinished:
                    found[key, name].append((partition, row))
                    if row.kind in BEGINNINGS:
                        unfinished.discard(key)
            if before is None:
                break
    return found


def join_histories(
    histories: Histories, board_key: int, owners: Iterable[str], rebuilt_us: int = 0
) -> list[JournalRow]:
    """Join all changes to these owners' entries, and to entries merged into them, in journal order.

    `rebuilt_us` is when the board was last rebuilt from posts that include those to earlier boards.

    Raises:
        JournalIncompleteError: the journal lacks the beginning of an entry, or the entry includes other posts as well.
    """
    wanted = [*owners]
    found = []
    for name in wanted:  # it grows
        theirs = histories.get((board_key, name), [])
        if not theirs or theirs[-1][1].kind not in BEGINNINGS:
            raise JournalIncompleteError("the journal no longer has the post that made the entry")
        found += theirs
        merges = (row.record for _, row in theirs if row.record is not None and row.record.kind in MERGES)
        wanted += [record.owner for record in merges if record.owner is not None]
    rows = _in_order(found)
    if rebuilt_us and rows[0].logged_us <= rebuilt_us + CLOCK_SKEW_US_MAX:
        raise JournalIncompleteError("the entry was rebuilt from posts to earlier leaderboards of that name")
    return rows


def _in_order(found: Iterable[tuple[int, JournalRow]]) -> list[JournalRow]:
    """Order changes as journal pages do: each partition in its own order, with the partitions merged by time."""
    # A job may finish a block of the journal during the search. Then the search finds changes of the block twice.
    rows, latest = {(partition, row.number): row for partition, row in found}, dict[int, int]()
    order: dict[tuple[int, int], tuple[int, int, int]] = {}
    for partition, number in sorted(rows):
        latest[partition] = max(latest.get(partition, 0), rows[partition, number].logged_us)
        order[partition, number] = latest[partition], partition, number
    return [rows[place] for place in sorted(rows, key=order.__getitem__)]


def find_rebuilt(board_keys: Iterable[int]) -> Program[int]:
    """Find when any of these boards was last rebuilt from posts that include those to earlier boards, or return 0."""
    times = yield _REBUILT.bind(keys=list(board_keys))
    return max((at_us for at_us in chain(*times) if at_us is not None), default=0)


_REBUILT = select(col("rebuilt_at")).from_(BOARDS).where(col("board_key").in_(param("keys"))).packed().prepared()

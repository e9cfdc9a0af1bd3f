"""Presents the change logs of all partitions to callers as one list, the journal.

Each partition numbers its own changes. To make one list of them, a page merges the logs by the time at which changes
were logged, and a reader remembers one number per partition: that of the last change it has read there.
`partition_journal` explains these numbers.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice

from storage.leaves.catalog_rows import find_leaves
from storage.log import partition_journal
from storage.log.bundles import ChangeKind, ChangeRecord, RecordFields, record_of_board_event, record_of_deletion
from storage.log.change_log import BundleSizes, NewChange, change_log, last_number_before
from storage.log.partition_journal import JOURNAL_PAGES, JournalRow, changes_of
from storage.records import INT64_MAX, SEGMENT_SIGN, Leaf, by_partition
from storage.schema.creation import count_partitions
from storage.store import Program, Row, in_partition

_LEAVES_A_STATEMENT = 1_000  # one statement logs events of at most this many leaves; a deletion's row holds a spec
# The number of a change in each partition, by the index of the partition. Numbers that are missing at the end are 0.
Numbers = tuple[int, ...]
# Changes of these kinds concern a whole board. They are logged once for each segment of the board.
_OF_WHOLE_BOARD = (ChangeKind.RESET, ChangeKind.DELETED, ChangeKind.MOVED)


@dataclass(frozen=True, slots=True)
class JournalPage:
    after: Numbers  # in each partition, the page begins after the change with this number
    begins_after: Numbers  # changes up to these numbers were pruned; valid only for a page of all boards
    bundles: list[tuple[int, Row]]  # pairs of a partition and a bundle, in the order of the page
    limit: int

    def list_changes(self) -> Iterator[tuple[Numbers, JournalRow]]:
        """Yield each change on the page, with the numbers to pass as `after` to continue after this change."""
        return islice(self._list_changes(), self.limit)

    def _list_changes(self) -> Iterator[tuple[Numbers, JournalRow]]:
        numbers = [*self.after]
        for partition, bundle in self.bundles:
            for change in changes_of(bundle):
                if change.number > numbers[partition]:
                    numbers[partition] = change.number
                    yield tuple(numbers), change

    def find_lost(self, after: Numbers) -> tuple[int, int] | None:
        """Find two numbers between which the reader missed pruned changes, or return None if it missed none.

        `after` holds the last numbers that the reader has read. The result is for the first partition with missed
        changes.
        """
        pairs = zip(padded(after, len(self.begins_after)), self.begins_after, strict=True)
        return next(((number, begin) for number, begin in pairs if number < begin), None)


def read_page(
    after: Numbers, *, limit: int, partitions: Sequence[int], boards: Sequence[int] | None = None
) -> Program[JournalPage]:
    """Read a page of at most `limit` changes in these partitions after the numbers `after`, the oldest first.

    With `boards`, return only changes of boards with these keys.
    """
    start = [*padded(after, max(partitions, default=0) + 1)]
    begins = [0] * len(start)
    sizes: dict[int, BundleSizes] = {}
    for partition in partitions:
        reading = JOURNAL_PAGES.read_sizes(start[partition], limit=limit, boards=boards)
        found = sizes[partition] = yield from in_partition(partition, reading)
        # Without rows, the reader has read everything up to the last bundle of entries, which is never pruned.
        if found.rows:
            begins[partition] = max(0, last_number_before(found.rows[0].pruned_before))
    chosen = _choose_bundles(sizes, limit)
    bundles: dict[int, Iterator[Row]] = {}
    for partition, count in Counter(chosen).items():
        read = JOURNAL_PAGES.read_rows(start[partition], limit=count, boards=boards)
        bundles[partition] = iter((yield from in_partition(partition, read)))
    merged = [(partition, next(bundles[partition])) for partition in chosen]
    return JournalPage(tuple(map(max, start, begins)), tuple(begins), merged, limit)


def read_posts_of_owner(
    owners: Sequence[str], *, before: Numbers | None, limit: int, blocks_max: int, partitions: Sequence[int]
) -> Program[tuple[list[tuple[int, JournalRow]], Numbers | None]]:
    """Read an owner's changes as pairs (partition, change), newest first, and the `before` for the next page.

    `owners` holds all ids of the owner, see `histories.merged_owners`.

    Only `partitions` are searched. The next page can search the others, starting from their numbers in `before`.

    With `before`, only changes with smaller numbers are returned. The search covers at most about `blocks_max` blocks
    (groups of log rows) in all partitions together. If this limit cuts the search of one partition short, its remaining
    changes come on later pages, even if they are newer than other partitions' changes on this page.
    """
    places = yield from count_partitions()  # more than `partitions`, so that the next page finds the others, too
    numbers = (INT64_MAX,) * places if before is None else padded(before, places)
    found: dict[int, list[JournalRow]] = {}
    following = [*numbers]
    for partition in partitions:
        if numbers[partition]:
            read = partition_journal.read_changes_of_owners(
                owners, before=numbers[partition], limit=limit, blocks_max=max(1, blocks_max // len(partitions))
            )
            found[partition], more = yield from in_partition(partition, read)
            following[partition] = more or 0
    shown = _choose_newest(found, limit)
    for partition, rows in found.items():
        theirs = [row.number for place, row in shown if place == partition]
        if len(theirs) < len(rows):
            following[partition] = [numbers[partition], *theirs][-1]
    return shown, tuple(following) if any(following[partition] for partition in partitions) else None


def _choose_newest(found: Mapping[int, list[JournalRow]], limit: int) -> list[tuple[int, JournalRow]]:
    order = sorted(
        (-logged_us, partition, index)
        for partition, rows in found.items()
        for index, logged_us in enumerate(accumulate((row.logged_us for row in rows), min))
    )
    return [(partition, found[partition][index]) for _, partition, index in order[:limit]]


def find_ends(partitions: Sequence[int]) -> Program[tuple[Numbers, Numbers]]:
    """Collect the results of `partition_journal.find_ends` for these partitions, with 0 for each of the others."""
    begins, ends = ([0] * (max(partitions) + 1) for _ in range(2))
    for partition in partitions:
        begins[partition], ends[partition] = yield from in_partition(partition, partition_journal.find_ends())
    return tuple(begins), tuple(ends)


def find_begins() -> Program[Numbers]:
    """Find, for each partition, the number after which its journal is complete."""
    return (yield from find_ends(range((yield from count_partitions()))))[0]


def find_changed_leaves(changes: Iterable[tuple[int, int]], partitions: Sequence[int]) -> Program[dict[int, Leaf]]:
    """Find the leaves, by key, that changes belong to. `changes` pairs a partition with a leaf key from its log.

    A deleted leaf is still found for as long as the journal of these partitions records its deletion.
    """
    places = {key: partition for partition, key in changes}
    if not places:
        return {}
    found = yield from find_leaves(sorted(places))
    for key in sorted(places.keys() - found.keys()):
        # If the board was moved before it was deleted, the deletion is in another partition than these changes.
        others = (each for each in partitions if each != places[key])
        for partition in (places[key], *others):
            found |= yield from in_partition(partition, partition_journal.find_deletion(key))
            if key in found:
                break
    return found


def log_event(leaves: Iterable[Leaf], kind: ChangeKind, now_us: int) -> Program[None]:
    """Log that this transaction empties these leaves' boards, moves them to another partition, or splits them.

    One change is logged for each segment; `is_told` decides which of them callers see. After a move or split, the
    change makes streams look up the board in the catalog again.
    """
    yield from _log_changes(leaves, lambda leaf: record_of_board_event(kind, leaf.id, leaf.key), now_us)


def log_deleted(leaves: Iterable[Leaf], now_us: int) -> Program[None]:
    """Log that this transaction deletes these leaves. Readers can still read the leaves' earlier changes."""
    yield from _log_changes(leaves, lambda leaf: record_of_deletion(_name_of(leaf), leaf.spec), now_us)


def _log_changes(leaves: Iterable[Leaf], record_of: Callable[[Leaf], RecordFields], now_us: int) -> Program[None]:
    for partition, theirs in by_partition(leaves):
        for start in range(0, len(theirs), _LEAVES_A_STATEMENT):
            some = theirs[start : start + _LEAVES_A_STATEMENT]
            changes = [NewChange(leaf.key, "", "", "", record_of(leaf)) for leaf in some]
            yield from in_partition(partition, change_log.append_changes(changes, now_us=now_us))


def padded(numbers: Numbers, partitions: int) -> Numbers:
    """Append a 0 to `numbers` for each partition that has no number yet."""
    return numbers + (0,) * (partitions - len(numbers))


def _choose_bundles(sizes: Mapping[int, BundleSizes], limit: int) -> list[int]:
    """Choose which partition each of a page's bundles (log rows) comes from, in page order, oldest bundles first."""
    ordered = sorted(
        (
            (logged_us, partition, index, count)
            for partition, found in sizes.items()
            for index, (logged_us, count) in enumerate(found.sized())
        )
    )
    held = accumulate((count for *_, count in ordered), initial=0)
    return [partition for (_, partition, *_), before in zip(ordered, held, strict=False) if before < limit]


def _name_of(leaf: Leaf) -> str:
    return f"{leaf.id}{SEGMENT_SIGN}{leaf.segment}" if leaf.segment else leaf.id


def is_told(leaf: Leaf | None, record: ChangeRecord | None) -> bool:
    """Return whether callers see a row of the journal. `leaf` is the leaf that the row belongs to, if it is known.

    A change to a whole board is logged once for each leaf, but callers see only the first leaf's row. Rows from before
    a split belong to a leaf with the board's own key, so callers see all of them.
    """
    of_whole = record is not None and record.kind in _OF_WHOLE_BOARD
    return leaf is None or not leaf.segment or not of_whole

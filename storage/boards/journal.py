"""The journal: the change logs of all partitions as callers read them.

A page merges the partitions by the time at which changes were logged. So the place of a reader is a number for each
partition, see `partition_journal`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice

from storage.leaves.catalog_rows import find_leaves
from storage.log import partition_journal
from storage.log.change_log import NewChange, change_log
from storage.log.log_record import ChangeKind, ChangeRecord, record_of_deletion, record_of_event
from storage.log.partition_journal import BundleSizes, JournalRow, changes_of, last_number_before
from storage.records import INT64_MAX, SEGMENT_SIGN, Board, Leaf, by_partition
from storage.schema.creation import in_each_partition
from storage.store import Program, Row, in_partition

_DELETED_A_STATEMENT = 1_000  # deleted boards that one statement logs, each with its spec
# A number of each partition, in their order. A partition that is left out has the number 0.
Numbers = tuple[int, ...]
# What happens to a whole board, and so to each of its segments.
_OF_WHOLE_BOARD = (ChangeKind.RESET, ChangeKind.DELETED, ChangeKind.MOVED)


@dataclass(frozen=True, slots=True)
class JournalPage:
    after: Numbers  # the page begins after these numbers
    begins_after: Numbers  # where earlier changes were removed from each partition; only of a page with all boards
    bundles: list[tuple[int, Row]]  # each with its partition, in the order of the page
    limit: int

    def list_changes(self) -> Iterator[tuple[Numbers, JournalRow]]:
        """Yield the changes of the page, each with the numbers after which a reader continues."""
        return islice(self._list_changes(), self.limit)

    def _list_changes(self) -> Iterator[tuple[Numbers, JournalRow]]:
        numbers = [*self.after]
        for partition, bundle in self.bundles:
            for change in changes_of(bundle):
                if change.number > numbers[partition]:
                    numbers[partition] = change.number
                    yield tuple(numbers), change

    def find_lost(self, after: Numbers) -> tuple[int, int] | None:
        """Return the number of a reader and the later begin of the journal in the first partition that has one.

        Between the two, changes were removed that the reader has not seen.
        """
        pairs = zip(padded(after, len(self.begins_after)), self.begins_after, strict=True)
        return next(((number, begin) for number, begin in pairs if number < begin), None)


def read_page(
    after: Numbers, *, limit: int, partitions: Sequence[int], boards: Sequence[int] | None = None
) -> Program[JournalPage]:
    """Return at most `limit` changes of these partitions with greater numbers than `after`, the oldest first.

    `boards`: only changes of boards with these keys.
    """
    start = [*padded(after, max(partitions, default=0) + 1)]
    begins = [0] * len(start)
    sizes: dict[int, BundleSizes] = {}
    for partition in partitions:
        found = yield from in_partition(
            partition, partition_journal.read_sizes(start[partition], limit=limit, boards=boards)
        )
        sizes[partition] = found
        # The last bundle is never removed. So if nothing follows the reader's number, the reader missed nothing.
        if found.rows:
            begins[partition] = max(0, last_number_before(found.rows[0].pruned_before))
    chosen = _choose_bundles(sizes, limit)
    bundles: dict[int, Iterator[Row]] = {}
    for partition, count in Counter(chosen).items():
        read = partition_journal.read_bundles(start[partition], limit=count, boards=boards)
        bundles[partition] = iter((yield from in_partition(partition, read)))
    merged = [(partition, next(bundles[partition])) for partition in chosen]
    return JournalPage(tuple(map(max, start, begins)), tuple(begins), merged, limit)


def read_posts_of_owner(
    owner: str, *, before: Numbers | None, limit: int, blocks_max: int, partitions: int
) -> Program[tuple[list[tuple[int, JournalRow]], Numbers | None]]:
    """Return an owner's changes in all partitions, newest first, each with its partition, and the next `before`.

    `before`: only changes with smaller numbers; None: all. `blocks_max` bounds the search as in
    `read_changes_of_owner`. If the search ends at that bound, the next page may have some newer changes.
    """
    numbers = (INT64_MAX,) * partitions if before is None else padded(before, partitions)
    found: list[list[JournalRow]] = []
    following = [*numbers]
    for partition, number in enumerate(numbers):
        rows: list[JournalRow] = []
        if number:
            read = partition_journal.read_changes_of_owner(
                owner, before=number, limit=limit, blocks_max=max(1, blocks_max // partitions)
            )
            rows, more = yield from in_partition(partition, read)
            following[partition] = more or 0
        found.append(rows)
    order = sorted(
        (-logged_us, partition, index)
        for partition, rows in enumerate(found)
        for index, logged_us in enumerate(accumulate((row.logged_us for row in rows), min))
    )
    shown = [(partition, found[partition][index]) for _, partition, index in order[:limit]]
    for partition, rows in enumerate(found):
        theirs = [row.number for place, row in shown if place == partition]
        if len(theirs) < len(rows):
            following[partition] = theirs[-1] if theirs else numbers[partition]
    return shown, tuple(following) if any(following) else None


def find_begins() -> Program[Numbers]:
    """Return the number of each partition after which the journal is complete there."""
    return tuple(begin for begin, _ in (yield from in_each_partition(partition_journal.find_ends)))


def find_changed_leaves(changes: Iterable[tuple[int, int]], partitions: int) -> Program[dict[int, Leaf]]:
    """Return leaves by key. `changes` has pairs of a partition and the key of a leaf whose changes are there.

    A deleted leaf is returned as long as the journal holds its deletion.
    """
    places = {key: partition for partition, key in changes}
    if not places:
        return {}
    found = yield from find_leaves(sorted(places))
    for key in sorted(places.keys() - found.keys()):
        # If the board was moved, another partition than that of the changes has its deletion.
        others = (each for each in range(partitions) if each != places[key])
        for partition in (places[key], *others):
            found |= yield from in_partition(partition, partition_journal.find_deletion(key))
            if key in found:
                break
    return found


def log_event(board: Board, kind: ChangeKind, now_us: int) -> Program[None]:
    """Log in the partition of a board that this transaction empties the board, or moves it to another partition.

    Each segment gets a row of its own; `is_told` says which rows callers see. After a move, readers of streams look
    for the board in the catalog again.
    """
    for partition, leaves in by_partition(board.leaves):
        events = [NewChange(leaf.key, "", "", "", record_of_event(kind)) for leaf in leaves]
        yield from in_partition(partition, change_log.append_changes(events, now_us=now_us))


def log_deleted(leaves: Iterable[Leaf], now_us: int) -> Program[None]:
    """Log that this transaction deletes the leaves of boards. Their earlier changes stay readable."""
    for partition, theirs in by_partition(leaves):
        for start in range(0, len(theirs), _DELETED_A_STATEMENT):
            some = theirs[start : start + _DELETED_A_STATEMENT]
            events = [NewChange(leaf.key, "", "", "", record_of_deletion(_name_of(leaf), leaf.spec)) for leaf in some]
            yield from in_partition(partition, change_log.append_changes(events, now_us=now_us))


def padded(numbers: Numbers, partitions: int) -> Numbers:
    """Return a number for each partition."""
    return numbers + (0,) * (partitions - len(numbers))


def _choose_bundles(sizes: Mapping[int, BundleSizes], limit: int) -> list[int]:
    """Return the partition of each bundle of a page with `limit` changes, in the order of the page."""
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
    """Return the id of the leaf's board, and for each leaf but the first also the number of the leaf."""
    return f"{leaf.id}{SEGMENT_SIGN}{leaf.segment}" if leaf.segment else leaf.id


def is_told(leaf: Leaf | None, record: ChangeRecord | None) -> bool:
    """Return whether callers see a row of the journal. `leaf` is the leaf that the row belongs to, if it is known.

    What happens to a whole board is logged once for each leaf; callers see only the row of the first leaf. The rows
    from before the board was split belong to its own leaf, so callers see all of them.
    """
    of_whole = record is not None and record.kind in _OF_WHOLE_BOARD
    return leaf is None or not leaf.segment or not of_whole

"""Reads, in one snapshot, the changes and new curves that a job has to fold (add) into the live counts.

The mark is the first log position that is not folded. Run these programs in the partition whose log is folded.

    mark ──changes of every board──> now             are added to the live counts that a curve has already
    mark of a fit ──changes of its board──> now      are the first live counts of a new curve, which has none yet

The needed changes may have been pruned, or be too many. After a restore from a backup, log positions may belong to
other changes. If the changes since the mark cannot be used, `lost` is set, and the caller reads again, treating all
curves as new. A new curve whose changes cannot be used is in `void`, and has no live counts until the next fit.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from config.settings import JobSettings
from storage.leaves.catalog_rows import find_leaves
from storage.leaves.totals import find_totals
from storage.log.bundles import Bundle
from storage.log.change_log import LogState, change_log
from storage.records import INT64_MAX, Leaf
from storage.store import Program

from .live_counts import FoldState, Slot, StoredCounts, counted_fits, counts_of, find_fold_state, list_bundles_after
from .stored_curves import ListedCurve, curves_after, read_documents

# A query names at most this many boards. With more, comparing the keys costs as much as reading all boards' changes.
NAMED_BOARDS_MAX = 200


class NetChanges:
    """Nets the changes of each owner: the owner's row before the first change and after the last change."""

    def __init__(self) -> None:
        # By leaf key, then owner: number of the first change, row before it, number of the last change, row after it.
        self._boards: dict[int, dict[str, tuple[int, str, int, str]]] = {}

    def add_bundles(self, bundles: Iterable[Bundle]) -> None:
        """Add the changes in these bundles, which may come in any order because their changes are numbered."""
        for bundle in bundles:
            owners = self._boards.setdefault(bundle.leaf_key, {})
            for number, owner, previous, following in bundle.changes():
                if previous == following:
                    continue
                first, before, last, after = owners.get(owner, (number, previous, number, following))
                if number < first:
                    first, before = number, previous
                if number > last:
                    last, after = number, following
                owners[owner] = first, before, last, after

    def of_boards(self) -> dict[int, list[tuple[str, str]]]:
        """Return pairs (row before, row after), by leaf key. Owners whose changes cancel out are left out."""
        found = {
            leaf_key: [(before, after) for _, before, _, after in owners.values() if before != after]
            for leaf_key, owners in self._boards.items()
        }
        return {leaf_key: moved for leaf_key, moved in found.items() if moved}


@dataclass(slots=True)
class KnownCurves:
    """The curves that the folding process knows. `held` are the columns whose curves it keeps decoded in memory."""

    version: int = 0  # the version of the newest curve that the process knows
    fits: dict[int, dict[int, ListedCurve]] = field(default_factory=dict)  # by leaf key, then by column index
    held: Collection[Slot] = ()


@dataclass(slots=True)
class FoldBacklog:
    """The changes and new curves that are yet to be folded, as read from one snapshot."""

    before: FoldState | None  # the stored mark with its time and version; None before the first fold
    mark: int  # the first log position after this snapshot; it is stored as the new mark after the fold
    changed_us: int  # when the last transaction in the log began; `date_snapshot` finds the snapshot's time with this
    fits: list[ListedCurve] = field(default_factory=list)  # curves newer than `KnownCurves.version`, oldest first
    # Versions of the curves that have live counts; read only if the process knows no curve yet.
    counted: dict[Slot, int] = field(default_factory=dict)
    lost: bool = False  # whether the changes since the stored mark cannot be used; every curve is then treated as new
    rows: int = 0  # how many changes were read, not counting those in `replays`
    changed: bool = False  # whether there are changes, even if only on boards without a curve
    # The net changes since the stored mark, by leaf key.
    changes: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    # For each new curve (a curve without live counts): the net changes since the mark of its fit.
    replays: dict[Slot, list[tuple[str, str]]] = field(default_factory=dict)
    void: set[Slot] = field(default_factory=set)  # new curves whose changes are unknown or too many
    leaves: dict[int, Leaf] = field(default_factory=dict)  # the leaves of the curves whose live counts change, by key
    totals: dict[int, dict[int, int]] = field(default_factory=dict)  # the totals of `leaves`, by leaf key and column
    # Encoded curves whose live counts change, by version. Curves that the process holds decoded are left out.
    curves: dict[int, bytes] = field(default_factory=dict)
    counts: dict[Slot, StoredCounts] = field(default_factory=dict)  # stored live counts that `curves` continue from

    @property
    def version(self) -> int:
        return 0 if self.before is None else self.before.version

    def goes_on(self, fit: ListedCurve) -> bool:
        """Return whether a curve of `fits` keeps its stored live counts, which end at the mark. Otherwise it is new."""
        return not self.lost and self.counted.get(fit.slot) == fit.version


def read_fold_backlog(known: KnownCurves, limits: JobSettings) -> Program[FoldBacklog]:
    before = yield from find_fold_state()
    log = yield from change_log.read_counter()
    found = FoldBacklog(before, log.mark, log.changed_us)
    found.fits = yield from curves_after(known.version, INT64_MAX)
    if not known.version:
        found.counted = yield from counted_fits()
    found.lost = before is None or not log.holds_changes_since(before.mark)
    if before is not None and not found.lost and before.mark != found.mark:
        yield from _read_changes(found, known, before.mark, limits)
    yield from _read_replays(found, log, limits)
    yield from _read_documents(found, known)
    return found


def _read_changes(found: FoldBacklog, known: KnownCurves, done: int, limits: JobSettings) -> Program[None]:
    netted, past, found.changed = NetChanges(), done, True
    # Often, few of a family's thousands of boards have a curve. If so, changes of the other boards are not read.
    curved = known.fits.keys() | {fit.leaf_key for fit in found.fits}
    boards = sorted(curved) if len(curved) <= NAMED_BOARDS_MAX else None
    while True:
        page = yield from list_bundles_after(past, changes_max=limits.fold_rows_max, boards=boards)
        netted.add_bundles(page)
        changes = sum(bundle.changes_count for bundle in page)
        found.rows += changes
        if found.rows > limits.fold_lag_rows_max:
            found.lost = True
            return
        if changes < limits.fold_rows_max:
            break
        past = page[-1].position + 1
    found.changes = netted.of_boards()


def _read_replays(found: FoldBacklog, log: LogState, limits: JobSettings) -> Program[None]:
    rows_max = limits.fold_lag_rows_max
    for fit in found.fits:
        if found.goes_on(fit):
            continue
        if fit.mark is None or not log.holds_changes_since(fit.mark):
            found.void.add(fit.slot)
            continue
        bundles = yield from list_bundles_after(fit.mark, changes_max=rows_max + 1, boards=[fit.leaf_key])
        rows_max -= sum(bundle.changes_count for bundle in bundles)
        if rows_max < 0:
            found.void.add(fit.slot)
            rows_max = 0
            continue
        netted = NetChanges()
        netted.add_bundles(bundles)
        found.replays[fit.slot] = netted.of_boards().get(fit.leaf_key, [])


def _read_documents(found: FoldBacklog, known: KnownCurves) -> Program[None]:
    """Read what changing live counts takes: leaves and totals, and those curves and counts that are not in memory."""
    versions = _find_versions(found, known)
    concerned = sorted({slot[0] for slot in versions})
    if concerned:
        found.leaves = yield from find_leaves(concerned)
        found.totals = yield from find_totals(concerned)
    missing = {slot: version for slot, version in versions.items() if slot in found.replays or slot not in known.held}
    if missing:
        found.curves = yield from read_documents(list(missing.values()))
    if old := sorted({slot[0] for slot in missing if slot not in found.replays}):
        found.counts = {one.slot: one for one in (yield from counts_of(old))}


def _find_versions(found: FoldBacklog, known: KnownCurves) -> dict[Slot, int]:
    fits = [fit for leaf_key in found.changes for fit in known.fits.get(leaf_key, {}).values()]
    versions = {fit.slot: fit.version for fit in fits}
    for fit in found.fits:
        versions.pop(fit.slot, None)  # this was the version of the previous curve
        if fit.slot in found.replays or (found.goes_on(fit) and fit.leaf_key in found.changes):
            versions[fit.slot] = fit.version
    return versions

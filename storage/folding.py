"""What is to be folded into the live counts, read in one snapshot: the changes since the mark, and newly stored curves.

    mark ──changes of every board──> now        a curve that was counted goes on from the mark
    fit's own mark ──its board's changes──> now   a new one catches up from what its snapshot saw

The rule: nothing is guessed. Where changes are pruned, too many, or numbered by another database, the curves that need
them are named instead (`lost`, `void`), and go without live counts until their next fit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from querybuilder import Dialect

from .bundles import Bundle
from .change_log import Mark, change_log
from .curves import documents_of
from .leaderboards import boards_by_key
from .live_counts import Fit, Folded, StoredCounts, changes_of_board, counted_fits, counts_of, fits_after, folded
from .records import Board
from .store import Program

Slot = tuple[int, int]  # board key, column index
NAMED_BOARDS_MAX = 200  # boards whose changes are picked out; past that, looking through the keys costs what it saves


@dataclass(frozen=True, slots=True)
class FoldLimits:
    """The bounds; each is a setting of the same name."""

    fold_interval_s: float
    fold_load_ratio: float  # of the job's time that folding takes
    fold_rows_max: int  # changes read in one statement
    fold_lag_rows_max: int  # changes folded at once; curves that are further behind wait for their next fit
    fold_curves_max: int  # curves kept decoded


class Netted:
    """Changes of owners as the first row before and the last after: what happened between cancels out."""

    def __init__(self) -> None:
        self._boards: dict[int, dict[str, tuple[int, str, int, str]]] = {}

    def add(self, bundles: Iterable[Bundle]) -> None:
        """Count changes, the bundles in any order: their numbers order those of an owner."""
        for bundle in bundles:
            owners = self._boards.setdefault(bundle.board_key, {})
            for _, number, _, owner, previous, following in bundle.changes():
                if previous == following:
                    continue
                known = owners.get(owner)
                if known is not None:
                    first, before, last, after = known
                    if number < first:
                        owners[owner] = number, previous, last, after
                    elif number > last:
                        owners[owner] = first, before, number, following
                else:
                    owners[owner] = number, previous, number, following

    def of_boards(self) -> dict[int, list[tuple[str, str]]]:
        """(row before, row after) by board, without those that are as they were."""
        found: dict[int, list[tuple[str, str]]] = {}
        for board_key, owners in self._boards.items():
            moved = [(before, after) for _, before, _, after in owners.values() if before != after]
            if moved:
                found[board_key] = moved
        return found


@dataclass(slots=True)
class Known:
    """What the folding process knows: which curves have live counts, and which of them it holds decoded."""

    version: int = 0  # of the newest curve known
    fits: dict[int, dict[int, Fit]] = field(default_factory=dict)  # by board key and column index
    held: Collection[Slot] = ()


@dataclass(slots=True)
class Backlog:
    """One snapshot's worth of folding."""

    before: Folded | None
    mark: Mark
    fits: list[Fit] = field(default_factory=list)  # new curves, oldest first
    counted: dict[Slot, int] = field(default_factory=dict)  # versions of curves with counts, where none were known
    lost: bool = False  # no curve can be counted on from the mark: all have to be listed
    rows: int = 0  # changes of boards that have a curve
    others: bool = False  # whether there are changes, but no such ones
    changes: dict[int, list[tuple[str, str]]] = field(default_factory=dict)  # by board, netted
    replays: dict[Slot, list[tuple[str, str]]] = field(default_factory=dict)  # of new curves, from their own marks
    void: set[Slot] = field(default_factory=set)  # new curves that cannot be counted
    boards: dict[int, Board] = field(default_factory=dict)  # of everything above
    curves: dict[int, bytes] = field(default_factory=dict)  # documents by version, of what is needed and not held
    counts: dict[Slot, StoredCounts] = field(default_factory=dict)

    def goes_on(self, fit: Fit) -> bool:
        """Whether a newly listed curve has counts already that are as of the mark."""
        return not self.lost and self.counted.get((fit.board_key, fit.column_index)) == fit.version


def backlog(dialect: Dialect, known: Known, limits: FoldLimits) -> Program[Backlog]:
    """Read what is to be folded now.

    Raises:
        ChangesUnordered: see `ChangeLog.mark_now`.
    """
    log = change_log(dialect)
    before = yield from folded(dialect)
    found = Backlog(before, (yield from log.mark_now()))
    pruned_before = yield from log.pruned()
    found.fits = yield from fits_after(dialect, known.version)
    if not known.version:
        found.counted = yield from counted_fits(dialect)
    found.lost = before is None or not _follows(before.mark, found.mark, pruned_before)
    if before is not None and not found.lost and before.mark != found.mark:
        yield from _read_changes(dialect, found, known, before.mark, limits)
    yield from _read_replays(dialect, found, pruned_before, limits)
    yield from _read_documents(dialect, found, known)
    return found


def _follows(done: Mark, now: Mark, pruned_before: int) -> bool:
    """Whether the log says all that happened between two marks; in a store that was restored numbers begin anew."""
    return pruned_before <= done.position <= now.position


def _read_changes(dialect: Dialect, found: Backlog, known: Known, done: Mark, limits: FoldLimits) -> Program[None]:
    log, netted, past = change_log(dialect), Netted(), (0, 0)
    # Families have boards by thousands, few of them with a curve: the changes of the others stay where they are.
    curved = known.fits.keys() | {fit.board_key for fit in found.fits}
    boards = curved if len(curved) <= NAMED_BOARDS_MAX else None
    while True:
        page = yield from log.changes_between(done, found.mark, limit=limits.fold_rows_max, past=past, boards=boards)
        netted.add(page)
        changes = sum(bundle.size for bundle in page)
        found.rows += changes
        if found.rows > limits.fold_lag_rows_max:
            found.lost = True
            return
        if changes < limits.fold_rows_max:
            break
        past = page[-1].position, page[-1].seq
    found.changes = netted.of_boards()
    if not found.rows and boards is not None:
        found.others = yield from log.any_between(done, found.mark)


def _read_replays(dialect: Dialect, found: Backlog, pruned_before: int, limits: FoldLimits) -> Program[None]:
    """What the snapshots of new curves did not see."""
    rows_max = limits.fold_lag_rows_max
    for fit in found.fits:
        slot = fit.board_key, fit.column_index
        if found.goes_on(fit):
            continue
        if fit.mark is None or not _follows(fit.mark, found.mark, pruned_before):
            found.void.add(slot)
            continue
        changes, bundles = yield from changes_of_board(dialect, fit.board_key, fit.mark, changes_max=rows_max)
        rows_max -= changes
        if rows_max < 0:
            found.void.add(slot)
            rows_max = 0
            continue
        netted = Netted()
        netted.add(bundles)
        found.replays[slot] = netted.of_boards().get(fit.board_key, [])


def _read_documents(dialect: Dialect, found: Backlog, known: Known) -> Program[None]:
    """The contents of curves that changes or replays concern, unless they are held."""
    versions: dict[Slot, int] = {}
    for board_key in found.changes:
        fits = known.fits.get(board_key, {}).values()
        versions |= {(board_key, fit.column_index): fit.version for fit in fits}
    for fit in found.fits:
        slot = fit.board_key, fit.column_index
        versions.pop(slot, None)  # of the curve before
        if slot in found.replays or (found.goes_on(fit) and fit.board_key in found.changes):
            versions[slot] = fit.version
    concerned = sorted({slot[0] for slot in versions})
    if concerned:
        found.boards = yield from boards_by_key(dialect, concerned)
    missing = {slot: version for slot, version in versions.items() if slot in found.replays or slot not in known.held}
    if missing:
        found.curves = yield from documents_of(dialect, list(missing.values()))
    if old := sorted({slot[0] for slot in missing if slot not in found.replays}):
        found.counts = {(one.board_key, one.column_index): one for one in (yield from counts_of(dialect, old))}

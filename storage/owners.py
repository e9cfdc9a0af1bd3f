"""Erases, hides or shows an owner on every board, or merges the owner into another one.

An erasure has these steps:

    queued posts ──> boards with rows ──> archives ──> the name in journals and acts ──> seats, grants, profile

An erasure covers the owner's earlier ids, too, which were merged into this one (see `histories.merged_owners`).

Each transaction works on a bounded number of one partition's boards. If the work is interrupted, the caller finishes it
by calling the same method again.

A board may move to another partition during these steps. A transaction skips such a board, and the next pass over the
boards finds it. Its earlier changes stay in the old partition's log, so an erasure removes the owner's name from the
logs of all partitions.

If a partition is unreachable, the owner is changed in the others. The change is postponed for this partition, and a job
finishes it once the partition responds again (see `boards.postponed_changes`).

An owner is erased first from the boards that have rows, then from archives, so that a board that is archived in between
is still found.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from .archive.archive_reader import ArchivedEntries, list_archives_of_owner, note_change
from .boards import acts, profiles
from .boards.boards import find_present_boards, list_boards
from .boards.postponed_changes import OwnerChange, PostponedChange, hold_postponed, replace_postponed
from .errors import (
    ArchivedError,
    BoardChangedError,
    JournalIncompleteError,
    LostRaceError,
    StorageError,
    UnknownBoardError,
    ValueOutOfRangeError,
)
from .histories import merged_owners
from .histories.owner_merges import MergedPart, OwnerMerge, list_merged_parts
from .leagues import seats
from .leaves import entrants, erasure, hidden_owners
from .leaves.catalog_rows import find_keys_ever, find_rows_by_key
from .leaves.entries import Entries, RankingChange, find_on_leaves, lock_boards_with_owner, log_ranking_changes
from .leaves.gates import read_gates_of
from .leaves.rankings import OpenLeaf
from .leaves.totals import read_totals
from .limits.held_posts import remove_held_posts
from .log.bundles import ChangeKind
from .log.change_log import change_log
from .queue.queue_erasure import drop_queued
from .reads.open_boards import OpenBoards
from .records import Board, Leaf, by_partition
from .rewards import grants
from .schema.creation import hold_partitions, in_each_partition
from .store import Program, Store, in_partition

ARCHIVES_A_STEP = 100  # the most archives in one transaction, which decodes and writes few blocks of each archive
# The most boards in shared tables of families in one transaction. One query reads all the boards of a table.
FAMILY_BOARDS_A_STEP = 2_000
# The most boards in other tables in one transaction. Compiling statements for each board blocks the event loop.
BOARDS_A_STEP = 20
HIDDEN_MORE = 100_000  # a transaction reads at most this many hidden rows of the owner, plus one for each of its boards
RACES_MAX = 20  # how often a merge tries a board whose entries keep changing
ROUNDS_MAX = 4  # the first round works on every board, the others on boards that have moved since they were listed
_Work = Callable[[list[Entries]], Program[object]]
_ArchiveWork = Callable[[list[Leaf]], Program[int]]  # returns in how many of the leaves the owner has an entry
_Positions = dict[int, dict[int, int]]  # log positions by partition, and then by leaf key


@dataclass(frozen=True, kw_only=True)
class OwnerChanges:
    """Erases, hides or shows one owner. Request handlers create one such object for each request."""

    owner: str
    store: Store
    open_boards: OpenBoards
    now_us: Callable[[], int]
    boards_max: int  # the most boards that the catalog holds
    rows_max: int  # one transaction rewrites at most about this many changes of a journal
    token: str  # random; it replaces the owner's name in the journal after an erasure
    earlier_ids: Sequence[str] = ()  # erased with the owner; `erase` and `erase_entry` find them
    away: Collection[int] = ()  # the partitions that do not answer, in which the change is postponed
    postponed: PostponedChange | None = None  # the change that a job finishes in one partition; None: it is a new one

    async def make_change(self, change: OwnerChange) -> int:
        """Erase, hide, shadow or show the owner. Return the number of boards where the owner has, or had, an entry."""
        if change == "erase":
            return await self.erase()
        return await self.set_hidden(hide=change != "show", shadow=change == "shadow")

    @property
    def _names(self) -> Sequence[str]:
        return self.owner, *self.earlier_ids

    @property
    def _tokens(self) -> dict[str, str]:
        """The token that replaces each name. No two owners may share one, see `leaves.erasure`."""
        return {name: f"{self.token}{number or ''}" for number, name in enumerate(self._names)}

    def _concerns(self, partition: int) -> bool:
        return partition not in self.away if self.postponed is None else partition == self.postponed.partition

    async def erase_entry(self, board: Board) -> bool:
        """Erase the owner's entry on one board. Return False if there was nothing to erase, not even a queued post."""
        leaf, keys, until = board.leaf_of(self.owner), [board.key], _Positions()
        # A split or archived board may have had other segments before, whose logs may still have posts of the owner.
        if board.is_spread or leaf.archived_us is not None:
            keys = await self.store.read(lambda: find_keys_ever(board))
        earlier_ids = await self.store.read(lambda: merged_owners.list_earlier_ids_on([self.owner], keys))
        entries = self.open_boards.open_leaf(leaf)
        waited = sum([await drop_queued(self.store, self.owner, leaf_key=key) for key in keys])

        def program() -> Program[int]:
            yield from read_totals([leaf])  # raises an error if the caller's copy of the board is outdated
            forgotten = yield from remove_held_posts((self.owner, *earlier_ids), [leaf.key])
            joined = yield from self._erase([entries], until)
            if leaf.spec.league is not None:
                yield from seats.forget_seats(leaf, [self.owner, *earlier_ids])
            return joined + forgotten

        joined = await self.store.at(leaf.partition).write(program)
        for positions in until.values():
            positions.update(dict.fromkeys(keys, positions[leaf.key]))
        if until:
            await replace(self, earlier_ids=earlier_ids)._rename(until, {})
            await self.store.write(lambda: merged_owners.forget_merged(earlier_ids, keys))
        return bool(until or waited or joined)

    async def erase(self) -> int:
        """Erase the owner's entries, grants and profile, and the owner's name and posts in the journal.

        Return how many entries were found.
        """
        if self.postponed is None and not self.earlier_ids:
            earlier_ids = await self.store.read(lambda: merged_owners.list_earlier_ids(self.owner))
            if earlier_ids:
                return await replace(self, earlier_ids=earlier_ids).erase()
        until, each_name = _Positions(), [replace(self, owner=name) for name in self._names]
        await self._store_change("erase")  # from now on, new rows of the owner are not hidden
        # When `drop_queued` returns, posts that a worker had already taken are applied. The code below erases them.
        for name in self._names:
            await drop_queued(self.store, name, concerns=self._concerns)
        forgetting = partial(remove_held_posts, self._names)
        await self.store.write(lambda: in_each_partition(forgetting, self._concerns))
        begun = await self.store.read(lambda: in_each_partition(change_log.take_mark, self._concerns))
        await self._on_every_board(lambda boards: self._erase(boards, until, only_entries=True))
        for leaf in await self._list_joined():  # those where the owner had no entry
            await self.store.at(leaf.partition).write(partial(self._leave, leaf))
        archived = sum([await each._on_every_archive(each._erase_archived) for each in each_name])
        for name in self._names if self.postponed is None else ():
            forgetting = partial(acts.forget_owner, name, names=self._names, rows_max=self.rows_max)
            while await self.store.write(forgetting) > 0:
                pass
        await self._rename(until, {number: mark - 1 for number, mark in begun.items()})
        await self.store.write(self._forget)  # last: until then, a repeated request still finds the earlier ids
        return archived + len({key for positions in until.values() for key in positions})

    async def merge_into(self, into: str, *, by_posts: bool) -> list[MergedPart]:
        """Merge the owner into another one, or finish that. Return what became of its entry on each board.

        Raises:
            MergeConflictError, StoreBusyError: see `OwnerMerge.begin`. Nothing has changed.
        """
        merge = OwnerMerge(owner=self.owner, into=into, by_posts=by_posts, now_us=self.now_us())
        if state := await self.store.write(merge.begin):  # all entries of a hidden owner are hidden
            shadow = state == hidden_owners.SHADOWED
            await replace(self, owner=into).set_hidden(hide=True, shadow=shadow)
        moving = partial(in_each_partition, partial(seats.move_owner, self.owner, into), self._concerns)
        await self.store.write(moving)
        found, archived = {leaf.id for leaf in await self._list_joined()}, set[str]()
        await self._on_every_board(lambda boards: self._note_boards(boards, found))
        await self._on_every_archive(lambda leaves: self._note_archives(leaves, archived))
        kept = "was archived, and its archive keeps the earlier id"
        errors: dict[str, StorageError] = {each: ArchivedError(f"the leaderboard {each!r} {kept}") for each in archived}
        for board_id in sorted(found):
            try:
                await self._merge_board(replace(merge, now_us=self.now_us()), board_id)
            except (ArchivedError, JournalIncompleteError, ValueOutOfRangeError) as error:
                errors[board_id] = error
            except UnknownBoardError:
                continue
        parts = await self.store.read(lambda: list_merged_parts(self.owner))
        parts += [MergedPart(board_id, error=error) for board_id, error in errors.items()]
        return sorted(parts, key=lambda part: part.board_id)

    async def _merge_board(self, merge: OwnerMerge, board_id: str) -> None:
        for _ in range(RACES_MAX):
            with suppress(LostRaceError, BoardChangedError):
                return await self.store.write(lambda: merge.merge_board(board_id))
        raise BoardChangedError

    def _note_boards(self, boards: Sequence[Entries], found: set[str]) -> Program[None]:
        keys = {*(yield from find_on_leaves(boards, self.owner))}
        keys.update((yield from hidden_owners.list_hidden_boards(self.owner, limit=len(boards) + HIDDEN_MORE)))
        found.update(entries.leaf.id for entries in boards if entries.leaf.key in keys)

    def _note_archives(self, leaves: list[Leaf], found: set[str]) -> Program[int]:
        theirs = yield from self._list_archived(leaves)
        found.update(leaf.id for leaf in theirs)
        return len(theirs)

    async def set_hidden(self, *, hide: bool, shadow: bool = False) -> int:
        """Hide the owner, or show the owner again. Return the number of boards on which the owner has an entry.

        `shadow`: hide the owner without its noticing.
        """
        await self._store_change("shadow" if hide and shadow else "hide" if hide else "show")
        shown = None if hide else await self._list_hidden_boards()
        change = hidden_owners.hide_owner if hide else hidden_owners.show_owner
        await self._on_every_board(lambda boards: change(boards, self.owner, now_us=self.now_us()), shown)
        archived = await self._on_every_archive(self._note_archived)
        if shown is None:
            return archived + len(await self._list_hidden_boards())
        await self.store.write(self._forget_state)
        return archived + len(shown)

    async def _list_joined(self) -> list[Leaf]:
        keys = set[int]()
        for name in self._names:
            listing = partial(in_each_partition, partial(entrants.list_keys, name), self._concerns)
            keys.update(*(await self.store.read(listing)).values())
        boards = (await self.store.read(lambda: find_present_boards([*keys]))).values() if keys else ()
        return [board.leaf_of(self.owner) for board in boards]

    def _leave(self, leaf: Leaf) -> Program[None]:
        for held in (yield from entrants.hold_entrants([(leaf, self._names)])).values():
            yield from held.remove_joined(())

    def _erase(self, boards: Sequence[OpenLeaf], until: _Positions, *, only_entries: bool = False) -> Program[int]:
        """Erase the owner's entries on boards of one partition. Run this program in that partition.

        Return on how many boards the owner took part without an entry.

        For each board with an erased entry, add the last position of every partition's log to `until`, because a moved
        board has changes in several logs. The caller must remove the owner's name and posts up to these positions.
        """
        erased: list[int] = []
        changes: list[RankingChange] = []
        joined, ruled = 0, [entries.leaf for entries in boards if entries.leaf.spec.entry is not None]
        taking_part = (yield from entrants.hold_entrants((leaf, self._names) for leaf in ruled)) if ruled else {}
        for entries in boards:
            if isinstance(entries, Entries):
                theirs: list[RankingChange] = []
                for name in sorted(self._names):
                    gone = yield from entries.remove_entry(name, ChangeKind.ERASED)
                    gone = gone or (yield from hidden_owners.erase_hidden_entry(entries, name))
                    theirs += [gone] if gone is not None else []
                changes += theirs
                # Another transaction may erase the entry, from another segment of the board, and must find it counted.
                held = None if only_entries and not theirs else taking_part.get(entries.leaf.entrants_place)
                if held is not None:
                    joined += yield from held.remove_joined([gone.entry.owner for gone in theirs])
            elif isinstance(entries, ArchivedEntries) and (yield from entries.erase_entry(self.owner)):
                erased.append(entries.leaf.key)
        erased += [gone.change.leaf_key for gone in changes]
        if erased:
            yield from log_ranking_changes(changes, now_us=self.now_us())
            marks = yield from in_each_partition(change_log.take_mark, self._concerns)
            for number, mark in marks.items():
                until.setdefault(number, {}).update(dict.fromkeys(erased, mark - 1))
        return joined

    async def _store_change(self, change: OwnerChange) -> None:
        """Store the owner's state where partitions respond. Elsewhere, postpone the change in place of earlier ones."""

        def program() -> Program[None]:
            if self.postponed is None:
                yield from hold_partitions()  # keeps others from merging the owner
                yield from merged_owners.check_not_merged(self.owner)
                for name, token in self._tokens.items():
                    left = [PostponedChange(name, each, change, token) for each in sorted(self.away)]
                    yield from replace_postponed(left, name)
            elif not (yield from hold_postponed(self.postponed)):
                raise BoardChangedError("another request has changed the owner meanwhile")
            hide, shadow = change in ("hide", "shadow"), change == "shadow"
            yield from hidden_owners.store_state(
                self.owner, now_us=self.now_us(), hide=hide, shadow=shadow, concerns=self._concerns
            )

        await self.store.write(program)

    def _forget_state(self) -> Program[None]:
        return hidden_owners.forget_state(self.owner, now_us=self.now_us(), concerns=self._concerns)

    def _forget(self) -> Program[None]:
        yield from in_each_partition(partial(seats.leave_leagues, self._names), self._concerns)
        for name in self._names:
            yield from grants.forget_owner(name)
        if self.postponed is None:
            yield from profiles.remove_profile(self.owner)
            yield from merged_owners.forget_merged(self.earlier_ids)
        yield from hidden_owners.forget_state(
            self.owner, now_us=self.now_us(), concerns=self._concerns, merged=self._names
        )

    async def _list_hidden_boards(self) -> set[int]:
        listing = partial(hidden_owners.list_hidden_boards, self.owner, limit=self.boards_max)
        found = await self.store.read(lambda: in_each_partition(listing, self._concerns))
        return set[int]().union(*found.values())

    async def _rename(self, until: _Positions, otherwise: Mapping[int, int]) -> None:
        """Remove the owner's name and posts from the journal up to given positions, in bounded transactions.

        Rewrite a board's changes up to the log position `until[partition][leaf key]`. If `until` has no position for
        the board, rewrite them up to `otherwise[partition]`. If that is missing, too, rewrite none.
        """
        for number in sorted(until.keys() | otherwise.keys()):
            for name, token in self._tokens.items():
                rename = partial(
                    erasure.rename_owner,
                    name,
                    token=token,
                    until=until.get(number, {}),
                    otherwise=otherwise.get(number, 0),
                    rows_max=self.rows_max,
                )
                await self._rename_in(self.store.at(number), name, rename)

    async def _rename_in(self, store: Store, name: str, rename: Callable[..., Program[int | None]]) -> None:
        past: int | None = 0
        while past is not None:
            stretches, past = await store.read(partial(erasure.find_stretches, name, past=past))
            for stretch in stretches:
                done: int | None = 0
                while done is not None:
                    done = await store.write(partial(rename, stretch, past=done))

    async def _on_every_board(self, work: _Work, keys: set[int] | None = None) -> None:
        for _ in range(ROUNDS_MAX):
            listing = partial(list_boards, prefix="", after="", limit=self.boards_max, archived=False)
            leaves = [leaf for board in await self.store.read(listing) for leaf in board.leaves]
            leaves = [each for each in leaves if self._concerns(each.partition) and (keys is None or each.key in keys)]
            keys = set()
            for step in list_steps(leaves):
                opened = [self.open_boards.open_rows(leaf) for leaf in step]
                keys |= await self.store.at(step[0].partition).write(partial(self._on_live, opened, work))
            if not keys:
                return
        raise BoardChangedError

    def _on_live(self, boards: list[Entries], work: _Work) -> Program[set[int]]:
        """Run `work` on the boards that still have rows in this partition. Return the keys of boards without a gate."""
        gates = yield from read_gates_of([entries.leaf for entries in boards], held=True)
        moved = {entries.leaf.key for entries in boards} - gates.keys()  # or deleted since the catalog was read
        # Leave out boards that were archived since then: they have no rows.
        open_keys = {key for key, (_, gate) in gates.items() if gate.archived_us is None}
        there = [entries for entries in boards if entries.leaf.key in open_keys]
        if there and _in_family_table(there[0].leaf):  # few of a family's thousands of boards have the owner: find them
            limit = len(boards) + HIDDEN_MORE
            unseen = set[int]()
            if there[0].leaf.spec.entry is not None:  # lock what `_erase` needs before any entry, as posts do
                for name in self._names:
                    unseen |= (yield from find_on_leaves(there, name)).keys()
                yield from entrants.hold_entrants((each.leaf, ()) for each in there if each.leaf.key in unseen)
            for name in self._names:
                unseen.update((yield from hidden_owners.list_hidden_boards(name, limit=limit)))
            for name in sorted(self._names):
                unseen |= {entries.leaf.key for entries in (yield from lock_boards_with_owner(there, name))}
            there = [entries for entries in there if entries.leaf.key in unseen]
        yield from work(there)
        return moved

    async def _on_every_archive(self, work: _ArchiveWork) -> int:
        """Run `work` on each archive that may have the owner, with a bounded number of archives in each transaction.

        Return how many archives have an entry of the owner.
        """
        after_key, entries = -1, 0
        while True:
            listing = partial(list_archives_of_owner, self.owner, after_key=after_key, limit=ARCHIVES_A_STEP)
            found = await self.store.read(partial(in_each_partition, listing, self._concerns))
            keys = sorted(key for theirs in found.values() for key in theirs)[:ARCHIVES_A_STEP]
            if keys:
                entries += await self.store.write(partial(_in_archives, keys, work))
                after_key = keys[-1]
            if len(keys) < ARCHIVES_A_STEP:
                return entries

    def _erase_archived(self, leaves: list[Leaf]) -> Program[int]:
        entries = 0
        for leaf in leaves:
            entries += yield from ArchivedEntries(leaf).erase_entry(self.owner)
        return entries

    def _note_archived(self, leaves: list[Leaf]) -> Program[int]:
        changed = yield from self._list_archived(leaves)
        yield from note_change(changed)
        return len(changed)

    def _list_archived(self, leaves: list[Leaf]) -> Program[list[Leaf]]:
        found = []
        for leaf in leaves:
            entries = ArchivedEntries(leaf)
            if (yield from entries.find_entries([self.owner])) or (yield from entries.of_hidden([self.owner])):
                found.append(leaf)
        return found


def list_steps(leaves: list[Leaf]) -> Iterator[list[Leaf]]:
    """Yield the leaves for each transaction, all in one partition and sorted in the order in which posts lock rows."""
    # Posts lock rows by table and then by board. The same order here prevents deadlocks.
    leaves.sort(key=lambda leaf: (leaf.key if leaf.table_key is None else leaf.table_key, leaf.key))
    for _, theirs in by_partition(leaves):
        in_families = [leaf for leaf in theirs if _in_family_table(leaf)]
        others = [leaf for leaf in theirs if not _in_family_table(leaf)]
        for these, step_boards in ((others, BOARDS_A_STEP), (in_families, FAMILY_BOARDS_A_STEP)):
            for start in range(0, len(these), step_boards):
                yield these[start : start + step_boards]


def _in_family_table(leaf: Leaf) -> bool:
    return leaf.family_key is not None and leaf.table_key is not None


def _in_archives(keys: list[int], work: _ArchiveWork) -> Program[int]:
    entries = 0
    rows = yield from find_rows_by_key(keys, held=True)
    # Skip an unfinished archive. The owner's row was changed before, so its writer starts again, with the new state.
    archived = (row.leaf for row in rows.values() if row.leaf.archived_us is not None)
    for partition, theirs in by_partition(archived):
        entries += yield from in_partition(partition, work(theirs))
    return entries

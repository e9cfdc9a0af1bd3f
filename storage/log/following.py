"""Runs followers, which work through a partition's log and handle each change exactly once.

    read_page, a snapshot ──> changes ── store_page, a transaction: what `handle` does, and the new mark ──> read_page …

A follower's mark is the number of the last change that it has handled. The transaction stores the new mark only if the
stored mark is still the one that the snapshot showed. So each page takes effect once, even if a process is killed or
two processes run the same follower. `Ownership.run_follower` in `jobs` lets one process at a time run it, under a
lease.

Code that reads the log without a stored mark uses `LogPages`: streams (by way of `boards.journal`), folding, and moves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from querybuilder import any_of, col, insert, param, select, update
from storage.errors import JournalIncompleteError, LostRaceError
from storage.schema.tables import FOLLOWERS
from storage.store import Program

from .bundles import owners_text
from .change_log import LogPages, last_number_before
from .partition_journal import COLUMNS, JournalRow, changes_of, find_ends, position_of

PAGE_CHANGES = 1_000
_ALL = LogPages(*COLUMNS)
# Only events of whole boards have no owner. SQL filters out all posts, so a busy log costs such a follower little.
_EVENTS = LogPages(*COLUMNS, where=any_of(col("leaf_key").is_null(), col("owners").eq(owners_text([""]))))


@dataclass(frozen=True, slots=True)
class FollowedPage:
    before: int | None  # the stored mark; None: the follower is new
    until: int  # the mark after this page
    changes: list[JournalRow]
    is_lost: bool = False  # whether the log lacks changes since the mark; then `changes` is empty
    is_full: bool = False  # whether more changes may follow


class Follower:
    """Programs that pass the changes in a partition's log to `handle`. Run them in that partition."""

    def __init__(
        self,
        name: str,
        partition: int,
        handle: Callable[[Sequence[JournalRow]], Program[None]],
        *,
        from_oldest: bool = False,
        events_only: bool = False,
        recover: Callable[[], Program[None]] | None = None,
        page_changes: int = PAGE_CHANGES,
    ) -> None:
        """Prepare a follower. Its name, unique in the store, must never change, because its mark is stored under it.

        `handle` changes only tables of this partition, in the transaction that stores the mark.
        `from_oldest`: a new follower starts with the oldest change in the log instead of the next one.
        `events_only`: skip all changes to entries, so that only the events of whole boards are left (see `ChangeKind`).
        `recover`: called if the log lacks changes since the mark, because they were pruned or a backup was restored. It
        has to read the tables instead, and the follower then continues at the end of the log. Without `recover`,
        `read_page` raises an error in this case.
        """
        self.name, self.partition, self.handle = name, partition, handle
        self._from_oldest, self._recover, self._page_changes = from_oldest, recover, page_changes
        self._pages = _EVENTS if events_only else _ALL

    def read_page(self) -> Program[FollowedPage]:
        """Read the next changes that the follower has not handled yet; there may be none.

        Raises:
            JournalIncompleteError: some of these changes are no longer in the log, and there is no `recover`.
        """
        rows = yield _FIND.bind(name=self.name)
        begins_after, ends = yield from find_ends()
        before: int | None = int(rows[0][0]) if rows else None
        after = before if before is not None else begins_after if self._from_oldest else ends
        if not begins_after <= after <= ends:
            if self._recover is None:
                raise JournalIncompleteError(
                    f"the follower {self.name!r} has handled the log of partition {self.partition} up to {after}, "
                    f"but the log holds only what is after {begins_after} and up to {ends}"
                )
            return FollowedPage(before, ends, [], is_lost=True)
        bundles = yield from self._pages.read_page(after, changes_max=self._page_changes)
        changes = [change for bundle in bundles for change in changes_of(bundle) if change.number > after]
        if len(changes) < self._page_changes:
            return FollowedPage(before, ends, changes)
        is_cut = len(changes) > self._page_changes
        changes = changes[: self._page_changes]
        last = changes[-1].number
        until = last if is_cut else last_number_before(position_of(last) + 1)
        return FollowedPage(before, until, changes, is_full=True)

    def store_page(self, page: FollowedPage) -> Program[None]:
        """Handle the changes of a page and store the new mark, in the same transaction.

        Raises:
            LostRaceError: another process has already handled these changes.
        """
        if page.before is None:
            is_mine = bool((yield _ADD.bind(name=self.name, handled=page.until)))
        else:
            [[stored]] = yield _MOVE.bind(name=self.name, before=page.before, handled=page.until)
            is_mine = bool(stored)
        if not is_mine:
            raise LostRaceError(f"another process has handled the next changes for {self.name!r}")
        if page.is_lost and self._recover is not None:
            yield from self._recover()
        elif page.changes:
            yield from self.handle(page.changes)


_named = col("name").eq(param("name"))
_FIND = select(col("handled")).from_(FOLLOWERS).where(_named).prepared()
_added = insert(FOLLOWERS).values(name=param("name"), handled=param("handled")).on_conflict("name").do_nothing()
_ADD = _added.returning(col("name")).prepared()
_MOVE = update(FOLLOWERS).set(handled=param("handled")).where(_named, col("handled").eq(param("before"))).prepared()

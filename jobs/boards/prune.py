"""Deletes what is past its retention, such as post ids, logged changes, acts and grants, and rows that no board uses.

It also finishes changes to owners that were postponed because a partition did not answer.

Each partition is pruned separately, by one process at a time. The control partition's own job deletes only rejected
posts; its acts, events and grants are deleted along with partition 0.

New posts have priority. A step is one bounded transaction, and after each step the job pauses for as long as the step
took, so that pruning writes to the store for at most half of the time.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import structlog

from jobs.job_context import JobContext
from jobs.ownership import HeldLease, Ownership
from storage.boards.acts import prune_acts
from storage.boards.postponed_changes import finish_postponed, list_postponed
from storage.boards.shared_tables import sweep_rows
from storage.errors import BoardChangedError
from storage.events.event_log import prune_events
from storage.leaves import erasure
from storage.limits.gains import KEPT_S, prune_gains
from storage.limits.held_posts import prune_held
from storage.log.change_log import change_log
from storage.log.owner_index import owner_blocks
from storage.owners import OwnerChanges
from storage.posting.post_ids import prune_ids
from storage.queue.outcomes import prune_rejected
from storage.rewards.grants import prune_grants
from storage.store import CONTROL, Program, in_partition

log = structlog.get_logger(__name__)

RESOURCE = "prune"


class PruneJob:
    def __init__(self, context: JobContext, partition: int) -> None:
        self._context, self._partition, self._limits = context, partition, context.limits
        self._store = context.store.at(partition)
        self._ownership = Ownership(context)
        self._monotonic, self._sleep = context.monotonic, context.make_sleep(RESOURCE)
        self._rows_max = context.limits.prune_rows_max

    async def run_forever(self) -> None:
        await self._ownership.run_rounds(
            RESOURCE,
            self._prune,
            interval_s=self._limits.prune_interval_s,
            sleep=self._sleep,
            partition=self._partition,
        )

    async def _prune(self, _held: HeldLease) -> None:
        if self._partition != CONTROL:
            await self.prune_post_ids()
            await self.prune_changes()
            await self.blank_erased()
            await self.make_blocks()
            await self.sweep_tables()
            await self.finish_owners()
            await self.prune_held()
        if self._partition == 0:  # once for the store: events are in the control partition
            await self.prune_events()
            await self.prune_acts()
            await self.prune_grants()
        await self.prune_rejected()

    async def prune_post_ids(self) -> int:
        before_us, rows_max = await self._find_start(self._limits.post_id_retention_s), self._rows_max
        # A step deletes all old ids or a few more than `rows_max`, so a step that deletes fewer is the last one.
        pruning = partial(prune_ids, before_us=before_us, rows_max=rows_max)
        return await self._in_steps("post_ids_forgotten", pruning, rows_max + 1)

    async def prune_changes(self) -> int:
        """Delete logged changes past their retention, and return the number of deleted bundles (rows of the log).

        `FoldJob` notices if changes that it has not counted yet are missing.
        """
        before_us = await self._find_start(self._limits.change_log_retention_s)
        pruning = partial(change_log.prune, before_us=before_us, rows_max=self._rows_max)
        return await self._in_steps("changes_removed", pruning, 1)

    async def prune_rejected(self) -> int:
        """Delete rejected posts past their retention, and all but the newest `rejected_posts_max`; return how many."""
        before_us = await self._find_start(self._limits.rejected_post_retention_s)
        keep = self._limits.rejected_posts_max
        pruning = partial(prune_rejected, before_us=before_us, keep=keep, rows_max=self._rows_max)
        return await self._in_steps("rejected_posts_forgotten", pruning, self._rows_max)

    async def prune_events(self) -> int:
        before_us, rows_max = await self._find_start(self._limits.change_log_retention_s), self._rows_max
        pruning = partial(prune_events, before_us=before_us, rows_max=rows_max)
        return await self._in_steps("events_removed", lambda: in_partition(CONTROL, pruning()), rows_max)

    async def prune_acts(self) -> int:
        """Delete operators' acts past their retention, from the control partition, and return how many."""
        before_us = await self._find_start(self._limits.acts_retention_s)
        pruning = partial(prune_acts, before_us=before_us, rows_max=self._rows_max)
        return await self._in_steps("acts_forgotten", pruning, self._rows_max)

    async def prune_grants(self) -> int:
        """Delete the grants of boards that closed longer ago than grants are kept, and return how many rows."""
        before_us = await self._find_start(self._limits.grant_retention_s)
        pruning = partial(prune_grants, before_us=before_us, rows_max=self._rows_max)
        return await self._in_steps("grants_forgotten", lambda: in_partition(CONTROL, pruning()), 1)

    async def prune_held(self) -> int:
        """Delete held posts past their retention and owners' gains from before the last hour, and return how many."""
        held_us, rows_max = await self._find_start(self._limits.held_post_retention_s), self._rows_max
        pruning = partial(prune_held, before_us=held_us, rows_max=rows_max)
        held = await self._in_steps("held_posts_forgotten", pruning, rows_max + 1)
        hour_us = await self._find_start(KEPT_S)
        gains = partial(prune_gains, before_us=hour_us, rows_max=rows_max)
        return held + await self._in_steps("gains_forgotten", gains, rows_max)

    async def blank_erased(self) -> int:
        """Remove erased owners' cells (ranked values) from the change log, and return the number of changed bundles.

        A change keeps its cells until it is older than `erased_cells_s` and every curve has counted it.
        """
        before_us = await self._find_start(self._limits.erased_cells_s)
        blanking = partial(erasure.blank_cells, before_us=before_us, rows_max=self._rows_max)
        return await self._in_steps("erased_cells_removed", blanking, self._rows_max)

    async def make_blocks(self) -> int:
        """Delete old filters, create new ones, which help to find an owner's logged changes, and return how many."""
        made = 0
        await self._store.write(owner_blocks.prune)
        while (block := await self._store.read(owner_blocks.build_next_block, heavy=True)) is not None:
            started = self._monotonic()
            await self._store.write(partial(owner_blocks.store_block, block))
            made += 1
            await self._sleep(self._monotonic() - started)
        return made

    async def sweep_tables(self) -> int:
        """Delete the rows that deleted or emptied boards left in shared tables, and return how many rows."""
        return await self._in_steps("leftover_rows_deleted", partial(sweep_rows, rows_max=self._rows_max), 1)

    async def finish_owners(self) -> int:
        """Erase, hide or show owners as was requested while this partition was unreachable, and return how many."""
        context, listing = self._context, partial(list_postponed, self._partition)
        postponed = await context.store.read(listing)
        for each in postponed:
            changes = OwnerChanges(
                owner=each.owner,
                store=context.store,
                open_boards=context.open_boards,
                now_us=context.now_us,
                boards_max=self._limits.catalog_boards_max,
                rows_max=self._rows_max,
                token=each.token,
                postponed=each,
            )
            with suppress(BoardChangedError):  # a later request has replaced it, or a board moves: try again later
                await changes.make_change(each.change)
                await context.store.write(partial(finish_postponed, each))
        return len(postponed)

    async def _find_start(self, retention_s: float) -> int:
        """Return the time `retention_s` seconds ago, in microseconds. Older rows are past this retention.

        Only the store's clock counts: a process whose clock is ahead would delete what other processes still need.
        """
        return await self._store.read(self._context.leases.clock) - round(retention_s * 1e6)

    async def _in_steps(self, event: str, step: Callable[[], Program[int]], rows_full: int) -> int:
        changed = 0
        for _ in range(self._limits.prune_steps_max):
            started = self._monotonic()
            rows = await self._store.write(step)
            changed += rows
            if rows < rows_full:
                break
            await self._sleep(self._monotonic() - started)
        if changed:
            log.info(event, partition=self._partition, rows=changed)
        return changed

"""Reads figures of partitions for operators: whether one answers, its boards and entries, the state of its change log.

On Citus, partitions are on several servers, so some may not answer while the boards of the others work.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any, NamedTuple, TypeVar

from querybuilder import col, count, param, select, sum_
from storage.curves.live_counts import find_fold_state
from storage.errors import StoreAwayError, StoreBusyError
from storage.leaves.totals import ALL_ENTRIES, STATE
from storage.log.change_log import change_log
from storage.schema.creation import count_partitions
from storage.schema.tables import TOTALS
from storage.store import CONTROL, Program, Store, read_single

T = TypeVar("T")


class PartitionFigures(NamedTuple):
    boards: int
    entries: int  # entries of all boards, archived boards included
    log_next: int  # the position of the next bundle in the change log
    folded_us: int | None  # the live counts include all changes before this time; None: none were counted yet


_COUNT = (
    select(col("column_index"), count(), sum_(col("entries")))
    .from_(TOTALS)
    .where(col("column_index").in_(param("indexes")))
    .group_by(col("column_index"))
    .prepared()
)


def read_partition_figures() -> Program[PartitionFigures]:
    """Return the numbers of boards and entries, and the log's state, of the partition for which the program runs."""
    log_next = yield from change_log.take_mark()
    folded = yield from find_fold_state()
    rows = yield _COUNT.bind(indexes=[STATE, ALL_ENTRIES])
    found = {index: (boards, int(total)) for index, boards, total in rows}
    boards, entries = found.get(STATE, (0, 0))[0], found.get(ALL_ENTRIES, (0, 0))[1]
    return PartitionFigures(boards, entries, log_next, None if folded is None else folded.as_of_us)


async def find_away_partitions(store: Store, *, wait_s_max: float) -> list[int]:
    """Ask all partitions at the same time, and return the numbers of the partitions that do not answer.

    Wait at most `wait_s_max` seconds. This bound does not apply if all partitions are in one schema.

    Raises:
        StoreBusyError: the control partition does not answer, or no partition with boards answers.
    """
    # If the control partition and partition 0 have the same tables, `store.at` returns the same object for both.
    control = store.at(CONTROL)
    others = [number for number in range(store.partitions) if store.at(number) is not control]
    if not others:
        await control.read(count_partitions)  # with BEGIN, which shows if a connection is stuck in a transaction
        return []
    asked: dict[int, Callable[[], Program[Any]]] = {CONTROL: count_partitions}
    asked |= dict.fromkeys(others, change_log.take_mark)
    checks = {number: asyncio.create_task(_check(store.at(number), ask)) for number, ask in asked.items()}
    try:
        await asyncio.wait(checks.values(), timeout=wait_s_max)
        away = {number for number, check in checks.items() if not (check.done() and check.result())}
    finally:
        for check in checks.values():
            check.cancel()
    if CONTROL in away:
        raise StoreAwayError("the control partition does not answer")
    if len(away) == store.partitions:
        raise StoreAwayError("no partition answers")
    return sorted(away)


async def try_living(
    store: Store, act: Callable[[Collection[int]], Awaitable[T]], *, wait_s_max: float
) -> tuple[T, Collection[int]]:
    """Call `act` with no partitions. If one does not answer, call it again with the numbers of those that do not.

    Return the result, and the partitions that the result leaves out.

    Raises:
        StoreAwayError: the control partition does not answer, or the living ones do not suffice.
    """
    try:
        return await act(()), ()
    except StoreAwayError:
        away = await find_away_partitions(store, wait_s_max=wait_s_max)
        if not away:
            raise
    return await act(away), away


async def _check(store: Store, ask: Callable[[], Program[Any]]) -> bool:
    try:
        await read_single(store, ask)
    except StoreBusyError:
        return False
    return True

"""Finds the partitions that do not respond, so that requests and operators can do without them.

On Citus, partitions are on several servers, so some may be unreachable while the boards on the others still work.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from storage.errors import StoreAwayError, StoreBusyError
from storage.log.change_log import change_log
from storage.schema.creation import count_partitions
from storage.store import CONTROL, Program, Store, read_single


async def find_away_partitions(store: Store, *, wait_s_max: float) -> list[int]:
    """Query all partitions at the same time, and list the numbers of those that do not respond.

    Wait at most `wait_s_max` seconds. This bound does not apply if all partitions are in one schema.

    Raises:
        StoreBusyError: the control partition does not respond, or no partition with boards does.
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


async def _check(store: Store, ask: Callable[[], Program[Any]]) -> bool:
    try:
        await read_single(store, ask)
    except StoreBusyError:
        return False
    return True

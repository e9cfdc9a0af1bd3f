"""Runs the work of a command on the store itself, without a service."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from config import Settings
from service.commands.target import fail
from storage.errors import StorageError, StoreLockedError

if TYPE_CHECKING:
    from storage.store import Store

T = TypeVar("T")
STOP_FIRST = "stop the service first (`systemctl stop rankcurve`, or Ctrl-C where it runs)"


def run_on_store(
    settings: Settings,
    work: Callable[[Store], Awaitable[T]],
    *,
    if_locked: str = f"{STOP_FIRST}, because the command opens the store itself",
) -> T:
    """Open the store that `settings` names, call `work` with it, close it, and return the result of `work`.

    On a StorageError, print one line and exit with code 1. If a service has locked the store, the printed line begins
    with the text `if_locked`.
    """

    async def session() -> T:
        # Imported here, because the other commands need no database driver.
        from service.stores import open_store
        from service.telemetry.logs import logging_to_stderr

        with logging_to_stderr():
            store = await open_store(settings)
            try:
                return await work(store)
            finally:
                await store.close()

    try:
        return asyncio.run(session())
    except StoreLockedError as error:
        fail(f"{if_locked}: {error.detail}")
    except StorageError as error:
        fail(error.detail)


def refuse_one_file(settings: Settings, reason: str) -> None:
    """If the store is a SQLite file, print why the command cannot use it (`reason`), and exit with code 2."""
    from service.stores import is_shared  # imported here: other commands need no database driver

    if not is_shared(settings.store):
        fail(f"{settings.store}: a SQLite file {reason}", code=2)

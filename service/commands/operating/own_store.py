"""Runs the work of a command on the store itself, without a service."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from config import Settings
from service.commands.settings import ConfigOption, SetOption, StoreOption, read_settings
from service.commands.target import fail, with_options
from storage.errors import StorageError, StoreLockedError

if TYPE_CHECKING:
    from storage.store import Store

T = TypeVar("T")
OPTIONS = tuple(
    Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
    for name, annotation in (("store", StoreOption), ("config", ConfigOption), ("assignments", SetOption))
)


def store_command(*, creates: bool | None = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command of a function whose first parameter is the settings. It takes --store, --config and --set.

    `creates` says whether the store may be created; if it is None, the settings say so.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        def command(*, store: str | None, config: Path | None, assignments: list[str] | None, **arguments: Any) -> None:
            function(read_settings({"store": store, "create_store": creates}, assignments, config), **arguments)

        return with_options(command, function, OPTIONS, without="settings")

    return decorate


def run_on_store(
    settings: Settings,
    work: Callable[[Store], Awaitable[T]],
    *,
    if_locked: str = "stop the service first, because the command opens the store itself",
) -> T:
    """Open the store of the settings, run `work` on it, and close it.

    If that fails, print one line and exit with code 1. `if_locked` says what to do if a service owns the store.
    """

    async def session() -> T:
        # Imported here: the other commands need no driver.
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

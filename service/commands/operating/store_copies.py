"""`rankcurve store copy` copies a whole store to another one. `rankcurve store reopen` takes the old one back."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from config import Settings
from config.masking import masked
from service.commands.operating.own_store import STOP_FIRST, run_on_store
from service.commands.settings import settings_command
from service.commands.target import fail
from storage.errors import StorageError, StoreCopyError, StoreLockedError

if TYPE_CHECKING:
    from storage.store import Store

FromArgument = Annotated[str, typer.Argument(metavar="FROM", help="Address of the store.", show_default=False)]
ToArgument = Annotated[str, typer.Argument(metavar="TO", help="Address of an empty store.", show_default=False)]


@settings_command()
def copy(settings: Settings, source: FromArgument, target: ToArgument) -> None:
    """Copy a whole store to an empty one: boards, families, posts, curves, archives, leases and keys.

    Stop the services of both stores first. Meanwhile `rankcurve serve --read-only` may serve FROM. At the end, the
    command compares all rows, and FROM is not served any more: serve TO. If the command is killed, run it again.

    If there is no store at TO, it gets one partition. For several, create it with `rankcurve store init` first.

    For example:

        rankcurve store copy sqlite:///data/rankcurve.db postgresql://USER@HOST/DATABASE
    """
    begun_s = time.monotonic()
    try:
        asyncio.run(copy_store(settings, source, target))
    except StoreLockedError as error:
        fail(f"{STOP_FIRST}; meanwhile `serve --read-only` may serve FROM: {error.detail}")
    except StorageError as error:
        fail(error.detail)
    typer.echo(f"{masked(target)} has taken the place of {masked(source)} ({time.monotonic() - begun_s:.0f} s)")


@settings_command("store", create_store=False)
def reopen(settings: Settings) -> None:
    """Take a store back into use that was copied, or is being copied. It lacks what was posted to the other one."""
    from storage.store_copy import reopen_store

    run_on_store(settings, lambda store: store.write(reopen_store))
    typer.echo(f"{masked(settings.store)} may be served again")


async def copy_store(settings: Settings, source_url: str, target_url: str) -> None:
    """Copy a store to another one. Raises StoreCopyError, and the errors of `open_store`."""
    # Imported here, because the other commands need no database driver.
    from service.stores import open_store
    from service.telemetry.logs import logging_to_stderr
    from storage.engines.postgres import PostgresStore
    from storage.schema.creation import COPIED_TO, COPYING_TO
    from storage.store_copy import StoreCopy, begin_copy, reopen_store

    async with AsyncExitStack() as stack:
        stack.enter_context(logging_to_stderr())

        async def open_one(url: str, *, create: bool) -> Store:
            store = await open_store(settings.model_copy(update={"store": url, "create_store": create}))
            stack.push_async_callback(store.close)
            return store

        source = await open_one(source_url, create=False)
        names = masked(source_url), masked(target_url)
        meta = await source.write(lambda: begin_copy(names[1]))
        try:
            if isinstance(source, PostgresStore) and (sessions := await source.count_other_writers()):
                raise StoreCopyError(f"services may write to the source in {sessions} sessions: {STOP_FIRST}")
            target = await open_one(target_url, create=True)
            copy = StoreCopy(source, target, names, typer.echo)
            is_open = await copy.prepare(meta)
        except StorageError:
            if meta.keys().isdisjoint((COPYING_TO, COPIED_TO)):  # nothing was copied, so services may write again
                await source.write(reopen_store)
            raise
        if is_open:
            await copy.run()

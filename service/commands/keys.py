"""`rankcurve keys …`: API keys, on the store directly, so that the first one can be made.

The rule: a key's text is shown once, when it is made, and is the only thing on standard output then. The store refuses
while a `serve` holds its lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Protocol

import typer

from config import Settings
from service.commands.settings import ConfigOption, StoreOption, settings_from
from service.commands.tables import show_table
from service.commands.target import fail
from storage.errors import StorageError, StoreLocked

keys_app = typer.Typer(
    rich_markup_mode="markdown",
    no_args_is_help=True,
    help="""Create, list and revoke API keys, on the store itself.

    A SQLite file belongs to one process: stop the service first, and start it again afterwards.""",
)


class Role(StrEnum):
    """What a key may do; each role may do what those before it may."""

    reader = "reader"
    writer = "writer"
    ops = "ops"


class KeyRecord(Protocol):
    """A key as the store knows it: never its text. Times are microseconds since 1970; `revoked_at_us` None: in use."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def role(self) -> str: ...
    @property
    def created_at_us(self) -> int: ...
    @property
    def revoked_at_us(self) -> int | None: ...


class KeyStore(Protocol):
    """What these commands need of a store."""

    async def list(self) -> Sequence[KeyRecord]:
        """All keys, revoked ones included."""

    async def create(self, name: str, role: str) -> str:
        """Make a key and return its text, which is stored nowhere."""

    async def revoke(self, id: str) -> None:
        """Make a key useless. Raises UnknownKey."""


def open_store(settings: Settings) -> AbstractAsyncContextManager[KeyStore]:
    """The keys of the settings' store. Entering raises StoreLocked while a service owns the store."""
    from service.key_store import open_keys  # here, because the other commands need no driver

    return open_keys(settings)


def with_keys(store: str | None, config: Path | None, action: Callable[[KeyStore], Awaitable[None]]) -> None:
    """Run `action` on the keys of the store; what the store refuses becomes one line and exit code 1."""
    settings = settings_from({"store": store}, None, config)

    async def session() -> None:
        async with open_store(settings) as keys:
            await action(keys)

    try:
        asyncio.run(session())
    except StoreLocked as error:
        fail(f"stop the service first, keys are managed on the store itself: {error.detail}")
    except StorageError as error:
        fail(error.detail)


@keys_app.command("create")
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whom it is for, for the list.", show_default=False)],
    role: Annotated[Role, typer.Option(help="reader: read; writer: post too; ops: everything.", show_default=False)],
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Make a key and print it, once.

    On SQLite stop the service first: it owns the file while it runs, and reads the keys when it starts.

    Example:

        export RANKCURVE_KEY=$(rankcurve keys create me --role ops)
    """

    async def action(keys: KeyStore) -> None:
        typer.echo(await keys.create(name, role.value))
        typer.echo("keep it now: it is stored hashed and not shown again", err=True)

    with_keys(store, config, action)


@keys_app.command("list")
def list_keys(store: StoreOption = None, config: ConfigOption = None) -> None:
    """List keys: id, name, role, when made, when revoked.

    On SQLite stop the service first: it owns the file while it runs.
    """

    async def action(keys: KeyStore) -> None:
        rows = [
            (each.id, each.name, each.role, day_text(each.created_at_us), day_text(each.revoked_at_us))
            for each in await keys.list()
        ]
        show_table(("id", "name", "role", "created", "revoked"), rows)

    with_keys(store, config, action)


@keys_app.command("revoke")
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The id in `rankcurve keys list`.", show_default=False)],
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Revoke a key.

    On SQLite stop the service first: it owns the file while it runs, and reads the keys when it starts.
    """

    async def action(keys: KeyStore) -> None:
        await keys.revoke(key_id)
        typer.echo(f"revoked {key_id}", err=True)

    with_keys(store, config, action)


def day_text(time_us: int | None) -> str:
    """Microseconds since 1970 as `2026-11-20 10:00:00Z`; nothing for None."""
    return "" if time_us is None else f"{datetime.fromtimestamp(time_us // 1_000_000, UTC):%Y-%m-%d %H:%M:%SZ}"

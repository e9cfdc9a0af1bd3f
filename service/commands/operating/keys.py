"""`rankcurve keys …`: create, list and revoke API keys.

The commands work over HTTP, or on the store itself, for instance to create the first key. `create` prints the text of
the new key, which callers send. No command can show this text again.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer
from rankcurve import AsyncClient
from rankcurve.answers import Record
from rankcurve.client import PAGE_ENTRIES
from rankcurve.paths import path_of

from service.commands.operating.own_store import run_on_store
from service.commands.settings import CONFIG_OPTION, SETTING_OPTIONS, read_settings
from service.commands.tables import show_records
from service.commands.target import DEFAULT_URL, KEY_OPTION, URL_OPTION, URL_VARIABLE, call_service, take, with_options

if TYPE_CHECKING:
    from storage.store import Store

    from .store_keys import StoreKeys

KEYS_PATH = path_of("v1", "keys")
LISTED_MAX = 1_000_000  # the largest value of the setting keys_max
AWAY_HINT = f"name the service with --url or {URL_VARIABLE}; if none runs, name the store with --store"
IF_LOCKED = "a service runs on this store; name the service with --url and --key"
STORE_VARIABLES = ("RANKCURVE_STORE", "RANKCURVE_CONFIG")
OPTIONS = (URL_OPTION.replace(default=None), KEY_OPTION, SETTING_OPTIONS["store"], CONFIG_OPTION)

keys_app = typer.Typer(
    rich_markup_mode="markdown",
    no_args_is_help=True,
    help="""Create, list and revoke API keys, of the service at --url or, with --store, in the store itself.

    A service knows a change within 5 s. A SQLite file belongs to one process, so --store is refused while a service
    runs on it.

    RANKCURVE_STORE or RANKCURVE_CONFIG can name the store, too, unless --url or RANKCURVE_URL is given.""",
)


class ServiceKeys:
    """Lists, creates and revokes the keys of a service over HTTP. It has the same methods as `StoreKeys`."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def list_keys(self) -> list[Record]:
        return await take(self._client.list_records(KEYS_PATH, "keys", Record, {"limit": PAGE_ENTRIES}), LISTED_MAX)

    async def create(self, name: str, role: str) -> tuple[Record, str]:
        made = await self._client.request("POST", KEYS_PATH, Record, body={"name": name, "role": role})
        return made, str(made["key"])

    async def revoke(self, id: str) -> None:
        await self._client.request("DELETE", path_of("v1", "keys", id), bytes)


Keys: TypeAlias = "ServiceKeys | StoreKeys"


def keys_command(function: Callable[..., Awaitable[None]], *, creates_store: bool = False) -> Callable[..., None]:
    """Make a command from a coroutine function whose first parameter `keys` gives access to API keys.

    The command has the function's other parameters, and options that name the service or the store. Without
    `creates_store`, the command fails if the file of the store does not exist.
    """

    def command(
        *, url: str | None, api_key: str | None, store: str | None, config: Path | None, **arguments: Any
    ) -> None:
        async def act_on_store(opened: Store) -> None:
            from storage.schema.creation import prepare_store

            from .store_keys import StoreKeys  # imported here: other commands need no database driver

            await prepare_store(opened)
            await function(StoreKeys(opened, keys_max=settings.keys_max), **arguments)

        by_environment = url is None and any(map(os.environ.get, STORE_VARIABLES))
        if store is None and config is None and not by_environment:

            def act_on_service(client: AsyncClient) -> Awaitable[None]:
                return function(ServiceKeys(client), **arguments)

            call_service(url or DEFAULT_URL, api_key, act_on_service, away_hint=AWAY_HINT)
        else:
            settings = read_settings({"store": store, "create_store": None if creates_store else False}, None, config)
            run_on_store(settings, act_on_store, if_locked=IF_LOCKED)

    return with_options(command, function, OPTIONS, without="keys")


@keys_app.command("create")
@partial(keys_command, creates_store=True)
async def create(
    keys: Keys,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the key in the list, such as its user.", show_default=False)
    ],
    role: Annotated[
        Literal["reader", "writer", "ops"],
        typer.Option(help="reader: may read. writer: may post, too. ops: may do everything.", show_default=False),
    ],
) -> None:
    """Create a key and print it. It is shown only this once.

    The first key of a service that runs without keys must have the role ops. From then on every caller needs a key.
    If no service runs, create the key in the store itself.

    For example:
        export RANKCURVE_KEY=$(rankcurve keys create me --role ops)

        rankcurve keys create me --role ops --store sqlite:///data/rankcurve.db
    """
    _, text = await keys.create(name, role)
    typer.echo(text)
    typer.echo("save it now: it is stored as a hash and never shown again", err=True)


@keys_app.command("list")
@keys_command
async def list_keys(keys: Keys) -> None:
    """List keys with id, name, role, and the times of creation and revocation."""
    columns = {"id": "id", "name": "name", "role": "role", "created": "created_at", "revoked": "revoked_at"}
    show_records(await keys.list_keys(), columns, as_json=False)


@keys_app.command("revoke")
@keys_command
async def revoke(
    keys: Keys,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The id in `rankcurve keys list`.", show_default=False)],
) -> None:
    """Revoke a key. Within 5 s every process refuses that key. A service does not revoke the last key with role ops."""
    await keys.revoke(key_id)
    typer.echo(f"revoked {key_id}", err=True)

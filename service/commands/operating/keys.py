"""`rankcurve keys …`: create, list and revoke API keys.

The commands work over HTTP, or on the store itself, for instance to create the first key. Creating a key prints only
its text, and no command can show this text again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from config import Settings
from service.client.client import ServiceClient, quote_segment
from service.client.client_leases import Record, list_records
from service.commands.settings import ConfigOption, StoreOption, read_settings
from service.commands.tables import show_table
from service.commands.target import DEFAULT_URL, URL_VARIABLE, KeyOption, Target, UrlOption, call_service, fail
from storage.errors import StorageError, StoreLockedError

KEYS_PATH = "/v1/keys"
LISTED_MAX = 1_000_000  # the largest value of the setting keys_max
AWAY_HINT = f"name the service with --url or {URL_VARIABLE}; if none runs, name the store with --store"
STORE_VARIABLES = ("RANKCURVE_STORE", "RANKCURVE_CONFIG")

keys_app = typer.Typer(
    rich_markup_mode="markdown",
    no_args_is_help=True,
    help="""Create, list and revoke API keys, of the service at --url or, with --store, in the store itself.

    A service knows a change within 5 s. A SQLite file belongs to one process, so --store is refused while a service
    runs on it.

    RANKCURVE_STORE or RANKCURVE_CONFIG can name the store, too, unless --url, --key or RANKCURVE_URL is given.""",
)


class Role(StrEnum):
    """The role of an API key. Each role allows everything that the roles listed before it allow."""

    reader = "reader"
    writer = "writer"
    ops = "ops"


class StoredRecord(Protocol):
    """A key as the store holds it, without its text.

    Times are microseconds since 1970; `revoked_at_us` is None while the key is valid.
    """

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
    """The methods of a store that these commands need."""

    async def list_keys(self) -> Sequence[StoredRecord]:
        """Return all keys, revoked ones included."""

    async def create(self, name: str, role: str) -> tuple[StoredRecord, str]:
        """Make a key and return it with its text, which is stored nowhere."""

    async def revoke(self, id: str) -> None:
        """Revoke a key. Raises UnknownKeyError."""


Row = tuple[str, str, str, str, str]  # an API key's id, name, role, time of creation and time of revocation


class Keys(Protocol):
    """The keys of a service, or of a store."""

    async def list_rows(self) -> list[Row]:
        """Return all keys, revoked ones included."""

    async def create_key(self, name: str, role: str) -> str:
        """Make a key and return its text."""

    async def revoke_key(self, key_id: str) -> None:
        """Revoke a key."""


class ServiceKeys:
    def __init__(self, client: ServiceClient) -> None:
        self._client = client

    async def list_rows(self) -> list[Row]:
        found = await list_records(self._client, KEYS_PATH, "keys", limit=LISTED_MAX)
        return [
            (
                each["id"],
                each["name"],
                each["role"],
                wire_day_text(each["created_at"]),
                wire_day_text(each["revoked_at"]),
            )
            for each in found
        ]

    async def create_key(self, name: str, role: str) -> str:
        made = await self._client.request_answer("POST", KEYS_PATH, Record, body={"name": name, "role": role})
        return str(made["key"])

    async def revoke_key(self, key_id: str) -> None:
        await self._client.send_request("DELETE", f"{KEYS_PATH}/{quote_segment(key_id)}")


class StoreKeys:
    def __init__(self, store: KeyStore) -> None:
        self._store = store

    async def list_rows(self) -> list[Row]:
        return [
            (each.id, each.name, each.role, day_text(each.created_at_us), day_text(each.revoked_at_us))
            for each in await self._store.list_keys()
        ]

    async def create_key(self, name: str, role: str) -> str:
        _, text = await self._store.create(name, role)
        return text

    async def revoke_key(self, key_id: str) -> None:
        await self._store.revoke(key_id)


@dataclass(frozen=True, slots=True)
class KeyLocation:
    """The place of the keys: a service, or the store of the settings if `target` is None."""

    target: Target | None
    store: str | None
    config: Path | None


def locate_keys(
    context: typer.Context, url: str, key: str | None, store: str | None, config: Path | None
) -> KeyLocation:
    """Return the place that the options name. If they name both a service and a store, exit with code 2."""

    def is_given(name: str) -> bool:
        source = context.get_parameter_source(name)
        return source is not None and source.name == "COMMANDLINE"

    on_store = is_given("store") or is_given("config")
    on_service = is_given("url") or (is_given("key") and not on_store)
    if on_store and on_service:
        raise typer.BadParameter("--url names a service, and --store or --config names a store; give only one of them")
    named_by_environment = any(os.environ.get(name) for name in STORE_VARIABLES) and not os.environ.get(URL_VARIABLE)
    if on_store or (named_by_environment and not on_service):
        return KeyLocation(None, store, config)
    return KeyLocation(Target(url, key), None, None)


def open_store_keys(settings: Settings) -> AbstractAsyncContextManager[KeyStore]:
    """Provide the keys of the settings' store. Raises StoreLockedError if a service owns the store."""
    from service.key_store import open_keys  # imported here: the other commands need no driver
    from service.wiring import now_us

    return open_keys(settings, now_us=now_us)


def run_with_keys(place: KeyLocation, action: Callable[[Keys], Awaitable[None]]) -> None:
    """Run `action` on the keys at a place. If it fails, print the error on one line and exit with code 1."""
    if place.target is not None:
        call_service(place.target, lambda client: action(ServiceKeys(client)), away_hint=AWAY_HINT)
        return
    settings = read_settings({"store": place.store}, None, place.config)

    async def session() -> None:
        async with open_store_keys(settings) as keys:
            await action(StoreKeys(keys))

    try:
        asyncio.run(session())
    except StoreLockedError as error:
        fail(f"a service runs on this store; name the service with --url and --key: {error.detail}")
    except StorageError as error:
        fail(error.detail)


@keys_app.command("create")
def create(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the key in the list, such as its user.", show_default=False)
    ],
    role: Annotated[
        Role, typer.Option(help="reader: may read. writer: may post, too. ops: may do everything.", show_default=False)
    ],
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Create a key and print it. It is shown only this once.

    The first key of a service that runs without keys must have the role ops. From then on every caller needs a key.
    If no service runs, create the key in the store itself.

    Examples:
        export RANKCURVE_KEY=$(rankcurve keys create me --role ops)

        rankcurve keys create me --role ops --store sqlite:///data/rankcurve.db
    """

    async def action(keys: Keys) -> None:
        typer.echo(await keys.create_key(name, role.value))
        typer.echo("save it now: it is stored as a hash and never shown again", err=True)

    run_with_keys(locate_keys(context, url, key, store, config), action)


@keys_app.command("list")
def list_keys(
    context: typer.Context,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """List keys with id, name, role, and the times of creation and revocation."""

    async def action(keys: Keys) -> None:
        show_table(("id", "name", "role", "created", "revoked"), await keys.list_rows())

    run_with_keys(locate_keys(context, url, key, store, config), action)


@keys_app.command("revoke")
def revoke(
    context: typer.Context,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The id in `rankcurve keys list`.", show_default=False)],
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Revoke a key. Within 5 s every process refuses that key. A service does not revoke the last key with role ops."""

    async def action(keys: Keys) -> None:
        await keys.revoke_key(key_id)
        typer.echo(f"revoked {key_id}", err=True)

    run_with_keys(locate_keys(context, url, key, store, config), action)


def day_text(time_us: int | None) -> str:
    """Return microseconds since 1970 as `2026-11-20 10:00:00Z`, or an empty text for None."""
    return "" if time_us is None else f"{datetime.fromtimestamp(time_us // 1_000_000, UTC):%Y-%m-%d %H:%M:%SZ}"


def wire_day_text(time: Any) -> str:
    """Return a time of a response in the format of `day_text`."""
    return "" if time is None else f"{str(time)[:19].replace('T', ' ')}Z"

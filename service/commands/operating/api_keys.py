"""`rankcurve keys …`: create, list and revoke API keys.

The commands work over HTTP. `create` can also open the store itself, because the first key has to exist before a
service may listen to other machines. It prints the text of the new key, which no command can show again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer
from rankcurve import AsyncClient
from rankcurve.answers import ENCODER, Record

from service.commands.operating.own_store import CONFIG_OPTION, SETTING_OPTIONS, read_settings, run_on_store
from service.commands.request_commands import REASON, add_command, add_list, add_request, argument, option
from service.commands.target import DEFAULT_URL, KEY_OPTION, URL_OPTION, call_service

if TYPE_CHECKING:
    from storage.store import Program, Store

KEYS_PATH = "/v1/keys"
IF_LOCKED = "a service runs on this store; name the service with --url and --key"
STORE_VARIABLES = ("RANKCURVE_STORE", "RANKCURVE_CONFIG")
NAME = argument("name", "NAME", "Name of the key in the list, such as its user.")
ROLE = option(
    "role",
    Literal["reader", "writer", "ops"],
    "reader: may read. writer: may post, too. ops: may do everything.",
    default=...,
)
KEY_ID = argument("id", "ID", "The id in `rankcurve keys list`.")

keys_app = typer.Typer(
    rich_markup_mode="markdown",
    no_args_is_help=True,
    help="Create, list and revoke API keys. A service knows a change within 5 s.",
)


def create(
    *, name: str, role: str, url: str | None, api_key: str | None, store: str | None, config: Path | None
) -> None:
    async def act_on_service(client: AsyncClient) -> None:
        typer.echo((await client.request("POST", KEYS_PATH, Record, body={"name": name, "role": role}))["key"])

    async def act_on_store(opened: Store) -> None:
        # Imported here, because the other commands need no database driver.
        from service.contract.api_keys import make_api_key
        from service.wiring import now_us
        from storage.boards.acts import Act, record_act
        from storage.boards.api_keys import add_key
        from storage.schema.creation import prepare_store

        await prepare_store(opened)
        key, text = make_api_key(name, role, now_us())

        def adding() -> Program[None]:
            yield from add_key(key, keys_max=settings.keys_max)
            detail = ENCODER.encode({"id": key.id, "role": role}).decode()
            yield from record_act(Act(key.created_at_us, "key.created", detail=detail))

        await opened.write(adding)
        typer.echo(text)

    by_environment = url is None and any(map(os.environ.get, STORE_VARIABLES))
    if store is None and config is None and not by_environment:
        call_service(url or DEFAULT_URL, api_key, act_on_service)
    else:
        settings = read_settings({"store": store}, None, config)
        run_on_store(settings, act_on_store, if_locked=IF_LOCKED)
    typer.echo("save it now: it is stored as a hash and never shown again", err=True)


add_command(
    keys_app,
    "create",
    create,
    """Create a key and print it. It is shown only this once.

    The first key of a service that runs without keys must have the role ops. From then on every caller needs a key.
    If no service runs, create the key in the store itself with --store, --config, RANKCURVE_STORE or RANKCURVE_CONFIG.
    The two variables count only if neither --url nor RANKCURVE_URL is given.

    For example:
        export RANKCURVE_KEY=$(rankcurve keys create me --role ops)

        rankcurve keys create me --role ops --store sqlite:///data/rankcurve.db
    """,
    *(NAME, ROLE, URL_OPTION.replace(default=None), KEY_OPTION, SETTING_OPTIONS["store"], CONFIG_OPTION),
)
add_list(
    keys_app,
    "list",
    KEYS_PATH,
    "List keys with id, name, role, and the times of creation and revocation.",
    {"id": "id", "name": "name", "role": "role", "created": "created_at", "revoked": "revoked_at"},
)
add_request(
    keys_app,
    "revoke",
    f"DELETE {KEYS_PATH}/{{id}}",
    "Revoke a key. Within 5 s every process refuses that key. The last key with the role ops can't be revoked.",
    KEY_ID,
    REASON,
)

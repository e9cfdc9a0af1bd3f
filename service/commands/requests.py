"""Declares commands that only send a request and show the answer, without a function for each.

The parameters of such a command are made by `argument` and `option`. Those that the path names fill the path. All
others that are given become members of the body, or the query of a GET.
"""

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import Annotated, Any

import typer
from rankcurve import AsyncClient
from rankcurve.answers import Record
from rankcurve.client import PAGE_ENTRIES
from rankcurve.paths import path_of

from service.commands.tables import Columns, show_json, show_records
from service.commands.target import SERVICE_OPTIONS, JsonOption, LimitOption, call_service, take

LIMIT = Parameter("limit", Parameter.KEYWORD_ONLY, default=1000, annotation=LimitOption)
AS_JSON = Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption)
YES = Parameter(
    "yes",
    Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")],
)


def argument(name: str, annotation: object) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation)


def option(name: str, kind: Any, about: str, *flags: str, min: float | None = None) -> Parameter:
    """Return an option that may be left out. Without `flags` its flag is made of the name."""
    annotation = Annotated[kind | None, typer.Option(*flags, help=about, min=min)]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def add_request(
    app: typer.Typer, name: str, request: str, about: str, *parameters: Parameter, confirm: str | None = None
) -> None:
    """Add a command that sends a request such as `DELETE /v1/keys/{id}`, and shows the answer as JSON.

    With `confirm`, the command deletes something. Without --yes it asks `confirm`, whose fields are the names of the
    parameters.
    """
    method, path = request.split(" ")

    def command(*, url: str, key: str | None, yes: bool = True, **values: Any) -> None:
        if not yes and not typer.confirm(str(confirm).format(**values)):
            raise typer.Exit(1)

        async def action(client: AsyncClient) -> None:
            if method == "DELETE":
                await client.request(method, fill_path(path, values), bytes)
                if confirm:
                    typer.echo(f"deleted {' '.join(values.values())}", err=True)
                return
            given = {name: value for name, value in values.items() if value is not None and f"{{{name}}}" not in path}
            sent: Mapping[str, Any] = {"query" if method == "GET" else "body": given}
            show_json(await client.request(method, fill_path(path, values), Record, **sent))

        call_service(url, key, action)

    _add_command(app, name, command, about, *parameters, *((YES,) if confirm else ()))


def add_list(
    app: typer.Typer,
    name: str,
    path: str,
    about: str,
    columns: Columns,
    *parameters: Parameter,
    numeric: tuple[str, ...] = (),
) -> None:
    """Add a command that lists records, as a table or as JSON. The last part of the path names the list, too."""

    def command(*, url: str, key: str | None, limit: int, as_json: bool, **values: Any) -> None:
        async def action(client: AsyncClient) -> None:
            given = {name: value for name, value in values.items() if f"{{{name}}}" not in path}
            query = {**given, "limit": min(limit, PAGE_ENTRIES)}
            found = client.list_records(fill_path(path, values), path.rpartition("/")[2], Record, query)
            show_records(await take(found, limit), columns, as_json=as_json, numeric=numeric)

        call_service(url, key, action)

    _add_command(app, name, command, about, *parameters, LIMIT, AS_JSON)


def fill_path(template: str, values: Mapping[str, Any]) -> str:
    """Return a path with the values of its fields in braces, each quoted."""
    parts = template.strip("/").split("/")
    return path_of(*(str(values[part[1:-1]]) if part.startswith("{") else part for part in parts))


def _add_command(app: typer.Typer, name: str, command: Callable[..., None], about: str, *parameters: Parameter) -> None:
    # typer makes arguments and options of a signature.
    command.__signature__ = Signature([*parameters, *SERVICE_OPTIONS])  # type: ignore[attr-defined]
    app.command(name, help=about)(command)

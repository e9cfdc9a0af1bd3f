"""Declares commands that only send a request and show the answer.

Most commands do nothing else, and a function for each would repeat paths, flags and printing fifty times. `argument`
and `option` make the parameters of such a command. If the path has a field `{board}`, the parameter `board` fills it;
every other parameter that the user gives becomes a field of the JSON body or, for a GET, of the query.
"""

import sys
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import Annotated, Any

import typer
from rankcurve import AsyncClient
from rankcurve.answers import Record, decode
from rankcurve.client import PAGE_ENTRIES
from rankcurve.transport import path_of

from service.commands.tables import Columns, show_json, show_records, shown
from service.commands.target import (
    KEY_OPTION,
    URL_OPTION,
    JsonOption,
    LimitOption,
    call_service,
    take,
)

LIMIT = Parameter("limit", Parameter.KEYWORD_ONLY, default=1000, annotation=LimitOption)
AS_JSON = Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption)
Query = Mapping[str, Any]


def argument(name: str, metavar: str, about: str, kind: Any = str) -> Parameter:
    annotation = Annotated[kind, typer.Argument(metavar=metavar, help=about, show_default=False)]
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation)


def option(name: str, kind: Any, about: str, *flags: str, default: Any = None, **more: Any) -> Parameter:
    """Declare an option of a command. Without `flags`, its flag is made from `name`. With `default=...` it is required.

    `more` has further arguments of typer.Option, such as `min` and `max`.
    """
    shown = default is not None and default is not ...
    kind = kind | None if default is None else kind
    annotation = Annotated[kind, typer.Option(*flags, help=about, show_default=shown, **more)]
    default = Parameter.empty if default is ... else default
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


REASON = option("reason", str, "Reason to record, as shown by `rankcurve acts`.")
YES = option("yes", bool, "Do not ask for confirmation.", "--yes", default=False)


def add_request(
    app: typer.Typer,
    name: str,
    request: str,
    about: str,
    *parameters: Parameter,
    confirm: str | None = None,
    convert: Callable[[dict[str, Any]], Query] = dict,
    show: Callable[[Record], None] | None = None,
) -> None:
    """Add a command that sends a request such as `DELETE /v1/families/{family}`, and shows the answer as JSON.

    `confirm` is the question that a deleting command asks first, unless --yes is given. Names in braces in the question
    are replaced by parameters. `convert` makes the body or the query from the given parameters that are not in the
    path. `show` prints the answer for people, unless --json is given.
    """
    method, path = request.split(" ")

    def command(
        *, url: str, api_key: str | None, yes: bool = True, as_json: bool = show is None, **values: Any
    ) -> None:
        if not yes and not typer.confirm(str(confirm).format(**values)):
            raise typer.Exit(1)
        given = convert(unfilled(path, values))
        by_query = method == "GET" or given.keys() == {"reason"}  # a request without a body has the reason in the query

        async def action(client: AsyncClient) -> None:
            sent: Query = {} if not given else {"query": given} if by_query else {"body": given}
            content = await client.request(method, fill_path(path, values), bytes, **sent)
            if not content:
                filled = [str(value) for field, value in values.items() if f"{{{field}}}" in path]
                typer.echo(f"done: {name} {' '.join(filled)}", err=True)
            else:
                (show_json if as_json or show is None else show)(decode(content, Record))

        call_service(url, api_key, action)

    flags = (*((YES,) if confirm else ()), *((AS_JSON,) if show else ()))
    add_command(app, name, command, about, *parameters, *flags, URL_OPTION, KEY_OPTION)


def add_list(
    app: typer.Typer,
    name: str,
    path: str,
    about: str,
    columns: Columns,
    *parameters: Parameter,
    numeric: tuple[str, ...] = (),
    field: str | None = None,
    **fixed: bool,
) -> None:
    """Add a command that lists the records of an answer, as a table or as JSON.

    The answer is a JSON object with the records in `field`. By default, this is the last part of `path`: `keys`.
    Each request also has the parameters `fixed`.
    """

    def command(*, url: str, api_key: str | None, limit: int, as_json: bool, **values: Any) -> None:
        query = {**unfilled(path, values), **fixed, "limit": min(limit, PAGE_ENTRIES)}

        async def action(client: AsyncClient) -> None:
            name = field or path.rpartition("/")[2]
            found = client.list_records(fill_path(path, values), name, Record, query)
            show_records(await take(found, limit), columns, as_json=as_json, numeric=numeric)

        call_service(url, api_key, action)

    add_command(app, name, command, about, *parameters, LIMIT, AS_JSON, URL_OPTION, KEY_OPTION)


async def print_lines(client: AsyncClient, path: str, *, after: int, limit: int) -> None:
    lines = await client.request("GET", path, bytes, query={"after": after, "limit": limit})
    typer.echo(shown(lines.decode(), sys.stdout), nl=False)


def fill_path(template: str, values: Query) -> str:
    """Replace the fields in braces of a path by their values, each percent-encoded."""
    parts = template.strip("/").split("/")
    return path_of(*(str(values[part[1:-1]]) if part.startswith("{") else part for part in parts))


def unfilled(template: str, values: Query) -> dict[str, Any]:
    """Return the values that the user gave, without those that fill a field of the path."""
    given = {name: value for name, value in values.items() if value is not None and value != []}
    return {name: value for name, value in given.items() if f"{{{name}}}" not in template}


def add_command(app: typer.Typer, name: str, command: Callable[..., None], about: str, *parameters: Parameter) -> None:
    # typer reads the arguments and options of a command from its signature.
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    app.command(name, help=about)(command)

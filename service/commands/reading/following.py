"""`rankcurve journal` and `rankcurve stream`: accepted posts and changes, one JSON object on each line.

To continue later, pass the number in the last line to the next command.
"""

from __future__ import annotations

from typing import Annotated

import typer

from service.client.client import ServiceClient
from service.client.client_events import read_events
from service.commands.target import DEFAULT_URL, BoardArgument, KeyOption, Target, UrlOption, call_service

JOURNAL_LINES_MAX = 1_000  # lines in the response to one request
ColumnArgument = Annotated[str, typer.Argument(metavar="COLUMN", help="Ranked column.", show_default=False)]
LastOption = Annotated[int | None, typer.Option("--last-event-id", help="Continue after the event with this number.")]


def journal(
    after: Annotated[int, typer.Option(min=0, help="The last sequence number seen. 0: start at the beginning.")] = 0,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Print the journal of accepted posts up to now (role `writer`)."""

    async def action(client: ServiceClient) -> None:
        seen = after
        while lines := (await client.read_journal(after=seen, limit=JOURNAL_LINES_MAX)).splitlines():
            for line in lines:
                typer.echo(line.decode())
            seen = client.parse_seq(lines[-1])

    call_service(Target(url, key), action)


def stream(
    board: BoardArgument,
    column: ColumnArgument,
    top: Annotated[int | None, typer.Option("--top", "-n", min=1, help="Number of the best rows.")] = None,
    owner: Annotated[str | None, typer.Option("--owner", help="Show this owner's position instead.")] = None,
    last_event_id: LastOption = None,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Print the top of a ranking, or an owner's position, whenever it changes. Ends with the service or with Ctrl-C."""
    query = {"column": column} | ({"top": str(top)} if top else {}) | ({"owner": owner} if owner else {})

    async def action(client: ServiceClient) -> None:
        async for number, name, data in read_events(client, board, query, last_event_id=last_event_id):
            typer.echo(f'{{"id": {number}, "event": "{name}", "data": {data}}}')

    call_service(Target(url, key), action)

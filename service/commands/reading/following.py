"""`rankcurve journal` and `rankcurve stream`: accepted posts and changes, one JSON object on each line.

To continue later, pass the number or cursor in the last line to the next command.
"""

from typing import Annotated

import aiohttp
import typer
from yarl import URL

from service.client.client import (
    Record,
    ServiceClient,
    UnreachableError,
    board_path,
    decode_answer,
    path_with_query,
    refusal_of,
)
from service.client.client_answers import one_line
from service.commands.target import BoardArgument, service_command

NO_TIMEOUT = aiohttp.ClientTimeout(total=None)
EVENT_LINE_BYTES_MAX = 1 << 20
JOURNAL_LINES_MAX = 1_000  # lines in the response to one request
ColumnArgument = Annotated[str, typer.Argument(metavar="COLUMN", help="Ranked column.", show_default=False)]
LastOption = Annotated[str | None, typer.Option("--last-event-id", help="Continue after the event with this id.")]


@service_command()
async def journal(
    client: ServiceClient,
    after: Annotated[
        str, typer.Option(metavar="SEQ", help="The `seq` of the last line seen. 0: start at the beginning.")
    ] = "0",
) -> None:
    """Print the journal of accepted posts up to now (role `writer`)."""
    seen = after
    while True:
        query = {"after": seen, "limit": JOURNAL_LINES_MAX}
        lines = (await client.send_request("GET", "/v1/journal", query=query)).splitlines()
        if not lines:
            return
        for line in lines:
            typer.echo(line.decode())
        seen = str(decode_answer(lines[-1], Record)["seq"])


@service_command()
async def stream(
    client: ServiceClient,
    board: BoardArgument,
    column: ColumnArgument,
    top: Annotated[int | None, typer.Option("--top", "-n", min=1, help="Number of the best rows.")] = None,
    owner: Annotated[str | None, typer.Option("--owner", help="Show this owner's position instead.")] = None,
    last_event_id: LastOption = None,
) -> None:
    """Print the top of a ranking, or an owner's position, whenever it changes. Ends with the service or with Ctrl-C."""
    query = {"column": column, "top": top, "owner": owner or None}
    address = client.url + path_with_query(f"{board_path(board)}/stream", query)
    headers = {"Accept": "text/event-stream"}
    headers |= {} if last_event_id is None else {"Last-Event-ID": last_event_id}
    fields: dict[str, str] = {}
    try:
        async with client.session.get(
            URL(address, encoded=True), headers=headers, timeout=NO_TIMEOUT, read_bufsize=EVENT_LINE_BYTES_MAX
        ) as response:
            if response.status != 200:
                raise refusal_of(response.status, await response.read())
            while line := await response.content.readline():
                text = line.decode().rstrip("\n")
                if not text and "data" in fields:
                    event_id = fields["id"] if fields["id"].isdigit() else f'"{fields["id"]}"'
                    typer.echo(f'{{"id": {event_id}, "event": "{fields["event"]}", "data": {fields["data"]}}}')
                    fields = {}
                name, _, value = text.partition(": ")
                if name:
                    fields[name] = value
    except BrokenPipeError:  # of the terminal, not of the service
        raise
    except (aiohttp.ClientError, TimeoutError, OSError) as cause:
        raise UnreachableError(
            f"no answer from {client.url}: {one_line(str(cause)) or type(cause).__name__}"
        ) from cause

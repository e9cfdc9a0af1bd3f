"""`rankcurve journal` and `rankcurve stream`: print accepted posts or ranking changes, one JSON object on each line.

To continue the journal later, pass the `seq` of the last line to the next command as --after.
"""

from typing import Annotated

import typer
from rankcurve import AsyncClient
from rankcurve.answers import ENCODER, Record, decode

from service.commands.tables import say
from service.commands.target import BoardArgument, service_command

JOURNAL_LINES_MAX = 1_000  # lines in the response to one request
STREAM_ATTEMPTS_MAX = 3  # after this many failures in a row, the command gives up; a break counts as one
ColumnArgument = Annotated[
    str | None, typer.Argument(metavar="COLUMN", help="Ranked column. Default: the only one.", show_default=False)
]


@service_command()
async def journal(
    client: AsyncClient,
    after: Annotated[
        str, typer.Option(metavar="SEQ", help="The `seq` of the last line seen. 0: start at the beginning.")
    ] = "0",
) -> None:
    """Print the journal of accepted posts up to now (role `writer`)."""
    seen = after
    while True:
        query = {"after": seen, "limit": JOURNAL_LINES_MAX}
        lines = (await client.request("GET", "/v1/journal", bytes, query=query)).splitlines()
        if not lines:
            return
        for line in lines:
            say(line.decode())
        seen = str(decode(lines[-1], Record)["seq"])


@service_command()
async def stream(
    client: AsyncClient,
    board: BoardArgument,
    column: ColumnArgument = None,
    top: Annotated[int | None, typer.Option("--top", "-n", min=1, help="Number of the best rows.")] = None,
    owner: Annotated[str | None, typer.Option("--owner", help="Show this owner's position instead.")] = None,
) -> None:
    """Print the top of a ranking, or an owner's position, whenever it changes. Ctrl-C ends it."""
    events = client.stream(board, column, top=top, owner=owner or None, attempts_max=STREAM_ATTEMPTS_MAX)
    async for event in events:
        number = int(event.id) if event.id.isdecimal() else event.id
        line: Record = {"id": number, "event": event.event, "data": {} if event.data is None else event.data}
        say(ENCODER.encode(line).decode())

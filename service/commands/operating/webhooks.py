"""`rankcurve webhook …` manages who is told about events of leaderboards; `rankcurve events` lists the events."""

from typing import Annotated

import typer
from rankcurve import AsyncClient

from service.commands.request_commands import add_list, add_request, argument, option, print_lines
from service.commands.target import service_command

PATH = "/v1/webhooks/{webhook}"
WEBHOOK = argument("webhook", "ID", "Id of the webhook.")

webhook_app = typer.Typer(rich_markup_mode="markdown", no_args_is_help=True, help="Webhooks, which receive events.")

add_request(
    webhook_app,
    "put",
    f"PUT {PATH}",
    """Create a webhook and print it with its secret, or change one.

    The secret is shown only when the webhook is created.

    For example:

        rankcurve webhook put shop https://game.example/events --event board.closed --board "arena:*"
    """,
    WEBHOOK,
    argument("receiver", "RECEIVER", "URL that receives the events."),
    option("events", list[str], "Type of event to send. Default: all.", "--event"),
    option("boards", list[str], "Leaderboard, or the beginning of ids and `*`. Default: all.", "--board"),
    convert=lambda given: {"url" if name == "receiver" else name: value for name, value in given.items()},
)
add_list(
    webhook_app,
    "list",
    "/v1/webhooks",
    "List webhooks, and how far their deliveries have come.",
    {"id": "id", "url": "url", "state": "state", "delivered": "delivered", "last error": "last_error"},
    numeric=("delivered",),
)
add_request(webhook_app, "show", f"GET {PATH}", "Show a webhook.", WEBHOOK)
add_request(webhook_app, "test", f"POST {PATH}/test", "Send a test event to a webhook.", WEBHOOK)
add_request(
    webhook_app, "resume", f"POST {PATH}/resume", "Resume deliveries at once, even if they are paused.", WEBHOOK
)
add_request(
    webhook_app,
    "rotate",
    f"POST {PATH}/rotate",
    "Make a new secret and print it. For a day, the old one still signs, too.",
    WEBHOOK,
)
add_request(
    webhook_app, "delete", f"DELETE {PATH}", "Delete a webhook.", WEBHOOK, confirm="Delete the webhook {webhook}?"
)


@service_command()
async def events(
    client: AsyncClient,
    after: Annotated[int, typer.Option(min=0, help="Show only events after this number.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of events.")] = 100,
) -> None:
    """Print events of leaderboards (created, closed, archived), one JSON object on each line."""
    await print_lines(client, "/v1/events", after=after, limit=limit)

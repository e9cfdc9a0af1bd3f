"""`rankcurve post …`: take back posts. `rankcurve queue …`: show the posts that wait to be applied."""

from typing import Annotated

import typer
from rankcurve import AsyncClient

from service.commands.requests import add_request
from service.commands.tables import show_json
from service.commands.target import service_command

PlaceArgument = Annotated[
    str, typer.Argument(metavar="BOARD", help="Id of the leaderboard, or with --family of the family.")
]
PostIdArgument = Annotated[str, typer.Argument(metavar="POST_ID", help="Id of the post.")]
OwnerOption = Annotated[str, typer.Option("--owner", help="Whose post it is.")]
FamilyOption = Annotated[bool, typer.Option("--family", help="BOARD is a family: take it back on all its boards.")]

post_app = typer.Typer(rich_markup_mode="markdown", no_args_is_help=True, help="Take back posts.")
queue_app = typer.Typer(
    no_args_is_help=True, help="Show the ingest queue: posts that are accepted and not yet applied."
)
add_request(
    queue_app, "show", "GET /v1/queue",
    "Show the posts that wait in each shard of the queue, and the queue workers, as JSON (role `ops`).",
)  # fmt: skip


@post_app.command("void")
@service_command()
async def void(
    client: AsyncClient, board: PlaceArgument, post_id: PostIdArgument, owner: OwnerOption, family: FamilyOption = False
) -> None:
    """Take back a post (role `ops`): the owner's entry becomes what it would be without it. Prints the new values.

    The id of the post stays taken: sent again, the post is rejected. Running the command again is harmless. It is
    refused if the journal no longer has the first post of the entry. Exits with 1 if a board of the family keeps it.

    For example:

        rankcurve owner posts ada
        rankcurve post void season match-8812 --owner ada
        rankcurve post void game match-8812 --owner ada --family
    """
    take_back = client.void_family_post if family else client.void_post
    boards = await take_back(board, post_id, owner=owner)
    show_json(boards)
    if any(each.error is not None for each in boards):
        raise typer.Exit(1)

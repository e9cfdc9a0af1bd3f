"""`rankcurve owner …`: hide, unhide, merge and erase owners, and print entries and posts. `rankcurve acts` lists acts.

`rankcurve post …` takes back posts, and `rankcurve queue …` shows those that wait to be applied.
"""

from typing import Annotated

import typer
from rankcurve import AsyncClient
from rankcurve.answers import ENCODER, Record
from rankcurve.client import PAGE_ENTRIES

from service.commands.request_commands import REASON, add_list, add_request, argument, option
from service.commands.tables import cell_text, say, show_json, show_records
from service.commands.target import BoardArgument, JsonOption, LimitOption, service_command, take

OWNER = argument("owner", "OWNER", "Whom.")
OWNER_PATH = "/v1/owners/{owner}"

owner_app = typer.Typer(
    rich_markup_mode="markdown",
    no_args_is_help=True,
    help="Hide, unhide, merge and erase owners; print posts.",
)


def show_changed(answer: Record) -> None:
    """Print on stderr how many entries were changed. If there were none, warn that the name may be misspelled."""
    entries: int = answer["entries"]
    warning = "; warning: there are no entries of this owner, so the name may be misspelled"
    typer.echo(f"changed {entries} entries{'' if entries else warning}", err=True)


def values_text(entry: Record) -> str:
    """List the values that an entry has, as a text such as `xp 30, lap 58.25`."""
    return ", ".join(f"{name} {cell_text(value)}" for name, value in entry["stats"].items() if value is not None)


def show_posts(answer: Record) -> None:
    for post in answer["posts"]:
        say(ENCODER.encode(post).decode())


# fmt: off
add_request(
    owner_app, "hide", f"PUT {OWNER_PATH}/hidden",
    "Hide an owner from every ranking, total and stream (role `ops`). The owner's posts are still merged.",
    OWNER, option("shadow", bool, "The owner still sees its own ranks.", "--shadow", default=False), REASON,
    show=show_changed,
)
add_request(
    owner_app, "unhide", f"DELETE {OWNER_PATH}/hidden", "Let rankings show a hidden owner again (role `ops`).",
    OWNER, REASON, show=show_changed,
)
add_list(
    owner_app, "hidden", "/v1/owners", "List the hidden owners, and why they are hidden (role `ops`).",
    {"owner": "owner", "since": "since", "key": "key", "shadow": "shadow", "reason": "reason"}, hidden=True,
)
add_list(
    owner_app, "show", f"{OWNER_PATH}/boards", "Print an owner's entries by leaderboard.",
    {"board": "board", "values": values_text, "updated": "updated_at"}, OWNER,
)
add_request(
    owner_app, "erase", f"DELETE {OWNER_PATH}",
    "Erase an owner: all entries, the profile, and the name and posts in the journal (role `ops`).",
    OWNER, REASON, confirm="Erasing can't be undone. Erase {owner} everywhere?", show=show_changed,
)
add_request(
    owner_app, "merge", f"POST {OWNER_PATH}/merge",
    "Merge OWNER into another owner: both accounts become one (role `ops`). Running it again is harmless.",
    OWNER, argument("into", "INTO", "Owner who gets the entries."),
    option("source", str, "`journal`: the posts of both; `entries`: their values.", "--from", default="journal"),
    REASON,
    confirm="A merge can't be undone. Merge {owner} into {into}?",
    convert=lambda given: {"from" if name == "source" else name: value for name, value in given.items()},
)
add_request(
    owner_app, "posts", f"GET {OWNER_PATH}/posts", "Print an owner's newest posts, one JSON object on each line.",
    OWNER, option("limit", int, "Show at most this many.", "--limit", "-n", default=20), show=show_posts,
)
# fmt: on


PlaceArgument = Annotated[
    str, typer.Argument(metavar="BOARD", help="Id of the leaderboard, or with --family of the family.")
]
PostIdArgument = Annotated[str, typer.Argument(metavar="POST_ID", help="Id of the post.")]
OwnerOption = Annotated[str, typer.Option("--owner", help="Owner of the post.")]
ReasonOption = Annotated[str | None, typer.Option("--reason", help="Reason to record, as shown by `rankcurve acts`.")]
FamilyOption = Annotated[bool, typer.Option("--family", help="BOARD is a family: take it back on all its boards.")]

post_app = typer.Typer(rich_markup_mode="markdown", no_args_is_help=True, help="Take back posts; judge held ones.")
queue_app = typer.Typer(
    no_args_is_help=True, help="Show the ingest queue: posts that are accepted but not applied yet."
)
add_request(
    queue_app, "show", "GET /v1/queue",
    "Show the waiting posts in each shard of the queue, and the queue workers, as JSON (role `ops`).",
)  # fmt: skip
add_list(
    post_app, "held", "/v1/leaderboards/{board}/held",
    "List the held posts of a leaderboard, oldest first (role `ops`).",
    {"held": "held_at", "owner": "owner", "post": "post_id", "values": values_text, "reason": "reason"},
    argument("board", "BOARD", "Id of the leaderboard."), field="posts",
)  # fmt: skip


@service_command()
async def join(
    client: AsyncClient, board: BoardArgument, owner: Annotated[str, typer.Argument(help="Owner who joins.")]
) -> None:
    """Let an owner join a leaderboard with entry rules. Prints how many posts the owner has left, as JSON.

    If the leaderboard is full, closed or not open yet, the command exits with 1. Running it again is harmless.
    """
    show_json(await client.join(board, owner))


@service_command()
async def acts(
    client: AsyncClient,
    owner: Annotated[str | None, typer.Option(help="Only acts that concern this owner.")] = None,
    board: Annotated[str | None, typer.Option(help="Only acts that concern this leaderboard.")] = None,
    by: Annotated[str | None, typer.Option(help="Only acts with the API key of this id.")] = None,
    limit: LimitOption = 100,
    as_json: JsonOption = False,
) -> None:
    """List what operators have done and why, newest first (role `ops`)."""
    query = {"owner": owner, "board": board, "key": by, "limit": min(limit, PAGE_ENTRIES)}
    found = client.list_records("/v1/acts", "acts", Record, query)
    columns = {each: each for each in ("at", "act", "key", "owner", "board", "reason", "detail")}
    show_records(await take(found, limit), columns, as_json=as_json)


@owner_app.command("export")
@service_command()
async def export(
    client: AsyncClient, owner: Annotated[str, typer.Argument(metavar="OWNER", help="Owner whose data is printed.")]
) -> None:
    """Print everything stored about one person, one JSON object on each line (role `ops`).

    Each line has a `kind` and `data`: entries (also hidden and archived ones), posts in the journal and the queue,
    grants, joins, profile, acts, merged ids. Exits with 1 if the export is incomplete.
    """
    for line in await client.export_owner(owner):
        say(ENCODER.encode(line).decode())


@owner_app.command("erase-entries")
@service_command()
async def erase_entries(
    client: AsyncClient,
    board: BoardArgument,
    owners: Annotated[
        list[str] | None, typer.Option("--owner", help="Owner whose entry is erased; repeatable.")
    ] = None,
    column: Annotated[str | None, typer.Option(help="The ranked column; needed if there are several.")] = None,
    from_rank: Annotated[int | None, typer.Option(help="Erase this row of the ranking and all worse ones.")] = None,
    worse_than: Annotated[str | None, typer.Option(help="Erase the entries with a worse value than this.")] = None,
    reason: ReasonOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Erase many entries of a leaderboard (role `ops`): those of owners, or the end of a ranking. Prints how many.

    Each request erases up to 10,000 entries, until none is left. If the command is interrupted, run it again.

    For example, keep the best 1,000:

        rankcurve owner erase-entries season --column xp --from-rank 1001
    """
    if not yes and not typer.confirm(f"Erasing can't be undone. Erase these entries of {board}?"):
        raise typer.Exit(1)
    erased, more = 0, True
    while more:
        found = await client.erase_entries(
            board, owners=owners or None, column=column, from_rank=from_rank, worse_than=worse_than, reason=reason
        )
        erased, more = erased + found.erased, found.more
    typer.echo(f"erased {erased} entries", err=True)


@post_app.command("void")
@service_command()
async def void(
    client: AsyncClient,
    board: PlaceArgument,
    post_id: PostIdArgument,
    owner: OwnerOption,
    family: FamilyOption = False,
    reason: ReasonOption = None,
) -> None:
    """Take back a post (role `ops`): recompute the owner's entry without it. Prints the new values.

    The id of the post stays reserved: sent again, the post is rejected. Running the command again is harmless. It is
    refused if the journal no longer has the first post of the entry. Exits with 1 if a board of the family keeps the
    post.

    For example:

        rankcurve owner posts ada
        rankcurve post void season match-8812 --owner ada
        rankcurve post void game match-8812 --owner ada --family
    """
    take_back = client.void_family_post if family else client.void_post
    boards = await take_back(board, post_id, owner=owner, reason=reason)
    show_json(boards)
    if any(each.error is not None for each in boards):
        raise typer.Exit(1)


@post_app.command("accept")
@service_command()
async def accept(
    client: AsyncClient, board: BoardArgument, post_id: PostIdArgument, owner: OwnerOption, reason: ReasonOption = None
) -> None:
    """Accept a held post (role `ops`): apply it with its original time.

    Prints the result as JSON.

    For example:

        rankcurve post held season
        rankcurve post accept season match-8812 --owner ada
    """
    show_json(await client.judge_post(board, post_id, "accept", owner=owner, reason=reason))


@post_app.command("refuse")
@service_command()
async def refuse(
    client: AsyncClient, board: BoardArgument, post_id: PostIdArgument, owner: OwnerOption, reason: ReasonOption = None
) -> None:
    """Refuse a held post (role `ops`): it never counts, and its id stays reserved. Prints its state as JSON."""
    show_json(await client.judge_post(board, post_id, "refuse", owner=owner, reason=reason))

"""The command `rankcurve`: one application, assembled from the commands in `service.commands`.

This file only lists the commands and their order, so it reads like the output of `rankcurve --help`.
"""

import importlib.metadata
from typing import Annotated

import typer

from service.commands.boards.applying import apply
from service.commands.boards.boards import board_app, family_app
from service.commands.boards.leagues import league_app
from service.commands.boards.owners import acts, join, owner_app, post_app, queue_app
from service.commands.boards.rewards import rewards_app
from service.commands.imports.importing import import_posts
from service.commands.language_models import serve_tools
from service.commands.leases import lease_app, pool_app
from service.commands.operating.api_keys import keys_app
from service.commands.operating.partitions import partition_app, store_app
from service.commands.operating.serving import run_jobs, serve, show_config
from service.commands.operating.stores import backup, rebuild, restore
from service.commands.operating.webhooks import events, webhook_app
from service.commands.reading.exporting import export, journal, stream
from service.commands.reading.ranks import audit, curve, rank, refresh, top

app = typer.Typer(
    name="rankcurve",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Leaderboards in SQL. Ranks come from a curve, with the bracket that the true rank lies in.

    Start one, and in another terminal give it a season:

        rankcurve serve

        rankcurve board create season -c xp:sum:high
        rankcurve import season players.csv --owner-column id --column xp=score
        rankcurve refresh season
        rankcurve top season -c xp
        rankcurve rank season 1070385706236341127

    Exit codes: 0 done, 1 failed, 2 wrong options or arguments.""",
)

RUN, DATA, READ, LEASES = "Run a service", "Boards and data", "Read", "Leases"

app.command("serve", rich_help_panel=RUN)(serve)
app.command("jobs", rich_help_panel=RUN)(run_jobs)
app.command("config", rich_help_panel=RUN)(show_config)
app.add_typer(store_app, name="store", rich_help_panel=RUN)
app.add_typer(partition_app, name="partition", rich_help_panel=RUN)
app.add_typer(keys_app, name="keys", rich_help_panel=RUN)
app.command("apply", rich_help_panel=DATA)(apply)
app.add_typer(board_app, name="board", rich_help_panel=DATA)
app.add_typer(family_app, name="family", rich_help_panel=DATA)
app.add_typer(league_app, name="league", rich_help_panel=DATA)
app.command("backup", rich_help_panel=RUN)(backup)
app.command("restore", rich_help_panel=RUN)(restore)
app.command("import", rich_help_panel=DATA)(import_posts)
app.command("export", rich_help_panel=DATA)(export)
app.add_typer(queue_app, name="queue", rich_help_panel=RUN)
app.command("refresh", rich_help_panel=DATA)(refresh)
app.command("rebuild", rich_help_panel=DATA)(rebuild)
app.add_typer(owner_app, name="owner", rich_help_panel=DATA)
app.add_typer(webhook_app, name="webhook", rich_help_panel=DATA)
app.add_typer(post_app, name="post", rich_help_panel=DATA)
app.command("join", rich_help_panel=DATA)(join)
app.add_typer(rewards_app, name="rewards", rich_help_panel=DATA)
app.command("acts", rich_help_panel=DATA)(acts)
app.command("journal", rich_help_panel=READ)(journal)
app.command("events", rich_help_panel=READ)(events)
app.command("stream", rich_help_panel=READ)(stream)
app.command("audit", rich_help_panel=DATA)(audit)
app.command("top", rich_help_panel=READ)(top)
app.command("rank", rich_help_panel=READ)(rank)
app.command("curve", rich_help_panel=READ)(curve)
app.command("mcp", rich_help_panel=READ)(serve_tools)
app.add_typer(pool_app, name="pool", rich_help_panel=LEASES)
app.add_typer(lease_app, name="lease", rich_help_panel=LEASES)


def say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rankcurve {importlib.metadata.version('rankcurve')}")
        raise typer.Exit


@app.callback()
def common(
    _: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=say_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Accept the options that precede a command."""


def main() -> None:
    """Run the command line, for `entry_point/rankcurve_command.py` and for `python -m service.cli`."""
    app(prog_name="rankcurve")


if __name__ == "__main__":
    main()

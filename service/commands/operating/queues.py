"""`rankcurve queue`: the posts that wait to be applied, and the workers that apply them."""

import typer
from rankcurve import AsyncClient
from rankcurve.answers import Record

from service.commands.tables import Columns, show_json, show_records
from service.commands.target import JsonOption, service_command

COLUMNS: Columns = {
    "shard": "shard",
    "partition": lambda shard: "several" if shard["partition"] is None else shard["partition"],
    "posts": "posts",
    "age s": "age_seconds",
    "applied": "applied",
    "worker": "worker",
}

queue_app = typer.Typer(
    no_args_is_help=True, help="Show the ingest queue: posts that are accepted and not yet applied."
)


@queue_app.command("show")
@service_command()
async def show(client: AsyncClient, as_json: JsonOption = False) -> None:
    """Show the posts that wait in each shard of the queue, and the queue workers (role `ops`)."""
    state = await client.request("GET", "/v1/queue", Record)
    if as_json:
        show_json(state)
        return
    shards: list[Record] = state["shards"]
    every = {**state, "shard": "all", "partition": "", "applied": sum(each["applied"] for each in shards)}
    show_records([*shards, every], COLUMNS, as_json=False, numeric=("posts", "age s", "applied"))
    measured = ""
    if state["capacity"] is not None and state["speed"] is not None:
        measured = f"; measured: {state['capacity']:,} posts/s by the store, {state['speed']:,} by one worker"
    typer.echo(f"{state['workers']} of at most {state['workers_max']} workers{measured}")

"""`rankcurve queue`: show the posts that wait to be applied, and the workers that apply them."""

import typer
from rankcurve.answers import Record

from service.commands.requests import add_request
from service.commands.tables import Columns, show_records

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


def show_queue(state: Record) -> None:
    shards: list[Record] = state["shards"]
    every = {**state, "shard": "all", "partition": "", "applied": sum(each["applied"] for each in shards)}
    show_records([*shards, every], COLUMNS, as_json=False, numeric=("posts", "age s", "applied"))
    measured = ""
    if state["capacity"] is not None and state["speed"] is not None:
        measured = f"; measured: {state['capacity']:,} posts/s by the store, {state['speed']:,} by one worker"
    typer.echo(f"{state['workers']} of at most {state['workers_max']} workers{measured}")


add_request(
    queue_app, "show", "GET /v1/queue",
    "Show the posts that wait in each shard of the queue, and the queue workers (role `ops`).", show=show_queue,
)  # fmt: skip

"""`rankcurve queue`: the posts that wait to be applied, and the workers that apply them."""

import msgspec
import typer
from rankcurve import AsyncClient

from service.commands.tables import show_json, show_table
from service.commands.target import JsonOption, service_command


class QueueShard(msgspec.Struct, frozen=True):
    shard: int
    posts: int
    age_seconds: float
    applied: int
    worker: str | None = None
    partition: int | None = 0  # None: posts to boards of several partitions


class QueueState(msgspec.Struct, frozen=True):
    posts: int
    age_seconds: float
    workers: int
    workers_max: int
    capacity: int | None
    speed: int | None
    shards: list[QueueShard]


queue_app = typer.Typer(
    no_args_is_help=True, help="Show the ingest queue: posts that are accepted and not yet applied."
)


@queue_app.command("show")
@service_command()
async def show(client: AsyncClient, as_json: JsonOption = False) -> None:
    """Show the posts that wait in each shard of the queue, and the queue workers (role `ops`)."""
    state = await client.request("GET", "/v1/queue", QueueState)
    if as_json:
        show_json(state)
        return
    rows: list[tuple[object, ...]] = [
        (
            each.shard,
            "several" if each.partition is None else each.partition,
            *(each.posts, each.age_seconds, each.applied, each.worker),
        )
        for each in state.shards
    ]
    rows.append(("all", None, state.posts, state.age_seconds, sum(each.applied for each in state.shards), None))
    columns = ("shard", "partition", "posts", "age s", "applied", "worker")
    show_table(columns, rows, numeric=("posts", "age s", "applied"))
    measured = ""
    if state.capacity is not None and state.speed is not None:
        measured = f"; measured: {state.capacity:,} posts/s by the store, {state.speed:,} by one worker"
    typer.echo(f"{state.workers} of at most {state.workers_max} workers{measured}")

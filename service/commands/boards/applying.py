"""`rankcurve apply` brings the boards, families and leagues of a service in line with a file under version control.

Without it, every environment would be set up by hand and drift apart. The file is TOML with the tables `boards`,
`families` and `leagues`, each with specifications by id as the API takes them; a column may be a text such as
`lap:min.3`. The command compares the file with the service, prints a plan, and sends the requests of the plan. Members
that the file does not name keep their values.
"""

import tomllib
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import typer
from rankcurve import AsyncClient
from rankcurve.answers import ENCODER, Record, decode
from rankcurve.client import PAGE_ENTRIES
from rankcurve.column_words import whole_spec
from rankcurve.transport import path_of

from service.commands.boards.boards import writable_members
from service.commands.tables import say, show_json
from service.commands.target import fail, service_command
from service.contract.league_messages import PutLeague
from service.contract.requests import PutBoard, PutFamily

TABLES = {"families": PutFamily, "leagues": PutLeague, "boards": PutBoard}  # in the order in which they are made
# The part of the path in the API, and the name of its list.
PATHS = {"families": "families", "leagues": "leagues", "boards": "leaderboards"}
ONE_OF = {"families": "family", "leagues": "league", "boards": "board"}
# These members may differ from what the service has. Any other difference would give stored values a new meaning.
CHANGEABLE = (
    "opens_at", "closes_at", "grace_seconds", "keep_seconds", "keep", "predictor", "tiers", "entry", "rewards", "each",
    "cohort", "divisions", "absent",
)  # fmt: skip
CHOSEN_ONCE = ("partition", "segments")  # read when a board is made; `partition move` and `board split` change them
Specs = dict[str, dict[str, Record]]  # by table and id


class Step(NamedTuple):
    """A request of the plan; without a body it deletes. A refused step is never sent."""

    table: str
    id: str
    about: str
    body: Record | None = None
    refused: bool = False

    def __str__(self) -> str:
        return f"{ONE_OF[self.table]} {self.id}: {self.about}"


@service_command()
async def apply(
    client: AsyncClient,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A TOML file, as described above.")] = Path(
        "boards.toml"
    ),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and change nothing.")] = False,
    prune: Annotated[bool, typer.Option("--prune", help="Delete what the file lacks.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before deleting.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the file's JSON schema, for editors.")] = False,
) -> None:
    """Create and change boards, families and leagues as a file says. Running it again is harmless.

    The command prints its plan first. If any difference would reinterpret stored values, it changes nothing and exits
    with 1. You can change tiers, curve settings, times and entry rules, and add columns. A file looks like this:

        #:schema ./boards.schema.json

        [boards.laps]
        columns = ["lap:min:low:scale=3"]
        ties = "earliest"

        [families.arena]
        columns = ["xp:sum"]
        periods = ["all", "week"]

    `rankcurve apply --schema > boards.schema.json` writes the schema that editors read.
    """
    if schema:
        show_json(make_schema())
        return
    plan = list(make_plan(read_specs(file), await _list_specs(client), prune=prune))
    for step in plan:
        say(f"{'refused: ' if step.refused else ''}{step}")
    if any(step.refused for step in plan):
        fail("nothing was changed: what is refused would give stored values another meaning")
    if not plan:
        typer.echo("nothing to do: everything is as the file says")
    deleted = [step for step in plan if step.body is None]
    if dry_run or (deleted and not yes and not typer.confirm(f"Delete {len(deleted)} with all their entries?")):
        raise typer.Exit(0 if dry_run else 1)
    for step in plan:
        path = path_of("v1", PATHS[step.table], step.id)
        await client.request("DELETE" if step.body is None else "PUT", path, bytes, body=step.body)
        say(f"done: {step}")


def read_specs(file: Path) -> Specs:
    """Read the specifications in the file as JSON objects. Exits with 2 if the file is not valid."""
    found: Specs = {table: {} for table in TABLES}
    place = str(file)
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"), parse_float=Decimal)
        if unknown := document.keys() - TABLES.keys():
            raise ValueError(f"{min(unknown)!r} is none of boards, families and leagues")
        for table, body in TABLES.items():
            place = f"{file}: {table}"
            for name, spec in document.get(table, {}).items():
                place = f"{file}: {ONE_OF[table]} {name}"
                times = {member: value.isoformat() for member, value in spec.items() if isinstance(value, date)}
                found[table][name] = whole_spec(spec, (), None, times)
                msgspec.json.decode(ENCODER.encode(found[table][name]), type=body)
    except (OSError, ValueError, msgspec.MsgspecError, AttributeError, TypeError, OverflowError) as cause:
        fail(f"{place}: {cause}", code=2)
    except RecursionError:
        fail(f"{place}: the values are nested too deeply", code=2)
    return found


def make_plan(wanted: Specs, held: Specs, *, prune: bool) -> Iterator[Step]:
    """Yield the steps that make what the service has equal to what the file wants."""
    for table, specs in wanted.items():
        for name, spec in specs.items():
            if name not in held[table]:
                yield Step(table, name, "create", spec)
                continue
            merged = merge_spec(spec, held[table][name])
            differences = list(compare(merged, held[table][name]))
            refused = [about for about, is_refused in differences if is_refused]
            if differences:
                about = ", ".join(refused or [about for about, _ in differences])
                yield Step(table, name, about, merged, refused=bool(refused))
    for table in TABLES if prune else ():
        for name in sorted(held[table].keys() - wanted[table].keys()):
            yield Step(table, name, "delete")


def merge_spec(wanted: Record, held: Record) -> Record:
    """Merge a specification: what the service has, overridden by the members that the file names."""
    before, named = _by_name(held), _by_name(wanted)
    columns = [{**before.get(name, {}), **named[name]} for name in before | named if name in named]
    members = {member: value for member, value in wanted.items() if member not in CHOSEN_ONCE}
    predictor = {**held["predictor"], **wanted.get("predictor", {})}
    return {**held, **members, "columns": columns, "predictor": predictor}


def compare(wanted: Record, held: Record) -> Iterator[tuple[str, bool]]:
    """Yield each difference as a text, and whether it is refused because it would reinterpret stored values."""
    columns, named = _by_name(held), _by_name(wanted)
    for name in columns.keys() - named.keys():
        yield f"column {name} can't be removed", True
    for name, column in named.items():
        if name not in columns:
            yield f"add column {name}", False
            continue
        for member, value in column.items():
            if _meaning(value) != _meaning(before := columns[name].get(member)):
                yield f"{member} of column {name} from {before} to {value}", member not in CHANGEABLE
    for member, value in wanted.items():
        if member != "columns" and _meaning(value) != _meaning(before := held.get(member)):
            yield f"{member} from {before} to {value}", member not in CHANGEABLE


def make_schema() -> Record:
    types, named = msgspec.json.schema_components(TABLES.values(), ref_template="#/$defs/{name}")
    for body in TABLES.values():
        columns = named[body.__name__]["properties"]["columns"]
        columns["items"] = {"anyOf": [{"type": "string", "description": "As in `board create -c`."}, columns["items"]]}
    properties = {
        table: {"type": "object", "additionalProperties": kind} for table, kind in zip(TABLES, types, strict=True)
    }
    schema = {"type": "object", "properties": properties, "additionalProperties": False, "$defs": named}
    return decode(ENCODER.encode(schema).replace(rb"\\Z", b"$"), Record)  # JSON schemas have expressions of ECMAScript


async def _list_specs(client: AsyncClient) -> Specs:
    found: Specs = {}
    for table, part in PATHS.items():
        query = {"families": False if table == "boards" else None, "limit": PAGE_ENTRIES}
        records = client.list_records(path_of("v1", part), part, Record, query)
        # The list of families has leagues, too.
        found[table] = {each["id"]: writable_members(each) async for each in records if not each.get("league")}
    return found


def _by_name(spec: Record) -> dict[str, Record]:
    return {column["name"]: column for column in spec["columns"]}


def _meaning(value: object) -> object:
    """Replace texts that say times and numbers by what they say, so that two spellings compare equal. `[]` is None."""
    if isinstance(value, Mapping):
        return {name: _meaning(each) for name, each in value.items()}
    if isinstance(value, list):
        return list(map(_meaning, value)) or None
    try:
        return datetime.fromisoformat(str(value))
    except ValueError:
        pass
    try:
        return Decimal(str(value))
    except InvalidOperation:
        return value

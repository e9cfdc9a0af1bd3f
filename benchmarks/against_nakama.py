"""Compare the service with a Nakama server: own position, rows around it, the top 10 and single increments.

python -m benchmarks.against_nakama --url http://127.0.0.1:7350 [--store URL] [--rows N] [--seconds S] [--rounds N]

Nakama runs on this machine already, with its default server key. It has a leaderboard `season` with descending order
and the operator `incr`, to which clients may write and which has ranks. This Lua module in the folder of
`--runtime.path` creates it, and tells the version:

    local nk = require("nakama")
    nk.leaderboard_create("season", false, "desc", "incr", "", {}, true)
    nk.register_rpc(function(context)
      return nk.json_encode({version = context.version})
    end, "version")

`--store` is an empty database for the service, on the PostgreSQL server that Nakama uses. Without it, the service has a
server of its own. A second service has a SQLite file with an owner process and a front.

All contestants get the same owners with the same values. Nakama makes an account for each owner, and its ids of these
accounts are the owners of the service, too. Any session may read, but a player's record is only written in a session of
that player. So increments are for 1,000 owners, whose sessions are reopened before each round: by default they last
60 s. The services ask for an API key, as Nakama asks for the token of a session.

Nakama's ranks are exact. A busy service estimates `own position`, with a bracket, and `exact position` asks it for the
exact rank. A ratio is the service's rate divided by Nakama's. There are no bars.
"""

import asyncio
import base64
import json
import urllib.request
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks import load, report
from benchmarks.boards import BOARD, COLUMN, draw_values, fill_board, owner_at
from benchmarks.client import HOST, BadAnswerError, Connection, call_service, for_each
from benchmarks.options import Options
from benchmarks.servers import POSTGRES_SETTINGS, Server, run_sql, serve_file, serve_store
from tests.servers import postgres

_CONNECTIONS = 32
_SESSIONS = 1000
_CHECKED = 20
_NEIGHBORS = 5  # better rows, and as many worse ones
_SERVER_KEY = "Basic " + base64.b64encode(b"defaultkey:").decode()
_AUTHENTICATE = "/v2/account/authenticate/custom?create=true"
_RECORDS = f"/v2/leaderboard/{BOARD}"
_ENTRIES = f"/v1/leaderboards/{BOARD}/entries/"
_AROUND = f"/around?column={COLUMN}&better={_NEIGHBORS}&worse={_NEIGHBORS}"
_TOP = f"/v1/leaderboards/{BOARD}/rankings/{COLUMN}?limit=10"
_MODULE = "the docstring of benchmarks/against_nakama.py has the Lua module that creates it"
_TABLES = (
    "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
    "WHERE relkind = 'r' AND nspname NOT IN ('pg_catalog', 'information_schema')"
)


@dataclass(frozen=True, slots=True)
class Players:
    """The owners at the indexes of `boards.owner_at`, under Nakama's ids, and the files from which wrk reads them."""

    owners: Sequence[str]
    folder: Path

    @property
    def readers(self) -> Path:
        return self.folder / "owners"

    @property
    def posters(self) -> Path:
        return self.folder / "posters"

    @property
    def sessions(self) -> Path:
        return self.folder / "sessions"

    def write(self) -> None:
        self.readers.write_text("".join(f"{owner}\n" for owner in self.owners))
        self.posters.write_text("".join(f"{owner}\n" for owner in self.owners[:_SESSIONS]))


def find_port(url: str) -> int:
    """Return the port of a Nakama on this machine. Raises ValueError for any other address."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname not in (HOST, "localhost") or parts.path not in ("", "/"):
        raise ValueError(f"{url}: Nakama has to run on this machine, with an address such as http://{HOST}:7350")
    return parts.port or 7350


def session_owner(token: str) -> str:
    """Return the id of the account whose session has this token, a JWT."""
    claims = token.split(".")[1]
    return str(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["uid"])


def rank_bounds(ascending: Sequence[int], value: int) -> tuple[int, int]:
    """Return the best and the worst rank of those who tie with `value`, because Nakama gives each its own rank."""
    return 1 + len(ascending) - bisect_right(ascending, value), len(ascending) - bisect_left(ascending, value)


async def open_session(connection: Connection, index: int) -> str:
    """Open a session for the owner at an index, creating the account if it is missing. Return the token."""
    answer = await connection.call_ok("POST", _AUTHENTICATE, {"id": owner_at(index)}, authorization=_SERVER_KEY)
    return str(answer["token"])


async def check_leaderboard(port: int) -> None:
    """Raise BadAnswerError if Nakama has no such leaderboard, or one with another operator, other writers or no ranks.

    The check writes a record for the first owner.
    """
    connection = Connection(port)
    authorization = f"Bearer {await open_session(connection, 0)}"
    status, answer = 0, b""
    for record in ({"score": "2", "operator": "SET"}, {"score": "3"}):
        status, answer = await connection.call(
            "POST", _RECORDS, json.dumps(record).encode(), authorization=authorization
        )
    connection.close()
    if status == 404:
        raise BadAnswerError(f"Nakama has no leaderboard {BOARD}: {_MODULE}")
    found = json.loads(answer)
    if status != 200 or found["score"] != "5" or "rank" not in found:
        raise BadAnswerError(f"Nakama's {BOARD} is not open to clients, with the operator incr and ranks: {_MODULE}")


async def read_version(port: int) -> str:
    connection = Connection(port)
    authorization = f"Bearer {await open_session(connection, 0)}"
    status, answer = await connection.call("GET", "/v2/rpc/version", authorization=authorization)
    connection.close()
    return str(json.loads(json.loads(answer)["payload"])["version"]) if status == 200 else "of unknown version"


async def fill_nakama(port: int, values: Sequence[int]) -> list[str]:
    """Write a record for each value, under an account of its own. Return the account ids. Raises BadAnswerError."""
    owners = [""] * len(values)

    async def write(connection: Connection, index: int) -> None:
        token = await open_session(connection, index)
        owners[index] = session_owner(token)
        record = {"score": str(values[index]), "operator": "SET"}
        await connection.call_ok("POST", _RECORDS, record, authorization=f"Bearer {token}")

    await for_each(port, range(len(values)), write, connections=_CONNECTIONS)
    return owners


async def open_sessions(port: int, players: Players) -> str:
    """Open a session for each owner who posts, and write the tokens to a file. Return one of the tokens."""
    tokens = [""] * min(_SESSIONS, len(players.owners))

    async def open_one(connection: Connection, index: int) -> None:
        tokens[index] = await open_session(connection, index)

    await for_each(port, range(len(tokens)), open_one, connections=_CONNECTIONS)
    players.sessions.write_text("".join(f"{players.owners[i]} {token}\n" for i, token in enumerate(tokens)))
    return tokens[0]


def ask(target: load.Target, owner: str = "") -> Any:
    """Send the request that wrk sends in a round of this target for one owner. Return the decoded answer."""
    address = target.url + target.path + owner + target.after
    request = urllib.request.Request(address, headers={"Authorization": target.authorization})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def check_same(
    services: Mapping[str, dict[str, load.Target]],
    nakama: dict[str, load.Target],
    owners: Sequence[str],
    values: Sequence[int],
) -> None:
    """Check that all contestants give the answers that follow from the values. Raises BadAnswerError."""
    ascending = sorted(values)
    for index in range(0, len(values), max(1, len(values) // _CHECKED)):
        owner, (best, worst) = owners[index], rank_bounds(ascending, values[index])
        [record] = ask(nakama["own position"], owner)["owner_records"]
        if int(record["score"]) != values[index] or not best <= int(record["rank"]) <= worst:
            raise BadAnswerError(f"ranks {best} to {worst} expected for {values[index]}: {record}")
        rows = len(ask(nakama["around"], owner)["records"])
        for side, targets in services.items():
            [position] = ask(targets["own position"], owner)["positions"]
            found = position["value"], position["total"], position["low"] <= best <= position["high"]
            if found != (values[index], len(values), True):
                raise BadAnswerError(f"rank {best} expected for {values[index]} on {side}: {position}")
            entries = len(ask(targets["around"], owner)["entries"])
            # At either end of the board, only Nakama fills up with rows from the other side.
            if entries != rows and _NEIGHBORS < best <= worst <= len(values) - _NEIGHBORS:
                raise BadAnswerError(f"{entries} rows around {owner} on {side}, {rows} on Nakama")
    top = ascending[:-11:-1]
    tops = [[int(record["score"]) for record in ask(nakama["top 10"])["records"]]]
    tops += [[entry["value"] for entry in ask(targets["top 10"])["entries"]] for targets in services.values()]
    if any(found != top for found in tops):
        raise BadAnswerError(f"the top 10 are {top}: {tops}; has the leaderboard other records?")


def nakama_targets(port: int, players: Players) -> dict[str, load.Target]:
    target = load.Target(f"http://{HOST}:{port}", _RECORDS, rows=len(players.owners), owners=players.readers)
    posting = min(_SESSIONS, len(players.owners))
    return {
        "own position": replace(target, path=f"{_RECORDS}?owner_ids="),
        "exact position": replace(target, path=f"{_RECORDS}?owner_ids="),
        "around": replace(target, path=f"{_RECORDS}/owner/", after=f"?limit={2 * _NEIGHBORS + 1}"),
        "top 10": replace(target, path=f"{_RECORDS}?limit=10", rows=0),
        "increments": replace(target, body='{"score":"%d"}', rows=posting, owners=players.sessions),
    }


def service_targets(server: Server, key: str, players: Players) -> dict[str, load.Target]:
    authorization, rows = f"Bearer {key}", len(players.owners)
    target = load.Target(server.url, _ENTRIES, rows=rows, owners=players.readers, authorization=authorization)
    posts = replace(target, path=f"/v1/leaderboards/{BOARD}/posts", column=COLUMN)
    return {
        "own position": replace(target, after="/positions"),
        "exact position": replace(target, after="/positions?rank=exact"),
        "around": replace(target, after=_AROUND),
        "top 10": replace(target, path=_TOP, rows=0),
        "increments": replace(posts, rows=min(_SESSIONS, rows), owners=players.posters),
    }


def nakama_contestant(
    port: int, target: load.Target, players: Players, options: Options
) -> Callable[[int], load.Figure]:
    """Return a contestant that opens its sessions before the clock of a round starts."""

    def run(number: int) -> load.Figure:
        known = replace(target, authorization=f"Bearer {asyncio.run(open_sessions(port, players))}")
        return load.wrk_contestant(known, connections=_CONNECTIONS, seconds=options.seconds)(number)

    return run


async def fill_service(server: Server, owners: Sequence[str]) -> str:
    """Fill the board, and return an API key that the service requires from now on."""
    await fill_board(server.port, rows=len(owners), owner=owners.__getitem__)
    made = await call_service(server.port, "POST", "/v1/keys", {"name": "benchmark", "role": "ops"})
    return str(made["key"])


def find_nakama_database(store: str) -> str | None:
    """Return the URL of the database with Nakama's tables on the server of `store`, or None if there is none."""
    for (name,) in run_sql(store, "SELECT datname FROM pg_database WHERE datallowconn"):
        url = urlsplit(store)._replace(path=f"/{name}").geturl()
        if run_sql(url, "SELECT to_regclass('leaderboard_record')::text")[0][0]:
            return url
    return None


def measure_stored(store: str, rows: int) -> list[report.Bar]:
    """Vacuum and analyze the databases of both sides, and return the size of each."""
    nakama = find_nakama_database(store)
    if nakama is None:
        print("   Nakama has another PostgreSQL server: its settings may differ, and its tables are not vacuumed")
    sizes = {"the service, PostgreSQL": (store, _TABLES)}
    if nakama:
        sizes["Nakama, records"] = nakama, "SELECT pg_total_relation_size('leaderboard_record')"
        sizes["Nakama, records and accounts"] = nakama, _TABLES
    for url in {url for url, _ in sizes.values()}:
        run_sql(url, "VACUUM ANALYZE")
    run_sql(store, "CHECKPOINT")
    return [
        report.Bar(f"stored for a row, {side}", int(run_sql(url, sql)[0][0]) / rows, None, " bytes")
        for side, (url, sql) in sizes.items()
    ]


def run_rounds(
    port: int, services: Mapping[str, dict[str, load.Target]], players: Players, options: Options
) -> list[report.Bar]:
    """Measure all contestants in turn. Return each service's rate divided by Nakama's, for every kind of request."""
    contestants: dict[str, Callable[[int], load.Figure]] = {}
    ratios = []
    for name, target in nakama_targets(port, players).items():
        contestants[f"{name}, Nakama"] = nakama_contestant(port, target, players, options)
        for side, targets in services.items():
            ours = f"{name}, service on {side}"
            contestants[ours] = load.wrk_contestant(targets[name], connections=_CONNECTIONS, seconds=options.seconds)
            ratios.append((ours, f"{name}, Nakama"))
    figures = load.compare(contestants, rounds=options.rounds)
    return [
        report.Bar(f"{ours} / Nakama", load.median_ratio(figures[ours], figures[theirs]), None)
        for ours, theirs in ratios
    ]


def measure(options: Options, folder: Path) -> list[report.Bar]:
    if options.url is None:
        print("   nothing is measured without the address of a Nakama server: --url")
        return []
    port = find_port(options.url)
    asyncio.run(check_leaderboard(port))
    values = draw_values(options.rows)
    with ExitStack() as stack:
        store = options.store or stack.enter_context(postgres(POSTGRES_SETTINGS)).create_database("rankcurve")
        [(server_version,)] = run_sql(store, "SHOW server_version")
        print(f"   Nakama {asyncio.run(read_version(port))}, PostgreSQL {server_version}")
        print(f"   filling {options.rows:,} accounts and records of Nakama", flush=True)
        players = Players(asyncio.run(fill_nakama(port, values)), folder)
        players.write()
        servers = {
            "PostgreSQL": stack.enter_context(serve_store(store, folder)),
            "SQLite": stack.enter_context(serve_file(folder / "rankcurve.db")),
        }
        keys = {side: asyncio.run(fill_service(server, players.owners)) for side, server in servers.items()}
        stored = measure_stored(store, options.rows)
        services = {side: service_targets(server, keys[side], players) for side, server in servers.items()}
        authorization = f"Bearer {asyncio.run(open_sessions(port, players))}"
        nakama = {
            name: replace(target, authorization=authorization) for name, target in nakama_targets(port, players).items()
        }
        check_same(services, nakama, players.owners, values)
        ratios = run_rounds(port, services, players, options)
        memory = [
            report.Bar(f"resident memory, service on {side}", server.resident_mib(), None, " MiB")
            for side, server in servers.items()
        ]
    return [*ratios, *stored, *memory]


if __name__ == "__main__":
    report.run_program(
        measure,
        __doc__,
        f"against Nakama: {{rows:,}} rows, {_CONNECTIONS} connections, {{rounds}} rounds of {{seconds:g}} s",
        rows=100_000,
        seconds=4.0,
    )

"""`make demo`: sets up a season of 100,000 players and a family in a real service, and prints requests to try.

The demo uses only what users have: `rankcurve serve` and HTTP. A fixed seed creates the same players each time, and
posts have ids. So a second run finds the existing season. If a setup was interrupted, the next run completes it.
"""

import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from rankcurve import AsyncClient, Client, RankcurveError, Retries
from rich.console import Console

from service.commands.imports.import_records import Post
from service.commands.imports.sending import make_progress_bar
from service.commands.target import KEY_VARIABLE, explain_error, fail
from service.own_packages import python_command

HOST = "127.0.0.1"
PORT_VARIABLE = "RANKCURVE_PORT"
BOARD = "season-2026"
SEED = 2026
PLAYERS_MAX = 10_000_000
BATCH_POSTS = 1000
CONCURRENCY = 4
READY_WAIT_S = 30.0
READY_POLL_S = 0.05
STOP_WAIT_S = 40.0
MATCH_EVERY_S = 2.0
MATCH_PLAYERS = 8
REFRESH_TIMEOUT_S = 600.0
CLANS = ("red", "blue", "fox", "owl", "north")

SPEC: dict[str, object] = {
    "columns": [
        {"name": "xp", "sorted": True, "merge": "sum", "best": "high", "min": 0},
        {"name": "best_lap", "sorted": True, "merge": "min", "best": "low", "scale": 3, "min": 0, "max": 86400},
        {"name": "kills", "sorted": True, "merge": "max", "best": "high", "min": 0},
        {"name": "wins", "sorted": True, "merge": "sum", "best": "high", "min": 0},
        {"name": "clan_tag", "sorted": False, "merge": "last", "type": "text"},
    ]
}

FAMILY = "arena"
FAMILY_PLAYERS_MAX = 2_000
FAMILY_SPEC: dict[str, object] = {
    "columns": [{"name": "points", "sorted": True, "merge": "sum", "best": "high", "min": 0}],
    "periods": ["all", "week", "day"],
    "facets": [[], ["clan"]],
    "time_zone": "Europe/Berlin",
}


def owner_name(player_index: int) -> str:
    """Return a player's owner name: `player-000042` for the 0-based index 42."""
    return f"player-{player_index:06d}"


def season_posts(players: int, rng: random.Random) -> Iterator[Post]:
    """Yield one post per player: skewed xp, many ties in kills and wins. One player in ten has no lap time."""
    for player_index in range(players):
        stats: dict[str, object] = {
            "xp": round(rng.lognormvariate(8.0, 1.5)),
            "kills": int(rng.expovariate(1 / 9)),
            "wins": int(rng.paretovariate(1.2)) - 1,
            "clan_tag": rng.choice(CLANS),
        }
        lap_s = 58.0 + rng.lognormvariate(2.8, 0.6)
        if rng.random() < 0.9:
            stats["best_lap"] = f"{lap_s:.3f}"
        yield {"owner": owner_name(player_index), "stats": stats, "post_id": f"demo:{SEED}:{player_index}"}


def arena_posts(players: int, rng: random.Random) -> list[Post]:
    """Return posts to the family: one game, in one clan, for each of the first FAMILY_PLAYERS_MAX players."""
    return [
        {
            "owner": owner_name(player_index),
            "stats": {"points": round(rng.lognormvariate(3.0, 1.0))},
            "facets": {"clan": rng.choice(CLANS)},
            "post_id": f"demo:{SEED}:arena:{player_index}",
        }
        for player_index in range(min(players, FAMILY_PLAYERS_MAX))
    ]


async def set_up_family(client: AsyncClient, players: int) -> None:
    """Create the family and post to it. Posts that an earlier run sent are duplicates and count only once."""
    await client.create_family(FAMILY, FAMILY_SPEC)
    posts = arena_posts(players, random.Random(SEED))
    for start in range(0, len(posts), BATCH_POSTS):
        await client.post_to_family(FAMILY, posts[start : start + BATCH_POSTS])
    typer.echo(f"{FAMILY}: {len(posts):,} games by day, by week and for all time, for everybody and by clan")


async def set_up(url: str, players: int, server: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for the service, then set up the board, its posts, its curves and the family.

    Raises:
        RankcurveError: the service refused a request or could not be reached.
    """
    quick = Retries(attempts_max=1)
    async with AsyncClient(url, os.environ.get(KEY_VARIABLE), retries=quick) as client:
        await wait_ready(client, server, log)
    patient = Retries(attempts_max=20)
    async with AsyncClient(url, os.environ.get(KEY_VARIABLE), retries=patient, timeout_s=REFRESH_TIMEOUT_S) as client:
        await client.create_board(BOARD, SPEC)
        board = await client.board(BOARD)
        if board.entries is not None and board.entries >= players:
            typer.echo(f"{BOARD} already has {board.entries:,} players")
        else:
            await post_season(client, players)
        for column in board.ranked_columns():
            done = await client.refresh_curve(BOARD, column)
            typer.echo(f"curve of {column}: {done.total:,} entries in {done.seconds * 1000:.0f} ms")
        await set_up_family(client, players)


async def wait_ready(client: AsyncClient, server: subprocess.Popen[bytes], log: Path) -> None:
    """Return when the service is ready. End the demo if the service has exited or takes longer than 30 s."""
    for _ in range(int(READY_WAIT_S / READY_POLL_S)):
        if server.poll() is not None:
            fail(f"the service exited with code {server.returncode}: {last_line(log)} (all of it: {log})")
        with contextlib.suppress(RankcurveError):
            await client.request("GET", "/readyz", bytes)
            return
        await asyncio.sleep(READY_POLL_S)
    fail(f"the service is not ready after {READY_WAIT_S:.0f} s; see {log}")


def last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "-")


async def post_season(client: AsyncClient, players: int) -> None:
    posts = season_posts(players, random.Random(SEED))
    batches = iter(lambda: list(islice(posts, BATCH_POSTS)), [])
    outcomes = Counter[str]()
    with make_progress_bar(Console(stderr=True, highlight=False), "line") as bar:
        task = bar.add_task(f"{players:,} players", total=players, lines=0)
        while sent := list(islice(batches, CONCURRENCY)):
            for results in await asyncio.gather(*(client.post(BOARD, batch) for batch in sent)):
                outcomes.update(result.status for result in results)
            bar.update(task, completed=outcomes.total(), lines=outcomes.total())
    applied, duplicate = outcomes["applied"], outcomes["duplicate"]
    typer.echo(f"{outcomes.total():,} players posted: {applied:,} applied, {duplicate:,} were there before")


def play_matches(url: str, players: int, server: subprocess.Popen[bytes]) -> None:
    """Post a match of a few players every few seconds, until the service ends.

    Raises:
        RankcurveError: the service refused a post, or was away for long.
    """
    rng = random.Random()
    with Client(url, os.environ.get(KEY_VARIABLE)) as client:
        while server.poll() is None:
            match = draw_match(players, rng)
            season = [{name: post[name] for name in ("owner", "stats")} for post in match]
            games = [{**post, "stats": {"points": rng.randrange(1, 60)}} for post in match]
            client.post(BOARD, season, raise_rejected=False)  # it may be closed by whoever tries the demo
            client.post_to_family(FAMILY, games, raise_rejected=False)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(MATCH_EVERY_S)


def draw_match(players: int, rng: random.Random) -> list[Post]:
    """Return what some players of a match have won. Most are of the first hundred, so that the top moves, too."""
    chosen = {owner_name(rng.randrange(min(players, rng.choice((100, 100, players))))) for _ in range(MATCH_PLAYERS)}
    return [
        {
            "owner": owner,
            "stats": {"xp": round(rng.lognormvariate(5.0, 2.0)), "kills": int(rng.expovariate(1 / 9)), "wins": 1},
            "facets": {"clan": rng.choice(CLANS)},
        }
        for owner in sorted(chosen)
    ]


def require_free_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as cause:
            instead = f"stop what listens on {HOST}:{port}, or name another port: {PORT_VARIABLE}=8081 make demo"
            fail(f"port {port} is taken ({cause.strerror}): {instead}")


@contextlib.contextmanager
def serving(port: int, store: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run `rankcurve serve` as a child process and stop it as an operator would, with SIGTERM."""
    log.parent.mkdir(parents=True, exist_ok=True)
    options = ["--host", HOST, "--port", str(port), "--store", store, "--jobs", "embedded"]
    command = python_command("service.cli", "serve", *options)
    with log.open("wb") as stream:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
    try:
        yield server
    finally:
        server.terminate()
        try:
            server.wait(STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def lines_to_try(url: str, players: int) -> list[str]:
    board = f"{url}/v1/leaderboards/{BOARD}"
    return [
        f"curl '{board}/entries/{owner_name(players // 3)}/positions?columns=xp'",
        f"curl '{board}/rankings/xp/positions?values=5000&rank=estimate'",
        f"curl '{board}/rankings/xp?limit=1'",
        f"curl '{board}/entries/{owner_name(players // 3)}/around?column=best_lap&better=2&worse=2'",
        f"curl '{url}/v1/families/{FAMILY}/facets?facet=clan&period=week'",
    ]


def demo(
    port: Annotated[
        int, typer.Option(min=1, max=65535, envvar=PORT_VARIABLE, show_envvar=True, help="Port of the service.")
    ] = 8080,
    players: Annotated[int, typer.Option(min=1, max=PLAYERS_MAX, help="Number of players in the season.")] = 100_000,
    store: Annotated[str, typer.Option(help="Folder of the season's data.")] = "sqlite:///data/demo.db",
    log: Annotated[Path, typer.Option(dir_okay=False, help="File for the log of the service.")] = Path("data/demo.log"),
    once: Annotated[bool, typer.Option("--once", help="End once everything is set up.")] = False,
) -> None:
    """Set up a sample season, serve it, and print lines to try. Ctrl-C ends it; the season stays."""
    require_free_port(port)
    # SIGTERM runs every `finally` block, as Ctrl-C does. So the demo also stops the service.
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(0))
    url = f"http://{HOST}:{port}"
    try:
        with serving(port, store, log) as server:
            asyncio.run(set_up(url, players, server, log))
            typer.echo(f"\n{BOARD} is set up; serve it with `make demo`, then" if once else "")
            typer.echo(f"open the dashboard: {url}/#/boards/{BOARD}\nor try:\n")
            for line in lines_to_try(url, players):
                typer.echo(f"  {line}")
            if once:
                return
            typer.echo(
                "\nA match is played every few seconds. Ctrl-C ends the demo; the season stays for the next time."
            )
            play_matches(url, players, server)
            fail(f"the service exited with code {server.returncode}: {last_line(log)} (all of it: {log})")
    except RankcurveError as error:
        fail(explain_error(error))
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)


def main() -> None:
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(demo)
    app()


if __name__ == "__main__":
    main()

"""`make demo`: sets up a season of 100,000 players in a real service, and prints requests to try.

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
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rankcurve import AsyncClient, RankcurveError, Retries

from service.commands.imports.sending import Record, send_records
from service.commands.target import KEY_VARIABLE, explain_error, fail
from service.own_packages import python_command

HOST = "127.0.0.1"
PORT_VARIABLE = "RANKCURVE_PORT"
FOLDER = Path("data")  # for the store and the log of the service
LOG = "demo.log"
BOARD = "season-2026"
SEED = 2026
PLAYERS_MAX = 10_000_000
READY_WAIT_S = 30.0
READY_POLL_S = 0.05
STOP_WAIT_S = 40.0
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


def owner_name(player_index: int) -> str:
    """Return a player's owner name: `player-000042` for the 0-based index 42."""
    return f"player-{player_index:06d}"


def season_posts(players: int, rng: random.Random) -> Iterator[dict[str, object]]:
    """Yield one post for each player: few have much xp, many have equal kills or wins, one in ten has no lap time."""
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


async def set_up(url: str, players: int, server: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for the service, then set up the board, its posts and its curves.

    Raises:
        RankcurveError: the service refused a request or could not be reached.
    """
    key = os.environ.get(KEY_VARIABLE)
    async with AsyncClient(url, key, retries=Retries(attempts_max=1)) as client:
        await wait_ready(client, server, log)
    patient = Retries(attempts_max=20)
    async with AsyncClient(url, key, retries=patient, timeout_s=REFRESH_TIMEOUT_S) as client:
        await client.create_board(BOARD, SPEC)
        board = await client.board(BOARD)
        if board.entries is not None and board.entries >= players:
            typer.echo(f"{BOARD} already has {board.entries:,} players")
        else:
            posts = season_posts(players, random.Random(SEED))
            await send_records(client, BOARD, (Record(str(post["owner"]), post) for post in posts), "players")
        for column in board.ranked_columns():
            done = await client.refresh_curve(BOARD, column)
            typer.echo(f"curve of {column}: {done.total:,} entries in {done.seconds * 1000:.0f} ms")


async def wait_ready(client: AsyncClient, server: subprocess.Popen[bytes], log: Path) -> None:
    """Return when the service is ready. End the demo if the service has exited or takes longer than 30 s."""
    for _ in range(int(READY_WAIT_S / READY_POLL_S)):
        if server.poll() is not None:
            fail_with_log(server, log)
        with contextlib.suppress(RankcurveError):
            await client.request("GET", "/readyz", bytes)
            return
        await asyncio.sleep(READY_POLL_S)
    fail(f"the service is not ready after {READY_WAIT_S:.0f} s; see {log}")


def fail_with_log(server: subprocess.Popen[bytes], log: Path) -> NoReturn:
    """End the demo with a message that has the service's exit code and the last line of its log."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
    last = next((line.strip()[:300] for line in reversed(lines) if line.strip()), "-")
    fail(f"the service exited with code {server.returncode}: {last} (all of it: {log})")


def require_free_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as cause:
            instead = f"stop what listens on {HOST}:{port}, or name another port: {PORT_VARIABLE}=8081 make demo"
            fail(f"port {port} is taken ({cause.strerror}): {instead}")


@contextlib.contextmanager
def serving(port: int, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run `rankcurve serve` as a child process and stop it as an operator would, with SIGTERM."""
    folder.mkdir(exist_ok=True)
    options = ["--host", HOST, "--port", str(port), "--store", f"sqlite:///{folder}/demo.db", "--jobs", "embedded"]
    command = python_command("service.cli", "serve", *options)
    with (folder / LOG).open("wb") as stream:
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
    ]


def demo(
    port: Annotated[
        int, typer.Option(min=1, max=65535, envvar=PORT_VARIABLE, show_envvar=True, help="Port of the service.")
    ] = 8080,
    players: Annotated[int, typer.Option(min=1, max=PLAYERS_MAX, help="Number of players in the season.")] = 100_000,
    once: Annotated[bool, typer.Option("--once", help="End once everything is set up.")] = False,
) -> None:
    """Set up a sample season, serve it, and print lines to try. Ctrl-C ends it; the season stays."""
    require_free_port(port)
    # Let SIGTERM run every `finally` block, as Ctrl-C does, so that the demo also stops the service.
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(0))
    url = f"http://{HOST}:{port}"
    try:
        with serving(port, FOLDER) as server:
            asyncio.run(set_up(url, players, server, FOLDER / LOG))
            typer.echo(f"\n{BOARD} is set up; serve it with `make demo`, then" if once else "")
            typer.echo(f"open the dashboard: {url}/#/boards/{BOARD}\nor try:\n")
            for line in lines_to_try(url, players):
                typer.echo(f"  {line}")
            if once:
                return
            typer.echo("\nCtrl-C ends the demo; the season stays for the next time.")
            server.wait()
            fail_with_log(server, FOLDER / LOG)
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

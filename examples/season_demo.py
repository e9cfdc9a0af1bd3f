"""`make demo`: set up a season of 100,000 players in a real service, and print requests to try.

The demo uses only what is available to every user: the command `rankcurve serve` and the Python client. Because a fixed
seed creates the same players each time, and posts have ids, a second run finds the existing season. If a setup was
interrupted, the next run completes it.
"""

import argparse
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NoReturn

from rankcurve import Client, RankcurveError, Retries

HOST = "127.0.0.1"
PORT_VARIABLE = "RANKCURVE_PORT"
FOLDER = Path("data")  # for the store and the log of the service
LOG = "demo.log"
BOARD = "season-2026"
SEED = 2026
BATCH_POSTS = 5_000
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
    """Yield one post per player.

    Few players have much xp, many have equal kills or wins, and one in ten has no lap time.
    """
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


def set_up(url: str, players: int, server: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for the service, then create the board, post its entries, and fit its curves.

    Raises:
        RankcurveError: the service rejected a request or could not be reached.
    """
    key = os.environ.get("RANKCURVE_KEY")
    with Client(url, key, retries=Retries(attempts_max=1)) as client:
        wait_ready(client, server, log)
    with Client(url, key, retries=Retries(attempts_max=20), timeout_s=REFRESH_TIMEOUT_S) as client:
        client.create_board(BOARD, SPEC)
        board = client.board(BOARD)
        if board.entries is not None and board.entries >= players:
            print(f"{BOARD} already has {board.entries:,} players")
        else:
            posts, counts = season_posts(players, random.Random(SEED)), Counter[str]()
            while batch := list(islice(posts, BATCH_POSTS)):
                counts.update(result.status for result in client.post(BOARD, batch))
            print(f"{counts.total():,} players: {', '.join(f'{counts[each]:,} {each}' for each in sorted(counts))}")
        for column in board.ranked_columns():
            done = client.refresh_curve(BOARD, column)
            print(f"curve of {column}: {done.total:,} entries in {done.seconds * 1000:.0f} ms")


def wait_ready(client: Client, server: subprocess.Popen[bytes], log: Path) -> None:
    """Return when the service is ready. End the demo if the service has exited or takes longer than 30 s."""
    for _ in range(int(READY_WAIT_S / READY_POLL_S)):
        if server.poll() is not None:
            fail_with_log(server, log)
        with contextlib.suppress(RankcurveError):
            client.request("GET", "/readyz", bytes)
            return
        time.sleep(READY_POLL_S)
    sys.exit(f"the service is not ready after {READY_WAIT_S:.0f} s; see {log}")


def fail_with_log(server: subprocess.Popen[bytes], log: Path) -> NoReturn:
    """End the demo with a message that shows the service's exit code and the last line of its log."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
    last = next((line.strip()[:300] for line in reversed(lines) if line.strip()), "-")
    sys.exit(f"the service exited with code {server.returncode}: {last} (all of it: {log})")


def require_free_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as cause:
            instead = f"stop what listens on {HOST}:{port}, or name another port: {PORT_VARIABLE}=8081 make demo"
            sys.exit(f"port {port} is taken ({cause.strerror}): {instead}")


@contextlib.contextmanager
def serving(port: int, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run `rankcurve serve` as a child process and stop it as an operator would, with SIGTERM."""
    folder.mkdir(exist_ok=True)
    options = ["--host", HOST, "--port", str(port), "--store", f"sqlite:///{folder}/demo.db", "--jobs", "embedded"]
    command = [str(Path(sys.executable).with_name("rankcurve")), "serve", *options]
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


def demo(port: int, players: int, *, once: bool) -> None:
    """Set up the season, serve it, and print requests to try. Ctrl-C ends the demo; the season is kept."""
    require_free_port(port)
    # Let SIGTERM run every `finally` block, as Ctrl-C does, so that the demo also stops the service.
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(0))
    url = f"http://{HOST}:{port}"
    try:
        with serving(port, FOLDER) as server:
            set_up(url, players, server, FOLDER / LOG)
            print(f"\n{BOARD} is set up; serve it with `make demo`, then" if once else "")
            print(f"open the dashboard: {url}/#/boards/{BOARD}\nor try:\n")
            for line in lines_to_try(url, players):
                print(f"  {line}")
            if once:
                return
            print("\nCtrl-C ends the demo; the season stays for the next time.", flush=True)
            server.wait()
            fail_with_log(server, FOLDER / LOG)
    except RankcurveError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Set up a sample season, serve it, and print lines to try.")
    port = int(os.environ.get(PORT_VARIABLE) or 8080)
    parser.add_argument("--port", type=int, default=port, help=f"port of the service; default: {PORT_VARIABLE} or 8080")
    parser.add_argument("--players", type=int, default=100_000, help="number of players in the season")
    parser.add_argument("--once", action="store_true", help="end once everything is set up")
    given = parser.parse_args(arguments)
    demo(given.port, given.players, once=given.once)


if __name__ == "__main__":
    main()

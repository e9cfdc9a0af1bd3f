"""Kill the service and the client's process at random, behind a proxy with faults, and fill the spool's disk.

Check that each post counts once.

    python -m benchmarks.client_faults [--seconds S]

A process posts through the Python client's buffer, with a spool, and prints each post whose `submit` returned. It is
killed by `kill -9` every few seconds, and a new one takes over the spool. A second process posts without a spool and is
never killed. Both reach the service through `FaultyProxy`. The service is killed, too, and started again. For some
posts, the first process's files may not grow past a few bytes. This simulates a full disk, because the system then
writes only what fits.

Meanwhile, two processes with the C# client, run by Mono, do the same: each keeps its posts in a file before it sends
them. One of them is killed, and the next process sends again what is left in the file. Their disk is never full.

In the end, the last process of each client sends what is left. The journal then has every applied post with its id, and
the entries must have exactly the sums of these posts.

Bars: of the posts whose `submit` returned, none is lost; no post counts twice; every kind of fault occurred.
"""

import asyncio
import json
import random
import resource
import signal
import sys
import threading
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter, defaultdict
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rankcurve import Client, Receipt
from rankcurve.errors import SpoolError

from benchmarks import report
from benchmarks.boards import board_spec, create_board
from benchmarks.options import Options
from benchmarks.proxies import FAULTS, FaultyProxy
from benchmarks.servers import PROJECT, Server, serve_file
from tests.clients.csharp_builds import build_client, build_program, mono

BOARD = "faults"
COLUMNS = ["xp", "posts"]
_OWNERS = 100
_POSTS_PER_REQUEST = 50
_PAUSE_S = 0.001  # between two posts of a process, so that one run does not make millions of posts
_SERVICE_LIVES_S = (1.0, 4.0)  # the shortest and the longest time between two kills
_POSTER_LIVES_S = (0.4, 3.0)
_CLOSE_S = 120.0
_FULL_RATIO = 0.03  # the share of posts that meet a full disk
_FULL_BYTES_MAX = 250  # for a file, so that sometimes its header fits, and sometimes its first post as well


@dataclass
class Posted:
    """The output of one client's posting processes, and the number of times they were killed."""

    submitted: set[str] = field(default_factory=set)  # the ids of posts whose `submit` returned
    settled: Counter[str] = field(default_factory=Counter)  # by status
    disk_full: int = 0  # posts that were not accepted
    kills: int = 0


@dataclass
class Attack:
    """The posts of both clients, and the number of times the service was killed."""

    python: Posted = field(default_factory=Posted)
    csharp: Posted = field(default_factory=Posted)
    service_kills: int = 0

    @property
    def submitted(self) -> set[str]:
        return self.python.submitted | self.csharp.submitted


def post_until_stopped(url: str, spool: str | None) -> None:
    """Post through a buffer until standard input ends, and print each submitted post and its outcome."""
    stopping = threading.Thread(target=sys.stdin.read, daemon=True)
    stopping.start()
    rng = random.Random()

    def note(receipt: Receipt) -> None:
        assert receipt.result is not None
        sys.stdout.write(f"settled {receipt.result.status}\n")

    with Client(url) as client:
        print("ready", flush=True)
        buffer = client.buffer(BOARD, spool=spool, posts_per_request=_POSTS_PER_REQUEST, on_result=note)
        while stopping.is_alive():
            owner, xp = f"owner-{rng.randrange(_OWNERS)}", rng.randrange(1, 100)
            full = spool is not None and rng.random() < _FULL_RATIO
            limit_files(rng.randrange(_FULL_BYTES_MAX) if full else resource.RLIM_INFINITY)
            try:
                receipt = buffer.submit(owner, {"xp": xp, "posts": 1})
                sys.stdout.write(f"submitted {receipt.post_id}\n")
            except SpoolError:
                sys.stdout.write("full disk\n")
            sys.stdout.flush()
            time.sleep(_PAUSE_S)
        buffer.close(_CLOSE_S)
        sys.stdout.flush()


def limit_files(size_bytes: int) -> None:
    """Keep every file of this process from growing beyond this size."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))


def python_poster(url: str, *spool: Path) -> list[str]:
    """Return the command that posts with the Python client."""
    return [sys.executable, "-m", "benchmarks.client_faults", "poster", url, *map(str, spool)]


def build_csharp_poster(folder: Path) -> list[str]:
    """Compile the program that posts with the C# client. Return the command, without its arguments."""
    folder.mkdir()
    return [str(mono()), str(build_program(build_client(folder), PROJECT / "benchmarks" / "csharp_poster.cs"))]


async def start_poster(command: Sequence[str]) -> Process:
    """Start a process, and return it once it is about to post."""
    poster = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, cwd=PROJECT)
    assert poster.stdout is not None
    assert await poster.stdout.readline(), "the process has ended before it posts"
    return poster


async def follow_poster(poster: Process, posted: Posted) -> None:
    """Read a process's output until it ends, ignoring a line that a kill has cut short."""
    assert poster.stdout is not None
    async for line in poster.stdout:
        if line.endswith(b"\n"):
            kind, _, text = line.decode().rstrip("\n").partition(" ")
            if kind == "submitted":
                posted.submitted.add(text)
            elif kind == "full":
                posted.disk_full += 1
            else:
                posted.settled[text] += 1


async def kill_posters(command: Sequence[str], posted: Posted, rng: random.Random, until_s: float) -> None:
    """Run at least two processes, one after the other, on the same spool or file.

    Each is killed except for the last one, which posts everything that is left.
    """
    while True:
        poster = await start_poster(command)
        following = asyncio.create_task(follow_poster(poster, posted))
        await asyncio.sleep(rng.uniform(*_POSTER_LIVES_S))
        last = time.monotonic() >= until_s and posted.kills > 0
        if last:
            await stop_poster(poster, following)
            return
        poster.kill()
        await following
        await poster.wait()
        posted.kills += 1


async def run_poster(command: Sequence[str], posted: Posted, until_s: float) -> None:
    """Run a process until the end of the attack, and let it settle its posts."""
    poster = await start_poster(command)
    following = asyncio.create_task(follow_poster(poster, posted))
    await asyncio.sleep(until_s - time.monotonic())
    await stop_poster(poster, following)


async def stop_poster(poster: Process, following: Awaitable[None]) -> None:
    """Close a process's standard input, and let it settle its posts."""
    assert poster.stdin is not None
    poster.stdin.close()
    await following
    assert await poster.wait() == 0, "the process settles every post"


async def kill_service(server: Server, attacked: Attack, rng: random.Random, until_s: float) -> None:
    while time.monotonic() < until_s:
        await asyncio.sleep(rng.uniform(*_SERVICE_LIVES_S))
        await asyncio.to_thread(server.stop, signal.SIGKILL)
        server.spawn()
        await asyncio.to_thread(server.wait_ready, poll_s=0.01)
        attacked.service_kills += 1


def audit(url: str, submitted: set[str]) -> Counter[str]:
    """Return how many submitted posts are lost, and how many count twice or have a wrong sum."""
    faults, applied = Counter[str](), Counter[str]()
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    with Client(url) as client:
        for line in client.journal():
            if line.kind == "post" and line.post_id is not None and line.owner is not None:
                applied[line.post_id] += 1
                sums[line.owner][0] += line.stats["xp"]
                sums[line.owner][1] += 1
        stored = {entry.owner: [entry.stats["xp"], entry.stats["posts"]] for entry in client.entries(BOARD, "xp")}
    faults["lost"] = len(submitted - applied.keys())
    faults["twice"] = sum(count - 1 for count in applied.values())
    faults["wrong sums"] = sum(stored.get(owner) != sums.get(owner) for owner in stored.keys() | sums.keys())
    return faults


async def attack(server: Server, folder: Path, seconds: float) -> tuple[Attack, FaultyProxy, Counter[str]]:
    """Let both clients post while everything fails. Their spools and files are in `folder`."""
    attacked, rng = Attack(), random.Random(7)
    csharp = await asyncio.to_thread(build_csharp_poster, folder / "csharp")
    await create_board(server.port, BOARD, board_spec(COLUMNS))
    until_s = time.monotonic() + seconds
    async with FaultyProxy(server.port, random.Random(8)).running() as proxy:
        url = f"http://127.0.0.1:{proxy.port}"
        csharp += [url, BOARD, str(_OWNERS)]
        work: list[Awaitable[None]] = [
            kill_service(server, attacked, rng, until_s),
            kill_posters(python_poster(url, folder / "spool"), attacked.python, rng, until_s),
            run_poster(python_poster(url), attacked.python, until_s),
            kill_posters([*csharp, str(folder / "killed.posts")], attacked.csharp, rng, until_s),
            run_poster([*csharp, str(folder / "living.posts")], attacked.csharp, until_s),
        ]
        await asyncio.gather(*work)
    return attacked, proxy, await asyncio.to_thread(audit, server.url, attacked.submitted)


def measure(options: Options, folder: Path) -> list[report.Bar]:
    with serve_file(folder / "faults.db") as server:
        attacked, proxy, faults = asyncio.run(attack(server, folder, options.seconds))
    python, csharp = attacked.python, attacked.csharp
    for name, posted in (("Python", python), ("C#", csharp)):
        print(f"   {name}: {len(posted.submitted):,} posts submitted, settled as {dict(posted.settled)}")
    print(
        f"   kills: {attacked.service_kills} of the service, {python.kills} of Python's process, {csharp.kills} of C#'s"
    )
    print(f"   posts that a full disk refused: {python.disk_full:,}")
    print(f"   requests: {json.dumps(proxy.counts)}")
    kinds = [attacked.service_kills, python.kills, csharp.kills, python.disk_full, *map(proxy.counts.get, FAULTS)]
    return [
        report.Bar("submitted posts lost", faults["lost"], 0, at_most=True),
        report.Bar("posts applied twice", faults["twice"], 0, at_most=True),
        report.Bar("owners whose sums are not those of their posts", faults["wrong sums"], 0, at_most=True),
        report.Bar("kinds of kills and faults that occurred", sum(bool(count) for count in kinds), len(kinds)),
    ]


if __name__ == "__main__":
    if sys.argv[1:2] == ["poster"]:
        post_until_stopped(sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None)
    else:
        report.run_program(measure, __doc__, "kills and faults between client and service: {seconds:g} s", seconds=600)

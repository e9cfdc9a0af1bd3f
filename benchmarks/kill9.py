"""100 times `kill -9` under load: no accepted post may be lost, none applied twice.

Rule kept: clients retry with the same post_id until a post is settled, and nothing else; the truth is what they were
told.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sqlite3
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import report
from benchmarks.boards import create, spec
from benchmarks.client import BadAnswer, Connection, quoted
from benchmarks.options import Options, parse
from benchmarks.servers import Server, service

_BOARDS = [f"kill-{number}" for number in range(5)]
_CHAMPION = "champion"  # posted to all five boards at once
_OWNERS = [f"owner-{number}" for number in range(200)]
_CLIENTS = 16
_AUDITED = 500  # posts a request when all are sent again
_LOAD_S_MAX = 0.4  # a kill comes at most so long after the first post since the start is settled
_PROGRESS_S = 30.0  # a started service settles some post within this, or the run fails
_SETTLED = ("applied", "unchanged", "duplicate")


@dataclass(slots=True)
class Ledger:
    """What the clients know: every settled post, by the path it went to."""

    settled: dict[str, list[dict[str, object]]] = field(default_factory=lambda: defaultdict(list))
    statuses: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    under_way: int = 0
    killed_under_way: int = 0
    stop: bool = False
    progress: asyncio.Event = field(default_factory=asyncio.Event)  # set whenever a request is settled

    def sums(self) -> dict[tuple[str, str], list[int]]:
        """[xp, posts] by board and owner, as they have to stand in the store."""
        found: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        for posts in self.settled.values():
            for post in posts:
                for board in _boards_of(post):
                    entry = found[board, str(post["owner"])]
                    entry[0] += int(str(post["xp"]))
                    entry[1] += 1
        return found

    def count(self) -> int:
        return sum(self.statuses.values())


def _boards_of(post: dict[str, object]) -> list[str]:
    boards = post["boards"]
    assert isinstance(boards, list)
    return boards


def _wire(post: dict[str, object], *, named_boards: bool) -> dict[str, object]:
    wire = {"owner": post["owner"], "stats": {"xp": post["xp"], "posts": 1}, "post_id": post["post_id"]}
    return wire | {"boards": post["boards"]} if named_boards else wire


def _draw(rng: random.Random, name: str, number: int) -> tuple[str, list[dict[str, object]]]:
    """One request's path and posts: a single post, a batch of twenty, or posts to all five boards."""
    kind = rng.random()
    boards = list(_BOARDS) if kind < 0.5 else [rng.choice(_BOARDS)]
    path = "/v1/posts" if kind < 0.5 else f"/v1/leaderboards/{boards[0]}/posts"
    size = 1 if kind < 0.75 else 20
    posts: list[dict[str, object]] = []
    for index in range(size):
        chosen = _CHAMPION if rng.random() < 0.3 else rng.choice(_OWNERS)
        post_id = f"{name}/{number}/{index}"
        # Sums of odd weights this wide don't hide a lost post behind one applied twice.
        posts.append({"owner": chosen, "xp": rng.randrange(1, 2**24), "post_id": post_id, "boards": boards})
    return path, posts


async def client(port: int, name: str, ledger: Ledger) -> None:
    """Post until told to stop, each request again until it is settled. Raises BadAnswer for any other refusal."""
    connection, rng, number = Connection(port), random.Random(name), 0
    while not ledger.stop:
        number += 1
        path, posts = _draw(rng, name, number)
        wires = [_wire(post, named_boards=path == "/v1/posts") for post in posts]
        body = json.dumps(wires[0] if len(wires) == 1 else {"posts": wires}).encode()
        results = await settle(connection, path, body, ledger)
        if len(results) != len(posts) or any(result["status"] not in _SETTLED for result in results):
            raise BadAnswer(f"{path}: {results[:2]}")
        ledger.settled[path].extend(posts)
        ledger.statuses.update(result["status"] for result in results)
        ledger.progress.set()
    connection.close()


async def settle(connection: Connection, path: str, body: bytes, ledger: Ledger) -> list[dict[str, str]]:
    """The results of a request, sent until it is answered with 200."""
    while True:
        ledger.under_way += 1
        try:
            status, answer = await connection.call("POST", path, body)
        except (OSError, EOFError):
            status, answer = 503, b""
        finally:
            ledger.under_way -= 1
        if status == 200:
            results: list[dict[str, str]] = json.loads(answer)["results"]
            return results
        if status not in (429, 503):
            raise BadAnswer(f"{path}: {status} {answer[:300]!r}")
        ledger.retries += 1
        await asyncio.sleep(0.01)


async def kill_and_start(server: Server, ledger: Ledger, kills: int) -> float:
    """Kill and start again, so many times, while posts are under way; median milliseconds from start to ready."""
    rng, starts_ms = random.Random(9), []
    for _ in range(kills):
        ledger.progress.clear()
        async with asyncio.timeout(_PROGRESS_S):
            await ledger.progress.wait()
        await asyncio.sleep(rng.uniform(0, _LOAD_S_MAX))
        ledger.killed_under_way += ledger.under_way > 0
        await asyncio.to_thread(server.end, signal.SIGKILL)
        server.spawn()
        await asyncio.to_thread(server.wait_ready, poll_s=0.005)
        starts_ms.append(1000 * (time.perf_counter() - server.spawned_at))
    return sorted(starts_ms)[len(starts_ms) // 2]


async def audit(port: int, ledger: Ledger) -> Counter[str]:
    """Compare every owner's sums on every board, then send every post again: all must be known."""
    faults: Counter[str] = Counter(lost=0, twice=0, forgotten=0)
    connection = Connection(port)
    for (board, name), (xp, posts) in ledger.sums().items():
        stats = (await connection.must("GET", f"/v1/leaderboards/{board}/entries/{quoted(name)}"))["stats"]
        if (stats["xp"], stats["posts"]) != (xp, posts):
            print(f"   {board} {name}: {stats}, told xp {xp}, posts {posts}")
        faults["lost"] += max(0, posts - stats["posts"]) or int(stats["xp"] < xp)
        faults["twice"] += max(0, stats["posts"] - posts) or int(stats["xp"] > xp)
    for path, posts_sent in ledger.settled.items():
        for first in range(0, len(posts_sent), _AUDITED):
            wires = [_wire(post, named_boards=path == "/v1/posts") for post in posts_sent[first : first + _AUDITED]]
            results = (await connection.must("POST", path, {"posts": wires}))["results"]
            faults["forgotten"] += sum(
                any(part["status"] != "duplicate" for part in one.get("boards", [one])) for one in results
            )
    connection.close()
    return faults


async def run(server: Server, kills: int) -> tuple[Ledger, Counter[str], float]:
    ledger = Ledger()
    for board in _BOARDS:
        await create(server.port, board, spec(["xp", "posts"]))
    async with asyncio.TaskGroup() as group:
        for number in range(_CLIENTS):
            group.create_task(client(server.port, f"client-{number}", ledger))
        start_ms = await kill_and_start(server, ledger, kills)
        ledger.stop = True
    return ledger, await audit(server.port, ledger), start_ms


def measure(options: Options, folder: Path) -> list[report.Bar]:
    store = folder / "kill.db"
    with service(store) as server:
        ledger, faults, start_ms = asyncio.run(run(server, options.kills))
    with sqlite3.connect(store) as connection:
        sound = connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    connection.close()
    print(
        f"   {ledger.count():,} posts settled: {dict(ledger.statuses)}, {ledger.retries:,} requests sent again,",
        end=" ",
    )
    print(
        f"{ledger.killed_under_way} of {options.kills} kills with requests under way, start to ready {start_ms:.0f} ms"
    )
    return [
        report.Bar("accepted posts lost", faults["lost"], 0, at_most=True),
        report.Bar("posts applied twice", faults["twice"], 0, at_most=True),
        report.Bar("post ids forgotten", faults["forgotten"], 0, at_most=True),
        report.Bar("damaged store files", int(not sound), 0, at_most=True),
        report.Bar("posts whose answer a kill swallowed after the commit", ledger.statuses["duplicate"], None),
        report.Bar("kills with requests under way", ledger.killed_under_way, options.kills * 0.9),
    ]


def main() -> int:
    options = parse(__doc__)
    return report.run(options, f"kill -9: {options.kills} times, {_CLIENTS} clients, {len(_BOARDS)} boards", measure)


if __name__ == "__main__":
    sys.exit(main())

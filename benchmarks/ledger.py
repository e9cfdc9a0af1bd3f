"""Records the answers that clients receive from a store under attack, and checks that the store agrees with them.

A post is *settled* once its request got status 200. A client repeats a request, with the same post ids, until it gets
status 200, and only then sends its next request. The settled posts determine the sums and counts that the store must
have, by owner and board. In the end posts are sent once more, and the store must answer `duplicate` for each of them.
"""

import asyncio
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks import report
from benchmarks.client import BadAnswerError, Connection

BOARDS = [f"kill-{number}" for number in range(5)]
CHAMPION = "champion"  # the owner of about 30 % of the posts
COLUMNS = ["xp", "posts"]
_AUDITED = 500  # posts per request when posts are sent again at the end
_PAUSE_S = 0.01
_PAUSE_S_MAX = 0.2  # a request that is refused again and again is sent this often, so clients do not use up a machine
_SETTLED = ("applied", "unchanged", "duplicate")
_REFUSED = (429, 503)


@dataclass(slots=True)
class Ledger:
    """The clients' records of their requests. `settled` holds the settled posts, by the path of their requests."""

    settled: dict[str, list[dict[str, object]]] = field(default_factory=lambda: defaultdict(list))
    statuses: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)  # refused and unanswered requests, counted by detail
    # For each port, the times of all answers with status 200, on the monotonic clock.
    acknowledged: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    retries: int = 0
    under_way: int = 0
    stop: bool = False
    progress: asyncio.Event = field(default_factory=asyncio.Event)  # set whenever a request gets status 200

    def sums(self) -> dict[tuple[str, str], list[int]]:
        """Return the sums [xp, posts] that the store must have, by (board, owner)."""
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

    def refused_for(self, word: str) -> int:
        return sum(count for detail, count in self.refusals.items() if word in detail.lower())

    def first_after_s(self, port: int, moment: float) -> float:
        """Return the seconds from `moment` until the process at `port` next answered a request with status 200.

        `moment` is a time by the monotonic clock.
        """
        return next((at - moment for at in self.acknowledged[port] if at > moment), float("inf"))


def _boards_of(post: dict[str, object]) -> list[str]:
    boards = post["boards"]
    assert isinstance(boards, list)
    return boards


def _wire(post: dict[str, object], *, named_boards: bool) -> dict[str, object]:
    wire = {"owner": post["owner"], "stats": {"xp": post["xp"], "posts": 1}, "post_id": post["post_id"]}
    return wire | {"boards": post["boards"]} if named_boards else wire


def _draw(rng: random.Random, name: str, number: int, owners: Sequence[str]) -> tuple[str, list[dict[str, object]]]:
    """Return the path and the posts of a random request, which sends 1 or 20 posts to one board or to all boards."""
    kind = rng.random()
    boards = list(BOARDS) if kind < 0.5 else [rng.choice(BOARDS)]
    path = "/v1/posts" if kind < 0.5 else f"/v1/leaderboards/{boards[0]}/posts"
    size = 1 if kind < 0.75 else 20
    posts: list[dict[str, object]] = []
    for index in range(size):
        chosen = CHAMPION if rng.random() < 0.3 else rng.choice(owners)
        post_id = f"{name}/{number}/{index}"
        # `xp` has a large range, so that a lost post and a post applied twice are unlikely to leave the sum correct.
        posts.append({"owner": chosen, "xp": rng.randrange(1, 2**24), "post_id": post_id, "boards": boards})
    return path, posts


async def post_until_stopped(ports: Sequence[int], name: str, owners: Sequence[str], ledger: Ledger) -> None:
    """Post to the first port until `ledger.stop` is set.

    A request that does not get status 200 is sent again, to a random port of `ports`.

    Raises:
        BadAnswerError: a request was refused with a status other than 429 and 503, or not all its posts were settled.
    """
    connections, rng, number = [Connection(port) for port in ports], random.Random(name), 0
    while not ledger.stop:
        number += 1
        path, posts = _draw(rng, name, number, owners)
        wires = [_wire(post, named_boards=path == "/v1/posts") for post in posts]
        body = json.dumps(wires[0] if len(wires) == 1 else {"posts": wires}).encode()
        results = await _settle(connections, path, body, ledger, rng)
        if len(results) != len(posts) or any(result["status"] not in _SETTLED for result in results):
            raise BadAnswerError(f"{path}: {results[:2]}")
        ledger.settled[path].extend(posts)
        ledger.statuses.update(result["status"] for result in results)
        ledger.progress.set()
    for connection in connections:
        connection.close()


async def _settle(
    connections: Sequence[Connection], path: str, body: bytes, ledger: Ledger, rng: random.Random
) -> list[dict[str, str]]:
    """Repeat a request until it gets status 200, and return the results in that answer."""
    connection, pause_s = connections[0], _PAUSE_S
    while True:
        ledger.under_way += 1
        try:
            status, answer = await connection.call("POST", path, body)
        except (OSError, EOFError) as error:
            status, answer = 503, json.dumps({"detail": f"no answer: {type(error).__name__}"}).encode()
        finally:
            ledger.under_way -= 1
        if status == 200:
            ledger.acknowledged[connection.port].append(time.monotonic())
            results: list[dict[str, str]] = json.loads(answer)["results"]
            return results
        if status not in _REFUSED:
            raise BadAnswerError(f"{path}: {status} {answer[:300]!r}")
        ledger.refusals[json.loads(answer)["detail"]] += 1
        ledger.retries += 1
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _PAUSE_S_MAX)
        connection = rng.choice(connections)


async def audit_store(port: int, ledger: Ledger, *, resent_max: int | None = None) -> Counter[str]:
    """Compare every owner's sums on every board with the ledger, then send posts again whose ids the store must know.

    `resent_max` limits how many of the last posts of each path are sent again; None means all of them. Return the
    number of faults by kind.
    """
    faults: Counter[str] = Counter(lost=0, twice=0, forgotten=0)
    connection = Connection(port)
    for (board, name), (xp, posts) in ledger.sums().items():
        stats = (await connection.call_ok("GET", f"/v1/leaderboards/{board}/entries/{name}"))["stats"]
        if (stats["xp"], stats["posts"]) != (xp, posts):
            print(f"   {board} {name}: {stats}, told xp {xp}, posts {posts}")
        faults["lost"] += max(0, posts - stats["posts"]) or int(stats["xp"] < xp)
        faults["twice"] += max(0, stats["posts"] - posts) or int(stats["xp"] > xp)
    for path, settled in ledger.settled.items():
        posts_sent = settled[-resent_max:] if resent_max else settled
        for first in range(0, len(posts_sent), _AUDITED):
            wires = [_wire(post, named_boards=path == "/v1/posts") for post in posts_sent[first : first + _AUDITED]]
            results = (await connection.call_ok("POST", path, {"posts": wires}))["results"]
            faults["forgotten"] += sum(
                any(part["status"] != "duplicate" for part in one.get("boards", [one])) for one in results
            )
    connection.close()
    return faults


def fault_bars(ledger: Ledger, faults: Counter[str]) -> list[report.Bar]:
    """Return the bars for the faults that `audit_store` found, and for refusals that mention a deadlock."""
    return [
        report.Bar("accepted posts lost", faults["lost"], 0, at_most=True),
        report.Bar("posts applied twice", faults["twice"], 0, at_most=True),
        report.Bar("post ids forgotten", faults["forgotten"], 0, at_most=True),
        report.Bar("deadlocks that a client was told of", ledger.refused_for("deadlock"), 0, at_most=True),
    ]


def print_ledger(ledger: Ledger, seconds: float) -> None:
    print(f"\n   {ledger.count():,} posts settled: {dict(ledger.statuses)}, {ledger.count() / seconds:,.0f} a second;")
    print(f"   {ledger.retries:,} requests sent again:")
    for detail, count in ledger.refusals.most_common(12):
        print(f"   {count:8,}  {detail[:150]}")

"""Replay player tokens in parallel through four processes, and count what they bring.

python -m benchmarks.token_replays [--rounds N]

In each round 200 requests carry one token, which allows three posts: 40 requests for each of the numbers 0 to 4, all at
once. Every second round posts to a family. The rounds run on a SQLite store (an owner process and three fronts) and on
PostgreSQL.

Bar: each token applies exactly three posts, all other requests are duplicates or refused, and the entry has their sum.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

from benchmarks import report
from benchmarks.options import Options
from benchmarks.servers import Server, serve_file, serve_store
from tests.servers import DURABLE, postgres
from tests.service.real_service import Caller, bearer

PROCESSES, REPLAYS, POSTS_MAX, NUMBERS, VALUE = 4, 200, 3, 5, 7
SPEC = {"columns": [{"name": "xp", "merge": "sum"}]}
OUTCOMES = ("applied", "duplicate", "token_used_up")
PATHS = ["/v1/leaderboards/arena/posts", "/v1/families/run/posts"]
_SECRET = {"RANKCURVE_PLAYER_TOKEN_KEYS": "s" * 32}
_BUSY = (429, 503)


async def create_boards(caller: Caller) -> None:
    await caller.must("PUT", "/v1/leaderboards/arena", SPEC)
    await caller.must("PUT", "/v1/families/run", {**SPEC, "periods": ["all", "week"]})


async def replay_token(
    callers: Sequence[Caller], owner: str, path: str, rng: random.Random, *, replays: int = REPLAYS
) -> tuple[Counter[str], list[str]]:
    """Replay a new token whose owner has no entry. Return how often each outcome occurred, and the faults."""
    asked = {"owner": owner, "boards": ["arena"], "families": ["run"], "posts": POSTS_MAX, "limits": {"xp": VALUE}}
    token = bearer((await callers[0].must("POST", "/v1/tokens", asked))["token"])

    async def send(number: int) -> str:
        post = {"owner": owner, "stats": {"xp": VALUE}, "n": number % NUMBERS}
        while (answer := await rng.choice(callers).call("POST", path, post, token)).status in _BUSY:
            pass
        return str(answer.body["code"] if answer.status >= 400 else answer.body["results"][0]["status"])

    outcomes = Counter(await asyncio.gather(*map(send, range(replays))))
    allowed = sum(number % NUMBERS < POSTS_MAX for number in range(replays))
    right = {"applied": POSTS_MAX, "duplicate": allowed - POSTS_MAX, "token_used_up": replays - allowed}
    faults = [] if outcomes == right else [f"{owner}: {dict(outcomes)} instead of {right}"]
    board = "arena" if "leaderboards" in path else "run:all"
    found = (await callers[0].get(f"/v1/leaderboards/{board}/entries/{owner}"))["stats"]["xp"]
    if found != POSTS_MAX * VALUE:
        faults.append(f"{owner}: {found} xp instead of {POSTS_MAX * VALUE}")
    return outcomes, faults


async def run_rounds(servers: list[Server], rounds: int) -> tuple[Counter[str], list[str]]:
    """Return how often each outcome occurred in all rounds, and the faults."""
    outcomes, faults, rng = Counter[str](), list[str](), random.Random(59)
    async with AsyncExitStack() as stack:
        callers = [
            await stack.enter_async_context(Caller(servers[number % len(servers)].url)) for number in range(PROCESSES)
        ]
        await create_boards(callers[0])
        for number in range(rounds):
            counted, wrong = await replay_token(callers, f"p{number}", PATHS[number % len(PATHS)], rng)
            outcomes += counted
            faults += wrong
    return outcomes, faults


def measure(options: Options, folder: Path) -> list[report.Bar]:
    bars: list[report.Bar] = []
    rows: list[list[str | float]] = []
    with ExitStack() as stack:
        url = stack.enter_context(postgres(DURABLE)).url()
        on_file = [stack.enter_context(serve_file(folder / "tokens.db", workers=PROCESSES - 1, environment=_SECRET))]
        on_server = [
            stack.enter_context(serve_store(url, folder, jobs="none" if number else "embedded", environment=_SECRET))
            for number in range(PROCESSES)
        ]
        for store, servers in (("SQLite", on_file), ("PostgreSQL", on_server)):
            outcomes, faults = asyncio.run(run_rounds(servers, options.rounds))
            for fault in faults[:3]:
                print(f"   {store}: {fault}")
            rows.append([store, *(outcomes[name] for name in OUTCOMES), len(faults)])
            bars.append(
                report.Bar(f"{store}: tokens that brought more or less than they allow", len(faults), 0, at_most=True)
            )
    report.print_table(["", *OUTCOMES, "faults"], rows)
    return bars


if __name__ == "__main__":
    heading = f"{REPLAYS} parallel replays of a token, {PROCESSES} processes: {{rounds}} tokens on each store"
    report.run_program(measure, __doc__, heading, rounds=20)

"""Measure the sustained rate of queued posts on PostgreSQL, while a worker of the queue is killed every 10 seconds.

    python -m benchmarks.queued_posts [--rows N] [--seconds S] [--during COMMAND]

A shell command may run beside it, for example to keep a core busy. 15,300 posts a second are sent for 100,000 owners
for 30 minutes. Four job processes with short leases apply them. Every post adds one to its owner's count and stores its
serial number. In the end the board is compared with the accepted posts. The comparison finds lost posts, posts applied
twice, and owners whose posts were applied in the wrong order. The posts that wait are those that were accepted and not
applied.

Bars: at least 15,000 posts/s are applied, and in every second at least half of the mean. A post is visible at most 5 s
after it was sent (p99). Nothing is lost, applied twice, or out of order.
"""

import asyncio
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks import report
from benchmarks.boards import BOARD, create_board, owner_at
from benchmarks.client import BadAnswerError, Connection
from benchmarks.options import Options
from benchmarks.servers import POSTGRES_SETTINGS, Server, serve_jobs, serve_store
from tests.servers import postgres

PROCESSES = 4  # number of job processes; each has one worker of the queue
KILL_EVERY_S = 10.0
SENT_PER_S = 15_300
LEASE_S = 3  # length of work leases; the default length equals the time between two kills
BAR = 15_000
BATCH = 500  # posts per request
CONNECTIONS = 4
PROBES = 20  # number of probes: owners whose posts are all timed
_PROBE_EVERY_S = 0.1
_LOOK_EVERY_S = 0.05
_DRAIN_S_MAX = 60.0
_WAITING_EVERY_S = 0.15
_AGE_S_MAX = 5.0
_SECONDS_MIN = 3.0  # shorter runs have no whole second to measure, so they become as long as this
_SPEC: dict[str, Any] = {
    "columns": [
        {"name": "xp", "sorted": True, "merge": "sum"},
        {"name": "posts", "sorted": False, "merge": "sum"},
        {"name": "number", "sorted": False, "merge": "last"},
    ]
}
_PATH = f"/v1/leaderboards/{BOARD}/posts?mode=queued"
_APPLIED = "SELECT coalesce(sum(applied), 0)::bigint FROM ingest_shards"


@dataclass(slots=True)
class Posted:
    rows: int
    posts: list[int] = field(default_factory=list)  # how many posts were accepted, by owner
    last: list[int] = field(default_factory=list)  # the serial number of the last accepted post, by owner
    accepted: int = 0
    refused: int = 0
    late_s: float = 0.0  # the longest delay of a request: when it was sent minus when it was due

    def __post_init__(self) -> None:
        self.posts, self.last = [0] * self.rows, [0] * self.rows


@dataclass(slots=True)
class Seen:
    per_s: list[float] = field(default_factory=list)  # posts applied, second by second
    latency_s: list[float] = field(default_factory=list)  # seconds until visible, for each post of a probe
    disordered: int = 0  # how often a read found a lower serial number than an earlier read
    kills: int = 0
    probed: int = 0  # accepted posts of probes
    waiting_most: int = 0  # the most posts that were accepted and not applied


async def send_posts(port: int, part: int, posted: Posted, until_s: float, sent_per_s: int) -> None:
    """Post at an even pace until `until_s`.

    All of an owner's posts are sent on one connection, so that their order is known.
    """
    connection, rng = Connection(port), random.Random(part)
    mine = range(part, posted.rows, CONNECTIONS)
    owners = [owner_at(index) for index in range(posted.rows)]
    pause_s = BATCH * CONNECTIONS / sent_per_s
    numbers = itertools.count(1)
    due_s = time.monotonic()
    while due_s < until_s:
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        posted.late_s = max(posted.late_s, time.monotonic() - due_s)
        due_s += pause_s
        chosen = [(index, next(numbers)) for index in rng.choices(mine, k=BATCH)]
        posts = [
            f'{{"owner":"{owners[index]}","stats":{{"xp":{1 + number % 1000},"posts":1,"number":{number}}}}}'
            for index, number in chosen
        ]
        status, answer = await connection.call("POST", _PATH, f'{{"posts":[{",".join(posts)}]}}'.encode())
        if status in (429, 503):
            posted.refused += BATCH
            continue
        if status != 202:
            raise BadAnswerError(f"{status} {answer[:300]!r}")
        posted.accepted += BATCH
        for index, number in chosen:
            posted.posts[index] += 1
            posted.last[index] = number
    connection.close()


async def probe_latency(port: int, seen: Seen, until_s: float) -> None:
    """Post for the probes at an even pace, and record when each post becomes visible."""
    names = [f"probe-{number}" for number in range(PROBES)]
    sent: dict[str, deque[tuple[int, float]]] = {name: deque() for name in names}
    shown = dict.fromkeys(names, 0)

    async def post() -> None:
        connection = Connection(port)
        number = 0
        while time.monotonic() < until_s:
            number += 1
            posts = [{"owner": name, "stats": {"xp": 1, "posts": 1, "number": number}} for name in names]
            at_s = time.monotonic()
            status, _ = await connection.call("POST", _PATH, json.dumps({"posts": posts}).encode())
            if status == 202:
                seen.probed += len(names)
                for name in names:
                    sent[name].append((number, at_s))
            await asyncio.sleep(_PROBE_EVERY_S)
        connection.close()

    async def look() -> None:
        connection = Connection(port)
        path, body = f"/v1/leaderboards/{BOARD}/entries/lookup", {"owners": names}
        while time.monotonic() < until_s + _DRAIN_S_MAX and (time.monotonic() < until_s or any(sent.values())):
            answer = await connection.call_ok("POST", path, body)
            now_s = time.monotonic()
            for entry in answer["entries"]:
                name, number = entry["owner"], entry["stats"]["number"]
                seen.disordered += number < shown[name]
                shown[name] = max(shown[name], number)
                while sent[name] and sent[name][0][0] <= number:
                    seen.latency_s.append(now_s - sent[name].popleft()[1])
            await asyncio.sleep(_LOOK_EVERY_S)
        connection.close()

    await asyncio.gather(post(), look())


async def record_applied(database: Any, seen: Seen, until_s: float) -> None:
    """Record, for each second until `until_s`, how many posts were applied."""
    before, at_s = await database.fetchval(_APPLIED), time.monotonic()
    while at_s + 1 <= until_s:
        await asyncio.sleep(max(0.0, at_s + 1 - time.monotonic()))
        applied, now_s = await database.fetchval(_APPLIED), time.monotonic()
        seen.per_s.append((applied - before) / (now_s - at_s))
        before, at_s = applied, now_s


async def record_waiting(url: str, posted: Posted, seen: Seen, until_s: float) -> None:
    """Record the highest number of waiting posts.

    The queue is sampled at random moments, because the senders have a steady rhythm.
    """
    database, rng = await asyncpg.connect(url), random.Random(0)
    while time.monotonic() < until_s:
        accepted = posted.accepted + seen.probed  # read first: a post that is applied in between does not wait
        seen.waiting_most = max(seen.waiting_most, accepted - await database.fetchval(_APPLIED))
        await asyncio.sleep(rng.uniform(0, 2 * _WAITING_EVERY_S))
    await database.close()


async def kill_workers(workers: list[Server], seen: Seen, until_s: float) -> None:
    """Kill the job processes in turn, and start each again, as a supervisor would."""
    for worker in itertools.cycle(workers):
        await asyncio.sleep(KILL_EVERY_S)
        if time.monotonic() > until_s:
            return
        await asyncio.to_thread(worker.stop, signal.SIGKILL)
        seen.kills += 1
        worker.spawn()


async def run_attack(
    port: int, url: str, workers: list[Server], options: Options, sent_per_s: int
) -> tuple[Posted, Seen, dict[str, int]]:
    """Run senders, probes and kills at the same time, then compare the board with the accepted posts."""
    posted, seen = Posted(options.rows), Seen()
    await create_board(port, BOARD, _SPEC)
    database = await asyncpg.connect(url)
    begun_s = time.monotonic()
    until_s = begun_s + options.seconds
    async with asyncio.TaskGroup() as group:
        for part in range(CONNECTIONS):
            group.create_task(send_posts(port, part, posted, until_s, sent_per_s))
        group.create_task(probe_latency(port, seen, until_s))
        group.create_task(record_applied(database, seen, until_s))
        group.create_task(record_waiting(url, posted, seen, until_s))
        group.create_task(kill_workers(workers, seen, until_s))
    emptied_by_s = time.monotonic() + _DRAIN_S_MAX
    while await database.fetchval("SELECT count(*) FROM ingest_blocks"):
        if time.monotonic() > emptied_by_s:
            raise BadAnswerError(f"the queue was not empty after {_DRAIN_S_MAX:g} s")
        await asyncio.sleep(0.1)
    faults = await audit_board(database, posted)
    await database.close()
    return posted, seen, faults


async def audit_board(database: Any, posted: Posted) -> dict[str, int]:
    """Compare the board with the accepted posts, and return the number of differences by kind.

    The board is read from its table, because over HTTP every owner would need a request.
    """
    table = await database.fetchval("SELECT 'entries_' || board_key FROM boards WHERE id = $1", BOARD)
    rows = await database.fetch(f'SELECT owner, c2, c3 FROM "{table}"')
    found = {row["owner"]: (row["c2"], row["c3"]) for row in rows}
    faults = {"lost": 0, "twice": 0, "disordered": 0}
    for index in range(posted.rows):
        posts, number = found.get(owner_at(index), (0, 0))
        faults["lost"] += max(0, posted.posts[index] - posts)
        faults["twice"] += max(0, posts - posted.posts[index])
        faults["disordered"] += number != posted.last[index]
    return faults


@contextmanager
def run_meanwhile(command: str) -> Iterator[None]:
    """Run a shell command, unless it is empty, during the `with` block. Then end the command and its children."""
    if not command:
        yield
        return
    process = subprocess.Popen(command, shell=True, start_new_session=True)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # the command may have ended
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run. `steady_per_s` leaves out the rates of the first two seconds, in which the queue fills."""

    steady_per_s: list[float]
    latency_p99_s: float
    waiting_most: int
    faults: dict[str, int]


def attack_queue(options: Options, folder: Path, *, sent_per_s: int, during: str) -> Outcome:
    """Send posts to a new store while workers are killed, and print and return the outcome."""
    options = replace(options, seconds=max(options.seconds, _SECONDS_MIN))
    with postgres(POSTGRES_SETTINGS) as cluster, ExitStack() as stack:
        url = cluster.url()
        server = stack.enter_context(serve_store(url, folder, jobs="none"))
        leases = {"RANKCURVE_LEASE_S": str(LEASE_S)}
        workers = [stack.enter_context(serve_jobs(url, folder, environment=leases)) for _ in range(PROCESSES)]
        with run_meanwhile(during):
            posted, seen, faults = asyncio.run(run_attack(server.port, url, workers, options, sent_per_s))
    steady = seen.per_s[2:] or seen.per_s
    latency = sorted(seen.latency_s)
    p50, p99 = latency[len(latency) // 2], latency[-len(latency) // 100]
    report.print_table(
        ("", "posts/s", "lowest second", "refused", "p50 s", "p99 s", "longest s"),
        [["queued", statistics.fmean(steady), min(steady), posted.refused, p50, p99, latency[-1]]],
    )
    print(
        f"   {posted.accepted:,} accepted, {seen.kills} kills, senders at most {posted.late_s:.2f} s behind their pace"
    )
    faults["went back"] = seen.disordered
    return Outcome(steady, p99, seen.waiting_most, faults)


def measure(options: Options, folder: Path) -> list[report.Bar]:
    found = attack_queue(options, folder, sent_per_s=SENT_PER_S, during=options.during)
    mean = statistics.fmean(found.steady_per_s)
    return [
        report.Bar("posts applied a second", mean, BAR),
        report.Bar("lowest second / mean", min(found.steady_per_s) / mean, 0.5),
        report.Bar("accepted to visible, p99", found.latency_p99_s, _AGE_S_MAX, " s", at_most=True),
        report.Bar("most posts that waited", found.waiting_most, None),
        report.Bar("accepted posts lost", found.faults["lost"], 0, at_most=True),
        report.Bar("posts applied twice", found.faults["twice"], 0, at_most=True),
        report.Bar("owners whose last post is not the last accepted", found.faults["disordered"], 0, at_most=True),
        report.Bar("probes that went back", found.faults["went back"], 0, at_most=True),
    ]


if __name__ == "__main__":
    report.run_program(
        measure,
        __doc__,
        f"queued posts: {{rows:,}} owners, {SENT_PER_S:,}/s for {{seconds:g}} s, a worker killed every 10 s",
        rows=100_000,
        seconds=1_800,
    )

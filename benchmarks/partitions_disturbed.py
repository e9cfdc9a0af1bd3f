"""Post to boards of several partitions and read from them, while a command disturbs the store. Check every answer.

python -m benchmarks.partitions_disturbed [--seconds S] [--rounds N] [--store URL] [--during COMMAND]

Four processes with 16 posters each post to boards in all partitions (`ledger`). Beside them, readers ask for the top,
for estimates and for exact ranks on a board in each partition that nobody posts to, and compare the answers with the
right ones. The shell command runs N times, S seconds apart. It can move a partition to another node, end a node and
start it again, or freeze all processes of a node for a minute (`kill -STOP`, `sleep 60`, `kill -CONT`). Without a
command, the store is not disturbed. A store given by `--store` is empty, or has partitions. A connection string with
several hosts gives each process another first host.

A third of the boards has a segment in each partition. Readers ask for ranks, positions and the top of a still board of
this kind. Its ranks by value need no partition, so they must go on, whatever is disturbed.

Bars: no accepted post is lost or applied twice, no post id is forgotten, no rank is wrong, no page is empty, and no
client is told of a deadlock. Each partition is read and written within 10 s after the command has ended. If a command
keeps partitions unreachable for more than 10 s, the others go on: from 2 s after the command began, pages, estimates
and posts come at 0.9 of the rate before, and no gap between two of them is longer than 2 s.
"""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from benchmarks import report
from benchmarks.boards import board_spec, create_board, refresh_columns
from benchmarks.client import Connection, call_service
from benchmarks.journal_partitions import prepare_store
from benchmarks.ledger import BOARDS, COLUMNS, Ledger, audit_store, fault_bars, post_until_stopped, print_ledger
from benchmarks.options import Options
from benchmarks.postgres_restarts import OWNERS, POSTERS, PROCESSES, RESENT_MAX
from benchmarks.servers import serve_store
from storage.records import segment_of
from tests.servers import DURABLE, postgres

_STILL_ROWS = 2_000
_TOP = 10
BACK_S_MAX = 10.0
_LONG_S = 10.0  # a command that runs for longer keeps a node away, and the others should go on
_NOTICED_S = 2.0  # after this time, a node that does not answer costs the others nothing
_KINDS = ("by value", "by owner", "exact", "top")
_SPREAD = "still-spread"  # the board with a segment in each partition


@dataclass(slots=True)
class _Reads:
    """The answers that the readers of one partition received."""

    right: int = 0
    wrong: int = 0
    unanswered: int = 0  # by a process that is down
    refused_s: list[float] = field(default_factory=list)  # when each request was refused, on the monotonic clock
    right_s: dict[str, list[float]] = field(default_factory=dict)  # when right answers came, by kind of request
    details: Counter[str] = field(default_factory=Counter)  # what refusals said
    owners: set[str] = field(default_factory=set)  # that were asked for in vain


@dataclass(slots=True)
class _Posts:
    """The posts to one board of a partition, which are sent one after the other."""

    longest_s: float = 0.0  # the longest wait for an answer, with all repetitions of the request
    accepted_s: list[float] = field(default_factory=list)  # when each post was accepted, on the monotonic clock

    def first_after_s(self, moment_s: float) -> float:
        """Return the seconds from a moment to the next accepted post."""
        return next((at_s - moment_s for at_s in self.accepted_s if at_s > moment_s), float("inf"))


def rotate_hosts(url: str, first: int) -> str:
    """Return a connection string with the same hosts, which begins with another one of them."""
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    listed = hosts.split(",")
    first %= len(listed)
    return urlunsplit(parts._replace(netloc=f"{user}{at}{','.join(listed[first:] + listed[:first])}"))


def _still(partition: int) -> str:
    return f"still-{partition}"


async def _fill(port: int, partitions: int) -> None:
    """Create a board in each partition, on which the owner of rank n has the value _STILL_ROWS - n."""
    rows = [(f"owner-{rank}", _STILL_ROWS - rank) for rank in range(1, _STILL_ROWS + 1)]
    for partition in range(partitions):
        for board in (_still(partition), f"probe-{partition}"):
            await create_board(port, board, {**board_spec(["xp"]), "partition": partition})
        await _post_rows(port, _still(partition), rows)
        await refresh_columns(port, _still(partition), ["xp"])
    await create_board(port, _SPREAD, {**board_spec(["xp"]), "segments": partitions})
    await _post_rows(port, _SPREAD, rows)
    await refresh_columns(port, _SPREAD, ["xp"])
    for index, board in enumerate(BOARDS):
        place = {"segments": partitions} if index % 3 == 2 else {"partition": index % partitions}
        await create_board(port, board, {**board_spec(COLUMNS), **place})


async def _post_rows(port: int, board: str, rows: list[tuple[str, int]]) -> None:
    for start in range(0, len(rows), 1_000):
        body = {"posts": [{"owner": owner, "stats": {"xp": xp}} for owner, xp in rows[start : start + 1_000]]}
        await call_service(port, "POST", f"/v1/leaderboards/{board}/posts", body)


def _path(board: str, kind: str, rank: int) -> str:
    """Return the path of a request of this kind, whose answer must contain the owner of this rank."""
    path = f"/v1/leaderboards/{board}"
    return {
        "by value": f"{path}/rankings/xp/positions?values={_STILL_ROWS - rank}&rank=estimate",
        "by owner": f"{path}/entries/owner-{rank}/positions?columns=xp&rank=estimate",
        "exact": f"{path}/entries/owner-{rank}/positions?columns=xp&rank=exact",
        "top": f"{path}/rankings/xp?limit={_TOP}",
    }[kind]


def _is_right(kind: str, rank: int, answer: dict[str, Any]) -> bool:
    if kind == "top":
        return [each["owner"] for each in answer.get("entries", ())] == [f"owner-{n}" for n in range(1, _TOP + 1)]
    [position] = answer.get("positions", [{"low": 0, "high": 0, "rank": 0}])
    return bool(position["rank"] == rank if kind == "exact" else position["low"] <= rank <= position["high"])


async def _read(ports: list[int], board: str, kinds: Sequence[str], ledger: Ledger, reads: _Reads) -> None:
    """Send requests of these kinds about a board that does not change, and compare each answer with the right one."""
    rng, connections = random.Random(f"{board} {kinds}"), [Connection(port) for port in ports]
    while not ledger.stop:
        rank, kind = rng.randint(1, _STILL_ROWS), rng.choice(kinds)
        path = _path(board, kind, rank)
        try:
            status, answer = await rng.choice(connections).call("GET", path)
        except (OSError, EOFError):
            reads.unanswered += 1
            await asyncio.sleep(0.02)
            continue
        found = json.loads(answer)
        if status == 503:
            reads.refused_s.append(time.monotonic())
            reads.details[str(found.get("detail"))[:80]] += 1
            reads.owners.add(f"owner-{rank}")
            await asyncio.sleep(0.02)
            continue
        right = status == 200 and _is_right(kind, rank, found)
        reads.right, reads.wrong = reads.right + right, reads.wrong + (not right)
        if right:
            reads.right_s.setdefault(kind, []).append(time.monotonic())
        else:
            print(f"   wrong: {path}: {status} {answer[:300]!r}")


async def _probe(ports: list[int], partition: int, ledger: Ledger, probed: _Posts) -> None:
    """Post to one board of the partition, and record when each post was accepted."""
    rng, connections, number = random.Random(partition), [Connection(port) for port in ports], 0
    path = f"/v1/leaderboards/probe-{partition}/posts"
    while not ledger.stop:
        number += 1
        body = json.dumps({"owner": "probe", "post_id": f"probe-{number}", "stats": {"xp": 1}}).encode()
        begun_s = time.monotonic()
        while True:
            try:
                status, _ = await rng.choice(connections).call("POST", path, body)
            except (OSError, EOFError):
                status = 503
            if status == 200 or ledger.stop:
                break
            await asyncio.sleep(0.02)
        now_s = time.monotonic()
        probed.longest_s = max(probed.longest_s, now_s - begun_s)
        probed.accepted_s.append(now_s)
        await asyncio.sleep(0.02)


class _Run(NamedTuple):
    """One run of the command, with its begin and end on the monotonic clock, in seconds."""

    begun_s: float
    ended_s: float


async def _disturb(options: Options, runs: list[_Run]) -> None:
    """Run the command again and again."""
    for _ in range(options.rounds):
        await asyncio.sleep(options.seconds)
        begun_s = time.monotonic()
        if options.during:
            process = await asyncio.create_subprocess_shell(options.during)
            if await process.wait():
                raise RuntimeError(f"{options.during!r} failed with {process.returncode}")
        runs.append(_Run(begun_s, time.monotonic()))
    await asyncio.sleep(BACK_S_MAX + options.seconds)


@dataclass
class Load:
    """The posts and reads that go on during disturbances, and their answers."""

    ports: list[int]
    partitions: int
    ledger: Ledger = field(default_factory=Ledger)
    faults: Counter[str] = field(default_factory=Counter)  # of the posts in the ledger

    def __post_init__(self) -> None:
        self.spread = {kind: _Reads() for kind in _KINDS}
        self.reads = [_Reads() for _ in range(self.partitions)]
        self.posts = [_Posts() for _ in range(self.partitions)]

    async def run(self, disturb: Callable[[], Awaitable[None]], more: Sequence[Coroutine[Any, Any, None]] = ()) -> None:
        """Post and read until `disturb` and `more` have ended. `more` has to end soon after `ledger.stop` is set."""
        ports, ledger = self.ports, self.ledger
        await _fill(ports[0], self.partitions)
        async with asyncio.TaskGroup() as group:
            for index in range(PROCESSES * POSTERS):
                first = index % PROCESSES
                others = [*ports[first:], *ports[:first]]
                group.create_task(post_until_stopped(others, f"client-{index}", OWNERS, ledger))
            for partition, read in enumerate(self.reads):
                group.create_task(_read(ports, _still(partition), ("exact", "top", "by owner"), ledger, read))
                group.create_task(_probe(ports, partition, ledger, self.posts[partition]))
            for kind, each in self.spread.items():
                group.create_task(_read(ports, _SPREAD, [kind], ledger, each))
            for work in more:
                group.create_task(work)
            await disturb()
            ledger.stop = True
        self.faults = await audit_store(ports[0], ledger, resent_max=RESENT_MAX)

    def make_bars(self, seconds: float, ended_s: Sequence[float]) -> list[report.Bar]:
        """Print what was answered in `seconds`, and return the bars. `ended_s` is when the disturbances ended."""
        back_s = [max(each.first_after_s(moment_s) for moment_s in ended_s) for each in self.posts]
        report.print_table(
            ["partition", "right reads", "wrong", "refused", "longest post s", "back s"],
            [
                [str(number), each.right, each.wrong, len(each.refused_s), post.longest_s, back]
                for number, (each, post, back) in enumerate(zip(self.reads, self.posts, back_s, strict=True))
            ],
        )
        report.print_table(
            ["with segments", "right reads", "wrong", "refused", "no answer"],
            [
                [kind, each.right, each.wrong, len(each.refused_s), each.unanswered]
                for kind, each in self.spread.items()
            ],
        )
        for kind, each in self.spread.items():
            for detail, count in each.details.items():
                print(f"   {kind} refused {count} times: {detail}")
        print_ledger(self.ledger, seconds)
        wrong = sum(each.wrong for each in [*self.reads, *self.spread.values()])
        return [
            *fault_bars(self.ledger, self.faults),
            report.Bar("wrong ranks and pages", wrong, 0, at_most=True),
            report.Bar(
                "refused ranks by value of a board with segments",
                len(self.spread["by value"].refused_s),
                0,
                at_most=True,
            ),
            report.Bar("slowest first post after a disturbance", max(back_s), BACK_S_MAX, " s", at_most=True),
            report.Bar("longest post", max(post.longest_s for post in self.posts), None, " s"),
        ]


def _compare_rates(runs: list[_Run], reads: list[_Reads], posts: list[_Posts], seconds: float) -> list[report.Bar]:
    """Return the bars of the partitions that went on while the command kept others unreachable for long enough."""
    ratios: dict[str, list[float]] = {}
    longest_gap_s = 0.0
    for run in runs:
        from_s = run.begun_s + _NOTICED_S
        are_away = [any(from_s <= at_s < run.ended_s for at_s in read.refused_s) for read in reads]
        if run.ended_s - run.begun_s < _LONG_S or not any(are_away):
            continue
        for read, post, is_away in zip(reads, posts, are_away, strict=True):
            if is_away:
                continue
            counted = {"pages": read.right_s["top"], "estimates": read.right_s["by owner"], "posts": post.accepted_s}
            for kind, at_s in counted.items():
                before = sum(run.begun_s - seconds <= each < run.begun_s for each in at_s) / seconds
                during = sum(from_s <= each < run.ended_s for each in at_s) / (run.ended_s - from_s)
                ratios.setdefault(kind, []).append(during / before)
                seen = [each for each in at_s if run.begun_s <= each < run.ended_s]
                gaps = (later - earlier for earlier, later in pairwise([run.begun_s, *seen, run.ended_s]))
                longest_gap_s = max(longest_gap_s, *gaps)
    bars = [
        report.Bar(f"{kind} of partitions that went on: rate / before, the least of {len(found)}", min(found), 0.9)
        for kind, found in ratios.items()
    ]
    if ratios:
        bars.append(report.Bar("longest gap of partitions that went on", longest_gap_s, 2.0, " s", at_most=True))
    return bars


def measure(options: Options, folder: Path) -> list[report.Bar]:
    with ExitStack() as stack:
        url = options.store or stack.enter_context(postgres(DURABLE)).create_database("disturbed")
        partitions = asyncio.run(prepare_store(url))
        services = [stack.enter_context(serve_store(rotate_hosts(url, index), folder)) for index in range(PROCESSES)]
        load, runs = Load([service.port for service in services], partitions), list[_Run]()
        asyncio.run(load.run(partial(_disturb, options, runs)))
    refused = {segment_of(owner, partitions) for owner in load.spread["by owner"].owners}
    return [
        *load.make_bars(options.rounds * options.seconds, [run.ended_s for run in runs]),
        report.Bar("segments whose owners were refused an estimate", len(refused), None),
        *_compare_rates(runs, load.reads, load.posts, options.seconds),
    ]


if __name__ == "__main__":
    report.run_program(
        measure,
        __doc__,
        f"{PROCESSES} processes on several partitions, disturbed {{rounds}} times by {{during!r}}",
        seconds=10,
    )

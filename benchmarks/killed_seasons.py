"""Kill processes of the service at random while contests with rewards end. Check grants, claims, events and webhooks.

    python -m benchmarks.killed_seasons [--kills N] [--contests N] [--rows N] [--store URL]

A service has a supervisor and three other processes. Each kill hits one of them at random, or, in place of the
supervisor, all; many kills wait for a contest whose grants are being made. Meanwhile contests of N owners (10,000) end,
players post until the end, and each of some grants is claimed by two clients. Clients repeat a request until it is
answered. A webhook's receiver refuses a fifth of the deliveries and hangs up in a tenth until the kills are over. In
the end all grants are compared with a model in plain Python, which knows the posts that were accepted. The trial runs
on a SQLite file and on a PostgreSQL server of its own, or on the empty store that `--store` names.

Bars: each grant of the model was made once, and no other one. Each claim counts once. Events are in order and complete,
in the list and at the receiver.
"""

import asyncio
import json
import os
import random
import signal
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count, groupby
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.boards import COLUMN, board_spec, draw_values, fill_board, owner_at
from benchmarks.client import HOST, BadAnswerError, Connection
from benchmarks.delivery_latency import ENVIRONMENT as WEBHOOKS
from benchmarks.delivery_latency import HOOK, Receiver, run_receiver
from benchmarks.options import Options
from benchmarks.servers import Server, serve_store
from service.stores import SQLITE_PREFIX
from tests.servers import DURABLE, free_port, postgres

# A short lease, because the process that makes grants is killed every few seconds.
ENVIRONMENT = WEBHOOKS | {"RANKCURVE_WORKERS": "2", "RANKCURVE_LEASE_S": "1"}
_POSTERS, _POSTED = 4, 4  # clients that post, and the contests that they post to at a time: those that end next
_HIDDEN = 10
_GOLD, _PERCENT = 3, 50
_REWARDS = [
    {"name": "gold", "column": COLUMN, "to_rank": _GOLD},
    {"name": "good", "column": COLUMN, "to_percent": _PERCENT},
]
_CLAIMED, _CLAIMERS = 20, 2  # the claimed grants of each contest, and the clients that claim each of them
_LIVES_S, _WAITS_S = (0.8, 1.4), 0.8  # the time between kills, and how long a kill then waits for grants being made
_ENDS_S = (0.1, 1.5)  # from the request that ends a contest to its end
_FAR = datetime(2100, 1, 1, tzinfo=UTC)
_EVENTS = ["board.created", "board.closed", "grants.made"]  # of each contest
_PAUSE_S, _PAGE, _SETTLED_S = 0.02, 1_000, 120.0

Grant = tuple[str, str, int]  # owner, reward, rank


@dataclass
class Trial:
    """The answers that clients received about the contests, and the faults that were found."""

    port: int
    rng: random.Random = field(default_factory=lambda: random.Random(12))
    values: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))  # by contest and owner
    hidden: set[str] = field(default_factory=set)
    granted: set[str] = field(default_factory=set)  # contests whose grants are all made
    claims: dict[str, list[tuple[dict[str, Any], bool]]] = field(default_factory=lambda: defaultdict(list))
    making: asyncio.Event = field(default_factory=asyncio.Event)  # set while grants of a contest are being made
    seen: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)

    async def settle(self, method: str, path: str, body: object = None) -> tuple[Any, bool]:
        """Send a request until it succeeds.

        Return the answer, and whether the outcome of an earlier attempt was unclear.
        """
        sent = b"" if body is None else json.dumps(body).encode()
        for attempt in count():
            connection = Connection(self.port)
            try:
                async with asyncio.timeout(_SETTLED_S):
                    status, answer = await connection.call(method, path, sent)
            except (OSError, EOFError):
                status, answer = 503, b""
            finally:
                connection.close()
            if 200 <= status < 300:
                return json.loads(answer) if answer else None, attempt > 0
            if status not in (429, 503):
                raise BadAnswerError(f"{method} {path}: {status} {answer[:300]!r}")
            self.seen["requests sent again"] += 1
            await asyncio.sleep(_PAUSE_S)
        raise AssertionError

    async def post(self, name: str) -> None:
        """Post to contests whose grants have not been made yet, and remember the posts that were accepted."""
        rng = random.Random(name)
        for number in count():
            open_contests = [each for each in self.values if each not in self.granted]
            if not open_contests:
                return
            contest = rng.choice(open_contests[:_POSTED])
            owner, amount = rng.choice(list(self.values[contest])), rng.randrange(1, 50_000)
            post = {"owner": owner, "stats": {COLUMN: amount}, "post_id": f"{name}/{number}"}
            answer, _ = await self.settle("POST", f"/v1/leaderboards/{contest}/posts", {"posts": [post]})
            [result] = answer["results"]
            told = result["error"]["code"] if "error" in result else result["status"]
            self.seen[f"posts {told}"] += 1
            self.faults["posts refused"] += told not in ("applied", "duplicate", "period_closed")
            if told in ("applied", "duplicate"):
                self.values[contest][owner] += amount

    async def play(self, contest: str) -> None:
        """End a contest, wait for its grants, and claim some of them."""
        await self.end(contest)
        path = f"/v1/leaderboards/{contest}/grants?limit={_CLAIMED}"
        while not (page := (await self.settle("GET", path))[0])["made"]:
            if page["grants"]:
                self.making.set()
            await asyncio.sleep(_PAUSE_S)
        self.making.clear()
        self.granted.add(contest)
        for grant in page["grants"]:
            path = f"/v1/grants/{grant['id']}/claim"
            self.claims[grant["id"]] = await asyncio.gather(*(self.settle("POST", path) for _ in range(_CLAIMERS)))

    async def end(self, contest: str) -> None:
        """Set the end of a contest to a moment soon. If no process answers before that moment, choose a later one."""
        path, ends_at = f"/v1/leaderboards/{contest}", _FAR
        while ends_at == _FAR:
            soon = datetime.now(UTC) + timedelta(seconds=self.rng.uniform(*_ENDS_S))
            try:
                await self.settle("PUT", path, spec_of(soon))
            except BadAnswerError:
                self.seen["ends refused"] += 1  # because they have passed; perhaps an attempt has set one before
            ends_at = datetime.fromisoformat((await self.settle("GET", path))[0]["closes_at"])

    async def kill(self, server: Server) -> None:
        """Kill a process, after waiting a moment for a contest whose grants are being made."""
        await asyncio.sleep(self.rng.uniform(*_LIVES_S))
        with suppress(TimeoutError):
            await asyncio.wait_for(self.making.wait(), _WAITS_S)
        self.seen["kills while grants were being made"] += self.making.is_set()
        victim = self.rng.choice(server.list_processes())
        if victim != server.pid:
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
            return
        self.seen["kills of all processes"] += 1
        await asyncio.to_thread(server.stop, signal.SIGKILL)
        server.spawn()
        await asyncio.to_thread(server.wait_ready, poll_s=0.005)

    async def check_grants(self, contest: str) -> None:
        grants = await self.read_pages(f"/v1/leaderboards/{contest}/grants", "grants")
        made = Counter((each["owner"], each["reward"], each["rank"]) for each in grants)
        expected = expected_grants(self.values[contest], self.hidden)
        self.seen["grants"] += made.total()
        self.faults["grants missing"] += len(expected - made.keys())
        self.faults["grants to nobody"] += len(made.keys() - expected)
        self.faults["grants made twice"] += made.total() - len(made)
        for grant in grants:
            told = self.claims.get(grant["id"], [])
            firsts = sum(answer["first"] for answer, _ in told)
            sure = bool(told) and not any(repeated for _, repeated in told)
            times = {answer["claimed_at"] for answer, _ in told} or {None}
            self.seen["claims"] += bool(told)
            self.faults["claims"] += not (sure <= firsts <= 1 and times == {grant["claimed_at"]})

    async def read_pages(self, path: str, name: str) -> list[Any]:
        found, query = [], f"?limit={_PAGE}"
        while query:
            page, _ = await self.settle("GET", path + query)
            found += page[name]
            query = f"?limit={_PAGE}&cursor={page['next']}" if page["next"] else ""
        return found

    async def read_events(self, least: int) -> list[dict[str, Any]]:
        """Return all events, once there are at least that many."""
        connection, events = Connection(self.port), list[dict[str, Any]]()
        async with asyncio.timeout(_SETTLED_S):
            while True:
                path = f"/v1/events?after={events[-1]['seq'] if events else 0}&limit={_PAGE}"
                status, lines = await connection.call("GET", path)
                assert status == 200
                events += map(json.loads, lines.splitlines())
                if not lines and len(events) >= least:
                    return events
                await asyncio.sleep(_PAUSE_S)

    def check_events(self, events: list[dict[str, Any]], receiver: Receiver) -> None:
        self.seen |= {"events": len(events), "deliveries repeated": receiver.repeated}
        numbers = [each["seq"] for each in events]
        self.faults["events missing or out of order"] += numbers != list(range(1, len(events) + 1))
        claimed = [each["grant"] for each in events if each["type"] == "grant.claimed"]
        self.faults["events missing or out of order"] += sorted(claimed) != sorted(self.claims)
        of_boards = sorted((each for each in events if each["type"] != "grant.claimed"), key=lambda each: each["board"])
        types = {board: [each["type"] for each in its] for board, its in groupby(of_boards, lambda each: each["board"])}
        self.faults["events missing or out of order"] += types != dict.fromkeys(self.values, _EVENTS)
        self.faults["events missing or out of order at the receiver"] += list(receiver.seen) != numbers


def spec_of(ends_at: datetime) -> dict[str, object]:
    season = {"closes_at": ends_at.isoformat(), "grace_seconds": 0, "rewards": _REWARDS}
    return {**board_spec([COLUMN]), **season}


def _return_first(values: list[int], *_: int) -> list[int]:
    return values


def expected_grants(values: Mapping[str, int], hidden: set[str]) -> set[Grant]:
    """Return who should receive which reward, and at which rank, among owners with these values."""
    ranked = sorted((-value, owner) for owner, value in values.items() if owner not in hidden)
    last, found, rank = -(-len(ranked) * _PERCENT // 100), set[Grant](), 0
    for index, (value, owner) in enumerate(ranked):
        if index == 0 or value != ranked[index - 1][0]:
            rank = index + 1
        if rank <= max(last, _GOLD):
            found.add((owner, "gold" if rank <= _GOLD else "good", rank))
    return found


async def run_trial(server: Server, *, kills: int, contests: int, rows: int) -> Trial:
    """Fill contests and end them while processes are killed. Return what was observed."""
    trial, port = Trial(server.port), free_port()
    async with run_receiver(port) as receiver:
        receiver.is_broken = True
        await trial.settle("PUT", HOOK, {"url": f"http://{HOST}:{port}/"})
        for number in range(contests):
            contest, drawn = f"cup-{number}", draw_values(rows, number)
            draw = partial(_return_first, drawn)
            await fill_board(server.port, contest, rows=rows, draw=draw, fields=spec_of(_FAR), refresh=False)
            trial.values[contest] = {owner_at(index): value for index, value in enumerate(drawn)}
        trial.hidden = {owner_at(index) for index in range(min(_HIDDEN, rows // 5))}
        for owner in trial.hidden:
            await trial.settle("PUT", f"/v1/owners/{owner}/hidden")
        ended = 0
        async with asyncio.TaskGroup() as group:
            for number in range(_POSTERS):
                group.create_task(trial.post(f"client-{number}"))
            for number in range(kills):
                for contest in list(trial.values)[ended : (number + 1) * contests // kills]:
                    group.create_task(trial.play(contest))
                    ended += 1
                await trial.kill(server)
                await trial.settle("POST", f"{HOOK}/resume")  # so that the receiver need not wait after each failure
        receiver.is_broken = False
        await asyncio.to_thread(server.wait_ready)
        for contest in trial.values:
            await trial.check_grants(contest)
        events = await trial.read_events(len(_EVENTS) * contests + len(trial.claims))
        await trial.settle("POST", f"{HOOK}/resume")
        await receiver.wait_for(len(events))
        trial.check_events(events, receiver)
    return trial


def bars_of(name: str, trial: Trial) -> list[report.Bar]:
    print(f"   {name}: {dict(trial.seen)}")
    return [report.Bar(f"{name}: {fault}", faults, 0, at_most=True) for fault, faults in trial.faults.items()]


def measure(options: Options, folder: Path) -> list[report.Bar]:
    bars: list[report.Bar] = []
    with ExitStack() as stack:
        if options.store is None:
            url = stack.enter_context(postgres(DURABLE)).url()
            stores = {"SQLite": f"{SQLITE_PREFIX}{folder / 'seasons.db'}", "PostgreSQL": url}
        else:
            stores = {"the store": options.store}
        for name, url in stores.items():
            with serve_store(url, folder, environment=ENVIRONMENT) as server:
                trial = run_trial(server, kills=options.kills, contests=options.contests, rows=options.rows)
                bars += bars_of(name, asyncio.run(trial))
    return bars


if __name__ == "__main__":
    report.run_program(measure, __doc__, "kill -9: {kills} times, {contests} contests of {rows:,} owners", rows=10_000)

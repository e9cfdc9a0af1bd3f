"""Change boards and families through one process at random, and compare the answers of another one with a fresh one's.

The other process has copies of what it used before. The fresh process forgets its copies before each request. Whatever
the requests ask for, both must answer the same. Values are merged by `max`, `min` and `last`, so a post may be sent to
both: the first one applies it, and nothing changes at the second.

A process may use a new curve up to half a second late. So after each new curve all processes look for curves.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from aiohttp import ClientSession

from jobs.curves.refresh import RefreshJob
from service.context import Context
from service.contract.post_bodies import NDJSON_TYPE
from storage.boards.boards import find_board
from storage.errors import (
    ArchivedError,
    FamilyBoardError,
    PeriodClosedError,
    SpecConflictError,
    SpecInvalidError,
    UnknownBoardError,
)
from storage.store import CONTROL
from tests.jobs.moving import make_move
from tests.service.closing import close_as_of, make_job_context
from tests.service.event_stream import EventStream
from tests.service.real_service import RARELY, Answer, Caller, Service, without

BOARDS = "/v1/leaderboards"
FAMILY = "/v1/families/f"
NAMES = ("a", "b")
OWNERS = ("ada", "bob", "cyd")
COLUMNS = ("xp", "lap", "wins")
SETTINGS: dict[str, Any] = {"jobs": "none", "ingest_age_s_max": 86_400}  # nobody applies the queued posts
TAKEN = ("applied", "unchanged")
REFUSALS = (
    ArchivedError, FamilyBoardError, PeriodClosedError, SpecConflictError, SpecInvalidError, UnknownBoardError,
)  # fmt: skip
# Times of an answer and ids of a request differ between two processes that answer the same.
_DIFFERING = ("as_of", "age_seconds", "updated_at", "active_at", "request_id", "instance")


class Processes(NamedTuple):
    one: Caller
    other: Caller
    fresh: Caller
    fresh_context: Context
    closing: Service  # a service on the same store, which closes, moves, splits and refreshes boards
    contexts: Sequence[Context]  # of all processes


@asynccontextmanager
async def fronts_and_owner(folder: Path) -> AsyncIterator[Processes]:
    """Start an owner process and two fronts on one SQLite file. The owner is the fresh process."""
    async with (
        Service(folder, fronts=2, **SETTINGS).running() as service,
        Caller(next(service._bases)) as one,
        Caller(next(service._bases)) as other,
        Caller(await service._serve(service.context)) as fresh,
    ):
        yield Processes(one, other, fresh, service.context, service, [*service.contexts, service.context])


@asynccontextmanager
async def services(folder: Path, url: str) -> AsyncIterator[Processes]:
    """Start three services on one PostgreSQL store."""
    made = [Service(folder, store=url, **SETTINGS) for _ in range(3)]
    async with made[0].running() as one, made[1].running() as other, made[2].running() as fresh:
        yield Processes(one, other, fresh, fresh.context, one, [each.context for each in made])


def forget_copies(context: Context) -> None:
    catalog = context.catalog
    for copies in catalog._by_id, catalog._archived, catalog.families._by_id:
        copies.clear()


def forget_curves(context: Context) -> None:
    book = context.curves.book
    for known in book._served, book._sums, book._polled:  # with fewer `_states`, brackets of sums are wider
        known.clear()


class Walk:
    """A random walk. `differences` describes each request that two processes answered differently."""

    def __init__(self, processes: Processes, rng: random.Random, *, segments: int = 1, partitions: int = 1) -> None:
        self._at, self._rng, self._segments, self._partitions = processes, rng, segments, partitions
        self.differences: list[str] = []
        self.steps = self.unchanged = self.answered = 0
        self._tags: dict[str, dict[str, Any]] = {}  # bodies by entity tag, by path
        self._cursors: dict[str, str] = {}  # the last cursor of a page, by path
        self._specs: dict[str, dict[str, Any]] = {}  # the body that a board or a family was last put with, by path
        self._read: list[str] = []  # paths whose answers had an entity tag
        self._named: list[str] = []  # paths of posts with ids, the newest last
        self._past: list[str] = []

    async def take_steps(self, steps: int) -> None:
        for _ in range(steps):
            if self._rng.random() < 0.25:
                await self._change()
            else:
                await self._ask()
            self.steps += 1

    # Changes, through the first process.

    async def _change(self) -> None:
        changes: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (5, self._create_again), (4, self._put_changed), (24, self._post), (2, self._reset), (1, self._delete),
            (3, self._hide), (1, self._close), (2, self._erase), (6, self._refresh), (2, self._move), (2, self._void),
        ]  # fmt: skip
        [change] = self._rng.choices([each for _, each in changes], [weight for weight, _ in changes])
        await change()

    async def _through_one(self, method: str, path: str, body: object = None) -> Answer:
        answer = await self._at.one.call(method, path, body, _headers(body))
        self._past.append(f"{method} {path} {body or ''} -> {answer.status}")
        if _has_failed(answer):
            self._differ(f"one: {method} {path} {body}", answer.body, "no error of the service")
        return answer

    def _draw_columns(self) -> list[dict[str, Any]]:
        drawn: list[dict[str, Any]] = []
        for name in self._rng.sample(COLUMNS, self._rng.choice((1, 2, 3, 3))):
            kind = self._rng.random()
            if kind < 0.15:
                drawn.append({"name": name, "type": "text", "merge": "last", "sorted": False})
                continue
            merge = self._rng.choice(("max", "min", "last"))
            column = {"name": name, "merge": merge, "scale": self._rng.choice((0, 0, 1)), "sorted": kind < 0.9}
            if self._rng.random() < 0.5:
                column |= {"min": self._rng.choice((0, -9)), "max": self._rng.choice((5, 50, 500))}
            drawn.append(column)
        return self._draw_tiers(drawn)

    def _draw_tiers(self, columns: list[dict[str, Any]]) -> list[dict[str, Any]]:
        drawn = []
        for each in columns:
            column = {name: value for name, value in each.items() if name != "tiers"}
            if column.get("sorted") and self._rng.random() < 0.5:
                limit = self._rng.choice(({"to_rank": self._rng.randint(1, 3)}, {"to_percent": 50}))
                column["tiers"] = [{"name": self._rng.choice(("gold", "iron")), **limit}]
            drawn.append(column)
        return drawn

    def _draw_path(self) -> str:
        return self._rng.choice([*(f"{BOARDS}/{name}" for name in NAMES), FAMILY])

    async def _put(self, path: str, body: dict[str, Any]) -> None:
        if (await self._through_one("PUT", path, body)).status < 300:
            self._specs[path] = body

    async def _create_again(self) -> None:
        path = self._draw_path()
        await self._through_one("DELETE", path)
        table = self._rng.choice(("own", "shared"))
        body: dict[str, Any] = {"columns": self._draw_columns(), "table": table, "predictor": RARELY}
        body["ties"] = self._rng.choice(("shared", "earliest"))
        if path == FAMILY:
            periods = self._rng.choice((["all"], ["day"], ["all", "day"], ["week", "day"]))
            lists: list[list[list[str]]] = [[[]], [["org"]], [[], ["org"]]]
            body |= {
                "periods": periods,
                "facets": self._rng.choice(lists),
                "grace_seconds": self._rng.choice((0, 3_600, 200_000)),
            }
            body["time_zone"] = self._rng.choice(("UTC", "Asia/Tokyo"))
        elif self._segments > 1 and self._rng.random() < 0.5:
            body |= {"table": "own", "segments": self._segments}
        elif self._partitions > 1:
            body["partition"] = self._rng.randrange(self._partitions)
        if path != FAMILY and self._rng.random() < 0.15:
            end = datetime.now(UTC) + timedelta(hours=self._rng.randint(1, 3))
            body |= {"closes_at": end.isoformat(), "grace_seconds": 0, "keep_seconds": 0}
        await self._put(path, body)

    async def _put_changed(self) -> None:
        path = self._draw_path()
        if (body := self._specs.get(path)) is None:
            return
        body = {**body, "columns": self._draw_tiers(body["columns"])}
        names = {column["name"] for column in body["columns"]}
        match self._rng.randrange(4):
            case 0:
                more = [column for column in self._draw_columns() if column["name"] not in names]
                body["columns"] = [*body["columns"], *more]
            case 1:
                body["predictor"] = {**RARELY, "exact_top": self._rng.choice((1, 10, 1_000))}
            case 2 if path != FAMILY:
                end = datetime.now(UTC) + timedelta(hours=self._rng.randint(1, 3))
                body |= {"closes_at": end.isoformat(), "grace_seconds": 0, "keep_seconds": 0}
            case _:
                pass
        await self._put(path, body)

    async def _post(self) -> None:
        method, path, body = self._draw_post()
        await self._through_one(method, path, body)

    async def _reset(self) -> None:
        if self._rng.random() < 0.7:
            await self._through_one("POST", f"{BOARDS}/{self._rng.choice(NAMES)}/reset")
        else:
            await self._through_one("POST", f"{FAMILY}/reset", {"period": self._rng.choice(("all", "day"))})

    async def _delete(self) -> None:
        await self._through_one("DELETE", self._draw_path())

    async def _hide(self) -> None:
        await self._through_one(
            self._rng.choice(("PUT", "DELETE", "DELETE", "DELETE")), f"/v1/owners/{self._owner()}/hidden"
        )

    async def _erase(self) -> None:
        await self._through_one("DELETE", f"{self._draw_board()}/entries/{self._owner()}")

    async def _void(self) -> None:
        await self._through_one(*self._draw_void())

    async def _refresh(self) -> None:
        """Refresh the curves of a board, as a job process does it."""
        context, board_id = self._at.closing.context, self._board()
        job = RefreshJob(make_job_context(context), context.curves.refreshes)
        with suppress(*REFUSALS):
            board = await context.store.at(CONTROL).read(lambda: find_board(board_id))
            if board.gate.archived_us is None:
                for leaf, index in product(board.leaves, board.sorted_indexes):
                    await job._refresh(leaf, index, due=None)
        await self._load_curves(f"refresh {board_id}")

    async def _move(self) -> None:
        """Move a board to another partition, or split it."""
        name, number = self._rng.choice(NAMES), self._rng.randrange(4)
        splits = self._segments > 1 and self._rng.random() < 0.5
        named: dict[str, Any] = {"segments": 2 + number} if splits else {"target": number % self._partitions}
        with suppress(*REFUSALS):
            await make_move(self._at.closing.context.store, board_id=name, **named).run()
            for member in ("segments", "partition"):
                self._specs.get(f"{BOARDS}/{name}", {}).pop(member, None)
        await self._load_curves(f"move {name} {named}")

    async def _load_curves(self, change: str) -> None:
        forget_curves(self._at.fresh_context)
        for context in self._at.contexts:
            await context.curves.book.poll()
        self._past.append(change)

    async def _close(self) -> None:
        """Close and archive what is due in two hours."""
        context = self._at.closing.context
        clock = context.now_us
        await close_as_of(self._at.closing, datetime.now(UTC) + timedelta(hours=2))
        object.__setattr__(context, "now_us", clock)
        await self._load_curves("close")

    # Requests, through the other process and the fresh one.

    async def _ask(self) -> None:
        match self._rng.randrange(20):
            case 0 | 1 | 2 | 3:
                await self._compare(*self._draw_post())
            case 5:
                await self._compare_erasure()
            case 6:
                await self._compare_streams()
            case 7 | 8:
                await self._compare(*self._draw_look_up())
            case 4:
                await self._compare(*self._draw_refused() if self._rng.random() < 0.7 else self._draw_void())
            case 9 | 10 | 11 | 12 if self._read:
                await self._compare("GET", self._rng.choice(self._read[-5:]))
            case _:
                await self._compare("GET", self._draw_read())

    def _owner(self) -> str:
        return self._rng.choice(OWNERS)

    def _column(self) -> str:
        return self._rng.choice((*COLUMNS * 6, "only", "no"))

    def _board(self) -> str:
        today = datetime.now(UTC).date().isoformat()
        family = ("f:all", f"f:{today}", "f:today", "f:all:org=7", "f:today:org=7", "f:this-week", "f:yesterday")
        return self._rng.choice((*NAMES * 12, *family, "unknown"))

    def _draw_board(self) -> str:
        return f"{BOARDS}/{self._board()}"

    def _value(self) -> Any:
        return self._rng.choice((0, 1, 1, 2, 2, 3, 3, 4, 4, 7, -5, 40, 400, "3.5", "seven"))

    def _draw_post(self) -> tuple[str, str, Any]:
        def post(owner: str, **more: Any) -> dict[str, Any]:
            stats = {
                name: self._value() for name in self._rng.sample((*COLUMNS * 3, "no"), self._rng.choice((1, 1, 2)))
            }
            if self._rng.random() < 0.3:
                more["post_id"] = f"p{self._rng.randrange(30)}"
            if self._rng.random() < 0.1:
                at = datetime.now(UTC) - timedelta(hours=self._rng.choice((1, 30)))
                more["at"] = at.isoformat(timespec="seconds")
            return {"owner": owner, "stats": stats, **more}

        queued = "?mode=queued" if self._rng.random() < 0.15 else ""
        size = self._rng.choice((0, 0, 1, 3))
        owners = self._rng.sample(OWNERS, size or 1)  # a second post of an owner would change the result of the first
        match self._rng.randrange(4):
            case 0 | 1:
                path, posts = f"{self._draw_board()}/posts", [post(owner) for owner in owners]
            case 2:
                named = [sorted({self._board() for _ in range(2)}) for _ in owners]
                path = "/v1/posts"
                posts = [post(owner, boards=each) for owner, each in zip(owners, named, strict=True)]
            case _:
                more: list[dict[str, Any]] = [{}, {"facets": {"org": "7"}}, {"facets": {"no": "7"}}]
                path, posts = f"{FAMILY}/posts", [post(owner, **self._rng.choice(more)) for owner in owners]
        if path != "/v1/posts":
            self._named += [f"{path}/{each['post_id']}?owner={each['owner']}" for each in posts if "post_id" in each]
        if self._rng.random() < 0.2:
            return "POST", path + queued, "".join(f"{json.dumps(each)}\n" for each in posts).encode()
        return "POST", path + queued, {"posts": posts} if size else posts[0]

    def _draw_void(self) -> tuple[str, str, Any]:
        return "DELETE", self._rng.choice((*self._named[-6:], f"{self._draw_board()}/posts/p1?owner=ada")), None

    def _draw_refused(self) -> tuple[str, str, Any]:
        """Draw a request that one of the columns, facets, tiers and types that it names makes impossible."""
        board, column = self._draw_board(), self._rng.choice(COLUMNS)
        path = self._rng.choice((f"{board}/posts", f"{FAMILY}/posts"))
        stats: Any = self._rng.choice(
            ({"no": 1}, {column: 10**15}, {column: "0.123"}, {column: True}, {column: {}}, [1])
        )
        post: dict[str, Any] = {"owner": self._rng.choice((*OWNERS, *OWNERS, 7, "")), "stats": stats}
        body = {"columns": [{"name": column, "tiers": [{"name": "gold", "to_rank": 0}]}]}
        requests: list[tuple[str, str, Any]] = [
            ("POST", path, post), ("POST", path, {"posts": [post, {"owner": "ada", "stats": {column: 2}}]}),
            ("POST", path, b'{"owner": "ada"}\n\n[]\n'), ("POST", f"{FAMILY}/posts", {**post, "facets": {"no": "7"}}),
            ("POST", f"{FAMILY}/posts", {**post, "facets": {"org": 7}}), ("PUT", board, body), ("PUT", FAMILY, body),
            ("GET", f"{board}/rankings/{column}?tier=gold", None), ("GET", f"{board}/rankings/no", None),
            ("GET", f"{board}/rankings/{column}?limit=many", None),
            ("GET", f"{board}/rankings/{column}?from_rank=0", None),
            ("GET", f"{board}/rankings/{column}/positions?values=999999999999999999", None),
            ("GET", f"{board}/rankings/{column}/positions?values=seven", None),
            ("GET", f"{board}/rankings/{column}/around?value=0.123", None),
            ("GET", f"{board}/entries/ada/positions?rank=best", None), ("GET", f"{board}/stream?column=no", None),
            ("GET", f"{FAMILY}/boards?period=day&no=7", None), ("GET", f"{FAMILY}/boards?period=year", None),
            ("GET", f"{FAMILY}/facets?period=day&facet=no", None), ("GET", f"{FAMILY}/boards?period=night", None),
            ("POST", f"{board}/entries/lookup", {"owners": ["ada"], "column": "no"}),
            ("POST", f"{board}/entries/lookup", {"owners": "ada"}), ("POST", f"{FAMILY}/reset", {"period": "year"}),
        ]  # fmt: skip
        return self._rng.choice(requests)

    def _draw_look_up(self) -> tuple[str, str, Any]:
        column = {} if self._rng.random() < 0.3 else {"column": self._column()}
        if self._rng.random() < 0.5:
            return "POST", f"{self._draw_board()}/entries/lookup", {"owners": [*OWNERS, "nobody"], **column}
        boards = sorted({self._board() for _ in range(3)})
        return "POST", f"/v1/owners/{self._owner()}/positions", {"boards": boards, **column}

    def _draw_read(self) -> str:
        entry, ranking = f"{self._draw_board()}/entries/{self._owner()}", f"{self._draw_board()}/rankings"
        column, value = self._column(), self._value()
        values = {"values": value, **({"with": self._board()} if self._rng.random() < 0.3 else {})}
        day, estimate = {"period": self._rng.choice(("day", "week", "all"))}, {"rank": "estimate"}
        reads: list[tuple[str, dict[str, Any]]] = [
            (f"{entry}/positions", {}), (f"{entry}/positions", {"columns": column}),
            (f"{entry}/positions", {"next": "true"}), (f"{entry}/positions", {"compare": "previous"}),
            (f"{entry}/positions", {"rank": "exact", "columns": column}), (entry, {}), (entry, {}),
            (f"{entry}/around", {"column": column}), (f"{entry}/around", {}), (f"{ranking}/{column}", {}),
            (f"{ranking}/{column}", {"limit": 2}), (f"{ranking}/{column}", {"from_rank": 2}), (ranking, {}),
            (f"{ranking}/{column}", {"order": "owner", "limit": 2}), (f"{ranking}/{column}/positions", values),
            (f"{ranking}/{column}/around", {"value": value}), (f"{ranking}/{column}/buckets", {"buckets": 3}),
            (f"{ranking}/{column}/values", {"ranks": "1,2", "percentiles": 50}), (f"{ranking}/{column}/curve", {}),
            (f"{ranking}/{column}/curve", {}), (f"{ranking}/{column}/curve", {}), (f"{entry}/positions", estimate),
            (f"{entry}/positions", {**estimate, "next": "true", "columns": column}),
            (f"{ranking}/{column}/positions", {**values, **estimate}),
            (f"{ranking}/{column}/buckets", {**estimate, "buckets": 3}),
            (self._draw_board(), {}), (BOARDS, {}), (FAMILY, {}), ("/v1/families", {}),
            (f"{self._draw_board()}/posts/p1", {"owner": self._owner()}), (f"/v1/owners/{self._owner()}/boards", {}),
            (f"{FAMILY}/boards", day), (f"{FAMILY}/boards", {**day, "org": 7}),
            (f"{FAMILY}/facets", {**day, "facet": "org"}), (f"{FAMILY}/owners/{self._owner()}/history", day),
            (f"{FAMILY}/owners/{self._owner()}/history", {**day, "column": column}),
        ]  # fmt: skip
        path, query = self._rng.choice(reads)
        found = f"{path}?{urlencode(query)}" if query else path
        if query.get("limit") and found in self._cursors and self._rng.random() < 0.7:
            return f"{found}&cursor={self._cursors[found]}"
        return found

    async def _compare(self, method: str, path: str, body: Any = None) -> None:
        tags = self._tags.setdefault(path, {})
        headers = _headers(body)
        if tags and method == "GET":
            headers["If-None-Match"] = ", ".join(tags)
        got = await self._at.other.call(method, path, body, headers)
        forget_copies(self._at.fresh_context)
        expected = await self._at.fresh.call(method, path, body, _headers(body))
        self.answered += got.status < 300
        if got.status == 304:
            self.unchanged += 1
            if tags.get(got.headers["ETag"], "another tag") != _comparable(expected):
                self._differ(f"304 of {path}", tags.get(got.headers["ETag"]), expected.body)
        elif _comparable(got) != _comparable(expected) or got.headers.get("ETag") != expected.headers.get("ETag"):
            tags_of = [each.headers.get("ETag") for each in (got, expected)]
            self._differ(f"{method} {path} {body or ''} {tags_of}", got.body, expected.body)
        elif _has_failed(got):
            self._differ(f"{method} {path} {body or ''}", got.body, "no error of the service")
        if expected.status == 200 and "ETag" in expected.headers:
            self._tags[path] = {expected.headers["ETag"]: _comparable(expected)}
            self._read.append(path)
        if (
            method == "GET"
            and expected.status == 200
            and isinstance(expected.body, Mapping)
            and expected.body.get("next")
        ):
            self._cursors[path.partition("&cursor")[0]] = expected.body["next"]
        self._past.append(f"other: {method} {path} {body or ''} -> {got.status}")

    async def _compare_erasure(self) -> None:
        path = f"{self._draw_board()}/entries/{self._owner()}"
        forget_copies(self._at.fresh_context)
        before = await self._at.fresh.call("GET", path)
        got = await self._at.other.call("DELETE", path)
        if got.status >= 500 or (before.status == 200) > (got.status == 204):  # posts may wait in the queue
            self._differ(f"DELETE {path}", [got.status, got.body], before.body)
        self._past.append(f"other: DELETE {path} -> {got.status}")

    async def _compare_streams(self) -> None:
        """Compare the first event of a stream about the top of a ranking, or the refusal of the stream."""
        path = f"{self._draw_board()}/stream?column={self._column()}&top=2"
        got = await _read_first_event(self._at.other, path)
        forget_copies(self._at.fresh_context)
        expected = await _read_first_event(self._at.fresh, path)
        if got != expected:
            self._differ(f"GET {path}", got, expected)

    def _differ(self, request: str, got: object, expected: object) -> None:
        past = "\n    ".join(self._past[-40:])
        self.differences.append(f"step {self.steps}: {request}\n  got      {got}\n  expected {expected}\n    {past}")


async def _read_first_event(caller: Caller, path: str) -> Any:
    """Return the data of a stream's first event, or the code of the refusal."""
    async with ClientSession() as session, session.get(caller.base + path) as response:
        if response.status != 200:
            return response.status, json.loads(await response.text())["code"]
        return without((await EventStream(response).expect_event("top")).data, *_DIFFERING)


def _headers(body: object) -> dict[str, str]:
    return {"Content-Type": NDJSON_TYPE} if isinstance(body, bytes) else {}


def _has_failed(answer: Answer) -> bool:
    """Return whether the service failed. To take back a post that waits in the queue is refused by 503."""
    return answer.status >= 500 and "waits in the queue" not in str(answer.body)


def _comparable(answer: Answer) -> Any:
    """Return status and body without what may differ. A post is `taken`, whichever process took it first."""
    body = answer.body
    if isinstance(body, Mapping) and "results" in body:
        body = [_comparable_result(each) for each in body["results"]]
    elif isinstance(body, Mapping) and answer.status == 202:
        body = {}
    return answer.status, without(body, *_DIFFERING)


def _comparable_result(result: dict[str, Any]) -> dict[str, Any]:
    found = {**result, "status": "taken" if result.get("status") in (*TAKEN, "duplicate") else result.get("status")}
    if "boards" in found:
        parts = [_comparable_result(each) for each in found["boards"]]
        # The answer to a retry lists no boards whose period was closed.
        found["boards"] = [each for each in parts if found["status"] != "taken" or each["status"] == "taken"]
    return found

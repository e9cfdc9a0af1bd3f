"""Send the same posts to a family of a service and to its model in plain Python, around every midnight.

The clock is moved to the time of the posts. Each answer is compared with the model as soon as it arrives.
"""

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import date, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from tests.service.plain_board import PlainBoard, PlainColumn
from tests.service.plain_family import PlainFamily, instant, midnight_us
from tests.service.real_service import RARELY, Service, escaped
from tests.storage.deployment import Clock

F = "/v1/families/game"
KINDS = ["all", "year", "month", "week", "day"]
FACETS: list[list[str]] = [[], ["org"], ["location", "org"]]
COLUMNS = [
    PlainColumn("xp", "sum", "high", 0, -(10**9), 10**9),
    PlainColumn("mood", "last", "low", 1, 0, 20),
    PlainColumn("posts", "sum", least=0, most=10**9, sorted=False),  # the number of posts: each one adds 1
]
GRACE_S = 7_200  # longer than any jump of a zone's clocks
OWNERS = [f"o{number}" for number in range(9)]
RETRIES = 12  # how many of the newest posts may be sent again
ATTEMPTS = 5
HOUR_US = 3_600 * 1_000_000
PAGE = 1000


class Days:
    """One family on one service, and its model. Create this object before the service starts: it sets the clock."""

    def __init__(self, service: Service, zone: str, first: date, *, seed: int, posts: int = 3) -> None:
        self.service, self.posts = service, posts
        self.zone = ZoneInfo(zone)
        self.plain = PlainFamily(self.zone, KINDS, FACETS, GRACE_S * 1_000_000, COLUMNS, "earliest")
        self.day = first
        self.clock = Clock(midnight_us(self.zone, first) + 12 * HOUR_US)
        service.clock = self.clock
        self._rng = random.Random(seed)
        self._sent: list[tuple[dict[str, Any], dict[str, str]]] = []
        self._numbers = iter(range(10**9))
        self.accepted = 0

    async def create(self, **spec: Any) -> None:
        """Create the family."""
        body = {
            "columns": [column.body() for column in COLUMNS], "ties": "earliest", "periods": KINDS,
            "time_zone": str(self.zone), "facets": FACETS, "grace_seconds": GRACE_S, "predictor": RARELY,
        }  # fmt: skip
        await self.service.must("PUT", F, body | spec)

    async def play(self, days: int, *, after_day: Callable[[], Awaitable[None]] | None = None) -> None:
        """Play that many days, each from one noon to the next.

        Await `after_day` once a day, as soon as the boards of the day that ended at midnight take no more posts.
        """
        for _ in range(days):
            end_us = midnight_us(self.zone, self.day + timedelta(days=1))
            grace_us = GRACE_S * 1_000_000
            last_us = end_us - 1
            await self._at(end_us - 9 * HOUR_US, None)
            await self._at(last_us, None, last_us - 1, end_us, end_us + 10 * 1_000_000)
            await self._at(end_us, None, last_us)
            await self._at(end_us + grace_us // 2, last_us, end_us, None)
            await self._at(end_us + grace_us - 1, last_us, None)
            await self._at(end_us + grace_us, last_us, end_us, last_us - 30 * 24 * HOUR_US, None)
            self.day += timedelta(days=1)
            if after_day is not None:
                await after_day()

    async def _at(self, now_us: int, *ats_us: int | None) -> None:
        """Set the clock, and send `self.posts` posts for each of these times. For None, send posts without a time.

        Send one earlier post again in the same request. Check every result.
        """
        self.clock.now_us = now_us
        wire, expected = [], []
        for at_us in ats_us:
            for _ in range(self.posts):
                body, statuses = self._post(now_us, at_us)
                wire.append(body)
                expected.append(statuses)
        if self._sent:
            body, statuses = self._rng.choice(self._sent)
            wire.append(body)
            expected.append(self._again(statuses))
        results, again = await self._send(wire)
        for body, result, statuses in zip(wire, results, expected, strict=True):
            found = {each["board"]: each["status"] for each in result["boards"]}
            known = again and set(found.values()) == {"duplicate"}
            assert found == (self._again(statuses) if known else statuses), f"{body} at {instant(now_us)}"
        self._sent = (self._sent + list(zip(wire, expected, strict=True))[: len(wire) - 1])[-RETRIES:]

    async def _send(self, wire: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], bool]:
        """Send posts, and send them again if the answer is 503.

        Return the results, and whether the posts were sent again.
        """
        for attempt in range(ATTEMPTS):
            answer = await self.service.call("POST", f"{F}/posts", {"posts": wire})
            if answer.status != 503:
                assert answer.status == 200, f"{answer.status} {answer.body}"
                return answer.body["results"], attempt > 0
        raise AssertionError(f"unavailable {ATTEMPTS} times")

    def _post(self, now_us: int, at_us: int | None) -> tuple[dict[str, Any], dict[str, str]]:
        rng = self._rng
        owner, facets = rng.choice(OWNERS), {"org": rng.choice("ab")}
        if rng.random() < 0.5:
            facets["location"] = "x"
        stats = {"xp": rng.randint(-9, 30), "mood": rng.randint(0, 3), "posts": 1}
        statuses = self.plain.post(owner, stats, facets, at_us=now_us if at_us is None else at_us, now_us=now_us)
        texts = {name: self.plain_column(name).text(value) for name, value in stats.items()}
        body = {"owner": owner, "stats": texts, "facets": facets, "post_id": f"p{next(self._numbers)}"}
        self.accepted += 1
        return body | ({} if at_us is None else {"at": instant(at_us).isoformat()}), statuses

    @staticmethod
    def _again(statuses: dict[str, str]) -> dict[str, str]:
        """Return the statuses of a repeated post: `duplicate` on each board where the first one counted.

        If the first one counted on no board, the repeated one is rejected like the first.
        """
        counted = {board: "duplicate" for board, status in statuses.items() if status != "rejected"}
        return counted or statuses

    @staticmethod
    def plain_column(name: str) -> PlainColumn:
        """Return the column of that name."""
        return next(column for column in COLUMNS if column.name == name)

    async def differences(self) -> list[str]:
        """Return the boards that currently differ from the model."""
        found = [board for board, plain in self.plain.boards.items() if await self._differs(board, plain)]
        known = {each["id"] for each in await self.boards() if each["entries"]}
        return found + sorted(known ^ self.plain.boards.keys())

    async def boards(self) -> list[dict[str, Any]]:
        """Return all boards that the service lists."""
        path = f"/v1/leaderboards?limit={PAGE}&prefix=game:"
        return [board async for page in self.service.pages(path) for board in page["leaderboards"]]

    async def _differs(self, board: str, plain: PlainBoard) -> bool:
        for column in COLUMNS:
            if not column.sorted:
                continue
            page = await self.service.get(f"/v1/leaderboards/{escaped(board)}/rankings/{column.name}?limit={PAGE}")
            rows = [(row["rank"], row["owner"], stats_of(row["stats"])) for row in page["entries"]]
            ranks = plain.ranks(column.name)
            expected = [
                (ranks[owner], owner, {each.name: plain.value(each.name, owner) for each in COLUMNS})
                for owner in plain.order(column.name)
            ]
            if rows != expected or page["total"] != len(expected):
                return True
        return False

    async def counted(self) -> Counter[str]:
        """Return the number of posts that counted in the service, by kind of period and names of facets."""
        found: Counter[str] = Counter()
        for board in self.plain.boards:
            page = await self.service.get(f"/v1/leaderboards/{escaped(board)}/rankings/xp?limit={PAGE}")
            _, period, *facets = board.split(":")
            kind = kind_of(period)
            names = ",".join(pair.split("=")[0] for pair in facets[0].split(",")) if facets else ""
            found[f"{kind}:{names}"] += sum(row["stats"]["posts"] for row in page["entries"])
        return found


def stats_of(stats: dict[str, Any]) -> dict[str, int]:
    """Return the stats of an answer as scaled integers."""
    return {name: Days.plain_column(name).scaled(value) for name, value in stats.items()}


def kind_of(period: str) -> str:
    """Return the kind of period that has a name such as `2026-W47`."""
    if period == "all" or "W" in period:
        return "all" if period == "all" else "week"
    return {4: "year", 7: "month", 10: "day"}[len(period)]

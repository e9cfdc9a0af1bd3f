"""Send the same posts to a family of a service and to its model in plain Python, around every midnight.

The test moves the clock to the time of the posts. It compares each answer with the model immediately.
"""

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from tests.service.plain_board import PlainBoard, PlainColumn
from tests.service.real_service import RARELY, Service, escaped
from tests.storage.deployment import Clock

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def instant(at_us: int) -> datetime:
    """Return the time in UTC."""
    return EPOCH + timedelta(microseconds=at_us)


def micros(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)


def midnight_us(zone: ZoneInfo, day: date) -> int:
    """Return the time at which a day begins. If the clocks skip midnight on that day, return the time of that jump."""
    return micros(datetime.combine(day, time(), zone).astimezone(UTC))


def period_of(kind: str, day: date) -> tuple[str, date | None]:
    """Return the name of the period that contains a day, and the first day after the period.

    For all-time, which has no end, the second is None.
    """
    if kind == "all":
        return "all", None
    if kind == "day":
        return day.isoformat(), day + DAY
    if kind == "week":
        year, week, weekday = day.isocalendar()
        return f"{year}-W{week:02d}", day + (8 - weekday) * DAY
    if kind == "month":
        return f"{day:%Y-%m}", (day.replace(day=28) + 4 * DAY).replace(day=1)
    return f"{day:%Y}", day.replace(year=day.year + 1, month=1, day=1)


@dataclass
class PlainFamily:
    """The rules of a family, and its boards by id. A board is included once a post has reached it."""

    zone: ZoneInfo
    kinds: list[str]
    facets: list[list[str]]
    grace_us: int
    columns: list[PlainColumn]
    ties: str
    boards: dict[str, PlainBoard] = field(default_factory=dict)
    closes_us: dict[str, int | None] = field(default_factory=dict)
    # Number of posts that counted, by kind of period and names of facets.
    counted: Counter[str] = field(default_factory=Counter)

    def post(
        self, owner: str, stats: dict[str, int], facets: Mapping[str, str], *, at_us: int, now_us: int
    ) -> dict[str, str]:
        """Apply one post; return its status by board."""
        statuses = {}
        for kind, names, board_id, closes_us in self._reached(facets, at_us):
            if closes_us is not None and now_us >= closes_us:
                statuses[board_id] = "rejected"
                continue
            board = self.boards.setdefault(board_id, PlainBoard(self.columns, self.ties))
            self.closes_us[board_id] = closes_us
            statuses[board_id] = board.post(owner, stats, at_us)
            self.counted[f"{kind}:{names}"] += 1
        return statuses

    def _reached(self, facets: Mapping[str, str], at_us: int) -> Iterator[tuple[str, str, str, int | None]]:
        day = instant(at_us).astimezone(self.zone).date()
        for kind in self.kinds:
            name, end = period_of(kind, day)
            closes_us = None if end is None else midnight_us(self.zone, end) + self.grace_us
            for names in self.facets:
                if all(each in facets for each in names):
                    split = ",".join(f"{each}={facets[each]}" for each in sorted(names))
                    yield kind, ",".join(names), f"game:{name}" + (f":{split}" if split else ""), closes_us

    def closed(self, now_us: int) -> list[str]:
        """Return the boards that no longer take posts."""
        return [board for board, closes_us in self.closes_us.items() if closes_us is not None and now_us >= closes_us]


F = "/v1/families/game"
KINDS = ["all", "year", "month", "week", "day"]
FACETS: list[list[str]] = [[], ["org"], ["location", "org"]]
COLUMNS = [
    PlainColumn("xp", "sum", "high", 0, -(10**9), 10**9),
    PlainColumn("mood", "last", "low", 1, 0, 20),
    PlainColumn("posts", "sum", least=0, most=10**9, sorted=False),  # the number of posts: each post adds 1
]
GRACE_S = 7_200  # longer than any change of clocks in a time zone
OWNERS = [f"o{number}" for number in range(9)]
RETRIES = 12  # number of the newest posts that may be sent again
ATTEMPTS = 5
HOUR_US = 3_600 * 1_000_000
PAGE = 1000


class Days:
    """One family on a service, and its model.

    Create this object before the service starts, because it sets the clock.
    """

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
        body = {
            "columns": [column.body() for column in COLUMNS], "ties": "earliest", "periods": KINDS,
            "time_zone": str(self.zone), "facets": FACETS, "grace_seconds": GRACE_S, "predictor": RARELY,
        }  # fmt: skip
        await self.service.must("PUT", F, body | spec)

    async def play(self, days: int, *, after_day: Callable[[], Awaitable[None]] | None = None) -> None:
        """Send the posts of several days, each day from noon to noon.

        Once a day, when the boards of the day that ended at midnight no longer accept posts, await `after_day`.
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
        """Set the clock. Send `self.posts` posts for each time in `ats_us`; for None, send posts without a time.

        The same request sends one earlier post again. Check every result.
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
        """Send posts. If the answer is 503, send them again.

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
        """Return the expected statuses of a repeated post: `duplicate` on each board that applied the first post.

        If no board applied the first post, expect the same rejection again.
        """
        counted = {board: "duplicate" for board, status in statuses.items() if status != "rejected"}
        return counted or statuses

    @staticmethod
    def plain_column(name: str) -> PlainColumn:
        return next(column for column in COLUMNS if column.name == name)

    async def differences(self) -> list[str]:
        """Return the boards of the service that currently differ from the model."""
        found = [board for board, plain in self.plain.boards.items() if await self._differs(board, plain)]
        known = {each["id"] for each in await self.boards() if each["entries"]}
        return found + sorted(known ^ self.plain.boards.keys())

    async def boards(self) -> list[dict[str, Any]]:
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
        """Return how many posts the service has applied, by kind of period and names of facets."""
        found: Counter[str] = Counter()
        for board in self.plain.boards:
            page = await self.service.get(f"/v1/leaderboards/{escaped(board)}/rankings/xp?limit={PAGE}")
            _, period, *facets = board.split(":")
            kind = kind_of(period)
            names = ",".join(pair.split("=")[0] for pair in facets[0].split(",")) if facets else ""
            found[f"{kind}:{names}"] += sum(row["stats"]["posts"] for row in page["entries"])
        return found


def stats_of(stats: dict[str, Any]) -> dict[str, int]:
    """Return the stats from an answer as scaled integers."""
    return {name: Days.plain_column(name).scaled(value) for name, value in stats.items()}


def kind_of(period: str) -> str:
    """Return the kind of a period, given its name, such as `2026-W47`."""
    if period == "all" or "W" in period:
        return "all" if period == "all" else "week"
    return {4: "year", 7: "month", 10: "day"}[len(period)]

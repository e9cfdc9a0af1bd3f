"""A family in plain Python, as API.md describes it; tests compare the boards of a real service with it.

The class shares no code with the service. It computes the periods itself, from the local time of the family's zone.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from tests.service.plain_board import PlainBoard, PlainColumn

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def instant(at_us: int) -> datetime:
    """Return the time in UTC."""
    return EPOCH + timedelta(microseconds=at_us)


def micros(at: datetime) -> int:
    """Return the microseconds since 1970."""
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

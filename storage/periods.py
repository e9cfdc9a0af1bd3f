"""Calendar periods in a named time zone: which period an instant lies in, and when each period starts and ends.

A period lasts from the start of its first day to the start of the day after its last day. A day starts at the first
instant at which the zone's clocks show its date. So every instant lies in exactly one period of each kind, even if
clocks are changed at midnight.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
_DAY = timedelta(days=1)
# The first and the last instant of every calendar. An instant outside these bounds is replaced by the nearer bound.
# This does no harm: the periods before the first instant closed long ago.
_FIRST_US = (datetime(1000, 1, 1, tzinfo=UTC) - _EPOCH) // _US
_LAST_US = (datetime(9998, 1, 1, tzinfo=UTC) - _EPOCH) // _US
_DAYS_KEPT = 4_096  # the largest number of entries in each cache of days or periods

_ID = re.compile(r"[1-9][0-9]{3}(-([0-9]{2}(-[0-9]{2})?|W[0-9]{2}))?", re.ASCII)


class PeriodKind(StrEnum):
    ALL = "all"
    YEAR = "year"
    MONTH = "month"
    WEEK = "week"  # as in ISO 8601: a week starts on Monday, and week 1 contains the year's first Thursday
    DAY = "day"


# For each alias: the kind of the period, and whether the alias means the period before the present one.
ALIASES = {
    "today": (PeriodKind.DAY, False),
    "yesterday": (PeriodKind.DAY, True),
    "this-week": (PeriodKind.WEEK, False),
    "last-week": (PeriodKind.WEEK, True),
    "this-month": (PeriodKind.MONTH, False),
    "last-month": (PeriodKind.MONTH, True),
    "this-year": (PeriodKind.YEAR, False),
    "last-year": (PeriodKind.YEAR, True),
}


@dataclass(frozen=True, slots=True)
class Period:
    """One period, as days without a time zone. A `Calendar` turns the days into instants."""

    kind: PeriodKind
    id: str  # such as `all`, `2018`, `2018-12`, `2018-W49` or `2018-12-05`
    first_day: date | None  # None: the period is all-time
    end_day: date | None  # the day after the last day; None: the period is all-time


def advance_period(period: Period, count: int) -> Period | None:
    """Return the period `count` periods later, or None if the period is all-time or the result is out of range."""
    first = period.first_day
    if first is None:
        return None
    try:
        if period.kind is PeriodKind.YEAR:
            return period_of(period.kind, first.replace(year=first.year + count))
        if period.kind is PeriodKind.MONTH:
            years, month_index = divmod(first.month - 1 + count, 12)
            return period_of(period.kind, first.replace(year=first.year + years, month=month_index + 1))
        days = 7 * count if period.kind is PeriodKind.WEEK else count
        return period_of(period.kind, first + timedelta(days=days))
    except (ValueError, OverflowError):
        return None


ALL_TIME = Period(PeriodKind.ALL, "all", None, None)


@lru_cache(maxsize=_DAYS_KEPT)
def period_of(kind: PeriodKind, day: date) -> Period:
    if kind is PeriodKind.ALL:
        return ALL_TIME
    if kind is PeriodKind.DAY:
        return Period(kind, day.isoformat(), day, day + _DAY)
    if kind is PeriodKind.WEEK:
        year, week, weekday = day.isocalendar()
        monday = day - (weekday - 1) * _DAY
        return Period(kind, f"{year:04}-W{week:02}", monday, monday + 7 * _DAY)
    if kind is PeriodKind.MONTH:
        first = day.replace(day=1)
        return Period(kind, f"{day.year:04}-{day.month:02}", first, (first + 31 * _DAY).replace(day=1))
    first = day.replace(month=1, day=1)
    return Period(kind, f"{day.year:04}", first, first.replace(year=day.year + 1))


# By the length of an id: the period's kind, and what to append to the id to get the period's first day in ISO 8601.
_FORMS = {
    4: (PeriodKind.YEAR, "-01-01"),
    7: (PeriodKind.MONTH, "-01"),
    8: (PeriodKind.WEEK, "-1"),
    10: (PeriodKind.DAY, ""),
}


@lru_cache(maxsize=_DAYS_KEPT)
def parse_period(text: str) -> Period | None:
    """Return the period with this id, or None if there is none."""
    if text == ALL_TIME.id:
        return ALL_TIME
    if not _ID.fullmatch(text):
        return None
    kind, rest = _FORMS[len(text)]
    try:
        return period_of(kind, date.fromisoformat(text + rest))
    except (ValueError, OverflowError):  # the date does not exist, or the period would end after the year 9999
        return None


def find_zone(name: str) -> ZoneInfo | None:
    """Return the time zone with this IANA name, or None if there is none."""
    try:
        return ZoneInfo(name)
    # The errors mean, in this order: unknown name, path outside the zone database, path of a folder.
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


class Calendar:
    """Finds the days and periods of one time zone, and when they start and end."""

    def __init__(self, zone: ZoneInfo) -> None:
        self._zone = zone
        self._start_us = lru_cache(maxsize=_DAYS_KEPT)(self._first_instant_us)
        self._latest = (0, 0, date(1970, 1, 1))  # start, end and date of the last result of `day_at`

    def period_at(self, kind: PeriodKind, at_us: int) -> Period:
        return ALL_TIME if kind is PeriodKind.ALL else period_of(kind, self.day_at(at_us))

    def find_by_alias(self, alias: str, now_us: int) -> Period:
        """Return the period that an alias, a key of `ALIASES`, means at the time `now_us`."""
        kind, is_before = ALIASES[alias]
        present = self.period_at(kind, now_us)
        if not is_before:
            return present
        before = self.find_previous(present)
        assert before is not None  # there is a period before every period since 1970
        return before

    def find_previous(self, period: Period) -> Period | None:
        """Return the period before this one, or None if this one is all-time or the first supported period.

        It contains the instant before the period starts. So it is never a day that the clocks of the zone skipped.
        """
        if period.first_day is None or period.first_day.year <= 1000:
            return None
        return period_of(period.kind, self.day_at(self._start_us(period.first_day) - 1))

    def bounds_us(self, period: Period) -> tuple[int, int] | None:
        """Return when a period starts and when the next one starts, or None if the period is all-time."""
        if period.first_day is None or period.end_day is None:
            return None
        return self._start_us(period.first_day), self._start_us(period.end_day)

    def day_at(self, at_us: int) -> date:
        start_us, end_us, day = self._latest
        if start_us <= at_us < end_us:
            return day
        held_us = min(max(at_us, _FIRST_US), _LAST_US)
        day = self._shown(held_us)
        # If the clocks are set back past midnight, they show the previous date again. But the instant belongs to the
        # later date, because its day has already started.
        while self._start_us(day) > held_us:
            day -= _DAY
        while self._start_us(day + _DAY) <= held_us:
            day += _DAY
        self._latest = (self._start_us(day), self._start_us(day + _DAY), day)
        return day

    def _shown(self, at_us: int) -> date:
        return (_EPOCH + at_us * _US).astimezone(self._zone).date()

    def _first_instant_us(self, day: date) -> int:
        """Return when the clocks first show this date or, if they skip it, when they first show a later date."""
        # If midnight occurs twice, the result is the first midnight. If the clocks skip midnight, the result is the
        # instant of the jump, because since 1970 every jump over midnight has begun exactly at midnight.
        midnight = datetime(day.year, day.month, day.day, tzinfo=self._zone)
        return (midnight.astimezone(UTC) - _EPOCH) // _US


@lru_cache(maxsize=1_024)
def calendar_of(zone_name: str) -> Calendar:
    """Return the calendar of a zone. The name must be valid. All callers share the calendar and its caches."""
    return Calendar(ZoneInfo(zone_name))

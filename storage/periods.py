"""Finds the periods of a named time zone: which period an instant lies in, and when each period starts and ends.

A period lasts from the start of its first day to the start of the day after its last day. A day starts at the first
instant at which the zone's clocks show its date. So every instant lies in exactly one period of each kind, even if
clocks are changed at midnight.

A family may also declare its own periods, such as weeks that start on a Sunday at 05:00 (`PeriodSpec`). These are
numbered from 1, and instants before the first one lie in none of them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from calendar import monthrange
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import overload
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
_DAY = timedelta(days=1)
# The first and the last instant of every calendar. An instant outside these bounds is replaced by the nearer bound.
# This does no harm: the periods before the first instant closed long ago.
_FIRST_US = (datetime(1000, 1, 1, tzinfo=UTC) - _EPOCH) // _US
_LAST_US = (datetime(9998, 1, 1, tzinfo=UTC) - _EPOCH) // _US
_DAYS_KEPT = 4_096  # the largest number of entries in each cache of days or periods

PERIOD_NAME_PATTERN = "^[a-z][a-z0-9_]{0,15}$"
EVERY_PATTERN = "^P(?:[1-9][0-9]{0,3}[DWM]|T[1-9][0-9]{0,3}H)$"
PERIOD_CHARS_MAX = 16 + 1 + 6  # of the id of a period
_NUMBERED = re.compile(r"([a-z][a-z0-9_]{0,15})-([1-9][0-9]{0,5})", re.ASCII)
_ALIAS = re.compile(r"(this|last)-([a-z][a-z0-9_]{0,15})", re.ASCII)
_HOUR_US = 3_600_000_000
_ID = re.compile(r"[1-9][0-9]{3}(-([0-9]{2}(-[0-9]{2})?|W[0-9]{2}))?", re.ASCII)


def format_time(us: int) -> str:
    """Format a time in microseconds since 1970 for a message, in UTC, to the second."""
    return f"{_EPOCH + timedelta(microseconds=us):%Y-%m-%dT%H:%M:%SZ}"


class PeriodKind(StrEnum):
    ALL = "all"
    YEAR = "year"
    MONTH = "month"
    WEEK = "week"  # as in ISO 8601: a week starts on Monday, and week 1 contains the year's first Thursday
    DAY = "day"


_KINDS = frozenset(PeriodKind)
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
class PeriodSpec:
    """Declares a family's own periods, which last `every` from `starts_at` on, or from each bound to the next.

    Times are local times of the family's zone in ISO 8601, without a zone: "2027-01-04T05:00:00".
    """

    name: str  # see `PERIOD_NAME_PATTERN`
    starts_at: str | None = None
    every: str | None = None  # see `EVERY_PATTERN`: days, weeks and months by the zone's clocks, hours by elapsed time
    bounds: tuple[str, ...] = ()  # ascending


@dataclass(frozen=True, slots=True)
class Period:
    """One period, given by its days without a time zone or by a number. A `Calendar` turns it into instants."""

    kind: str  # a `PeriodKind`, or the name of a `PeriodSpec`
    id: str  # such as `all`, `2018`, `2018-12`, `2018-W49`, `2018-12-05` or `season-3`
    first_day: date | None  # None: the period is all-time, or has a number
    end_day: date | None  # the day after the last day; None: the period is all-time, or has a number
    number: int | None = None  # of a period that a family declares, from 1 on


def advance_period(period: Period, count: int) -> Period | None:
    """Move `count` periods on. Return None if the period is all-time or the result is out of range."""
    if period.number is not None:
        return numbered_period(period.kind, period.number + count)
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


def numbered_period(name: str, number: int) -> Period:
    return Period(name, f"{name}-{number}", None, None, number)


def parse_alias(text: str) -> tuple[str, bool] | None:
    """Parse an alias such as `this-week` into its kind, and whether it means the period before the present one.

    Return None if the text is not an alias. `this-season` and `last-season` may be aliases for periods named `season`.
    """
    if (known := ALIASES.get(text)) is not None:
        return known
    found = _ALIAS.fullmatch(text)
    return None if found is None or found[2] in _KINDS else (found[2], found[1] == "last")


@lru_cache(maxsize=_DAYS_KEPT)
def period_of(kind: str, day: date) -> Period:
    kind = PeriodKind(kind)
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
    if text == ALL_TIME.id:
        return ALL_TIME
    if (found := _NUMBERED.fullmatch(text)) is not None:
        return numbered_period(found[1], int(found[2]))
    if not _ID.fullmatch(text):
        return None
    kind, rest = _FORMS[len(text)]
    try:
        return period_of(kind, date.fromisoformat(text + rest))
    except (ValueError, OverflowError):  # the date does not exist, or the period would end after the year 9999
        return None


def find_zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    # The errors mean, in this order: unknown name, path outside the zone database, path of a folder.
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


class Calendar:
    """Finds the days and periods in one time zone, and when they start and end."""

    def __init__(self, zone: ZoneInfo, declared: Sequence[PeriodSpec] = ()) -> None:
        self._zone = zone
        self._declared = {each.name: each for each in declared}
        self._numbered_us = lru_cache(maxsize=_DAYS_KEPT)(self._start_of_number)
        self._start_us = lru_cache(maxsize=_DAYS_KEPT)(self._first_instant_us)
        self._latest = (0, 0, date(1970, 1, 1))  # start, end and date of the last result of `day_at`

    @overload
    def period_at(self, kind: PeriodKind, at_us: int) -> Period: ...
    @overload
    def period_at(self, kind: str, at_us: int) -> Period | None: ...
    def period_at(self, kind: str, at_us: int) -> Period | None:
        """Find the period of this kind at an instant, or None if the family declares such periods but none is then."""
        if kind in self._declared:
            number = self._count_started(kind, at_us)
            return numbered_period(kind, number) if self._numbered_us(kind, number + 1) is not None and number else None
        return ALL_TIME if kind == PeriodKind.ALL else period_of(kind, self.day_at(at_us))

    def find_ended(self, kind: str, at_us: int) -> Period | None:
        if kind in self._declared:
            number = self._count_started(kind, at_us) - 1
            return numbered_period(kind, number) if number > 0 else None
        present = self.period_at(kind, at_us)
        return None if present is None else self.find_previous(present)

    def find_by_alias(self, alias: str, now_us: int) -> Period | None:
        """Find the period that an alias means at `now_us`, or None if it is no alias or there is no such period."""
        named = parse_alias(alias)
        if named is None or not (named[0] in self._declared or alias in ALIASES):
            return None
        kind, is_before = named
        return self.find_ended(kind, now_us) if is_before else self.period_at(kind, now_us)

    def find_previous(self, period: Period) -> Period | None:
        """Find the period before this one, or return None if this one is all-time or the first supported period.

        The result contains the instant before this period starts, so it is never a day that the zone's clocks skipped.
        """
        if period.number is not None:
            return numbered_period(period.kind, period.number - 1) if period.number > 1 else None
        if period.first_day is None or period.first_day.year <= 1000:
            return None
        return period_of(period.kind, self.day_at(self._start_us(period.first_day) - 1))

    def bounds_us(self, period: Period) -> tuple[int, int] | None:
        """Find when a period starts and ends. Return None if it is all-time, or the family declares no such period."""
        if period.number is not None:
            if period.kind not in self._declared:
                return None
            start_us, end_us = (self._numbered_us(period.kind, period.number + more) for more in (0, 1))
            return None if start_us is None or end_us is None else (start_us, end_us)
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
        """Find when the clocks first show this date or, if they skip it, when they first show a later date."""
        # If midnight occurs twice, the result is the first midnight. If the clocks skip midnight, the result is the
        # instant of the jump, because since 1970 every jump over midnight has begun exactly at midnight.
        midnight = datetime(day.year, day.month, day.day, tzinfo=self._zone)
        return (midnight.astimezone(UTC) - _EPOCH) // _US

    def to_instant_us(self, local: str) -> int:
        """Convert a local time in ISO 8601 to an instant. If the clocks show it twice, choose the first instant.

        Raises ValueError.
        """
        return self._instant_us(datetime.fromisoformat(local))

    def _instant_us(self, local: datetime) -> int:
        return (local.replace(tzinfo=self._zone).astimezone(UTC) - _EPOCH) // _US

    def _count_started(self, name: str, at_us: int) -> int:
        """Count the periods that have started at an instant, which is the number of the present one if there is one."""
        spec, held_us = self._declared[name], min(max(at_us, _FIRST_US), _LAST_US)
        if spec.every is None:
            return bisect_right([self.to_instant_us(each) for each in spec.bounds], held_us)
        first_us = self.to_instant_us(spec.starts_at or "")
        if held_us < first_us:
            return 0
        # Months differ in length, and days when the clocks are changed. So correct an estimate.
        number = 1 + (held_us - first_us) // _length_us(spec.every)
        while (start_us := self._numbered_us(name, number)) is None or start_us > held_us:
            number -= 1
        while (end_us := self._numbered_us(name, number + 1)) is not None and end_us <= held_us:
            number += 1
        return number

    def _start_of_number(self, name: str, number: int) -> int | None:
        spec = self._declared[name]
        if spec.every is None:
            return self.to_instant_us(spec.bounds[number - 1]) if 0 < number <= len(spec.bounds) else None
        first, count, unit = datetime.fromisoformat(spec.starts_at or ""), *_parse_every(spec.every)
        try:
            if unit == "H":
                return self._instant_us(first) + (number - 1) * count * _HOUR_US
            if unit == "M":
                return self._instant_us(_add_months(first, (number - 1) * count))
            return self._instant_us(first + (number - 1) * count * (7 if unit == "W" else 1) * _DAY)
        except (ValueError, OverflowError):  # after the year 9999
            return None


def _parse_every(every: str) -> tuple[int, str]:
    return int(every.strip("PTDWMH")), every[-1]


def _length_us(every: str) -> int:
    count, unit = _parse_every(every)
    return count * _HOUR_US * {"H": 1, "D": 24, "W": 168, "M": 730}[unit]


def _add_months(first: datetime, months: int) -> datetime:
    """Add months to a day and time. If the resulting month is too short, use its last day."""
    years, month_index = divmod(first.month - 1 + months, 12)
    year, month = first.year + years, month_index + 1
    return first.replace(year=year, month=month, day=min(first.day, monthrange(year, month)[1]))


@lru_cache(maxsize=1_024)
def calendar_of(zone_name: str, declared: tuple[PeriodSpec, ...] = ()) -> Calendar:
    """Return a zone's calendar. The name must be valid. All callers share the calendar and its caches."""
    return Calendar(ZoneInfo(zone_name), declared)

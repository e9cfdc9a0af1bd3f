"""Compare periods with the local time of their time zone. Every time is in exactly one period of each kind."""

import itertools
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from storage.periods import (
    ALIASES,
    ALL_TIME,
    Calendar,
    Period,
    PeriodKind,
    PeriodSpec,
    find_zone,
    parse_alias,
    parse_period,
    period_of,
)

ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "Australia/Melbourne", "Asia/Kolkata", "Pacific/Apia",
    "America/Sao_Paulo", "America/St_Johns", "Africa/Monrovia", "Asia/Beirut", "America/Havana", "Antarctica/Troll",
)  # fmt: skip
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KINDS = st.sampled_from([kind for kind in PeriodKind if kind is not PeriodKind.ALL])
DAYS = st.dates(date(1969, 1, 1), date(2099, 12, 31))


def us(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)


INSTANTS = st.datetimes(datetime(1969, 1, 1), datetime(2099, 12, 31), timezones=st.just(UTC)).map(us)


def named(calendar: Calendar, alias: str, at_us: int) -> Period:
    found = calendar.find_by_alias(alias, at_us)
    assert found is not None
    return found


def held(calendar: Calendar, period: Period) -> tuple[int, int]:
    """Return the start and the end of a period. The period must not be all-time."""
    bounds = calendar.bounds_us(period)
    assert bounds is not None
    return bounds


@given(st.sampled_from(ZONES), KINDS, INSTANTS)
def test_every_instant_lies_in_exactly_one_period_of_each_kind(zone: str, kind: PeriodKind, at_us: int) -> None:
    calendar = Calendar(ZoneInfo(zone))
    period = calendar.period_at(kind, at_us)
    start_us, end_us = held(calendar, period)
    assert start_us <= at_us < end_us
    before = calendar.find_previous(period)
    assert before is not None
    assert held(calendar, before)[1] == start_us, "the bounds of neighbours meet"
    assert calendar.period_at(kind, start_us) == period
    assert calendar.period_at(kind, end_us - 1) == period
    assert calendar.period_at(kind, end_us) != period


@given(st.sampled_from(ZONES), KINDS, INSTANTS)
def test_an_instant_far_from_midnight_lies_in_the_day_that_clocks_show(zone: str, kind: PeriodKind, at_us: int) -> None:
    shown = (EPOCH + timedelta(microseconds=at_us)).astimezone(ZoneInfo(zone))
    if 2 <= shown.hour < 22:
        assert Calendar(ZoneInfo(zone)).period_at(kind, at_us) == period_of(kind, shown.date())


@given(KINDS, DAYS)
def test_an_id_reads_back_as_the_period_that_wrote_it(kind: PeriodKind, day: date) -> None:
    period = period_of(kind, day)
    assert parse_period(period.id) == period
    assert period.first_day is not None
    assert period.end_day is not None
    assert period.first_day <= day < period.end_day


@given(DAYS)
def test_a_week_is_the_iso_week(day: date) -> None:
    year, week, _ = day.isocalendar()
    assert period_of(PeriodKind.WEEK, day).id == f"{year}-W{week:02}"


@pytest.mark.parametrize(
    "text",
    ["", "2018-13", "2018-02-30", "2018-W53", "2018-W00", "2018-w49", "18", "2018-1", "02018", "2018-12-05T00", "ALL",
     "２０１８", "0999", "9999", "2018-12-5", "2018-W1", " 2018", "2018\n"],
)  # fmt: skip
def test_text_that_is_no_period_parses_as_none(text: str) -> None:
    assert parse_period(text) is None


def test_all_time_has_neither_bounds_nor_a_period_before() -> None:
    assert parse_period("all") is ALL_TIME
    assert Calendar(ZoneInfo("UTC")).find_previous(ALL_TIME) is None
    assert Calendar(ZoneInfo("UTC")).bounds_us(ALL_TIME) is None


@pytest.mark.parametrize(
    ("zone", "day", "starts", "hours"),
    [
        ("Europe/Berlin", date(2018, 3, 25), "2018-03-24T23:00:00+00:00", 23),
        ("Europe/Berlin", date(2018, 10, 28), "2018-10-27T22:00:00+00:00", 25),
        ("America/Sao_Paulo", date(2018, 11, 4), "2018-11-04T03:00:00+00:00", 23),  # the day begins at 01:00
        # On this day, the hour after 23:00 comes twice.
        ("America/Sao_Paulo", date(2018, 2, 17), "2018-02-17T02:00:00+00:00", 25),
        # At 00:01, the clocks go back to 23:01.
        ("America/St_Johns", date(2010, 11, 6), "2010-11-06T02:30:00+00:00", 24),
        ("Pacific/Apia", date(2011, 12, 30), "2011-12-30T10:00:00+00:00", 0),  # the time zone skipped this day
        ("Africa/Monrovia", date(1972, 1, 7), "1972-01-07T00:44:30+00:00", 24 - 44.5 / 60),
    ],
)
def test_a_day_lasts_as_long_as_its_clocks_run(zone: str, day: date, starts: str, hours: float) -> None:
    start_us, end_us = held(Calendar(ZoneInfo(zone)), period_of(PeriodKind.DAY, day))
    assert start_us == us(datetime.fromisoformat(starts))
    assert (end_us - start_us) / 3_600e6 == pytest.approx(hours)


def find_ids(zone: str, at: str, *aliases: str) -> list[str]:
    """Return the periods that aliases stand for at a time in ISO 8601."""
    calendar, now_us = Calendar(ZoneInfo(zone)), us(datetime.fromisoformat(at))
    return [named(calendar, alias, now_us).id for alias in aliases]


@given(st.sampled_from(ZONES), INSTANTS)
def test_an_alias_stands_for_the_period_that_a_wall_calendar_shows(zone: str, at_us: int) -> None:
    shown = (EPOCH + timedelta(microseconds=at_us)).astimezone(ZoneInfo(zone))
    if not 2 <= shown.hour < 22:
        return
    today = shown.date()
    week, week_before = (day.isocalendar() for day in (today, today - timedelta(days=7)))
    month_before = today.replace(day=1) - timedelta(days=1)
    expected = {
        "today": f"{today}", "yesterday": f"{today - timedelta(days=1)}",
        "this-week": f"{week[0]}-W{week[1]:02}", "last-week": f"{week_before[0]}-W{week_before[1]:02}",
        "this-month": f"{today:%Y-%m}", "last-month": f"{month_before:%Y-%m}",
        "this-year": f"{today.year}", "last-year": f"{today.year - 1}",
    }  # fmt: skip
    calendar = Calendar(ZoneInfo(zone))
    assert {alias: named(calendar, alias, at_us).id for alias in ALIASES} == expected


@given(st.sampled_from(ZONES), INSTANTS)
def test_the_period_of_an_alias_of_the_past_ends_where_the_present_one_starts(zone: str, at_us: int) -> None:
    calendar = Calendar(ZoneInfo(zone))
    pairs = (("today", "yesterday"), *((f"this-{kind}", f"last-{kind}") for kind in ("week", "month", "year")))
    assert {alias for pair in pairs for alias in pair} == set(ALIASES)
    for present, past in pairs:
        (start_us, end_us), before = (held(calendar, named(calendar, each, at_us)) for each in (present, past))
        assert start_us <= at_us < end_us
        assert before[1] == start_us


@pytest.mark.parametrize(
    ("zone", "at", "today", "yesterday"),
    [
        ("Europe/Berlin", "2018-12-31T23:00:00+00:00", "2019-01-01", "2018-12-31"),
        # The day has 23 hours. 24 hours before its end is still the day before it, and not before that.
        ("Europe/Berlin", "2018-03-24T23:00:00+00:00", "2018-03-25", "2018-03-24"),
        ("Europe/Berlin", "2018-03-25T21:59:59+00:00", "2018-03-25", "2018-03-24"),
        # The day has 25 hours, so 24 hours before its last instant it had already begun.
        ("Europe/Berlin", "2018-10-27T22:00:00+00:00", "2018-10-28", "2018-10-27"),
        ("Europe/Berlin", "2018-10-28T22:59:59+00:00", "2018-10-28", "2018-10-27"),
        # The day of 23 hours begins at 01:00.
        ("America/Sao_Paulo", "2018-11-04T03:00:00+00:00", "2018-11-04", "2018-11-03"),
        # The hour before midnight comes twice.
        ("America/Sao_Paulo", "2018-02-18T02:30:00+00:00", "2018-02-17", "2018-02-16"),
        # The time zone skipped the date before, so no day ever had it.
        ("Pacific/Apia", "2011-12-30T10:00:00+00:00", "2011-12-31", "2011-12-29"),
        ("Pacific/Kiritimati", "1995-01-01T12:00:00+00:00", "1995-01-02", "1995-01-01"),
        ("Pacific/Kiritimati", "1994-12-31T12:00:00+00:00", "1995-01-01", "1994-12-30"),
    ],
)
def test_yesterday_is_the_last_day_that_the_zone_had_before_today(
    zone: str, at: str, today: str, yesterday: str
) -> None:
    assert find_ids(zone, at, "today", "yesterday") == [today, yesterday]


@given(st.sampled_from([*ZONES, "Pacific/Kiritimati", "Pacific/Kwajalein"]), KINDS, INSTANTS)
def test_the_period_before_contains_the_instant_before(zone: str, kind: PeriodKind, at_us: int) -> None:
    calendar = Calendar(ZoneInfo(zone))
    period = calendar.period_at(kind, at_us)
    assert calendar.find_previous(period) == calendar.period_at(kind, held(calendar, period)[0] - 1)


@pytest.mark.parametrize(
    ("at", "this_week", "last_week"),
    [
        ("2018-12-30T23:00:00+00:00", "2019-W01", "2018-W52"),  # the week's first day is in the year before
        ("2021-01-03T12:00:00+00:00", "2020-W53", "2020-W52"),  # a year of 53 weeks, which ends in the next year
        ("2021-01-03T23:00:00+00:00", "2021-W01", "2020-W53"),
    ],
)
def test_last_week_is_the_iso_week_before(at: str, this_week: str, last_week: str) -> None:
    assert find_ids("Europe/Berlin", at, "this-week", "last-week") == [this_week, last_week]


@pytest.mark.parametrize("year", [1, 999, 9999])
def test_an_instant_at_the_end_of_the_calendar_has_a_period_all_the_same(year: int) -> None:
    for kind in PeriodKind:
        assert Calendar(ZoneInfo("Pacific/Apia")).period_at(kind, us(datetime(year, 1, 1, tzinfo=UTC))).id


@pytest.mark.parametrize(
    "name", ["", "Mars/Base", "../etc/passwd", "/etc/localtime", "Europe", "a\0b", "Europe/Berlin "]
)
def test_a_name_that_is_no_time_zone_finds_none(name: str) -> None:
    assert find_zone(name) is None


def test_zones_come_with_the_package() -> None:
    assert len(available_timezones()) > 400
    assert find_zone("Europe/Berlin") is not None


EVERY = ("P1D", "P7D", "P1W", "P6W", "P1M", "P3M", "PT12H", "PT36H")
YEARS_US = 20 * 366 * 86_400 * 10**6


def list_starts(first: datetime, every: str, zone: ZoneInfo, until_us: int) -> list[int]:
    """Return when the periods start, as a plain program would say it."""
    count, unit = int(every.strip("PTDWMH")), every[-1]
    found: list[int] = []
    for number in itertools.count():
        if unit == "H":
            at = us(first.replace(tzinfo=zone)) + number * count * 3_600 * 10**6
        elif unit == "M":
            month = first.year * 12 + first.month - 1 + number * count
            days = [31, 30, 29, 28]
            for day in [first.day, *(each for each in days if each < first.day)]:
                with suppress(ValueError):
                    shifted = first.replace(year=month // 12, month=month % 12 + 1, day=day)
                    break
            at = us(shifted.replace(tzinfo=zone))
        else:
            at = us((first + timedelta(days=number * count * (7 if unit == "W" else 1))).replace(tzinfo=zone))
        found.append(at)
        if at > until_us:
            break
    return found


@given(
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"]),
    every=st.sampled_from(EVERY),
    first=st.datetimes(datetime(2005, 1, 1), datetime(2009, 12, 31)),
    later_us=st.integers(0, YEARS_US),
)
@example("Europe/Berlin", "P1W", datetime(2027, 1, 3, 5), 12 * 7 * 86_400 * 10**6)  # Sundays at 05:00
@example("Europe/Berlin", "P1M", datetime(2005, 1, 31, 2, 30), YEARS_US)
def test_a_declared_period_is_that_of_a_plain_program(zone: str, every: str, first: datetime, later_us: int) -> None:
    first = first.replace(microsecond=0)
    calendar = Calendar(ZoneInfo(zone), [PeriodSpec("season", first.isoformat(), every)])
    first_us = us(first.replace(tzinfo=ZoneInfo(zone)))
    at_us = first_us + later_us
    starts = list_starts(first, every, ZoneInfo(zone), at_us)
    number = len(starts) - 1
    for instant in (at_us, starts[number - 1], starts[number] - 1):
        found = calendar.period_at("season", instant)
        assert found is not None
        assert (found.id, held(calendar, found)) == (f"season-{number}", (starts[number - 1], starts[number]))
    ended = calendar.find_ended("season", at_us)
    assert (ended and ended.number) == (number - 1 or None)
    assert found is not None
    assert calendar.find_previous(found) == ended
    assert parse_period(found.id) == found
    assert calendar.period_at("season", first_us - 1) is None
    assert calendar.find_by_alias("this-season", at_us) == found
    assert calendar.find_by_alias("last-season", at_us) == ended


def test_periods_between_bounds_end_with_the_last_bound() -> None:
    bounds = ("2027-01-01T00:00", "2027-02-01T00:00", "2027-03-15T12:00")
    calendar = Calendar(ZoneInfo("Europe/Berlin"), [PeriodSpec("split", bounds=bounds)])
    instants = [calendar.to_instant_us(each) for each in bounds]
    for at_us, number in [(instants[0] - 1, None), (instants[0], 1), (instants[1], 2), (instants[2] - 1, 2)]:
        found = calendar.period_at("split", at_us)
        assert (found and found.number) == number
    assert calendar.period_at("split", instants[2]) is None
    ended = calendar.find_ended("split", instants[2])
    assert ended is not None
    assert held(calendar, ended) == (instants[1], instants[2])
    assert calendar.bounds_us(replace(ended, number=3)) is None
    assert calendar.find_by_alias("last-split", instants[0]) is None


def test_aliases_are_names_of_periods_and_nothing_else() -> None:
    assert parse_alias("this-week") == (PeriodKind.WEEK, False)
    assert parse_alias("last-season") == ("season", True)
    for text in ("this-", "this-day", "last-all", "next-season", "season-1", "this-Season", "last-1"):
        assert parse_alias(text) is None

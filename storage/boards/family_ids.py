"""Builds and parses the ids of a family's boards, and says which period an alias such as `this-week` means.

    family:period                            races:2018-W49
    family:period:name=value,name=value      races:2018-W49:country=fr,mode=solo

Each board has exactly one id. Its facet names are sorted, and an id that lists them in any other order is invalid.

A caller may write an alias in place of the period. The time of the request decides which period the alias means, and
`Catalog.resolve_aliases` replaces it to get the board's id.

    family:alias:name=value,name=value       races:this-week:country=fr,mode=solo
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from storage.errors import PeriodClosedError, PostRejectedError, UnknownBoardError
from storage.periods import PERIOD_CHARS_MAX, Period, format_time, parse_alias, parse_period
from storage.records import Family, FamilySpec

FAMILY_PATTERN = "^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$"
FACET_PATTERN = "^[a-z][a-z0-9_]{0,15}$"
# This pattern accepts some texts that no facet has. `parse_facet_value` decides.
FACET_VALUE_PATTERN = "^(?:[A-Za-z0-9._@+' -]|[^\\u0000-\\u007f]){1,64}$"
FACET_VALUES = "1 to 64 letters and digits of any script, and . _ @ + - ' and single spaces between them"
FACETS_TOGETHER_MAX = 3
FACETS_RESERVED = ("period", "at")  # request parameters have these names, so no facet may have them
# A process remembers the ids of the boards for at most this many combinations of a period and facet values.
FACET_SETS_KEPT = 32_768
ID_CHARS_MAX = 32 + 1 + PERIOD_CHARS_MAX + 1 + FACETS_TOGETHER_MAX * (16 + 1 + 64 + 1) - 1

_FAMILY = re.compile(FAMILY_PATTERN[1:-1])
_FACET = re.compile(FACET_PATTERN[1:-1])
_PLAIN_VALUE = re.compile(r"[A-Za-z0-9._@+-]{1,64}")
_FACET_CHARS_MAX = 64


class FamilyBoardId(NamedTuple):
    family: str
    period: Period
    facets: tuple[tuple[str, str], ...]  # names and values, sorted by name


def is_family_id(text: str) -> bool:
    return _FAMILY.fullmatch(text) is not None


def is_facet(text: str) -> bool:
    return _FACET.fullmatch(text) is not None and text not in FACETS_RESERVED


def parse_facet_value(text: str) -> str | None:
    """Normalise a facet value to NFC, or return None if the text can't be one, see `FACET_VALUES`."""
    return text if _PLAIN_VALUE.fullmatch(text) else _parse_any_script(text)


@lru_cache(maxsize=4_096)
def _parse_any_script(text: str) -> str | None:
    if len(text) > 4 * _FACET_CHARS_MAX:  # NFC keeps over a quarter of the length
        return None
    value = unicodedata.normalize("NFC", text)
    kinds = [unicodedata.category(char)[0] for char in value]
    # Marks belong to letters of many scripts. After a delimiter of an id, a mark would join the delimiter in NFC.
    fits = 0 < len(value) <= _FACET_CHARS_MAX and value.split(" ") == value.split() and kinds[0] != "M"
    return value if fits and all(k in "LMN" or c in "._@+-' " for k, c in zip(kinds, value, strict=True)) else None


def board_id(family: str, period_id: str, facets: Sequence[tuple[str, str]] = ()) -> str:
    """Build a board's id. `facets` holds (name, value) pairs, which must be sorted by name."""
    if not facets:
        return f"{family}:{period_id}"
    return f"{family}:{period_id}:{','.join([f'{name}={value}' for name, value in facets])}"


def parse_board_id(text: str) -> FamilyBoardId | None:
    """Parse a board's id, or return None if the text cannot be the id of a family's board."""
    parts = _split(text)
    period = None if parts is None else parse_period(parts[1])
    return None if parts is None or period is None else FamilyBoardId(parts[0], period, parts[2])


def _split(text: str) -> tuple[str, str, tuple[tuple[str, str], ...]] | None:
    family, _, rest = text.partition(":")
    period, faceted, listed = rest.partition(":")
    facets = _parse_facets(listed) if faceted else ()
    return None if facets is None or not is_family_id(family) else (family, period, facets)


def _parse_facets(listed: str) -> tuple[tuple[str, str], ...] | None:
    facets: list[tuple[str, str]] = []
    for pair in listed.split(","):
        name, equals, value = pair.partition("=")
        if not equals or not is_facet(name) or parse_facet_value(value) != value:
            return None
        facets.append((name, value))
    names = [name for name, _ in facets]
    if sorted(set(names)) != names or len(names) > FACETS_TOGETHER_MAX:
        return None
    return tuple(facets)


def has_alias(text: str) -> bool:
    """Return whether a text has an alias, such as `this-week`, in place of a period."""
    return ":" in text and parse_alias(text.split(":", 2)[1]) is not None


def find_aliased_family(text: str) -> str | None:
    """Return the family's id if a text names a family's board by an alias, otherwise None."""
    parts = _split(text) if has_alias(text) else None
    return None if parts is None else parts[0]


def resolve_alias(spec: FamilySpec, text: str, now_us: int) -> str:
    """Find the id of the board that a text with an alias names at `now_us`, in the family's time zone.

    Raises UnknownBoardError if the family has no such period then.
    """
    family, alias, *facets = text.split(":", 2)
    period = spec.calendar.find_by_alias(alias, now_us)
    if period is None:
        raise UnknownBoardError(f"the family {family!r} has no period that {alias!r} means now")
    return ":".join([family, period.id, *facets])


def names_family_board(text: str) -> bool:
    """Return whether a text may be the id of a family's board, or may name such a board by an alias."""
    return parse_board_id(text) is not None or find_aliased_family(text) is not None


def is_listed(spec: FamilySpec, named: FamilyBoardId) -> bool:
    """Return whether a family has boards with the kind of period and the facets in this id."""
    is_there = named.period.number is None or spec.calendar.bounds_us(named.period) is not None
    return is_there and named.period.kind in spec.periods and tuple(name for name, _ in named.facets) in spec.facets


def shelf(period_id: str, facet_names: Sequence[str]) -> str:
    """Build the text under which the catalog groups all boards for one period and one list of facets."""
    return f"{period_id}:{','.join(facet_names)}"


@lru_cache(maxsize=FACET_SETS_KEPT)
def list_reached(
    family: str, period_id: str, listed: tuple[tuple[str, ...], ...], values: tuple[tuple[str, str], ...]
) -> tuple[str, ...]:
    """List the ids of the boards for one period that a post reaches.

    Each of the family's facet lists in `listed` leads to one id, provided that the post has values for all facets on
    the list. `values` holds the names and values of the post's facets, sorted by name.
    """
    given = dict(values)
    return tuple(
        board_id(family, period_id, [(name, given[name]) for name in names])
        for names in listed
        if all(name in given for name in names)
    )


def describe_closed(board: str, ends_us: int | None) -> str:
    """Build the message which says that the period of a family's board is closed, and what to do instead."""
    ended = "" if ends_us is None else f": it ended at {format_time(ends_us)}"
    return f"the period of {board!r} is closed{ended}. A post without `at` reaches the periods that are open now"


def find_reached(
    family: Family, facets: Mapping[str, str], at_us: int, now_us: int
) -> list[tuple[str, PeriodClosedError | None]]:
    """Find the boards that a post at `at_us` reaches, as pairs (id, error). `error` is None if the period is open.

    Raises:
        PostRejectedError: the post reaches no board.
    """
    given, shut_us, spec = tuple(sorted(facets.items())), family.shut_through_us(now_us), family.spec
    found: list[tuple[str, PeriodClosedError | None]] = []
    for kind in spec.periods:
        period = spec.calendar.period_at(kind, at_us)
        if period is None:
            continue
        ends_us = spec.ends_us(period)
        closed = ends_us is not None and ends_us <= shut_us
        for each in list_reached(family.id, period.id, spec.facets, given):
            error = PeriodClosedError(describe_closed(each, ends_us), pointer="/at") if closed else None
            found.append((each, error))
    if not found:
        raise PostRejectedError("the post's time and facets reach none of the family's leaderboards", pointer="/facets")
    return found

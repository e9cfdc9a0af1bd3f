"""Builds the ids of a family's boards from a period and facet values, and parses such ids.

    family:period                            races:2018-W49
    family:period:name=value,name=value      races:2018-W49:country=fr,mode=solo

A board has exactly one id. The facet names in the id are sorted, and an id in any other order is invalid.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from storage.periods import Period, parse_period
from storage.records import FamilySpec

FAMILY_PATTERN = "^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$"
FACET_PATTERN = "^[a-z][a-z0-9_]{0,15}$"
FACET_VALUE_PATTERN = "^[A-Za-z0-9._@+-]{1,64}$"
FACETS_TOGETHER_MAX = 3
FACETS_RESERVED = ("period", "at")  # no facet may have these names, because requests already have parameters with them
ID_CHARS_MAX = 32 + 1 + 10 + 1 + FACETS_TOGETHER_MAX * (16 + 1 + 64 + 1) - 1

_FAMILY = re.compile(FAMILY_PATTERN[1:-1])
_FACET = re.compile(FACET_PATTERN[1:-1])
_FACET_VALUE = re.compile(FACET_VALUE_PATTERN[1:-1])


class FamilyBoardId(NamedTuple):
    """The parsed id of a family's board."""

    family: str
    period: Period
    facets: tuple[tuple[str, str], ...]  # names and values, sorted by name


def is_family_id(text: str) -> bool:
    return _FAMILY.fullmatch(text) is not None


def is_facet(text: str) -> bool:
    return _FACET.fullmatch(text) is not None and text not in FACETS_RESERVED


def is_facet_value(text: str) -> bool:
    return _FACET_VALUE.fullmatch(text) is not None


def board_id(family: str, period_id: str, facets: Sequence[tuple[str, str]] = ()) -> str:
    """Return the id of a board. `facets` holds pairs of a name and a value, which must be sorted by name."""
    if not facets:
        return f"{family}:{period_id}"
    return f"{family}:{period_id}:{','.join([f'{name}={value}' for name, value in facets])}"


def parse_board_id(text: str) -> FamilyBoardId | None:
    """Return the parts of a board's id, or None if no family could have such a board."""
    family, colon, rest = text.partition(":")
    period_id, faceted, listed = rest.partition(":")
    period = parse_period(period_id) if colon else None
    if period is None or not is_family_id(family):
        return None
    facets: list[tuple[str, str]] = []
    for pair in listed.split(",") if faceted else ():
        name, equals, value = pair.partition("=")
        if not equals or not is_facet(name) or not is_facet_value(value):
            return None
        facets.append((name, value))
    names = [name for name, _ in facets]
    if sorted(set(names)) != names or len(names) > FACETS_TOGETHER_MAX:
        return None
    return FamilyBoardId(family, period, tuple(facets))


def is_listed(spec: FamilySpec, named: FamilyBoardId) -> bool:
    """Return whether a family has boards for the kind of period and the facets of this id."""
    return named.period.kind in spec.periods and tuple(name for name, _ in named.facets) in spec.facets


def shelf(period_id: str, facet_names: Sequence[str]) -> str:
    """Return the text by which the catalog finds all boards of one period and one list of facets."""
    return f"{period_id}:{','.join(facet_names)}"


def facets_of(listed: Iterable[tuple[str, ...]], values: Mapping[str, str]) -> list[tuple[tuple[str, str], ...]]:
    """Return each list of facet names in `listed` as pairs of name and value.

    Leave out a list if `values` lacks the value of one of its facets.
    """
    return [
        tuple([(name, values[name]) for name in names]) for names in listed if all(name in values for name in names)
    ]

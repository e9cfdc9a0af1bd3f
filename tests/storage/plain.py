"""Boards in plain Python dicts. Tests compare a store with these boards.

The code is simple rather than fast. It shares only the records with the storage package.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storage.records import Best, BoardSpec, ColumnChange, ColumnKind, ColumnSpec, Merge, StatValue, Ties

Reached = tuple[StatValue, int]  # a value, and the time at which the owner reached it


class OutOfRangeError(Exception):
    """A merged value lies outside the range of its column."""


def merge_value(column: ColumnSpec, before: StatValue | None, change: ColumnChange) -> StatValue:
    if column.kind is ColumnKind.TEXT:
        return change.value
    assert isinstance(change.value, int)
    if change.overwrite or not isinstance(before, int):
        after = change.value
    else:
        after = {
            Merge.SUM: before + change.value,
            Merge.MAX: max(before, change.value),
            Merge.MIN: min(before, change.value),
            Merge.LAST: change.value,
        }[column.merge]
    out = change.value if column.merge is not Merge.SUM else after
    if not column.min_scaled <= out <= column.max_scaled:
        raise OutOfRangeError(column.name)
    return after


def merge_row(
    columns: Sequence[ColumnSpec], row: Sequence[Reached | None], changes: Sequence[ColumnChange], at_us: int
) -> list[Reached | None]:
    """Return a row after a post. An unchanged value keeps the time at which it was reached."""
    values: list[StatValue | None] = [held[0] if held is not None else None for held in row]
    for change in changes:
        values[change.index] = merge_value(columns[change.index], values[change.index], change)
    after: list[Reached | None] = []
    for held, value in zip(row, values, strict=True):
        after.append(held if value is None or (held is not None and held[0] == value) else (value, at_us))
    return after


@dataclass(frozen=True, order=True)
class Place:
    """The place of a row in a ranking. A smaller place is better."""

    key: tuple[int, int]  # value, negated if high values are better, and time; the time is 0 if ties are shared
    owner: str


def place_of(spec: BoardSpec, index: int, value: int, reached_us: int, owner: str) -> Place:
    sign = -1 if spec.columns[index].best is Best.HIGH else 1
    return Place((sign * value, reached_us if spec.ties is Ties.EARLIEST else 0), owner)


def rank_rows(spec: BoardSpec, index: int, rows: Mapping[str, Sequence[Reached | None]]) -> list[Place]:
    """Return the places of all owners who have a value in a column, best first."""
    places = []
    for owner, row in rows.items():
        held = row[index]
        if held is not None:
            assert isinstance(held[0], int)
            places.append(place_of(spec, index, held[0], held[1], owner))
    return sorted(places)

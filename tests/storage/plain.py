"""Boards in plain Python dicts. Tests compare a store with these boards.

The code is simple rather than fast. It shares only the records with the storage package.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from storage.records import Best, BoardSpec, ColumnChange, ColumnKind, ColumnSpec, Merge, StatValue, Ties

Reached = tuple[StatValue, int]  # a value, and the time at which the owner reached it


class OutOfRangeError(Exception):
    """A merged value lies outside the range of its column."""


def merge_value(column: ColumnSpec, before: StatValue | None, change: ColumnChange) -> StatValue | None:
    if column.kind is ColumnKind.TEXT or change.value is None:
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
            Merge.WITH: change.value,
        }[column.merge]
    out = change.value if column.merge is not Merge.SUM else after
    if not column.min_scaled <= out <= column.max_scaled:
        raise OutOfRangeError(column.name)
    return after


def merge_row(
    spec: BoardSpec, row: Sequence[Reached | None], changes: Sequence[ColumnChange], at_us: int
) -> list[Reached | None]:
    """Return a row after a post. A column with followers and these have the values of the best and earliest run."""
    columns = spec.columns
    stored = [held[0] if held is not None else None for held in row]
    values = list(stored)
    for change in changes:
        values[change.index] = merge_value(columns[change.index], values[change.index], change)
    better = set()
    for index, column in enumerate(columns):
        followers = [number for number, each in enumerate(columns) if followed_by(each) == column.name]
        if is_improved(spec, index, followers, row, values, (changes, at_us)):
            better.add(index)
    for index, column in enumerate(columns):
        if column.merge is not Merge.WITH:
            continue
        sent = [change for change in changes if change.index == index]
        if [each.name for each in columns].index(str(column.of)) in better:
            values[index] = sent[-1].value if sent else None
        else:
            values[index] = sent[-1].value if sent and sent[-1].overwrite else stored[index]
    after: list[Reached | None] = []
    for index, (held, value) in enumerate(zip(row, values, strict=True)):
        sent = [change for change in changes if change.index == index]
        adds = columns[index].merge is Merge.SUM and sent and not sent[-1].overwrite
        if value is None:
            after.append(None)
        elif held is None or (held[0] != value and not adds) or (index in better and held[0] == value):
            after.append((value, at_us))
        else:
            after.append((value, held[1] if held[0] == value else max(held[1], at_us)))
    for index, column in enumerate(columns):
        if column.merge is Merge.QUOTIENT:
            held = row[index]
            after[index] = divide(spec, column, after, at_us if held is None else held[1])
    return after


def followed_by(column: ColumnSpec) -> str | None:
    return column.of if column.merge is Merge.WITH else None


def divide(spec: BoardSpec, column: ColumnSpec, row: Sequence[Reached | None], default_us: int) -> Reached | None:
    """Return the quotient of two columns of a row, and when the later of the two was reached.

    `default_us`: its time if both follow columns without a value.
    """
    by_name = {each.name: (each, held) for each, held in zip(spec.columns, row, strict=True)}
    numbers, times = [], []
    for name in (str(column.of), str(column.per)):
        each, held = by_name[name]
        timer = by_name[followed_by(each) or name][1]
        if held is None:
            return None
        numbers.append(Fraction(held[0]) / 10**each.scale)
        times += [] if timer is None else [timer[1]]
    if numbers[1] < column.per_least:
        return None
    scaled = round(numbers[0] / numbers[1] * 10**column.scale)  # half to even
    if not column.min_scaled <= scaled <= column.max_scaled:
        raise OutOfRangeError(column.name)
    return scaled, max(times, default=default_us)


def is_improved(
    spec: BoardSpec,
    index: int,
    followers: Sequence[int],
    row: Sequence[Reached | None],
    values: Sequence[StatValue | None],
    post: tuple[Sequence[ColumnChange], int],
) -> bool:
    """Return whether a post (its changes, and its time) improves a column that others follow."""
    (changes, at_us), held = post, row[index]
    stored = [each[0] if each is not None else None for each in row]
    is_timed = spec.columns[index].sorted or spec.columns[index].keeps_time
    if not is_timed and not followers:
        return False
    if values[index] != stored[index]:
        return True
    sent = {change.index: change for change in changes}
    if index not in sent or sent[index].overwrite or spec.columns[index].merge not in (Merge.MAX, Merge.MIN):
        return False
    names = [spec.columns[follower].name for follower in followers]
    ties = [name for name in spec.tie_columns if name in names]
    numbers = {column.name: number for number, column in enumerate(spec.columns)}
    new = [sent[numbers[name]].value if numbers[name] in sent else None for name in ties]
    now = [stored[numbers[name]] for name in ties]
    if held is None or sent[index].value != held[0]:
        return False
    is_timed = is_timed and spec.ties is Ties.EARLIEST
    run, best = (tie_key(spec, ties, new), at_us), (tie_key(spec, ties, now), held[1])
    return run < best if is_timed else run[0] < best[0]


def tie_key(spec: BoardSpec, names: Sequence[str], values: Sequence[StatValue | None]) -> tuple[tuple[int, int], ...]:
    """Return what orders rows with equal values, by these tie columns. A smaller key is better."""
    best = {column.name: column.best for column in spec.columns}
    return tuple(
        (0, -value if best[name] is Best.HIGH else value) if isinstance(value, int) else (1, 0)
        for name, value in zip(names, values, strict=True)
    )


@dataclass(frozen=True, order=True)
class Place:
    """The place of a row in a ranking. A smaller place is better."""

    # The value, negated if high values are best; what the tie columns hold; the time, or 0 if it breaks no ties.
    key: tuple[int, tuple[tuple[int, int], ...], int]
    owner: str


def place_of(
    spec: BoardSpec, index: int, value: int, reached_us: int, owner: str, row: Sequence[Reached | None] = ()
) -> Place:
    sign = -1 if spec.columns[index].best is Best.HIGH else 1
    names = [name for name in spec.tie_columns if name != spec.columns[index].name]
    held = [row[[column.name for column in spec.columns].index(name)] for name in names]
    ties = tie_key(spec, names, [None if each is None else each[0] for each in held])
    return Place((sign * value, ties, reached_us if spec.ties is Ties.EARLIEST else 0), owner)


def rank_rows(spec: BoardSpec, index: int, rows: Mapping[str, Sequence[Reached | None]]) -> list[Place]:
    """Return the places of all owners who have a value in a column, best first."""
    places = []
    for owner, row in rows.items():
        held = row[index]
        if held is not None:
            assert isinstance(held[0], int)
            places.append(place_of(spec, index, held[0], held[1], owner, row))
    return sorted(places)

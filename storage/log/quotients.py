"""Computes quotient columns, such as hits per shot: exact quotients of two other columns of a row. It does no I/O.

The time at which a quotient was reached does not depend on the order in which posts arrive: it is the later of the
times at which its two columns were reached. So where time orders equal values, these columns keep their times, even if
unranked (`ColumnSpec.keeps_time`). A column that follows another one counts as reached when that one was.
"""

from dataclasses import dataclass

from storage.records import BoardSpec, ColumnSpec, Merge, StatValue


@dataclass(frozen=True, slots=True)
class Quotient:
    """Describes a quotient column. Columns are identified by their indexes, and values are scaled."""

    index: int
    of: int
    per: int
    per_least: int  # a lesser `per` gives no quotient; at least 1
    of_times: int  # the quotient is (of * of_times) / (per * per_times)
    per_times: int
    timed: tuple[int, ...]  # the columns whose times count
    untimed: tuple[int, ...]  # which of the two keep no time, because they were there before the quotient

    def divide(self, of: StatValue | None, per: StatValue | None) -> int | None:
        """Divide, rounding half to even. Return None if there is no quotient."""
        if not isinstance(of, int) or not isinstance(per, int) or per < self.per_least:
            return None
        divisor = per * self.per_times
        whole, rest = divmod(of * self.of_times, divisor)
        return whole + (2 * rest + whole % 2 > divisor)


def list_quotients(spec: BoardSpec) -> list[Quotient]:
    indexes = {column.name: index for index, column in enumerate(spec.columns)}
    found = []
    for index, column in enumerate(spec.columns):
        if column.merge is not Merge.QUOTIENT or column.of is None or column.per is None:
            continue
        of, per = indexes[column.of], indexes[column.per]
        of_scale, per_scale = spec.columns[of].scale, spec.columns[per].scale
        shift = column.scale + per_scale - of_scale
        timers = {each: indexes[name_timer(spec.columns[each])] for each in (of, per)}
        untimed = [each for each, by in timers.items() if not (spec.columns[by].sorted or spec.columns[by].keeps_time)]
        timed = [by for each, by in timers.items() if each not in untimed]
        factors = 10 ** max(0, shift), 10 ** max(0, -shift)
        least = column.per_least * 10**per_scale
        found.append(Quotient(index, of, per, least, *factors, tuple(timed), tuple(untimed)))
    return found


def name_timer(column: ColumnSpec) -> str:
    """Name the column whose time counts for this one: the column that it follows, or else itself."""
    return column.of if column.merge is Merge.WITH and column.of is not None else column.name

"""Finds an owner's division: the one after its last result, lowered for its absence since then.

Absence takes effect only when the owner returns, so that no job has to update the owners who are absent.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from querybuilder import INTEGER, TEXT, Lock, asc, col, excluded, insert, param, select
from storage.periods import calendar_of
from storage.records import Absent, LeagueSpec
from storage.schema.placement import TABLES
from storage.schema.tables import STANDINGS
from storage.store import Program

NEVER = 0  # the end of a period before all others


class Standing(NamedTuple):
    division: int  # the 0-based index
    through_us: int = NEVER  # the end of the last period with a result


def find_division(league: LeagueSpec, standing: Standing | None, ends_us: int, *, wanted: int = 0) -> int:
    """Find the division in which an owner begins the period ending at `ends_us`. A newcomer begins in `wanted`."""
    top = len(league.divisions) - 1
    missed = 0 if standing is None else _count_missed(league, standing, ends_us)
    if standing is None or (missed and league.absent is Absent.LEAVE):
        return min(wanted, top)
    fall = missed if league.absent is Absent.RELEGATE else 0
    return min(max(0, standing.division - fall), top)


def _count_missed(league: LeagueSpec, standing: Standing, ends_us: int) -> int:
    """Count the periods missed since the last result. Stop counting once more of them would make no difference."""
    if league.absent is Absent.STAY or standing.through_us == NEVER:
        return 0
    calendar, at_us = calendar_of(league.time_zone, league.declared), standing.through_us
    for missed in range(1 + standing.division):
        period = calendar.period_at(league.period, at_us)
        bounds = None if period is None else calendar.bounds_us(period)
        if bounds is None or bounds[1] >= ends_us:
            return missed
        at_us = bounds[1]
    return 1 + standing.division


def hold_standings(family_key: int, owners: Iterable[str]) -> Program[dict[str, Standing]]:
    """Lock the standings of owners, and return them by owner. Newcomers have none."""
    rows = yield _HOLD.bind(key=family_key, owners=sorted(owners))
    return {owner: Standing(*standing) for owner, *standing in rows}


def read_standing(family_key: int, owner: str) -> Program[Standing | None]:
    rows = yield _READ.bind(key=family_key, owners=[owner])
    return Standing(*rows[0][1:]) if rows else None


def add_newcomers(rows: Iterable[tuple[int, str, int]]) -> Program[int]:
    """Store newcomers, as rows of league, owner and division. Return how many of them had no standing yet."""
    [[added]] = yield _ADD.bind(rows=[(*row, NEVER) for row in sorted(rows)])
    return int(added)


def store_results(family_key: int, divisions: Mapping[str, int], ends_us: int) -> Program[None]:
    """Store owners' divisions after the period that ended at `ends_us`, unless the result of a later one is stored."""
    yield _STORE.bind(rows=[(family_key, owner, divisions[owner], ends_us) for owner in sorted(divisions)])


_columns = TABLES[STANDINGS].kinds
_theirs = col("family_key").eq(param("key", INTEGER)), col("owner").in_(param("owners", TEXT))
_read = select(*map(col, ("owner", "division", "through_at"))).from_(STANDINGS).where(*_theirs).packed()
_READ = _read.prepared()
_HOLD = _read.locked(Lock.NO_KEY_UPDATE, asc(col("owner"))).prepared()
_put = insert(STANDINGS).rows(param("rows"), **_columns).on_conflict("family_key", "owner")
_ADD = _put.do_nothing().prepared()
_later = col("through_at", STANDINGS).lt(excluded("through_at"))
_STORE = _put.do_update(where=_later, division=excluded("division"), through_at=excluded("through_at")).prepared()

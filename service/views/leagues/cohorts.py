"""Handlers that show a league's cohorts, an owner's results, and how many owners each division has."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import msgspec

from service.context import Context
from service.contract.league_messages import (
    CohortAnswer,
    DivisionAnswer,
    DivisionList,
    LeagueEntry,
    LeagueHistory,
    LeagueOwner,
    LeaguePast,
)
from service.contract.problems import ProblemError, clip_text
from service.contract.queries import ListQuery
from service.contract.routes import Call
from service.contract.values import format_us, to_wire_number
from service.views.owners.owners import add_profiles
from service.views.posts.posts import format_stats
from storage.boards.family_ids import board_id, is_listed, parse_board_id
from storage.errors import UnknownBoardError, UnknownOwnerError
from storage.leagues.cohorts import (
    Placed,
    Seat,
    count_divisions,
    is_waiting,
    list_past_seats,
    make_cohort,
    rank_cohort,
    read_cohort,
    read_seats_beside,
    split_cohort,
)
from storage.leagues.standings import Standing, find_division, read_standing
from storage.leaves.entries import Entries
from storage.leaves.hidden_owners import find_shadow
from storage.periods import Period
from storage.records import INT64_MAX, Board, Family, LeagueSpec
from storage.store import Program

from .leagues import find_league

_OUTCOMES: Mapping[int, str] = {1: "promoted", 0: "stayed", -1: "relegated"}


class CohortQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Asks for a cohort of a period."""

    period: str | None = None
    """The period as a result names it, such as `2026-W49`. Default: the current one."""


class LeaguePeriod(NamedTuple):
    family: Family
    league: LeagueSpec
    period: Period
    board: Board
    ends_us: int

    def name_cohort(self, cohort: int) -> str:
        division, number = split_cohort(cohort)
        return f"{self.league.divisions[division].name}-{number}"

    @property
    def column_index(self) -> int:
        return self.board.column_index[self.league.column]


async def find_period(context: Context, call: Call, named: str | None = None) -> LeaguePeriod:
    """Find a league's current period or, if `named` is given, the period with this id.

    Raises:
        ProblemError: the league has no such period, or currently none.
        UnknownFamilyError: there is no such league.
    """
    league_id, reread = call.path["league"], False
    while True:
        family, _ = await find_league(context, league_id, reread=reread)
        period = _choose_period(family, named, context.now_us())
        if period is not None:
            with suppress(UnknownBoardError):  # this process's copy of the league is outdated
                board = await context.catalog.find_board(board_id(family.id, period.id))
                league, ends_us = board.spec.league, family.spec.ends_us(period)
                if board.family_key == family.key and league is not None and ends_us is not None:
                    call.other_boards = [board.id]
                    return LeaguePeriod(family, league, period, board, ends_us)
        if reread:
            what = "period now" if named is None else f"period {clip_text(named)!r}"
            raise ProblemError("unknown_board", f"the league {league_id!r} has no {what}")
        reread = True


def _choose_period(family: Family, named: str | None, now_us: int) -> Period | None:
    if named is None:
        return family.spec.calendar.period_at(family.spec.periods[0], now_us)
    found = parse_board_id(board_id(family.id, named))
    return found.period if found is not None and not found.facets and is_listed(family.spec, found) else None


class Cohort(NamedTuple):
    seats: list[Seat]
    placed: list[Placed]


def read_placed(
    at: LeaguePeriod, entries: Entries, seats: Sequence[Seat], asking: str | None = None
) -> Program[Cohort]:
    """Rank the owners of these seats, which all belong to one cohort, and confirm the copy of the board.

    `asking` is the owner whom the answer is about. If this owner is shadowed, it is ranked all the same.
    """
    found, _ = yield from entries.find_entries_with_totals([each.owner for each in seats])
    if not seats:
        return Cohort([], [])
    if asking is not None and asking not in found:
        shadow = yield from find_shadow(at.board.leaf, asking)
        found |= {} if shadow is None else {asking: shadow}
    ranking = entries.rankings[at.column_index]
    return Cohort(list(seats), rank_cohort(at.league, seats[0].cohort, ranking, found.values()))


async def get_owner(context: Context, call: Call) -> LeagueOwner:
    owner, at = call.path["owner"], await find_period(context, call)
    leaf, entries = at.board.leaf, context.boards.open_rows(at.board.leaf)

    def program() -> Program[tuple[Cohort, Standing | None, bool]]:
        if at.board.is_unreached:
            return Cohort([], []), (yield from read_standing(at.family.key, owner)), False
        seats = yield from read_seats_beside(leaf, owner)
        cohort = yield from read_placed(at, entries, seats, owner)
        if seats:
            return cohort, None, False
        return cohort, (yield from read_standing(at.family.key, owner)), (yield from is_waiting(leaf, owner))

    (seats, placed), standing, waits = await context.store.at(at.board.home).read(program)
    if not seats and standing is None:
        raise UnknownOwnerError(f"{owner!r} is not in the league {at.family.id!r}")
    division = None
    if seats:
        division = split_cohort(seats[0].cohort)[0]
    elif not waits:
        division = find_division(at.league, standing, at.ends_us)
    own = next((each for each in placed if each.entry.owner == owner), None)
    return LeagueOwner(
        league=at.family.id,
        owner=owner,
        period=at.period.id,
        board=at.board.id,
        ends_at=format_us(at.ends_us),
        division=None if division is None else at.league.divisions[division].name,
        cohort=at.name_cohort(seats[0].cohort) if seats else None,
        seats=len(placed),
        position=None if own is None else own.rank,
        zone=None if own is None or own.rank is None else own.zone,
        waiting=waits,
        entries=await _show_entries(context, at, placed),
    )


async def _show_entries(context: Context, at: LeaguePeriod, placed: Sequence[Placed]) -> list[LeagueEntry]:
    shown = list_entries(at, context.boards.open_rows(at.board.leaf), placed)
    await add_profiles(context, shown)
    return shown


def list_entries(at: LeaguePeriod, entries: Entries, placed: Iterable[Placed]) -> list[LeagueEntry]:
    merger, shown = entries.merger, []
    for entry, rank, zone in placed:
        values = merger.decode_stats(entry.cells)
        value, scale = values[at.column_index], at.board.spec.columns[at.column_index].scale
        shown.append(
            LeagueEntry(
                rank=rank,
                owner=entry.owner,
                value=to_wire_number(value, scale) if isinstance(value, int) else None,
                zone=zone,
                updated_at=format_us(entry.updated_at_us),
                stats=format_stats(at.board.spec, values),
            )
        )
    return shown


async def get_cohort(context: Context, call: Call) -> CohortAnswer:
    query: CohortQuery = call.query
    at = await find_period(context, call, query.period)
    cohort = parse_cohort(at, call.path["cohort"])
    entries = context.boards.open_rows(at.board.leaf)

    def program() -> Program[Cohort]:
        if at.board.is_unreached or at.board.gate.archived_us is not None:
            return Cohort([], [])
        return (yield from read_placed(at, entries, (yield from read_cohort(at.board.leaf, cohort))))

    seats, placed = await context.store.at(at.board.home).read(program)
    if not seats:
        raise unknown_cohort(at, cohort)
    return CohortAnswer(
        league=at.family.id,
        period=at.period.id,
        board=at.board.id,
        ends_at=format_us(at.ends_us),
        division=at.league.divisions[split_cohort(cohort)[0]].name,
        cohort=at.name_cohort(cohort),
        seats=len(placed),
        settled=all(each.moved is not None for each in seats),
        entries=await _show_entries(context, at, placed),
    )


def unknown_cohort(at: LeaguePeriod, cohort: int) -> ProblemError:
    return ProblemError("unknown_board", f"no cohort {at.name_cohort(cohort)!r} in {at.board.id!r}")


def parse_cohort(at: LeaguePeriod, text: str) -> int:
    name, _, number = text.rpartition("-")
    names = [each.name for each in at.league.divisions]
    if name not in names:
        raise ProblemError("unknown_board", f"the league {at.family.id!r} has no division {name!r}")
    return make_cohort(names.index(name), int(number))


async def get_history(context: Context, call: Call) -> LeagueHistory:
    query: ListQuery = call.query
    family, league = await find_league(context, call.path["league"], reread=True)
    owner, limit = call.path["owner"], query.limit or context.settings.page_entries_default
    of = f"results of {owner} in {family.key}"
    before_us = context.cursors.find_start(query.cursor, of, INT64_MAX)
    reading = partial(list_past_seats, family.key, owner, before_us=before_us, limit=limit + 1)
    found = await context.store.at(family.partition).read(reading)
    shown, following = context.cursors.cut_page(found, limit, of, lambda last: last.ends_us)
    past = []
    for each in shown:
        period = family.spec.calendar.period_at(league.period, each.ends_us - 1)
        if period is None:
            continue
        division, number = split_cohort(each.cohort)
        name = league.divisions[division].name
        past.append(
            LeaguePast(
                period=period.id,
                board=board_id(family.id, period.id),
                ends_at=format_us(each.ends_us),
                division=name,
                cohort=f"{name}-{number}",
                seats=each.seats,
                rank=each.rank or None,
                outcome=_OUTCOMES[each.moved],  # type: ignore[arg-type]
            )
        )
    return LeagueHistory(owner, past, following)


async def get_divisions(context: Context, call: Call) -> DivisionList:
    at = await find_period(context, call)
    counting = partial(count_divisions, at.board.leaf)
    counted = await context.store.at(at.board.home).read(counting, heavy=True)
    found = {each.division: each for each in counted}
    divisions = [
        DivisionAnswer(spec.name, *((found[index].owners, found[index].cohorts) if index in found else (0, 0)))
        for index, spec in enumerate(at.league.divisions)
    ]
    return DivisionList(at.family.id, at.period.id, format_us(at.ends_us), divisions)

"""Handlers that create, change, show and delete families, find or empty a period's boards, and list facet values.

`get_history` shows an owner's final positions in closed periods.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import pairwise

from msgspec import UNSET

from service.context import Context
from service.contract.cursors import ListCursor
from service.contract.problems import ProblemError, clip_text
from service.contract.queries import FacetsQuery, FamilyBoardsQuery, HistoryQuery, ListQuery
from service.contract.requests import GRACE_SECONDS, PeriodBody, PutFamily
from service.contract.responses.boards import (
    FacetList,
    FacetValue,
    FamilyAnswer,
    FamilyBoardAnswer,
    FamilyList,
    FamilyReset,
    HistoryAnswer,
    PastPosition,
    PeriodAnswer,
)
from service.contract.routes import Call, Reply
from service.contract.values import format_us, to_micros
from service.views.owners.owners import find_ranked_column
from service.views.owners.positions import BoardColumn, find_positions
from storage.boards import journal
from storage.boards.families import (
    count_boards,
    delete_family,
    list_boards_on_shelf,
    list_families,
    put_family,
    reset_period,
)
from storage.boards.family_ids import (
    FACET_VALUES,
    FACETS_TOGETHER_MAX,
    board_id,
    is_facet,
    parse_board_id,
    parse_facet_value,
    shelf,
)
from storage.errors import SpecInvalidError, UnknownFamilyError
from storage.histories import merged_owners
from storage.leaves.totals import ALL_ENTRIES, find_totals_of
from storage.periods import Period, PeriodKind, PeriodSpec, calendar_of, find_zone, parse_period
from storage.records import Board, BoardSpec, Family, FamilySpec, Leaf, Rewards
from storage.store import Program

from .boards import show_spec
from .specs import make_rewards, make_spec, show_rewards

FIRST_YEAR, LAST_YEAR = 1970, 9000  # limits for the times in a family's own periods
HISTORY_EXAMINED_MAX = 1_000  # a page of a history looks at this many periods at most, whether they have posts or not


async def put_family_spec(context: Context, call: Call) -> Reply:
    family_id, grace_seconds = call.path["family"], call.body.grace_seconds
    if grace_seconds is UNSET:
        grace_seconds = GRACE_SECONDS
        with suppress(UnknownFamilyError):  # an omitted grace must not close periods
            grace_seconds = (await context.catalog.families.reread_family(family_id)).spec.grace_seconds
    spec = make_family_spec(call.body, grace_seconds, context)
    family, made = await store_family(context, call, family_id, spec)
    return Reply(await _answer(context, family), status=201 if made else 200)


async def store_family(context: Context, call: Call, family_id: str, spec: FamilySpec) -> tuple[Family, bool]:
    """Create a family in the `partition` that the body names, or change it. Return it, and whether it is new."""
    families_max, partition = context.settings.catalog_families_max, call.body.partition
    putting = partial(put_family, family_id=family_id, spec=spec, families_max=families_max, partition=partition)

    def program() -> Program[tuple[Family, bool]]:
        family, made = yield from putting(now_us=context.now_us())
        call.act = "family.created" if made else "family.changed"
        return family, made

    family, made = await context.store.write(program)
    context.catalog.families.keep_family(family)
    return family, made


def make_family_spec(body: PutFamily, grace_seconds: int, context: Context) -> FamilySpec:
    """Check a family's specification and return it. Raise SpecInvalidError if parts of it contradict each other."""
    periods = tuple([each.name if isinstance(each, PeriodBody) else each.value for each in body.periods])
    if len(set(periods)) < len(periods):
        raise SpecInvalidError("a period is given twice", pointer="/periods")
    facets = tuple(_facets(names, index) for index, names in enumerate(body.facets))
    if len(set(facets)) < len(facets):
        raise SpecInvalidError("a list of facets is given twice", pointer="/facets")
    boards, most = len(periods) * len(facets), context.settings.family_boards_max
    if boards > most:
        detail = f"{len(periods)} periods and {len(facets)} lists of facets are {boards} boards a post; at most {most}"
        raise SpecInvalidError(detail, pointer="/facets")
    if find_zone(body.time_zone) is None:
        raise SpecInvalidError(f"{clip_text(body.time_zone)!r} is not a known time zone", pointer="/time_zone")
    for name in body.keep:
        if name not in periods or name == PeriodKind.ALL:
            raise SpecInvalidError(f"keep names {name!r}, which is not a period of the family", pointer=f"/keep/{name}")
    keep = tuple(sorted(body.keep.items()))
    declared = [
        _declare(each, at, body.time_zone) for at, each in enumerate(body.periods) if isinstance(each, PeriodBody)
    ]
    if body.segments > 1:
        raise SpecInvalidError("the leaderboards of a family have one segment", pointer="/segments")
    spec = make_spec(body, context)
    return FamilySpec(
        spec,
        periods,
        body.time_zone,
        facets,
        grace_seconds,
        keep,
        declared=tuple(declared),
        rewards=_make_rewards(body, periods, spec),
    )


def _make_rewards(body: PutFamily, periods: Sequence[str], spec: BoardSpec) -> tuple[tuple[str, Rewards], ...]:
    """Make the rewards for each kind of period. Raises SpecInvalidError, ProblemError."""
    found = []
    for kind, sent in sorted(body.rewards.items()):
        at = f"/rewards/{kind}"
        if kind not in periods or kind == PeriodKind.ALL:
            raise SpecInvalidError(f"rewards names {kind!r}, which is not a period of the family that ends", pointer=at)
        rewards = make_rewards(sent, body.each, spec.columns, at)
        found += [] if rewards is None else [(kind, rewards)]
    return tuple(found)


def _declare(body: PeriodBody, index: int, zone: str) -> PeriodSpec:
    at = f"/periods/{index}"
    if body.name in set(PeriodKind):
        raise SpecInvalidError(f"{body.name!r} is a period of the calendar", pointer=f"{at}/name")
    if (body.bounds is UNSET) is (body.starts_at is UNSET) or (body.starts_at is UNSET) is not (body.every is UNSET):
        raise SpecInvalidError("give either starts_at and every, or bounds", pointer=at)
    bounds = () if body.bounds is UNSET else tuple(body.bounds)
    starts_at, every = (None if each is UNSET else each for each in (body.starts_at, body.every))
    instants = [_parse_local(each, at, zone) for each in bounds or (starts_at or "",)]
    if any(later <= earlier for earlier, later in pairwise(instants)):
        raise SpecInvalidError("each bound is later than the one before it", pointer=f"{at}/bounds")
    return PeriodSpec(body.name, starts_at, every, bounds)


def _parse_local(text: str, at: str, zone: str) -> int:
    try:
        local = datetime.fromisoformat(text)
        if local.tzinfo is None and FIRST_YEAR <= local.year <= LAST_YEAR:
            return calendar_of(zone).to_instant_us(text)
    except ValueError:
        pass
    detail = f"{clip_text(text)!r} should be a local time from {FIRST_YEAR} to {LAST_YEAR}, such as 2027-01-04T05:00:00"
    raise SpecInvalidError(detail, pointer=at)


def _facets(names: Sequence[str], index: int) -> tuple[str, ...]:
    at = f"/facets/{index}"
    if len(names) > FACETS_TOGETHER_MAX:
        raise SpecInvalidError(f"a list has at most {FACETS_TOGETHER_MAX} facets", pointer=at)
    if len(set(names)) < len(names):
        raise SpecInvalidError("a facet is given twice", pointer=at)
    for name in names:
        if not is_facet(name):
            raise SpecInvalidError(f"{name!r} cannot be the name of a facet", pointer=at)
    return tuple(sorted(names))


async def get_family(context: Context, call: Call) -> FamilyAnswer:
    return await _answer(context, await context.catalog.families.reread_family(call.path["family"]))


async def get_families(context: Context, call: Call) -> FamilyList:
    query: ListQuery = call.query
    limit = query.limit or context.settings.page_entries_default
    after = context.cursors.find_start(query.cursor, "families", "")
    found = await context.store.read(lambda: list_families(after=after, limit=limit + 1))
    shown, next_page = context.cursors.cut_page(found, limit, "families", lambda last: last.id)
    return FamilyList([await _answer(context, family) for family in shown], next_page)


async def remove_family(context: Context, call: Call) -> None:
    family_id = call.path["family"]

    def program() -> Program[list[Leaf]]:
        gone = yield from delete_family(family_id=family_id)
        yield from journal.log_deleted(gone, context.now_us())
        return gone

    leaves = await context.store.write(program)
    context.catalog.families.forget_family(family_id)
    context.forget_leaves(leaves)


async def empty_period(context: Context, call: Call) -> FamilyReset:
    kind: str = call.body.period
    call.detail = {"period": kind}
    family = await context.catalog.families.reread_family(call.path["family"])
    _check_period(family, kind)
    emptying = partial(reset_period, family_id=family.id, kind=kind)
    family, period, leaves = await context.store.write(lambda: emptying(now_us=context.now_us()))
    for leaf in leaves:
        context.catalog.forget_board(leaf.id)
    return FamilyReset(family.id, make_period_answer(context, family, period), len(leaves))


async def _answer(context: Context, family: Family) -> FamilyAnswer:
    boards = await context.store.read(lambda: count_boards(family))
    spec = family.spec
    return FamilyAnswer(
        **show_spec(context, family.template_board),
        periods=[show_period(spec, name) for name in spec.periods],
        time_zone=spec.time_zone,
        facets=[list(names) for names in spec.facets],
        grace_seconds=spec.grace_seconds,
        keep=dict(spec.keep),
        rewards={kind: show_rewards(each, spec.board.columns) for kind, each in spec.rewards} or UNSET,
        each=spec.rewards[0][1].each if spec.rewards else UNSET,
        boards=boards,
        league=UNSET if spec.board.league is None else True,
    )


def show_period(spec: FamilySpec, name: str) -> str | PeriodBody:
    for each in spec.declared:
        if each.name == name:
            bounds = [*each.bounds] or UNSET
            return PeriodBody(name=name, starts_at=each.starts_at or UNSET, every=each.every or UNSET, bounds=bounds)
    return name


async def get_family_board(context: Context, call: Call) -> FamilyBoardAnswer:
    query: FamilyBoardsQuery = call.query
    # Read the family again: another process may have changed `grace_seconds`, by which periods close.
    family = await context.catalog.families.reread_family(call.path["family"])
    facets = check_facets(family, query.facets)
    period = _period(context, family, query)
    before = family.spec.calendar.find_previous(period)
    named = board_id(family.id, period.id, facets)
    answer = make_period_answer(context, family, period)
    archived = bool(answer.closed) and (await context.catalog.reread_board(named)).gate.archived_us is not None
    return FamilyBoardAnswer(
        board=named,
        period=answer,
        previous=None if before is None else board_id(family.id, before.id, facets),
        archived=archived,
    )


async def get_facet_values(context: Context, call: Call) -> FacetList:
    query: FacetsQuery = call.query
    family = await context.catalog.families.reread_family(call.path["family"])
    within = _normal_facets(query.facets)
    if query.facet in within:
        raise ProblemError("bad_request", "the facet to list cannot have a value as well", pointer=query.facet)
    names = tuple(sorted([*within, query.facet]))
    _check_listed(family, names)
    period = _period(context, family, query)
    limit = query.limit or context.settings.page_entries_default
    list_id = f"{family.id}:{period.id}:{query.facet}"
    after = context.cursors.find_start(query.cursor, list_id, "")
    shelf_id = shelf(period.id, names)

    def program() -> Program[tuple[list[Board], dict[int, dict[int, int]]]]:
        found = yield from list_boards_on_shelf(
            family, shelf_id, names=names, values=within, after=after, limit=limit + 1
        )
        return found, (yield from find_totals_of(found))

    found, totals = await context.store.read(program, heavy=bool(within))
    shown, following = context.cursors.cut_page(found, limit, list_id, lambda last: last.id)
    values = [
        FacetValue(dict(named.facets)[query.facet], board.id, totals[board.key].get(ALL_ENTRIES, 0))
        for board in shown
        if (named := parse_board_id(board.id)) is not None
    ]
    return FacetList(query.facet, make_period_answer(context, family, period), values, following)


def check_facets(family: Family, values: Mapping[str, str]) -> list[tuple[str, str]]:
    """Check the facet values in a request, and return them as pairs, sorted by the facet's name.

    Raises:
        ProblemError: a text can't be a facet's value, or the family has no boards for this combination of facets.
    """
    facets = sorted(_normal_facets(values).items())
    _check_listed(family, tuple(name for name, _ in facets))
    return facets


def _normal_facets(values: Mapping[str, str]) -> dict[str, str]:
    """Normalise facet values to NFC. Raise ProblemError if a text can't be a facet's value."""
    found = {}
    for name, value in values.items():
        if (normal := parse_facet_value(value)) is None:
            raise ProblemError(
                "bad_request",
                f"{clip_text(value)!r} cannot be the value of a facet: {FACET_VALUES}",
                pointer=clip_text(name),
            )
        found[name] = normal
    return found


def _check_listed(family: Family, names: tuple[str, ...]) -> None:
    if names not in family.spec.facets:
        what = f"the facets {', '.join(names)} together" if names else "everybody"
        raise ProblemError("unknown_board", f"{family.id!r} has no leaderboards for {clip_text(what)}")


def _period(context: Context, family: Family, query: FamilyBoardsQuery) -> Period:
    _check_period(family, query.period)
    at_us = context.now_us() if query.at is None else to_micros(query.at)
    period = family.spec.calendar.period_at(query.period, at_us)
    if period is None:
        raise ProblemError("unknown_board", f"{family.id!r} has no {query.period} at that time", pointer="at")
    return period


def _check_period(family: Family, kind: str) -> None:
    if kind not in family.spec.periods:
        raise ProblemError(
            "unknown_board", f"{family.id!r} has no leaderboards by {clip_text(kind)!r}", pointer="period"
        )


def make_period_answer(context: Context, family: Family, period: Period) -> PeriodAnswer:
    """Make the answer about a family's period: when it starts and ends, and whether it is currently closed."""
    bounds = family.spec.calendar.bounds_us(period)
    if bounds is None:
        return PeriodAnswer(period.id, None, None, None)
    closed = bounds[1] <= family.shut_through_us(context.now_us())
    return PeriodAnswer(period.id, format_us(bounds[0]), format_us(bounds[1]), closed)


async def get_history(context: Context, call: Call) -> HistoryAnswer:
    """List an owner's final positions in periods that closed since the family was created, newest first.

    Periods without posts are left out. Periods in which only others have posts are listed, so that a chart has a point
    for each. Whatever the limit is, an answer takes few reads: one for the family, and at most two for the boards that
    this process does not know. In each partition, one read gets the owner's entries, and another one counts the ranks
    that need to be counted.
    """
    query: HistoryQuery = call.query
    # Read the family again: another process may have deleted it, shortened `grace_seconds` or added the column.
    family = await context.catalog.families.reread_family(call.path["family"])
    facets = check_facets(family, query.facets)
    _check_period(family, query.period)
    if query.period == PeriodKind.ALL:
        raise ProblemError("bad_request", "the period all never closes", pointer="period")
    index = find_ranked_column(family.template_board, query.column)
    list_id = board_id(family.id, query.period, facets)
    closed, made, following = await _find_played(context, family, query, list_id)
    call.other_boards = boards = [*made]
    asked = [BoardColumn(made[board], index) for board in boards]
    found = await find_positions(context, asked, call.path["owner"], query.rank)
    if None in found:  # archives keep the earlier ids of owners
        for name in await context.store.read(lambda: merged_owners.list_names(call.path["owner"])):
            others = await find_positions(context, asked, name, query.rank) if name != call.path["owner"] else found
            found = [own or other for own, other in zip(found, others, strict=True)]
    answers = []
    for board, position in zip(boards, found, strict=True):
        context.metrics.meter.add("rankcurve_reads", 1, "families", "row" if position is None else position.method)
        answers.append(PastPosition(board, make_period_answer(context, family, closed[board]), position))
    return HistoryAnswer(call.path["owner"], family.spec.board.columns[index].name, answers, following)


async def _find_played(
    context: Context, family: Family, query: HistoryQuery, list_id: str
) -> tuple[dict[str, Period], dict[str, Board], str | None]:
    """Find a page of the boards of closed periods that posts have reached.

    Return the closed periods by their board's id, the boards on the page by id, and the cursor of the next page.
    """
    newest = _find_newest(context, family, query, list_id)
    facets = check_facets(family, query.facets)
    for size in (query.limit + 1, HISTORY_EXAMINED_MAX):
        periods = family.list_closed_periods(newest, size)
        closed = {board_id(family.id, each.id, facets): each for each in periods}
        made = await context.catalog.find_stored_boards(closed)
        played = [each for each in closed if each in made]
        if len(played) > query.limit or len(closed) < size:
            break
    boards, following = context.cursors.cut_page(played, query.limit, list_id, lambda last: closed[last].id)
    if following is None and len(closed) == size:
        following = context.cursors.encode_cursor(ListCursor(list_id, periods[-1].id))
    return closed, {each: made[each] for each in boards}, following


def _find_newest(context: Context, family: Family, query: HistoryQuery, list_id: str) -> Period | None:
    """Find the newest period of a page: the last one that has closed, or the one before the page's cursor."""
    calendar, shut_us = family.spec.calendar, context.now_us() - family.spec.grace_seconds * 1_000_000
    if query.cursor is None:
        return calendar.find_ended(query.period, shut_us)
    last = parse_period(context.cursors.find_start(query.cursor, list_id, ""))
    return None if last is None else calendar.find_previous(last)

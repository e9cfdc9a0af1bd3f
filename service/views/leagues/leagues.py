"""Handlers that create, change and show leagues, take posts to them, and let owners leave."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from msgspec import UNSET, Raw

from service.context import Context
from service.contract.league_messages import (
    DivisionBody,
    LeagueAnswer,
    LeagueList,
    LeaguePostBody,
    LeagueRewardBody,
    PutLeague,
)
from service.contract.post_bodies import PostTarget
from service.contract.problems import ProblemError, name_post
from service.contract.queries import ListQuery
from service.contract.requests import PeriodBody, PutFamily, RewardBody
from service.contract.routes import Answer, Call, Reply
from service.views.boards.boards import show_spec
from service.views.boards.families import make_family_spec, remove_family, show_period, store_family
from service.views.boards.specs import make_rewards
from service.views.owners.owners import change_owner
from service.views.posts.family_posts import resolve_posts, take_family_posts
from service.views.posts.posts import Resolved, parse_request_posts
from storage.boards.boards import find_present_boards
from storage.boards.families import list_families
from storage.errors import SpecInvalidError, UnknownFamilyError, UnknownOwnerError
from storage.leagues.cohorts import list_open_leaves
from storage.leagues.seats import forget_standing
from storage.periods import PeriodKind
from storage.records import BoardSpec, DivisionSpec, Each, Family, FamilySpec, LeagueSpec, Rewards

_FAMILIES_A_PAGE = 1_000


async def find_league(context: Context, league_id: str, *, reread: bool = False) -> tuple[Family, LeagueSpec]:
    """Find a league, and return it as a family, with its rules. Raises UnknownFamilyError."""
    families = context.catalog.families
    family = await (families.reread_family if reread else families.find_family)(league_id)
    if family.spec.board.league is None:
        raise UnknownFamilyError(f"{league_id!r} is a family, and no league")
    return family, family.spec.board.league


async def put_league(context: Context, call: Call) -> Reply:
    body: PutLeague = call.body
    grace_seconds = 0
    with suppress(UnknownFamilyError):  # an omitted grace must not close periods
        known = await context.catalog.families.reread_family(call.path["league"])
        grace_seconds = known.spec.grace_seconds
    spec = _make_spec(context, body, grace_seconds if body.grace_seconds is UNSET else body.grace_seconds)
    family, made = await store_family(context, call, call.path["league"], spec)
    return Reply(_answer(context, family), status=201 if made else 200)


def _make_spec(context: Context, body: PutLeague, grace_seconds: int) -> FamilySpec:
    kind = body.period.name if isinstance(body.period, PeriodBody) else body.period.value
    if kind == PeriodKind.ALL:
        raise SpecInvalidError("the period of a league ends", pointer="/period")
    sent = PutFamily(
        columns=body.columns, ties=body.ties, predictor=body.predictor, periods=[body.period],
        time_zone=body.time_zone, keep={kind: body.keep},
    )  # fmt: skip
    try:
        spec = make_family_spec(sent, grace_seconds, context)
    except SpecInvalidError as error:
        error.pointer = (error.pointer or "").replace("/periods/0", "/period") or None
        raise
    if body.column not in [column.name for column in spec.board.columns if column.sorted]:
        raise SpecInvalidError(f"{body.column!r} is not a ranked column", pointer="/column")
    divisions = tuple(_make_division(body, index) for index in range(len(body.divisions)))
    rules = LeagueSpec(body.column, body.cohort, divisions, body.absent, kind, spec.time_zone, spec.declared)
    rewards = _make_rewards(body, spec.board, [each.name for each in divisions])
    return replace(spec, board=replace(spec.board, league=rules), rewards=((kind, rewards),) if rewards else ())


def _make_rewards(body: PutLeague, board: BoardSpec, divisions: Sequence[str]) -> Rewards | None:
    column = body.column
    plain = [RewardBody(name=each.name, column=column, to_rank=each.to_rank, data=each.data) for each in body.rewards]
    made = make_rewards(plain, Each.FIRST, board.columns)
    if made is None:
        return None
    listed = []
    for index, (each, spec) in enumerate(zip(body.rewards, made.listed, strict=True)):
        if each.division is not None and each.division not in divisions:
            raise SpecInvalidError(f"no division {each.division!r}", pointer=f"/rewards/{index}/division")
        listed.append(replace(spec, division=None if each.division is None else divisions.index(each.division)))
    return replace(made, listed=tuple(listed))


def _make_division(body: PutLeague, index: int) -> DivisionSpec:
    division, at = body.divisions[index], f"/divisions/{index}"
    if any(division.name == earlier.name for earlier in body.divisions[:index]):
        raise SpecInvalidError(f"division {division.name!r} is given twice", pointer=f"{at}/name")
    if index == 0 and division.relegate:
        raise SpecInvalidError("nobody can fall from the first division", pointer=f"{at}/relegate")
    if index == len(body.divisions) - 1 and division.promote:
        raise SpecInvalidError("nobody can rise from the last division", pointer=f"{at}/promote")
    if division.promote + division.relegate > body.cohort:
        detail = f"a cohort has {body.cohort} seats, and more than that would rise or fall"
        raise SpecInvalidError(detail, pointer=at)
    return DivisionSpec(division.name, division.promote, division.relegate)


async def get_league(context: Context, call: Call) -> LeagueAnswer:
    family, _ = await find_league(context, call.path["league"], reread=True)
    return _answer(context, family)


async def get_leagues(context: Context, call: Call) -> LeagueList:
    query: ListQuery = call.query
    limit = query.limit or context.settings.page_entries_default
    after = context.cursors.find_start(query.cursor, "leagues", "")
    found: list[Family] = []
    while len(found) <= limit:
        page = await context.store.read(partial(list_families, after=after, limit=_FAMILIES_A_PAGE))
        found += [family for family in page if family.spec.board.league is not None]
        if len(page) < _FAMILIES_A_PAGE:
            break
        after = page[-1].id
    shown, following = context.cursors.cut_page(found[: limit + 1], limit, "leagues", lambda last: last.id)
    return LeagueList([_answer(context, family) for family in shown], following)


async def remove_league(context: Context, call: Call) -> None:
    family, _ = await find_league(context, call.path["league"], reread=True)
    call.path = {**call.path, "family": family.id}
    await remove_family(context, call)


def _answer(context: Context, family: Family) -> LeagueAnswer:
    spec, rules = family.spec, family.spec.board.league
    assert rules is not None
    divisions = [DivisionBody(name=each.name, promote=each.promote, relegate=each.relegate) for each in rules.divisions]
    granted = dict(spec.rewards).get(rules.period)
    rewards = [
        LeagueRewardBody(
            name=each.name,
            division=None if each.division is None else rules.divisions[each.division].name,
            to_rank=each.to_rank or 0,
            data=Raw(each.data.encode()),
        )
        for each in (granted.listed if granted is not None else ())
    ]
    shown = show_spec(context, family.template_board)
    return LeagueAnswer(
        **{name: shown[name] for name in ("id", "columns", "ties", "partition", "predictor", "created_at")},
        column=rules.column,
        period=show_period(spec, rules.period),
        time_zone=spec.time_zone,
        cohort=rules.cohort_size,
        divisions=divisions,
        rewards=rewards,
        absent=rules.absent,
        grace_seconds=spec.grace_seconds,
        keep=dict(spec.keep)[rules.period],
    )


async def post_to_league(context: Context, call: Call) -> Answer:
    family, _ = await find_league(context, call.path["league"])
    call.path = {**call.path, "family": family.id}
    if call.identity.player is not None:
        call.identity.player.check_family(family.id)
    posts, single = parse_request_posts(context, call, PostTarget.LEAGUE)
    for index, post in enumerate(posts) if call.identity.player is not None else ():
        if post.division is not None:
            problem = ProblemError("forbidden", "a player token can't name a division", pointer="/division")
            raise name_post(problem, None if single else index)
    return await take_family_posts(context, call, family, posts, partial(_resolve, context, family.id), single)


async def _resolve(context: Context, league_id: str, posts: Sequence[LeaguePostBody]) -> list[Resolved]:
    found = await resolve_posts(context, league_id, posts)
    if any(post.division is not None for post in posts):
        family, rules = await find_league(context, league_id)
        names = [each.name for each in rules.divisions]
        for post, each in zip(posts, found, strict=True):
            if post.division is None or each.post is None:
                continue
            if post.division in names:
                each.post.division = names.index(post.division)
            else:
                problem = ProblemError("bad_value", f"no division {post.division!r}", pointer="/division")
                each.targets, each.post = [(family.template_board.leaf, problem)], None
    return found


async def leave_league(context: Context, call: Call) -> None:
    """Remove an owner from a league: its seats and entries in periods without a result, and its division."""
    owner, (family, _) = call.path["owner"], await find_league(context, call.path["league"], reread=True)
    store = context.store.at(family.partition)
    keys = await store.read(partial(list_open_leaves, family.key, owner))
    boards = (await context.store.read(partial(find_present_boards, keys))).values() if keys else ()
    for board in boards:
        await change_owner(context, owner).erase_entry(board)
    if not await store.write(partial(forget_standing, family.key, owner)) and not keys:
        raise UnknownOwnerError(f"{owner!r} is not in the league {family.id!r}")

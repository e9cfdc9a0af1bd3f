"""Handlers of rewards and grants: list and claim grants, and preview who would be granted which reward now."""

from msgspec import Raw, structs

from service.context import Context
from service.contract.cursors import ListCursor
from service.contract.queries import ListQuery, OwnerGrantsQuery
from service.contract.responses.grants import (
    BoardGrants,
    ClaimedGrant,
    ExpectedGrant,
    GrantAnswer,
    OwnerGrants,
    RewardPreview,
)
from service.contract.routes import Call
from service.contract.values import format_us
from storage.boards.boards import read_states
from storage.histories import merged_owners
from storage.leaves.totals import read_board_totals
from storage.records import INT64_MAX
from storage.rewards import grants
from storage.rewards.grant_making import has_walk, open_walk, read_rewards
from storage.rewards.grant_walk import GrantWalk, NewGrant, WalkMark
from storage.rewards.grants import Grant
from storage.rewards.league_walk import LeagueWalk
from storage.store import Program


async def get_board_grants(context: Context, call: Call) -> BoardGrants:
    query: ListQuery = call.query
    board, now_us = await context.catalog.reread_board(call.path["board"]), context.now_us()
    limit, of = query.limit or context.settings.page_entries_default, f"grants of {board.key}"
    after = context.cursors.find_start(query.cursor, of, 0)

    def program() -> Program[tuple[list[Grant], bool]]:
        closed = board.gate.closed_us is not None
        if board.is_unreached:
            [state] = yield from read_states([board], now_us)
            closed = state.closed
        found = yield from grants.list_of_board(board.key, after=after, limit=limit + 1)
        return found, closed and not (yield from has_walk(board.key))

    found, made = await context.store.read(program)
    shown, following = context.cursors.cut_page(found, limit, of, lambda last: last.number)
    return BoardGrants(board.id, made, [answer_grant(each) for each in shown], following)


async def get_owner_grants(context: Context, call: Call) -> OwnerGrants:
    query: OwnerGrantsQuery = call.query
    owner, claimed = call.path["owner"], None if query.state is None else query.state == "claimed"
    limit, of = query.limit or context.settings.page_entries_default, f"grants of {owner} {claimed}"
    before = context.cursors.find_start(query.cursor, of, (INT64_MAX, 0))

    def program() -> Program[list[Grant]]:
        yield from merged_owners.check_not_merged(owner)
        return (yield from grants.list_of_owner(owner, before=before, limit=limit + 1, claimed=claimed))

    found = await context.store.read(program)
    shown, following = context.cursors.cut_page(found, limit, of, lambda last: last[:2])
    return OwnerGrants(owner, [answer_grant(each) for each in shown], following)


async def claim_grant(context: Context, call: Call) -> ClaimedGrant:
    key, now_us, player = grants.parse_key(call.path["grant"]), context.now_us(), call.identity.player

    def program() -> Program[tuple[Grant, bool]]:
        grant, first = yield from grants.claim_grant(key, now_us=now_us)
        if player is not None:
            player.check_owner(grant.owner)  # an error rolls the claim back
        return grant, first

    grant, first = await context.store.write(program)
    context.metrics.meter.add("rankcurve_grants_claimed", int(first))
    return ClaimedGrant(**structs.asdict(answer_grant(grant)), first=first)


def answer_grant(grant: Grant) -> GrantAnswer:
    return GrantAnswer(
        id=grant.id,
        owner=grant.owner,
        board=grant.board_id,
        reward=grant.reward,
        rank=grant.rank,
        data=Raw(grant.data.encode()),
        claimed_at=None if grant.claimed_us is None else format_us(grant.claimed_us),
    )


async def preview_rewards(context: Context, call: Call) -> RewardPreview:
    query: ListQuery = call.query
    board = await context.catalog.reread_board(call.path["board"])
    limit, of = query.limit or context.settings.page_entries_default, f"rewards of {board.key} {board.edition}"
    mark = context.cursors.find_start(query.cursor, of, WalkMark())

    def program() -> Program[tuple[list[NewGrant], WalkMark, GrantWalk | LeagueWalk | None]]:
        if (rewards := (yield from read_rewards([board])).get(board.key)) is None:
            return [], mark, None
        walk = open_walk(board, context.boards.open_board, rewards)
        return *(yield from walk.read_step(mark, limit, (yield from read_board_totals(board)))), walk

    found, following, walk = await context.store.at(board.reading_partition).read(program, heavy=True)
    if walk is None:
        return RewardPreview(board.id, [], None)
    expected = [
        ExpectedGrant(owner=each.owner, reward=reward.name, rank=each.rank, data=Raw(reward.data.encode()))
        for each in found
        for reward in (walk.rewards[each.reward],)
    ]
    ended = following.reward == len(walk.rewards)
    return RewardPreview(
        board.id, expected, None if ended else context.cursors.encode_cursor(ListCursor(of, following))
    )

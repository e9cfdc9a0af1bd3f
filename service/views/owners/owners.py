"""Handlers that read owners' entries, and that erase, hide, shadow and show owners (with `storage.owners`).

A profile is a JSON object about an owner, such as a name and a picture. It is stored as it was sent, without white
space. `add_profiles` adds profiles to the rows of other answers.
"""

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
from msgspec import UNSET, Raw, UnsetType

from service.context import Context
from service.contract.api_keys import Role
from service.contract.cursors import ListCursor
from service.contract.league_messages import LeagueEntry
from service.contract.problems import ProblemError, check_count
from service.contract.queries import ListQuery, ProfilesQuery
from service.contract.requests import HideOwner, Lookup
from service.contract.responses.boards import (
    EntryAnswer,
    Hidden,
    LookupAnswer,
    LookupEntry,
    OwnerBoard,
    OwnerBoards,
    OwnerEntries,
    RankedEntry,
)
from service.contract.responses.journal import ProfileAnswer
from service.contract.responses.positions import Position
from service.contract.routes import Call, Tagged
from service.contract.strict_json import decode_strictly
from service.contract.values import ONLY_COLUMN, format_us, parse_owner
from service.ranks.locator import Locator, WantedRank
from service.ranks.rank_context import AskedRank
from service.views.unchanged import find_unchanged, tag_answer
from storage.boards import profiles
from storage.boards.boards import list_boards
from storage.boards.postponed_changes import OwnerChange
from storage.errors import UnknownColumnError, UnknownOwnerError
from storage.histories import merged_owners
from storage.leaves.hidden_owners import find_shadow
from storage.leaves.totals import read_board_totals
from storage.owners import OwnerChanges
from storage.reads.point_reads import EntryRead
from storage.records import Board, Entry, ShadowEntry
from storage.store import Program, in_partition

EXAMINED_BOARDS_MAX = 100  # maximum boards on which one request looks for an owner's entry
TOKEN_BYTES = 8  # length of the random token that replaces an erased owner's name in the journal


async def find_column(context: Context, board_id: str, name: str | None) -> tuple[Board, int]:
    """Find a board and the 0-based index of its ranked column `name`.

    Without a name, or with `ONLY_COLUMN`, return the only ranked column.

    Raises:
        UnknownBoardError: there is no such board.
        UnknownColumnError: the board has no such column, or the column is not ranked.
        ProblemError: there is no name, and the board has several ranked columns.
    """
    board = await context.catalog.find_board(board_id)
    return board, find_ranked_column(board, name)


def find_ranked_column(board: Board, name: str | None) -> int:
    if name in (None, ONLY_COLUMN):
        if len(board.sorted_indexes) == 1:
            return board.sorted_indexes[0]
        ranked = ", ".join(board.spec.columns[index].name for index in board.sorted_indexes)
        if not ranked:
            raise UnknownColumnError(f"{board.id!r} has no ranked column", pointer="column")
        detail = f"{board.id!r} has several ranked columns: name one of {ranked}"
        raise ProblemError("column_needed", detail, pointer="column")
    index = board.column_index.get(name)
    if index is None:
        raise UnknownColumnError(f"no column {name!r} in {board.id!r}", pointer="column")
    if not board.spec.columns[index].sorted:
        raise UnknownColumnError(f"column {name!r} of {board.id!r} is not ranked", pointer="column")
    return index


async def get_entry(context: Context, call: Call) -> EntryAnswer | Tagged:
    query: ProfilesQuery = call.query
    owner = call.path["owner"]
    board = await context.catalog.find_board(call.path["board"])
    if not query.profiles and (unchanged := await find_unchanged(context, call, board.leaf_of(owner))) is not None:
        return unchanged
    found, totals, *_ = await context.reads.read_entry(board, owner)
    hidden: Hidden | UnsetType = UNSET
    if found is None:
        found = (await context.reads.find_hidden(board, [owner])).get(owner)
        hidden = _tell_hidden(call, found)
    is_told = hidden is True
    is_joined = found is None
    if found is None:
        found = (await context.reads.find_joined(board, [owner])).get(owner)
    if found is None:
        raise UnknownOwnerError(f"{owner!r} has no entry in {board.id!r}")
    context.metrics.meter.add("rankcurve_reads", 1, "entry", "row")
    stats = context.ranks.find_locator(board).format_stats(found.cells)
    answer = EntryAnswer(found.owner, format_us(found.updated_at_us), stats, hidden)
    if query.profiles:
        await add_profiles(context, [answer])
    elif not is_told and not is_joined:  # other answers can change while the board's tag stays the same
        return tag_answer(call, board.leaf_of(owner), totals, answer)
    return answer


def _tell_hidden(call: Call, entry: Entry | None) -> Hidden | UnsetType:
    """Choose the member `hidden` for an entry that no ranking shows. Only operators learn that an owner is shadowed."""
    if not isinstance(entry, ShadowEntry):
        return UNSET if entry is None else True
    return "shadow" if call.identity.role is Role.OPS else UNSET


async def get_owner_boards(context: Context, call: Call) -> OwnerBoards:
    """List the boards on which an owner has an entry. One request looks at up to `EXAMINED_BOARDS_MAX` boards."""
    query: ListQuery = call.query
    owner, limit = call.path["owner"], query.limit or context.settings.page_entries_default
    after = context.cursors.find_start(query.cursor, owner, "")
    boards = await context.store.read(
        lambda: list_boards(prefix="", after=after, limit=EXAMINED_BOARDS_MAX, archived=False)
    )

    async def read(away: Collection[int]) -> dict[int, EntryRead]:
        return await context.reads.read_on_boards(
            [board for board in boards if board.leaf_of(owner).partition not in away], owner
        )

    found, away = await context.try_living(read)
    listed = []
    for board in boards:
        if board.key in found and (entry := found[board.key].entry) is not None:
            stats = context.ranks.find_locator(board).format_stats(entry.cells)
            listed.append(OwnerBoard(board.id, format_us(entry.updated_at_us), stats))
    last = boards[-1].id if len(boards) == EXAMINED_BOARDS_MAX else None
    if len(listed) > limit:
        listed, last = listed[:limit], listed[limit - 1].board
    cursor = None if last is None else context.cursors.encode_cursor(ListCursor(owner, last))
    if not listed and not after:
        await context.store.read(lambda: merged_owners.check_not_merged(owner))
    return OwnerBoards(owner, listed, cursor, [*away] or UNSET)


async def look_up_entries(context: Context, call: Call) -> LookupAnswer:
    body: Lookup = call.body
    query: ProfilesQuery = call.query
    check_count(len(body.owners), context.settings.lookup_owners_max, "too_many_owners", "/owners", "owners")
    owners = [parse_owner(owner, pointer=f"/owners/{i}") for i, owner in enumerate(body.owners)]
    board = await context.catalog.find_board(call.path["board"])
    index = None if body.column is None else find_ranked_column(board, body.column)
    locator = context.ranks.find_locator(board)

    def program() -> Program[tuple[dict[str, Entry], dict[int, int]]]:
        found = yield from locator.entries.find_entries(list(dict.fromkeys(owners)))
        return found, (yield from read_board_totals(board))

    found, totals = await context.store.at(board.reading_partition).read(program)
    missing = [owner for owner in dict.fromkeys(owners) if owner not in found]
    unseen = await context.reads.find_hidden(board, missing)
    missing = [owner for owner in missing if owner not in unseen]
    joined = await context.reads.find_joined(board, missing) if missing else {}
    answers = _make_entries(locator, index, [*found.values(), *unseen.values(), *joined.values()])
    for owner, entry in unseen.items():
        answers[owner].hidden = _tell_hidden(call, entry)
    found |= {owner: entry for owner, entry in unseen.items() if isinstance(entry, ShadowEntry)}
    if index is None:
        context.metrics.meter.add("rankcurve_reads", len(found), "owners", "row")
    else:
        await _add_positions(context, locator, index, found, totals, answers)
    listed = [answers[owner] for owner in owners if owner in answers]
    if query.profiles:
        await add_profiles(context, listed)
    return LookupAnswer(listed, [owner for owner in missing if owner not in joined])


def _make_entries(locator: Locator, index: int | None, rows: Iterable[Entry]) -> dict[str, LookupEntry]:
    answers = {}
    for row in rows:
        answer = LookupEntry(row.owner, format_us(row.updated_at_us), locator.format_stats(row.cells))
        if index is not None:
            answer.position = answer.place = None
            answer.reached_at = locator.find_reached_at(index, row.cells[index])
        answers[row.owner] = answer
    return answers


async def _add_positions(
    context: Context,
    locator: Locator,
    index: int,
    rows: Mapping[str, Entry],
    totals: dict[int, int],
    answers: Mapping[str, LookupEntry],
) -> None:
    """Add each row's position, and its place among these rows, to its owner's answer. `totals` are the board's."""
    for owner, position in (await rank_entries(context, locator, index, rows.values(), totals)).items():
        context.metrics.meter.add("rankcurve_reads", 1, "owners", position.method)
        answers[owner].position = position
    ranking, firsts = locator.entries.rankings[index], dict[object, int]()
    ordered = sorted((row for row in rows.values() if row.cells[index] is not None), key=ranking.order_of)
    for number, row in enumerate(ordered, start=1):
        answers[row.owner].place = number if ranking.timed else firsts.setdefault(row.cells[index], number)


async def rank_entries(
    context: Context, locator: Locator, index: int, entries: Collection[Entry], totals: dict[int, int]
) -> dict[str, Position]:
    """Rank these entries, and return their positions by owner. Leave out entries without a value in the column.

    Shadowed owners among them count for everyone, so that each of them sees the others at the ranks that it would
    expect.
    """
    wanted = [each for entry in entries for each in list_wanted_ranks(entry, [index])]
    if shadows := [each for each in entries if isinstance(each, ShadowEntry)]:
        wanted = [count_shadows(locator, shadows, each) for each in wanted]
    asked = [AskedRank(locator, each) for each in wanted]
    found = await context.ranks.find_positions(asked, "auto", {locator.board.key: totals})
    return {each.owner or "": position for each, position in zip(wanted, found, strict=True)}


def list_wanted_ranks(entry: Entry, indexes: Sequence[int]) -> list[WantedRank]:
    """List a `WantedRank` for each of these columns in which the entry has a value."""
    shadows = int(isinstance(entry, ShadowEntry))
    return [
        WantedRank(index, cell, entry.owner, shadows)
        for index in dict.fromkeys(indexes)
        if isinstance(cell := entry.cells[index], str)
    ]


def count_shadows(locator: Locator, entries: Iterable[Entry | None], wanted: WantedRank) -> WantedRank:
    """Make a wanted rank count those of the entries that belong to shadowed owners and have a value."""
    ranking = locator.entries.rankings[wanted.column_index]
    shadows = [each for each in entries if isinstance(each, ShadowEntry) and each.cells[ranking.index] is not None]
    places = [ranking.order_of(each)[: 1 + ranking.timed] for each in shadows]
    own = (ranking.padding.key_of_cell(wanted.cell), wanted.owner or "")[: 1 + ranking.timed]
    return wanted._replace(shadows=len(places), better_shadows=sum(place < own for place in places))


def find_own_entry(locator: Locator, owner: str) -> Program[Entry]:
    """Find the entry that is shown to its own owner. It is a `ShadowEntry` if the owner is shadowed.

    Raises:
        UnknownOwnerError: there is no entry, or its owner is hidden.
    """
    found = yield from locator.entries.find_entries([owner])
    if owner in found:
        return found[owner]
    leaf = locator.board.leaf_of(owner)
    if (shadow := (yield from in_partition(leaf.partition, find_shadow(leaf, owner)))) is None:
        raise UnknownOwnerError(f"{owner!r} has no entry in {locator.board.id!r}")
    return shadow


async def erase_entry(context: Context, call: Call) -> None:
    board = await context.catalog.find_board(call.path["board"])
    if not await change_owner(context, call.path["owner"]).erase_entry(board):
        raise UnknownOwnerError(f"{call.path['owner']!r} has no entry in {board.id!r}")


async def erase_owner(context: Context, call: Call) -> OwnerEntries:
    return await _change_owner(context, call, "erase")


async def hide_owner(context: Context, call: Call) -> OwnerEntries:
    body: HideOwner = call.body
    call.act = "owner.shadowed" if body.shadow else "owner.hidden"
    return await _change_owner(context, call, "shadow" if body.shadow else "hide")


async def show_owner(context: Context, call: Call) -> OwnerEntries:
    return await _change_owner(context, call, "show")


async def _change_owner(context: Context, call: Call, change: OwnerChange) -> OwnerEntries:
    """Change an owner in all partitions that answer. A job finishes the change in the others once they answer."""
    owner = call.path["owner"]
    entries, away = await context.try_living(lambda away: change_owner(context, owner, away).make_change(change))
    return OwnerEntries(entries, [*away] or UNSET)


def change_owner(context: Context, owner: str, away: Collection[int] = ()) -> OwnerChanges:
    return OwnerChanges(
        owner=owner,
        store=context.store,
        open_boards=context.boards,
        now_us=context.now_us,
        boards_max=context.settings.catalog_boards_max,
        rows_max=context.settings.prune_rows_max,
        token=secrets.token_hex(TOKEN_BYTES),
        away=away,
    )


_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_COMPACT = -1


async def put_profile(context: Context, call: Call) -> ProfileAnswer:
    owner, most = call.path["owner"], context.settings.profile_bytes_max
    decode_strictly(call.body, _OBJECT)
    text = msgspec.json.format(call.body, indent=_COMPACT)
    if len(text) > most:
        raise ProblemError("body_too_large", f"a profile has at most {most} bytes")

    def program() -> Program[None]:
        yield from merged_owners.check_not_merged(owner)
        yield from profiles.store_profile(owner, text.decode(), now_us=context.now_us())

    await context.store.write(program)
    return ProfileAnswer(owner, Raw(text))


async def get_profile(context: Context, call: Call) -> ProfileAnswer:
    owner = call.path["owner"]
    found = await context.store.read(lambda: profiles.find_profiles([owner]))
    if owner not in found:
        raise ProblemError("no_profile", f"{owner!r} has no profile")
    return ProfileAnswer(owner, Raw(found[owner].encode()))


async def remove_profile(context: Context, call: Call) -> None:
    owner = call.path["owner"]
    if not await context.store.write(lambda: profiles.remove_profile(owner)):
        raise ProblemError("no_profile", f"{owner!r} has no profile")


async def add_profiles(context: Context, rows: Sequence[EntryAnswer | RankedEntry | LeagueEntry]) -> None:
    """Set the `profile` of each row, or None if the owner has none. All profiles are read in one statement."""
    owners = list(dict.fromkeys(row.owner for row in rows))
    if not owners:
        return
    found = await context.store.read(lambda: profiles.find_profiles(owners))
    for row in rows:
        text = found.get(row.owner)
        row.profile = None if text is None else Raw(text.encode())

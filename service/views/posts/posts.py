"""Posting to leaderboards: parses a request's posts, has them applied durably, and returns their results."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from service.context import Context
from service.contract.api_keys import Identity, Role
from service.contract.players import Player
from service.contract.post_bodies import PostTarget, parse_posts
from service.contract.problems import ProblemError, name_post, post_problem_of, problem_of
from service.contract.queries import PostStateQuery
from service.contract.requests import FacetedPostBody, FanPostBody, PostBody
from service.contract.responses.boards import (
    BoardResult,
    PostResult,
    PostResults,
    PostState,
    PostStates,
    Stats,
)
from service.contract.routes import Answer, Call
from service.contract.values import format_us, parse_decimal, parse_owner, parse_text, to_wire_number
from service.views.retry_on_change import PAUSES_S
from storage.errors import (
    ColumnComputedError,
    EntryRefusedError,
    FamilyBoardError,
    OutcomeUnknownError,
    PostError,
    PostIdConflictError,
    PostRejectedError,
    PostVoidedError,
    StorageError,
    UnknownBoardError,
    UnknownColumnError,
    UnknownFamilyError,
    ValueOutOfRangeError,
)
from storage.leaves.catalog_rows import find_leaves
from storage.posting.post_ids import hash_post
from storage.posting.rules import Attempt, find_refusal
from storage.queue.outcomes import POSTS_LISTED_MAX, find_post_fate, list_post_fates
from storage.records import (
    Board,
    BoardPost,
    BoardSpec,
    ColumnChange,
    ColumnKind,
    Leaf,
    Merge,
    PartOutcome,
    Post,
    PostAct,
    PostScope,
    PostStatus,
    StatValue,
    describe_range,
)

from .posted_positions import AskedPositions, Taken, add_positions, find_asked
from .queue import QUEUED, queue_posts

BATCH_POSTS_MIN = 101  # a request with at least this many posts counts as a batch in the metrics
MADE_ID, MADE_ID_BYTES = "held:", 12  # the start of ids that the service creates, and the length of their random part
TURN_POSTS = 1_000  # after converting this many posts, a request lets other requests run
# A request is applied in pieces of at most this many values. A value counts once for each of its boards.
PIECE_VALUES_MAX = 64_000
_BEST_FIRST = tuple(PostStatus)
_NOT_TAKEN = (PostStatus.HELD, PostStatus.REJECTED)

_time_text = lru_cache(maxsize=64)(format_us)  # nearly all rows of one transaction have the same time


async def post_to_board(context: Context, call: Call) -> Answer:
    board = context.catalog.find_known(call.path["board"]) or await _find_named_board(context, call.path["board"])
    if call.identity.player is not None:
        call.identity.player.check_board(call.path["board"], board.id)
    posts, single = parse_request_posts(context, call, PostTarget.ONE_BOARD)
    asked = await find_asked(context, call, len(posts), board) if call.query.positions else None
    resolve = partial(_resolve_posts, context, board.id)
    return await take_posts(context, call, posts, resolve, single=single, asked=asked)


async def post_to_boards(context: Context, call: Call) -> Answer:
    posts, single = parse_request_posts(context, call, PostTarget.BOARDS)
    return await take_posts(context, call, posts, partial(_resolve_posts, context, None), single=single, boards=0)


def parse_request_posts(context: Context, call: Call, kind: PostTarget) -> tuple[list[Any], bool]:
    """Parse a request's posts, and return whether the body is a single post instead of a list.

    Raises:
        ProblemError: the request as a whole is faulty, or the caller's API key may not send that many posts now.
    """
    may_set = call.identity.role >= Role.OPS
    overwriting: list[PostBody] = []
    player = call.identity.player
    parse = partial(parse_posts, kind=kind, may_set=may_set, by_token=player is not None, overwriting=overwriting)
    posts, single = parse(call.body, call.media_type, context.settings)
    if player is not None:
        player.number_posts(posts)
    call.overwrites = bool(overwriting)
    call.is_batch = len(posts) >= BATCH_POSTS_MIN
    if context.key_limits.posts.is_set and player is None:
        context.key_limits.posts.admit(call.identity.key_id, len(posts))
    return posts, single


async def get_post_state(context: Context, call: Call) -> PostState | PostStates:
    """Look up the outcome of an owner's post or, without an owner, of all posts with this post id."""
    query: PostStateQuery = call.query
    board, post_id = await context.catalog.find_board(call.path["board"]), call.path["post_id"]
    asked = context.store, context.posting.post_ids, board, post_id
    if query.owner is not None:
        owner = parse_owner(query.owner)
        fate = await find_post_fate(*asked, owner)
        await context.reads.read_totals(board)  # raises an error if this process's copy of the board is outdated
        return state_of(board, post_id, owner, fate)
    fates = await list_post_fates(*asked)
    await context.reads.read_totals(board)
    states = [state_of(board, post_id, fate.owner, fate.outcome) for fate in fates[:POSTS_LISTED_MAX]]
    return PostStates(post_id, states, len(fates) > POSTS_LISTED_MAX)


def state_of(board: Board, post_id: str, owner: str | None, fate: PartOutcome | None) -> PostState:
    state = partial(PostState, post_id=post_id, owner=owner)
    if fate is None:
        return state(status="pending")
    if fate.error is not None:
        return state(status="rejected", error=post_problem_of(fate.error).to_document())
    if fate.status in (PostStatus.VOIDED, PostStatus.HELD):
        return state(status="held" if fate.status is PostStatus.HELD else "voided")
    status: Any = fate.status.value  # never `duplicate`, because the store keeps the first outcome of a post
    stats = format_stats(board.spec, fate.stats or ())
    return state(status=status, updated_at=format_us(fate.updated_at_us or 0), stats=stats)


# Boards, or only their ids, each with the error that keeps a post from it, or with the post's outcome.
Targets = Sequence[tuple[Leaf | str, Exception | None]]
Parts = Sequence[tuple[Leaf | str, PartOutcome | Exception | None]]


class Resolved(msgspec.Struct):
    """A post of a request with its boards, as far as this process knows them."""

    targets: Targets  # empty if there is no error and the result does not list the boards
    named: bool  # whether the result lists the boards
    post: Post | None = None  # None: the post does not reach the writer


class Settled(msgspec.Struct):
    """A post's outcome on each of its boards, or an error if the writer did not get the post."""

    parts: Parts
    named: bool
    status: PostStatus = PostStatus.REJECTED  # the best of the post's statuses on its boards


# A function that finds the boards of posts.
Resolve = Callable[[Sequence[Any]], Awaitable[list[Resolved]]]


class PostRequest(msgspec.Struct):
    """A request's posts on their way to the writer.

    Before a post is refused because of a copy of a board, that copy is confirmed.
    """

    context: Context
    posts: Sequence[PostBody]
    resolve: Resolve
    single: bool  # whether the body is a single post instead of a list
    family: Sequence[str] = ()  # the id by which to confirm the family, if the caller posts to one
    asked: AskedPositions | None = None  # the positions that the results should have
    operator: Identity | None = None  # the caller, if a post has `set`
    player: Player | None = None  # the caller, if it has a player token

    async def confirm(self, leaves: Iterable[Leaf]) -> bool:
        """Read the boards of these leaves, and the family, from the store. Return whether there were any to read."""
        ids = {leaf.id for leaf in leaves}.union(self.family)
        if ids:
            await self.context.catalog.confirm(ids)
        return bool(ids)

    async def find_boards(self, posts: Sequence[PostBody]) -> list[Resolved]:
        """Resolve posts, and resolve those that are refused once more, with confirmed copies of their boards."""
        try:
            found = await self.resolve(posts)
        except UnknownFamilyError:  # the family was deleted, or created again
            await self.confirm(())
            return await self.resolve(posts)
        refused: list[int] = []
        for index, each in enumerate(found):  # a comprehension would be one more call for each post
            if each.post is None or not each.post.parts:
                refused.append(index)
        if refused and await self.confirm(leaf for at in refused for leaf in _list_leaves(found[at].targets)):
            for index, again in zip(refused, await self.resolve([posts[index] for index in refused]), strict=True):
                found[index] = again
        if self.operator is not None:
            for body, each in zip(posts, found, strict=True):
                if body.set and each.post is not None:
                    each.post.act = _make_act(self.operator, body)
        if self.player is not None:
            for each in found:
                if (post := each.post) is None or not post.parts:
                    continue
                error = self.player.find_breach(post.parts[0].leaf.spec, post.parts[0].changes)
                if error is not None:
                    each.targets, each.post = [(part.leaf, error) for part in post.parts], None
        return found

    async def find_accepted(self) -> list[Post]:
        """Return all posts for the store. If one is refused, raise the `ProblemError` of the first of these."""
        found: list[Post] = []
        for index, each in enumerate(await self.find_boards(self.posts)):
            if each.post is None:
                raise name_post(post_problem_of(_find_cause(each.targets)), None if self.single else index)
            found.append(each.post)
        return found

    async def apply(self, posts: Sequence[PostBody]) -> list[Settled]:
        """Have the writer apply posts, and retry those for which it finds a copy of a board outdated.

        Raises:
            OutcomeUnknownError: in every try, a board is missing in its partition although the catalog has it.
        """
        settled, pauses_s = await self._apply(await self.find_boards(posts)), iter(PAUSES_S)
        while lost := [
            index
            for index, each in enumerate(settled)
            if each.status is PostStatus.REJECTED and _list_leaves(each.parts, UnknownBoardError)
        ]:
            if (pause_s := next(pauses_s, None)) is None:  # the catalog still has the boards
                raise OutcomeUnknownError("a leaderboard is being changed, so only the posts to others may be applied")
            await asyncio.sleep(pause_s)
            await self.confirm(leaf for at in lost for leaf in _list_leaves(settled[at].parts, UnknownBoardError))
            again = await self._apply(await self.find_boards([posts[index] for index in lost]))
            for index, each in zip(lost, again, strict=True):
                settled[index] = each
        return settled

    async def _apply(self, resolved: Sequence[Resolved]) -> list[Settled]:
        context = self.context
        posts: list[Post] = []
        for each in resolved:
            if each.post is not None:
                posts.append(each.post)
        if self.asked is not None and self.asked.moved:
            for post in posts:
                post.tells_before = True
        applied = await context.posting.writer.submit(posts) if posts else []
        repeated = await _find_repeated(context, posts, applied) if posts and posts[0].scope is not None else {}
        outcomes, settled = iter(applied), []
        for each in resolved:
            if each.post is None:
                settled.append(Settled(each.targets, each.named))
            elif each.named:
                settled.append(_settle(each.targets, each.post, next(outcomes), repeated))
            else:
                [outcome] = next(outcomes)
                settled.append(Settled([(each.post.parts[0].leaf, outcome)], False, outcome.status))
        return settled


def _make_act(operator: Identity, body: PostBody) -> PostAct:
    detail = {"set": body.set, **({"post_id": body.post_id} if isinstance(body.post_id, str) else {})}
    return PostAct(operator.stored_key, body.reason or None, msgspec.json.encode(detail).decode())


async def take_posts(
    context: Context,
    call: Call,
    posts: Sequence[PostBody],
    resolve: Resolve,
    *,
    single: bool,
    boards: int = 1,
    asked: AskedPositions | None = None,
) -> Answer:
    """Apply a request's posts and return their results, or queue the posts if the request asks for that.

    `boards` is the number of boards that a post reaches at most, or 0 if each post names its boards.

    Raises:
        ProblemError: the body was a single post, which is rejected, or a post can't be queued.
        OutcomeUnknownError: see `PostRequest.apply`.
    """
    family = [f"{call.path['family']}:"] if "family" in call.path else ()
    operator = call.identity if call.overwrites else None
    request = PostRequest(context, posts, resolve, single, family, asked, operator, call.identity.player)
    if call.query.mode == QUEUED:
        return await queue_posts(request)
    if not single:
        values = [(len(each.stats) + len(each.set)) * (boards or len(_boards_of(each))) for each in posts]
        if len(values) > 1 and sum(values) > PIECE_VALUES_MAX:
            return await _take_pieces(request, max(values))
    settled = await request.apply(posts)
    results = make_results(context, posts, settled, single=single)
    if asked is not None:
        await add_positions(context, asked, _list_taken(results, settled))
    return results


def _list_taken(results: PostResults, settled: Sequence[Settled]) -> list[Taken]:
    """List each leaf's outcome for each accepted post, with the part of the results that describes it."""
    taken: list[Taken] = []
    for result, each in zip(results.results, settled, strict=True):
        answers: Sequence[PostResult | BoardResult] = result.boards or [result]
        for answer, (leaf, part) in zip(answers, each.parts, strict=False):
            if isinstance(leaf, Leaf) and isinstance(part, PartOutcome) and part.status not in _NOT_TAKEN:
                taken.append(Taken(answer, result.owner, leaf, part))
    return taken


async def _take_pieces(request: PostRequest, values_max: int) -> PostResults:
    results: list[Any] = []
    posts, piece_posts = request.posts, max(1, PIECE_VALUES_MAX // values_max)  # no post has more than `values_max`
    for begin in range(0, len(posts), piece_posts):
        await asyncio.sleep(0)  # lets other requests run, even if all posts are refused
        piece = posts[begin : begin + piece_posts]
        try:
            settled = await request.apply(piece)
            taken = make_results(request.context, piece, settled, single=False)
            if request.asked is not None:
                await add_positions(request.context, request.asked, _list_taken(taken, settled))
        except StorageError as error:
            if not begin:
                raise
            raise OutcomeUnknownError(f"of {len(posts)} posts, perhaps only the first {begin} were applied") from error
        results += [Raw(msgspec.json.encode(each)) for each in taken.results]  # encoded, they take much less memory
    return PostResults(results)


async def _find_repeated(
    context: Context, posts: Sequence[Post], applied: Sequence[Sequence[PartOutcome]]
) -> dict[int, Leaf]:
    """Find leaves by key: those of `posts` and, for each duplicate, those that the first copy reached.

    Leave out leaves that no longer exist. If no post is a duplicate, return an empty dict.
    """
    repeats = (PostStatus.DUPLICATE, PostStatus.HELD)
    again = [part for parts in applied if parts and parts[0].status in repeats for part in parts]
    if not again:
        return {}
    by_key = {part.leaf.key: part.leaf for post in posts for part in post.parts}
    away = {part.leaf_key for part in again if part.leaf_key is not None} - by_key.keys()
    if away:
        by_key |= await context.store.read(lambda: find_leaves(list(away)))
    return by_key


def _settle(targets: Targets, post: Post, outcomes: Sequence[PartOutcome], repeated: Mapping[int, Leaf]) -> Settled:
    """Combine a post's outcomes on its boards. `outcomes` has the writer's outcome for each leaf."""
    status = min({part.status for part in outcomes}, key=_BEST_FIRST.index, default=PostStatus.REJECTED)
    if post.scope is not None and (known := _list_known(targets, outcomes, repeated)) is not None:
        return Settled(known, True, status)
    reached = zip([part.leaf for part in post.parts], outcomes, strict=True)
    return Settled([(target, error) if error else next(reached) for target, error in targets], True, status)


def _list_known(targets: Targets, outcomes: Sequence[PartOutcome], repeated: Mapping[int, Leaf]) -> Parts | None:
    """List, for each board, the outcome of a post to a family whose id is already known. Otherwise return None."""
    if not outcomes:
        return None
    if outcomes[0].status in (PostStatus.DUPLICATE, PostStatus.HELD):  # the first copy may have reached other boards
        return [(repeated[key], part) for part in outcomes if (key := part.leaf_key or 0) in repeated]
    if isinstance(outcomes[0].error, PostIdConflictError | PostVoidedError):
        return [(target, outcomes[0]) for target, _ in targets]
    return None


async def _find_named_board(context: Context, named: str) -> Board:
    if "\0" in named:  # PostgreSQL refuses texts with NUL
        raise UnknownBoardError(f"no leaderboard {named!r}")
    [board_id] = await context.catalog.resolve_aliases([named], context.now_us())
    return await context.catalog.find_board(board_id)


async def _resolve_posts(context: Context, only_board: str | None, posts: Sequence[PostBody]) -> list[Resolved]:
    """Find each post's boards. Return posts for the writer, or the errors of boards that refuse them."""
    tolerated: Sequence[type[Exception]] = ()
    if only_board is not None:
        named = {only_board}
    else:
        named, tolerated = {each for post in posts for each in _boards_of(post)}, (UnknownBoardError,)
    boards: dict[str, Board] = {}
    for each in named:
        with suppress(*tolerated):
            boards[each] = context.catalog.find_known(each) or await _find_named_board(context, each)
    only = None if only_board is None else boards[only_board]
    resolved: list[Resolved] = []
    for begin in range(0, len(posts), TURN_POSTS):
        if begin:
            await asyncio.sleep(0)  # lets other requests run
        turn = posts[begin : begin + TURN_POSTS]
        resolved += [
            _resolve_plain(context, post, only) or _resolve(context, post, only_board, boards) for post in turn
        ]
    return resolved


def _boards_of(post: PostBody) -> Sequence[str]:
    return post.boards if isinstance(post, FanPostBody) else ()


def _resolve_plain(context: Context, post: PostBody, board: Board | None) -> Resolved | None:
    """Do what `_resolve` does for nearly every post, in less time.

    Return None for other posts, and for faulty ones.
    """
    if board is None or post.at or board.family_key is not None:
        return None
    try:
        changes = parse_changes(board, post.stats, post.set, context.settings.text_bytes_max)
    except (PostError, ProblemError):
        return None
    parts = [BoardPost(board.leaf_of(post.owner) if board.is_spread else board.leaf, changes)]
    if not isinstance(post.post_id, str) and post.hold is not True and not parts[0].leaf.holds:
        # The same as `make_post`, without a call for every post.
        return Resolved((), False, Post(post.owner, parts, None, None, ""))
    return Resolved((), False, make_post(context, post, board.spec, changes, parts))


def _resolve(context: Context, post: PostBody, only_board: str | None, boards: Mapping[str, Board]) -> Resolved:
    board_ids, named = (_boards_of(post), True) if only_board is None else ((only_board,), False)
    if (early := check_time(context, post)) is not None:
        return Resolved([(each, early) for each in board_ids], named)
    targets: list[tuple[Leaf | str, Exception | None]] = []
    parts: list[BoardPost] = []
    for board_id in board_ids:
        board = boards.get(board_id)
        error: Exception | None = None
        try:
            parts.append(_make_part(context, post, board_id, board))
        except (PostError, ProblemError) as refused:
            error = refused
        targets.append((board_id if board is None else board.leaf_of(post.owner), error))
    if len(parts) < len(targets):
        return Resolved([(target, error or PostRejectedError()) for target, error in targets], named)
    return Resolved(targets, named, make_post(context, post, parts[0].leaf.spec, parts[0].changes, parts))


def _make_part(context: Context, post: PostBody, board_id: str, board: Board | None) -> BoardPost:
    if board is None:
        raise UnknownBoardError(f"no leaderboard {board_id!r}")
    if board.family_key is not None:
        raise FamilyBoardError(f"{board.id!r} belongs to a family: post to the family")
    changes = parse_changes(board, post.stats, post.set, context.settings.text_bytes_max)
    return BoardPost(board.leaf_of(post.owner), changes)


def check_time(context: Context, post: PostBody) -> PostError | None:
    """Return an error if a post's time is more than `at_ahead_s_max` seconds in the future, or None."""
    if post.at_us is None:
        return None
    return find_refusal(Attempt(post.at_us, context.now_us(), ahead_s_max=context.settings.at_ahead_s_max))


def make_post(
    context: Context,
    post: PostBody,
    spec: BoardSpec,
    changes: Sequence[ColumnChange],
    parts: list[BoardPost],
    scope: PostScope | None = None,
) -> Post:
    """Make a post for the writer. `parts` has its leaves, and numbers in `changes` have the scales from `spec`.

    A post that may be held gets an id if it has none, because a verdict names a post by its id.
    """
    if not isinstance(post.post_id, str):
        if post.hold is not True and not any(part.leaf.holds for part in parts):
            return Post(post.owner, parts, None, post.at_us, "", scope)
        post.post_id = f"{MADE_ID}{secrets.token_hex(MADE_ID_BYTES)}"
    at_us, facets = post.at_us, post.facets if isinstance(post, FacetedPostBody) else None
    fingerprint = hash_post(post.owner, spec, changes, at_us, facets)
    post_hash = context.posting.post_ids.hash_post_id(post.post_id, post.owner)
    made = Post(post.owner, parts, post_hash, at_us, fingerprint, scope, post.post_id)
    if post.hold is True:
        made.asks_hold = True
    return made


def parse_changes(
    board: Board, stats: Mapping[str, Raw], overwrite: Mapping[str, Raw], text_bytes_max: int
) -> list[ColumnChange]:
    """Parse a post's values into changes of the board's columns. Numbers become integers with the column's scale.

    Raises:
        UnknownColumnError, ValueOutOfRangeError, ProblemError: the board can't accept the post.
    """
    changes = []
    for values in (stats, overwrite):
        overwrites = values is overwrite
        for name, raw in values.items():
            index = board.posted_index.get(name)
            if index is None and name in board.column_index:
                raise ColumnComputedError(pointer=_pointer(name, overwrites))
            if index is None:
                raise UnknownColumnError(f"no column {name!r} in {board.id!r}", pointer=_pointer(name, overwrites))
            column = board.spec.columns[index]
            try:
                value: StatValue | None = None
                if overwrites and bytes(raw) == b"null":
                    pass
                elif column.kind is ColumnKind.TEXT:
                    value = parse_text(raw, bytes_max=text_bytes_max)
                else:
                    value = parse_decimal(raw, column.scale)
            except ProblemError as problem:
                raise ProblemError(problem.code, problem.detail, pointer=_pointer(name, overwrites)) from None
            if (
                column.merge is not Merge.SUM
                and isinstance(value, int)
                and not column.min_scaled <= value <= column.max_scaled
            ):
                detail = f"{name} is outside {describe_range(column)}"
                raise ValueOutOfRangeError(detail, pointer=_pointer(name, overwrites))
            changes.append(ColumnChange(index, value, overwrites))
    return changes


def _pointer(name: str, overwrite: bool) -> str:
    return f"/{'set' if overwrite else 'stats'}/{name}"


def format_stats(spec: BoardSpec, values: Sequence[StatValue | None]) -> Stats:
    columns = spec.columns
    if len(columns) == 1 and values:  # most boards have one column
        column, value = columns[0], values[0]
        return {column.name: to_wire_number(value, column.scale) if isinstance(value, int) else value}
    return {
        column.name: to_wire_number(value, column.scale) if isinstance(value, int) else value
        for column, value in zip(columns, values, strict=False)
    }


def name_changes(spec: BoardSpec, changes: Sequence[ColumnChange], *, overwrite: bool) -> Stats:
    """Show, by column name, what a post has in `stats` or, if `overwrite` is true, in `set`."""
    named: Stats = {}
    for index, value in ((each.index, each.value) for each in changes if each.overwrite is overwrite):
        column = spec.columns[index]
        named[column.name] = to_wire_number(value, column.scale) if isinstance(value, int) else value
    return named


def _error_of(part: PartOutcome | Exception | None) -> Exception | None:
    return part.error if isinstance(part, PartOutcome) else part


def _find_cause(parts: Parts) -> Exception:
    """Find the first error that is a board's own reason to refuse the post, or else a `PostRejectedError`."""
    errors = [error for _, part in parts if (error := _error_of(part)) is not None] or [PostRejectedError()]
    return next((error for error in errors if not isinstance(error, PostRejectedError)), errors[0])


def _list_leaves(parts: Parts, error: type[Exception] = Exception) -> list[Leaf]:
    return [leaf for leaf, part in parts if isinstance(leaf, Leaf) and isinstance(_error_of(part), error)]


def make_results(
    context: Context, posts: Sequence[PostBody], settled: Sequence[Settled], *, single: bool
) -> PostResults:
    """Make the results for a request's posts. Raise ProblemError if the body was a single post that is rejected."""
    statuses = [each.status for each in settled]
    for status in _BEST_FIRST:
        if count := statuses.count(status):
            # `_value_` is a plain attribute, and faster than the property `value`
            context.metrics.meter.add("rankcurve_posts", count, status._value_)
    results = []
    for post, each in zip(posts, settled, strict=True):
        if each.named or each.status is PostStatus.REJECTED:
            for error in filter(None, map(_error_of, (part for _, part in each.parts))):
                if isinstance(error, EntryRefusedError):
                    context.metrics.meter.add("rankcurve_entry_refused_posts", 1, problem_of(error).code)
            results.append(_make_result(post, each, single=single))
            continue
        [(leaf, part)] = each.parts
        assert isinstance(leaf, Leaf)
        assert isinstance(part, PartOutcome)
        if part.status is PostStatus.HELD:
            results.append(PostResult(owner=post.owner, status=part.status, post_id=post.post_id or UNSET))
            continue
        updated_at = _time_text(part.updated_at_us or 0)
        stats = format_stats(leaf.spec, part.stats or ())
        results.append(PostResult(owner=post.owner, status=each.status, updated_at=updated_at, stats=stats))
    return PostResults(results)


def _make_result(post: PostBody, settled: Settled, *, single: bool) -> PostResult:
    result = PostResult(owner=post.owner, status=settled.status)
    if settled.status is PostStatus.HELD:
        result.post_id = post.post_id or UNSET
    if settled.status is PostStatus.REJECTED:
        problem = post_problem_of(_find_cause(settled.parts))
        if single:
            raise problem
        result.error = problem.to_document()
    if settled.named:
        result.boards = [_board_result(board, part) for board, part in settled.parts]
    return result


def _board_result(board: Leaf | str, part: PartOutcome | Exception | None) -> BoardResult:
    if isinstance(board, Leaf) and isinstance(part, PartOutcome) and part.status is PostStatus.HELD:
        return BoardResult(board=board.id, status=part.status)
    if isinstance(board, Leaf) and isinstance(part, PartOutcome) and part.error is None:
        return BoardResult(
            board=board.id,
            status=part.status,
            updated_at=_time_text(part.updated_at_us or 0),
            stats=format_stats(board.spec, part.stats or ()),
        )
    problem = post_problem_of(_error_of(part) or PostRejectedError())
    board_id = board.id if isinstance(board, Leaf) else board
    return BoardResult(board=board_id, status=PostStatus.REJECTED, error=problem.to_document())
